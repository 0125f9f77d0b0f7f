//! A user who expects the questions of a flow, and gives its answers, round by round.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rounds::{
    client::{AskedQuestion, BoxError, Responder, UserAnswer},
    observe::QuestionKind,
    time::BoxFuture,
};

use crate::flows::{Asked, Flow};

pub(crate) struct Person {
    rounds: Mutex<Vec<BTreeMap<String, Asked>>>,
    /// Whether it is asked through tasks, which show questions under keys of their own.
    tasks: bool,
}

impl Person {
    pub(crate) fn new(tasks: bool) -> Self {
        Self { rounds: Mutex::default(), tasks }
    }

    pub(crate) fn is_asked_through_tasks(&self) -> bool {
        self.tasks
    }

    pub(crate) fn meets(&self, flow: &Flow) {
        *self.rounds() = flow.rounds.clone();
    }

    pub(crate) fn was_asked_everything(&self) -> Result<(), BoxError> {
        let left: Vec<_> = self.rounds().drain(..).filter(|round| !round.is_empty()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("was not asked: {left:?}").into()) }
    }

    /// Answers a question of the current round. A pushed question has no key, and one of a task has another key: both are
    /// recognised by their message.
    pub(crate) fn says(&self, question: &AskedQuestion) -> Result<UserAnswer, BoxError> {
        let mut rounds = self.rounds();
        let wrong = || format!("asked {:?} under {:?}", question.message(), question.key());
        let round = rounds.iter_mut().find(|round| !round.is_empty()).ok_or_else(wrong)?;
        let is_it = |key: &String, asked: &mut Asked| {
            asked.asks == question.message() && (self.tasks || question.is_pushed() || key == question.key())
        };
        let key = round.iter_mut().find_map(|(key, asked)| is_it(key, asked).then(|| key.clone())).ok_or_else(wrong)?;
        let said = round.remove(&key).ok_or_else(wrong)?.answer;
        Ok(match (said.action.as_str(), question.kind()) {
            ("accept", QuestionKind::Form) => UserAnswer::Form(said.content.unwrap_or_default()),
            ("accept", QuestionKind::Url) if question.url() == Some("https://example.com/sign-in") => UserAnswer::Visit,
            ("decline", _) => UserAnswer::Decline,
            ("cancel", _) => UserAnswer::Cancel,
            _ => return Err(wrong().into()),
        })
    }

    fn rounds(&self) -> MutexGuard<'_, Vec<BTreeMap<String, Asked>>> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Responder for Person {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        let answer = self.says(&question);
        Box::pin(async move { answer })
    }
}
