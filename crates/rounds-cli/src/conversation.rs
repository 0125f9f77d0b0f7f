//! One call from its connection to its exit code, for `call` and `resume` alike.

use std::{
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use rounds::client::{Call, Done, DriveLimits, DriveOutcome, Pending, Start, drive};
use serde_json::Value;
use tokio::{signal::ctrl_c, sync::mpsc::UnboundedReceiver};

use crate::{
    Failure,
    answering::{Answering, NoAnswer, Who},
    answers::AnswerOptions,
    bound::{self, Bound},
    connection::{Address, Connection, FAREWELL, PATIENCE, Protocol},
    duration,
    halt::Halt,
    print,
    saved::Place,
    show,
    status::Status,
    terminal::{self, Terminal, clean},
};

/// `EX_TEMPFAIL` of `sysexits.h`: try again later.
const SAVED: u8 = 75;

/// Options that `call` and `resume` share.
#[derive(Debug, Args)]
pub(crate) struct ConversationOptions {
    /// Bearer token for HTTP requests, which is never saved
    #[arg(long, value_name = "TOKEN", env = "ROUNDS_BEARER", hide_env_values = true)]
    bearer: Option<String>,
    /// How long the server may take in total, including the connection; the user's time does not count
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    /// Limit on the size of one message of the server: 65536, 512KiB, 16MiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bound::parse)]
    response_limit: usize,
    /// Print the result, or the questions, as JSON
    #[arg(long)]
    json: bool,
    /// Show each leg on stderr, with the sizes of states
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    answers: AnswerOptions,
}

/// A call that is about to be started or continued.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) options: ConversationOptions,
    pub(crate) server: Address,
    pub(crate) era: Protocol,
    /// The file to save the call to, if it is to be answered later.
    pub(crate) save: Option<PathBuf>,
    /// The file from which the call was resumed, which is kept up to date.
    pub(crate) resumed: Option<PathBuf>,
    /// Whether the user chose the server, and not only the author of a file.
    pub(crate) trust: bool,
}

impl Conversation {
    /// Runs the call to its end or saves it, and prints the outcome.
    pub(crate) async fn hold(self, start: Start) -> Result<ExitCode, Failure> {
        let place = |file: &PathBuf| Place::new(file.clone(), self.server.clone(), self.era);
        let save = self.save.as_ref().map(place).transpose()?;
        let kept = self.resumed.as_ref().map(place).transpose()?;
        let status = Status::new(call_of(&start), self.options.verbose);
        let who = self.who()?;
        self.consent(&who).await?;
        let start = reopened(start, &who);
        sent_again(&start, &who).await?;
        let (answering, gives_up) = Answering::new(who, status, kept.clone());
        let answering = Arc::new(answering);

        if self.options.bearer.is_some() && self.server.is_open() {
            answering.status.say("the bearer token can be read on the network, because the URL is not https");
        }
        answering.status.wait();
        let ended = self.talk(start, &answering, gives_up).await;
        answering.status.stop();
        match (ended, save) {
            (Ok(outcome), _) => self.print_outcome(&outcome, &answering),
            (Err(Halt { pending: Some(pending), unanswered, refused: false, .. }), Some(place))
                if unanswered || pending.task_id().is_some() =>
            {
                self.save(&pending, &place)
            }
            (Err(halt), _) => self.give_up(halt, answering.who(), kept.as_ref()),
        }
    }

    /// There is no prompt if answers were given or if the call is to be saved.
    fn who(&self) -> Result<Who, Failure> {
        let answers = &self.options.answers;
        if answers.is_given() || self.save.is_some() || !terminal::is_there() {
            return Ok(Who::Prepared(answers.load()?));
        }
        Ok(Who::Person(Terminal::new()))
    }

    /// A file alone does not start a command or send a token: the user has to agree.
    async fn consent(&self, who: &Who) -> Result<(), Failure> {
        let server = self.server.shown();
        let does = match (&self.server, &self.options.bearer) {
            (Address::Stdio(_), _) => format!("starts {server}"),
            (Address::Url(_), Some(_)) => format!("sends your token to {server}"),
            (Address::Url(_), None) => return Ok(()),
        };
        match who {
            _ if self.trust => Ok(()),
            Who::Prepared(_) => Err(Failure::Usage(format!("the file says that this {does}; allow it with --trust"))),
            Who::Person(person) => agreed(person, &format!("The file says that this {does}. Continue?")).await,
        }
    }

