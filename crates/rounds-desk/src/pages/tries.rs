//! "Try it": every tool as a form, and the call as it happens, with both sides of the wire.

mod runs;
mod wire;

use http::StatusCode;
use maud::{Markup, html};
use rmcp::model::JsonObject;
use rounds::{
    client::{AskedQuestion, Field},
    observe::QuestionKind,
};
use serde_json::{Map, Value, json};

use super::Page;
use crate::{
    action::ActionKind,
    check::Permission,
    content::Text,
    fields::Fields,
    forms::Form,
    problem::Problem,
    response::{self, BoxResponse},
    service::Visit,
    tried::{self, Calls, Leg, Tool, TriedCall},
};

/// The page without a call: the tools, and the form of one of them.
pub(crate) async fn show(visit: Visit<'_>) -> Result<BoxResponse, Problem> {
    calls(visit)?;
    let tools = tried::tools(visit.shared, visit.visitor().principal()).await?;
    let wanted = visit.query("tool");
    let tool = match &wanted {
        Some(name) => Some(tools.iter().find(|tool| tool.name == *name).ok_or(Problem::NotFound)?),
        None => tools.first(),
    };
    let form = tool.map(|tool| tool_form(visit, tool, None));
    Ok(page(
        visit,
        StatusCode::OK,
        &tools,
        tool.map(|tool| &*tool.name),
        html! {
            @match form { Some(form) => (form), None => p .lead { "This server has no tools." } }
            (wire::section(&[]))
            (runs::section(visit, None))
        },
        false,
    ))
}

/// Calls a tool, if its arguments are valid.
pub(crate) async fn call(visit: Visit<'_>, form: &Form) -> Result<BoxResponse, Problem> {
    let calls = calls(visit)?;
    let principal = visit.visitor().principal();
    let tools = tried::tools(visit.shared, principal).await?;
    let tool = tools.iter().find(|tool| Some(&*tool.name) == form.get("tool")).ok_or(Problem::NotFound)?;
    let Some(arguments) = arguments(tool, form) else {
        let form = tool_form(visit, tool, Some(form));
        let body = html! { (form) (wire::section(&[])) (runs::section(visit, None)) };
        return Ok(page(visit, StatusCode::UNPROCESSABLE_ENTITY, &tools, Some(&tool.name), body, false));
    };
    let call = calls.keep(TriedCall::new(principal.cloned(), tool.name.clone(), arguments));
    tried::begin(visit.shared, &call, "Call", Leg::First)?;
    visit.did(ActionKind::Tried, None, &call.tool);
    call.soon().await;
    Ok(response::see(&visit.link(&format!("/try/{}", call.id))))
}

/// The page of a call.
pub(crate) async fn show_call(visit: Visit<'_>, id: &str) -> Result<BoxResponse, Problem> {
    let call = find(visit, id)?;
    let tools = tried::tools(visit.shared, visit.visitor().principal()).await?;
    Ok(call_page(visit, &tools, &call, None))
}

/// Sends the next leg of a call: answers, a refusal, the same leg again, or a changed state.
pub(crate) async fn next_leg(visit: Visit<'_>, id: &str, form: &Form) -> Result<BoxResponse, Problem> {
    let call = find(visit, id)?;
    let (title, leg) = if form.has("again") {
        let before = call.repeatable().ok_or(Problem::QuestionChanged)?;
        ("Send the same leg again", Leg::Again(before.request))
    } else {
        let asked = call.asked().ok_or(Problem::QuestionChanged)?;
        let state = asked.state().unwrap_or_default().to_owned();
        // The form is that of the state which it was rendered for.
        if form.get("leg").and_then(|leg| leg.parse().ok()) != Some(call.legs().len()) {
            return Err(Problem::QuestionChanged);
        }
        let questions = asked.questions();
        match Intent::of(form) {
            Intent::Decline => ("Decline", Leg::Answers { state, answers: refusals(&questions) }),
            Intent::Change => {
                let answers = answers(&questions, form).unwrap_or_else(|| refusals(&questions));
                ("Answer with a changed state", Leg::Changed { state, answers })
            }
            Intent::Answer => match answers(&questions, form) {
                Some(answers) => ("Answer", Leg::Answers { state, answers }),
                None => {
                    let tools = tried::tools(visit.shared, visit.visitor().principal()).await?;
                    return Ok(call_page(visit, &tools, &call, Some(form)));
                }
            },
        }
    };
    tried::begin(visit.shared, &call, title, leg)?;
    visit.did(ActionKind::Tried, None, &call.tool);
    call.soon().await;
    Ok(response::see(&visit.link(&format!("/try/{}", call.id))))
}

