//! An attacker writes markup into every text that reaches a page.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, Tool,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Era, FlowError, Given, Principal, Round, Rounds,
    elsewhere::{Approvers, Elsewhere},
    form::Schema,
    test::Client,
    text,
};
use rounds_desk::Recorder;
use serde_json::{Value, json};

use crate::stage::{Page, Stage};

/// Ends an attribute, an element, a script and a comment, and turns text around.
const EVIL: &str = "x\"'><script>alert(1)</script><img src=x onerror=alert(1)>--></textarea>\u{202e}&lt;{{7}}";

/// What must not be on a page: the markup as it was, or a character that hides in text.
#[track_caller]
fn assert_harmless(page: &Page, what: &str) {
    for part in ["<script>alert", "<img", "onerror=alert(1)>", "x\"'", "-->", "</textarea>&lt;"] {
        assert!(!page.text.contains(part), "{part:?} is on the page of {what}:\n{}", page.text);
    }
    // The value of a hidden field or of a choice is not shown, and is sent back as it was.
    let unseen = |part: &&str| {
        let kinds = ["input type=\"hidden\"", "input type=\"checkbox\"", "option"];
        kinds.iter().any(|kind| part.starts_with(kind))
            && !part.split('>').nth(1).unwrap_or_default().contains('\u{202e}')
    };
    let deceives = page.text.split('<').filter(|part| !unseen(part)).any(|part| part.contains('\u{202e}'));
    assert!(!deceives, "text is turned around on the page of {what}:\n{}", page.text);
    assert_eq!(page.text.matches("<script").count(), 1, "only ours: {what}");
}

/// A server all of whose texts are evil.
struct Evil;

impl Evil {
    fn schema() -> Schema<JsonObject> {
        Schema::from(json!({
            "type": "object",
            "properties": {
                EVIL: {"type": "string", "title": EVIL, "description": EVIL, "default": EVIL},
                "choice": {"type": "string", "title": EVIL, "oneOf": [{"const": EVIL, "title": EVIL}, {"const": "b", "title": "b"}]},
                "several": {"type": "array", "title": EVIL, "items": {"type": "string", "enum": [EVIL, "b"]}},
                "yes": {"type": "boolean", "title": EVIL, "description": EVIL},
            },
            "required": ["choice"],
        }))
    }
}

