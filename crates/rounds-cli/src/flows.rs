//! `rounds flows`: what the servers of a store know of their flows.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::{ArgGroup, Args, Subcommand, builder::NonEmptyStringValueParser};
use rounds::{
    FlowId, KeyRing, Principal,
    elsewhere::{QuestionElsewhere, Verdict, Way},
    register::{FlowDetails, FlowQuery, FlowRecord, FlowStatus, FlowSummary, Flows},
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{Failure, keys::AUDIENCE, print, show, store::StoreUrl, terminal::clean};

pub(crate) const EXAMPLES: &str = "\
Examples:
  rounds flows --store sqlite:rounds.db --key-file keys --status waiting
  rounds flows show 0123456789abcdef0123456789abcdef --store redis://127.0.0.1/ --key-file keys
  rounds flows cancel 0123456789abcdef0123456789abcdef --store redis://127.0.0.1/ --key-file keys
  rounds flows decide 0123456789abcdef0123456789abcdef --approve --as grace --store sqlite:rounds.db --key-file keys";

/// Which flows to list, and where they are.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// The store of the servers: sqlite:FILE, postgres://..., or redis://...
    #[arg(long, value_name = "URL", global = true)]
    store: Option<StoreUrl>,
    /// The key file of the servers
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// The audience of the servers
    #[arg(long, value_name = "NAME", default_value = AUDIENCE, value_parser = NonEmptyStringValueParser::new(), global = true)]
    audience: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// List only flows with this status: working, waiting, completed, failed, cancelled or expired
    #[arg(long, value_name = "STATUS")]
    status: Option<FlowStatus>,
    /// List only flows of this tool or prompt
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show one flow: its timeline, and what the keys open
    Show {
        /// The id of the flow, or its name in logs
        id: FlowId,
    },
    /// Decide a question that is answered elsewhere, in the name of a person
    ///
    /// The person has to be one who may answer, by the rule of the question. The record says that the decision came from
    /// the command line. A rule in the code of the server cannot be applied here.
    #[command(verbatim_doc_comment, group(ArgGroup::new("verdict").required(true).args(["approve", "deny"])))]
    Decide {
        /// The id of the flow, or its name in logs
        id: FlowId,
        /// The key of the question, if the flow waits for several
        #[arg(long, value_name = "KEY")]
        question: Option<String>,
        /// Approve
        #[arg(long)]
        approve: bool,
        /// Deny
        #[arg(long)]
        deny: bool,
        /// Why it is denied
        #[arg(long, value_name = "TEXT", requires = "deny")]
        reason: Option<String>,
        /// The name of the person who decides
        #[arg(long = "as", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        who: String,
        /// A role that the person has. Can be repeated
        #[arg(long, value_name = "ROLE")]
        role: Vec<String>,
    },
    /// Cancel a flow: its state is refused from then on, and its handler is dropped
    Cancel {
        /// The id of the flow, or its name in logs
        id: FlowId,
    },
}

