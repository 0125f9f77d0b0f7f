//! A question that the library asks on a handler's behalf: for [`Asked`](crate::Asked) and [`Steps`](crate::Steps).

use std::{sync::Arc, time::Duration};

use rmcp::model::InputRequest;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ask::Answer,
    inquiry::{Inquiry, Reading},
};
use crate::{
    server::{
        engine::{answer::Received, view::View},
        flows::Decision,
        form::{Alternative, Form, FormType, Schema},
        policy::{elsewhere::Approvers, error::FlowError},
        seal::envelope::PosedQuestion,
    },
    shared::check::InvalidAnswer,
};

/// A question, or the value itself if there is nothing to ask.
///
/// ```
/// # use rmcp::schemars;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)] enum Units { Metric, Imperial }
/// use rounds::asked::DeclaredQuestion;
///
/// let asked: DeclaredQuestion<Units> = DeclaredQuestion::form("Which units?");
/// let known: DeclaredQuestion<Units> = DeclaredQuestion::known(Units::Metric);
/// ```
#[must_use = "a declared question is asked only if it is returned"]
pub struct DeclaredQuestion<T>(KnownOrAsked<T>);

enum KnownOrAsked<T> {
    Known(T),
    Question(Unanswered<T>),
}

struct Unanswered<T> {
    inquiry: Inquiry,
    read: ReadAnswer<T>,
    /// Whether the author has a rule for the answer, so that the type alone cannot read it.
    is_checked: bool,
    /// The value to use if the client cannot be asked.
    otherwise: Option<T>,
}

type ReadAnswer<T> = Box<dyn Fn(&Inquiry, Answer<Arc<Value>>) -> Result<T, Misread> + Send>;

/// Why an answer does not give a value.
enum Misread {
    /// The answer is not valid, and the question may be asked again.
    Unfit(InvalidAnswer),
    /// The answer is valid, and ends the call.
    Ends(FlowError),
}

impl<T: FormType> DeclaredQuestion<T> {
    /// Asks for a `T` with a form, under the name of its type: `Units` is asked as `units`.
    pub fn form(message: impl Into<String>) -> Self {
        Self::question(Inquiry::form::<T>(message))
    }

    /// Asks the user to visit a page. Acceptance means that the user agreed to open it, not that they completed it. The
    /// type has no data, such as `()` or `struct SignedIn;`.
    pub fn url(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::question(Inquiry::page(message, url).named(Form::default_key::<T>))
    }
}

impl<T: DeserializeOwned + 'static> DeclaredQuestion<T> {
    /// Asks with a form that is known only at run time, under the key `form`. See [`Schema`].
    pub fn form_with(message: impl Into<String>, schema: impl Into<Schema<T>>) -> Self {
        Self::question(Inquiry::form_with(message, &schema.into()))
    }

    /// Asks for one of these options, under the key `choice`. The value is deserialised from a string: a `String`, or a
    /// type of your own such as `struct Branch(String)`. For several options, use [`form_with`](Self::form_with) and
    /// [`Schema::choices`].
    pub fn choose<C: Into<Alternative>>(message: impl Into<String>, options: impl IntoIterator<Item = C>) -> Self {
        Self::question(Inquiry::choice(message, &Schema::<T>::choice(options)))
    }

    /// Asks with a page of the server's own, as [`Ask::page`](crate::Ask::page) does.
    pub fn page(message: impl Into<String>, address: impl Into<String>) -> Self {
        Self::question(Inquiry::own_page(message, address))
    }

    fn question(mut inquiry: Inquiry) -> Self {
        inquiry.settle_key();
        Self(KnownOrAsked::Question(Unanswered {
            inquiry,
            read: Box::new(|inquiry, answer| {
                let content = answer.into_value(None, &inquiry.message).map_err(Misread::Ends)?;
                let read = Reading::<T>::OF_TYPE.value;
                read(&inquiry.subject, inquiry.settled_key(), &content).map_err(Misread::Unfit)
            }),
            is_checked: false,
            otherwise: None,
        }))
    }
}

