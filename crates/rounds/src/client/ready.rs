//! Ready-made responders, and ways to change one.

use std::{collections::HashMap, fmt};

use super::{AskedQuestion, BoxError, Origin, Progress, Responder, UserAnswer};
use crate::shared::{clock::BoxFuture, kind::QuestionKind};

/// Answers from a table.
///
/// ```
/// use rmcp::object;
/// use rounds::client::{UserAnswer, scripted};
///
/// let responder = scripted()
///     .answer("units", Answer::Form(object!({"units": "metric"})))
///     .answer("Delete everything?", Answer::Decline);
/// ```
pub fn scripted() -> Scripted {
    Scripted::default()
}

/// Answers forms with their defaults, and shows nobody anything: a form that requires what has no default is cancelled, and pages are not
/// answered.
pub fn defaults_only() -> DefaultsOnly {
    DefaultsOnly
}

/// Nobody is there. No server is told that it may ask, and one that asks all the same gets no answer.
pub fn unavailable() -> Unavailable {
    Unavailable
}

/// Answers with this responder, but only what is on the list: see [`Only`].
pub fn only<R: Responder>(responder: R) -> Only<R> {
    Only { responder, kinds: None, servers: None }
}

/// Asks all questions of a round at once with this responder.
pub fn concurrently<R: Responder>(responder: R) -> Concurrently<R> {
    Concurrently(responder)
}

/// Answers with this responder, and tells a function how the call gets on.
pub fn observed<R: Responder, F: Fn(&Progress<'_>) + Send + Sync>(responder: R, observe: F) -> Observed<R, F> {
    Observed { responder, observe }
}

/// Answers from a table: see [`scripted`].
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    answers: HashMap<String, UserAnswer>,
}

impl Scripted {
    /// Gives this answer to the question of this key. The question of a legacy server has no key: then it is the question
    /// itself, in the server's words, or the name of its only field.
    pub fn answer(mut self, question: impl Into<String>, answer: UserAnswer) -> Self {
        self.answers.insert(question.into(), answer);
        self
    }

    fn find(&self, question: &AskedQuestion) -> Option<&UserAnswer> {
        let field = match question.fields() {
            [field] if question.is_pushed() => Some(field.name.as_str()),
            _ => None,
        };
        let names = [Some(question.key()), Some(question.message()), field];
        names.into_iter().flatten().find_map(|name| self.answers.get(name))
    }
}

impl Responder for Scripted {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        let answer = self.find(&question).cloned().ok_or(NotAnswered::NotScripted);
        Box::pin(std::future::ready(answer.map_err(Into::into)))
    }

    fn can(&self, kind: QuestionKind) -> bool {
        self.answers.values().any(|answer| answer.fits(kind))
    }
}

/// Answers with defaults: see [`defaults_only`].
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultsOnly;

impl Responder for DefaultsOnly {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        let default = |field: &super::Field| field.default.clone().map(|value| (field.name.clone(), value));
        let complete = question.fields().iter().all(|field| !field.required || field.default.is_some());
        // A form with nothing in it asks for consent, and that has no default.
        let answer = if question.kind() == QuestionKind::Form && complete && !question.fields().is_empty() {
            UserAnswer::Form(question.fields().iter().filter_map(default).collect())
        } else {
            UserAnswer::Cancel
        };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn can(&self, kind: QuestionKind) -> bool {
        kind == QuestionKind::Form
    }
}

/// Answers nothing: see [`unavailable`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Unavailable;

impl Responder for Unavailable {
    fn answer(&self, _question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        Box::pin(std::future::ready(Err(NotAnswered::Unavailable.into())))
    }

    fn can(&self, _kind: QuestionKind) -> bool {
        false
    }
}

/// Answers what is on the list: see [`only`]. What is not on it is never shown to anybody: it ends the call with an error,
/// and is neither declined nor cancelled.
///
/// ```
/// use rounds::{Kind, client::{defaults_only, only}};
///
/// let responder = only(defaults_only()).kinds([Kind::Form]).server("https://mcp.example.com/mcp");
/// ```
#[derive(Debug, Clone)]
pub struct Only<R> {
    responder: R,
    kinds: Option<Vec<QuestionKind>>,
    servers: Option<Vec<String>>,
}

impl<R: Responder> Only<R> {
    /// Answers questions of these kinds: also of kinds that a function would not be asked by itself.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = QuestionKind>) -> Self {
        self.kinds.get_or_insert_default().extend(kinds);
        self
    }

    /// Answers this server, by its address, or by the name it gave itself if the host knows no address. Say it again for a
    /// further one.
    pub fn server(mut self, server: impl Into<String>) -> Self {
        self.servers.get_or_insert_default().push(server.into());
        self
    }

    fn permits(&self, origin: &Origin) -> bool {
        let known = origin.address.as_ref().or(origin.name.as_ref());
        self.servers.as_ref().is_none_or(|servers| known.is_some_and(|known| servers.contains(known)))
    }
}

impl<R: Responder> Responder for Only<R> {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        if self.permits(question.origin()) && self.can(question.kind()) {
            self.responder.answer(question)
        } else {
            Box::pin(std::future::ready(Err(NotAnswered::NotAllowed.into())))
        }
    }

    fn can(&self, kind: QuestionKind) -> bool {
        self.kinds.as_ref().map_or_else(|| self.responder.can(kind), |kinds| kinds.contains(&kind))
    }

    fn is_concurrent(&self) -> bool {
        self.responder.is_concurrent()
    }

    fn progress(&self, progress: &Progress<'_>) {
        self.responder.progress(progress);
    }
}

/// Asks everything at once: see [`concurrently`].
#[derive(Debug, Clone)]
pub struct Concurrently<R>(R);

impl<R: Responder> Responder for Concurrently<R> {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        self.0.answer(question)
    }

    fn can(&self, kind: QuestionKind) -> bool {
        self.0.can(kind)
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn progress(&self, progress: &Progress<'_>) {
        self.0.progress(progress);
    }
}

/// Tells a function how the call gets on: see [`observed`].
#[derive(Clone)]
pub struct Observed<R, F> {
    responder: R,
    observe: F,
}

impl<R: Responder, F: Fn(&Progress<'_>) + Send + Sync> Responder for Observed<R, F> {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        self.responder.answer(question)
    }

    fn can(&self, kind: QuestionKind) -> bool {
        self.responder.can(kind)
    }

    fn is_concurrent(&self) -> bool {
        self.responder.is_concurrent()
    }

    fn progress(&self, progress: &Progress<'_>) {
        (self.observe)(progress);
        self.responder.progress(progress);
    }
}

impl<R: fmt::Debug, F> fmt::Debug for Observed<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("responder", &self.responder).finish_non_exhaustive()
    }
}

/// Why a ready-made responder did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnswered {
    /// The table has no answer to it.
    #[error("there is no scripted answer to it")]
    NotScripted,
    /// Nobody is there.
    #[error("nobody is there to answer")]
    Unavailable,
    /// The list does not have the kind of the question, or its server.
    #[error("it is not on the list of what may be asked")]
    NotAllowed,
}
