//! [`Rounds`]: the handler around a handler that everything passes through.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::{MaybeSendFuture, NotificationContext, RequestContext, SubscriptionContext},
};

use crate::{
    clock::{Clock, SystemClock, Timestamp},
    era::targets::Targets,
    error::FlowError,
    flow::{frames::Frames, leg, route::Routes},
    gate::Era,
    handlers::Handlers,
    ledger::{Ledger, MemoryLedger},
    limits::Limits,
    observe::{Event, Observe, RefusalLog, Tracing},
    principal::{Identify, Principal},
    relay::{Inbox, Relay},
    seal::{
        FlowId, KeyRing,
        envelope::{Method, Resume},
        ring::{DerivedRing, Purpose},
        token::Nonce,
    },
};

/// A server whose handlers may ask their user, safely, in the middle of a call.
///
/// It wraps any rmcp [`ServerHandler`] and is one itself, so it goes wherever rmcp takes one. It looks at `tools/call`,
/// `prompts/get` and `resources/read`; every other method of rmcp 3.8 passes through untouched. [`new`](Self::new) needs no
/// configuration; [`builder`](Self::builder) has it all.
///
/// Clones share everything: keys, ledger, limits, the handler, and the calls that wait. If the server was built with [a
/// factory](RoundsBuilder::per_session), each clone makes its own handler for the legacy session that it serves, and shares the rest. Where rmcp wants a
/// factory, build once and clone there, or let [`streamable_http`](Self::streamable_http) do it.
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
    handlers: Handlers<H>,
    core: Arc<Core>,
}

impl<H: ServerHandler> Rounds<H> {
    /// Wraps a handler with every default: a random key that lives as long as the process, a ledger in memory, rounds of
    /// ten minutes, flows of an hour.
    ///
    /// # Panics
    ///
    /// As [`KeyRing::ephemeral`].
    pub fn new(handler: H) -> Self {
        Self::builder(handler).build().expect("the defaults fit together")
    }

    /// Wraps a handler with a configuration.
    pub fn builder(handler: H) -> RoundsBuilder<H> {
        RoundsBuilder {
            handlers: Handlers::shared(handler),
            keys: None,
            audience: None,
            identify: Box::new(Principal::from_request),
            identifies: false,
            round_lifetime: Duration::from_secs(10 * 60),
            flow_deadline: Duration::from_secs(60 * 60),
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            ledger: None,
            spill: false,
            relay: None,
            legacy: Legacy::default(),
            legacy_for: HashMap::new(),
            observers: Vec::new(),
            announce_expiry: true,
            modern_only: false,
            entropy: Box::new(|bytes| getrandom::fill(bytes).expect("the operating system provides randomness")),
        }
    }

    /// The handler that the server was built with. Handlers that [a factory](RoundsBuilder::per_session) made cannot be reached from here.
    pub fn handler(&self) -> &H {
        self.handlers.first()
    }

    /// Returns this server with another handler. Keys, ledger, limits and waiting handlers stay the same, so that either server continues the flows of
    /// the other. Use it in a factory that you write by hand, or for a handler that knows its connection:
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
    /// The new server uses this handler for every request, also if this one was built with [a factory](RoundsBuilder::per_session). A flow
    /// that waits with an [`Ask`](crate::Ask) keeps the handler that it began with.
    pub fn with_handler(&self, handler: H) -> Self {
        Self { handlers: Handlers::shared(handler), core: self.core.clone() }
    }

    /// How many handlers wait for an answer: those with an [`Ask`](crate::Ask) that are kept between legs, and those in a call in
    /// flight whose question was pushed to a client of the legacy era.
    pub fn waiting(&self) -> usize {
        self.core.frames.count()
    }

    /// How many bytes the [handlers that wait](Self::waiting) take, as they count against [`Limits::frame_bytes`].
    pub fn waiting_bytes(&self) -> usize {
        self.core.frames.bytes()
    }

