//! Order: fields as their type declares them, and questions as they were asked, in every shape and on every path.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use rmcp::{
    ServiceExt, handler::server::router::tool::ToolRouter, model::CallToolResponse, object, schemars, tool, tool_router,
};
use rounds::{
    Ask, Asked, Durable, FlowError, Legacy, Round,
    asked::FixedQuestion,
    client::{AskedQuestion, Call, DriveLimits, Host, Pending, Sent, UserAnswer, drive},
    durable,
    observe::Station,
    order::ORDER,
    test::{Client, Pushed},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shop, Stage, accept};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only their order is looked at")]
struct Traveller {
    title: Option<String>,
    first_name: String,
    #[serde(alias = "surname")]
    last_name: String,
    #[serde(rename = "birthday")]
    born: Option<String>,
    age: u8,
}

const FIELDS: [&str; 5] = ["title", "firstName", "lastName", "birthday", "age"];

impl FixedQuestion for Traveller {
    const MESSAGE: &'static str = "Who travels?";
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Seat(String);

impl FixedQuestion for Seat {
    const MESSAGE: &'static str = "Which seat?";
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Bags(u8);

impl FixedQuestion for Bags {
    const MESSAGE: &'static str = "How many bags?";
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// The order in which each tool asks.
const ASKED: [&str; 3] = ["traveller", "seat", "bags"];
const TOOLS: [&str; 4] = ["linear", "guarded", "by_argument", "durably"];

#[tool_router(router = tools)]
impl Shop {
    #[tool]
    async fn linear(&self, ask: Ask) -> Result<String, FlowError> {
        let (traveller, seat, bags) = tokio::join!(
            ask.form::<Traveller>("Who travels?").into_future(),
            ask.form::<Seat>("Which seat?").into_future(),
            ask.form::<Bags>("How many bags?").into_future(),
        );
        Ok(told(&traveller?, &seat?, &bags?))
    }

    #[tool]
    async fn linear_twice(&self, ask: Ask) -> Result<String, FlowError> {
        ask.confirm("Go on?").await?;
        let (one, two) = tokio::join!(
            ask.form::<Traveller>("Who?").into_future(),
            ask.form::<Traveller>("Who else?").into_future(),
        );
        Ok(format!("{} {}", one?.age, two?.age))
    }

    #[tool]
    async fn guarded(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        if round.number() > 0 {
            return Ok(rounds::text("done"));
        }
        let asks = round.questions().form::<Traveller>("traveller", "Who travels?").form::<Seat>("seat", "Which seat?");
        asks.form::<Bags>("bags", "How many bags?").send()
    }

