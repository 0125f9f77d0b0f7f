//! [`RoundsBuilder`]: the configuration of a server.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, RwLock, atomic::AtomicBool},
    time::Duration,
};

use rmcp::ServerHandler;

use super::{
    confirm::Confirm,
    elsewhere::Elsewhere,
    engine::{
        admission::Admit,
        core::{Core, Entropy, Keys},
        draining::Draining,
        frames::Frames,
        gauges::gauges,
        handlers::Handlers,
        measured::MeasuredLedger,
        register::Registering,
        relay::{Inbox, Relay},
        route::Routes,
    },
    flows::FlowsError,
    form::{FormSource, FormType, FormTypeError},
    ledger::{Ledger, MemoryLedger},
    policy::{
        legacy::Legacy,
        lifetimes::Lifetimes,
        limits::Limits,
        observe::{Observe, RateLimited},
        principal::Identify,
        targets::{Pushes, Targets},
    },
    rounds::Rounds,
    seal::{FlowId, Format, KeyRing},
    tasks::{TaskService, Tasks},
};
use crate::shared::clock::Clock;

/// How long the record of an ended flow is kept by default.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Configures a [`Rounds`]. Made by [`Rounds::builder`].
pub struct RoundsBuilder<H> {
    pub(super) handlers: Handlers<H>,
    pub(super) keys: Option<KeyRing>,
    pub(super) audience: Option<String>,
    pub(super) identify: Box<dyn Identify>,
    pub(super) identifies: bool,
    pub(super) lifetimes: Lifetimes,
    pub(super) limits: Limits,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ledger: Option<Arc<dyn Ledger>>,
    pub(super) spill: bool,
    pub(super) register: Option<Duration>,
    pub(super) relay: Option<Arc<dyn Relay>>,
    pub(super) legacy: Legacy,
    pub(super) legacy_for: HashMap<String, Legacy>,
    pub(super) pushes: Pushes,
    pub(super) observers: Vec<Arc<dyn Observe>>,
    pub(super) confirm: Option<Confirm>,
    /// The first declared type that no form can ask for.
    pub(super) unaskable: Option<FormTypeError>,
    pub(super) announce_expiry: bool,
    pub(super) modern_only: bool,
    pub(super) format: Format,
    pub(super) entropy: Entropy,
    pub(super) elsewhere: Option<Elsewhere>,
    pub(super) tasks: Tasks,
    pub(super) tasks_for: HashMap<String, Tasks>,
}

impl<H: ServerHandler> RoundsBuilder<H> {
    /// Makes a handler for each session of a legacy client. What a handler keeps in `self`, such as credentials or
    /// approvals, is then not visible in another session. Modern clients have no sessions: their requests use the
    /// handler that the builder was given.
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
    /// [`Rounds::streamable_http`] and the crate `rounds-http` give each session its handler. If you write rmcp's
    /// factory by hand, clone the server there: a clone makes a handler for the legacy client that it serves.
    ///
    /// ```text
    /// StreamableHttpService::new(move || Ok(server.clone()), sessions, config);                // right
    /// StreamableHttpService::new(|| Ok(Rounds::new(Bank::default())), sessions, config);       // wrong: no answer can be opened
    /// ```
    ///
    /// The second line is the mistake to avoid. rmcp calls its factory for every request of a modern client, so each
    /// request gets keys of its own, and the request that brings the answer cannot open the state that the first
    /// request sealed.
    pub fn per_session(mut self, factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.handlers = self.handlers.made_by(factory, false);
        self
    }

    /// Makes a handler for each session of a legacy client and for each flow of a modern client. No two calls of modern
    /// clients share a `self`.
    ///
    /// A flow with an [`Ask`](crate::Ask) keeps the handler that it began with until it ends. In every other shape the
    /// handler runs again with each leg, possibly on another instance, and each leg that runs gets a new handler: keep
    /// what has to outlast a question in the arguments, the answers, the state or a `once`. Other requests of modern
    /// clients, such as `tools/list`, get a new handler too. The handler that the builder was given answers what rmcp
    /// asks without a request, such as `get_info` and `get_tool`.
    pub fn per_flow(mut self, factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.handlers = self.handlers.made_by(factory, true);
        self
    }