/// The journal of a durable handler, as the latest state has it.
pub(crate) fn journal(visit: Visit<'_>, id: &str) -> Result<BoxResponse, Problem> {
    let call = find(visit, id)?;
    let journal = wire::journal(visit, &call.legs()).ok_or(Problem::NotFound)?;
    Ok(response::download(&format!("journal-{}.json", call.id), "application/json", journal))
}

/// What the visitor wants to do with a question.
enum Intent {
    Answer,
    Decline,
    Change,
}

impl Intent {
    fn of(form: &Form) -> Self {
        match (form.has("decline"), form.has("change")) {
            (true, _) => Self::Decline,
            (_, true) => Self::Change,
            _ => Self::Answer,
        }
    }
}

fn calls<'a>(visit: Visit<'a>) -> Result<&'a Calls, Problem> {
    visit.shared.calls.as_ref().ok_or(Problem::NotFound)
}

fn find(visit: Visit<'_>, id: &str) -> Result<std::sync::Arc<TriedCall>, Problem> {
    calls(visit)?.find(id, visit.visitor().principal())
}

/// The arguments of a call, if they are valid.
fn arguments(tool: &Tool, form: &Form) -> Option<JsonObject> {
    match &tool.fields {
        Ok(fields) => Fields::new("a", fields).read(form).ok(),
        Err(_) => serde_json::from_str(form.get("arguments")?).ok(),
    }
}

/// The answers to all questions, if they are valid.
fn answers(questions: &[AskedQuestion], form: &Form) -> Option<Map<String, Value>> {
    let mut answers = Map::new();
    for (number, question) in questions.iter().enumerate() {
        let answer = match question.kind() {
            QuestionKind::Form => {
                json!({"action": "accept", "content": Fields::of_question(number, question).read(form).ok()?})
            }
            QuestionKind::Url => json!({"action": "accept"}),
            _ => return None,
        };
        answers.insert(question.key().to_owned(), answer);
    }
    Some(answers)
}

fn refusals(questions: &[AskedQuestion]) -> Map<String, Value> {
    questions.iter().map(|question| (question.key().to_owned(), json!({"action": "decline"}))).collect()
}

fn call_page(visit: Visit<'_>, tools: &[Tool], call: &TriedCall, entered: Option<&Form>) -> BoxResponse {
    let (legs, runs) = (call.legs(), call.runs());
    let tool = tools.iter().find(|tool| tool.name == call.tool);
    let status = if entered.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let body = html! {
        @if let Some(tool) = tool {
            div .title {
                h2 { (Text(&tool.name)) }
                a href=(visit.link(&tool_path(&tool.name))) { "Begin another call" }
            }
        }
        div #outcome role="status" { (wire::outcome(&legs, runs::refusal(call))) }
        (question_form(visit, call, entered))
        (again_form(visit, call))
        (wire::section(&legs))
        (runs::section(visit, Some(call)))
        (wire::inside(visit, call))
    };
    page(visit, status, tools, Some(&call.tool), body, runs)
}

/// The frame of "Try it": the tools on one side, and what happens on the other.
fn page(
    visit: Visit<'_>,
    status: StatusCode,
    tools: &[Tool],
    current: Option<&str>,
    body: Markup,
    reloads: bool,
) -> BoxResponse {
    let body = html! {
        h1 { "Try it" }
        div .bench {
            nav .tools aria-label="Tools" {
                ul {
                    @for tool in tools {
                        @let chosen = (Some(&*tool.name) == current).then_some("true");
                        li { a href=(visit.link(&tool_path(&tool.name))) aria-current=[chosen] { (Text(&tool.name)) } }
                    }
                }
            }
            div .call { (body) }
        }
    };
    response::page(status, Page::new("Try it").tab("/try").reloads(reloads).render(visit, body))
}

