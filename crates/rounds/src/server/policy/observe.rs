//! Observers: one event for each station of a leg.
//!
//! ```text
//! request ─▶ open ─▶ claim ─▶ resume ─▶ run until it ends or asks ─▶ gate ─▶ seal ─▶ record ─▶ response
//! ```
//!
//! Logs, traces, the tour and the test kit all read these events. No event contains a state, an answer or a key.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rmcp::{RoleServer, service::RequestContext};

use super::measure::{Gauges, Limit, StoreCall};
use crate::{
    server::seal::{FlowId, envelope::Method, refusal::Refusal},
    shared::clock::Timestamp,
};

/// Receives an event for every station of a leg, and for handlers that wait between legs. Register one with
/// [`RoundsBuilder::observe`](crate::RoundsBuilder::observe).
///
/// It is called in the task of the leg or of the waiting handler, so it must return quickly.
pub trait Observe: Send + Sync + 'static {
    /// Receives one event.
    fn event(&self, event: &Event<'_>);

    /// Whether it measures: whether it uses what the other methods bring, and [`Event::elapsed`]. By default it does
    /// not, and the server does not spend time on them.
    fn measures(&self) -> bool {
        false
    }

    /// Receives the gauges of the server when that is built, if it [measures](Self::measures).
    fn built(&self, gauges: &Gauges) {
        let _ = gauges;
    }

    /// Receives the name of a tool or prompt that the server has, once for each name, if it
    /// [measures](Self::measures): before the first call of a tool that rmcp's `ServerHandler::get_tool` finds, and when
    /// tools or prompts are listed. A name that only a client uses never arrives here. Of a server with more than 1,000
    /// names, the first 1,000 arrive.
    fn has_target(&self, method: Method, name: &str) {
        let _ = (method, name);
    }

    /// Receives a call to the store that has ended, if it [measures](Self::measures).
    fn store_called(&self, call: &StoreCall<'_>) {
        let _ = call;
    }

    /// Receives a limit that was reached.
    fn limit_reached(&self, limit: Limit) {
        let _ = limit;
    }
}

/// One event of a leg, or of a handler that waits.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The flow. None if the state could not be opened.
    pub flow: Option<FlowId>,
    /// The round that the leg answers: zero for the first leg, which answers none.
    pub round: u32,
    /// The method that was requested.
    pub method: Method,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: &'a str,
    /// The station that the leg reached.
    pub station: &'a Station,
    /// How long the leg has taken so far on this instance, by the server's clock. None if no observer
    /// [measures](Observe::measures), and for events of a handler and not of its leg, such as an effect.
    pub elapsed: Option<Duration>,
    /// Whether the flow has ended with this event, for the first time. It has not if the leg is an equal one that gets
    /// the recorded reply, if its state was refused, or if the client may send the same request again.
    pub ends_flow: bool,
}

/// A station of a leg: what happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Station {
    /// The state was opened and belongs to this request.
    Opened,
    /// The leg claimed the round with this fence, and runs it.
    Claimed {
        /// The fence. It is higher than one if an earlier leg claimed the round and did not finish.
        fence: u32,
    },
    /// The answers to a round arrived, or the answer to a question that was pushed.
    Answered {
        /// How long the client took, which is how long a person took if it asked one.
        after: Duration,
    },
    /// An equal leg is running, and this leg waits for its reply.
    Waiting,
    /// The round was answered before, and this leg gets the recorded reply.
    Replayed,
    /// The handler runs from its beginning.
    Started,
    /// The handler did not run: a question that it declares with an [`Asked`](crate::Asked) comes first, or has ended
    /// the call.
    Withheld,
    /// A waiting handler resumes where it stopped.
    Resumed,
    /// The handler waits on another instance, and the leg was handed to that instance.
    Routed {
        /// The name of the instance.
        to: String,
    },
    /// A question was pushed to a client of the legacy era over the live connection.
    Pushed {
        /// The question's key.
        key: String,
    },
    /// An effect has run. It does not run again in this flow.
    Effect {
        /// The name of the effect.
        name: String,
    },
    /// An effect that has run before was reached again, and its recorded value was returned.
    EffectReplayed {
        /// The name of the effect.
        name: String,
    },
    /// The leg ends with these questions.
    Asked {
        /// The questions' keys.
        keys: Vec<String>,
        /// The length of the token.
        bytes: usize,
    },
    /// The leg was refused with the frozen error. The reason is not sent to the client.
    Refused(Refusal),
    /// The leg has ended. With [`Outcome::Expired`]: a handler that waited between legs has ended.
    Ended(Outcome),
}

