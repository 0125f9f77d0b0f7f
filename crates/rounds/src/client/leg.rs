//! One leg: the request that is sent, and how its response is read.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context as TaskContext, Waker},
};

use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, CreateTaskResult,
        GetPromptRequest, GetPromptRequestParams, InputResponses, JsonObject, ReadResourceRequest,
        ReadResourceRequestParams, RequestId, RequestMetaObject, ServerResult,
    },
    service::{Peer, PeerRequestOptions, ServiceError},
};

use super::{
    BadServer, Call, Pending, SendError, Sent, Server,
    call::random_key,
    question::{AskedQuestion, Context},
    reply::{LegResponse, QuestionSet},
    task::Task,
};
use crate::shared::{clock::Timestamp, kind::Method, wire::IDEMPOTENCY_KEY};

/// The contents of one leg: the call itself, and the state and answers that go with it.
pub(super) enum ClientLeg<'a> {
    First(&'a Call),
    Next(&'a Pending),
}

impl ClientLeg<'_> {
    pub(super) async fn send(self, server: &Server<'_>) -> Result<Sent, SendError> {
        let result = request(server.peer, self.request(), self.meta()).await;
        let result = result.map_err(|error| SendError::of(error, self.state().is_some()))?;
        match LegResponse::of(self.call().method, result)? {
            LegResponse::Done(done) => Ok(Sent::Done(done)),
            LegResponse::Task(created) => Ok(Sent::Later(self.task(&created, server)?)),
            LegResponse::Asks(_) if server.is_legacy() => Err(BadServer::AsksInLegacyEra.into()),
            LegResponse::Asks(asks) => {
                let pending = self.pending(asks, server)?;
                Ok(if pending.questions().is_empty() { Sent::Later(pending) } else { Sent::Asks(pending) })
            }
        }
    }

    /// The caller's `_meta`, and on the first leg the idempotency key.
    fn meta(&self) -> Option<RequestMetaObject> {
        let mut meta = own_meta(&self.call().meta);
        if let Self::First(call) = self {
            let key = call.idempotency_key.clone().unwrap_or_else(random_key);
            meta.get_or_insert_default().0.0.insert(IDEMPOTENCY_KEY.to_owned(), key.into());
        }
        meta
    }

    fn call(&self) -> &Call {
        match self {
            Self::First(call) => call,
            Self::Next(pending) => &pending.call,
        }
    }

    fn state(&self) -> Option<&String> {
        match self {
            Self::First(_) => None,
            Self::Next(pending) => pending.state.as_ref(),
        }
    }

    fn answers(&self) -> Option<InputResponses> {
        match self {
            Self::First(_) => None,
            Self::Next(pending) => pending.wire_answers(),
        }
    }

    fn request(&self) -> ClientRequest {
        let Call { method, target, arguments, .. } = self.call();
        let (target, arguments) = (target.clone(), arguments.clone());
        let (answers, state) = (self.answers(), self.state().cloned());
        match method {
            Method::Tool => {
                let mut params = CallToolRequestParams::new(target);
                (params.arguments, params.input_responses, params.request_state) = (arguments, answers, state);
                ClientRequest::CallToolRequest(CallToolRequest::new(params))
            }
            Method::Prompt => {
                let mut params = GetPromptRequestParams::new(target);
                (params.arguments, params.input_responses, params.request_state) = (arguments, answers, state);
                ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
            }
            Method::Resource => {
                let mut params = ReadResourceRequestParams::new(target);
                (params.input_responses, params.request_state) = (answers, state);
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
        }
    }

    /// The round after this leg.
    fn pending(&self, asks: QuestionSet, server: &Server<'_>) -> Result<Pending, BadServer> {
        let (call, round) = self.goes_on();
        pending(call, round + 1, asks, server, false)
    }

    /// The task that this leg has become. It asks nothing so far.
    fn task(&self, created: &CreateTaskResult, server: &Server<'_>) -> Result<Pending, BadServer> {
        let (call, round) = self.goes_on();
        let asks = QuestionSet { questions: Vec::new(), state: None, expires_in: None };
        let mut pending = pending(call, round, asks, server, true)?;
        pending.task = Some(Box::new(Task::created(created)?));
        Ok(pending)
    }

    /// The call after this leg, and the number of its rounds so far.
    fn goes_on(&self) -> (Call, u32) {
        match self {
            // The key is that of a first leg: a pending call that is started over is a new one.
            Self::First(call) => (Call { idempotency_key: None, ..(*call).clone() }, 0),
            Self::Next(last) => (last.start_over(), last.round()),
        }
    }
}

/// Reads the questions of a round and checks that they can be asked.
pub(super) fn pending(
    call: Call,
    round: u32,
    asks: QuestionSet,
    server: &Server<'_>,
    of_task: bool,
) -> Result<Pending, BadServer> {
    if let Some(state) = &asks.state
        && state.len() > call.max_state()
    {
        return Err(BadServer::StateTooLarge { bytes: state.len(), most: call.max_state() });
    }
    let received_at = Timestamp::from(server.clock.now());
    let context = Arc::new(Context {
        origin: server.origin(),
        expires_at: asks.expires_in.map(|left| received_at + left),
        received_at,
        pushed: false,
        of_task,
    });
    let mut questions = Vec::with_capacity(asks.questions.len());
    for (key, came) in asks.questions {
        let suggested = call.suggestions.get(&key);
        let question = AskedQuestion::read(key.clone(), came, context.clone(), suggested)
            .map_err(|why| BadServer::Question { key: super::error::short(&key).to_string(), why })?;
        questions.push(question);
    }
    Ok(Pending::new(call, round, questions, asks.state, context, received_at))
}

/// Sends one request, past rmcp's cache of resources. If the future is dropped, the request is cancelled at the server.
pub(super) async fn request(
    peer: &Peer<RoleClient>,
    request: ClientRequest,
    meta: Option<RequestMetaObject>,
) -> Result<ServerResult, ServiceError> {
    let mut options = PeerRequestOptions::no_options();
    options.meta = meta;
    let handle = peer.send_request_with_option(request, options).await?;
    let mut abandoned = Abandoned { peer, id: Some(handle.id.clone()) };
    let response = handle.await_response().await;
    abandoned.id = None;
    response
}

/// The caller's `_meta`, if there is any, without the keys that belong to the protocol.
pub(super) fn own_meta(meta: &JsonObject) -> Option<RequestMetaObject> {
    if meta.is_empty() {
        return None;
    }
    let own = |key: &str| key != "progressToken" && !key.starts_with("io.modelcontextprotocol/");
    let own: JsonObject = meta.iter().filter(|(key, _)| own(key)).map(|(key, v)| (key.clone(), v.clone())).collect();
    Some(own.into())
}

/// Cancels a request at the server if its caller no longer waits for the response.
struct Abandoned<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let param =
            CancelledNotificationParam::new(Some(id), Some("the caller no longer waits for this request".to_owned()));
        // One poll sends it, unless the connection is closed or blocked. A destructor cannot wait to find out.
        let notify = pin!(self.peer.notify_cancelled(param));
        let _ = notify.poll(&mut TaskContext::from_waker(Waker::noop()));
    }
}
