//! [`Rounds`]: the server that wraps another server.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use rmcp::ServerHandler;

use super::{
    builder::{BuildError, ChangeKeysError, RoundsBuilder},
    elsewhere::ElsewhereService,
    engine::{
        core::{Core, Keys},
        handlers::Handlers,
    },
    flows::Flows,
    policy::{legacy::Legacy, lifetimes::Lifetimes, limits::Limits, principal::Principal},
    seal::{Format, KeyRing, OpenedToken, Refusal},
    tasks::{TaskService, Tasks},
};
use crate::shared::clock::SystemClock;

/// A server whose handlers may ask their user, safely, in the middle of a call.
///
/// It wraps any rmcp [`ServerHandler`] and is one itself, so it can be used wherever rmcp accepts one. It handles
/// `tools/call`, `prompts/get` and `resources/read`; every other method of rmcp 3.8 passes through unchanged.
/// [`new`](Self::new) needs no configuration; [`builder`](Self::builder) has all settings.
///
/// Clones share everything: keys, ledger, limits, the handler, and the waiting calls. If the server was built with [a
/// factory](RoundsBuilder::per_session), each clone makes its own handler for the legacy session that it serves, and
/// shares the rest. Where rmcp wants a factory, build once and clone there, or use
/// [`streamable_http`](Self::streamable_http), which does so.
///
/// ```no_run
/// use rmcp::{ServerHandler, ServiceExt};
/// use rounds::{Rounds, transport::stdio};
///
/// struct Weather;
/// impl ServerHandler for Weather {}
///
/// # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Rounds::new(Weather); // sealed, bound, single-use: no configuration
/// server.serve(stdio()).await?.waiting().await?;
/// # Ok(()) }
/// ```
pub struct Rounds<H> {
    pub(super) handlers: Handlers<H>,
    pub(super) core: Arc<Core>,
    /// None if no call becomes a task.
    pub(super) tasks: Option<Arc<TaskService>>,
    /// None if no question is answered elsewhere.
    pub(super) elsewhere: Option<Arc<ElsewhereService>>,
}

/// A handler that [`Rounds`] wraps: every [`ServerHandler`].
///
/// Implemented for all of them, and only to give a readable compile error for anything else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler that `Rounds` can wrap",
    label = "not a `ServerHandler`",
    note = "a server implements rmcp's `ServerHandler`, for instance with `#[tool_handler(router = self.tool_router)]`",
    note = "wrap a `Router` or another `Service<RoleServer>` first: `Rounds::new(rounds::service::AnyService::new(router))`"
)]
pub trait Wrap: ServerHandler {}

#[diagnostic::do_not_recommend]
impl<H: ServerHandler> Wrap for H {}

impl<H: Wrap> Rounds<H> {
    /// Wraps a handler with every default: a random key that lives as long as the process, a ledger in memory, rounds
    /// of ten minutes, flows of an hour.
    ///
    /// # Panics
    ///
    /// If [`KeyRing::ephemeral`] panics.
    pub fn new(handler: H) -> Self {
        Self::builder(handler).build().expect("the default settings do not contradict each other")
    }

    /// Starts the configuration of a server around this handler.
    pub fn builder(handler: H) -> RoundsBuilder<H> {
        RoundsBuilder {
            handlers: Handlers::shared(handler),
            keys: None,
            audience: None,
            identify: Box::new(Principal::from_request),
            identifies: false,
            lifetimes: Lifetimes {
                round: Duration::from_secs(10 * 60),
                flow: Duration::from_secs(60 * 60),
                of_targets: HashMap::new(),
            },
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            ledger: None,
            spill: false,
            register: None,
            relay: None,
            legacy: Legacy::default(),
            legacy_for: HashMap::new(),
            pushes: Default::default(),
            observers: Vec::new(),
            confirm: None,
            unaskable: None,
            announce_expiry: true,
            modern_only: false,
            format: Format::default(),
            entropy: Box::new(|bytes| getrandom::fill(bytes).expect("the operating system provides randomness")),
            elsewhere: None,
            tasks: Tasks::never(),
            tasks_for: HashMap::new(),
        }
    }
}

impl<H: ServerHandler> Rounds<H> {
    /// The handler that the server was built with. Handlers that [a factory](RoundsBuilder::per_session) made are not
    /// available here.
    pub fn handler(&self) -> &H {
        self.handlers.first()
    }

    /// Returns this server with another handler. Keys, ledger, limits and waiting handlers stay the same, so either
    /// server can continue the flows of the other. Use it in a factory that you write by hand, or for a handler that
    /// depends on its connection:
    ///
    /// ```no_run
    /// # use rmcp::{ServerHandler, ServiceExt};
    /// # use rounds::Rounds;
    /// # struct Weather(Option<std::net::SocketAddr>);
    /// # impl ServerHandler for Weather {}
    /// # async fn main_(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Rounds::new(Weather(None)); // once
    /// loop {
    ///     let (stream, client) = listener.accept().await?;
    ///     let session = server.with_handler(Weather(Some(client)));
    ///     tokio::spawn(async move {
    ///         if let Ok(running) = session.serve(stream).await {
    ///             let _ = running.waiting().await;
    ///         }
    ///     });
    /// }
    /// # }
    /// ```
    ///
    /// The new server uses this handler for every request, even if this one was built with [a
    /// factory](RoundsBuilder::per_session). A flow that waits with an [`Ask`](crate::Ask) keeps the handler that it
    /// began with.
    pub fn with_handler(&self, handler: H) -> Self {
        Self { handlers: Handlers::shared(handler), ..self.clone() }
    }