    async fn talk(
        &self,
        start: Start,
        answering: &Arc<Answering>,
        mut gives_up: UnboundedReceiver<NoAnswer>,
    ) -> Result<DriveOutcome, Halt> {
        let mut interrupted = pin!(ctrl_c());
        let (bearer, timeout) = (self.options.bearer.as_deref(), self.options.timeout);
        let (began, bound) = (Instant::now(), Bound::new(self.options.response_limit));
        let connection = tokio::select! {
            // First, because the signal is caught only after it has been polled. What follows may run up to a question
            // at once, while other tasks drive the connection.
            biased;
            _ = &mut interrupted => return Err(Failure::Interrupted.into()),
            too_long = bound.exceeded() => return Err(Failure::from(too_long).into()),
            opened = Connection::open(&self.server, self.era, bearer, answering.clone(), timeout, &bound) => {
                opened.map_err(|failure| bound.error().map_or(failure, Failure::from))?
            }
        };
        let ended = {
            let mut driven = pin!(self.drive(&connection, start, answering, timeout.saturating_sub(began.elapsed())));
            tokio::select! {
                ended = &mut driven => Some(ended),
                Some(no_answer) = gives_up.recv() => Some(Err(Halt::of_push(no_answer))),
                // Most connections end with this error, and the call with them. The call then carries the answers so
                // far.
                too_long = bound.exceeded() => match tokio::time::timeout(FAREWELL, driven).await {
                    Ok(ended) => Some(ended),
                    Err(_) => Some(Err(Failure::from(too_long).into())),
                },
                _ = &mut interrupted => None,
            }
        };
        let ended = match ended {
            Some(ended) => ended,
            None => Err(interrupted_at(&connection, answering).await),
        };
        let ended = ended.map_err(|halt| match bound.error() {
            Some(too_long) => Halt { failure: too_long.into(), ..halt },
            None => halt,
        });
        // A question that is dropped with the connection must not start the spinner again.
        answering.status.stop();
        connection.close().await;
        ended
    }

    /// Drives the call to its end. The server has `total` for it.
    async fn drive(
        &self,
        connection: &Connection,
        start: Start,
        answering: &Answering,
        total: Duration,
    ) -> Result<DriveOutcome, Halt> {
        let limits = DriveLimits::default().with_total(total).with_question(PATIENCE).with_longest(PATIENCE);
        let mut start = start;
        loop {
            let driven = drive(&connection.client, start, answering, limits.clone()).await;
            answering.status.at_rest();
            let halt = match driven {
                Ok(outcome) => {
                    answering.status.ended(&outcome);
                    return Ok(outcome);
                }
                Err(error) => Halt::of(error, self.resumed.as_deref(), self.options.timeout),
            };
            // A user whose time to answer ran out can keep what was typed.
            let (Who::Person(person), true, Some(pending)) = (answering.who(), halt.refused, &halt.pending) else {
                return Err(halt);
            };
            answering.status.say(&halt.failure.to_string());
            let asking = answering.status.asking();
            let again = person.agrees("Start over, with what you answered filled in?", true).await;
            drop(asking);
            if !again.map_err(|left| Failure::NotAnswered(left.to_string()))? {
                return Err(halt);
            }
            start = pending.start_over().into();
        }
    }

    fn print_outcome(&self, outcome: &DriveOutcome, answering: &Answering) -> Result<ExitCode, Failure> {
        if let Who::Prepared(answers) = answering.who() {
            for name in answers.unused() {
                answering
                    .status
                    .say(&format!("the answer {:?} was not used: no question asked for it", clean::short(name, 80)));
            }
        }
        match outcome {
            DriveOutcome::Done(done) => self.print_done(done),
            _ => Err(Failure::NotAnswered(
                "the call ended in a way that this version of rounds does not know: update it".to_owned(),
            )),
        }
    }

    fn print_done(&self, done: &Done) -> Result<ExitCode, Failure> {
        let code = if done.is_error() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        if self.options.json {
            return self.print_json(&show::done_json(done)).map(|_| code);
        }
        if done.is_error() {
            return Err(Failure::Tool(clean::lines(show::done(done).trim_end())));
        }
        print(&show::for_stdout(show::done(done))).map(|()| code)
    }

