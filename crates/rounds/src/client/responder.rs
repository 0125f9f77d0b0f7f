//! Responders: what answers the questions of a driven call and of a legacy server that pushes.

use std::sync::Arc;

use super::{AskedQuestion, Progress, UserAnswer};
use crate::shared::{clock::BoxFuture, kind::QuestionKind};

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers questions: by asking a user, or in place of one.
///
/// Every function from an [`AskedQuestion`] to a future of a [`UserAnswer`] is a responder, and answers forms and
/// pages:
///
/// ```
/// use std::convert::Infallible;
///
/// use rounds::client::{UserAnswer, Host, AskedQuestion};
///
/// async fn ask(question: AskedQuestion) -> Result<UserAnswer, Infallible> {
///     println!("{} asks: {}", question.origin(), question.message());
///     Ok(UserAnswer::Cancel) // no user is present
/// }
///
/// let host = Host::new(ask);
/// ```
///
/// [`scripted`](super::scripted), [`defaults_only`](super::defaults_only) and [`unavailable`](super::unavailable) are
/// ready-made. A [`Host`](super::Host) declares to servers what a responder [can](Self::can) answer.
///
/// Decline only if a user saw the question and declined. A responder that stands in for a user, and does not know the
/// answer, cancels or fails.
pub trait Responder: Send + Sync {
    /// Answers a question. The answer is checked before anything is sent.
    ///
    /// # Errors
    ///
    /// An error ends the call and becomes its source. The answers so far are kept.
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>>;

    /// Whether it answers questions of this kind: by default forms and pages.
    fn can(&self, kind: QuestionKind) -> bool {
        matches!(kind, QuestionKind::Form | QuestionKind::Url)
    }

    /// Whether the questions of one round may be asked together. By default they are asked one after the other, which
    /// suits a user at a terminal. A server of the legacy era pushes each question on its own: a [`Host`](super::Host)
    /// passes those on when they come, even while another is being answered.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Receives the progress of a driven call.
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