/// Lists, shows, decides or cancels flows.
pub(crate) async fn flows(options: Options) -> Result<ExitCode, Failure> {
    crate::log::to_stderr(None)?;
    let flows = options.open().await?;
    match options.command {
        None => print(&options.list(&flows).await?)?,
        Some(Command::Show { id }) => print(&options.show(&flows, id).await?)?,
        Some(Command::Cancel { id }) => print(&cancel(&flows, id).await?)?,
        Some(Command::Decide { id, question, approve, reason, who, role, .. }) => {
            let verdict = if approve { Verdict::Approve } else { Verdict::deny_because(reason.unwrap_or_default()) };
            let flows = flows.with_roles(move |_: &Principal| role.clone());
            print(&decide(&flows, id, question.as_deref(), verdict, &who).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    async fn open(&self) -> Result<Flows, Failure> {
        let missing = |option: &str, what: &str| Failure::Usage(format!("name {what} with {option}"));
        let store = self.store.as_ref().ok_or_else(|| missing("--store URL", "the store of the servers"))?;
        let file = self.key_file.as_ref().ok_or_else(|| missing("--key-file FILE", "their key file"))?;
        let keys = KeyRing::from_file(file)?;
        store.flows(&keys, &self.audience).await
    }

    async fn list(&self, flows: &Flows) -> Result<String, Failure> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut query = FlowQuery::new().most(500);
            if let Some(status) = self.status {
                query = query.status(status);
            }
            if let Some(tool) = &self.tool {
                query = query.target(tool);
            }
            if let Some(after) = after {
                query = query.after(after);
            }
            let page = flows.list(query).await?;
            found.extend(page.flows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(match self.json {
            true => format!("{:#}\n", Value::from(found.iter().map(summary_json).collect::<Vec<_>>())),
            false => table(&found),
        })
    }

    async fn show(&self, flows: &Flows, id: FlowId) -> Result<String, Failure> {
        let record = flows.get(id).await?.ok_or(Failure::NoFlow(id))?;
        let details = flows.details(&record)?;
        Ok(match self.json {
            true => format!("{:#}\n", record_json(&record, &details)),
            false => show::for_stdout(described(&record, &details)),
        })
    }
}

async fn cancel(flows: &Flows, id: FlowId) -> Result<String, Failure> {
    match flows.cancel(id, "cancelled with `rounds flows cancel`").await? {
        None => Err(Failure::NoFlow(id)),
        Some(before) if before.is_open() => Ok(format!("cancelled {id}\n")),
        Some(before) => Err(Failure::FlowEnded(before)),
    }
}

/// Decides the open question of a flow.
async fn decide(flows: &Flows, id: FlowId, key: Option<&str>, verdict: Verdict, who: &str) -> Result<String, Failure> {
    if flows.get(id).await?.is_none() {
        return Err(Failure::NoFlow(id));
    }
    let questions = flows.questions(id).await?;
    let is_meant = |question: &&QuestionElsewhere| key.is_none_or(|key| question.key == key);
    let mut meant = questions.iter().filter(is_meant).rev();
    let question = match (meant.next(), meant.any(|question| question.is_open)) {
        (Some(_), true) => {
            return Err(Failure::Usage(
                "the flow waits for several questions: name one with --question KEY".to_owned(),
            ));
        }
        (Some(question), false) => question,
        (None, _) => return Err(Failure::Usage("the flow has no such question that is answered elsewhere".to_owned())),
    };
    let decided = if matches!(verdict, Verdict::Approve) { "approved" } else { "denied" };
    flows.decide(question, verdict, &Principal::new(who), Way::CommandLine).await?;
    Ok(format!("{decided} by {}: {}\n", clean::line(who), clean::line(&question.message)))
}

fn summary_json(flow: &FlowSummary) -> Value {
    json!({
        "id": flow.id.to_string(),
        "tool": flow.target,
        "method": flow.method.as_str(),
        "status": flow.status.as_str(),
        "round": flow.round,
        "created": date(flow.created),
        "changed": date(flow.changed),
        "deadline": date(flow.deadline),
        "openUntil": date(flow.open_until),
        "questions": flow.open,
        "instance": flow.owner.as_ref().map(|owner| &owner.instance),
    })
}

fn record_json(record: &FlowRecord, details: &FlowDetails) -> Value {
    let mut all = summary_json(&record.summary);
    let entries = record.timeline.entries().iter();
    let timeline: Vec<_> = entries
        .map(|entry| json!({"leg": entry.leg, "station": entry.station.as_str(), "at": date(entry.at)}))
        .collect();
    (all["timeline"], all["details"]) = (timeline.into(), json!(details));
    all
}

fn table(flows: &[FlowSummary]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for flow in flows {
        let open = clean::line(&flow.open.join(", "));
        let target = clean::line(&flow.target);
        let line = format!(
            "{}  {:<9}  round {:<2}  {}  {target}  {open}",
            flow.id,
            flow.status,
            flow.round,
            date(flow.created)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if flows.is_empty() { "no flows\n".to_owned() } else { text }
}

fn described(record: &FlowRecord, details: &FlowDetails) -> String {
    let mut text = table(std::slice::from_ref(&record.summary));
    for entry in record.timeline.entries() {
        let _ = writeln!(text, "  {}  leg {}  {}", date(entry.at), entry.leg, entry.station.as_str());
    }
    let _ = writeln!(text, "{:#}", json!(details));
    text
}

/// A time as RFC 3339 has it, in UTC.
fn date(moment: Timestamp) -> String {
    let (days, rest) = (moment.as_millis() / 86_400_000, moment.as_millis() % 86_400_000);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    // The calendar repeats every 400 years, which begin on a first of March here.
    let since = days + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_800_000_000_123, "2027-01-15T08:00:00.123Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(date(Timestamp::from_millis(millis)), text);
        }
    }
}
