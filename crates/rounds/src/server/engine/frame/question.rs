//! A question that a handler waits for, from when it is opened until its answer is taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use rmcp::model::{ElicitRequest, ElicitRequestParams::FormElicitationParams as Form, InputRequest, InputRequests};
use serde_json::Value;

use super::{Frame, wake};
use crate::{
    server::{
        engine::{answer::Received, poll},
        form::FormSource,
        policy::{elsewhere::PosedElsewhere, error::FlowError},
        seal::{digest::Fingerprint, envelope::QuestionKind, journal::WaitingQuestion},
    },
    shared::{clock::Timestamp, order},
};

/// A question that has no answer yet.
pub(super) struct PendingQuestion {
    pub(super) id: u32,
    /// Whether the client knows of it: it was pushed, or asked in the latest round.
    pub(super) asked: bool,
    pub(super) question: OpenQuestion,
    /// What it takes to send it again, should no answer come. It waits for long, and is kept as what takes little memory: the message
    /// of a form, and anything else as JSON text.
    pub(super) sent: Option<Arc<str>>,
    /// What waits for its answer.
    pub(super) waker: Option<Waker>,
}

impl PendingQuestion {
    /// What is sent to the client, under its key.
    pub(super) fn send(&mut self) -> Option<(String, InputRequest)> {
        self.asked = true;
        let mut request = *self.question.request.take()?;
        self.sent = match (&self.question.form, &request) {
            _ if self.is_elsewhere() => {
                if let Some(posed) = PosedElsewhere::of_mut(&mut request) {
                    posed.until = self.question.until;
                }
                serde_json::to_string(&(PosedElsewhere::of(&request), &request)).ok().map(Arc::from)
            }
            (Some(_), InputRequest::Elicitation(ElicitRequest { params: Form { message, .. }, .. })) => {
                let question = &self.question.message;
                Some(if **question == **message { question.clone() } else { message.as_str().into() })
            }
            _ => {
                self.question.form = None;
                order::say_fields(&mut request);
                serde_json::to_string(&request).ok().map(Arc::from)
            }
        };
        Some((String::from(&*self.question.key), request))
    }

    /// Whether its answer does not come through the client.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.question.kind == QuestionKind::Elsewhere
    }

    /// What is counted for it while it waits.
    pub(super) fn bytes(&self) -> usize {
        let OpenQuestion { key, message, form, .. } = &self.question;
        let sent = self.sent.as_ref().filter(|sent| !Arc::ptr_eq(sent, message));
        let form = form.as_ref().map_or(0, FormSource::bytes);
        size_of::<Self>() + key.len() + message.len() + sent.map_or(0, |sent| sent.len()) + form
    }

    /// What the journal of a durable handler says of it.
    pub(super) fn waiting(&self) -> Option<WaitingQuestion> {
        let OpenQuestion { key, digest, message, until, .. } = &self.question;
        let (key, text) = (String::from(&**key), String::from(&**message).into());
        Some(WaitingQuestion { key, question: (*digest)?, text, until: *until })
    }

    /// It was sent, and no answer came: it is to be sent again.
    pub(super) fn take_back(&mut self) -> Result<(), FlowError> {
        let unreadable = |error| FlowError::failed(format!("the question cannot be asked again: {error}"));
        self.question.request = match (&self.question.form, self.sent.take()) {
            (_, Some(text)) if self.is_elsewhere() => {
                let (posed, mut request): (PosedElsewhere, InputRequest) =
                    serde_json::from_str(&text).map_err(unreadable)?;
                if let InputRequest::Elicitation(request) = &mut request {
                    request.extensions.insert(posed);
                }
                Some(Box::new(request))
            }
            (Some(form), Some(message)) => Some(Box::new(form.form(&self.question.key)?.request(message.to_string()))),
            (None, Some(text)) => {
                let mut request = serde_json::from_str(&text).map_err(unreadable)?;
                order::restore_fields(&mut request);
                Some(Box::new(request))
            }
            (_, None) => return Ok(()),
        };
        Ok(())
    }
}

/// A question, ready to be asked.
pub(crate) struct OpenQuestion {
    pub(crate) key: Arc<str>,
    pub(crate) kind: QuestionKind,
    /// What is to be sent; nothing for a checkpoint, which only comes back.
    pub(crate) request: Option<Box<InputRequest>>,
    /// How it is made of its key, if it is a form.
    pub(crate) form: Option<FormSource>,
    /// By what a durable handler knows it again.
    pub(crate) digest: Option<Fingerprint>,
    pub(crate) message: Arc<str>,
    /// Until when this question may wait, if not as long as any.
    pub(crate) until: Option<Timestamp>,
}

/// What came of the questions that a handler declares: its own code has not been run.
pub(crate) enum Declared {
    /// These, in this order where it is another than that of their keys.
    Asks(InputRequests, Option<Value>),
    Failed(FlowError),
}

/// A question that was opened. It is ready with its answer, and is withdrawn when this is dropped.
pub(crate) struct PendingAnswer {
    pub(super) frame: Arc<Frame>,
    pub(super) id: u32,
}

impl Future for PendingAnswer {
    type Output = Result<Received, FlowError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.frame.state();
        if let Some(received) = state.take_answer(self.id) {
            return Poll::Ready(received);
        }
        let Some(open) = state.open.iter_mut().find(|open| open.id == self.id) else {
            return Poll::Ready(Err(FlowError::FlowEnded));
        };
        let same = open.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let old = if same { None } else { open.waker.replace(cx.waker().clone()) };
        // A task may be dropped with it, and whatever that has.
        drop(state);
        drop(old);
        // Most handlers await it themselves, and are polled with the frame's own waker.
        if !same && cx.waker().data() != Arc::as_ptr(&self.frame).cast() && poll::is_blocked(&self.frame, cx.waker()) {
            return Poll::Ready(Err(FlowError::Blocked));
        }
        Poll::Pending
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        let mut state = self.frame.state();
        let withdrawn = state.take_open(self.id);
        let untaken = state.take_answer(self.id);
        // A push that is under way is dropped by the driver.
        if state.polling || withdrawn.is_none() {
            drop(state);
        } else {
            wake(state);
        }
        drop((withdrawn, untaken));
    }
}
