//! The gate in front of tools that change something.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        CallToolRequestParams, CallToolResponse, JsonObject, ListToolsResult, PaginatedRequestParams, Tool,
        ToolAnnotations,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Asked, Durable, Era, FlowError, Given, Legacy, Round, Rounds,
    asked::FixedQuestion,
    confirm::Confirm,
    durable,
    test::{Client, accept, cancel, decline},
    text,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clients;

/// A server whose plain tools contain no question.
struct Files {
    tool_router: ToolRouter<Self>,
    deleted: Arc<AtomicUsize>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Path {
    path: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Reason(String);

impl FixedQuestion for Reason {
    const MESSAGE: &'static str = "Why?";
}

#[tool_router]
impl Files {
    #[tool(title = "Delete a file", annotations(destructive_hint = true))]
    async fn delete(&self, Parameters(Path { path }): Parameters<Path>) -> String {
        self.deleted(&path)
    }

    #[tool(annotations(read_only_hint = true))]
    async fn list(&self) -> String {
        "a, b".to_owned()
    }

    #[tool]
    async fn write(&self) -> String {
        "written".to_owned()
    }

    #[tool(annotations(destructive_hint = true))]
    async fn delete_linear(&self, ask: Ask) -> Result<String, FlowError> {
        let reason = ask.form::<Reason>("Why?").await?;
        Ok(self.deleted(&reason.0))
    }

    #[tool(annotations(destructive_hint = true))]
    async fn delete_declared(&self, Asked(reason): Asked<Reason>) -> String {
        self.deleted(&reason.0)
    }

    #[tool(annotations(destructive_hint = true))]
    async fn delete_guarded(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<Reason>("reason") {
            Given::Accepted(reason) => Ok(text(self.deleted(&reason.0))),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Reason>("reason", "Why?"),
            _ => Ok(text("kept")),
        }
    }
}

impl Files {
    fn deleted(&self, what: &str) -> String {
        self.deleted.fetch_add(1, Ordering::Relaxed);
        format!("deleted {what}")
    }
}

async fn delete_durably(flow: Durable<Files>, _: JsonObject) -> Result<String, FlowError> {
    let reason: Reason = flow.form("Why?").await?;
    flow.once("delete", async |files, _| files.deleted(&reason.0)).await
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Files {}

fn server(confirm: Confirm) -> Rounds<Files> {
    let mut durable = durable("delete_durably", "Deletes", delete_durably);
    durable.attr.annotations = Some(ToolAnnotations::new().destructive(true));
    let files = Files { tool_router: Files::tool_router().with_route(durable), deleted: Arc::default() };
    Rounds::builder(files).legacy(Legacy::push()).confirm(confirm).build().unwrap()
}

fn yes() -> Value {
    accept(json!({"confirm_call": true}))
}

#[tokio::test]
async fn a_destructive_tool_runs_after_a_yes_and_only_then() {
    let server = server(Confirm::destructive());
    let deleted = || server.handler().deleted.load(Ordering::Relaxed);
    for (number, client) in clients(&server).await.into_iter().enumerate() {
        for refusal in [decline(), cancel(), accept(json!({"confirm_call": false}))] {
            let refused = client.play("delete", json!({"path": "/a"}), [refusal]).await;
            assert!(refused.is_tool_error());
            assert!(refused.text().ends_with("Run \"Delete a file\"? path: \"/a\""), "{}", refused.text());
            assert_eq!(deleted(), number, "nothing ran");
        }
        let played = client.play("delete", json!({"path": "/a"}), [yes()]).await;
        assert_eq!(played.messages(), ["Run \"Delete a file\"? path: \"/a\""]);
        assert_eq!((&*played.text(), deleted()), ("deleted /a", number + 1));
        for (tool, text) in [("list", "a, b"), ("write", "written")] {
            assert_eq!(client.play(tool, json!({}), []).await.text(), text);
        }
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_not_a_yes() {
    let server = server(Confirm::destructive());
    for client in clients(&server).await {
        let answers =
            [accept(json!({})), accept(json!({"confirm_call": "yes"})), accept(json!({"confirm_call": false}))];
        let played = client.play("delete", json!({"path": "/a"}), answers).await;
        assert!(played.is_tool_error());
    }
    assert_eq!(server.handler().deleted.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_tool_that_is_not_marked_read_only_is_confirmed_if_the_author_says_so() {
    for client in clients(&server(Confirm::unless_read_only())).await {
        assert_eq!(client.play("list", json!({}), []).await.text(), "a, b");
        let played = client.play("write", json!({}), [yes()]).await;
        assert_eq!((played.messages()[0], &*played.text()), ("Run \"write\"?", "written"));
    }
}

#[tokio::test]
async fn a_predicate_and_a_message_of_the_authors() {
    let outside = |tool: &Tool, arguments: &JsonObject| {
        tool.name == "delete" && arguments["path"].as_str().is_some_and(|path| !path.starts_with("/tmp"))
    };
    let confirm = Confirm::when(outside)
        .message(|_, arguments| format!("Delete {}\u{202e}?", arguments["path"].as_str().unwrap_or_default()));
    for client in clients(&server(confirm)).await {
        assert_eq!(client.play("delete", json!({"path": "/tmp/a"}), []).await.text(), "deleted /tmp/a");
        let played = client.play("delete", json!({"path": "/a"}), [yes()]).await;
        assert_eq!(played.messages(), [r"Delete /a\u{202e}?"], "what could deceive is escaped here too");
    }
}

#[tokio::test]
async fn a_confirmed_tool_may_ask_further_in_every_shape() {
    let server = server(Confirm::destructive());
    for client in clients(&server).await {
        for tool in ["delete_linear", "delete_declared", "delete_guarded", "delete_durably"] {
            let played = client.play(tool, json!({}), [yes(), accept(json!({"reason": "old"}))]).await;
            assert_eq!(played.messages(), [&*format!("Run \"{tool}\"?"), "Why?"], "{tool}");
            assert_eq!(played.text(), "deleted old", "{tool}");
        }
    }
}

#[tokio::test]
async fn what_was_confirmed_is_what_runs() {
    let server = server(Confirm::destructive());
    let client = Client::modern(server.clone()).await;
    let asked = client.call("delete", json!({"path": "/tmp/a"})).await.asked();
    let confirmed = asked.accept("confirm_call", json!({"confirm_call": true}));
    confirmed.clone().with("arguments", json!({"path": "/etc"})).send(&client).await.frozen();
    confirmed.clone().with("name", json!("delete_linear")).send(&client).await.frozen();
    assert_eq!(server.handler().deleted.load(Ordering::Relaxed), 0);
    assert_eq!(confirmed.send(&client).await.text(), "deleted /tmp/a");
    assert_eq!(confirmed.send(&client).await.text(), "deleted /tmp/a");
    assert_eq!(server.handler().deleted.load(Ordering::Relaxed), 1, "a retry gets the same reply");
}

#[tokio::test]
async fn a_yes_that_was_not_asked_for_does_not_count() {
    let server = server(Confirm::destructive());
    let client = Client::modern(server).await;
    let forged = json!({
        "name": "delete", "arguments": {"path": "/a"},
        "inputResponses": {"confirm_call": {"action": "accept", "content": {"confirm_call": true}}},
    });
    let asked = client.request("tools/call", forged).await.asked();
    assert_eq!(asked.keys(), ["confirm_call"]);
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_refused_unless_the_author_says_otherwise() {
    for era in [Era::Modern, Era::Legacy] {
        let refusing = server(Confirm::destructive());
        let client = Client::connect(refusing.clone(), era, json!({})).await;
        let refused = client.call("delete", json!({"path": "/a"})).await;
        assert_eq!(refused.error()["code"], -32021, "{era:?}: {refused:?}");
        assert_eq!(refusing.handler().deleted.load(Ordering::Relaxed), 0);
        let client = Client::connect(server(Confirm::destructive().run_unasked()), era, json!({})).await;
        assert_eq!(client.call("delete", json!({"path": "/a"})).await.text(), "deleted /a", "{era:?}");
    }
}

/// A server that is written without rmcp's macros, and lists its tools on two pages.
struct ByHand;

impl ServerHandler for ByHand {
    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str, destroys| {
            Tool::new(name, "", JsonObject::new()).annotate(ToolAnnotations::new().destructive(destroys))
        };
        let mut listed = ListToolsResult::with_all_items(vec![tool("read", false)]);
        match page.and_then(|page| page.cursor) {
            None => listed.next_cursor = Some("two".to_owned()),
            Some(_) => listed.tools = vec![tool("delete", true)],
        }
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(text(format!("{} ran", request.name)))
    }
}

#[tokio::test]
async fn a_server_without_macros_is_confirmed_by_its_list_of_tools() {
    let server = Rounds::builder(ByHand).confirm(Confirm::destructive()).build().unwrap();
    for client in clients(&server).await {
        assert_eq!(client.play("read", json!({}), []).await.text(), "read ran");
        let played = client.play("delete", json!({}), [yes()]).await;
        assert_eq!((played.messages()[0], &*played.text()), ("Run \"delete\"?", "delete ran"));
    }
}
