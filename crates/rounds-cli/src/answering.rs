//! Who answers: a person at the terminal, or answers that were given on the command line.

use std::{fmt::Write as _, sync::PoisonError};

use rounds::{
    client::{AskedQuestion, BoxError, Pending, Progress, Responder, UserAnswer},
    observe::QuestionKind,
    time::BoxFuture,
};
use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::{
    answers::{Answers, Wrong, name_of, ways_to_answer},
    saved::Place,
    show,
    status::Status,
    terminal::{Left, Terminal, clean},
};

/// Who answers.
#[derive(Debug)]
pub(crate) enum Who {
    /// A person at a terminal.
    Person(Terminal),
    /// The answers that were given as options, because there is no terminal or it is not to be used.
    Prepared(Answers),
}

/// Answers the questions of servers of both eras.
#[derive(Debug)]
pub(crate) struct Answering {
    who: Who,
    pub(crate) status: Status,
    /// Where a resumed call is kept up to date.
    kept: Option<Place>,
    given_up: UnboundedSender<NoAnswer>,
    /// Held while a question is being answered: a legacy server may ask several at the same time, and a person answers
    /// them one by one.
    turn: Mutex<()>,
    /// The call as it was last, if it is a task.
    task: std::sync::Mutex<Option<Pending>>,
}

/// Reason why a question was not answered. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("{0}")]
    Nothing(Box<Unanswered>),
    #[error(transparent)]
    Wrong(#[from] Wrong),
    #[error(transparent)]
    Left(#[from] Left),
}

/// A question for which there is no answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) question: AskedQuestion,
    said: String,
}

impl Answering {
    /// The responder, and a channel with the reason when it gives up on a question that a server has pushed.
    pub(crate) fn new(who: Who, status: Status, kept: Option<Place>) -> (Self, UnboundedReceiver<NoAnswer>) {
        let (given_up, gives_up) = unbounded_channel();
        (Self { who, status, kept, given_up, turn: Mutex::new(()), task: std::sync::Mutex::default() }, gives_up)
    }

    pub(crate) fn who(&self) -> &Who {
        &self.who
    }

    /// The call as it was last, if it is a task, which goes on at the server.
    pub(crate) fn task(&self) -> Option<Pending> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn find(&self, question: AskedQuestion) -> Result<UserAnswer, NoAnswer> {
        match &self.who {
            Who::Prepared(answers) => {
                answers.to(&question)?.ok_or_else(|| NoAnswer::Nothing(Box::new(Unanswered::new(question))))
            }
            Who::Person(terminal) => {
                let _asking = self.status.asking();
                Ok(terminal.ask(&question).await?)
            }
        }
    }
}

impl Responder for Answering {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        Box::pin(async move {
            let pushed = question.is_pushed();
            let _turn = self.turn.lock().await;
            // However this ends, also if the server withdraws its question, its leg is still in flight.
            let _waiting = pushed.then(|| self.status.interrupted_by(&question));
            match self.find(question).await {
                Ok(answer) => Ok(answer),
                Err(no_answer) if pushed => {
                    // Sending an error would let the server decide how to continue. The call ends instead.
                    let _ = self.given_up.send(no_answer);
                    std::future::pending().await
                }
                Err(no_answer) => Err(no_answer.into()),
            }
        })
    }

    fn can(&self, kind: QuestionKind) -> bool {
        match &self.who {
            Who::Person(_) => matches!(kind, QuestionKind::Form | QuestionKind::Url),
            Who::Prepared(answers) => answers.can(kind),
        }
    }

    fn progress(&self, progress: &Progress<'_>) {
        self.status.progress(progress);
        if let Progress::Asked(pending) | Progress::Later { pending, .. } = progress
            && pending.task_id().is_some()
        {
            *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some((*pending).clone());
        }
        if let (Progress::Asked(pending), Who::Person(terminal)) = (progress, &self.who) {
            terminal.expect(pending.open().len());
        }
        let pending = match (progress, &self.who) {
            (Progress::Asked(pending), _) => Some(*pending),
            // What was typed exists nowhere else, and the leg may be lost.
            (Progress::Sending { pending, .. }, Who::Person(_)) => pending.filter(|pending| show::has_answers(pending)),
            _ => None,
        };
        if let (Some(pending), Some(place)) = (pending, &self.kept)
            && let Err(failure) = place.write(pending)
        {
            self.status.say(&crate::Sentence(&failure).to_string());
        }
    }
}

impl Unanswered {
    fn new(question: AskedQuestion) -> Self {
        let message = clean::short(question.message(), 200);
        let mut said = format!("there is no answer to {}, which asks: {message}", name_of(&question));
        for way in ways_to_answer(&question) {
            // Writing to a string cannot fail.
            let _ = write!(said, "\n  {way}");
        }
        said.push_str(if question.is_pushed() {
            "\nThe question came over a live connection, so the call cannot be saved and answered later."
        } else {
            "\n--save FILE stops here instead, and `rounds resume FILE` continues."
        });
        Self { question, said }
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said)
    }
}