    /// Seals with these keys instead of a random one. A ring that other services may share needs an
    /// [`audience`](Self::audience).
    pub fn keys(mut self, keys: KeyRing) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Names the service that these keys seal for, such as `weather-prod`. All instances of one service have the same
    /// audience. Two services that share keys cannot open each other's tokens.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Sets how the principal of a request is identified. The default is a [`Principal`](crate::Principal) that
    /// middleware put into the request.
    ///
    /// A server with this setting identifies principals from the start; a server without it, from the first request
    /// that has one. From then on, callers without a principal share at most one half of each of the [limits](Limits)
    /// for all callers, and the other half is reserved for principals.
    pub fn principal(mut self, identify: impl Identify) -> Self {
        self.identify = Box::new(identify);
        self.identifies = true;
        self
    }

    /// Sets how long the user has to answer a round: ten minutes by default. A handler that waits longer is dropped. If
    /// its question was pushed, it gets [`FlowError::NotInTime`](crate::FlowError::NotInTime) instead.
    pub fn round_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetimes.round = lifetime;
        self
    }

    /// Sets how long a flow may take in all: an hour by default, from the first leg, or in the legacy era from the
    /// first question.
    ///
    /// After the deadline no question is asked and no answer is accepted. With `Round`, `Steps`, `Asked` and `Durable`,
    /// a leg that asks nothing more is not interrupted. A handler that has waited, with an [`Ask`](crate::Ask) or for a
    /// client of the legacy era, is dropped at the deadline; an effect in a `once` still runs to its end.
    pub fn flow_deadline(mut self, deadline: Duration) -> Self {
        self.lifetimes.flow = deadline;
        self
    }

    /// Sets [`round_lifetime`](Self::round_lifetime) for one tool, prompt or resource: up to 30 days.
    ///
    /// A handler with an [`Ask`](crate::Ask) waits in memory for that long. One with a [`Durable`](crate::Durable) keeps
    /// nothing in memory, and is the shape for questions that take days. Its keys have to last as long: see
    /// [`KeyRing`].
    pub fn round_lifetime_for(mut self, target: impl Into<String>, lifetime: Duration) -> Self {
        self.lifetimes.of_targets.entry(target.into()).or_default().round = Some(lifetime);
        self
    }

    /// Sets [`flow_deadline`](Self::flow_deadline) for one tool, prompt or resource: up to 30 days. A round never lasts
    /// longer than its flow.
    pub fn flow_deadline_for(mut self, target: impl Into<String>, deadline: Duration) -> Self {
        self.lifetimes.of_targets.entry(target.into()).or_default().flow = Some(deadline);
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes the time from this clock. The default is the operating system's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Keeps claims and replies in this ledger. The default is a [`MemoryLedger`] of the server's own. The instances of
    /// one server share a ledger, such as that of the crate `rounds-redis`. Every ledger except a `MemoryLedger` gets
    /// its contents sealed.
    pub fn ledger(mut self, ledger: impl Ledger) -> Self {
        self.ledger = Some(Arc::new(ledger));
        self
    }

    /// Lets a state that is too large for a token spill into the [`ledger`](Self::ledger); the token then carries a
    /// digest of it. By default states do not spill, and a flow whose state exceeds
    /// [the token limit](Limits::token_bytes) fails.
    ///
    /// A spilled state is kept as long as its round can be answered, and has [a limit](Limits::spill_bytes) of its own.
    /// A flow that spills can continue only on instances with the same ledger. If the spilled state was removed or
    /// changed there, the flow ends with the frozen error.
    pub fn spill(mut self) -> Self {
        self.spill = true;
        self
    }

    /// Keeps a record of every flow that asks, in the [`ledger`](Self::ledger): see [`Rounds::flows`]. By default
    /// no record is kept.
    ///
    /// A record changes in the same step as the flow's claims. A first leg that asks takes one step of the ledger more,
    /// and later legs take none more. The ledger has to keep [a register](Ledger::register); a [`MemoryLedger`] does.
    pub fn register(mut self) -> Self {
        self.register.get_or_insert(DAY);
        self
    }

    /// Keeps a register, and sets how long the record of a flow is kept after the flow has ended: 24 hours by default.
    pub fn register_for(mut self, retention: Duration) -> Self {
        self.register = Some(retention);
        self
    }

    /// Lets a leg reach a handler that waits on another instance. Without a relay, the legs of an [`Ask`](crate::Ask)
    /// have to land on the instance of the first leg; the other shapes continue on any instance. It needs
    /// [`keys`](Self::keys) that the instances share.
    pub fn relay(mut self, relay: impl Relay) -> Self {
        self.relay = Some(Arc::new(relay));
        self
    }

    /// Sets how a [`Round`](crate::Round) or [`Steps`](crate::Steps) asks a client of the legacy era. The other shapes
    /// are not affected: they push questions over the live connection.
    pub fn legacy(mut self, legacy: Legacy) -> Self {
        self.legacy = legacy;
        self
    }

    /// Sets the same for one tool, prompt or resource, and overrides [`legacy`](Self::legacy).
    ///
    /// If the server does not have the name, one warning is logged: after its tools were listed or one of them was
    /// called and, if it has prompts, after these were listed. A name with a colon counts as the URI of a resource, and
    /// is not checked.
    pub fn legacy_for(mut self, target: impl Into<String>, legacy: Legacy) -> Self {
        self.legacy_for.insert(target.into(), legacy);
        self
    }

    /// Asks modern clients what the handlers request of their peer: `elicitation/create`, `sampling/createMessage` and
    /// `roots/list`, sent through `context.peer` or a clone of it from a tool, a prompt or a resource. A server that
    /// was written for rmcp alone then asks clients of both eras, without a change to its handlers.
    ///
    /// ```
    /// use rmcp::{
    ///     Peer, RoleServer, ServerHandler, elicit_safe, handler::server::router::tool::ToolRouter, schemars, tool,
    ///     tool_handler, tool_router,
    /// };
    /// use rounds::{Rounds, test::Client};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Sure { sure: bool }
    /// elicit_safe!(Sure);
    ///
    /// struct Files { tool_router: ToolRouter<Self> }
    ///
    /// #[tool_router]
    /// impl Files {
    ///     #[tool(description = "Deletes everything")]
    ///     async fn delete_all(&self, peer: Peer<RoleServer>) -> String {
    ///         match peer.elicit::<Sure>("Delete everything?").await {
    ///             Ok(Some(Sure { sure: true })) => "deleted".to_owned(),
    ///             _ => "kept".to_owned(),
    ///         }
    ///     }
    /// }
    ///
    /// #[tool_handler(router = self.tool_router)]
    /// impl ServerHandler for Files {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rounds::BuildError> {
    /// let server = Rounds::builder(Files { tool_router: Files::tool_router() }).pushes().build()?;
    /// # let client = Client::modern(server).await;
    /// # let asked = client.call("delete_all", json!({})).await.asked();
    /// # assert_eq!(asked.message("sure"), "Delete everything?");
    /// # assert_eq!(asked.accept("sure", json!({"sure": true})).send(&client).await.text(), "deleted");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Such a question has the message and the schema of the request, and in all else it is one of an
    /// [`Ask`](crate::Ask): its answer is checked, and the round is sealed, bound and single-use, with the same limits
    /// and deadlines. Requests that are pending when the handler yields form one round. A request that times out in
    /// rmcp, as with `elicit_with_timeout`, withdraws its question; a future that is dropped does not, because rmcp
    /// tells no peer of that.
    ///
    /// A request that the client did not declare to be capable of fails as it does in rmcp: `elicit` with
    /// `CapabilityNotSupported`, and one that rmcp sends without looking, such as `create_elicitation`, with the error
    /// that rmcp has for requests to a modern client.
    /// Everything else that the handler sends goes to the real peer: notifications to the client of the leg in flight,
    /// under its progress token, and nowhere while no leg is in flight or if the leg came from another instance. The
    /// peer works until the handler's call ends; after that it is closed.
    ///
    /// With a legacy client nothing changes. Each call of a modern client costs a small service of rmcp's, and tens of
    /// kilobytes while it waits: [`pushes_for`](Self::pushes_for) limits that to the tools that need it. Prefer an
    /// [`Ask`](crate::Ask) in new handlers; see [Moving a server to rounds](crate::guide::moving).
    pub fn pushes(mut self) -> Self {
        self.pushes.all = true;
        self
    }

    /// Does the same as [`pushes`](Self::pushes) for one tool, prompt or resource. Call it once for each.
    ///
    /// A name that the server does not have is logged, as with [`legacy_for`](Self::legacy_for).
    pub fn pushes_for(mut self, target: impl Into<String>) -> Self {
        self.pushes.names.insert(target.into());
        self
    }

    /// Sets when a tool call becomes a [task](crate::tasks), which the client polls: never by default. Only calls whose
    /// own request declares the extension `io.modelcontextprotocol/tasks` become one, and no handler changes for it.
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the same for one tool, and overrides [`tasks`](Self::tasks).
    pub fn tasks_for(mut self, tool: impl Into<String>, tasks: Tasks) -> Self {
        self.tasks_for.insert(tool.into(), tasks);
        self
    }

    /// Lets questions be answered elsewhere, by people who are not at the client: approvals, forms and pages. See
    /// [the guide](crate::guide::elsewhere). It needs [a register](Self::register), and a ledger that keeps
    /// [documents](Ledger::documents).
    pub fn elsewhere(mut self, elsewhere: Elsewhere) -> Self {
        self.elsewhere = Some(elsewhere);
        self
    }

    /// Serves modern clients only. `initialize`, with which a legacy client opens its session, is refused on every
    /// transport with an error that lists the supported protocol versions, and the server keeps no sessions. By default
    /// clients of both eras are served.
    pub fn modern_only(mut self) -> Self {
        self.modern_only = true;
        self
    }

    /// Sets the format that is written. The default is [`Format::Previous`], so that instances of the previous release
    /// can continue flows of this one. Both formats are read. Choose [`Format::Current`] when every instance runs this
    /// release.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Asks the user to confirm before some tools run, such as those that are annotated as destructive. By default no
    /// tool is confirmed. See [`Confirm`].
    pub fn confirm(mut self, confirm: Confirm) -> Self {
        self.confirm = Some(confirm);
        self
    }

    /// Declares that handlers ask for a `T`, so that [`build`](Self::build) fails if no form can ask for it. Otherwise
    /// the first call that asks fails.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use rounds::{BuildError, Rounds};
    /// # struct Shop;
    /// # impl rmcp::ServerHandler for Shop {}
    /// # #[derive(serde::Deserialize, rmcp::schemars::JsonSchema)]
    /// # #[schemars(crate = "rmcp::schemars")]
    /// struct Order {
    ///     items: BTreeMap<String, u32>,
    /// }
    ///
    /// let error = Rounds::builder(Shop).asks::<bool>().asks::<Order>().build().unwrap_err();
    /// assert!(matches!(&error, BuildError::FormType(error) if error.field() == Some("items")));
    /// ```
    pub fn asks<T: FormType>(mut self) -> Self {
        if self.unaskable.is_none() {
            self.unaskable = FormSource::of::<T>().form("").err();
        }
        self
    }

    /// Adds an observer. The one that writes `tracing` events and spans is always present.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Sets whether a round tells the client when it expires, as `_meta: {"rounds/expiresInMs": n}` of its result. A
    /// question with less time than others of its round has the same in the `_meta` of its own request. On by default.
    pub fn announce_expiry(mut self, announce: bool) -> Self {
        self.announce_expiry = announce;
        self
    }

    /// Takes flow ids and nonces from here instead of the operating system. Use it only in tests that compare tokens: a
    /// nonce that is used twice reveals what was sealed.
    #[cfg(feature = "test")]
    pub fn entropy(mut self, entropy: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        self.entropy = Box::new(entropy);
        self
    }

    /// Builds the server.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the settings contradict each other; its message says what to do.
    pub fn build(mut self) -> Result<Rounds<H>, BuildError> {
        let positive = [
            ("limit of rounds", self.limits.rounds > 0),
            ("limit of questions", self.limits.questions > 0),
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
        let lifetimes = self.lifetimes.all().map(|(what, time)| (what, !time.is_zero()));
        if let Some((what, _)) = lifetimes.chain(positive).find(|(_, positive)| !positive) {
            return Err(BuildError::Zero { what });
        }
        if let Some(what) = self.lifetimes.too_long(self.register.is_some()) {
            return Err(BuildError::TooLong { what });
        }
        if let Some(unaskable) = self.unaskable {
            return Err(BuildError::FormType(unaskable));
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
        let ledger = self.ledger.unwrap_or_else(|| Arc::new(MemoryLedger::new()));
        if self.register.is_some() && ledger.register().is_none() {
            return Err(BuildError::NoRegister);
        }
        if self.elsewhere.is_some() && (self.register.is_none() || ledger.documents().is_none()) {
            return Err(BuildError::NotElsewhere);
        }
        if self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.rounds == 0) {
            return Err(BuildError::Zero { what: "number of rounds that a client allows" });
        }
        let registering = self.register.map(|retention| {
            let instance = match &self.relay {
                Some(relay) => relay.here().to_owned(),
                None => {
                    let mut id = [0; 16];
                    (self.entropy)(&mut id);
                    FlowId::from_bytes(id).to_string()
                }
            };
            Registering::new(retention, instance)
        });
        self.limits.spills = self.spill;
        let measuring: Vec<_> = self.observers.iter().filter(|observer| observer.measures()).cloned().collect();
        let measures = !measuring.is_empty();
        let ledger = match measures {
            true => Arc::new(MeasuredLedger::new(ledger, measuring.clone(), self.clock.clone())),
            false => ledger,
        };
        let keys = self.keys.unwrap_or_else(KeyRing::ephemeral);
        let core = Core {
            keys: RwLock::new(Keys::derive(&keys, self.audience.as_deref()).ok_or(BuildError::NoAudience)?),
            audience: self.audience,
            identify: self.identify,
            identifies: AtomicBool::new(self.identifies),
            lifetimes: self.lifetimes,
            limits: self.limits,
            clock: self.clock,
            ledger,
            registering,
            relay: self.relay,
            routes: Routes::default(),
            legacy: self.legacy,
            targets: Targets::new(self.legacy_for, self.pushes, measuring.clone()),
            observers: self.observers,
            measures,
            elsewhere: self.elsewhere.as_ref().map(Elsewhere::asking),
            admission: self.confirm.map(|confirm| Box::new(confirm) as Box<dyn Admit>),
            announce_expiry: self.announce_expiry,
            modern_only: self.modern_only,
            format: self.format,
            texts: Arc::default(),
            entropy: self.entropy,
            frames: Frames::default(),
            draining: Draining::default(),
            #[cfg(feature = "http")]
            sessions: Arc::default(),
            warned_of_http: AtomicBool::new(false),
            refusals: RateLimited::default(),
            bad_requests: RateLimited::default(),
        };
        let core = Arc::new(core);
        let gauges = gauges(&core);
        measuring.iter().for_each(|observer| observer.built(&gauges));
        if let Some(relay) = &core.relay {
            relay.listen(Inbox::of(&core));
        }
        let elsewhere = self.elsewhere.map(|elsewhere| Arc::new(elsewhere.service()));
        if let Some(elsewhere) = &elsewhere {
            elsewhere.work(&core, &self.handlers);
        }
        let tasks = TaskService::new(self.tasks, self.tasks_for).map(Arc::new);
        Ok(Rounds { handlers: self.handlers, core, tasks, elsewhere })
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
        "keys that other services may share need an audience: add `.audience(\"your-service\")`, the same on every instance \
         and different from every other service with these keys"
    )]
    NoAudience,
    /// States should spill, and the ledger is the default one.
    #[error(
        "states can spill only into a ledger that was chosen for it: add `.ledger(..)` with a ledger that all instances share"
    )]
    SpillWithoutLedger,
    /// A relay was set with keys that no other instance has.
    #[error("a relay needs keys that the instances share: add `.keys(..)` with the ring that all of them have")]
    RelayWithoutKeys,
    /// A relay was set with the default ledger, which no other instance can read.
    #[error("a relay needs a ledger that the instances share: add `.ledger(..)` with the ledger that all of them use")]
    RelayWithoutLedger,
    /// The server should keep a register, and its ledger keeps none.
    #[error(
        "the ledger keeps no register: use a ledger that does, such as `MemoryLedger` or that of `rounds-redis`, or leave \
         `.register()` out"
    )]
    NoRegister,
    /// Questions should be answered elsewhere, and the server keeps no register, or its ledger no documents.
    #[error(
        "questions can be answered elsewhere only with a register, in a ledger that keeps documents: add `.register()`, and use a \
         ledger that does, such as `MemoryLedger`"
    )]
    NotElsewhere,
    /// A key should be removed from a server with a register, and it was not checked whether open flows use it.
    #[error("a key was removed that open flows may use: call `change_keys`, which counts them, instead of `set_keys`")]
    UncheckedKeys,
    /// A lifetime is longer than 30 days.
    #[error(
        "the {what} is longer than 30 days, and keys and stores do not keep flows for longer: set it to 30 days or less"
    )]
    TooLong {
        /// The name of the setting.
        what: &'static str,
    },
    /// A type that handlers [ask](RoundsBuilder::asks) for cannot be asked for with a form.
    #[error(transparent)]
    FormType(FormTypeError),
    /// A setting is zero that must not be.
    #[error("the {what} is zero, so no question could ever be answered: set it above zero")]
    Zero {
        /// The name of the setting.
        what: &'static str,
    },
}

/// Why the keys of a running server were not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeKeysError {
    /// Open flows use a key that the new ring does not have.
    #[error(
        "{flows} open flows use a key that the new ring does not have, and could not continue without it: keep the key until \
         they have ended, or cancel them"
    )]
    InUse {
        /// The number of those flows.
        flows: u64,
    },
    /// The register could not be asked.
    #[error("the flows that use the removed keys could not be counted, so the keys stay as they were")]
    Flows(#[from] FlowsError),
    /// The ring does not suit the server.
    #[error(transparent)]
    Build(#[from] BuildError),
}
