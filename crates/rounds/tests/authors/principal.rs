//! The caller, in every shape.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Principal, Round, Rounds, Steps,
    asked::{DeclaredQuestion, Question},
    durable,
    test::{Client, accept},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) struct Bank {
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Consent that names the caller in its question.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Sure(bool);

impl Question for Sure {
    type Server = Bank;
    type On = (Parameters<Nothing>, Option<Principal>);

    fn ask(_: &Bank, (_, caller): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("{}: sure?", name(caller.as_ref()))).key("sure"))
    }
}

/// The same, for callers with a principal only.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
struct SureOfOne(bool);

impl Question for SureOfOne {
    type Server = Bank;
    type On = Principal;

    fn ask(_: &Bank, caller: Principal) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("{}: sure?", caller.as_str())).key("sure"))
    }
}

fn name(caller: Option<&Principal>) -> String {
    caller.map_or("unknown", Principal::as_str).to_owned()
}

#[tool_router]
impl Bank {
    #[tool]
    async fn linear(&self, ask: Ask) -> Result<String, FlowError> {
        let before = name(ask.principal());
        ask.form::<bool>(format!("{before}: sure?")).key("sure").await?;
        Ok(format!("{before}, then {}", name(ask.principal())))
    }

    #[tool]
    async fn guard(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        let caller = name(round.principal());
        match round.given::<bool>("sure") {
            Given::Missing => round.ask_form::<bool>("sure", format!("{caller}: sure?")),
            _ => Ok(text(format!("{caller}, then {caller}"))),
        }
    }

    #[tool]
    async fn declared(&self, Asked(Sure(_)): Asked<Sure>, round: Round) -> String {
        let caller = name(round.principal());
        format!("{caller}, then {caller}")
    }

    #[tool]
    async fn known(&self, Asked(sure): Asked<SureOfOne>) -> String {
        format!("known, {}", sure.0)
    }
}

async fn durably(flow: Durable<Bank>, _: Nothing) -> Result<String, FlowError> {
    let before = name(flow.principal());
    flow.form::<bool>(format!("{before}: sure?")).key("sure").await?;
    Ok(format!("{before}, then {}", name(flow.principal())))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Bank {}

pub(crate) fn bank() -> Bank {
    let steps = Steps::<Bank, Nothing>::new("stepped", "Asks")
        .step("sure", async |at, ()| Ok(DeclaredQuestion::<Sure>::form(format!("{}: sure?", name(at.principal())))));
    let steps = steps.finish(async |at, _: (Sure,)| {
        let caller = name(at.principal());
        Ok(format!("{caller}, then {caller}"))
    });
    let routes = [durable("durably", "Asks", durably), steps.build().unwrap()];
    Bank { tool_router: routes.into_iter().fold(Bank::tool_router(), ToolRouter::with_route) }
}

pub(crate) const SHAPES: [&str; 5] = ["linear", "guard", "declared", "durably", "stepped"];

#[tokio::test]
async fn every_shape_knows_the_caller_in_both_eras() {
    let builder = Rounds::builder(bank()).legacy(rounds::Legacy::push());
    // An `Identify` of the author's own: it takes the name from what the client sent.
    let identify = |context: &rmcp::service::RequestContext<rmcp::RoleServer>| {
        let named = context.meta.get("user").and_then(|name| name.as_str());
        Some(Principal::new(named.unwrap_or("ada")))
    };
    let server = builder.principal(identify).build().unwrap();
    for client in crate::clients(&server).await {
        for tool in SHAPES {
            let played = client.play(tool, json!({}), [accept(json!({"sure": true}))]).await;
            assert_eq!((played.messages()[0], &*played.text()), ("ada: sure?", "ada, then ada"), "{tool}");
        }
        let played = client.play("known", json!({}), [accept(json!({"sure": true}))]).await;
        assert_eq!(played.messages(), ["ada: sure?"]);
    }
}

#[tokio::test]
async fn a_client_of_the_test_kit_signs_in() {
    for era in [rounds::Era::Modern, rounds::Era::Legacy] {
        let server = Rounds::builder(bank()).legacy(rounds::Legacy::push()).build().unwrap();
        let client = Client::signed_in(server.clone(), era, Principal::new("ada")).await;
        for tool in SHAPES {
            let played = client.play(tool, json!({}), [accept(json!({"sure": true}))]).await;
            assert_eq!(played.text(), "ada, then ada", "{tool}");
        }
    }
    let server = Rounds::new(bank());
    let client = Client::signed_in(server.clone(), rounds::Era::Modern, Principal::new("ada")).await;
    let asked = client.call("linear", json!({})).await.asked();
    let other = Client::signed_in(server, rounds::Era::Modern, Principal::new("eve")).await;
    asked.accept("sure", json!({"sure": true})).send(&other).await.frozen();
}

#[tokio::test]
async fn a_caller_without_a_principal_has_none() {
    let server = Rounds::builder(bank()).legacy(rounds::Legacy::push()).build().unwrap();
    for client in crate::clients(&server).await {
        for tool in SHAPES {
            let played = client.play(tool, json!({}), [accept(json!({"sure": true}))]).await;
            assert_eq!(played.text(), "unknown, then unknown", "{tool}");
        }
    }
    let client = Client::modern(server).await;
    let refused = client.call("known", json!({})).await;
    assert_eq!(refused.error()["code"], -32600);
    assert!(refused.error()["message"].as_str().unwrap().starts_with("this server asks only authenticated callers"));
}
