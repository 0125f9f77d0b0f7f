//! Ready-made responders, and wrappers that change a responder.

use std::{collections::HashMap, fmt};

use super::{AskedQuestion, BoxError, Origin, Progress, Responder, UserAnswer};
use crate::shared::{clock::BoxFuture, kind::QuestionKind};

/// A responder that answers from a table.
///
/// ```
/// use rmcp::object;
/// use rounds::client::{UserAnswer, scripted};
///
/// let responder = scripted()
///     .answer("units", UserAnswer::Form(object!({"units": "metric"})))
///     .answer("Delete everything?", UserAnswer::Decline);
/// ```
pub fn scripted() -> Scripted {
    Scripted::default()
}

/// A responder that answers forms with their defaults, without a user. It cancels a form with a required field that has
/// no default, and does not answer pages.
pub fn defaults_only() -> DefaultsOnly {
    DefaultsOnly
}

/// A responder for when no user is present. Servers are told that they may not ask, and a server that asks anyway gets
/// no answer.
pub fn unavailable() -> Unavailable {
    Unavailable
}

/// Wraps a responder so that it answers only the listed kinds and servers: see [`Only`].
pub fn only<R: Responder>(responder: R) -> Only<R> {
    Only { responder, kinds: None, servers: None }
}

/// Wraps a responder so that all questions of a round are asked at once.
pub fn concurrently<R: Responder>(responder: R) -> Concurrently<R> {
    Concurrently(responder)
}

/// Wraps a responder and reports the progress of a call to a function.
pub fn observed<R: Responder, F: Fn(&Progress<'_>) + Send + Sync>(responder: R, observe: F) -> Observed<R, F> {
    Observed { responder, observe }
}

/// The responder of [`scripted`], which answers from a table.
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    answers: HashMap<String, UserAnswer>,
}

impl Scripted {
    /// Sets the answer to the question with this key. A question of a legacy server has no key: use its message, or the
    /// name of its only field.
    pub fn answer(mut self, question: impl Into<String>, answer: UserAnswer) -> Self {
        self.answers.insert(question.into(), answer);
        self
    }

    fn find(&self, question: &AskedQuestion) -> Option<&UserAnswer> {
        let field = match question.fields() {
            [field] if question.is_pushed() => Some(field.name.as_str()),
            _ => None,
        };
        let names = [Some(question.key()), Some(question.name()), Some(question.message()), field];
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

/// The responder of [`defaults_only`], which answers with defaults.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultsOnly;

impl Responder for DefaultsOnly {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        let default = |field: &super::Field| field.default.clone().map(|value| (field.name.clone(), value));
        let complete = question.fields().iter().all(|field| !field.required || field.default.is_some());
        // A form without fields asks for consent, which has no default.
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

/// The responder of [`unavailable`], which answers nothing.
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

/// The responder of [`only`], which answers the listed kinds and servers. Other questions are never shown: they end the
/// call with an error, and are neither declined nor cancelled.
///
/// ```
/// use rounds::{client::{defaults_only, only}, observe::QuestionKind};
///
/// let responder = only(defaults_only()).kinds([QuestionKind::Form]).server("https://mcp.example.com/mcp");
/// ```
#[derive(Debug, Clone)]
pub struct Only<R> {
    responder: R,
    kinds: Option<Vec<QuestionKind>>,
    servers: Option<Vec<String>>,
}

impl<R: Responder> Only<R> {
    /// Adds kinds of question to answer, which may include kinds that the wrapped responder does not declare.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = QuestionKind>) -> Self {
        self.kinds.get_or_insert_default().extend(kinds);
        self
    }

    /// Adds a server to answer, by its address, or by the name it gave itself if the host knows no address.
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

/// The responder of [`concurrently`], which is asked all questions at once.
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

/// The responder of [`observed`], which reports the progress of a call.
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
    /// The table has no answer to the question.
    #[error("there is no scripted answer to the question")]
    NotScripted,
    /// No user is present.
    #[error("no user is present to answer")]
    Unavailable,
    /// The kind of the question or its server is not listed.
    #[error("its kind or its server is not on the list of what may be asked")]
    NotAllowed,
}
