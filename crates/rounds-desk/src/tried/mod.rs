//! The calls of "Try it": what was sent and received, leg by leg.

mod calls;
mod change;
mod send;

pub(crate) use calls::{Calls, TriedCall};
pub(crate) use change::StateChange;
pub(crate) use send::{Leg, Tool, begin, tools};

use std::sync::Arc;

use rounds::client::AskedQuestion;
use serde_json::Value;

/// One leg of a call.
#[derive(Debug, Clone)]
pub(crate) struct TriedLeg {
    /// What the visitor did.
    pub(crate) title: &'static str,
    pub(crate) request: Arc<Value>,
    /// None while the server works on it.
    pub(crate) response: Option<Arc<Result<Value, String>>>,
    /// The character of the state that was changed.
    pub(crate) change: Option<StateChange>,
}

impl TriedLeg {
    /// The questions of the response, in the order of asking.
    pub(crate) fn questions(&self) -> Vec<AskedQuestion> {
        let Some(result) = self.result().filter(|result| result["resultType"] == "input_required") else {
            return Vec::new();
        };
        let requests = result["inputRequests"].as_object();
        let ask = |(key, request): (&String, &Value)| AskedQuestion::from_json(key, request.clone()).ok();
        let mut questions: Vec<AskedQuestion> = requests.into_iter().flatten().filter_map(ask).collect();
        let order = result["_meta"][rounds::order::ORDER].as_array();
        let place = |question: &AskedQuestion| {
            let listed = order.and_then(|order| order.iter().position(|key| key == question.key()));
            listed.unwrap_or(usize::MAX)
        };
        questions.sort_by_key(place);
        questions
    }

    /// The state of the response.
    pub(crate) fn state(&self) -> Option<&str> {
        self.result()?["requestState"].as_str()
    }

    /// The state that was sent with the request.
    pub(crate) fn sent_state(&self) -> Option<&str> {
        self.request["params"]["requestState"].as_str()
    }

    pub(crate) fn result(&self) -> Option<&Value> {
        self.json()?.get("result")
    }

    pub(crate) fn error(&self) -> Option<&Value> {
        self.json()?.get("error")
    }

    fn json(&self) -> Option<&Value> {
        self.response.as_ref()?.as_ref().as_ref().ok()
    }
}
