//! The journal of a durable handler, and its download for a replay before a deploy.

use maud::{Markup, html};
use rounds::{
    FlowId,
    register::{FlowDetails, NoJournal},
};

use crate::{
    content::{Text, code},
    problem::Problem,
    response::{self, BoxResponse},
    service::Visit,
};

/// The journal as the file that `rounds::test::replay` reads.
pub(crate) async fn download(visit: Visit<'_>, id: FlowId) -> Result<BoxResponse, Problem> {
    let flows = &visit.shared.flows;
    let record = flows.get(id).await?.ok_or(Problem::NotFound)?;
    let details = flows.details(&record)?;
    let journal = details.journal()?.to_json();
    Ok(response::download(&file(record.summary.id), "application/json", journal))
}

fn file(id: FlowId) -> String {
    format!("journal-{id}.json")
}

pub(crate) fn render(visit: Visit<'_>, id: FlowId, details: &FlowDetails) -> Markup {
    let journal = match details.journal() {
        Ok(journal) => journal,
        Err(NoJournal::NotDurable) => {
            return html! { p .note { "None: this handler is not durable, so its answers are in its state." } };
        }
        Err(why) => return html! { p .note { (why) "." } },
    };
    let entries: Vec<_> = journal.entries().collect();
    html! {
        @if entries.is_empty() { p .note { "Nothing is recorded yet." } }
        ol .stations { @for entry in &entries { li { (Text(entry)) } } }
        details { summary { "Contents" } (code("Contents of the journal", &pretty(&journal.to_json()))) }
        details { summary { "As a test" } (code("The journal as a test", &test(id, details))) }
        p { a .button href=(visit.link(&format!("/flows/{id}/journal"))) download=(file(id)) { "Download the journal" } }
    }
}

fn pretty(json: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(json).and_then(|value| serde_json::to_string_pretty(&value));
    value.unwrap_or_else(|_| json.to_owned())
}

/// A test that replays the journal with the code that is to be deployed.
fn test(id: FlowId, details: &FlowDetails) -> String {
    let tool = details.target.as_deref().unwrap_or_default();
    let arguments = details.arguments.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
    let marks = "#".repeat(1 + arguments.matches("\"#").count());
    format!(
        "let saved = include_str!(\"{}\");\n\
         let arguments = serde_json::from_str(r{marks}\"{arguments}\"{marks})?;\n\
         let replayed = rounds::test::replay(&server, {tool:?}, arguments, saved).await;\n\
         assert!(!matches!(replayed, rounds::test::Replayed::Diverged {{ .. }}), \"{{replayed:?}}\");",
        file(id)
    )
}
