//! Progress of a call on stderr: a spinner on a terminal, and every leg with `--verbose`.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rmcp::model::ProgressNotificationParam;
use rounds::client::{AskedQuestion, Call, DriveOutcome, Pending, Progress};

use crate::{
    Failure,
    colour::Paint,
    duration,
    server_log::{Held, ServerLog},
    terminal::{Spinner, Told, clean},
};

/// How many characters of a server's message about its progress are shown.
const LONGEST_PROGRESS: usize = 200;

#[derive(Debug)]
pub(crate) struct Status {
    paint: Paint,
    verbose: bool,
    /// Whether to show a spinner while waiting: only on a terminal, and not after the call has ended.
    spins: AtomicBool,
    spinner: Mutex<Option<Spinner>>,
    /// What the server said about the progress of the leg in flight.
    told: Told,
    log: ServerLog,
    leg: Mutex<Leg>,
    /// Whether the server is working and no question is being answered here.
    at_work: AtomicBool,
}

/// The leg in flight.
#[derive(Debug)]
struct Leg {
    call: String,
    number: u32,
    began: Instant,
    /// What the leg carries.
    answers: usize,
    state: Option<usize>,
    /// What the server said last of how far its task is.
    message: String,
}

impl Status {
    pub(crate) fn new(call: Option<&Call>, verbose: bool) -> Self {
        let call = call.map(|call| format!("{} {}", call.method(), clean::short(call.target(), 60)));
        let call = call.unwrap_or_default();
        let spins = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            paint: Paint::on(&io::stderr()),
            verbose,
            spins: AtomicBool::new(spins),
            spinner: Mutex::new(None),
            told: Told::default(),
            log: ServerLog::default(),
            leg: Mutex::new(Leg {
                call,
                number: 1,
                began: Instant::now(),
                answers: 0,
                state: None,
                message: String::new(),
            }),
            at_work: AtomicBool::new(false),
        }
    }

    /// Shows the spinner until the server responds.
    pub(crate) fn wait(&self) {
        let mut spinner = self.spinner.lock().unwrap_or_else(PoisonError::into_inner);
        if self.spins.load(Ordering::Relaxed) && spinner.is_none() {
            *spinner = Some(Spinner::start(self.told.clone()));
        }
    }

    /// Removes the spinner before other output.
    pub(crate) fn pause(&self) {
        drop(self.spinner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Removes the spinner for good.
    pub(crate) fn stop(&self) {
        self.spins.store(false, Ordering::Relaxed);
        self.pause();
    }

    /// Prints a message of this program.
    pub(crate) fn say(&self, ours: &str) {
        self.pause();
        // If stderr is closed, the message is lost.
        let _ = writeln!(io::stderr(), "rounds: {}", clean::lines(ours));
    }

    /// Shows a line of the server's log; once the question is answered, if a person is being asked.
    pub(crate) fn logged(&self, line: &str) {
        self.log.take(line, |line| self.print(line));
    }

    /// Holds the server's log back until the guard is dropped.
    pub(crate) fn asking(&self) -> Held<'_, impl Fn(&str)> {
        self.pause();
        self.log.hold(|line| self.print(line))
    }

    /// Prints a line, above the spinner if there is one.
    fn print(&self, line: &str) {
        let line = self.paint.dim(line);
        match &*self.spinner.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(spinner) => spinner.above(&line),
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }

    /// The server reports the progress of the leg in flight.
    pub(crate) fn server_progress(&self, progress: &ProgressNotificationParam) {
        let told = told(progress);
        let leg = self.leg.lock().unwrap_or_else(PoisonError::into_inner);
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told.clone());
        if self.verbose {
            self.print(&format!("leg {} ← progress: {told}", leg.number));
        }
    }

    pub(crate) fn progress(&self, progress: &Progress<'_>) {
        let mut leg = self.leg.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Sending { rounds, .. } => {
                self.at_work.store(true, Ordering::Relaxed);
                leg.number = rounds + 1;
                leg.began = Instant::now();
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.leg_says(&leg, "→", &leg.sent());
                self.wait();
            }
            Progress::Asked(pending) => {
                self.at_work.store(false, Ordering::Relaxed);
                self.leg_says(&leg, "←", &leg.asked(pending));
                leg.hold(pending);
                self.pause();
            }
            Progress::Later { pending, wait } => {
                let state = state(pending.state_bytes());
                match pending.task_id() {
                    Some(_) => self.leg_says(&leg, "←", &format!("is a task; poll it in {wait:?}")),
                    None => {
                        self.leg_says(&leg, "←", &format!("asks no question; call again in {wait:?}; {state}"));
                    }
                }
                if let Some(message) = pending.status_message().filter(|message| leg.message != *message) {
                    leg.message = message.to_owned();
                    self.say(&clean::short(message, 200));
                }
                leg.hold(pending);
                self.wait();
            }
            _ => {}
        }
    }

    /// A legacy server asks while its leg is in flight. Dropping the returned guard resumes waiting.
    pub(crate) fn interrupted_by(&self, question: &AskedQuestion) -> Interrupted<'_> {
        let leg = self.leg.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = clean::short(question.message(), 60);
        self.at_work.store(false, Ordering::Relaxed);
        self.leg_says(&leg, "←", &format!("pushes a question: {asked}"));
        Interrupted(self)
    }

    /// No leg is in flight any more.
    pub(crate) fn at_rest(&self) {
        self.at_work.store(false, Ordering::Relaxed);
    }

    /// The error for an interruption at this moment.
    pub(crate) fn interrupted(&self) -> Failure {
        if self.at_work.load(Ordering::Relaxed) { Failure::InterruptedLeg } else { Failure::Interrupted }
    }

    pub(crate) fn ended(&self, outcome: &DriveOutcome) {
        let leg = self.leg.lock().unwrap_or_else(PoisonError::into_inner);
        let how = match outcome {
            DriveOutcome::Done(done) if done.is_error() => "done, with a tool error",
            DriveOutcome::Done(_) => "done",
            _ => "ended",
        };
        self.leg_says(&leg, "←", &format!("{how}; {:.1?}", leg.began.elapsed()));
        self.pause();
    }

    fn leg_says(&self, leg: &Leg, arrow: &str, what: &str) {
        if self.verbose {
            self.pause();
            let line = format!("leg {} {arrow} {what}", leg.number);
            let _ = writeln!(io::stderr(), "{}", self.paint.dim(&line));
        }
    }
}

