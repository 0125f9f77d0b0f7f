//! Responders: whoever answers, for a call that is driven and for a legacy server that pushes.

use std::sync::Arc;

use super::{AskedQuestion, Progress, UserAnswer};
use crate::shared::{clock::BoxFuture, kind::QuestionKind};

/// An error of anybody's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers questions: by asking a person, or in place of one.
///
/// Every function from a [`AskedQuestion`] to a future of an [`UserAnswer`] is one, and answers forms and pages:
///
/// ```
/// use std::convert::Infallible;
///
/// use rounds::client::{UserAnswer, Host, AskedQuestion};
///
/// async fn ask(question: Question) -> Result<Answer, Infallible> {
///     println!("{} asks: {}", question.origin(), question.message());
///     Ok(Answer::Cancel) // nobody is here
/// }
///
/// let host = Host::new(ask);
/// ```
///
/// [`scripted`](super::scripted), [`defaults_only`](super::defaults_only) and [`unavailable`](super::unavailable) are
/// ready-made. What a responder says it [can](Self::can) answer is what a [`Host`](super::Host) declares to servers.
///
/// A decline is for a person who was shown the question and said no. Whoever stands in for a person, and does not know,
/// cancels or fails.
pub trait Responder: Send + Sync {
    /// Answers a question. The answer is checked before anything is sent.
    ///
    /// # Errors
    ///
    /// Ends the call with this error as the source, and whatever was answered so far is kept.
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>>;

    /// Whether it answers questions of this kind: by default forms and pages.
    fn can(&self, kind: QuestionKind) -> bool {
        matches!(kind, QuestionKind::Form | QuestionKind::Url)
    }

    /// Whether the questions of one round may be asked together. By default they are asked one after the other, as
    /// befits a person at a terminal. Servers of the legacy era push each question by itself: a [`Host`](super::Host) hands those on as they
    /// come, also while another is being answered.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Is told how a call that is driven gets on.
    fn progress(&self, _progress: &Progress<'_>) {}
}

impl<F, Fut, E> Responder for F
where
    F: Fn(AskedQuestion) -> Fut + Send + Sync,
    Fut: Future<Output = Result<UserAnswer, E>> + Send + 'static,
    E: Into<BoxError>,
{
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        let answer = self(question);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

impl<R: Responder + ?Sized> Responder for Arc<R> {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        (**self).answer(question)
    }

    fn can(&self, kind: QuestionKind) -> bool {
        (**self).can(kind)
    }

    fn is_concurrent(&self) -> bool {
        (**self).is_concurrent()
    }

    fn progress(&self, progress: &Progress<'_>) {
        (**self).progress(progress);
    }
}
