//! Questions that a server pushes: who is asked, for how long, and how many at once.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use rmcp::ErrorData;
use tokio::sync::watch;

use super::{AskedQuestion, BoxError, Responder, UserAnswer, error::short};
use crate::shared::kind::QuestionKind;

/// How many questions are being answered over a connection.
pub(super) type Thinking = watch::Receiver<usize>;

/// How many questions are answered at once.
pub(super) const MAX_PUSHED: usize = 64;

/// What the responder answers. A panic is an error: rmcp would leave the server waiting for an answer.
pub(super) async fn answer<R: Responder>(responder: &R, question: AskedQuestion) -> Result<UserAnswer, BoxError> {
    let mut answer = Box::pin(async move { responder.answer(question).await });
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(Err("whoever was to answer it panicked".into())))
    })
    .await
}

/// What is said when nobody answers in time: a timeout is a cancel, where there is one.
pub(super) fn timed_out(question: &AskedQuestion) -> Result<UserAnswer, BoxError> {
    match question.kind() {
        QuestionKind::Form | QuestionKind::Url => Ok(UserAnswer::Cancel),
        QuestionKind::Sample | QuestionKind::Roots => Err("nobody answered in time".into()),
    }
}

pub(super) fn internal(why: &str) -> ErrorData {
    ErrorData::internal_error(format!("the question was not answered: {}", short(why)), None)
}

/// Somebody thinks, until this is dropped.
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