    #[tool]
    async fn by_argument(&self, Asked((traveller, seat, bags)): Asked<(Traveller, Seat, Bags)>) -> String {
        told(&traveller, &seat, &bags)
    }
}

async fn durably(flow: Durable<Shop>, _nothing: Nothing) -> Result<String, FlowError> {
    let asks = (flow.form("Who travels?"), flow.form("Which seat?"), flow.form("How many bags?"));
    let (traveller, seat, bags) = flow.all(asks).await?;
    Ok(told(&traveller, &seat, &bags))
}

fn told(traveller: &Traveller, seat: &Seat, bags: &Bags) -> String {
    format!("{} {} {}", traveller.last_name, seat.0, bags.0)
}

fn stage() -> Stage<Shop> {
    let tool_router: ToolRouter<Shop> = Shop::tools().with_route(durable("durably", "", durably));
    Stage::with(Shop { tool_router, ..Shop::default() }, |builder| builder.legacy(Legacy::push()))
}

fn traveller() -> Value {
    json!({"firstName": "Ada", "lastName": "Lovelace", "age": 36})
}

#[tokio::test]
async fn a_round_says_in_which_order_it_asks_and_a_form_in_which_its_fields_are() {
    let stage = stage();
    let client = stage.modern().await;
    for tool in TOOLS {
        let asked = client.call(tool, json!({})).await.asked();
        assert_eq!(asked.result()["_meta"][ORDER], json!(ASKED), "{tool}");
        assert_eq!(asked.keys(), ASKED, "{tool}");
        assert_eq!(asked.question("traveller")["params"]["_meta"], json!({ORDER: FIELDS}), "{tool}");
        assert_eq!(asked.fields("traveller"), FIELDS, "{tool}");
        assert!(asked.question("seat")["params"].get("_meta").is_none(), "{tool}: one field has no order");
        let retry = asked.accept("traveller", traveller()).accept("seat", json!({"seat": "4C"}));
        let told = retry.accept("bags", json!({"bags": 2})).send(&client).await.text();
        assert!(["Lovelace 4C 2", "done"].contains(&told.as_str()), "{tool}: {told}");
    }
    let keys = ASKED.map(str::to_owned).to_vec();
    let in_order = |station: &Station| matches!(station, Station::Asked { keys: asked, .. } if *asked == keys);
    assert_eq!(stage.events.stations().iter().filter(|station| in_order(station)).count(), TOOLS.len());
}

#[tokio::test]
async fn nothing_is_said_where_the_order_is_that_of_the_names() {
    #[derive(Deserialize, schemars::JsonSchema)]
    #[expect(dead_code, reason = "only their order is looked at")]
    struct Sorted {
        a: String,
        b: String,
    }

    async fn sorted(flow: Durable<Shop>, _nothing: Nothing) -> Result<String, FlowError> {
        let (_a, _b): (Sorted, Sorted) = flow.all((flow.form("A?").key("a"), flow.form("B?").key("b"))).await?;
        Ok("done".to_owned())
    }
    let asked = Shop::stage_of(durable("sorted", "", sorted)).modern().await.call("sorted", json!({})).await.asked();
    assert!(asked.result()["_meta"].get(ORDER).is_none());
    assert!(asked.question("a")["params"].get("_meta").is_none());
    assert_eq!((asked.keys(), asked.fields("a")), (vec!["a", "b"], vec!["a", "b"]));
}

#[tokio::test]
async fn a_reply_that_is_given_again_and_a_question_that_is_asked_again_have_their_order() {
    async fn twice(flow: Durable<Shop>, _nothing: Nothing) -> Result<String, FlowError> {
        flow.confirm("Go on?").await?;
        // The second has a key of its own, because the first has that of the type.
        let (one, two): (Traveller, Traveller) = flow.all((flow.form("Who?"), flow.form("Who else?"))).await?;
        Ok(format!("{} {}", one.age, two.age))
    }

    let router = Shop::tools().with_route(durable("durably", "", durably)).with_route(durable("twice", "", twice));
    let client = Shop::stage(router).modern().await;
    for tool in ["twice", "linear_twice"] {
        let go_on = client.call(tool, json!({})).await.asked().accept("confirm", json!({"confirm": true}));
        let first = go_on.send(&client).await.asked();
        let again = go_on.send(&client).await.asked();
        for asked in [&first, &again] {
            assert_eq!(asked.keys(), ["traveller", "traveller_2"]);
            assert_eq!((asked.fields("traveller"), asked.fields("traveller_2")), (FIELDS.to_vec(), FIELDS.to_vec()));
        }
        // One is left out, and asked again.
        let more = first.accept("traveller", traveller()).send(&client).await.asked();
        assert_eq!((more.keys(), more.fields("traveller_2")), (vec!["traveller_2"], FIELDS.to_vec()));
    }
}

#[tokio::test]
async fn questions_are_pushed_in_the_order_of_asking_and_say_the_order_of_their_fields() {
    let client = stage().legacy().await;
    for tool in TOOLS {
        let leg = client.start("tools/call", json!({"name": tool})).await;
        let (who, seat, bags) = (next(&client).await, next(&client).await, next(&client).await);
        let messages = [&who, &seat, &bags].map(|pushed| pushed.params()["message"].as_str().unwrap_or_default());
        assert_eq!(messages, ["Who travels?", "Which seat?", "How many bags?"], "{tool}");
        assert_eq!(who.params()["_meta"][ORDER], json!(FIELDS), "{tool}");
        assert!(seat.params()["_meta"].get(ORDER).is_none(), "{tool}");
        who.answer(accept(traveller())).await;
        seat.answer(accept(json!({"seat": "4C"}))).await;
        bags.answer(accept(json!({"bags": 2}))).await;
        assert!(!leg.finish().await.is_tool_error(), "{tool}");
    }
}

async fn next(client: &Client) -> Pushed {
    client.pushed().await.unwrap()
}

#[tokio::test]
async fn a_client_is_shown_questions_and_fields_in_order_in_both_eras_and_after_it_was_saved() {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let noted = shown.clone();
    let responder = move |question: AskedQuestion| {
        let fields: Vec<_> = question.fields().iter().map(|field| field.name.clone()).collect();
        noted.lock().unwrap().push((question.message().to_owned(), fields));
        let answer = match question.message() {
            "Who travels?" => object!({"firstName": "Ada", "lastName": "Lovelace", "age": 36}),
            "Which seat?" => object!({"seat": "4C"}),
            _ => object!({"bags": 2}),
        };
        async move { Ok::<_, Infallible>(UserAnswer::Form(answer)) }
    };
    let expected = [("Who travels?", FIELDS.as_slice()), ("Which seat?", &["seat"]), ("How many bags?", &["bags"])];
    let stage = stage();
    for legacy in [false, true] {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = stage.server.clone();
        tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
        let host = Host::new(responder.clone());
        let client = if legacy { host.legacy_only() } else { host }.connect(ours).await.unwrap();
        for tool in TOOLS {
            shown.lock().unwrap().clear();
            let call = Call::tool(tool, object!({}));
            if !legacy {
                let Sent::Asks(pending) = call.send(&client).await.unwrap() else { panic!("{tool} asks") };
                let saved = Pending::from_json(&pending.to_json()).unwrap();
                for pending in [pending, saved] {
                    let keys: Vec<_> = pending.questions().iter().map(AskedQuestion::key).collect();
                    assert_eq!((keys, pending.open()), (ASKED.to_vec(), ASKED.to_vec()), "{tool}");
                    let names: Vec<_> = pending.fields().map(|(_, field)| field.name.as_str()).collect();
                    assert_eq!(names, [FIELDS.as_slice(), &["seat", "bags"]].concat(), "{tool}");
                }
            }
            drive(&client, call, client.service().responder(), DriveLimits::default()).await.unwrap();
            let mut shown = shown.lock().unwrap().clone();
            if legacy {
                // Questions that are pushed together are answered together.
                shown.sort_by_key(|(message, _)| expected.iter().position(|(expected, _)| expected == message));
            }
            let shown: Vec<_> = shown.iter().map(|(message, fields)| (message.as_str(), fields.clone())).collect();
            let expected = expected.map(|(message, fields)| (message, fields.iter().map(|&f| f.to_owned()).collect()));
            assert_eq!(shown, expected.to_vec(), "{tool}, legacy: {legacy}");
        }
    }
}
