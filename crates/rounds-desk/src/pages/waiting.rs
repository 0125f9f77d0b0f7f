//! The first page: what waits for people, oldest first.

use http::StatusCode;
use maud::{Markup, html};
use rounds::{
    register::{FlowCounts, FlowCursor, FlowDetails, FlowQuery, FlowStatus, FlowSummary, Flows},
    time::Timestamp,
};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Page, number, status};
use crate::{
    content::{Text, line},
    moment,
    problem::Problem,
    response::{self, BoxResponse},
    service::Visit,
};

/// How many flows are on a page.
const ROWS: usize = 50;

/// How many tools the counts are shown for.
const TOOLS: usize = 12;

/// How many characters of a question a row shows.
const QUESTION: usize = 160;

pub(crate) async fn show(visit: Visit<'_>) -> Result<BoxResponse, Problem> {
    let asked = Asked::of(visit);
    let flows = &visit.shared.flows;
    let page = flows.list(asked.query().most(ROWS)).await?;
    let counts = visit.shared.counting.of(asked.status).await?;
    let rows = rows(flows, page.flows).await;
    let next = page.next.map(|cursor| asked.link(visit, asked.tool.as_deref(), Some(cursor)));
    let title = asked.title();
    let body = html! {
        div .title { h1 #list-title { (title) } (total(&counts, &asked)) }
        (asked.filter(visit))
        (by_tool(visit, &counts, &asked))
        div #rows data-live {
            (table(visit, &rows, title, flows.now()))
            @if rows.is_empty() { (nothing(visit, &asked)) }
        }
        nav .more aria-label="More flows" {
            @if asked.after.is_some() { a href=(asked.link(visit, asked.tool.as_deref(), None)) { "Oldest" } }
            @if let Some(next) = next { a rel="next" href=(next) { "Newer" } }
        }
    };
    Ok(response::page(StatusCode::OK, Page::new(title).tab("/").events("/events".to_owned()).render(visit, body)))
}

/// What the visitor wants to see.
struct Asked {
    /// None for every status.
    status: Option<FlowStatus>,
    tool: Option<String>,
    after: Option<FlowCursor>,
}

impl Asked {
    fn of(visit: Visit<'_>) -> Self {
        let status = match visit.query("status").as_deref() {
            None => Some(FlowStatus::Waiting),
            Some("all") => None,
            Some(name) => Some(name.parse().unwrap_or(FlowStatus::Waiting)),
        };
        let cursor = |text: String| {
            let (created, id) = text.split_once('-')?;
            Some(FlowCursor { created: Timestamp::from_millis(created.parse().ok()?), id: id.parse().ok()? })
        };
        Self { status, tool: visit.query("tool"), after: visit.query("after").and_then(cursor) }
    }

    fn title(&self) -> &'static str {
        match self.status {
            None => "All flows",
            Some(FlowStatus::Waiting) => "Waiting",
            Some(FlowStatus::Working) => "Working",
            Some(FlowStatus::Completed) => "Completed",
            Some(FlowStatus::Failed) => "Failed",
            Some(FlowStatus::Cancelled) => "Cancelled",
            Some(FlowStatus::Expired) => "Expired",
            Some(_) => "Flows",
        }
    }

    fn query(&self) -> FlowQuery {
        let mut query = FlowQuery::new();
        if let Some(status) = self.status {
            query = query.status(status);
        }
        if let Some(tool) = &self.tool {
            query = query.target(tool);
        }
        match self.after {
            Some(after) => query.after(after),
            None => query,
        }
    }

    fn link(&self, visit: Visit<'_>, tool: Option<&str>, after: Option<FlowCursor>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        match self.status {
            Some(FlowStatus::Waiting) => {}
            Some(status) => {
                query.append_pair("status", status.as_str());
            }
            None => {
                query.append_pair("status", "all");
            }
        }
        if let Some(tool) = tool {
            query.append_pair("tool", tool);
        }
        if let Some(FlowCursor { created, id }) = after {
            query.append_pair("after", &format!("{}-{id}", created.as_millis()));
        }
        let query = query.finish();
        let mark = if query.is_empty() { "" } else { "?" };
        visit.link(&format!("/{mark}{query}"))
    }

    fn filter(&self, visit: Visit<'_>) -> Markup {
        let option = |value: &str, label: &str, is_chosen: bool| {
            html! { option value=(value) selected[is_chosen] { (label) } }
        };
        html! {
            form .filter method="get" action=(visit.link("/")) role="search" {
                div {
                    label for="tool" { "Tool" }
                    input #tool name="tool" type="search" autocomplete="off" value=[self.tool.as_deref().map(clean)];
                }
                div {
                    label for="status" { "Status" }
                    select #status name="status" {
                        @for status in FlowStatus::ALL {
                            (option(status.as_str(), status.as_str(), self.status == Some(status)))
                        }
                        (option("all", "all", self.status.is_none()))
                    }
                }
                button type="submit" { "Filter" }
            }
        }
    }
}

