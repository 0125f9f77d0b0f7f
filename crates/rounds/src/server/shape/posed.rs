//! A question that the library asks on a handler's behalf: for [`Asked`](crate::Asked) and [`Steps`](crate::Steps).

use std::sync::Arc;

use rmcp::model::{ElicitRequest, ElicitRequestParams, InputRequest};
use serde_json::Value;

use super::ask::{Answer, from_json, read_form};
use crate::{
    server::{
        engine::{answer::Received, view::View},
        form::{Form, FormType},
        policy::error::FlowError,
        seal::{
            digest::{Fingerprint, of_question},
            envelope::QuestionKind,
        },
    },
    shared::check::InvalidAnswer,
};

/// A question, or the value itself where there is nothing to ask.
///
/// ```
/// # use rmcp::schemars;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)] enum Units { Metric, Imperial }
/// use rounds::Posed;
///
/// let asked: Posed<Units> = Posed::form("Which units?");
/// let known: Posed<Units> = Posed::known(Units::Metric);
/// ```
#[must_use = "a question is asked by who it is handed to"]
pub struct DeclaredQuestion<T>(Inner<T>);

enum Inner<T> {
    Known(T),
    Question(Unanswered<T>),
}

struct Unanswered<T> {
    message: String,
    key: String,
    /// The page to visit, of a question that is no form.
    url: Option<String>,
    /// The form's schema goes with the type that it was made for.
    form: fn(&str) -> Result<Form<'_>, FlowError>,
    read: Read<T>,
    /// What to take when the client cannot be asked.
    otherwise: Option<T>,
}

type Read<T> = Box<dyn Fn(Reply<'_>) -> Result<T, Misread> + Send>;

/// An answer, and what it is to.
struct Reply<'a> {
    key: &'a str,
    kind: QuestionKind,
    message: &'a str,
    answer: Answer<Arc<Value>>,
}

/// Why an answer gives no value.
enum Misread {
    /// It does not fit, and may be given again.
    Unfit(InvalidAnswer),
    /// It fits, and ends the call.
    Ends(FlowError),
}

impl<T: FormType> DeclaredQuestion<T> {
    /// Asks for a `T` with a form, under the name of its type: `Units` is asked as `units`.
    pub fn form(message: impl Into<String>) -> Self {
        Self::question(message.into(), None)
    }

    /// Asks the person to visit a page. That they agreed does not mean that they did. The type is one without data, such as
    /// `()` or `struct SignedIn;`.
    pub fn url(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::question(message.into(), Some(url.into()))
    }

    fn question(message: String, url: Option<String>) -> Self {
        Self(Inner::Question(Unanswered {
            message,
            key: Form::default_key::<T>(),
            url,
            form: |key| Ok(Form::of::<T>(key)?),
            read: Box::new(|reply| {
                let content = reply.answer.into_value(None, reply.message).map_err(Misread::Ends)?;
                read(reply.key, reply.kind, &content).map_err(Misread::Unfit)
            }),
            otherwise: None,
        }))
    }
}

impl<T> DeclaredQuestion<T> {
    /// The value itself: nobody is asked.
    pub const fn known(value: T) -> Self {
        Self(Inner::Known(value))
    }