    /// The number of handlers that wait for an answer: those with an [`Ask`](crate::Ask) that are kept between legs,
    /// and those in a call in flight whose question was pushed to a client of the legacy era.
    pub fn waiting_calls(&self) -> usize {
        self.core.frames.count()
    }

    /// The memory of the [waiting handlers](Self::waiting_calls) in bytes. It counts against
    /// [`Limits::frame_bytes`].
    pub fn waiting_bytes(&self) -> usize {
        self.core.frames.bytes()
    }

    /// How long the oldest of the [handlers](Self::waiting_calls) that are kept between legs has been waiting for its
    /// answer, or none if no handler is kept. Handlers whose question was pushed are in a call in flight, and do not
    /// count. The method visits every waiting handler: call it for a dashboard, not for every request.
    pub fn oldest_wait(&self) -> Option<Duration> {
        Some(self.core.now().since(self.core.frames.oldest_wait()?))
    }

    /// The flows that this server knows: [`list`](Flows::list), [`get`](Flows::get), [`cancel`](Flows::cancel),
    /// [`watch`](Flows::watch). Its methods fail with [`FlowsError::Off`](super::flows::FlowsError::Off) unless the server keeps
    /// [a register](RoundsBuilder::register).
    pub fn flows(&self) -> Flows {
        Flows::of(&self.core, self.elsewhere.as_ref().map(|elsewhere| elsewhere.deciders.clone()))
    }

    /// Opens a token with the keys of this server, to inspect it. It checks neither whether the token has expired nor
    /// whose it is: show the contents only to principals that may read them.
    ///
    /// # Errors
    ///
    /// Those of [`OpenedToken::open`].
    pub fn inspect(&self, token: &str) -> Result<OpenedToken, Refusal> {
        OpenedToken::open_with(&self.core.keys(), token)
    }

    #[cfg(feature = "test")]
    pub(crate) fn parts(&self) -> (&Arc<H>, &Arc<Core>) {
        (self.handlers.first(), &self.core)
    }

    #[cfg(feature = "http")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Replaces the keys of the running server, at once and for all clones. See [`KeyRing`] for rotation.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoAudience`] if the server was built without an audience, and so with an ephemeral ring: a shared
    /// ring needs one. [`BuildError::RelayWithoutKeys`] for an ephemeral ring in a server with a relay, because the
    /// other instances do not have it. [`BuildError::UncheckedKeys`] if the server keeps a
    /// [register](RoundsBuilder::register) and the new ring lacks a key of the old one: open flows may use it, and
    /// [`change_keys`](Self::change_keys) counts them.
    pub fn set_keys(&self, keys: &KeyRing) -> Result<(), BuildError> {
        let derived = self.derive(keys)?;
        if self.core.registering.is_some() && self.removes_key(&derived) {
            return Err(BuildError::UncheckedKeys);
        }
        self.replace_keys(derived);
        Ok(())
    }

    /// Replaces the keys of the running server as [`set_keys`](Self::set_keys) does, if no open flow in the
    /// [register](RoundsBuilder::register) uses a key that the new ring does not have. Without a register it is the
    /// same as `set_keys`.
    ///
    /// # Errors
    ///
    /// [`ChangeKeysError::InUse`] with the number of those flows; the keys stay as they were.
    /// [`ChangeKeysError::Flows`] if the store is unavailable, [`ChangeKeysError::Build`] as for `set_keys`.
    pub async fn change_keys(&self, keys: &KeyRing) -> Result<(), ChangeKeysError> {
        let derived = self.derive(keys)?;
        if self.core.registering.is_some() && self.removes_key(&derived) {
            let flows = self.flows().without_key_in(&derived.records()).await?;
            if flows > 0 {
                return Err(ChangeKeysError::InUse { flows });
            }
        }
        self.replace_keys(derived);
        Ok(())
    }

    fn derive(&self, keys: &KeyRing) -> Result<Keys, BuildError> {
        if self.core.relay.is_some() && keys.is_ephemeral() {
            return Err(BuildError::RelayWithoutKeys);
        }
        Keys::derive(keys, self.core.audience.as_deref()).ok_or(BuildError::NoAudience)
    }

    /// Whether a key that opens records now does not open them with these.
    fn removes_key(&self, keys: &Keys) -> bool {
        let (old, new) = (self.core.record_keys(), keys.records());
        old.all().iter().any(|key| new.find(key.id).is_none())
    }

    fn replace_keys(&self, keys: Keys) {
        *self.core.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}

impl<H> Clone for Rounds<H> {
    fn clone(&self) -> Self {
        let Self { handlers, core, tasks, elsewhere } = self;
        Self { handlers: handlers.clone(), core: core.clone(), tasks: tasks.clone(), elsewhere: elsewhere.clone() }
    }
}

impl<H> fmt::Debug for Rounds<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds")
            .field("handler", &std::any::type_name::<H>())
            .field("audience", &self.core.audience)
            .field("limits", &self.core.limits)
            .finish_non_exhaustive()
    }
}
