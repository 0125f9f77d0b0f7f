//! A question that is answered elsewhere: what is asked, for whom, and the form with which a person decides it.

use http::StatusCode;
use maud::{Markup, html};
use rounds::{
    FlowId, Principal,
    client::AskedQuestion,
    elsewhere::{DecideError, DecisionOutcome, ElsewhereKind, QuestionElsewhere, RecordedDecision, Verdict, Way},
};
use serde_json::{Value, json};

use super::{Page, fact};
use crate::{
    action::ActionKind,
    check::Permission,
    content::{Text, json as shown_json},
    fields::Fields,
    forms::Form,
    moment,
    problem::Problem,
    response::{self, BoxResponse},
    service::Visit,
};

/// The name of the field with the digest of what was shown.
const SHOWN: &str = "shown";

pub(crate) async fn show(visit: Visit<'_>, id: FlowId, key: &str) -> Result<BoxResponse, Problem> {
    let question = find(visit, id, key).await?;
    let may = may_answer(visit, &question).await;
    if may.is_err() && !visit.may(Permission::Read) {
        return Err(Problem::MayNotRead);
    }
    Ok(page(visit, StatusCode::OK, &question, may.err().as_ref(), None))
}

pub(crate) async fn decide(visit: Visit<'_>, id: FlowId, key: &str, form: &Form) -> Result<BoxResponse, Problem> {
    let question = find(visit, id, key).await?;
    let by = match (actor(visit), visit.may(Permission::Answer)) {
        (Some(by), true) => by,
        _ => return Err(Problem::MayNotAct),
    };
    // A visitor who may not answer learns nothing else.
    visit.shared.flows.may_answer(&question, &by).await?;
    if form.get(SHOWN) != Some(&digest(&question)) {
        return Err(Problem::QuestionChanged);
    }
    let Some(verdict) = verdict(&question, form) else {
        return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, &question, None, Some(form)));
    };
    let kind = if matches!(verdict, Verdict::Deny { .. }) { ActionKind::Declined } else { ActionKind::Answered };
    visit.shared.flows.decide(&question, verdict, &by, Way::Desk).await?;
    visit.did(kind, Some(question.flow), &question.target);
    Ok(response::see(&visit.link(&path(&question))))
}

/// The path of a question's page.
pub(crate) fn path(question: &QuestionElsewhere) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    format!("/questions/{}/{}", question.flow, question.key.bytes().map(encoded).collect::<String>())
}

/// The latest question with this key.
async fn find(visit: Visit<'_>, id: FlowId, key: &str) -> Result<QuestionElsewhere, Problem> {
    let questions = visit.shared.flows.questions(id).await?;
    let found = questions.into_iter().filter(|question| question.key == key).max_by_key(|question| question.round);
    found.ok_or(Problem::NotFound)
}

/// Who answers. On a loopback address without sign-in, decisions are recorded as those of `local`.
fn actor(visit: Visit<'_>) -> Option<Principal> {
    let local = || visit.shared.loopback_only.then(|| Principal::new("local"));
    visit.visitor().principal().cloned().or_else(local)
}

/// Whether the visitor may answer, or why not.
async fn may_answer(visit: Visit<'_>, question: &QuestionElsewhere) -> Result<(), DecideError> {
    let not = |who: &str| DecideError::NotAllowed {
        who: who.to_owned(),
        approvers: "principals that are signed in".to_owned(),
    };
    match actor(visit) {
        Some(who) if visit.may(Permission::Answer) => visit.shared.flows.may_answer(question, &who).await,
        Some(who) => Err(not(who.as_str())),
        None => Err(not("a visitor without a principal")),
    }
}

/// What the visitor decides. None if the form is not filled in validly.
fn verdict(question: &QuestionElsewhere, form: &Form) -> Option<Verdict> {
    if form.has("deny") {
        return Some(Verdict::deny_because(form.get("reason").unwrap_or_default()));
    }
    match question.kind {
        ElsewhereKind::Form => {
            let asked = as_asked(question)?;
            Fields::of_question(0, &asked).read(form).ok().map(|content| Verdict::Answer(Value::Object(content)))
        }
        _ => Some(Verdict::Approve),
    }
}

/// The question in the form model that every host has.
fn as_asked(question: &QuestionElsewhere) -> Option<AskedQuestion> {
    let params = json!({"mode": "form", "message": question.message, "requestedSchema": question.schema.as_ref()?});
    AskedQuestion::from_json(&question.key, json!({"method": "elicitation/create", "params": params})).ok()
}

