//! The requests that "Try it" sends, as a client of 2026-07-28 would.

use std::sync::Arc;

use rmcp::model::JsonObject;
use rounds::{Principal, client::Field};
use serde_json::{Map, Value, json};

use super::{StateChange, TriedCall};
use crate::{problem::Problem, served::PROTOCOL, service::Shared};

/// How many pages of a server's list of tools are read.
const PAGES: usize = 20;

/// A tool as the server lists it.
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The fields of its arguments, or why they cannot be shown.
    pub(crate) fields: Result<Vec<Field>, String>,
}

/// The tools of the server that this principal sees.
pub(crate) async fn tools(shared: &Shared, principal: Option<&Principal>) -> Result<Vec<Tool>, Problem> {
    let mut tools = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..PAGES {
        let mut params = json!({"_meta": meta()});
        if cursor.is_string() {
            params["cursor"] = cursor;
        }
        let request = request("tools/list", params);
        let response = shared.served.send("tools/list", None, &request, principal.cloned()).await;
        let response = response.map_err(Problem::Tools)?;
        let Some(result) = response.get("result") else { return Err(Problem::Tools(response["error"].to_string())) };
        tools.extend(result["tools"].as_array().into_iter().flatten().map(Tool::of));
        cursor = result["nextCursor"].clone();
        if !cursor.is_string() {
            break;
        }
    }
    Ok(tools)
}

impl Tool {
    fn of(listed: &Value) -> Self {
        let text = |name: &str| listed[name].as_str().unwrap_or_default().to_owned();
        let none = JsonObject::new();
        let schema = listed["inputSchema"].as_object().unwrap_or(&none);
        Self { name: text("name"), description: text("description"), fields: Field::of_object(schema) }
    }
}

/// What the next leg of a call sends.
pub(crate) enum Leg {
    First,
    /// Answers, with the state as it came.
    Answers {
        state: String,
        answers: Map<String, Value>,
    },
    /// The same with one character of the state changed.
    Changed {
        state: String,
        answers: Map<String, Value>,
    },
    /// An earlier request without a change.
    Again(Arc<Value>),
}

/// Sends a leg in a task of its own, so that a visitor who leaves does not cancel it.
pub(crate) fn begin(shared: &Arc<Shared>, call: &Arc<TriedCall>, title: &'static str, leg: Leg) -> Result<(), Problem> {
    let (request, change) = leg.request(call);
    let request = Arc::new(request);
    call.begin(title, request.clone(), change)?;
    let (shared, call) = (shared.clone(), call.clone());
    tokio::spawn(async move {
        let sending = shared.served.send("tools/call", Some(&call.tool), &request, call.owner.clone());
        let response = match &shared.recorder {
            Some(recorder) => recorder.watch(call.events.clone(), call.legs().len(), sending).await,
            None => sending.await,
        };
        call.respond(response);
    });
    Ok(())
}

impl Leg {
    fn request(self, call: &TriedCall) -> (Value, Option<StateChange>) {
        let mut params = json!({"name": call.tool, "arguments": call.arguments, "_meta": meta()});
        let (state, answers, change) = match self {
            Self::First => return (request("tools/call", params), None),
            Self::Again(request) => return ((*request).clone(), None),
            Self::Answers { state, answers } => (state, answers, None),
            Self::Changed { state, answers } => {
                let (state, change) = StateChange::of(&state);
                (state, answers, Some(change))
            }
        };
        (params["requestState"], params["inputResponses"]) = (state.into(), answers.into());
        (request("tools/call", params), change)
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// What a client of 2026-07-28 says about itself with every request.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientInfo": {"name": "rounds-desk", "version": env!("CARGO_PKG_VERSION")},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
    })
}
