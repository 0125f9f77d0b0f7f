//! Forms whose schema is known only at run time.

use rmcp::{
    handler::server::{tool::ToolRoute, wrapper::Parameters},
    model::JsonObject,
    schemars, tool, tool_router,
};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Round, Steps,
    asked::{DeclaredQuestion, Question},
    durable,
    form::Schema,
    test::{Client, accept},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Repo, clients, server};

#[derive(Deserialize, schemars::JsonSchema)]
struct With {
    schema: JsonObject,
}

/// A form that is a type at compile time and is narrowed at run time.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Booking {
    seat: String,
    class: Class,
    #[schemars(range(max = 5))]
    bags: u8,
    meals: Vec<Class>,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Class {
    Economy,
    Comfort,
    First,
}

/// A map, asked for by a declared question.
#[derive(Debug, Deserialize)]
struct Settings(JsonObject);

impl Question for Settings {
    type Server = Repo;
    type On = Parameters<With>;

    fn ask(_: &Repo, Parameters(With { schema }): Parameters<With>) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form_with("Settings?", schema))
    }
}

impl Question for Booking {
    type Server = Repo;
    type On = ();

    fn ask(_: &Repo, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form_with("Which seat?", narrowed()))
    }
}

fn narrowed() -> Schema<Booking> {
    let narrowed = Schema::of_type().options("seat", ["12A", "14C"]).options("class", ["economy", "comfort"]);
    narrowed.default("class", "comfort").bounds("bags", 1..=9).bounds("meals", 1..=2)
}

fn shown(answer: &JsonObject) -> String {
    serde_json::to_string(answer).unwrap()
}

#[tool_router(router = schemas)]
impl Repo {
    #[tool]
    async fn schema_linear(
        &self,
        Parameters(With { schema }): Parameters<With>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        Ok(shown(&ask.form_with("Settings?", schema).await?))
    }

    #[tool]
    async fn schema_declared(&self, Asked(Settings(settings)): Asked<Settings>) -> String {
        shown(&settings)
    }

    #[tool]
    async fn schema_guard(
        &self,
        Parameters(With { schema }): Parameters<With>,
        round: Round,
    ) -> Result<rmcp::model::CallToolResponse, FlowError> {
        let schema = Schema::<JsonObject>::from(schema);
        match round.given_with("form", &schema) {
            Given::Accepted(settings) => Ok(text(shown(&settings))),
            Given::Missing | Given::Invalid(_) => round.ask_form_with("form", "Settings?", &schema),
            _ => Ok(text("As you like.")),
        }
    }

    #[tool]
    async fn book(&self, ask: Ask) -> Result<String, FlowError> {
        let booking = ask.form_with("Which seat?", narrowed()).await?;
        Ok(serde_json::to_string(&booking).unwrap())
    }

    #[tool]
    async fn book_declared(&self, Asked(booking): Asked<Booking>) -> String {
        serde_json::to_string(&booking).unwrap()
    }

    #[tool]
    async fn book_guard(&self, round: Round) -> Result<rmcp::model::CallToolResponse, FlowError> {
        match round.given_with("form", &narrowed()) {
            Given::Accepted(booking) => Ok(text(serde_json::to_string(&booking).unwrap())),
            _ => round.ask_form_with("form", "Which seat?", &narrowed()),
        }
    }

    #[tool]
    async fn wrong(&self, Parameters(With { schema }): Parameters<With>, ask: Ask) -> Result<String, FlowError> {
        let asked: Result<JsonObject, FlowError> = ask.form_with("?", schema).await;
        match asked {
            Err(FlowError::FormType(error)) => Ok(format!("{}: {error}", error.field().unwrap_or("whole"))),
            other => Ok(format!("{other:?}")),
        }
    }
}

async fn durably(flow: Durable<Repo>, with: With) -> Result<String, FlowError> {
    let answer: JsonObject = flow.form_with("Settings?", with.schema).await?;
    flow.confirm("Sure?").await?;
    Ok(shown(&answer))
}

async fn book_durably(flow: Durable<Repo>, _: With) -> Result<String, FlowError> {
    let booking: Booking = flow.form_with("Which seat?", narrowed()).await?;
    Ok(serde_json::to_string(&booking).unwrap())
}

fn book_stepped() -> ToolRoute<Repo> {
    let steps = Steps::<Repo, With>::new("book_stepped", "Books a seat").step(
        "form",
        async |_, ()| -> Result<DeclaredQuestion<Booking>, FlowError> {
            Ok(DeclaredQuestion::form_with("Which seat?", narrowed()))
        },
    );
    let booked = steps.finish(async |_, (booking,): (Booking,)| Ok(serde_json::to_string(&booking).unwrap()));
    booked.build().unwrap()
}

fn routes() -> Vec<ToolRoute<Repo>> {
    let durable = [durable("durably", "Asks for settings", durably), durable("book_durably", "Books", book_durably)];
    Repo::schemas().into_iter().chain(durable).chain([book_stepped()]).collect()
}

