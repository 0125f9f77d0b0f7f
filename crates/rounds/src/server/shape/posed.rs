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
    message: String,
    key: String,
    /// The page to visit. None for a form.
    url: Option<String>,
    /// Makes the form; its schema belongs to the type.
    form: fn(&str) -> Result<Form<'_>, FlowError>,
    read: ReadAnswer<T>,
    /// The value to use if the client cannot be asked.
    otherwise: Option<T>,
}

type ReadAnswer<T> = Box<dyn Fn(AnswerTo<'_>) -> Result<T, Misread> + Send>;

/// An answer, with the question that it answers.
struct AnswerTo<'a> {
    key: &'a str,
    kind: QuestionKind,
    message: &'a str,
    answer: Answer<Arc<Value>>,
}

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
        Self::question(message.into(), None)
    }

    /// Asks the user to visit a page. Acceptance means that the user agreed to open it, not that they completed it. The
    /// type has no data, such as `()` or `struct SignedIn;`.
    pub fn url(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::question(message.into(), Some(url.into()))
    }

    fn question(message: String, url: Option<String>) -> Self {
        Self(KnownOrAsked::Question(Unanswered {
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
    /// The value itself. Nothing is asked.
    pub const fn known(value: T) -> Self {
        Self(KnownOrAsked::Known(value))
    }

    /// Sets the question's key on the wire, which is the name of its type by default. In [`Steps`](crate::Steps) the
    /// key is the step's name, and this has no effect.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if let KnownOrAsked::Question(question) = &mut self.0 {
            question.key = key.into();
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

    /// The same question, with a refusal as a value.
    pub(super) fn answered(self) -> DeclaredQuestion<Answer<T>>
    where
        T: 'static,
    {
        DeclaredQuestion(match self.0 {
            KnownOrAsked::Known(value) => KnownOrAsked::Known(Answer::Accepted(value)),
            KnownOrAsked::Question(Unanswered { message, key, url, form, read, otherwise }) => {
                KnownOrAsked::Question(Unanswered {
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
                })
            }
        })
    }

    /// The message of the question, or none if the value is known.
    pub(super) fn message(&self) -> Option<&str> {
        match &self.0 {
            KnownOrAsked::Known(_) => None,
            KnownOrAsked::Question(question) => Some(&question.message),
        }
    }

    /// The value, if it is known or was answered; otherwise the request to send. An answer counts only for this exact
    /// question: if another one was asked under its key, such as one with another price, this one is asked.
    pub(super) fn settle(self, view: &View, pushes: bool) -> Result<SettledQuestion<T>, FlowError> {
        let mut question = match self.0 {
            KnownOrAsked::Known(value) => return Ok(SettledQuestion::Value(value)),
            KnownOrAsked::Question(question) => question,
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
                return Ok(SettledQuestion::Value(value));
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
            return Ok(SettledQuestion::Value(value));
        }
        let (request, asked_again) = match problem {
            None => (request, asked_again),
            Some(problem) if asked_again == view.frame.core.limits.reasks => {
                return Err(FlowError::Invalid { question: question.message, problem });
            }
            Some(problem) => (question.request(view, problem.noted(&question.message))?, asked_again + 1),
        };
        view.frame.answers().pose(&question.key, fingerprint, asked_again)?;
        Ok(SettledQuestion::Asks(question.key, Box::new(request)))
    }
}

/// A question after [`settle`](DeclaredQuestion::settle).
pub(super) enum SettledQuestion<T> {
    Value(T),
    /// The question has to be asked under this key.
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
                // Unique to this flow, and the same on all of its legs.
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
        (self.read)(AnswerTo { key: &self.key, kind, message: &self.message, answer })
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
