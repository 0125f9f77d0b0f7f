//! Handlers that return rmcp's own error type.

use rmcp::{
    ErrorData, ServerHandler,
    handler::server::{
        router::{prompt::PromptRouter, tool::ToolRouter},
        wrapper::Parameters,
    },
    model::{PromptMessage, Role},
    prompt, prompt_handler, prompt_router, schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, FlowError, Rounds,
    observe::{Outcome, Station},
    test::{Client, Events, accept, cancel, decline},
};
use serde::Deserialize;
use serde_json::json;

use crate::clients;

struct Files {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct How {
    own: bool,
}

async fn deep(ask: &Ask) -> Result<String, ErrorData> {
    Ok(ask
        .form::<String>("Which folder?")
        .key("folder")
        .reasks(0)
        .check(|name| if name == "bad" { Err("no") } else { Ok(()) })
        .await?)
}

#[tool_router]
impl Files {
    #[tool]
    async fn empty(&self, ask: Ask) -> Result<String, ErrorData> {
        Ok(format!("Emptied {}.", deep(&ask).await?))
    }

    #[tool]
    async fn lookalike(&self, Parameters(How { own }): Parameters<How>, ask: Ask) -> Result<String, ErrorData> {
        let declined = deep(&ask).await.unwrap_err();
        if own { Err(ErrorData::internal_error(format!("own: {}", declined.message), None)) } else { Err(declined) }
    }

    #[tool]
    async fn invented(&self) -> Result<String, ErrorData> {
        Err(ErrorData::invalid_request("The user declined: Which folder?", None))
    }

    #[tool]
    async fn failed(&self) -> Result<String, ErrorData> {
        Err(FlowError::failed("the disk is full"))?
    }
}

#[prompt_router]
impl Files {
    #[prompt(name = "plan")]
    async fn plan(&self, ask: Ask) -> Result<Vec<PromptMessage>, ErrorData> {
        Ok(vec![PromptMessage::new_text(Role::User, deep(&ask).await?)])
    }
}

#[tool_handler(router = self.tool_router)]
#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Files {}

fn server(events: &Events) -> Rounds<Files> {
    let files = Files { tool_router: Files::tool_router(), prompt_router: Files::prompt_router() };
    Rounds::builder(files).observe(events.clone()).build().unwrap()
}

#[tokio::test]
async fn a_refused_question_is_a_tool_error_also_with_rmcps_error_type() {
    let events = Events::new();
    for client in clients(&server(&events)).await {
        for (answer, told) in [
            (decline(), "The user declined: Which folder?"),
            (cancel(), "The user cancelled: Which folder?"),
            (accept(json!({"folder": "bad"})), "The answer to \"Which folder?\" is not valid: no"),
        ] {
            let played = client.play("empty", json!({}), [answer]).await;
            assert!(played.is_tool_error());
            assert_eq!(played.text(), told);
        }
        let played = client.play("failed", json!({}), []).await;
        assert_eq!((played.is_tool_error(), &*played.text()), (true, "the disk is full"));
        let played = client.play("empty", json!({}), [accept(json!({"folder": "x"}))]).await;
        assert_eq!((played.is_tool_error(), &*played.text()), (false, "Emptied x."));
    }
}

#[tokio::test]
async fn the_decline_is_recorded_as_the_reply() {
    let events = Events::new();
    let server = server(&events);
    let client = Client::modern(server).await;
    let declined = client.call("empty", json!({})).await.asked().decline("folder");
    let first = declined.send(&client).await;
    assert_eq!(first.response()["result"], declined.send(&client).await.response()["result"]);
    assert_eq!(events.runs("empty"), 1);
    assert!(events.stations().contains(&Station::Ended(Outcome::ToolError)));
    assert!(events.stations().contains(&Station::Replayed));
}

#[tokio::test]
async fn an_error_of_the_handlers_own_is_a_protocol_error_whatever_it_says() {
    let events = Events::new();
    for client in clients(&server(&events)).await {
        let played = client.play("invented", json!({}), []).await;
        assert_eq!(played.end().error()["code"], -32600, "it looks like a decline, and is not one");
        let played = client.play("lookalike", json!({"own": true}), [decline()]).await;
        assert_eq!(played.end().error()["code"], -32603);
        let played = client.play("lookalike", json!({"own": false}), [decline()]).await;
        assert!(played.is_tool_error());
    }
}

#[tokio::test]
async fn a_prompt_has_no_place_for_a_text_and_ends_with_the_error() {
    let events = Events::new();
    let client = Client::modern(server(&events)).await;
    let leg = client.prompt("plan", json!({})).await.asked().decline("folder").send(&client).await;
    assert_eq!(leg.error()["message"], "The user declined: Which folder?");
    assert_eq!(leg.error()["code"], -32600);
}
