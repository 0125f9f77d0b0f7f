//! Metrics: what operators watch, counted from the events of a server and read from its gauges.
//!
//! One set of instruments has two outlets: `Prometheus` (feature `metrics`), a text that a scraper fetches, and
//! `OpenTelemetry` (feature `otel`), the meter of an exporter. Both are observers:
//!
#![cfg_attr(feature = "metrics", doc = "```")]
#![cfg_attr(not(feature = "metrics"), doc = "```ignore")]
//! use rounds::{Rounds, metrics::Prometheus};
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! let metrics = Prometheus::new();
//! let server = Rounds::builder(Weather).observe(metrics.clone()).build()?;
//! assert!(metrics.text().contains("rounds_waiting_handlers 0"));
//! # let _ = server;
//! # Ok::<(), rounds::BuildError>(())
//! ```
//!
//! `Port::with_metrics` of `rounds-http` serves the text at `/metrics`. The guide [deploying](crate::guide::deploying)
//! lists all metrics, with alerts.
//!
//! The number of series is bounded by the server and not by its clients. The label `target` is the name of a tool or
//! prompt that the server has; every other name that a client sends, and every URI of a resource, is `other`.

mod instruments;
#[cfg(feature = "otel")]
mod opentelemetry;
#[cfg(feature = "metrics")]
mod prometheus;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use self::instruments::{Counter, Gauge, Labels, Outlet, Timer};
#[cfg(feature = "otel")]
pub use self::opentelemetry::OpenTelemetry;
#[cfg(feature = "metrics")]
pub use self::prometheus::Prometheus;
use super::{
    ledger::LedgerError,
    policy::{
        measure::{Gauges, Limit, Reading, StoreCall},
        observe::{Event, Observe, Outcome, Station},
    },
    seal::Refusal,
};
use crate::shared::kind::Method;

/// Counts events into an outlet.
struct Recorder<O> {
    outlet: O,
    targets: RwLock<Targets>,
    servers: Arc<Servers>,
}

/// The names that may be labels.
#[derive(Default)]
struct Targets {
    tools: HashMap<String, Arc<str>>,
    prompts: HashMap<String, Arc<str>>,
}

impl<O: Outlet> Recorder<O> {
    fn new(outlet: O, servers: Arc<Servers>) -> Self {
        Self { outlet, targets: RwLock::default(), servers }
    }

    /// The labels of a target. A name that the server does not have is not a label.
    fn target(&self, event: &Event<'_>) -> Labels {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        let known = match event.method {
            Method::Tool => targets.tools.get(event.target),
            Method::Prompt => targets.prompts.get(event.target),
            Method::Resource => None,
        };
        Labels::of(event.method, known.cloned())
    }

    fn ended(&self, event: &Event<'_>, outcome: Outcome) {
        let labels = || self.target(event).and("outcome", name_of(outcome));
        // A handler that waited has ended, and no leg.
        if outcome != Outcome::Expired {
            self.outlet.add(Counter::Legs, labels());
        }
        if event.ends_flow {
            self.outlet.add(Counter::Flows, labels());
        }
        if let Some(elapsed) = event.elapsed {
            self.outlet.record(Timer::Leg, self.target(event), elapsed);
        }
    }

    fn effect(&self, event: &Event<'_>, result: &'static str) {
        self.outlet.add(Counter::Effects, self.target(event).and("result", result));
    }

    fn questions(&self, event: &Event<'_>, way: &'static str, questions: usize) {
        for _ in 0..questions {
            self.outlet.add(Counter::Questions, self.target(event).and("way", way));
        }
    }
}

impl<O: Outlet> Observe for Recorder<O> {
    fn event(&self, event: &Event<'_>) {
        if let Some((station, elapsed)) = station_of(event.station).zip(event.elapsed) {
            self.outlet.record(Timer::Station, Labels::none().and("station", station), elapsed);
        }
        match event.station {
            Station::Started if event.round == 0 => self.outlet.add(Counter::FlowsStarted, self.target(event)),
            Station::Answered { after } => self.outlet.record(Timer::Answer, self.target(event), *after),
            Station::Effect { .. } => self.effect(event, "run"),
            Station::EffectReplayed { .. } => self.effect(event, "replayed"),
            Station::Asked { keys, .. } => {
                self.outlet.add(Counter::Rounds, self.target(event));
                self.questions(event, "asked", keys.len());
            }
            Station::Pushed { .. } => self.questions(event, "pushed", 1),
            Station::Refused(refusal) => {
                self.outlet.add(Counter::Refusals, Labels::none().and("reason", reason_of(*refusal)));
            }
            Station::Ended(outcome) => self.ended(event, *outcome),
            _ => {}
        }
    }

    fn measures(&self) -> bool {
        true
    }

    fn built(&self, gauges: &Gauges) {
        self.servers.add(gauges);
    }

    fn has_target(&self, method: Method, name: &str) {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        let Targets { tools, prompts } = &mut *targets;
        let names = if method == Method::Tool { tools } else { prompts };
        names.entry(name.to_owned()).or_insert_with(|| name.into());
    }

