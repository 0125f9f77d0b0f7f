//! `rounds call`: a tool, a prompt or a resource of any MCP server.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use rmcp::model::JsonObject;
use rounds::client::Call;

use crate::{
    Failure,
    connection::{Address, Protocol},
    conversation::{Conversation, ConversationOptions},
    pair::Pair,
    terminal::clean,
};

pub(crate) const EXAMPLES: &str = r"Examples:
  rounds call http://127.0.0.1:8000/mcp weather_e location=Tokyo
  rounds call --stdio 'rounds serve --stdio' book_flight from=ZRH to=LIS date=2026-12-01
  rounds call http://127.0.0.1:8000/mcp weather_e location=Tokyo --answer units.units=metric
  rounds call http://127.0.0.1:8000/mcp --prompt plan_day --answer pace.pace=slow
  rounds call http://127.0.0.1:8000/mcp --resource weather://forecast/Tokyo --save question.json
  rounds resume question.json

Exit codes:
  0   the call ended with a result
  1   the tool reported an error, or there is no result: the error is on stderr
  2   the command line is invalid
  75  the call was saved, and waits for answers
  130 Ctrl-C: an open question was not answered; the effects of a leg in flight may have happened";

/// What to call, and where.
#[derive(Debug, Args)]
#[command(override_usage = "\
rounds call [OPTIONS] URL TOOL [NAME=TEXT | NAME:=JSON]...
       rounds call [OPTIONS] --stdio 'COMMAND ARGS' TOOL [NAME=TEXT | NAME:=JSON]...
       rounds call [OPTIONS] URL --prompt PROMPT [NAME=TEXT]...
       rounds call [OPTIONS] URL --resource URI")]
pub(crate) struct Options {
    /// The server's URL (not with --stdio), the tool's name, and its arguments: NAME=TEXT or NAME:=JSON
    #[arg(value_name = "WHAT", required = true)]
    what: Vec<String>,
    /// Start this command, and talk to it over its stdin and stdout
    #[arg(long, value_name = "COMMAND")]
    stdio: Option<String>,
    /// Get the prompt of this name instead of calling a tool
    #[arg(long, conflicts_with = "resource")]
    prompt: bool,
    /// Read the resource with this URI instead of calling a tool
    #[arg(long)]
    resource: bool,
    /// Protocol era to speak
    #[arg(long, value_enum, default_value_t)]
    era: Protocol,
    /// Stop at the first question that has no answer, save the call to this file, and exit with 75
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    conversation: ConversationOptions,
}

pub(crate) async fn call(options: Options) -> Result<ExitCode, Failure> {
    let mut what = options.what.iter();
    let server = match (&options.stdio, what.next()) {
        (Some(command), _) => {
            what = options.what.iter();
            Address::stdio(command)?
        }
        (None, Some(url)) => Address::url(url)?,
        (None, None) => return Err(usage("the URL is missing: write it first, or use --stdio COMMAND")),
    };
    let target = what
        .next()
        .ok_or_else(|| usage("the name of the tool, prompt or resource is missing: write it after the URL"))?;
    let arguments = arguments(what)?;
    let call = match (options.prompt, options.resource) {
        (true, _) => Call::prompt(target, arguments),
        (_, true) if !arguments.is_empty() => return Err(usage("a resource takes no arguments: remove them")),
        (_, true) => Call::resource(target),
        _ => Call::tool(target, arguments),
    };
    let Options { era, save, conversation: options, .. } = options;
    Conversation { options, server, era, save, resumed: None, trust: true }.hold(call.into()).await
}

fn arguments<'a>(pairs: impl Iterator<Item = &'a String>) -> Result<JsonObject, Failure> {
    let mut arguments = JsonObject::new();
    for text in pairs {
        let pair = Pair::parse(text);
        let Pair { name, value } = pair.map_err(|why| usage(&format!("{:?}: {why}", clean::short(text, 80))))?;
        arguments.insert(name, value.into_json());
    }
    Ok(arguments)
}

fn usage(why: &str) -> Failure {
    Failure::Usage(why.to_owned())
}