impl DeclaredQuestion<Decision> {
    /// Asks another person than the caller for an approval, as [`Ask::approval`](crate::Ask::approval) does.
    pub fn approval(message: impl Into<String>) -> Self {
        Self::question(Inquiry::approval(message))
    }

    /// The value is [`Decision::Expired`] if there is no decision in time. Otherwise the call fails with
    /// [`FlowError::NotInTime`].
    pub fn or_expired(self) -> Self {
        self.or(Decision::Expired)
    }
}

impl<T> DeclaredQuestion<T> {
    /// Has the form answered elsewhere, by these people, as
    /// [`QuestionBuilder::by`](crate::ask::QuestionBuilder::by) does.
    pub fn by(mut self, approvers: Approvers) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.inquiry.by(approvers);
        }
        self
    }

    /// Sets how long a question that is answered elsewhere waits, up to 30 days. The flow's deadline is extended with
    /// it. It has no effect on other questions.
    pub fn within(mut self, time: Duration) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.inquiry.wait_elsewhere(time);
        }
        self
    }

    /// The value itself. Nothing is asked.
    pub const fn known(value: T) -> Self {
        Self(KnownOrAsked::Known(value))
    }

    /// Sets the question's key on the wire, which is the name of its type by default. In [`Steps`](crate::Steps) the
    /// key is the step's name, and this has no effect.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.inquiry.key = Some(key.into().into());
        }
        self
    }

    /// Sets the value to use if the client [cannot be asked](FlowError::cannot_ask). It does not replace the answer of
    /// a user who declined.
    pub fn or(mut self, value: T) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.otherwise = Some(value);
        }
        self
    }

    /// Sets a rule for the value, with the message that the user sees if the rule does not hold. The question is then
    /// asked again, as after an answer that does not match the form. The rule has to hold as well as those that were
    /// set before. It runs on every leg that reads the answer, so it must have no effects; in
    /// [`Steps`](crate::Steps) it runs only when the answer arrives.
    pub fn check<M: Into<String>>(self, rule: impl Fn(&T) -> Result<(), M> + Send + 'static) -> Self
    where
        T: 'static,
    {
        let KnownOrAsked::Question(question) = self.0 else { return self };
        let read = question.read;
        Self(KnownOrAsked::Question(Unanswered {
            read: Box::new(move |inquiry, answer| {
                let value = read(inquiry, answer)?;
                let unfit = |why| Misread::Unfit(InvalidAnswer::whole(why));
                rule(&value).map(|()| value).map_err(unfit)
            }),
            is_checked: true,
            ..question
        }))
    }

    /// Sets how often this question is asked again after an invalid answer, instead of
    /// [`Limits::reasks`](crate::Limits::reasks).
    pub fn reasks(mut self, reasks: u32) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.inquiry.reasks = Some(reasks);
        }
        self
    }

    /// The same question, with a refusal as a value.
    pub(super) fn answered(self) -> DeclaredQuestion<Answer<T>>
    where
        T: 'static,
    {
        DeclaredQuestion(match self.0 {
            KnownOrAsked::Known(value) => KnownOrAsked::Known(Answer::Accepted(value)),
            KnownOrAsked::Question(Unanswered { inquiry, read, is_checked, otherwise }) => {
                KnownOrAsked::Question(Unanswered {
                    inquiry,
                    read: Box::new(move |inquiry, answer| match answer {
                        Answer::Accepted(_) => read(inquiry, answer).map(Answer::Accepted),
                        Answer::Declined => Ok(Answer::Declined),
                        Answer::Cancelled => Ok(Answer::Cancelled),
                    }),
                    is_checked,
                    otherwise: otherwise.map(Answer::Accepted),
                })
            }
        })
    }

    /// The message of the question, or none if the value is known.
    pub(super) fn message(&self) -> Option<&str> {
        match &self.0 {
            KnownOrAsked::Known(_) => None,
            KnownOrAsked::Question(question) => Some(&question.inquiry.message),
        }
    }

    /// The value, if it is known or was answered; otherwise the request to send. An answer counts only for this exact
    /// question: if another one was asked under its key, such as one with another price, this one is asked.
    pub(crate) fn settle(self, view: &View, pushes: bool) -> Result<SettledQuestion<T>, FlowError> {
        let mut question = match self.0 {
            KnownOrAsked::Known(value) => return Ok(SettledQuestion::Value(value)),
            KnownOrAsked::Question(question) => question,
        };
        let (key, limits) = (question.inquiry.settled_key().to_owned(), &view.frame.core.limits);
        // Unique to this flow, and the same on all of its legs.
        let name = || format!("{}-{key}", view.round.flow);
        let fingerprint = question.inquiry.fingerprint(limits, &name)?;
        let mut answers = view.frame.answers();
        if answers.posed(&key).is_some_and(|posed| posed.question != fingerprint) {
            answers.note_unlike(&key);
        }
        let before = answers.posed(&key).filter(|posed| posed.question == fingerprint);
        let asked_again = before.map_or(0, PosedQuestion::times_asked_again);
        let answered = before.and_then(|_| answers.to_posed(&key));
        drop(answers);
        if matches!(answered, Some((_, Received::Late))) {
            let late = FlowError::NotInTime { question: question.inquiry.message.to_string() };
            return question.otherwise.map(SettledQuestion::Value).ok_or(late);
        }
        let problem = match answered.map(|(_, received)| question.value(received)) {
            Some(Ok(value)) => {
                view.frame.answers().take(&key, fingerprint);
                return Ok(SettledQuestion::Value(value));
            }
            Some(Err(Misread::Ends(error))) => return Err(error),
            Some(Err(Misread::Unfit(problem))) => Some(problem),
            None => None,
        };
        let (inquiry, kind) = (&question.inquiry, question.inquiry.subject.kind());
        let message = &inquiry.message;
        let request = inquiry.request(message.to_string(), limits, &name)?;
        let permitted = if pushes { view.peer.permits(kind, &request) } else { view.permits(kind, &request) };
        if permitted.is_err_and(|error| error.cannot_ask())
            && let Some(value) = question.otherwise.take()
        {
            return Ok(SettledQuestion::Value(value));
        }
        let (request, asked_again) = match problem {
            None => (request, asked_again),
            Some(problem) if asked_again == inquiry.reasks(limits) => {
                return Err(FlowError::Invalid { question: message.to_string(), problem });
            }
            Some(problem) => (inquiry.request(problem.noted(message), limits, &name)?, asked_again + 1),
        };
        let needs_question = question.is_checked || inquiry.subject.is_made();
        let posed = PosedQuestion::new(&key, fingerprint, asked_again, needs_question);
        view.frame.answers().pose(posed)?;
        Ok(SettledQuestion::Asks(key, Box::new(request)))
    }
}

/// A question after [`settle`](DeclaredQuestion::settle).
pub(crate) enum SettledQuestion<T> {
    Value(T),
    /// The question has to be asked under this key.
    Asks(String, Box<InputRequest>),
}

impl<T> Unanswered<T> {
    fn value(&self, received: Received) -> Result<T, Misread> {
        let answer = match received {
            Received::Accepted(content) => Answer::Accepted(content),
            Received::Declined => Answer::Declined,
            Received::Cancelled | Received::Late => Answer::Cancelled,
            Received::Malformed(problem) => return Err(Misread::Unfit(problem)),
        };
        (self.read)(&self.inquiry, answer)
    }
}

impl<T> std::fmt::Debug for DeclaredQuestion<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message() {
            Some(message) => f.debug_tuple("DeclaredQuestion").field(&message).finish(),
            None => f.write_str("DeclaredQuestion(known)"),
        }
    }
}