    /// For how long the oldest of the [handlers](Self::waiting) that are kept between legs has been waiting for its answer; none when none
    /// is. Those whose question was pushed are in a call in flight, and do not count. It looks at each of them: ask as often as a
    /// dashboard does, not as often as a request comes.
    pub fn oldest_wait(&self) -> Option<Duration> {
        Some(self.core.now().since(self.core.frames.oldest_wait()?))
    }

    #[cfg(feature = "test")]
    pub(crate) fn parts(&self) -> (&Arc<H>, &Arc<Core>) {
        (self.handlers.first(), &self.core)
    }

    #[cfg(feature = "http")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Gives the running server other keys, at once and for all clones. See [`KeyRing`] for rotation.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoAudience`] when the server was built without an audience, and so with an ephemeral ring: a shared
    /// ring needs one. [`BuildError::RelayWithoutKeys`] for an ephemeral ring in a server with a relay, whose other instances do not have it.
    pub fn set_keys(&self, keys: &KeyRing) -> Result<(), BuildError> {
        if self.core.relay.is_some() && keys.is_ephemeral() {
            return Err(BuildError::RelayWithoutKeys);
        }
        let derived = derive(keys, self.core.audience.as_deref())?;
        *self.core.keys.write().unwrap_or_else(PoisonError::into_inner) = derived;
        Ok(())
    }
}

