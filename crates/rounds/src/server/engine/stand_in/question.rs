//! The questions that a handler has sent through its stand-in and that have no answer yet.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequestParams, ElicitResult, ElicitationAction, Extensions, GetMeta as _, InputRequest,
        JsonRpcMessage, RequestId, RequestMetaObject, RequestParamsMeta as _, ServerRequest,
    },
    service::RxJsonRpcMessage,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{client, line::SentQuestion};
use crate::{
    server::{
        engine::{
            answer::Received,
            frame::{Frame, OpenQuestion, PendingAnswer},
        },
        policy::{error::FlowError, gate, measure::Limit},
        seal::envelope::QuestionKind,
    },
    shared::check::{Fields, InvalidAnswer},
};

/// The request as a question, if it is of a kind that a round can ask.
///
/// The progress token is left out: rmcp adds one to each request, and it belongs to the stand-in.
pub(super) fn of_request(mut request: ServerRequest) -> Result<InputRequest, Box<ServerRequest>> {
    let asks = matches!(
        request,
        ServerRequest::ElicitRequest(_) | ServerRequest::CreateMessageRequest(_) | ServerRequest::ListRootsRequest(_)
    );
    if !asks {
        return Err(Box::new(request));
    }
    let mut meta = std::mem::take(request.get_meta_mut());
    meta.0.0.remove("progressToken");
    let meta = (!meta.0.0.is_empty()).then_some(meta);
    Ok(match request {
        ServerRequest::ElicitRequest(mut request) => {
            request.extensions = Extensions::new();
            add(request.params.meta_mut(), meta);
            InputRequest::Elicitation(request)
        }
        ServerRequest::CreateMessageRequest(mut request) => {
            request.extensions = Extensions::new();
            add(request.params.meta_mut(), meta);
            InputRequest::CreateMessage(request)
        }
        ServerRequest::ListRootsRequest(mut request) => {
            request.extensions = Extensions::new();
            if let Some(meta) = meta {
                request.extensions.insert(meta);
            }
            InputRequest::ListRoots(request)
        }
        request => return Err(Box::new(request)),
    })
}

/// The questions of one stand-in, in the order of asking.
pub(super) struct PeerQuestions {
    frame: Arc<Frame>,
    open: Vec<PeerQuestion>,
    /// What was refused before it became a question.
    refused: Vec<(RequestId, FlowError)>,
}

impl PeerQuestions {
    pub(super) const fn of(frame: Arc<Frame>) -> Self {
        Self { frame, open: Vec::new(), refused: Vec::new() }
    }

    /// Opens what was asked, and drops what was withdrawn.
    pub(super) fn take_in(&mut self, sent: Vec<SentQuestion>) {
        for sent in sent {
            match sent {
                SentQuestion::Withdrawn(id) => self.open.retain(|question| question.id != id),
                SentQuestion::Asked(id, request) => {
                    match self.admit().and_then(|()| PeerQuestion::pose(&self.frame, id.clone(), *request)) {
                        Ok(question) => self.open.push(question),
                        Err(error) => self.refused.push((id, error)),
                    }
                }
            }
        }
    }

    /// One round can ask no more than its limit, and what cannot be asked need not be kept.
    fn admit(&self) -> Result<(), FlowError> {
        let (asks, limit) = (self.open.len() + 1, self.frame.core.limits.questions);
        if asks <= limit {
            return Ok(());
        }
        self.frame.core.limit_reached(Limit::Questions);
        Err(FlowError::TooManyQuestions { asks, limit })
    }

    /// The responses to those that are answered or cannot be asked.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Vec<RxJsonRpcMessage<RoleServer>> {
        let refused = self.refused.drain(..).map(|(id, error)| failed(id, error));
        let mut responses: Vec<_> = refused.collect();
        self.open.retain_mut(|question| match question.poll(&self.frame, cx) {
            Poll::Pending => true,
            Poll::Ready(response) => {
                responses.push(response);
                false
            }
        });
        responses
    }

    /// What they take of memory beside what the frame keeps of them.
    pub(super) fn bytes(&self) -> usize {
        self.open.iter().map(|question| size_of::<PeerQuestion>() + question.request.len()).sum()
    }
}

/// A question, and the request that it was.
struct PeerQuestion {
    id: RequestId,
    kind: QuestionKind,
    opened: PendingAnswer,
    /// As JSON text, which takes little memory: it is read only when an answer comes.
    request: Box<str>,
    /// How often it was asked again because its answer was not valid.
    asked_again: u32,
}

impl PeerQuestion {
    fn pose(frame: &Arc<Frame>, id: RequestId, request: InputRequest) -> Result<Self, FlowError> {
        let unwritable = |error| FlowError::failed(format!("the request cannot be written as JSON: {error}"));
        let text = serde_json::to_string(&request).map_err(unwritable)?;
        let kind = gate::kind_of(&request)?;
        let opened = pose(frame, kind, request)?;
        Ok(Self { id, kind, opened, request: text.into(), asked_again: 0 })
    }