fn settings() -> Value {
    json!({"schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "name": {"type": "string", "maxLength": 5, "title": "Your name"},
            "mood": {"type": "string", "oneOf": [{"const": "g", "title": "Good"}, {"const": "b", "title": "Bad"}]},
        },
        "required": ["size"],
    }})
}

#[tokio::test]
async fn a_schema_is_asked_and_its_answer_is_checked_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for tool in ["schema_linear", "schema_declared", "schema_guard", "durably"] {
            let wrong = accept(json!({"size": 10, "name": "Ada"}));
            let right = accept(json!({"size": 3.0, "mood": "g", "stranger": 1}));
            let sure = (tool == "durably").then(|| accept(json!({"confirm": true})));
            let played = client.play(tool, settings(), [wrong, right].into_iter().chain(sure)).await;
            assert_eq!(played.messages()[..2], ["Settings?", "Settings? (`size` must be at most 9)"], "{tool}");
            assert_eq!(played.text(), r#"{"mood":"g","size":3}"#, "{tool}");
            let sent = played.question(0).schema();
            assert_eq!(sent["properties"], settings()["schema"]["properties"], "{tool}");
            assert_eq!(sent["required"], json!(["size"]), "{tool}");
        }
    }
}

#[tokio::test]
async fn a_type_is_narrowed_at_run_time_in_every_shape_and_both_eras() {
    let server = server(routes());
    let good = json!({"seat": "14C", "class": "comfort", "bags": 2, "meals": ["first"]});
    let with = |name: &str, value: Value| {
        let mut booking = good.clone();
        booking[name] = value;
        accept(booking)
    };
    for (client, tool) in clients(&server).await.into_iter().flat_map(|client| {
        ["book", "book_declared", "book_guard", "book_durably", "book_stepped"].map(|tool| (client.clone(), tool))
    }) {
        let wrong =
            [with("seat", json!("1A")), with("class", json!("first")), with("bags", json!(0)), accept(good.clone())];
        let played = client.play(tool, json!({"schema": {}}), wrong).await;
        let told = [
            "Which seat?",
            "Which seat? (`seat` must be one of 12A, 14C)",
            "Which seat? (`class` must be one of economy, comfort)",
            "Which seat? (`bags` must be at least 1)",
        ];
        assert_eq!(played.messages(), told, "{tool}");
        assert_eq!(serde_json::from_str::<Value>(&played.text()).unwrap(), good, "{tool}");
        let fields = &played.question(0).schema()["properties"];
        assert_eq!(fields["bags"]["maximum"], 5, "a bound of the type stays in force: {fields}");
        assert_eq!(fields["class"]["default"], "comfort");
        assert_eq!(fields["meals"]["maxItems"], 2);
    }
}

#[tokio::test]
async fn a_schema_that_no_form_can_express_names_its_property() {
    let server = server(routes());
    let client = Client::modern(server).await;
    let of = |field: Value| json!({"type": "object", "properties": {"size": {"type": "integer"}, "deep": field}});
    for (schema, told) in [
        (of(json!({"type": "object"})), "deep: this schema cannot be asked for with a form: `deep` is a struct, and"),
        (
            of(json!({"type": "string", "pattern": "("})),
            "deep: this schema cannot be asked for with a form: `deep` has a `pattern` that cannot be checked",
        ),
        (
            of(json!({"type": "string", "format": "x"})),
            "deep: this schema cannot be asked for with a form: `deep` has the format",
        ),
        (
            of(json!({"type": "string", "default": 7})),
            "deep: this schema cannot be asked for with a form: `deep` cannot have the default 7",
        ),
        (
            json!({"type": "object", "required": ["gone"]}),
            "gone: this schema cannot be asked for with a form: `gone` is required and",
        ),
        (json!({"type": "string"}), "whole: this schema cannot be asked for with a form: its `type` is not `object`"),
        (json!({"type": "object", "oneOf": []}), "whole: this schema cannot be asked for with a form: it uses `oneOf`"),
        (json!({"type": "object", "x": 1}), "whole: this schema cannot be asked for with a form: it uses `x`"),
    ] {
        let said = client.call("wrong", json!({ "schema": schema })).await.text();
        assert!(said.starts_with(told), "{schema}: {said}");
    }
}

#[tokio::test]
async fn a_narrowing_that_does_not_fit_names_its_field() {
    let narrow = |narrowed: Schema<Booking>| format!("{narrowed:?}");
    let of = Schema::<Booking>::of_type;
    assert!(narrow(of().options("class", ["royal"])).contains("does not have the option `royal`"));
    assert!(narrow(of().options("bags", ["1"])).contains("is neither a text nor a list"));
    assert!(narrow(of().bounds("nowhere", 1..=2)).contains("is not one of its fields"));
    assert!(narrow(of().bounds(None, 1..=2)).contains("none of them was named"));
}