    fn print_json(&self, json: &Value) -> Result<ExitCode, Failure> {
        // JSON escapes control characters. Other deceptive characters are data for the program that reads it.
        print(&show::for_stdout(format!("{json:#}\n"))).map(|()| ExitCode::SUCCESS)
    }

    fn save(&self, pending: &Pending, place: &Place) -> Result<ExitCode, Failure> {
        place.write(pending)?;
        if self.options.json {
            let mut json = show::pending_json("saved", pending);
            json["file"] = Value::from(place.file());
            self.print_json(&json)?;
        }
        eprint(&show::saved(pending, &place.file()));
        Ok(ExitCode::from(SAVED))
    }

    fn give_up(&self, halt: Halt, who: &Who, kept: Option<&Place>) -> Result<ExitCode, Failure> {
        if self.options.json && halt.unanswered {
            let asked = halt.pushed.iter().map(show::question).collect::<Vec<_>>();
            let asks = halt.pending.as_ref().map(|pending| show::pending_json("asks", pending));
            self.print_json(&asks.unwrap_or_else(|| serde_json::json!({"status": "asks", "questions": asked})))?;
        }
        // What was typed at a terminal exists nowhere else.
        let typed = matches!(who, Who::Person(_)) && !halt.is_ours;
        if let Some(pending) = halt.pending.as_ref().filter(|pending| typed && show::has_answers(pending)) {
            match kept {
                Some(place) => {
                    place.write(pending)?;
                    eprint(&format!("rounds: the answers are saved in {}.\n", clean::line(&place.file())));
                }
                None => eprint(&show::rescued(pending)),
            }
        }
        Err(halt.failure)
    }
}

/// What Ctrl-C does. A call that is a task goes on at the server unless the user wants it cancelled.
async fn interrupted_at(connection: &Connection, answering: &Answering) -> Halt {
    let Some(pending) = answering.task() else { return answering.status.interrupted().into() };
    answering.status.stop();
    let cancels = match answering.who() {
        Who::Person(person) => person.agrees("Cancel the task at the server, too?", false).await.unwrap_or(false),
        Who::Prepared(_) => false,
    };
    if !cancels {
        let id = clean::short(pending.task_id().unwrap_or_default(), 80);
        return Halt { pending: Some(pending), ..Failure::LeftRunning(id).into() };
    }
    match pending.cancel_task(&connection.client).await {
        Ok(()) => Failure::CancelledTask.into(),
        Err(error) => Failure::NotAnswered(format!("the task could not be cancelled: {error}")).into(),
    }
}

fn eprint(text: &str) {
    // If stderr is closed, the message is lost.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

fn call_of(start: &Start) -> Option<&Call> {
    match start {
        Start::Call(call) => Some(call),
        Start::Pending(pending) => Some(pending.call()),
        _ => None,
    }
}

/// Fails unless the user agrees. Enter alone does not agree.
async fn agreed(person: &Terminal, ours: &str) -> Result<(), Failure> {
    match person.agrees(ours, false).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::NotAnswered("you did not agree, so nothing was done".to_owned())),
        Err(left) => Err(Failure::NotAnswered(left.to_string())),
    }
}

/// Asks before answers that may have been sent already are sent again.
async fn sent_again(start: &Start, who: &Who) -> Result<(), Failure> {
    match (start, who) {
        (Start::Pending(pending), Who::Person(person)) if show::has_answers(pending) && pending.open().is_empty() => {
            agreed(
                person,
                "All questions were answered before, and the answers may have been sent. Send them \
                            again?",
            )
            .await
        }
        _ => Ok(()),
    }
}

/// Reopens the answered questions for which a newer answer was given.
fn reopened(mut start: Start, who: &Who) -> Start {
    if let (Start::Pending(pending), Who::Prepared(answers)) = (&mut start, who) {
        let again = pending.questions().iter().filter(|question| answers.is_about(question));
        let again: Vec<_> = again.map(|question| question.key().to_owned()).collect();
        for key in again {
            pending.reopen(&key);
        }
    }
    start
}
