//! The timeline of a flow: who sent what to whom, as a picture and in words.

use maud::{Markup, html};
use rounds::{
    observe::Refusal,
    register::{FlowDetails, FlowEffect, FlowLeg, FlowRecord, FlowRound, FlowStation, TimelineEntry},
    time::Timestamp,
};
use serde_json::Value;

use super::{
    legs::{handler, instance},
    number as thousands,
    waiting::message,
};
use crate::{
    content::{Text, json, line},
    moment,
    recorder::Refused,
    service::Visit,
};

/// How many characters of an answer a row shows.
const CONTENT: usize = 200;

/// One row: an arrow between client and server, and its words.
struct Step {
    at: Option<Timestamp>,
    arrow: Arrow,
    words: Markup,
}

/// The picture of a row.
#[derive(Clone, Copy)]
enum Arrow {
    ToServer,
    ToClient,
    /// Something happened at the server.
    Server,
    /// A request that was refused.
    Refused,
    /// The end of the flow, without a message.
    End,
}

impl Arrow {
    fn class(self) -> &'static str {
        match self {
            Self::ToServer => "to-server",
            Self::ToClient => "to-client",
            Self::Server => "at-server",
            Self::Refused => "to-server refused",
            Self::End => "at-server end",
        }
    }

    /// The direction in words, for readers who do not see the picture.
    fn words(self) -> &'static str {
        match self {
            Self::ToServer | Self::Refused => "From the client to the server: ",
            Self::ToClient => "From the server to the client: ",
            Self::Server | Self::End => "At the server: ",
        }
    }
}

pub(crate) fn render(visit: Visit<'_>, record: &FlowRecord, details: Option<&FlowDetails>) -> Markup {
    let refusals = match (&visit.shared.recorder, details.and_then(|details| details.flow)) {
        (Some(recorder), Some(flow)) => recorder.refusals(flow),
        _ => Vec::new(),
    };
    let steps = Story { details, refusals }.tell(record.timeline.entries());
    html! {
        div .lanes aria-hidden="true" { span { "Client" } span { "Server" } }
        ol .timeline {
            @for Step { at, arrow, words } in steps {
                li class=(arrow.class()) {
                    span .at { @if let Some(at) = at { (moment::clock(at)) } }
                    span .arrow aria-hidden="true" { span {} }
                    div .words { span .unseen { (arrow.words()) } (words) }
                }
            }
        }
    }
}

/// What is known of a flow beside its timeline.
struct Story<'a> {
    details: Option<&'a FlowDetails>,
    refusals: Vec<Refused>,
}

