//! The legs of a flow: which instance ran them, what they ran, and how much they sent.

use maud::{Markup, html};
use rounds::register::{FlowDetails, FlowLeg, FlowRecord, FlowStation, HandlerPart};

use super::number;
use crate::content::Text;

pub(crate) fn render(record: &FlowRecord, details: &FlowDetails) -> Markup {
    html! {
        @if details.legs.is_empty() {
            p .note { "The legs of this flow were not recorded: it began before its server recorded them." }
        } @else {
            p .lead { (times(runs(record, &details.legs))) }
            table aria-label="Handler runs" {
                thead {
                    tr {
                        th scope="col" { "Leg" }
                        th scope="col" { "Instance" }
                        th scope="col" { "Handler" }
                        th scope="col" { "Effects" }
                        th scope="col" { "State sent" }
                    }
                }
                tbody {
                    @for leg in &details.legs {
                        tr {
                            th scope="row" { "Leg " (leg.number) }
                            td data-label="Instance" { (instance(&leg.instance)) }
                            td data-label="Handler" { (handler(leg.handler)) (attempts(record, leg)) }
                            td data-label="Effects" { (effects(leg)) }
                            td data-label="State sent" { (state(leg)) }
                        }
                    }
                }
            }
        }
    }
}

/// How often the handler ran from its beginning, counting legs that gave up.
fn runs(record: &FlowRecord, legs: &[FlowLeg]) -> usize {
    let ran = legs.iter().filter(|leg| leg.handler == HandlerPart::Ran);
    ran.map(|leg| claims(record, leg).max(1)).sum()
}

/// How often a leg has claimed its round. The first leg claims none.
fn claims(record: &FlowRecord, leg: &FlowLeg) -> usize {
    let entries = record.timeline.entries().iter();
    entries.filter(|entry| entry.station == FlowStation::Claimed && entry.leg + 1 == leg.number).count()
}

/// A number of runs in words.
pub(super) fn times(runs: usize) -> Markup {
    html! {
        @match runs {
            0 => "The handler has not run.",
            1 => "The handler ran once from its beginning.",
            runs => { "The handler ran " (runs) " times from its beginning." }
        }
    }
}

/// The name of an instance. One that was drawn at random is shortened, with the whole of it as a tooltip.
pub(super) fn instance(name: &str) -> Markup {
    let is_random = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    html! {
        @if is_random { code title=(name) { (name[..8]) "…" } } @else { code { (Text(name)) } }
    }
}

/// What a leg did with the handler, in words.
pub(super) fn handler(part: HandlerPart) -> &'static str {
    match part {
        HandlerPart::Ran => "ran from its beginning",
        HandlerPart::Continued => "continued where it waited",
        _ => "did not run: a declared question came first",
    }
}

fn attempts(record: &FlowRecord, leg: &FlowLeg) -> Markup {
    let claims = claims(record, leg);
    html! { @if claims > 1 { ", the last of " (claims) " attempts" } }
}

fn effects(leg: &FlowLeg) -> Markup {
    html! {
        @if leg.effects.is_empty() { "none" }
        @for (place, effect) in leg.effects.iter().enumerate() {
            @if place > 0 { ", " }
            (Text(&effect.name))
        }
    }
}

fn state(leg: &FlowLeg) -> Markup {
    html! {
        @match leg.token_bytes {
            Some(bytes) => { (number(bytes as u64)) " characters" },
            None => "none",
        }
        @if let Some(bytes) = leg.spilled_bytes { ", and " (number(bytes as u64)) " bytes in the ledger" }
    }
}