/// How a leg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// With a result.
    Complete,
    /// With a result that reports a failure of the tool.
    ToolError,
    /// With questions.
    InputRequired,
    /// With a protocol error.
    Error {
        /// The code of the error.
        code: i32,
    },
    /// The client went away, and the handler was dropped before it returned.
    Cancelled,
    /// The handler panicked.
    Panicked,
    /// A handler that waited between legs was ended, because no answer came in time or the flow's deadline passed.
    Expired,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::ToolError => f.write_str("tool_error"),
            Self::InputRequired => f.write_str("input_required"),
            Self::Error { code } => write!(f, "error {code}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Panicked => f.write_str("panicked"),
            Self::Expired => f.write_str("expired"),
        }
    }
}

/// The built-in observer: events as `tracing` events, within a span for each leg.
///
/// Spans follow OpenTelemetry's conventions for MCP: `gen_ai.tool.name`, `gen_ai.prompt.name` or `mcp.resource.uri`,
/// and also `rounds.flow`, `rounds.round` and `rounds.outcome`. With the `otel` feature, exported spans are named like
/// `tools/call weather` and have a `mcp.method.name`, and a `_meta.traceparent` becomes the span's parent.
///
/// Text that a client chose, such as the name of a tool, is recorded as a string and not with `Display`: a subscriber
/// that writes lines escapes strings, and writes displayed values unchanged.
pub(crate) struct Tracing;

impl Tracing {
    /// A span for a leg. Its flow is none if the state could not be opened.
    pub(crate) fn span(
        method: Method,
        target: &str,
        context: &RequestContext<RoleServer>,
        flow: Option<FlowId>,
        round: u32,
    ) -> tracing::Span {
        let target = &*cut(target);
        // Only exporters read these, and formatting them is slow. Without them, the name field that is set tells the
        // method.
        let exports = cfg!(feature = "otel");
        let span = tracing::info_span!(
            target: "rounds",
            "leg",
            otel.name = exports.then(|| format!("{method} {target}")),
            otel.kind = exports.then_some("server"),
            mcp.method.name = exports.then(|| tracing::field::display(method)),
            gen_ai.tool.name = (method == Method::Tool).then_some(target),
            gen_ai.prompt.name = (method == Method::Prompt).then_some(target),
            mcp.resource.uri = (method == Method::Resource).then_some(target),
            rounds.flow = flow.map(tracing::field::display),
            rounds.round = round,
            rounds.outcome = tracing::field::Empty,
        );
        #[cfg(feature = "otel")]
        {
            let text = |key: &str| context.meta.get(key).and_then(serde_json::Value::as_str);
            if let Some(parent) = text("traceparent") {
                crate::server::policy::otel::set_parent(&span, parent, text("tracestate"));
            }
        }
        #[cfg(not(feature = "otel"))]
        let _ = context;
        span
    }

    /// The position of a leg in its trace, for the instance that the leg is handed to.
    pub(crate) fn here() -> Option<(String, String)> {
        #[cfg(feature = "otel")]
        return crate::server::policy::otel::here();
        #[cfg(not(feature = "otel"))]
        None
    }

    /// A span for the errand of a leg that landed on another instance and has its own span there.
    pub(crate) fn errand(flow: Option<FlowId>, round: u32, trace: Option<(String, String)>) -> tracing::Span {
        let flow = flow.map(tracing::field::display);
        let span = tracing::info_span!(target: "rounds", "errand", rounds.flow = flow, rounds.round = round);
        #[cfg(feature = "otel")]
        if let Some((parent, state)) = trace {
            crate::server::policy::otel::set_parent(&span, &parent, Some(&state));
        }
        #[cfg(not(feature = "otel"))]
        let _ = trace;
        span
    }

    /// Records the outcome on the given span: looking up the current span would take as long as writing this.
    pub(crate) fn ended(span: &tracing::Span, outcome: Outcome) {
        span.record("rounds.outcome", tracing::field::display(outcome));
    }

    /// Logs a leg that failed, in one line that says of which flow it was, and why.
    pub(crate) fn failed(failed: &FailedLeg<'_>, more: u64) {
        let FailedLeg { flow, round, target, instance, code, error, cause } = failed;
        let (flow, more) = (flow.map(tracing::field::display), (more > 0).then_some(more));
        tracing::warn!(
            target: "rounds", flow, tool = &*cut(target), round, instance, code, error = &*cut(error), cause, more,
            "a leg failed"
        );
    }