impl Story<'_> {
    fn tell(&self, entries: &[TimelineEntry]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut refusals = self.refusals.iter().peekable();
        for entry in entries {
            while let Some(refused) = refusals.next_if(|refused| refused.at < entry.at) {
                steps.push(self.refused(refused));
            }
            self.entry(*entry, &mut steps);
        }
        steps.extend(refusals.map(|refused| self.refused(refused)));
        steps
    }

    fn entry(&self, entry: TimelineEntry, steps: &mut Vec<Step>) {
        let at = Some(entry.at);
        let leg = entry.leg + 1;
        match entry.station {
            FlowStation::Asked => {
                if entry.leg == 0 {
                    steps.push(Step { at: None, arrow: Arrow::ToServer, words: self.call() });
                    self.effects(0, steps);
                }
                let words = self.questions(entry.leg + 1);
                steps.push(Step { at, arrow: Arrow::ToClient, words });
            }
            FlowStation::Claimed => {
                steps.push(Step { at, arrow: Arrow::ToServer, words: self.answers(entry.leg) });
                self.effects(entry.leg, steps);
            }
            FlowStation::Completed => {
                steps.push(Step { at, arrow: Arrow::ToClient, words: self.ended("ends with a result") });
            }
            FlowStation::Failed => {
                steps.push(Step { at, arrow: Arrow::ToClient, words: self.ended("ends with an error") });
            }
            FlowStation::Released => {
                let words = html! { "Leg " (leg) " gave the round up. It can be sent again." };
                steps.push(Step { at, arrow: Arrow::Server, words });
            }
            FlowStation::Cancelled => {
                steps.push(Step {
                    at,
                    arrow: Arrow::End,
                    words: html! { strong { "Cancelled" } ". Its states are refused from now on." },
                });
            }
            // The recorder has these with the same reasons.
            station if station.is_refusal() && self.knows(entry) => {}
            station => {
                let words = html! { "Leg " (leg) " was " strong { (station.as_str()) } };
                steps.push(Step { at, arrow: Arrow::Refused, words });
            }
        }
    }

    /// The effects of the leg that answers this round.
    fn effects(&self, round: u32, steps: &mut Vec<Step>) {
        let of_leg = self.leg(round).map(|leg| leg.effects.as_slice());
        let effects = of_leg.or_else(|| self.round(round).map(|round| round.effects.as_slice()));
        let step = |effect| Step { at: None, arrow: Arrow::Server, words: happened(effect) };
        steps.extend(effects.unwrap_or_default().iter().map(step));
    }

    /// The leg that answers this round, if it has replied.
    fn leg(&self, round: u32) -> Option<&FlowLeg> {
        self.details?.legs.iter().find(|leg| leg.number == round + 1)
    }

    /// What a leg did with the handler, and where, if the flow was on several instances.
    fn ran(&self, round: u32) -> Markup {
        let legs = self.details.map(|details| details.legs.as_slice()).unwrap_or_default();
        let several = legs.iter().any(|leg| leg.instance != legs[0].instance);
        html! {
            @if let Some(leg) = self.leg(round) {
                p .note {
                    "The handler " (handler(leg.handler))
                    @if several { ", on the instance " (instance(&leg.instance)) }
                }
            }
        }
    }

    /// Whether the recorder has seen this refusal.
    fn knows(&self, entry: TimelineEntry) -> bool {
        let reason = match entry.station {
            FlowStation::RefusedOtherAnswers => Refusal::AnsweredOtherwise,
            _ => Refusal::Dead,
        };
        self.refusals.iter().any(|refused| refused.round == entry.leg && refused.refusal == reason)
    }

    fn refused(&self, Refused { round, refusal, at, .. }: &Refused) -> Step {
        let words = html! {
            "Leg " (round + 1) " was " strong { "refused" } ": " (refusal) ". "
            span .note { "The client only read “Invalid or expired requestState”." }
        };
        Step { at: Some(*at), arrow: Arrow::Refused, words }
    }

    fn call(&self) -> Markup {
        let target = self.details.and_then(|details| details.target.as_deref());
        html! {
            "Leg 1 calls " strong { (Text(target.unwrap_or("the tool"))) } (self.ran(0))
        }
    }

    fn questions(&self, number: u32) -> Markup {
        let questions = self.round(number).and_then(|round| round.questions.as_ref());
        html! {
            "Round " (number) " asks"
            @if let Some(bytes) = self.leg(number - 1).and_then(|leg| leg.token_bytes) {
                span .note { ", with a state of " (thousands(bytes as u64)) " characters" }
            }
            @if let Some(questions) = questions {
                @for (key, question) in questions.as_object().into_iter().flatten() {
                    p .quote { (Text(message(question))) " " span .note { "(" (Text(key)) ")" } }
                }
                (more("Questions on the wire", questions))
            }
        }
    }

    fn answers(&self, number: u32) -> Markup {
        let round = self.round(number);
        html! {
            "Leg " (number + 1) " answers round " (number) (self.ran(number))
            @if let Some(answers) = round.and_then(|round| round.answers.as_ref()) {
                @for (key, answer) in answers.as_object().into_iter().flatten() {
                    p .quote {
                        (Text(key)) ": " strong { (Text(action(answer))) }
                        @if let Some(content) = content(answer) { ", with " (Text(&content)) }
                    }
                }
                (more("Answers on the wire", answers))
            }
            @if let Some(bytes) = round.and_then(|round| round.omitted) {
                p .note { "The record leaves out what exceeds its limit: " (bytes) " bytes." }
            }
        }
    }

    fn ended(&self, how: &str) -> Markup {
        let details = self.details;
        html! {
            "The flow " strong { (how) }
            @if let Some(result) = details.and_then(|details| details.result.as_ref()) {
                @for text in texts(result) { p .quote { (Text(text)) } }
                (more("Result on the wire", result))
            }
            @if let Some(error) = details.and_then(|details| details.error.as_ref()) { (more("Error on the wire", error)) }
        }
    }

    fn round(&self, number: u32) -> Option<&FlowRound> {
        self.details?.rounds.iter().find(|round| round.number == number)
    }
}

fn happened(FlowEffect { name, key, .. }: &FlowEffect) -> Markup {
    html! {
        "The effect " strong { (Text(name)) } " ran once. "
        span .note { "Idempotency key " code { (Text(key)) } }
    }
}

/// A value that is shown when the visitor opens it.
fn more(label: &str, value: &Value) -> Markup {
    html! { details { summary { (label) } (json(label, value)) } }
}

/// How a question was answered.
fn action(answer: &Value) -> &str {
    match answer.get("action").and_then(Value::as_str) {
        Some("accept") => "accepted",
        Some("decline") => "declined",
        Some("cancel") => "cancelled",
        Some(other) => other,
        None => "answered",
    }
}

/// What an answer says, on one line.
fn content(answer: &Value) -> Option<String> {
    let fields = answer.get("content")?.as_object()?.iter().map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    let all = fields.collect::<Vec<_>>().join(", ");
    Some(line(&all, CONTENT)).filter(|content| !content.is_empty())
}

/// The texts of a result.
pub(crate) fn texts(result: &Value) -> impl Iterator<Item = &str> {
    let blocks = result.get("content").and_then(Value::as_array).into_iter().flatten();
    blocks.filter_map(|block| block.get("text").and_then(Value::as_str))
}
