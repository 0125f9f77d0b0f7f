//! The way from a handler to the client that waits for it.
//!
//! A handler's context has a peer, and only a running service of rmcp's has one to give. All requests share the peer of one service, whose transport
//! tells by the progress token whose notification it is: each request gets a token of its own, which no other ever had. A log message has no
//! token, and so a request that wants log messages of a server that has them gets a service of its own.

use std::{
    collections::HashMap,
    future::{Future, pending, ready},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{
        ClientCapabilities, Implementation, InitializeRequestParams, JsonRpcMessage, JsonRpcNotification,
        NumberOrString, ProgressToken, ProtocolVersion, RequestMetaObject, ServerNotification,
    },
    service::{Peer, RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use serde_json::Value;
use tracing::{Dispatch, dispatcher::with_default};

use crate::{
    events::{Events, Undelivered},
    log::Cut,
};

/// The key of a progress token in `_meta`.
pub(crate) const PROGRESS_TOKEN: &str = "progressToken";

/// What all requests share: one peer, and who is behind which token.
#[derive(Default)]
pub(crate) struct Switchboard {
    /// Started by the first request, because it takes a runtime.
    shared: OnceLock<Arc<RunningService<RoleServer, Nobody>>>,
    callers: Arc<Callers>,
    /// Whether the server declares that it has log messages. Some clients ask for them with every request, and few servers have them.
    logs: OnceLock<bool>,
}

impl Switchboard {
    /// The line of a request to this handler, in whose metadata the token becomes the one that the line is known by.
    pub(crate) fn line(&self, meta: &mut RequestMetaObject, handler: &impl ServerHandler) -> Line {
        if meta.log_level().is_some() && *self.logs.get_or_init(|| handler.get_info().capabilities.logging.is_some()) {
            return Line::own();
        }
        let shared = self.shared.get_or_init(|| {
            let callers = self.callers.clone();
            Arc::new(serve(move |message| callers.forward(message)))
        });
        let Some(token) = meta.get_progress_token() else {
            return Line { events: None, _call: None, service: shared.clone() };
        };
        // Its runtime is not there any more.
        if shared.peer().is_transport_closed() {
            return Line::own();
        }
        let events = Arc::<Events>::default();
        let call = Callers::add(&self.callers, Caller { token, events: events.clone() });
        if let Some(token) = meta.get_mut(PROGRESS_TOKEN) {
            *token = Value::from(call.token);
        }
        Line { events: Some(events), _call: Some(call), service: shared.clone() }
    }
}

/// The way from one handler to its client. It is there as long as the handler is.
pub(crate) struct Line {
    /// What is sent through it, if its client wants to be sent anything.
    pub(crate) events: Option<Arc<Events>>,
    /// Its place among the requests that share a service.
    _call: Option<Call>,
    /// Held, because its peer is closed when it is dropped: an endpoint may be dropped while requests are in flight.
    service: Arc<RunningService<RoleServer, Nobody>>,
}

impl Line {
    /// One with a peer of its own: whatever is sent to it belongs to the request.
    fn own() -> Self {
        let events = Arc::<Events>::default();
        let sent = events.clone();
        let service = serve(move |message| Sent::to(sent.clone(), &message));
        Self { events: Some(events), _call: None, service: Arc::new(service) }
    }

    pub(crate) fn peer(&self) -> &Peer<RoleServer> {
        self.service.peer()
    }
}

/// A service that has no client, for the sake of its peer.
///
/// The peer speaks 2026-07-28, so that rmcp refuses whatever a server would ask of it.
fn serve(send: impl FnMut(Message) -> Sent + Send + 'static) -> RunningService<RoleServer, Nobody> {
    let client = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::default())
        .with_protocol_version(ProtocolVersion::V_2026_07_28);
    // It may outlive the request that comes first, and is not to keep that request's span.
    with_default(&Dispatch::none(), || serve_directly(Nobody, Wire(send), Some(client)))
}

struct Nobody;

impl ServerHandler for Nobody {}

type Message = TxJsonRpcMessage<RoleServer>;

/// A transport that sends and never receives.
struct Wire<F>(F);

impl<F: FnMut(Message) -> Sent + Send + 'static> Transport<RoleServer> for Wire<F> {
    type Error = Undelivered;

    /// Messages are in order as soon as this was called, whatever becomes of the future. That is for the sender to wait for.
    fn send(&mut self, message: Message) -> impl Future<Output = Result<(), Undelivered>> + Send + 'static {
        self.0(message).done()
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        pending().await
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Undelivered>> + Send {
        ready(Ok(()))
    }
}

/// What became of a message.
enum Sent {
    /// Its sender can go on.
    Done,
    /// It is among the events, which are enough for now.
    Full(Arc<Events>),
    Refused(Undelivered),
}

impl Sent {
    fn to(events: Arc<Events>, message: &Message) -> Self {
        match events.push(message) {
            Ok(true) => Self::Done,
            Ok(false) => Self::Full(events),
            Err(why) => Self::Refused(why),
        }
    }

    async fn done(self) -> Result<(), Undelivered> {
        match self {
            Self::Done => Ok(()),
            Self::Full(events) => events.room().await,
            Self::Refused(why) => Err(why),
        }
    }
}

/// The requests in flight whose clients gave a progress token, by the token that their handlers got for it.
#[derive(Default)]
struct Callers {
    calls: Mutex<Calls>,
    /// Makes tokens of numbers. Its key is random, so that a token can be neither met by chance nor guessed.
    tokens: RandomState,
}

#[derive(Default)]
struct Calls {
    callers: HashMap<u64, Caller>,
    made: u64,
}

/// A client that is waiting.
#[derive(Clone)]
struct Caller {
    /// As the client knows it.
    token: ProgressToken,
    events: Arc<Events>,
}

impl Callers {
    fn add(callers: &Arc<Self>, caller: Caller) -> Call {
        let mut calls = callers.calls();
        let token = loop {
            calls.made += 1;
            // As large as every JSON parser can read without loss.
            let token = callers.tokens.hash_one(calls.made) >> 11;
            if !calls.callers.contains_key(&token) {
                break token;
            }
        };
        calls.callers.insert(token, caller);
        drop(calls);
        Call { token, callers: callers.clone() }
    }

    /// Hands progress to the client that it belongs to.
    fn forward(&self, mut message: Message) -> Sent {
        if let JsonRpcMessage::Notification(JsonRpcNotification {
            notification: ServerNotification::ProgressNotification(progress),
            ..
        }) = &mut message
            && let Some(caller) = self.caller(&progress.params.progress_token)
        {
            progress.params.progress_token = caller.token;
            return Sent::to(caller.events, &message);
        }
        tracing::debug!(message = ?Cut(&message), "a notification that belongs to no request in flight goes nowhere");
        Sent::Done
    }

    fn caller(&self, token: &ProgressToken) -> Option<Caller> {
        let NumberOrString::Number(token) = &token.0 else { return None };
        self.calls().callers.get(&u64::try_from(*token).ok()?).cloned()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the callers, which is given up when this is dropped.
struct Call {
    token: u64,
    callers: Arc<Callers>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let caller = self.callers.calls().callers.remove(&self.token);
        drop(caller);
    }
}
