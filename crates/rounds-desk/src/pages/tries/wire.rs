//! Both sides of the wire: what the client sent, what the server replied, and what the state says.

use maud::{Markup, html};
use rounds::observe::Refusal;
use serde_json::{Value, json};

use crate::{
    content::{Text, code, json as shown},
    pages::timeline::texts,
    service::Visit,
    tried::{StateChange, TriedCall, TriedLeg},
};

/// A member of `_meta` in every request of a client.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// How many characters of a state are shown at each end.
const END: usize = 24;

pub(super) fn section(legs: &[TriedLeg]) -> Markup {
    html! {
        section #wire aria-labelledby="wire-title" {
            h2 #wire-title { "Wire" }
            @if legs.is_empty() {
                p .note { "What the client and the server send to each other appears here, leg by leg." }
            }
            ol .legs {
                @for (number, leg) in legs.iter().enumerate() { li { (render(number + 1, leg)) } }
            }
        }
    }
}

/// How the call stands, in a sentence. A refusal has its real reason beside it, if the server is observed.
pub(super) fn outcome(legs: &[TriedLeg], reason: Option<Refusal>) -> Markup {
    let Some(leg) = legs.last() else { return html! {} };
    html! {
        @if leg.response.is_none() {
            p .lead { "The handler runs. This page reloads until it has replied." }
        } @else if leg.is_refused() {
            p .refused {
                strong { "Refused." } " The client reads “Invalid or expired requestState” and nothing more. "
                @match reason {
                    Some(reason) => { "The real reason: " strong { (reason) } "." },
                    None => "The real reason is in the server's log.",
                }
            }
        } @else if let Some(error) = leg.error() {
            p .refused { strong { "Error: " } (Text(error["message"].as_str().unwrap_or_default())) }
        } @else if leg.questions().is_empty() {
            @if let Some(result) = leg.result() {
                div .result {
                    h3 { @if result["isError"] == true { "The tool reports a failure" } @else { "Result" } }
                    @for text in texts(result) { p { (Text(text)) } }
                }
            }
        }
    }
}

fn render(number: usize, leg: &TriedLeg) -> Markup {
    let (request, response) = (format!("Request of leg {number}"), format!("Response to leg {number}"));
    html! {
        h3 { "Leg " (number) ": " (leg.title) }
        div .exchange {
            div .sent {
                p .direction { "Client to server" }
                @if let (Some(change), Some(state)) = (&leg.change, leg.sent_state()) { (changed(state, change)) }
                (shown(&request, &short(&leg.request)))
            }
            div .received {
                p .direction { "Server to client" }
                @match leg.response.as_deref() {
                    None => p .note { "The handler runs." },
                    Some(Ok(json)) => (shown(&response, &short(json))),
                    Some(Err(why)) => (code(&response, why)),
                }
            }
        }
    }
}

/// The place where a state was changed.
fn changed(state: &str, StateChange { at, was, is }: &StateChange) -> Markup {
    let part = |from: usize, length: usize| state.chars().skip(from).take(length).collect::<String>();
    html! {
        p .changed {
            "Character " (at + 1) " of the state is now " mark { (is) } " and was " (was) ": "
            code { "…" (Text(&part(at.saturating_sub(12), at - at.saturating_sub(12)))) mark { (is) } (Text(&part(at + 1, 12))) "…" }
        }
    }
}

/// The message with its state shortened, and without what every request of this client repeats.
fn short(message: &Value) -> Value {
    let mut message = message.clone();
    for part in ["params", "result"] {
        let Some(part) = message.get_mut(part) else { continue };
        if let Some(meta) = part.get_mut("_meta").filter(|meta| meta.get(VERSION).is_some()) {
            *meta = json!("… (the client's protocol version, name and capabilities)");
        }
        if let Some(state) = part.get_mut("requestState")
            && let Some(text) = state.as_str().filter(|text| text.len() > 3 * END)
        {
            let characters = text.chars().count();
            let (head, tail): (String, String) =
                (text.chars().take(END).collect(), text.chars().skip(characters - END).collect());
            *state = json!(format!("{head}…{tail} ({characters} characters)"));
        }
    }
    message
}

/// What the latest state says, opened with the keys of the server.
pub(super) fn inside(visit: Visit<'_>, call: &TriedCall) -> Markup {
    let legs = call.legs();
    let Some(state) = legs.iter().rev().find_map(TriedLeg::state) else { return html! {} };
    html! {
        section aria-labelledby="state-title" {
            h2 #state-title { "Inside the state" }
            p .note { "The client cannot read this. The server opens it with its keys when the state comes back." }
            @match visit.shared.served.inspect(state) {
                Ok(opened) => (code("Contents of the state", &opened.to_string())),
                Err(refusal) => p { (refusal) },
            }
            @if journal(visit, &legs).is_some() {
                p {
                    a href=(visit.link(&format!("/try/{}/journal", call.id))) download { "Download the journal" }
                    " to replay it in a test of your handler, with " code { "rounds::test::replay" } "."
                }
            }
        }
    }
}

/// The journal in the latest state that has one.
pub(super) fn journal(visit: Visit<'_>, legs: &[TriedLeg]) -> Option<String> {
    let state = legs.iter().rev().find_map(TriedLeg::state)?;
    visit.shared.served.inspect(state).ok()?.journal_json()
}