    fn poll(&mut self, frame: &Arc<Frame>, cx: &mut Context<'_>) -> Poll<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Poll::Ready(received) = Pin::new(&mut self.opened).poll(cx) else { return Poll::Pending };
            match received.and_then(|received| self.read(frame, received)) {
                Ok(Some(result)) => return Poll::Ready(JsonRpcMessage::response(result, self.id.clone())),
                // It is asked again.
                Ok(None) => {}
                Err(error) => return Poll::Ready(failed(self.id.clone(), error)),
            }
        }
    }

    /// The answer, if it is valid. Otherwise the question is asked again, as often as the limits allow.
    fn read(&mut self, frame: &Arc<Frame>, received: Received) -> Result<Option<ClientResult>, FlowError> {
        let unreadable = |error| FlowError::failed(format!("the request cannot be read again: {error}"));
        let mut request: InputRequest = serde_json::from_str(&self.request).map_err(unreadable)?;
        let problem = match result(&request, received) {
            Ok(result) => return Ok(Some(result)),
            Err(problem) => problem,
        };
        if self.asked_again == frame.core.limits.reasks {
            return Err(FlowError::Invalid { question: message(&request), problem });
        }
        self.asked_again += 1;
        note(&mut request, &problem);
        self.opened = pose(frame, self.kind, request)?;
        Ok(None)
    }
}

fn pose(frame: &Arc<Frame>, kind: QuestionKind, request: InputRequest) -> Result<PendingAnswer, FlowError> {
    let question = OpenQuestion {
        key: key(kind, &request).into(),
        kind,
        form: None,
        digest: None,
        message: message(&request).into(),
        until: None,
        request: Some(Box::new(request)),
    };
    frame.pose(question, true)
}

/// The key of a question: the field of a form with one field, and otherwise the kind of the question.
fn key(kind: QuestionKind, request: &InputRequest) -> &str {
    match kind {
        QuestionKind::Form => only_field(request).unwrap_or("form"),
        QuestionKind::Url | QuestionKind::Elsewhere => "url",
        QuestionKind::Sample => "sample",
        QuestionKind::Roots => "roots",
    }
}

fn only_field(request: &InputRequest) -> Option<&str> {
    let InputRequest::Elicitation(request) = request else { return None };
    let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = &request.params else { return None };
    let mut fields = requested_schema.properties.keys();
    fields.next().filter(|_| fields.next().is_none()).map(String::as_str)
}

/// The response to a request that has no answer. What the client did not declare fails as it does in rmcp without this library.
fn failed(id: RequestId, error: FlowError) -> RxJsonRpcMessage<RoleServer> {
    let as_in_rmcp = if error.cannot_ask() { client::refusal() } else { None };
    JsonRpcMessage::error(as_in_rmcp.unwrap_or_else(|| error.into()), Some(id))
}

/// What a question says to its user.
fn message(request: &InputRequest) -> String {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams { message, .. }
            | ElicitRequestParams::UrlElicitationParams { message, .. } => message.clone(),
            _ => String::new(),
        },
        InputRequest::CreateMessage(_) => "a question to the client's model".to_owned(),
        _ => "the client's roots".to_owned(),
    }
}

/// Says in a form what was wrong with its answer.
fn note(request: &mut InputRequest, problem: &InvalidAnswer) {
    if let InputRequest::Elicitation(request) = request
        && let ElicitRequestParams::FormElicitationParams { message, .. }
        | ElicitRequestParams::UrlElicitationParams { message, .. } = &mut request.params
    {
        *message = problem.noted(message);
    }
}

/// The result that a handler gets, if the answer is one to this request.
fn result(request: &InputRequest, received: Received) -> Result<ClientResult, InvalidAnswer> {
    let elicited = |action, content| {
        let mut result = ElicitResult::new(action);
        result.content = content;
        Ok(ClientResult::ElicitResult(result))
    };
    match received {
        Received::Declined => elicited(ElicitationAction::Decline, None),
        Received::Cancelled | Received::Late => elicited(ElicitationAction::Cancel, None),
        Received::Malformed(problem) => Err(problem),
        Received::Accepted(content) => match request {
            InputRequest::Elicitation(request) => match &request.params {
                ElicitRequestParams::FormElicitationParams { requested_schema, .. } => {
                    let schema = serde_json::to_value(requested_schema).unwrap_or_default();
                    let fields = Fields::of(schema.as_object().unwrap_or(&serde_json::Map::new()));
                    elicited(ElicitationAction::Accept, Some(Value::Object(fields.check(&content)?)))
                }
                _ => elicited(ElicitationAction::Accept, None),
            },
            InputRequest::CreateMessage(_) => Ok(ClientResult::CreateMessageResult(Box::new(from_json(&content)?))),
            _ => Ok(ClientResult::ListRootsResult(from_json(&content)?)),
        },
    }
}

fn from_json<T: DeserializeOwned>(value: &Value) -> Result<T, InvalidAnswer> {
    T::deserialize(value).map_err(|error| InvalidAnswer::whole(format!("the answer cannot be read: {error}")))
}

/// Adds the metadata that a handler has given beside the parameters to those within.
fn add(within: &mut Option<RequestMetaObject>, beside: Option<RequestMetaObject>) {
    if let Some(meta) = within {
        meta.0.0.remove("progressToken");
    }
    if let Some(beside) = beside {
        within.get_or_insert_default().extend(beside);
    }
}
