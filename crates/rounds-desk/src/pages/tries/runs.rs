//! What the handler did: how often it ran, what it did once, and why a leg was refused.

use maud::{Markup, html};
use rounds::observe::{Refusal, Station};

use super::super::legs::times;
use crate::{content::Text, recorder::Seen, service::Visit, tried::TriedCall};

pub(super) fn section(visit: Visit<'_>, call: Option<&TriedCall>) -> Markup {
    let seen = call.map(|call| call.events.all()).unwrap_or_default();
    html! {
        section #runs aria-labelledby="runs-title" {
            h2 #runs-title { "Handler runs" }
            @if visit.shared.recorder.is_none() {
                p .note { "This server is not observed: build it with a " code { "Recorder" } "." }
            } @else if call.is_none() {
                p .note { "How often the handler ran from its beginning, and what it did, appears here." }
            } @else if seen.is_empty() {
                p .note { "No event of this call was observed yet." }
            } @else {
                p .lead { (times(runs(&seen))) }
                ol .stations {
                    @for seen in &seen { @if let Some(words) = words(&seen.station) { li { "Leg " (seen.leg) ": " (words) } } }
                }
            }
        }
    }
}

/// Why the latest leg was refused.
pub(super) fn refusal(call: &TriedCall) -> Option<Refusal> {
    let latest = call.legs().len();
    call.events.all().iter().filter(|seen| seen.leg == latest).find_map(|seen| match seen.station {
        Station::Refused(refusal) => Some(refusal),
        _ => None,
    })
}

/// How often the handler ran from its beginning.
fn runs(seen: &[Seen]) -> usize {
    let count = |station: Station| seen.iter().filter(|seen| seen.station == station).count();
    count(Station::Started).saturating_sub(count(Station::Withheld))
}

/// A station in words. None for those that say nothing here.
fn words(station: &Station) -> Option<Markup> {
    Some(match station {
        Station::Started => html! { "the handler starts" },
        Station::Withheld => html! { "the handler is not run: a declared question comes first" },
        Station::Resumed => html! { "the handler continues where it waited" },
        Station::Opened => html! { "the state opens" },
        Station::Claimed { fence } => {
            html! { "the leg claims the round" @if *fence > 1 { ", as its owner number " (fence) } }
        }
        Station::Waiting => html! { "an equal leg runs, and this one waits for its reply" },
        Station::Replayed => html! { "the recorded reply is sent again, and nothing runs" },
        Station::Routed { to } => html! { "the leg is handed to the instance " (Text(to)) },
        Station::Pushed { key } => html! { "the question " (Text(key)) " is pushed" },
        Station::Effect { name } => html! { "the effect " strong { (Text(name)) } " runs" },
        Station::Asked { keys, bytes } => html! {
            "asks " (Text(&keys.join(", "))) ", with a state of " (bytes) " characters"
        },
        Station::Refused(refusal) => html! { strong { "refused" } ": " (refusal) },
        Station::Ended(outcome) => html! { "ends: " (outcome) },
        _ => return None,
    })
}
