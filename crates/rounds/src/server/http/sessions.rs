//! [`Sessions`]: rmcp's sessions in memory, within the limits of a server.

use std::{fmt, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{
        Transport, WorkerTransport,
        streamable_http_server::{
            SessionManager,
            session::{
                EventStore, EventStream, RestoreOutcome, SessionId,
                local::{LocalSessionManager, LocalSessionManagerError, LocalSessionWorker},
            },
        },
    },
};

use crate::server::{
    engine::{core::Core, weight},
    policy::{
        measure::Limit,
        places::{Evicted, Full, Owner, Places},
    },
};

/// The sessions of legacy clients over HTTP, in memory, within [the limits](crate::Limits::with_sessions) of a server.
/// Made by [`Rounds::sessions`](crate::Rounds::sessions), and by
/// [`Rounds::streamable_http`](crate::Rounds::streamable_http).
///
/// If a session begins and the limit is reached, the least recently used idle session ends. Its client gets a 404 with
/// its next request, and has to open another session. A session with a call in flight is not ended. If no session is
/// idle, the new one is refused with an error that says so.
///
/// If its client sends nothing, a session lives for a minute longer than a flow: rmcp's default would end it while the
/// user thinks.
pub struct Sessions {
    local: Arc<LocalSessionManager>,
    core: Arc<Core>,
}

impl Sessions {
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(core.lifetimes.flow.saturating_add(GRACE));
        // No client asks for the cached response of a cancelled request, and there could be any number of them.
        local.session_config.completed_cache_ttl = Duration::ZERO;
        Self { local: Arc::new(local), core: core.clone() }
    }

    /// The number of sessions of the server, over all of its mounts.
    pub fn count(&self) -> usize {
        self.core.sessions.count()
    }

    fn places(&self) -> &Arc<Places> {
        &self.core.sessions
    }

    fn enter(&self, id: &SessionId, transport: WorkerTransport<LocalSessionWorker>) -> SessionTransport {
        self.places().enter(id.clone(), self.local.clone());
        SessionTransport { inner: transport, id: id.clone(), places: self.places().clone() }
    }

    /// Admits a session whose handler did not do so, because the handler is not a `Rounds`.
    async fn admit_unasked(&self, arrival: &Arrival) -> Result<(), ErrorData> {
        if self.places().is_admitted(&arrival.id) {
            return Ok(());
        }
        arrival.admit(&self.core, None).await
    }
}