    /// The question's key on the wire, in place of the name of its type. In [`Steps`](crate::Steps) it is the step's name, and
    /// this has no effect.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if let Inner::Question(question) = &mut self.0 {
            question.key = key.into();
        }
        self
    }

    /// What to take when the client [cannot be asked](FlowError::cannot_ask). It does not stand in for a person who was asked
    /// and said no.
    pub fn or(mut self, value: T) -> Self {
        if let Inner::Question(question) = &mut self.0 {
            question.otherwise = Some(value);
        }
        self
    }

    /// With a refusal as a value.
    pub(super) fn answered(self) -> DeclaredQuestion<Answer<T>>
    where
        T: 'static,
    {
        DeclaredQuestion(match self.0 {
            Inner::Known(value) => Inner::Known(Answer::Accepted(value)),
            Inner::Question(Unanswered { message, key, url, form, read, otherwise }) => Inner::Question(Unanswered {
                message,
                key,
                url,
                form,
                read: Box::new(move |reply| match reply.answer {
                    Answer::Accepted(_) => read(reply).map(Answer::Accepted),
                    Answer::Declined => Ok(Answer::Declined),
                    Answer::Cancelled => Ok(Answer::Cancelled),
                }),
                otherwise: otherwise.map(Answer::Accepted),
            }),
        })
    }

    /// What is asked, if it is asked.
    pub(super) fn message(&self) -> Option<&str> {
        match &self.0 {
            Inner::Known(_) => None,
            Inner::Question(question) => Some(&question.message),
        }
    }

    /// The value, if it is known or was answered; otherwise what is to be asked. An answer counts only to this very question: when
    /// another was asked under its key, as one that named another price, it is asked anew.
    pub(super) fn settle(self, view: &View, pushes: bool) -> Result<Settled<T>, FlowError> {
        let mut question = match self.0 {
            Inner::Known(value) => return Ok(Settled::Value(value)),
            Inner::Question(question) => question,
        };
        let fingerprint = question.fingerprint(view)?;
        let answers = view.frame.answers();
        let before = answers.posed(&question.key).filter(|posed| posed.question == fingerprint);
        let asked_again = before.map_or(0, |posed| posed.asked_again);
        let answered = before.and_then(|_| answers.to_posed(&question.key));
        drop(answers);
        let problem = match answered.map(|(kind, received)| question.value(kind, received)) {
            Some(Ok(value)) => {
                view.frame.answers().take(&question.key, fingerprint);
                return Ok(Settled::Value(value));
            }
            Some(Err(Misread::Ends(error))) => return Err(error),
            Some(Err(Misread::Unfit(problem))) => Some(problem),
            None => None,
        };
        let kind = question.kind();
        let request = question.request(view, question.message.clone())?;
        let permitted = if pushes { view.peer.permits(kind, &request) } else { view.permits(kind, &request) };
        if permitted.is_err_and(|error| error.cannot_ask())
            && let Some(value) = question.otherwise.take()
        {
            return Ok(Settled::Value(value));
        }
        let (request, asked_again) = match problem {
            None => (request, asked_again),
            Some(problem) if asked_again == view.frame.core.limits.reasks => {
                return Err(FlowError::Invalid { question: question.message, problem });
            }
            Some(problem) => (question.request(view, problem.noted(&question.message))?, asked_again + 1),
        };
        view.frame.answers().pose(&question.key, fingerprint, asked_again)?;
        Ok(Settled::Asks(question.key, Box::new(request)))
    }
}

/// What became of a question.
pub(super) enum Settled<T> {
    Value(T),
    /// It is to be asked, under this key.
    Asks(String, Box<InputRequest>),
}

impl<T> Unanswered<T> {
    fn kind(&self) -> QuestionKind {
        if self.url.is_some() { QuestionKind::Url } else { QuestionKind::Form }
    }

    fn fingerprint(&self, view: &View) -> Result<Fingerprint, FlowError> {
        match &self.url {
            Some(_) => Ok(of_question(&self.request(view, self.message.clone())?)),
            None => Ok((self.form)(&self.key)?.fingerprint(&self.message)),
        }
    }

    fn request(&self, view: &View, message: String) -> Result<InputRequest, FlowError> {
        let params = match &self.url {
            Some(url) => ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message,
                url: url.clone(),
                // Of this flow alone, and the same on all of its legs.
                elicitation_id: format!("{}-{}", view.round.flow, self.key),
            },
            None => (self.form)(&self.key)?.params(message),
        };
        Ok(InputRequest::Elicitation(ElicitRequest::new(params)))
    }

    fn value(&self, kind: QuestionKind, received: Received) -> Result<T, Misread> {
        let answer = match received {
            Received::Accepted(content) => Answer::Accepted(content),
            Received::Declined => Answer::Declined,
            Received::Cancelled => Answer::Cancelled,
            Received::Malformed(problem) => return Err(Misread::Unfit(problem)),
        };
        (self.read)(Reply { key: &self.key, kind, message: &self.message, answer })
    }
}

/// Reads an accepted answer as the type that was asked for.
pub(super) fn read<T: FormType>(key: &str, kind: QuestionKind, content: &Value) -> Result<T, InvalidAnswer> {
    match kind {
        QuestionKind::Form => read_form(key, content),
        _ => from_json(content),
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
