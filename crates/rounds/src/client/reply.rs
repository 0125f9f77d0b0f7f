//! The kinds of response: a result, a task, or questions; or one that breaks the protocol.

use std::time::Duration;

use rmcp::model::{CreateTaskResult, InputRequiredResult, ResultType, ServerResult};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    BadServer, Done,
    error::short,
    field::MAX_NAME,
    question::{Came, MAX_BYTES},
};
use crate::shared::{
    kind::Method,
    order::{ORDER, arrange, listed},
    wire::EXPIRES_IN,
};

/// The limit of questions in a round.
const MAX_QUESTIONS: usize = 64;

/// The upper bound of a declared expiry.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A response to a leg.
pub(super) enum LegResponse {
    Done(Done),
    Task(Box<CreateTaskResult>),
    Asks(QuestionSet),
}

/// The questions of a round in the order of asking, not checked yet, and the state to send back.
pub(super) struct QuestionSet {
    pub(super) questions: Vec<(String, Came)>,
    pub(super) state: Option<String>,
    pub(super) expires_in: Option<Duration>,
}

impl LegResponse {
    /// Reads a response, also one that rmcp could not: its type for URL questions requires an id that is no longer
    /// sent, and it passes on as JSON what it cannot read.
    pub(super) fn of(method: Method, result: ServerResult) -> Result<Self, BadServer> {
        let complete = |name: &Option<ResultType>| name.as_ref().is_none_or(ResultType::is_complete);
        match (method, result) {
            (Method::Tool, ServerResult::CallToolResult(result)) if complete(&result.result_type) => {
                Ok(Self::Done(Done::Tool(result)))
            }
            (Method::Prompt, ServerResult::GetPromptResult(result)) if complete(&result.result_type) => {
                Ok(Self::Done(Done::Prompt(result)))
            }
            (Method::Resource, ServerResult::ReadResourceResult(result)) if complete(&result.result_type) => {
                Ok(Self::Done(Done::Resource(result)))
            }
            (_, ServerResult::InputRequiredResult(result)) => QuestionSet::of_result(result).map(Self::Asks),
            (_, other) => {
                let json = serde_json::to_value(other).unwrap_or_default();
                Self::of_json(method, json)
            }
        }
    }

    fn of_json(method: Method, result: Value) -> Result<Self, BadServer> {
        let wrong = |why: &str| BadServer::Result { method: method.as_str(), why: why.to_owned() };
        if !result.is_object() {
            return Err(wrong("it is not an object"));
        }
        match result.get("resultType") {
            None => Done::of_json(method, result).map(Self::Done),
            Some(Value::String(name)) => match name.as_str() {
                "complete" => Done::of_json(method, result).map(Self::Done),
                "input_required" => QuestionSet::of_json(result).map(Self::Asks),
                "task" if method == Method::Tool => match CreateTaskResult::deserialize(result) {
                    Ok(task) => Ok(Self::Task(Box::new(task))),
                    Err(_) => Err(wrong("it is not a task")),
                },
                "task" => Err(wrong("only a tool call becomes a task")),
                other => Err(BadServer::ResultType(format!("{:?}", short(other)))),
            },
            Some(_) => Err(BadServer::ResultType("not a text".to_owned())),
        }
    }
}

impl Done {
    pub(super) fn of_json(method: Method, result: Value) -> Result<Self, BadServer> {
        fn read<T: DeserializeOwned>(method: Method, result: Value) -> Result<T, BadServer> {
            let wrong = |error: serde_json::Error| short(&error.to_string()).to_string();
            serde_json::from_value(result)
                .map_err(|error| BadServer::Result { method: method.as_str(), why: wrong(error) })
        }
        match method {
            Method::Tool => read(method, result).map(Self::Tool),
            Method::Prompt => read(method, result).map(Self::Prompt),
            Method::Resource => read(method, result).map(Self::Resource),
        }
    }
}

impl QuestionSet {
    fn of_result(result: InputRequiredResult) -> Result<Self, BadServer> {
        let requests = result.input_requests.unwrap_or_default();
        let questions = requests.into_iter().map(|(key, request)| (key, Came::of_request(request)));
        let meta = |name: &str| result.meta.as_ref().and_then(|meta| meta.get(name));
        Self::new(questions, result.request_state, meta(EXPIRES_IN), meta(ORDER))
    }

    pub(super) fn of_json(mut result: Value) -> Result<Self, BadServer> {
        let mut take = |name: &str| result.get_mut(name).map(Value::take).unwrap_or_default();
        let requests = match take("inputRequests") {
            Value::Object(requests) => requests,
            Value::Null => serde_json::Map::new(),
            _ => return Err(BadServer::Unreadable { what: "inputRequests" }),
        };
        let state = match take("requestState") {
            Value::String(state) => Some(state),
            Value::Null => None,
            _ => return Err(BadServer::Unreadable { what: "requestState" }),
        };
        let questions = requests.into_iter().map(|(key, request)| (key, Came::of_json(request)));
        let meta = |name: &str| result.get("_meta").and_then(|meta| meta.get(name));
        Self::new(questions, state, meta(EXPIRES_IN), meta(ORDER))
    }

    fn new(
        questions: impl Iterator<Item = (String, Result<Came, String>)>,
        state: Option<String>,
        expires_in: Option<&Value>,
        order: Option<&Value>,
    ) -> Result<Self, BadServer> {
        let mut read = Vec::new();
        let mut bytes = 0;
        for (key, question) in questions {
            let question = question.map_err(|why| BadServer::Question { key: short(&key).to_string(), why })?;
            bytes += question.check_size().map_err(|what| BadServer::AsksTooMuch { what })?;
            let too_much = |what: String| Err(BadServer::AsksTooMuch { what });
            if key.len() > MAX_NAME {
                return too_much(format!("a key of more than {MAX_NAME} bytes"));
            }
            read.push((key, question));
            if read.len() > MAX_QUESTIONS {
                return too_much(format!("more than {MAX_QUESTIONS} at once"));
            }
            if bytes > MAX_BYTES {
                return too_much(format!("more than {MAX_BYTES} bytes"));
            }
        }
        if read.is_empty() && state.is_none() {
            return Err(BadServer::AsksNothing);
        }
        arrange(&mut read, listed(order), |(key, _)| key);
        Ok(Self { questions: read, state, expires_in: read_time(expires_in) })
    }
}

/// A duration in milliseconds, if the value is one.
pub(super) fn read_time(said: Option<&Value>) -> Option<Duration> {
    said.and_then(Value::as_u64).map(|millis| Duration::from_millis(millis).min(FOREVER))
}