    pub(crate) fn event(event: &Event<'_>, refusals: &RateLimited<Refusal>, now: impl FnOnce() -> Timestamp) {
        match event.station {
            Station::Refused(refusal) => match refusals.passes(*refusal, now()) {
                None => {}
                Some(0) => tracing::warn!(target: "rounds", reason = ?refusal, "refused a state: {refusal}"),
                Some(more) => tracing::warn!(
                    target: "rounds",
                    reason = ?refusal,
                    more,
                    "refused a state: {refusal} ({more} more since the last line)"
                ),
            },
            Station::Ended(outcome) => tracing::debug!(target: "rounds", %outcome, "ended"),
            Station::Asked { keys, bytes } => tracing::debug!(target: "rounds", ?keys, bytes, "asked"),
            Station::Claimed { fence } => tracing::debug!(target: "rounds", fence, "claimed"),
            Station::Answered { after } => tracing::debug!(target: "rounds", ?after, "answered"),
            Station::EffectReplayed { name } => tracing::debug!(target: "rounds", name, "an effect was replayed"),
            Station::Opened => tracing::debug!(target: "rounds", "opened"),
            Station::Waiting => tracing::debug!(target: "rounds", "waiting for an equal leg"),
            Station::Replayed => tracing::debug!(target: "rounds", "replayed"),
            Station::Started => tracing::debug!(target: "rounds", "started"),
            Station::Routed { to } => tracing::debug!(target: "rounds", to, "handed to another instance"),
            Station::Withheld => tracing::debug!(target: "rounds", "withheld"),
            Station::Resumed => tracing::debug!(target: "rounds", "resumed"),
            Station::Effect { name } => tracing::debug!(target: "rounds", name, "an effect has happened"),
            Station::Pushed { key } => tracing::debug!(target: "rounds", key, "pushed a question"),
        }
    }
}

/// What the log says of a leg that failed.
pub(crate) struct FailedLeg<'a> {
    /// The flow, as the register knows it.
    pub(crate) flow: Option<FlowId>,
    pub(crate) round: u32,
    pub(crate) target: &'a str,
    /// The name of this instance, if it has one.
    pub(crate) instance: Option<&'a str>,
    pub(crate) code: i32,
    /// What the client reads.
    pub(crate) error: &'a str,
    pub(crate) cause: Option<&'a str>,
}

/// Rate limit of log lines that a client can cause: one a second for each reason, or a few, with the number of lines left
/// out since. Without it, a client that sends bad states could fill a disk. Observers see every event.
#[derive(Debug)]
pub(crate) struct RateLimited<K>(Mutex<HashMap<K, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Timestamp,
    lines: u64,
    left_out: u64,
}

impl<K> Default for RateLimited<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> RateLimited<K> {
    const PAUSE: Duration = Duration::from_secs(1);

    /// How many lines for this reason were left out since the last one, or none if this one is left out too.
    pub(crate) fn passes(&self, reason: K, now: Timestamp) -> Option<u64> {
        self.passes_of(1, reason, now)
    }

    /// The same with so many lines a second.
    pub(crate) fn passes_of(&self, lines: u64, reason: K, now: Timestamp) -> Option<u64> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(logged) = log.get_mut(&reason) else {
            log.insert(reason, Logged { at: now, lines: 1, left_out: 0 });
            return Some(0);
        };
        // A clock that was set back must not silence a reason until it has caught up.
        if logged.at <= now && now.since(logged.at) < Self::PAUSE {
            if logged.lines < lines {
                logged.lines += 1;
                return Some(0);
            }
            logged.left_out += 1;
            return None;
        }
        (logged.at, logged.lines) = (now, 1);
        Some(std::mem::take(&mut logged.left_out))
    }
}

/// Text that a client may have chosen, cut to 256 characters for the log.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    const CHARACTERS: usize = 256;
    if text.len() <= CHARACTERS {
        return Cow::Borrowed(text);
    }
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => Cow::Owned(format!("{}… ({} bytes)", &text[..end], text.len())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_a_second_is_logged_for_each_reason_with_the_number_of_the_others() {
        let log = RateLimited::default();
        let at = |millis: u64| Timestamp::from_millis(1_800_000_000_000 + millis);
        assert_eq!(log.passes(Refusal::NotAToken, at(0)), Some(0));
        for millis in 1..1000 {
            assert_eq!(log.passes(Refusal::NotAToken, at(millis)), None);
        }
        assert_eq!(log.passes(Refusal::Tampered, at(999)), Some(0), "another reason");
        assert_eq!(log.passes(Refusal::NotAToken, at(1000)), Some(999));
        assert_eq!(log.passes(Refusal::NotAToken, at(1999)), None);
        assert_eq!(log.passes(Refusal::NotAToken, at(2000)), Some(1));
        assert_eq!(log.passes(Refusal::NotAToken, at(9000)), Some(0), "nothing was left out");
        assert_eq!(log.passes(Refusal::NotAToken, at(5000)), Some(0), "the clock was set back");
        assert_eq!(log.passes(Refusal::NotAToken, at(5001)), None);
    }

    #[test]
    fn long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut(&"ö".repeat(256)), "ö".repeat(256));
        assert_eq!(cut(&"ö".repeat(257)), format!("{}… (514 bytes)", "ö".repeat(256)));
        assert!(cut(&"x".repeat(4 << 20)).len() < 300);
    }
}