    fn store_called(&self, call: &StoreCall<'_>) {
        let step = || Labels::none().and("step", call.step);
        self.outlet.record(Timer::Store, step(), call.took);
        if let Some(error) = call.failed {
            let reason = if matches!(error, LedgerError::Full { .. }) { "full" } else { "unavailable" };
            self.outlet.add(Counter::StoreFailures, step().and("reason", reason));
        }
        if let Some(claim) = call.claim {
            let of = if claim.is_effect { "effect" } else { "round" };
            self.outlet.add(Counter::Claims, Labels::none().and("of", of).and("outcome", claim.outcome.as_str()));
        }
    }

    fn limit_reached(&self, limit: Limit) {
        self.outlet.add(Counter::LimitsReached, Labels::none().and("limit", limit.as_str()));
    }
}

/// The servers whose gauges are read. A process may have several.
#[derive(Default)]
struct Servers(Mutex<Vec<Gauges>>);

impl Servers {
    fn add(&self, gauges: &Gauges) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(gauges.clone());
    }

    /// The readings of all servers, as if they were one.
    fn read(&self) -> Vec<(Gauge, Labels, f64)> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut readings = Vec::new();
        servers.retain(|gauges| match gauges.read() {
            Some(reading) => {
                readings.push(reading);
                true
            }
            None => false,
        });
        drop(servers);
        let sum = |value: fn(&Reading) -> usize| readings.iter().map(value).sum::<usize>() as f64;
        let oldest = readings.iter().filter_map(|reading| reading.oldest_wait).max().unwrap_or(Duration::ZERO);
        let limit = |name: &'static str| Labels::none().and("limit", name);
        vec![
            (Gauge::WaitingHandlers, Labels::none(), sum(|reading| reading.waiting_handlers)),
            (Gauge::WaitingBytes, Labels::none(), sum(|reading| reading.waiting_bytes)),
            (Gauge::OldestWait, Labels::none(), oldest.as_secs_f64()),
            (Gauge::Sessions, Labels::none(), sum(|reading| reading.sessions)),
            (Gauge::Draining, Labels::none(), sum(|reading| usize::from(reading.is_draining)).min(1.0)),
            (Gauge::Limit, limit("waiting_handlers"), sum(|reading| reading.waiting_handlers_limit)),
            (Gauge::Limit, limit("waiting_bytes"), sum(|reading| reading.waiting_bytes_limit)),
            (Gauge::Limit, limit("sessions"), sum(|reading| reading.sessions_limit)),
        ]
    }
}

/// The name of an outcome. Errors that the server is to blame for are told apart from all others.
fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "complete",
        Outcome::ToolError => "tool_error",
        Outcome::InputRequired => "input_required",
        Outcome::Error { code: INTERNAL } => "internal_error",
        Outcome::Error { .. } => "error",
        Outcome::Cancelled => "cancelled",
        Outcome::Panicked => "panicked",
        Outcome::Expired => "expired",
    }
}

const INTERNAL: i32 = rmcp::model::ErrorCode::INTERNAL_ERROR.0;

/// The name of a station that a leg reaches. Stations of a handler have none.
fn station_of(station: &Station) -> Option<&'static str> {
    Some(match station {
        Station::Opened => "opened",
        Station::Claimed { .. } => "claimed",
        Station::Waiting => "waiting",
        Station::Replayed => "replayed",
        Station::Started => "started",
        Station::Resumed => "resumed",
        Station::Routed { .. } => "routed",
        Station::Asked { .. } => "asked",
        Station::Refused(_) => "refused",
        Station::Ended(_) => "ended",
        Station::Answered { .. }
        | Station::Withheld
        | Station::Pushed { .. }
        | Station::Effect { .. }
        | Station::EffectReplayed { .. } => return None,
    })
}

fn reason_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::WrongType => "wrong_type",
        Refusal::TooLong => "too_long",
        Refusal::NotAToken => "not_a_token",
        Refusal::UnknownKey => "unknown_key",
        Refusal::OtherRoundsOfThisProcess => "other_rounds_of_this_process",
        Refusal::Tampered => "tampered",
        Refusal::UnknownVersion => "unknown_version",
        Refusal::Principal => "principal",
        Refusal::Method => "method",
        Refusal::Target => "target",
        Refusal::Arguments => "arguments",
        Refusal::LegacyClient => "legacy_client",
        Refusal::Expired => "expired",
        Refusal::DeadlinePassed => "deadline_passed",
        Refusal::FromTheFuture => "from_the_future",
        Refusal::AnsweredOtherwise => "answered_otherwise",
        Refusal::ReplyGone => "reply_gone",
        Refusal::Dead => "dead",
        Refusal::Cancelled => "cancelled",
        Refusal::FrameGone => "frame_gone",
        Refusal::SpillGone => "spill_gone",
        Refusal::Diverged => "diverged",
        Refusal::HandlerState => "handler_state",
    }
}