impl<H> Clone for Rounds<H> {
    fn clone(&self) -> Self {
        Self { handlers: self.handlers.clone(), core: self.core.clone() }
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

/// What to do with a client of the legacy era when a handler that is called again for each round ([`Round`]) asks.
///
/// [`Round`]: crate::Round
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Legacy {
    /// The handler decides, by looking at [`Round::era`](crate::Round::era): a default, or an error of its own. One that
    /// asks anyway fails with a tool error in plain words.
    #[default]
    Degrade,
    /// The handler is written for the modern era alone, and the server does the rest: its questions are asked over the live
    /// connection, and it is called again with the answers, as often as it asks. Between the calls its state stays here. A
    /// connection without a way back gives [`FlowError::NoBackChannel`] at once.
    Push {
        /// How often the handler may ask. [`Limits::rounds`] holds as well.
        max_rounds: u32,
        /// How long one question may wait for its answer.
        timeout: Duration,
    },
}

impl Legacy {
    /// [`Push`](Self::Push), for up to eight rounds of ten minutes each.
    pub const fn push() -> Self {
        Self::Push { max_rounds: 8, timeout: Duration::from_secs(10 * 60) }
    }

    /// For how many rounds, of what length, if it pushes at all.
    pub(crate) const fn pushes(self) -> Option<(u32, Duration)> {
        match self {
            Self::Degrade => None,
            Self::Push { max_rounds, timeout } => Some((max_rounds, timeout)),
        }
    }
}

/// Configures a [`Rounds`]. Made by [`Rounds::builder`].
pub struct RoundsBuilder<H> {
    handlers: Handlers<H>,
    keys: Option<KeyRing>,
    audience: Option<String>,
    identify: Box<dyn Identify>,
    identifies: bool,
    round_lifetime: Duration,
    flow_deadline: Duration,
    limits: Limits,
    clock: Arc<dyn Clock>,
    ledger: Option<Arc<dyn Ledger>>,
    spill: bool,
    relay: Option<Arc<dyn Relay>>,
    legacy: Legacy,
    legacy_for: HashMap<String, Legacy>,
    observers: Vec<Box<dyn Observe>>,
    announce_expiry: bool,
    modern_only: bool,
    entropy: Entropy,
}

impl<H: ServerHandler> RoundsBuilder<H> {
    /// Makes a handler for each session of a legacy client. What a handler keeps in `self`, such as credentials or approvals, is then not visible
    /// in another session. Modern clients have no sessions: their requests meet the handler that the builder was given.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use rmcp::ServerHandler;
    /// use rounds::Rounds;
    ///
    /// #[derive(Default)]
    /// struct Bank {
    ///     signed_in: Mutex<Option<String>>, // in this session
    /// }
    /// impl ServerHandler for Bank {}
    ///
    /// let server = Rounds::builder(Bank::default()).per_session(Bank::default).build()?;
    /// # Ok::<(), rounds::BuildError>(())
    /// ```
    ///
    /// [`Rounds::streamable_http`] and the crate `rounds-http` give each session its handler. Where you write rmcp's factory by hand, clone the server
    /// there: a clone makes a handler for the legacy client that it serves.
    ///
    /// ```text
    /// StreamableHttpService::new(move || Ok(server.clone()), sessions, config);                // right
    /// StreamableHttpService::new(|| Ok(Rounds::new(Bank::default())), sessions, config);       // wrong: no answer can be opened
    /// ```
    ///
    /// The second one is the mistake to avoid. rmcp calls its factory for every request of a modern client, so each request gets keys of its own, and the
    /// request that brings the answer cannot open the state that the first request sealed.
    pub fn per_session(mut self, factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.handlers = self.handlers.made_by(factory, false);
        self
    }

    /// Makes a handler for each session of a legacy client and for each flow of a modern one. No two calls of modern clients see the same `self`.
    ///
    /// A flow with an [`Ask`](crate::Ask) keeps the handler that it began with until it ends. In every other shape the handler runs again with
    /// each leg, possibly on another instance, and each leg that runs gets a new handler: what has to outlast a question belongs in the arguments, the answers,
    /// the state or a `once`. Other requests of modern clients, such as `tools/list`, get a new handler too. The handler that the builder was given
    /// answers what rmcp asks without a request, such as `get_info` and `get_tool`.
    pub fn per_flow(mut self, factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.handlers = self.handlers.made_by(factory, true);
        self
    }

    /// Seals with these keys instead of a random one. A ring that others may share needs an [`audience`](Self::audience).
    pub fn keys(mut self, keys: KeyRing) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Names the service that these keys seal for, such as `weather-prod`. All instances of one service have the same;
    /// two services that share keys cannot open each other's tokens.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Says how to tell whose request it is. By default a [`Principal`] that middleware put into the request.
    ///
    /// A server that was told so identifies principals; one that was not does from the first request on that has one. Callers without
    /// one then share at most one half of each of the [limits](Limits) that hold for all callers, and leave the other half to
    /// principals.
    pub fn principal(mut self, identify: impl Identify) -> Self {
        self.identify = Box::new(identify);
        self.identifies = true;
        self
    }

    /// How long a person has to answer a round: ten minutes by default. A handler that waits for longer is dropped; one whose question was
    /// pushed gets [`FlowError::NotInTime`](crate::FlowError::NotInTime).
    pub fn round_lifetime(mut self, lifetime: Duration) -> Self {
        self.round_lifetime = lifetime;
        self
    }

    /// How long a flow may take in all, from the first leg, or in the legacy era from the first question: an hour by default. Nothing
    /// is asked or answered beyond it. A leg that asks nothing any more is not broken off with `Round`, `Steps`, `Asked` and `Durable`; a handler that
    /// has waited, with an [`Ask`](crate::Ask) or for a client of the legacy era, is dropped when the time is over, but for an effect in a `once`.
    pub fn flow_deadline(mut self, deadline: Duration) -> Self {
        self.flow_deadline = deadline;
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes the time from this clock. By default the operating system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Keeps claims and replies in this ledger. By default a [`MemoryLedger`] of its own; instances of one server share one, such
    /// as that of the crate `rounds-redis`. All but a `MemoryLedger` get what they keep sealed.
    pub fn ledger(mut self, ledger: impl Ledger) -> Self {
        self.ledger = Some(Arc::new(ledger));
        self
    }

    /// Lets a state that is too large for a token spill into the [`ledger`](Self::ledger), as everything that it keeps: the token
    /// then carries a digest of it. By default it does not, and a flow whose state outgrows [the token limit](Limits::token_bytes) fails.
    ///
    /// What was spilled is kept as long as its round can be answered, and [has a limit](Limits::spill_bytes) of its own. A
    /// flow that spills goes on where its ledger is, and nowhere else: one that is gone from there, or was changed, ends with
    /// the frozen error.
    pub fn spill(mut self) -> Self {
        self.spill = true;
        self
    }

    /// Lets a leg reach a handler that waits on another instance. Without one, the legs of an [`Ask`](crate::Ask) have to land where
    /// the first did; all other ways to ask go on anywhere. It needs [`keys`](Self::keys) that the instances share.
    pub fn relay(mut self, relay: impl Relay) -> Self {
        self.relay = Some(Arc::new(relay));
        self
    }

    /// Says what to do when a [`Round`](crate::Round) or [`Steps`](crate::Steps) ask a client of the legacy era. The other ways to
    /// ask are not concerned: they ask over the live connection.
    pub fn legacy(mut self, legacy: Legacy) -> Self {
        self.legacy = legacy;
        self
    }

    /// The same for one tool, prompt or resource, in place of what holds for all.
    ///
    /// A name that the server turns out not to have is warned of once, in the log: when its tools were listed, or one of them was called, and
    /// where it has prompts, when these were listed. A name with a colon is taken for the URI of a resource, and not looked for.
    pub fn legacy_for(mut self, target: impl Into<String>, legacy: Legacy) -> Self {
        self.legacy_for.insert(target.into(), legacy);
        self
    }

    /// Serves modern clients only. `initialize`, by which a legacy client opens its session, is refused on every transport with an error that names the protocol versions that are
    /// served, and the server keeps no sessions. By default clients of both eras are served.
    pub fn modern_only(mut self) -> Self {
        self.modern_only = true;
        self
    }

    /// Adds an observer. The one that writes `tracing` events and spans is always there.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Whether a round tells the client how long it is good for, as `_meta: {"rounds/expiresInMs": n}` of its result. So does a question
    /// that has less time than others of its round, in the `_meta` of its own request. They do by default.
    pub fn announce_expiry(mut self, announce: bool) -> Self {
        self.announce_expiry = announce;
        self
    }

    /// Takes flow names and nonces from here instead of the operating system: for tests that compare tokens, and for
    /// nothing else, as a nonce used twice gives away what was sealed.
    #[cfg(feature = "test")]
    pub fn entropy(mut self, entropy: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        self.entropy = Box::new(entropy);
        self
    }

    /// Builds the server.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when the parts do not fit together; its message says what to do.
    pub fn build(mut self) -> Result<Rounds<H>, BuildError> {
        let positive = [
            ("round lifetime", !self.round_lifetime.is_zero()),
            ("flow deadline", !self.flow_deadline.is_zero()),
            ("limit of rounds", self.limits.rounds > 0),
            ("limit of asks", self.limits.asks > 0),
            ("limit of token bytes", self.limits.token_bytes > 0),
            ("lease", !self.limits.lease.is_zero()),
            (
                "limit of pushed rounds",
                self.legacies().all(|legacy| legacy.pushes().is_none_or(|(rounds, _)| rounds > 0)),
            ),
            (
                "timeout of a push",
                self.legacies().all(|legacy| legacy.pushes().is_none_or(|(_, time)| !time.is_zero())),
            ),
        ];
        if let Some((what, _)) = positive.into_iter().find(|(_, positive)| !positive) {
            return Err(BuildError::Zero { what });
        }
        if self.spill && self.ledger.is_none() {
            return Err(BuildError::SpillWithoutLedger);
        }
        if self.relay.is_some() && self.keys.as_ref().is_none_or(KeyRing::is_ephemeral) {
            return Err(BuildError::RelayWithoutKeys);
        }
        if self.relay.is_some() && self.ledger.is_none() {
            return Err(BuildError::RelayWithoutLedger);
        }
        self.limits.spills = self.spill;
        let keys = self.keys.unwrap_or_else(KeyRing::ephemeral);
        let core = Core {
            keys: RwLock::new(derive(&keys, self.audience.as_deref())?),
            audience: self.audience,
            identify: self.identify,
            identifies: AtomicBool::new(self.identifies),
            round_lifetime: self.round_lifetime,
            flow_deadline: self.flow_deadline,
            limits: self.limits,
            clock: self.clock,
            ledger: self.ledger.unwrap_or_else(|| Arc::new(MemoryLedger::new())),
            relay: self.relay,
            routes: Routes::default(),
            legacy: self.legacy,
            targets: Targets::new(self.legacy_for),
            observers: self.observers,
            announce_expiry: self.announce_expiry,
            modern_only: self.modern_only,
            entropy: self.entropy,
            frames: Frames::default(),
            #[cfg(feature = "http")]
            sessions: Arc::default(),
            warned_of_http: AtomicBool::new(false),
            refusals: RefusalLog::default(),
        };
        let core = Arc::new(core);
        if let Some(relay) = &core.relay {
            relay.open(Inbox::of(&core));
        }
        Ok(Rounds { handlers: self.handlers, core })
    }

    fn legacies(&self) -> impl Iterator<Item = &Legacy> {
        self.legacy_for.values().chain([&self.legacy])
    }
}

impl<H> fmt::Debug for RoundsBuilder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundsBuilder")
            .field("keys", &self.keys)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

/// Why a [`Rounds`] could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A ring that is not ephemeral has no audience.
    #[error(
        "keys that others may share need an audience: add `.audience(\"your-service\")`, the same on every instance \
         and different from every other service with these keys"
    )]
    NoAudience,
    /// States are to spill, and the ledger is the default one.
    #[error(
        "states can spill only into a ledger that was chosen for it: add `.ledger(..)`, one that all instances share"
    )]
    SpillWithoutLedger,
    /// A relay was given, and keys that no other instance has.
    #[error("a relay is between instances that share keys: add `.keys(..)` with the ring that all of them have")]
    RelayWithoutKeys,
    /// A relay was given, and the ledger is the default one, which no other instance sees.
    #[error("a relay is between instances that share a ledger: add `.ledger(..)` with the one that all of them have")]
    RelayWithoutLedger,
    /// Something is zero that must not be.
    #[error("the {what} is zero: no question could ever be answered")]
    Zero {
        /// What it is.
        what: &'static str,
    },
}