fn digest(question: &QuestionElsewhere) -> String {
    format!("{:?}", question.shown)
}

fn page(
    visit: Visit<'_>,
    status: StatusCode,
    question: &QuestionElsewhere,
    refused: Option<&DecideError>,
    entered: Option<&Form>,
) -> BoxResponse {
    let now = visit.shared.flows.now();
    let body = html! {
        p .note .above { "Question of " strong { (Text(&question.target)) } }
        h1 .asked { (Text(&question.message)) }
        dl .facts {
            (fact("Asked for", html! { @match &question.requester {
                Some(requester) => (Text(requester)),
                None => "a caller without a principal",
            } }))
            @if question.is_open && question.decision.is_none() {
                (fact("Time left", moment::left(now, question.until)))
            }
            @if visit.may(Permission::Read) {
                (fact("Flow", html! { a href=(visit.link(&format!("/flows/{}", question.flow))) { (Text(&question.target)) } }))
            }
        }
        @if let Some(arguments) = &question.arguments {
            h2 { "Arguments of the call" }
            (shown_json("Arguments of the call", arguments))
        }
        @match (&question.decision, refused) {
            (Some(decision), _) => (decided(decision, now)),
            (None, _) if !question.is_open => p .lead { "This question is closed: its call is " (question.status) "." },
            (None, Some(why)) => p .warning { (Text(&why.to_string())) },
            (None, None) => (decide_form(visit, question, entered)),
        }
    };
    let title = crate::content::line(&question.message, 60);
    let page = Page::new(&title).plain(!visit.may(Permission::Read));
    response::page(status, page.render(visit, body))
}

fn decide_form(visit: Visit<'_>, question: &QuestionElsewhere, entered: Option<&Form>) -> Markup {
    let path = path(question);
    html! {
        form .card .question-form method="post" action=(visit.link(&path)) novalidate {
            (visit.token(&path))
            input type="hidden" name=(SHOWN) value=(digest(question));
            @match question.kind {
                ElsewhereKind::Approval => (approval()),
                ElsewhereKind::Form => (form_fields(question, entered)),
                _ => p { "This question is answered on a page of the server's own." },
            }
        }
    }
}

fn approval() -> Markup {
    html! {
        div .field {
            label for="reason" { "Reason" }
            input #reason name="reason" type="text" autocomplete="off" maxlength="2000" aria-describedby="reason-hint";
            p #reason-hint .hint { "Recorded if you deny. Optional" }
        }
        div .buttons {
            button .primary type="submit" name="approve" value="1" { "Approve" }
            button .danger type="submit" name="deny" value="1" { "Deny" }
        }
    }
}

fn form_fields(question: &QuestionElsewhere, entered: Option<&Form>) -> Markup {
    let Some(asked) = as_asked(question) else { return html! { p .warning { "This form cannot be shown." } } };
    let mut fields = Fields::of_question(0, &asked);
    if let Some(form) = entered {
        // What is wrong is shown beside the fields.
        let _ = fields.read(form);
    }
    html! {
        (fields.render())
        div .buttons {
            button .primary type="submit" name="answer" value="1" { "Answer" }
            button type="submit" name="deny" value="1" { "Decline" }
        }
    }
}

/// What was decided, by whom, and whether it counts.
pub(super) fn decided(decision: &RecordedDecision, now: rounds::time::Timestamp) -> Markup {
    let (words, class) = match &decision.outcome {
        DecisionOutcome::Approved => ("Approved", "result"),
        DecisionOutcome::Denied { .. } => ("Denied", "warning"),
        DecisionOutcome::Answered { .. } => ("Answered", "result"),
        DecisionOutcome::Expired => ("Not decided in time", "warning"),
        _ => ("Decided", "result"),
    };
    html! {
        div class=(class) role="status" {
            p {
                strong { (words) }
                @if !decision.by.is_empty() { " by " (Text(&decision.by)) }
                ", " (moment::ago(now, decision.at)) "."
            }
            @if let DecisionOutcome::Denied { reason } = &decision.outcome {
                @if !reason.is_empty() { p { "Reason: " (Text(reason)) } }
            }
            @if let Some(why) = &decision.void { p { "It does not count: " (Text(why)) } }
        }
    }
}
