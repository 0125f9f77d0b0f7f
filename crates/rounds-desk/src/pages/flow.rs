//! One flow: what happened to it, and what can be done about it.

use http::StatusCode;
use maud::{Markup, html};
use rounds::{
    FlowId,
    elsewhere::QuestionElsewhere,
    register::{FlowDetails, FlowRecord, FlowsError},
    time::Timestamp,
};

use super::{Page, fact, journal, legs, question, status, timeline};
use crate::{
    action::ActionKind,
    check::Permission,
    content::{Text, json},
    moment,
    problem::Problem,
    response::{self, BoxResponse},
    service::Visit,
};

pub(crate) async fn show(visit: Visit<'_>, id: FlowId) -> Result<BoxResponse, Problem> {
    let flows = &visit.shared.flows;
    let record = flows.get(id).await?.ok_or(Problem::NotFound)?;
    let details = match flows.details(&record) {
        Ok(details) => Some(details),
        Err(FlowsError::Unreadable { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let id = record.summary.id;
    let questions = if details.is_some() { flows.questions(id).await? } else { Vec::new() };
    let target = details.as_ref().and_then(|details| details.target.as_deref()).unwrap_or(&record.summary.target);
    let body = html! {
        div .title {
            h1 { (Text(target)) }
            div #status data-live { (status(record.summary.status)) }
        }
        @if details.is_none() {
            p .warning { "The record does not open with the keys of this server: it was changed, or its key was retired. Only its plain columns are shown." }
        }
        div #facts data-live { (facts(&record, details.as_ref(), flows.now())) }
        div #questions data-live { (for_people(visit, &questions)) (decisions(visit, &questions, flows.now())) }
        div #actions data-live { (actions(visit, &record)) }
        section aria-labelledby="timeline-title" {
            h2 #timeline-title { "Timeline" }
            div #timeline data-live { (timeline::render(visit, &record, details.as_ref())) }
        }
        @if let Some(details) = &details {
            section aria-labelledby="runs-title" {
                h2 #runs-title { "Handler runs" }
                div #runs data-live { (legs::render(&record, details)) }
            }
            section aria-labelledby="journal-title" {
                h2 #journal-title { "Journal" }
                div #journal data-live { (journal::render(visit, id, details)) }
            }
        }
    };
    let page = Page::new(target).tab("/").events(format!("/events?flow={id}"));
    Ok(response::page(StatusCode::OK, page.render(visit, body)))
}

pub(crate) async fn cancel(visit: Visit<'_>, id: FlowId) -> Result<BoxResponse, Problem> {
    let flows = &visit.shared.flows;
    let record = flows.get(id).await?.ok_or(Problem::NotFound)?;
    let (id, target) = (record.summary.id, &record.summary.target);
    let action = visit.action(ActionKind::Cancelled, Some(id), target);
    let before = flows.cancel(id, &format!("cancelled at the desk by {}", action.actor_name())).await?;
    if before.is_some_and(|status| status.is_open()) {
        visit.did(ActionKind::Cancelled, Some(id), target);
    }
    Ok(response::see(&visit.link(&format!("/flows/{id}"))))
}

fn facts(record: &FlowRecord, details: Option<&FlowDetails>, now: Timestamp) -> Markup {
    let summary = &record.summary;
    html! {
        dl .facts {
            (fact("Asked first", moment::ago(now, summary.created)))
            (fact("Changed", moment::ago(now, summary.changed)))
            @if summary.status.is_open() {
                (fact("Time left", moment::left(now, summary.open_until)))
                (fact("Deadline in", moment::left(now, summary.deadline)))
            }
            (fact("Round", html! { (summary.round) }))
            @if let Some(owner) = &summary.owner { (fact("Instance", legs::instance(&owner.instance))) }
            @if let Some(details) = details {
                (fact("Principal", html! { @match &details.principal {
                    Some(principal) => (Text(principal)),
                    None => "none",
                } }))
            }
            (fact("Method", html! { (summary.method) }))
            (fact("Id", html! { code { (summary.id) } }))
            @if let Some(flow) = details.and_then(|details| details.flow) {
                (fact("Name in logs", html! { code { (flow) } }))
            }
        }
        @if let Some(arguments) = details.and_then(|details| details.arguments.as_ref()) {
            details { summary { "Arguments" } (json("Arguments", arguments)) }
        }
    }
}

/// The open questions that are answered on pages of their own.
fn for_people(visit: Visit<'_>, questions: &[QuestionElsewhere]) -> Markup {
    let open = || questions.iter().filter(|question| question.is_open && question.decision.is_none());
    html! {
        @if open().next().is_some() {
            h2 { "Waits for a decision" }
            ul .decisions {
                @for question in open() {
                    li { a href=(visit.link(&question::path(question))) { (Text(&question.message)) } }
                }
            }
        }
    }
}

/// What people have decided, with what became of it.
fn decisions(visit: Visit<'_>, questions: &[QuestionElsewhere], now: Timestamp) -> Markup {
    let decided: Vec<_> = questions.iter().filter_map(|asked| Some((asked, asked.decision.as_ref()?))).collect();
    html! {
        @if !decided.is_empty() {
            h2 { "Decisions" }
            @for (asked, decision) in decided {
                p { a href=(visit.link(&question::path(asked))) { (Text(&asked.message)) } }
                (question::decided(decision, now))
            }
        }
    }
}

fn actions(visit: Visit<'_>, record: &FlowRecord) -> Markup {
    let may_act = visit.may(Permission::Act);
    let path = format!("/flows/{}/cancel", record.summary.id);
    html! {
        @if record.summary.status.is_open() && may_act {
            form method="post" action=(visit.link(&path)) {
                (visit.token(&path))
                button .danger type="submit" { "Cancel flow" }
            }
        }
    }
}