fn derive(keys: &KeyRing, audience: Option<&str>) -> Result<Keys, BuildError> {
    let audience = match audience {
        Some(audience) if !audience.is_empty() => audience,
        _ if keys.is_ephemeral() => "",
        _ => return Err(BuildError::NoAudience),
    };
    let derive = |purpose| Arc::new(keys.derive(purpose, audience));
    Ok(Keys { state: derive(Purpose::State), record: derive(Purpose::Record), message: derive(Purpose::Message) })
}

/// A ring's keys for everything that is sealed with them.
struct Keys {
    state: Arc<DerivedRing>,
    record: Arc<DerivedRing>,
    message: Arc<DerivedRing>,
}

/// Fills a slice with what nobody can guess.
type Entropy = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// What all clones of a [`Rounds`] share.
pub(crate) struct Core {
    keys: RwLock<Keys>,
    audience: Option<String>,
    identify: Box<dyn Identify>,
    /// Whether principals are told apart here: it was set up, or there was one.
    identifies: AtomicBool,
    pub(crate) round_lifetime: Duration,
    pub(crate) flow_deadline: Duration,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
    pub(crate) routes: Routes,
    legacy: Legacy,
    targets: Targets,
    observers: Vec<Box<dyn Observe>>,
    pub(crate) announce_expiry: bool,
    pub(crate) modern_only: bool,
    entropy: Entropy,
    pub(crate) frames: Frames,
    /// The sessions of legacy clients over HTTP.
    #[cfg(feature = "http")]
    pub(crate) sessions: Arc<crate::http::places::Places>,
    warned_of_http: AtomicBool,
    refusals: RefusalLog,
}