fn tool_path(name: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("tool", name).finish();
    format!("/try?{query}")
}

fn tool_form(visit: Visit<'_>, tool: &Tool, entered: Option<&Form>) -> Markup {
    let may_act = visit.may(Permission::Act);
    html! {
        h2 { (Text(&tool.name)) }
        @if !tool.description.is_empty() { p .lead { (Text(&tool.description)) } }
        form .card method="post" action=(visit.link("/try")) novalidate {
            (visit.token("/try"))
            input type="hidden" name="tool" value=(tool.name);
            @match &tool.fields {
                Ok(fields) => (tool_fields(fields, entered)),
                Err(why) => (raw_arguments(why, entered)),
            }
            @if may_act { button .primary type="submit" { "Call" } }
            @else { p .note { "You may read here, and you may not call tools." } }
        }
    }
}

fn tool_fields(fields: &[Field], entered: Option<&Form>) -> Markup {
    let mut shown = Fields::new("a", fields);
    if let Some(form) = entered {
        // What is wrong is shown beside the fields.
        let _ = shown.read(form);
    }
    html! { (shown.render()) @if fields.is_empty() { p .note { "This tool has no arguments." } } }
}

/// For arguments that the form model cannot show.
fn raw_arguments(why: &str, entered: Option<&Form>) -> Markup {
    let text = entered.and_then(|form| form.get("arguments")).unwrap_or("{}");
    html! {
        div .field {
            label for="arguments" { "Arguments" }
            textarea #arguments name="arguments" rows="6" spellcheck="false" aria-describedby="arguments-hint" { (Text(text)) }
            p #arguments-hint .hint { "A JSON object. The schema of this tool cannot be shown as a form: " (Text(why)) }
            @if entered.is_some() { p .problem { "This must be a JSON object." } }
        }
    }
}

fn question_form(visit: Visit<'_>, call: &TriedCall, entered: Option<&Form>) -> Markup {
    let Some(asked) = call.asked() else { return html! {} };
    let path = format!("/try/{}", call.id);
    let questions = asked.questions();
    let can_be_answered =
        questions.iter().all(|question| matches!(question.kind(), QuestionKind::Form | QuestionKind::Url));
    html! {
        form .card .question-form method="post" action=(visit.link(&path)) novalidate {
            (visit.token(&path))
            input type="hidden" name="leg" value=(call.legs().len());
            @for (number, question) in questions.iter().enumerate() { (one_question(number, question, entered)) }
            @if visit.may(Permission::Act) {
                div .buttons {
                    @if can_be_answered { button .primary type="submit" name="answer" value="1" { "Answer" } }
                    button type="submit" name="decline" value="1" { "Decline" }
                    button .quiet type="submit" name="change" value="1" { "Change one character of the state" }
                }
            }
        }
    }
}

fn one_question(number: usize, question: &AskedQuestion, entered: Option<&Form>) -> Markup {
    let mut fields = Fields::of_question(number, question);
    if let Some(form) = entered {
        // What is wrong is shown beside the fields.
        let _ = fields.read(form);
    }
    html! {
        section .one-question {
            h3 { (Text(question.message())) }
            @if let Some(url) = question.url() { p { "The server wants you to visit " code { (Text(url)) } } }
            (fields.render())
        }
    }
}

/// What else can be done with a call: send its last leg once more.
fn again_form(visit: Visit<'_>, call: &TriedCall) -> Markup {
    let can = call.repeatable().is_some() && !call.runs() && visit.may(Permission::Act);
    let path = format!("/try/{}", call.id);
    html! {
        @if can {
            form .again method="post" action=(visit.link(&path)) {
                (visit.token(&path))
                button type="submit" name="again" value="1" { "Send the same leg again" }
            }
        }
    }
}
