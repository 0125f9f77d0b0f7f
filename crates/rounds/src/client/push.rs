//! Questions that a server pushes: their answers, their timeout, and how many may be pending at once.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use rmcp::ErrorData;
use tokio::sync::watch;

use super::{AskedQuestion, BoxError, Responder, UserAnswer, error::short};
use crate::shared::kind::QuestionKind;

/// The number of pushed questions that are being answered over a connection.
pub(super) type Thinking = watch::Receiver<usize>;

/// The limit of pushed questions that are answered at once.
pub(super) const MAX_PUSHED: usize = 64;

/// The responder's answer. A panic becomes an error, because rmcp would leave the server waiting for an answer.
pub(super) async fn answer<R: Responder>(responder: &R, question: AskedQuestion) -> Result<UserAnswer, BoxError> {
    let mut answer = Box::pin(async move { responder.answer(question).await });
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(Err("the responder panicked".into())))
    })
    .await
}

/// The answer to a question that timed out: a cancel, if the question can be cancelled.
pub(super) fn timed_out(question: &AskedQuestion) -> Result<UserAnswer, BoxError> {
    match question.kind() {
        QuestionKind::Form | QuestionKind::Url | QuestionKind::Elsewhere => Ok(UserAnswer::Cancel),
        QuestionKind::Sample | QuestionKind::Roots => Err("it was not answered in time".into()),
    }
}

pub(super) fn internal(why: &str) -> ErrorData {
    ErrorData::internal_error(format!("the question was not answered: {}", short(why)), None)
}

/// Counts a question as being answered until it is dropped.
pub(super) struct Thought<'a>(&'a watch::Sender<usize>);

impl<'a> Thought<'a> {
    pub(super) fn begin(thinking: &'a watch::Sender<usize>) -> Option<Self> {
        let begun = thinking.send_if_modified(|count| {
            let room = *count < MAX_PUSHED;
            *count += usize::from(room);
            room
        });
        begun.then(|| Self(thinking))
    }
}

impl Drop for Thought<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