impl Core {
    pub(crate) fn keys(&self) -> Arc<DerivedRing> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    pub(crate) fn record_keys(&self) -> Arc<DerivedRing> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).record.clone()
    }

    pub(crate) fn message_keys(&self) -> Arc<DerivedRing> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).message.clone()
    }

    /// How a flow goes on whose handler waits here.
    pub(crate) fn frame_here(&self) -> Resume {
        self.relay.as_ref().map_or(Resume::Frame, |relay| Resume::FrameAt(relay.here().to_owned()))
    }

    /// What is done when the handler of this target asks a client of the legacy era.
    pub(crate) fn legacy(&self, target: &str) -> Legacy {
        self.targets.get(target).unwrap_or(self.legacy)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().into()
    }

    pub(crate) fn new_flow(&self) -> FlowId {
        let mut id = [0; 16];
        (self.entropy)(&mut id);
        FlowId::from_bytes(id)
    }

    pub(crate) fn random(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        (self.entropy)(&mut bytes);
        bytes
    }

    pub(crate) fn new_nonce(&self) -> Nonce {
        let mut nonce = Nonce::default();
        (self.entropy)(&mut nonce);
        nonce
    }

    pub(crate) fn identify(&self, context: &RequestContext<RoleServer>) -> Option<Principal> {
        let principal = self.identify.identify(context);
        if principal.is_some() && !self.identifies_principals() {
            self.identifies.store(true, Ordering::Relaxed);
        }
        principal
    }

    /// Whether principals are told apart here, so that callers without one get no more than half of what there is for all.
    pub(crate) fn identifies_principals(&self) -> bool {
        self.identifies.load(Ordering::Relaxed)
    }

    /// Whether nobody may be asked as long as it is not known who they are.
    pub(crate) fn requires_principal(&self) -> bool {
        self.identify.is_required()
    }

    /// Whether somebody may be asked of whom this much is known.
    pub(crate) fn require_principal(&self, present: bool, over_http: bool) -> Result<(), FlowError> {
        if present {
            return Ok(());
        }
        if self.requires_principal() {
            return Err(FlowError::NoPrincipal);
        }
        if over_http && !self.warned_of_http.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "rounds",
                "a question leaves over HTTP for nobody in particular: whoever has its state can answer it. Put a \
                 `rounds::Principal` into the request where you authenticate it, or insist on one with \
                 `Principal::required`"
            );
        }
        Ok(())
    }

    /// Whether anybody gets to know of what happens on the way.
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.is_empty() || tracing::enabled!(target: "rounds", tracing::Level::DEBUG)
    }

    pub(crate) fn observe(&self, event: &Event<'_>) {
        Tracing::event(event, &self.refusals, || self.now());
        for observer in &self.observers {
            observer.event(event);
        }
    }
}

