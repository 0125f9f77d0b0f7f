//! [`Core`]: what all clones of a server share.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use rmcp::{RoleServer, model::ErrorCode, service::RequestContext};

use super::{
    admission::Admit, draining::Draining, frames::Frames, register::Registering, relay::Relay, route::Routes,
    task::TaskLeg, texts::RecentTexts,
};
#[cfg(feature = "http")]
use crate::server::policy::places::Places;
use crate::{
    server::{
        ledger::Ledger,
        policy::{
            elsewhere::AskingElsewhere,
            error::FlowError,
            legacy::Legacy,
            lifetimes::Lifetimes,
            limits::Limits,
            measure::Limit,
            observe::{Event, FailedLeg, Observe, RateLimited, Tracing},
            principal::{Identify, Principal},
            targets::Targets,
        },
        seal::{
            FlowId, Format, KeyRing,
            envelope::Resume,
            refusal::Refusal,
            ring::{DerivedRing, Purpose},
            token::Nonce,
        },
    },
    shared::clock::{Clock, Timestamp},
};

/// A ring's keys for everything that is sealed with them.
pub(crate) struct Keys {
    state: Arc<DerivedRing>,
    record: Arc<DerivedRing>,
    message: Arc<DerivedRing>,
}

impl Keys {
    /// None where the ring is one that others may share, and there is no audience to seal for.
    pub(crate) fn derive(keys: &KeyRing, audience: Option<&str>) -> Option<Self> {
        let audience = match audience {
            Some(audience) if !audience.is_empty() => audience,
            _ if keys.is_ephemeral() => "",
            _ => return None,
        };
        let derive = |purpose| Arc::new(keys.derive(purpose, audience));
        Some(Self { state: derive(Purpose::State), record: derive(Purpose::Record), message: derive(Purpose::Message) })
    }
}

impl Keys {
    /// The keys of records.
    pub(crate) fn records(&self) -> Arc<DerivedRing> {
        self.record.clone()
    }
}

/// Fills a slice with unpredictable bytes.
pub(crate) type Entropy = Box<dyn Fn(&mut [u8]) + Send + Sync>;

/// What all clones of a [`Rounds`] share.
pub(crate) struct Core {
    pub(crate) keys: RwLock<Keys>,
    pub(crate) audience: Option<String>,
    pub(crate) identify: Box<dyn Identify>,
    /// Whether principals are told apart here: it was set up, or there was one.
    pub(crate) identifies: AtomicBool,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Present if the server keeps a register.
    pub(crate) registering: Option<Registering>,
    pub(crate) relay: Option<Arc<dyn Relay>>,
    pub(crate) routes: Routes,
    pub(crate) legacy: Legacy,
    pub(crate) targets: Targets,
    /// Present if questions may be answered elsewhere.
    pub(crate) elsewhere: Option<AskingElsewhere>,
    /// What is settled before a tool runs, if something is.
    pub(crate) admission: Option<Box<dyn Admit>>,
    pub(crate) observers: Vec<Arc<dyn Observe>>,
    /// Whether an observer measures.
    pub(crate) measures: bool,
    pub(crate) announce_expiry: bool,
    pub(crate) modern_only: bool,
    pub(crate) format: Format,
    /// For questions whose texts the format does not carry.
    pub(crate) texts: Arc<RecentTexts>,
    pub(crate) entropy: Entropy,
    pub(crate) frames: Frames,
    pub(crate) draining: Draining,
    /// The sessions of legacy clients over HTTP.
    #[cfg(feature = "http")]
    pub(crate) sessions: Arc<Places>,
    pub(crate) warned_of_http: AtomicBool,
    pub(crate) refusals: RateLimited<Refusal>,
    /// The codes of errors that the request of a client is to blame for.
    pub(crate) bad_requests: RateLimited<i32>,
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
        let principal = match context.extensions.get::<TaskLeg>().and_then(TaskLeg::caller) {
            Some(caller) => caller.clone(),
            None => self.identify.identify(context),
        };
        if principal.is_some() && !self.identifies_principals() {
            self.identifies.store(true, Ordering::Relaxed);
        }
        principal
    }

    /// Whether principals are told apart here, so that callers without one get no more than half of what there is for all.
    pub(crate) fn identifies_principals(&self) -> bool {
        self.identifies.load(Ordering::Relaxed)
    }

    /// Whether a principal is required before a question may be asked.
    pub(crate) fn requires_principal(&self) -> bool {
        self.identify.is_required()
    }

    /// Checks that the caller may be asked.
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
                "a question is sent over HTTP to a caller without a principal: any client with its state can answer it. Put a \
                 `rounds::Principal` into the request where you authenticate it, or insist on one with \
                 `Principal::required`"
            );
        }
        Ok(())
    }

    /// Whether an observer or the log takes the events of a leg.
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.is_empty() || tracing::enabled!(target: "rounds", tracing::Level::DEBUG)
    }

    /// The name of this instance, if it has one.
    pub(crate) fn instance(&self) -> Option<&str> {
        let registered = self.registering.as_ref().map(|register| &*register.instance);
        self.relay.as_ref().map(|relay| relay.here()).or(registered)
    }

    /// Logs a leg that failed. A client can cause any number of errors that its own requests are to blame for: of those,
    /// the log has one a second for each code. A failure on our side is one that an operator looks for, so the log has a
    /// hundred a second of those: a client that has used its share of a limit can cause them too.
    pub(crate) fn failed(&self, failed: &FailedLeg<'_>) {
        const OF_THE_PROTOCOL: std::ops::Range<i32> = -32_768..-32_000;
        let code = if OF_THE_PROTOCOL.contains(&failed.code) { failed.code } else { 0 };
        let more = match ErrorCode(code) {
            ErrorCode::INTERNAL_ERROR => self.bad_requests.passes_of(100, code, self.now()),
            _ => self.bad_requests.passes(code, self.now()),
        };
        if let Some(more) = more {
            Tracing::failed(failed, more);
        }
    }

    /// The time, if an observer measures.
    pub(crate) fn measured_now(&self) -> Option<SystemTime> {
        self.measures.then(|| self.clock.now())
    }

    /// Tells observers of a limit that was reached.
    #[cold]
    pub(crate) fn limit_reached(&self, limit: Limit) {
        self.observers.iter().for_each(|observer| observer.limit_reached(limit));
    }

    /// Tells observers of the limit that this error is about, if it is about one.
    #[cold]
    pub(crate) fn note_limit(&self, error: &FlowError) {
        if let Some(limit) = Limit::of(error) {
            self.limit_reached(limit);
        }
    }

    pub(crate) fn observe(&self, event: &Event<'_>) {
        Tracing::event(event, &self.refusals, || self.now());
        for observer in &self.observers {
            observer.event(event);
        }
    }
}

#[cfg(feature = "http")]
pub(crate) fn is_over_http(context: &RequestContext<RoleServer>) -> bool {
    context.extensions.get::<http::request::Parts>().is_some()
}

#[cfg(not(feature = "http"))]
pub(crate) fn is_over_http(_context: &RequestContext<RoleServer>) -> bool {
    false
}