fn clean(text: &str) -> String {
    crate::content::visible(text)
}

/// How many flows there are, of the chosen tool or of all.
fn total(counts: &FlowCounts, asked: &Asked) -> Markup {
    let count = match &asked.tool {
        Some(tool) => counts.by_target.get(tool).copied().unwrap_or_default(),
        None => counts.total(),
    };
    let flows = if count == 1 && counts.is_whole { "flow" } else { "flows" };
    html! { p #total .total data-live { (number(count)) @if !counts.is_whole { "+" } " " (flows) } }
}

fn by_tool(visit: Visit<'_>, counts: &FlowCounts, asked: &Asked) -> Markup {
    let mut tools: Vec<_> = counts.by_target.iter().collect();
    tools.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let more = tools.len().saturating_sub(TOOLS);
    html! {
        nav #counts .counts data-live aria-label="Counts by tool" {
            @if tools.len() > 1 || asked.tool.is_some() {
                ul {
                    @if asked.tool.is_some() {
                        li { a href=(asked.link(visit, None, None)) { "All tools" } }
                    }
                    @for (tool, count) in tools.into_iter().take(TOOLS) {
                        @let current = (asked.tool.as_ref() == Some(tool)).then_some("true");
                        li {
                            a href=(asked.link(visit, Some(tool), None)) aria-current=[current] {
                                (Text(tool)) " " span .count { (number(*count)) }
                            }
                        }
                    }
                    @if more > 0 { li .note { "and " (more) " more" } }
                }
                @if !counts.is_whole { p .note { "The first " (number(counts.total())) " flows are counted." } }
            }
        }
    }
}

struct Row {
    flow: FlowSummary,
    question: String,
}

fn table(visit: Visit<'_>, rows: &[Row], title: &str, now: Timestamp) -> Markup {
    html! {
        @if !rows.is_empty() {
            table aria-label=(title) {
                thead {
                    tr {
                        th scope="col" { "Tool" }
                        th scope="col" { "Question" }
                        th scope="col" { "Status" }
                        th scope="col" { "Since" }
                        th scope="col" { "Time left" }
                    }
                }
                tbody {
                    @for Row { flow, question } in rows {
                        tr {
                            th scope="row" { a href=(visit.link(&format!("/flows/{}", flow.id))) { (Text(&flow.target)) } }
                            td .question data-label="Question" { (Text(question)) }
                            td data-label="Status" { (status(flow.status)) }
                            td data-label="Since" { (moment::ago(now, flow.changed)) }
                            td data-label="Time left" {
                                @if flow.status.is_open() { (moment::left(now, flow.open_until)) } @else { "–" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn nothing(visit: Visit<'_>, asked: &Asked) -> Markup {
    let waits = asked.status == Some(FlowStatus::Waiting) && asked.tool.is_none();
    html! {
        div .empty {
            p .lead { @if waits { "Nothing waits." } @else { "There is no such flow." } }
            @if waits {
                p {
                    "A call that asks its user a question appears here until it is answered."
                    @if visit.shared.calls.is_some() {
                        " To see one, " a href=(visit.link("/try")) { "call a tool" } "."
                    }
                }
            }
        }
    }
}

/// The rows of a page. Their records are read at the same time, because a store may be far away.
async fn rows(flows: &Flows, summaries: Vec<FlowSummary>) -> Vec<Row> {
    let mut reading = JoinSet::new();
    for (place, flow) in summaries.into_iter().enumerate() {
        let flows = flows.clone();
        reading.spawn(async move { (place, Row { question: question(&flows, &flow).await, flow }) });
    }
    let mut rows = reading.join_all().await;
    rows.sort_by_key(|(place, _)| *place);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// What a flow asks, on one line. Empty if its record is gone.
async fn question(flows: &Flows, flow: &FlowSummary) -> String {
    let Ok(Some(record)) = flows.get(flow.id).await else { return String::new() };
    match flows.details(&record) {
        Ok(details) => line(&asked_last(&details).unwrap_or_default(), QUESTION),
        Err(_) => "The record does not open with the keys of this server.".to_owned(),
    }
}

/// The messages of the latest questions.
pub(crate) fn asked_last(details: &FlowDetails) -> Option<String> {
    let round = details.rounds.iter().max_by_key(|round| round.number)?;
    let questions = round.questions.as_ref()?.as_object()?;
    let messages: Vec<&str> = questions.values().map(message).collect();
    Some(messages.join(" · "))
}

/// The message of a question as it is on the wire.
pub(crate) fn message(question: &Value) -> &str {
    let message = question.get("params").and_then(|params| params.get("message")).and_then(Value::as_str);
    message.unwrap_or_else(|| match question.get("method").and_then(Value::as_str) {
        Some("sampling/createMessage") => "wants to use the client's model",
        Some("roots/list") => "wants to know the client's roots",
        _ => "asks",
    })
}