fn is_modern(version: &ProtocolVersion) -> bool {
    Era::of_version(version.as_str()) == Era::Modern
}

/// What a legacy client gets from a server that is not for it.
fn no_legacy(requested: ProtocolVersion, supported: &[ProtocolVersion]) -> ErrorData {
    let served = supported.iter().map(ProtocolVersion::as_str).collect::<Vec<_>>().join(", ");
    let mut error = ErrorData::unsupported_protocol_version(requested, supported);
    error.message = format!(
        "this server has no sessions and does not answer `initialize`: it serves protocol version {served}, in which \
         every request carries its version in `_meta`"
    )
    .into();
    error
}

/// Whether the first page of a list is wanted.
fn is_first(page: Option<&PaginatedRequestParams>) -> bool {
    page.is_none_or(|page| page.cursor.is_none())
}

#[cfg(feature = "http")]
pub(crate) fn is_over_http(context: &RequestContext<RoleServer>) -> bool {
    context.extensions.get::<http::request::Parts>().is_some()
}

#[cfg(not(feature = "http"))]
pub(crate) fn is_over_http(_context: &RequestContext<RoleServer>) -> bool {
    false
}

#[deny(clippy::missing_trait_methods)]
impl<H: ServerHandler> ServerHandler for Rounds<H> {
    fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + MaybeSendFuture + '_ {
        self.core.targets.called(&**self.handlers.here(), &request.name);
        leg::play(&self.core, &self.handlers, request, context)
    }

    fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<GetPromptResponse, ErrorData>> + MaybeSendFuture + '_ {
        leg::play(&self.core, &self.handlers, request, context)
    }

    fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ReadResourceResponse, ErrorData>> + MaybeSendFuture + '_ {
        leg::play(&self.core, &self.handlers, request, context)
    }

    /// rmcp takes a request whose state is no string, or whose answers are no map, for one it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let param = |name: &str| request.params.as_ref().and_then(|params| params.get(name));
        let wrong = |name, right: fn(&serde_json::Value) -> bool| {
            param(name).is_some_and(|value| !value.is_null() && !right(value))
        };
        match Method::from_name(&request.method) {
            Some(method)
                if wrong("requestState", serde_json::Value::is_string)
                    || wrong("inputResponses", serde_json::Value::is_object) =>
            {
                Err(leg::refuse_unreadable(&self.core, method, request.params.as_ref()))
            }
            _ => self.handlers.serve(&context).on_custom_request(request, context).await,
        }
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.handlers.serve(&context).ping(context).await
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if self.core.modern_only {
            return Err(no_legacy(request.protocol_version, &self.supported_protocol_versions()));
        }
        #[cfg(feature = "http")]
        crate::http::sessions::admit(&self.core, &context).await?;
        self.handlers.of(Era::Legacy).initialize(request, context).await
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.handlers.of(Era::Legacy).negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let mut supported = ServerHandler::supported_protocol_versions(&**self.handlers.here());
        if self.core.modern_only {
            supported.to_mut().retain(is_modern);
        }
        supported
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut discovered = self.handlers.serve(&context).discover(context).await?;
        if self.core.modern_only {
            discovered.supported_versions.retain(is_modern);
        }
        Ok(discovered)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.handlers.serve(&context).complete(request, context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).set_level(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (is_first, handler) = (is_first(request.as_ref()), self.handlers.serve(&context));
        let listed = handler.list_prompts(request, context).await?;
        let names = listed.prompts.iter().map(|prompt| prompt.name.as_ref());
        self.core.targets.prompts(&**handler, names, is_first && listed.next_cursor.is_none());
        Ok(listed)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.handlers.serve(&context).list_resources(request, context).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.handlers.serve(&context).list_resource_templates(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.handlers.here().accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.handlers.serve(context.request_context()).listen(context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).subscribe(request, context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).unsubscribe(request, context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (is_first, handler) = (is_first(request.as_ref()), self.handlers.serve(&context));
        let listed = handler.list_tools(request, context).await?;
        let names = listed.tools.iter().map(|tool| tool.name.as_ref());
        self.core.targets.tools(&**handler, names, is_first && listed.next_cursor.is_none());
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.handlers.here().get_tool(name)
    }

    async fn on_cancelled(&self, notification: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_cancelled(notification, context).await;
    }

    async fn on_progress(&self, notification: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_progress(notification, context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_initialized(context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_custom_notification(notification, context).await;
    }

    fn get_info(&self) -> ServerConfig {
        ServerHandler::get_info(&**self.handlers.here())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.handlers.serve(&context).get_task(request, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).update_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).cancel_task(request, context).await
    }
}