impl ServerHandler for Evil {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(EVIL, EVIL))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let field = json!({"type": "string", "title": EVIL, "description": EVIL, "default": EVIL});
        let object = json!({"type": "object", "title": EVIL, "description": EVIL});
        let schema = json!({"type": "object", "properties": {EVIL: field, "object": object}});
        let Value::Object(schema) = schema else { unreachable!("it is an object") };
        let broken = BTreeMap::from([("properties".to_owned(), json!(EVIL))]).into_iter().collect();
        Ok(ListToolsResult::with_all_items(vec![
            Tool::new(EVIL, EVIL, Arc::new(schema)),
            Tool::new("broken", EVIL, Arc::<JsonObject>::new(broken)),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "broken" {
            return Err(ErrorData::internal_error(EVIL, Some(json!({EVIL: EVIL}))));
        }
        let round = Round::from_context(&context)?;
        match round.given_with(EVIL, &Self::schema()) {
            Given::Accepted(_) => {
                round.once(EVIL, async || 1).await?;
                Ok(text(EVIL))
            }
            Given::Missing | Given::Invalid(_) => Ok(round.ask_form_with(EVIL, EVIL, &Self::schema())?),
            _ => Err(ErrorData::internal_error(EVIL, Some(json!({EVIL: EVIL})))),
        }
    }
}

async fn stage() -> (Stage<Evil>, Client) {
    let recorder = Recorder::new();
    let server = Rounds::builder(Evil).register().observe(recorder.clone()).build().unwrap();
    let stage = Stage::of(server.clone(), recorder, |desk| desk);
    (stage, Client::signed_in(server, Era::Modern, Principal::new(EVIL)).await)
}

/// The link of the only row.
fn flow(page: &Page) -> String {
    let begin = page.text.find("/flows/").expect("a flow is listed");
    page.text[begin..].split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn nothing_of_a_flow_is_markup() {
    let (stage, client) = stage().await;
    let asked = client.call(EVIL, json!({EVIL: EVIL, "b": {"c": EVIL}})).await.asked();
    let first = stage.get_as(EVIL, "/").await;
    assert_harmless(&first, "what waits");
    let path = flow(&first);
    assert_harmless(&stage.get_as(EVIL, &path).await, "a flow that waits");
    asked.accept(EVIL, json!({"choice": "b"})).with("arguments", json!({})).send(&client).await.frozen();
    assert_harmless(&stage.get(&path).await, "a flow with a refused leg");
    asked.accept(EVIL, json!({"choice": EVIL, EVIL: EVIL})).send(&client).await.text();
    let ended = stage.get(&path).await;
    ended.shows("ran once").shows(">completed<");
    assert_harmless(&ended, "a flow that has ended");
    assert_harmless(&stage.get("/?status=completed").await, "flows that have ended");
}

#[tokio::test]
async fn nothing_of_a_failed_flow_is_markup() {
    let (stage, client) = stage().await;
    let asked = client.call(EVIL, json!({})).await.asked();
    asked.decline(EVIL).send(&client).await.error();
    let path = flow(&stage.get("/?status=all").await);
    let failed = stage.get(&path).await;
    failed.shows(">failed<");
    assert_harmless(&failed, "a flow that has failed");
}

#[tokio::test]
async fn nothing_in_an_address_is_markup() {
    let (stage, _) = stage().await;
    let evil: String = form_urlencoded::byte_serialize(EVIL.as_bytes()).collect();
    for path in [
        format!("/?tool={evil}"),
        format!("/?status={evil}"),
        format!("/?after={evil}"),
        format!("/flows/{evil}"),
        format!("/{evil}"),
        format!("/try?tool={evil}"),
        format!("/try/{evil}"),
        format!("/events?flow={evil}"),
    ] {
        assert_harmless(&stage.get(&path).await, &path);
    }
}

#[tokio::test]
async fn nothing_on_try_it_is_markup() {
    let (stage, _) = stage().await;
    let page = stage.get_as(EVIL, "/try").await;
    assert_harmless(&page, "the form of a tool");
    let wrong = stage.submit(&page, "/try", &[("a.0", EVIL), ("a.1", EVIL)]).await;
    wrong.shows("must be JSON");
    assert_harmless(&wrong, "arguments that are not valid");
    let asked = stage.submit(&page, "/try", &[("a.1", EVIL), ("a.0", "{\"a\": \"<img>\"}")]).await;
    assert_harmless(&asked, "a question");
    let call = asked.call();
    let evil =
        [("answer", "1"), ("q0.0", "<img src=x onerror=alert(1)>"), ("q0.1", EVIL), ("q0.2", EVIL), ("q0.3", EVIL)];
    let wrong = stage.submit(&asked, &call, &evil).await;
    assert_eq!(wrong.status, 422);
    assert_harmless(&wrong, "an answer that is not valid");
    let refused = stage.submit(&asked, &call, &[("change", "1")]).await;
    assert_harmless(&refused, "a changed state");
    // The order of the fields is that of their names.
    let schema = asked.text.split("<option value=\"").nth(2).expect("the choices");
    let name = asked.text.split("<select id=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(schema.starts_with("x&quot;"), "the value of a choice is sent back as it is");
    let done = stage.submit(&refused, &call, &[("answer", "1"), (name, EVIL)]).await;
    done.shows("Result");
    assert_harmless(&done, "a result");
    let broken = stage.get_as(EVIL, "/try?tool=broken").await;
    assert_harmless(&broken, "a tool whose schema is broken");
    let wrong = stage.submit(&broken, "/try", &[("arguments", EVIL)]).await;
    assert_harmless(&wrong, "arguments that are not JSON");
    let failed = stage.submit(&broken, "/try", &[("arguments", "{\"<img>\": \"<img>\"}")]).await;
    failed.shows("Error: ");
    assert_harmless(&failed, "an error");
}

/// What a person is asked elsewhere, with evil texts wherever its page shows one.
struct Approvals {
    tool_router: ToolRouter<Self>,
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
struct Evils {
    #[schemars(title = "x\"'><script>alert(1)</script><img src=x onerror=alert(1)>", description = "--><img src=x>")]
    amount: u32,
    #[schemars(title = "</textarea><img src=x onerror=alert(1)>")]
    choice: EvilChoice,
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
enum EvilChoice {
    #[serde(rename = "x\"'><script>alert(1)</script>")]
    #[schemars(title = "x\"'><img src=x onerror=alert(1)>")]
    One,
    #[serde(rename = "b")]
    Two,
}

#[tool_router]
impl Approvals {
    #[tool(description = "Asks for an approval")]
    async fn approve(&self, ask: Ask) -> Result<String, FlowError> {
        let by = Approvers::people([EVIL, "local"]);
        let decision = ask.approval(EVIL).key(EVIL).by(by).within(Duration::from_secs(3600)).await?;
        Ok(format!("{decision:?}"))
    }

    #[tool(description = "Asks for a form")]
    async fn fill(&self, ask: Ask) -> Result<String, FlowError> {
        let evils: Evils = ask.form(EVIL).key(EVIL).by(Approvers::people([EVIL, "local"])).await?;
        Ok(serde_json::to_string(&evils).unwrap())
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Approvals {}

#[tokio::test]
async fn nothing_of_a_question_or_a_decision_is_markup() {
    let recorder = Recorder::new();
    let approvals = Approvals { tool_router: Approvals::tool_router() };
    let elsewhere = Elsewhere::at("http://localhost:8000/questions");
    let server = Rounds::builder(approvals).register().elsewhere(elsewhere).observe(recorder.clone()).build().unwrap();
    let stage = Stage::of(server.clone(), recorder, |desk| desk);
    let client = Client::signed_in(server, Era::Modern, Principal::new(EVIL)).await;
    let client = client.declaring(json!({"elicitation": {"form": {}, "url": {}}}));
    let answers: [(&str, &[(&str, &str)]); 2] =
        [("approve", &[("deny", "1"), ("reason", EVIL)]), ("fill", &[("deny", "1")])];
    for (tool, answer) in answers {
        let asked = client.call(tool, json!({EVIL: EVIL})).await.asked();
        let url = asked.question(EVIL)["params"]["url"].as_str().unwrap().to_owned();
        let path = url.strip_prefix("http://localhost:8000").unwrap();
        let page = stage.get_as(EVIL, path).await;
        page.shows("Signed in as").shows("</button>");
        assert_harmless(&page, &format!("a question: {tool}"));
        let other = stage.get_as(&format!("{EVIL}{EVIL}"), path).await;
        assert_harmless(&other, &format!("a question for another visitor: {tool}"));
        if tool == "fill" {
            let wrong = stage.submit(&page, path, &[("answer", "1"), ("q0.0", EVIL), ("q0.1", EVIL)]).await;
            assert_eq!(wrong.status, 422);
            assert_harmless(&wrong, "answers that are not valid");
        }
        let decided = stage.submit(&page, path, answer).await;
        decided.shows("<strong>Denied</strong> by ");
        assert_harmless(&decided, &format!("a decision: {tool}"));
        let late = stage.submit(&page, path, answer).await;
        assert_eq!(late.status, 409);
        assert_harmless(&late, &format!("a decision that comes too late: {tool}"));
        let flow = flow(&stage.get(&format!("/?tool={tool}&status=all")).await);
        let page = stage.get(&flow).await;
        page.shows("Decisions");
        assert_harmless(&page, &format!("a flow with a decision: {tool}"));
        let _ = asked.retry().respond(EVIL, json!({"action": "accept", EVIL: EVIL})).send(&client).await;
        assert_harmless(&stage.get(&flow).await, &format!("a flow that has gone on: {tool}"));
    }
}
