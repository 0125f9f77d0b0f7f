//! Observing: one event for each station of a leg.
//!
//! ```text
//! request ─▶ open ─▶ claim ─▶ resume ─▶ run until it ends or asks ─▶ gate ─▶ seal ─▶ record ─▶ response
//! ```
//!
//! Logs, traces, the tour and the test kit all read this one stream. No event carries a state, an answer or a key.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rmcp::{RoleServer, service::RequestContext};

use crate::{
    server::seal::{FlowId, envelope::Method, refusal::Refusal},
    shared::clock::Timestamp,
};

/// Sees what happens to every leg, and to handlers that wait between legs. Register one with
/// [`RoundsBuilder::observe`](crate::RoundsBuilder::observe).
///
/// It is called in the task of the leg, or of the handler that waits: return quickly.
pub trait Observe: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// One thing that happened, to a leg or to a handler that waits.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The flow. Not known of a state that could not be opened.
    pub flow: Option<FlowId>,
    /// The round that the leg answers: zero for the first leg, which answers none.
    pub round: u32,
    /// What was requested.
    pub method: Method,
    /// The tool or prompt, by name, or the resource, by URI.
    pub target: &'a str,
    /// What happened.
    pub station: &'a Station,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Station {
    /// The state was opened and belongs to this request.
    Opened,
    /// The round is this leg's to run, under this fence.
    Claimed {
        /// Higher than one when a leg before it did not finish.
        fence: u32,
    },
    /// An equal leg is at work, and this one waits for its reply.
    Waiting,
    /// The round was answered before, and this leg gets the same reply.
    Replayed,
    /// The handler runs, from the top.
    Started,
    /// It did not run after all: a question that it declares, with an [`Asked`](crate::Asked), comes first or has ended the call.
    Withheld,
    /// A handler that was waiting goes on from where it stopped.
    Resumed,
    /// The handler waits on another instance, and the leg was handed to it.
    Routed {
        /// The instance.
        to: String,
    },
    /// A client of the legacy era was asked over the live connection.
    Pushed {
        /// The question's key.
        key: String,
    },
    /// An effect has happened, which will not happen again in this flow.
    Effect {
        /// Its name.
        name: String,
    },
    /// The leg ends with these questions.
    Asked {
        /// The questions' keys.
        keys: Vec<String>,
        /// How long the token is.
        bytes: usize,
    },
    /// The leg was refused with the frozen error, for a reason that stays here.
    Refused(Refusal),
    /// The leg is over; or, with [`Outcome::Expired`], a handler that was waiting between legs.
    Ended(Outcome),
}

/// How a leg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// With a result.
    Complete,
    /// With a result that says the tool failed.
    ToolError,
    /// With questions.
    InputRequired,
    /// With an error of the protocol.
    Error {
        /// Its code.
        code: i32,
    },
    /// The client went away, and the handler was dropped before it came to an end.
    Cancelled,
    /// The handler panicked.
    Panicked,
    /// A handler that was waiting between legs was ended: nobody came back in time, or the flow's time was over.
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

/// The observer that is always there: events as `tracing` events, within a span for each leg.
///
/// Spans follow OpenTelemetry's conventions for MCP: `gen_ai.tool.name`, `gen_ai.prompt.name` or `mcp.resource.uri`, and beside
/// it `rounds.flow`, `rounds.round` and `rounds.outcome`. With the `otel` feature they are named like `tools/call weather` for
/// those who export them and have a `mcp.method.name`, and a `_meta.traceparent` becomes the span's parent.
///
/// What a client chose, such as the name of a tool, is recorded as a string: a subscriber that writes lines escapes those, and
/// writes what is displayed as it is.
pub(crate) struct Tracing;

impl Tracing {
    /// A span for a leg: of a flow, unless its state is not to be read.
    pub(crate) fn span(
        method: Method,
        target: &str,
        context: &RequestContext<RoleServer>,
        flow: Option<FlowId>,
        round: u32,
    ) -> tracing::Span {
        let target = &*cut(target);
        // Nobody else reads these, and they take a while to write: which name there is tells the method.
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

    /// Where in a trace a leg is, for whoever it is handed to.
    pub(crate) fn here() -> Option<(String, String)> {
        #[cfg(feature = "otel")]
        return crate::server::policy::otel::here();
        #[cfg(not(feature = "otel"))]
        None
    }

    /// A span for what is done here for a leg that landed elsewhere, and has its own span there.
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

    /// How it ended, on the span itself: to look for the one that is current takes as long as to write this.
    pub(crate) fn ended(span: &tracing::Span, outcome: Outcome) {
        span.record("rounds.outcome", tracing::field::display(outcome));
    }

    pub(crate) fn event(event: &Event<'_>, refusals: &RefusalLog, now: impl FnOnce() -> Timestamp) {
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

/// Which refusals are logged: one a second for each reason, with the number of those that were left out. Otherwise a client that sends
/// bad states could fill a disk with lines. Observers see every refusal.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<HashMap<Refusal, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Timestamp,
    left_out: u64,
}

impl RefusalLog {
    const PAUSE: Duration = Duration::from_secs(1);

    /// Whether this one is logged, and how many of its reason were not since the last one.
    fn passes(&self, refusal: Refusal, now: Timestamp) -> Option<u64> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(logged) = log.get_mut(&refusal) else {
            log.insert(refusal, Logged { at: now, left_out: 0 });
            return Some(0);
        };
        // A clock that was set back is not to silence a reason until it has caught up.
        if logged.at <= now && now.since(logged.at) < Self::PAUSE {
            logged.left_out += 1;
            return None;
        }
        logged.at = now;
        Some(std::mem::take(&mut logged.left_out))
    }
}

/// Text that a client may have chosen, as it is logged: 256 characters at most.
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
        let log = RefusalLog::default();
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