/// A leg that waits because its server has asked a question.
pub(crate) struct Interrupted<'a>(&'a Status);

impl Drop for Interrupted<'_> {
    fn drop(&mut self) {
        self.0.at_work.store(true, Ordering::Relaxed);
        self.0.wait();
    }
}

impl Leg {
    fn sent(&self) -> String {
        match (self.answers, self.state) {
            (0, None) => format!("{}; no state", self.call),
            (answers, bytes) => format!("{}; {}; {}", self.call, count(answers, "answer"), state(bytes)),
        }
    }

    fn asked(&self, pending: &Pending) -> String {
        let keys: Vec<_> = pending.questions().iter().map(|question| clean::short(question.key(), 40)).collect();
        let asks = format!("asks {}; {}", keys.join(", "), state(pending.state_bytes()));
        let left = pending.expires_in().map(|left| format!("; {} left", duration::rough(left)));
        format!("{asks}{}; {:.1?}", left.unwrap_or_default(), self.began.elapsed())
    }

    fn hold(&mut self, pending: &Pending) {
        self.answers = pending.questions().len();
        self.state = pending.state_bytes();
    }
}

/// A server's progress in words, on one line.
fn told(progress: &ProgressNotificationParam) -> String {
    let done = progress.progress;
    let count = progress.total.map_or_else(|| done.to_string(), |total| format!("{done} of {total}"));
    match &progress.message {
        Some(message) => format!("{count}: {}", clean::short(message, LONGEST_PROGRESS)),
        None => count,
    }
}

fn state(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "no state".to_owned(), |bytes| format!("state of {bytes} bytes"))
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
