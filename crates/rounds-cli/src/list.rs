//! `rounds list`: the tools, prompts and resources of any MCP server.

use std::{fmt::Write as _, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use rmcp::{
    RoleClient,
    model::{JsonObject, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, ServerCapabilities, Tool},
    service::{Peer, ServiceError},
};
use serde_json::{Value, json};

use crate::{
    Failure,
    answering::{Answering, Who},
    answers::Answers,
    bound::{self, Bound},
    connection::{Address, Connection, Protocol},
    duration, print, reason, show,
    status::Status,
    terminal::clean,
};

pub(crate) const EXAMPLES: &str = "Examples:
  rounds list http://127.0.0.1:8000/mcp
  rounds list --stdio 'rounds serve --stdio'
  rounds list http://127.0.0.1:8000/mcp --json";

/// Most pages that are read of one list. A server that has more is not asked for them.
const MOST_PAGES: usize = 100;
/// Most characters of a description that are shown.
const LONGEST: usize = 200;

/// Whose tools, prompts and resources to list.
#[derive(Debug, Args)]
#[command(override_usage = "rounds list [OPTIONS] URL\n       rounds list [OPTIONS] --stdio 'COMMAND ARGS'")]
pub(crate) struct Options {
    /// The server's URL
    #[arg(required_unless_present = "stdio", conflicts_with = "stdio")]
    url: Option<String>,
    /// Start this command, and talk to it over its stdin and stdout
    #[arg(long, value_name = "COMMAND")]
    stdio: Option<String>,
    /// Protocol era to speak
    #[arg(long, value_enum, default_value_t)]
    era: Protocol,
    /// Bearer token for HTTP requests
    #[arg(long, value_name = "TOKEN", env = "ROUNDS_BEARER", hide_env_values = true)]
    bearer: Option<String>,
    /// How long the server may take in total, including the connection
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    timeout: Duration,
    /// Limit on the size of one message of the server: 65536, 512KiB, 16MiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bound::parse)]
    response_limit: usize,
    /// Print the list as JSON, with the schemas
    #[arg(long)]
    json: bool,
}

pub(crate) async fn list(options: Options) -> Result<ExitCode, Failure> {
    let server = match (&options.stdio, &options.url) {
        (Some(command), _) => Address::stdio(command)?,
        (None, Some(url)) => Address::url(url)?,
        (None, None) => return Err(Failure::Usage("the URL is missing: write it, or use --stdio COMMAND".to_owned())),
    };
    let (answering, _) = Answering::new(Who::Prepared(Answers::none()), Status::new(None, false), None);
    let bound = Bound::new(options.response_limit);
    let bearer = options.bearer.as_deref();
    let listed = async {
        let answering = Arc::new(answering);
        let opened = Connection::open(&server, options.era, bearer, answering, options.timeout, &bound).await;
        let connection = opened.map_err(|failure| bound.error().map_or(failure, Failure::from))?;
        let listed = Listed::of(connection.client.peer()).await;
        connection.close().await;
        listed.map_err(|error| bound.error().map_or_else(|| Failure::Lost(reason::lost(&error)), Failure::from))
    };
    let listed = tokio::time::timeout(options.timeout, listed).await.map_err(|_| Failure::Slow(options.timeout))??;
    let text = if options.json { format!("{:#}\n", listed.json()) } else { listed.text() };
    print(&show::for_stdout(text)).map(|()| ExitCode::SUCCESS)
}

/// What a server offers.
struct Listed {
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
}

/// Reads all pages of a list, if the server declares that it has the list.
macro_rules! pages {
    ($peer:ident, $declared:expr, $list:ident, $items:ident) => {{
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..if $declared { MOST_PAGES } else { 0 } {
            let page = $peer.$list(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
            items.extend(page.$items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        items
    }};
}

impl Listed {
    async fn of(peer: &Peer<RoleClient>) -> Result<Self, ServiceError> {
        let declared = peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        let ServerCapabilities { tools, prompts, resources, .. } = declared;
        Ok(Self {
            tools: pages!(peer, tools.is_some(), list_tools, tools),
            prompts: pages!(peer, prompts.is_some(), list_prompts, prompts),
            resources: pages!(peer, resources.is_some(), list_resources, resources),
            templates: pages!(peer, resources.is_some(), list_resource_templates, resource_templates),
        })
    }

    fn json(&self) -> Value {
        let Self { tools, prompts, resources, templates } = self;
        json!({"tools": tools, "prompts": prompts, "resources": resources, "resourceTemplates": templates})
    }

    /// One entry for each, as `rounds call` takes it.
    fn text(&self) -> String {
        let mut text = String::new();
        section(&mut text, "Tools", self.tools.iter().map(|tool| (usage(tool), tool.description.as_deref())));
        section(
            &mut text,
            "Prompts",
            self.prompts.iter().map(|prompt| (prompt_usage(prompt), prompt.description.as_deref())),
        );
        let resource = |resource: &Resource| format!("--resource {}", resource.uri);
        section(&mut text, "Resources", self.resources.iter().map(|one| (resource(one), one.description.as_deref())));
        let template = |template: &ResourceTemplate| format!("--resource {}", template.uri_template);
        section(&mut text, "Resources", self.templates.iter().map(|one| (template(one), one.description.as_deref())));
        if text.is_empty() { "The server lists no tools, prompts or resources.\n".to_owned() } else { text }
    }
}

fn section<'a>(text: &mut String, title: &str, entries: impl Iterator<Item = (String, Option<&'a str>)>) {
    for (at, (usage, description)) in entries.enumerate() {
        if at == 0 && !text.contains(&format!("{title}:\n")) {
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{gap}{title}:");
        }
        let _ = writeln!(text, "  {}", clean::line(&usage));
        if let Some(description) = description.filter(|description| !description.trim().is_empty()) {
            let _ = writeln!(text, "      {}", clean::short(description, LONGEST));
        }
    }
}

/// A tool and its arguments: required ones first.
fn usage(tool: &Tool) -> String {
    let schema = &tool.input_schema;
    let required = |name: &str| {
        schema.get("required").and_then(Value::as_array).into_iter().flatten().any(|required| required == name)
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let arguments = properties.into_iter().flatten().map(|(name, property)| (required(name), argument(name, property)));
    with_arguments(&tool.name, arguments)
}

fn prompt_usage(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten();
    let arguments = arguments.map(|argument| (argument.required == Some(true), format!("{}=TEXT", argument.name)));
    with_arguments(&format!("--prompt {}", prompt.name), arguments)
}

fn with_arguments(name: &str, arguments: impl Iterator<Item = (bool, String)>) -> String {
    let (required, optional): (Vec<_>, Vec<_>) = arguments.partition(|(is_required, _)| *is_required);
    let required = required.into_iter().map(|(_, argument)| format!(" {argument}"));
    let optional = optional.into_iter().map(|(_, argument)| format!(" [{argument}]"));
    required.chain(optional).fold(name.to_owned(), |usage, argument| usage + &argument)
}

/// An argument as it is typed. What is not plain text is JSON.
fn argument(name: &str, property: &Value) -> String {
    let property = property.as_object().cloned().unwrap_or_default();
    let kinds = kinds(&property);
    match kinds.as_slice() {
        [] => format!("{name}:=JSON"),
        kinds if kinds.contains(&"string") => format!("{name}=TEXT"),
        [kind, ..] => format!("{name}:={}", kind.to_uppercase()),
    }
}

/// The types that a property may have, without `null`.
fn kinds(property: &JsonObject) -> Vec<&str> {
    match property.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ if property
            .get("enum")
            .and_then(Value::as_array)
            .is_some_and(|values| values.iter().all(Value::is_string)) =>
        {
            vec!["string"]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::object;

    use super::*;

    #[test]
    fn arguments_are_shown_as_they_are_typed() {
        let schema = object!({
            "type": "object", "required": ["to", "seats"],
            "properties": {
                "class": {"enum": ["Y", "C"]}, "note": {"type": ["string", "null"]}, "odd": {},
                "seats": {"type": "integer"}, "to": {"type": "string"}, "via": {"type": ["array", "null"]},
            },
        });
        let tool = Tool::new("book", "Books", schema);
        assert_eq!(usage(&tool), "book seats:=INTEGER to=TEXT [class=TEXT] [note=TEXT] [odd:=JSON] [via:=ARRAY]");
        assert_eq!(usage(&Tool::new("audit", "", JsonObject::new())), "audit");
    }
}
