//! `rounds resume`: a call that was saved, gone on with.

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

/// A saved call, and what to answer.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What --save has written. It follows the call from round to round, and stays when the call has ended
    #[arg(value_name = "FILE", required_unless_present = "save")]
    file: Option<PathBuf>,
    /// Stop at the next question that has no answer, save the call again, and exit with 75 [default: the same FILE]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    save: Option<Option<PathBuf>>,
    /// Make the call anew, for when its server no longer takes the answers: what was answered is shown as a suggestion
    #[arg(long)]
    start_over: bool,
    /// Start the command that the file names, or send the token to the URL that it names, without asking. Whoever wrote the
    /// file chose it
    #[arg(long)]
    trust: bool,
    #[command(flatten)]
    conversation: ConversationOptions,
}

pub(crate) async fn resume(options: Options) -> Result<ExitCode, Failure> {
    let Options { file, save, start_over, trust, conversation: options } = options;
    // `resume --save FILE` means what `resume FILE --save` does.
    let file = file.or_else(|| save.clone().flatten());
    let file = file.ok_or_else(|| Failure::Usage("the file with the saved call is missing".to_owned()))?;
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
