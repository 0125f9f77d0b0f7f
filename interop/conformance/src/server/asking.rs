//! The tools of the `input-required-result` scenarios, each in the shape that fits it best.

#![expect(deprecated, reason = "the suite asks for samples and for roots, which SEP-2577 deprecates")]

use rmcp::{
    handler::server::router::tool::ToolRouter,
    model::{
        CallToolResponse, CreateMessageRequestParams, CreateMessageResult, ListRootsResult, SamplingMessage,
        SamplingMessageContentBlock,
    },
    schemars, tool, tool_router,
};
use rounds::{Ask, Durable, FlowError, Given, Round, durable, text};
use serde::{Deserialize, Serialize};

use crate::Conformance;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Confirmed {
    ok: bool,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Coloured {
    color: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Nothing {}

/// The state of the guard that keeps one.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    at_round: u32,
}

#[tool_router(router = asking_tools, vis = "pub(crate)")]
impl Conformance {
    /// A guard, because the scenarios also send the answer immediately, without a state and an earlier round.
    #[tool(description = "Greets the user who answers")]
    async fn test_input_required_result_elicitation(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<Named>("user_name") {
            Given::Accepted(Named { name }) => Ok(text(format!("Hello, {name}!"))),
            Given::Declined | Given::Cancelled => Ok(text("Hello, stranger!")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Named>("user_name", "What is your name?"),
        }
    }

    #[tool(description = "Asks the client's model for a capital")]
    async fn test_input_required_result_sampling(&self, ask: Ask) -> Result<String, FlowError> {
        let capital = ask.sample(prompt("What is the capital of France?", 100)).key("capital_question").await?;
        Ok(said(&capital))
    }

    #[tool(description = "Asks with a state of its own")]
    async fn test_input_required_result_request_state(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        match (round.given::<Confirmed>("confirm"), round.state::<Asked>()?) {
            (Given::Accepted(Confirmed { ok }), Some(Asked { at_round: 0 })) => Ok(text(format!("state-ok: {ok}"))),
            (Given::Declined | Given::Cancelled, _) => Ok(text("state-ok: not confirmed")),
            _ => {
                let state = Asked { at_round: round.number() };
                round.questions().form::<Confirmed>("confirm", "Please confirm").state(&state).send()
            }
        }
    }

    #[tool(description = "Asks, and takes no state but its own")]
    async fn test_input_required_result_tampered_state(&self, ask: Ask) -> Result<String, FlowError> {
        let Confirmed { ok } = ask.form("Please confirm").key("confirm").await?;
        Ok(format!("confirmed: {ok}"))
    }

    #[tool(description = "Asks the user or the model, as the client declares")]
    async fn test_input_required_result_capabilities(&self, ask: Ask) -> Result<String, FlowError> {
        if ask.can_form() {
            let Named { name } = ask.form("What is your name?").key("user_name").await?;
            return Ok(format!("Hello, {name}!"));
        }
        let greeting = ask.sample(prompt("Generate a greeting", 50)).key("greeting").await?;
        Ok(said(&greeting))
    }

    #[tool(description = "Needs a client whose model can be asked")]
    async fn test_missing_capability(&self, ask: Ask) -> Result<String, FlowError> {
        let answer = ask.sample(prompt("Are you there?", 10)).await?;
        Ok(said(&answer))
    }

    #[tool(description = "Reports progress, then asks")]
    async fn test_streaming_elicitation(&self, ask: Ask) -> Result<String, FlowError> {
        ask.progress(0.0, Some(1.0), None).await;
        let Named { name } = ask.form("What is your name?").key("user_name").await?;
        Ok(format!("Hello, {name}!"))
    }
}

impl Conformance {
    pub(crate) fn durable_tools() -> ToolRouter<Self> {
        ToolRouter::new()
            .with_route(durable("test_input_required_result_list_roots", "Counts the client's roots", list_roots))
            .with_route(durable(
                "test_input_required_result_multiple_inputs",
                "Asks for three things in one round",
                multiple_inputs,
            ))
            .with_route(durable("test_input_required_result_multi_round", "Asks for two things in turn", multi_round))
    }
}

async fn list_roots(flow: Durable<Conformance>, _: Nothing) -> Result<String, FlowError> {
    let ListRootsResult { roots, .. } = flow.roots().key("client_roots").await?;
    let uris: Vec<_> = roots.iter().map(|root| root.uri.as_str()).collect();
    Ok(format!("Roots: {}", uris.join(", ")))
}

async fn multiple_inputs(flow: Durable<Conformance>, _: Nothing) -> Result<String, FlowError> {
    let (Named { name }, greeting, roots) = flow
        .all((
            flow.form("What is your name?").key("user_name"),
            flow.sample(prompt("Generate a greeting", 50)).key("greeting"),
            flow.roots().key("client_roots"),
        ))
        .await?;
    Ok(format!("{name}: {} ({} roots)", said(&greeting), roots.roots.len()))
}

async fn multi_round(flow: Durable<Conformance>, _: Nothing) -> Result<String, FlowError> {
    let Named { name } = flow.form("Step 1: What is your name?").key("step1").await?;
    let Coloured { color } = flow.form("Step 2: What is your favorite color?").key("step2").await?;
    Ok(format!("{name} likes {color}."))
}

pub(crate) fn prompt(words: &str, max_tokens: u32) -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text(words)], max_tokens)
}

/// The texts of a model's message.
pub(crate) fn said(result: &CreateMessageResult) -> String {
    let texts = result.message.content.iter().filter_map(SamplingMessageContentBlock::as_text);
    texts.map(|text| text.text.as_str()).collect()
}