/// How much longer than a flow a session lives if its client sends nothing.
const GRACE: Duration = Duration::from_secs(60);

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[expect(refining_impl_trait, reason = "the `Stream` trait is in a crate that is not needed for anything else")]
impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), LocalSessionManagerError> {
        let (id, transport) = self.local.create_session().await?;
        let transport = self.enter(&id, transport);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, LocalSessionManagerError> {
        let arrival = Arrival::of(id, self.places(), &message);
        let request = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        message.insert_extension(arrival.clone());
        let response = self.local.initialize_session(id, message).await?;
        if !matches!(response, JsonRpcMessage::Response(_)) {
            // rmcp ends the session soon.
            self.places().leave(id);
        } else if let Err(error) = self.admit_unasked(&arrival).await {
            self.close_session(id).await?;
            return Ok(ServerJsonRpcMessage::error(error, request));
        }
        self.places().end(id, None);
        Ok(response)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, LocalSessionManagerError> {
        Ok(self.places().contains(id) && self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), LocalSessionManagerError> {
        self.places().leave(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<EventStream, LocalSessionManagerError> {
        let JsonRpcMessage::Request(request) = &message else {
            return Ok(Box::pin(self.local.create_stream(id, message).await?));
        };
        let Some(begun) = Begun::new(self.places(), id, &request.id) else {
            return Err(LocalSessionManagerError::SessionNotFound(id.clone()));
        };
        let stream = self.local.create_stream(id, message).await?;
        begun.has_reached_its_handler();
        Ok(Box::pin(stream))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), LocalSessionManagerError> {
        self.places().touch(id);
        if let JsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(request) = &cancelled.params.request_id
        {
            // The client no longer waits for the request, and rmcp sends no response to it.
            self.places().end(id, Some(request.clone()));
        }
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(&self, id: &SessionId) -> Result<EventStream, LocalSessionManagerError> {
        self.places().touch(id);
        Ok(Box::pin(self.local.create_standalone_stream(id).await?))
    }

    async fn resume(&self, id: &SessionId, last_event_id: String) -> Result<EventStream, LocalSessionManagerError> {
        self.places().touch(id);
        Ok(Box::pin(self.local.resume(id, last_event_id).await?))
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<SessionTransport>, LocalSessionManagerError> {
        Ok(match self.local.restore_session(id.clone()).await? {
            RestoreOutcome::Restored(transport) => RestoreOutcome::Restored(self.enter(&id, transport)),
            RestoreOutcome::AlreadyPresent => RestoreOutcome::AlreadyPresent,
            _ => RestoreOutcome::NotSupported,
        })
    }

    fn event_store(&self) -> Option<Arc<dyn EventStore>> {
        self.local.event_store()
    }
}

/// A request on its way to its handler. If it does not get there, because its client is gone, it is not in flight.
struct Begun<'a> {
    places: &'a Places,
    id: &'a SessionId,
    request: Option<RequestId>,
}

impl<'a> Begun<'a> {
    /// None if the session has ended.
    fn new(places: &'a Places, id: &'a SessionId, request: &RequestId) -> Option<Self> {
        places.begin(id, Some(request.clone())).then(|| Self { places, id, request: Some(request.clone()) })
    }

    fn has_reached_its_handler(mut self) {
        self.request = None;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.places.end(self.id, Some(request));
        }
    }
}

/// The transport of a session's messages. It notes which calls are answered.
pub struct SessionTransport {
    inner: WorkerTransport<LocalSessionWorker>,
    id: SessionId,
    places: Arc<Places>,
}

impl fmt::Debug for SessionTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTransport").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Transport<RoleServer> for SessionTransport {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (sent, id, places) = (self.inner.send(message), self.id.clone(), self.places.clone());
        async move {
            let sent = sent.await;
            if answered.is_some() {
                places.end(&id, answered);
            }
            sent
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.inner.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// A session that begins, as an extension of its `initialize` request.
#[derive(Clone)]
struct Arrival {
    id: SessionId,
    places: Arc<Places>,
    /// How many places the session takes.
    takes: usize,
}

/// Finds a place for the session that this `initialize` opens, if it came over HTTP.
pub(crate) async fn admit(core: &Core, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let Some(arrival) = context.extensions.get::<Arrival>() else { return Ok(()) };
    let owner = core.identify(context);
    arrival.admit(core, owner.as_ref().map(crate::Principal::digest)).await
}

impl Arrival {
    fn of(id: &SessionId, places: &Arc<Places>, message: &ClientJsonRpcMessage) -> Self {
        // rmcp keeps the parameters for as long as the session lives.
        let kept = match message {
            JsonRpcMessage::Request(request) => match &request.request {
                ClientRequest::InitializeRequest(initialize) => serde_json::to_value(&initialize.params).ok(),
                _ => None,
            },
            _ => None,
        };
        let bytes = SESSION + kept.as_ref().map_or(0, |kept| 2 * weight::of(kept));
        Self { id: id.clone(), places: places.clone(), takes: bytes.div_ceil(PLACE) }
    }

    async fn admit(&self, core: &Core, owner: Owner) -> Result<(), ErrorData> {
        let identifies_principals = core.identifies_principals();
        let evicted = self.places.admit(&self.id, owner, self.takes, &core.limits, identifies_principals);
        if evicted.as_ref().map_or(true, |evicted| !evicted.is_empty()) {
            core.limit_reached(Limit::Sessions);
        }
        for Evicted { id, home } in evicted.map_err(refused)? {
            tracing::debug!(target: "rounds", session = &*id, "ended an idle session to free its place for another");
            let handle = home.sessions.write().await.remove(&id);
            // Spawned, so that a session that does not close does not block this one.
            tokio::spawn(async move {
                if let Some(handle) = handle {
                    let _ = handle.close().await;
                }
            });
        }
        Ok(())
    }
}

/// Memory of a session in rmcp, in bytes (measured), without the parameters of its `initialize`.
const SESSION: usize = 52 * 1024;

/// Memory that one place of the limit stands for, in bytes: a session of an ordinary client.
const PLACE: usize = 72 * 1024;

fn refused(full: Full) -> ErrorData {
    let (of, limit) = match full {
        Full::All { limit } => ("", limit),
        Full::OfPrincipal { limit } => (" of this principal", limit),
        Full::Anonymous { limit } => (" of callers without a principal", limit),
    };
    tracing::debug!(target: "rounds", limit, "refused a session: no session{of} is idle");
    ErrorData::internal_error(
        format!(
            "too many sessions{of} are open and have calls in flight (limit {limit}): end one and try again, or use \
             protocol version 2026-07-28, which needs no session. A session with a large `initialize` counts as several. \
             The server's setting is `Limits::with_sessions`"
        ),
        None,
    )
}
