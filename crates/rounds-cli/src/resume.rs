//! `rounds resume`: continues a saved call.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use rounds::client::Start;

use crate::{
    Failure,
    conversation::{Conversation, ConversationOptions},
    halt::what_to_do,
    saved::Saved,
};

pub(crate) const EXAMPLES: &str = "Examples:
  rounds resume question.json
  rounds resume question.json --answer units.units=metric
  rounds resume question.json --answer seat.seat=12A --save
  rounds resume question.json --start-over

Exit codes are those of `rounds call`: 0 for a result, 75 for a call that was saved again.";

/// A saved call, and its answers.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The file that --save has written. It is updated in every round, and kept when the call has ended
    #[arg(value_name = "FILE", required_unless_present = "save")]
    file: Option<PathBuf>,
    /// Stop at the next question without an answer, save the call again, and exit with 75 [default: the same FILE]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    save: Option<Option<PathBuf>>,
    /// Make the call again, if its server no longer accepts the answers: earlier answers become suggestions
    #[arg(long)]
    start_over: bool,
    /// Start the command or send the bearer token to the URL that the file names, without asking. The author of the
    /// file chose it
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    conversation: ConversationOptions,
}

pub(crate) async fn resume(options: Options) -> Result<ExitCode, Failure> {
    let Options { file, save, start_over, trust, conversation: options } = options;
    // `resume --save FILE` means the same as `resume FILE --save`.
    let file = file.or_else(|| save.clone().flatten());
    let file =
        file.ok_or_else(|| Failure::Usage("the file with the saved call is missing: `rounds resume FILE`".to_owned()))?;
    let save = save.map(|other| other.unwrap_or_else(|| file.clone()));
    let Saved { server, era, pending } = Saved::load(&file)?;
    let start: Start = if start_over {
        pending.start_over().into()
    } else if pending.expires_in() == Some(Duration::ZERO) {
        return Err(Failure::Expired(what_to_do(Some(&file))));
    } else {
        pending.into()
    };
    Conversation { options, server, era, save, resumed: Some(file), trust }.hold(start).await
}
