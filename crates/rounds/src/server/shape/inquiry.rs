//! The description of a question, which every shape builds and consumes. A new kind of question is added here.

use std::{sync::Arc, time::Duration};

use rmcp::model::{ElicitRequest, ElicitRequestParams, InputRequest, JsonObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    server::{
        form::{Form, FormSource, FormType, Schema},
        policy::{
            elsewhere::{Approvers, PosedElsewhere, mark},
            error::FlowError,
            limits::Limits,
        },
        seal::{
            Digest,
            digest::{Fingerprint, of_question},
            envelope::QuestionKind,
        },
    },
    shared::check::InvalidAnswer,
};

/// A question to ask: what it asks for, its message and its key.
pub(super) struct Inquiry {
    pub(super) subject: Subject,
    pub(super) message: Arc<str>,
    pub(super) key: Option<Arc<str>>,
    default_key: fn() -> String,
    /// How often it is asked again after an invalid answer, if it has a limit of its own.
    pub(super) reasks: Option<u32>,
}

/// What a question asks for.
#[expect(deprecated, reason = "rmcp deprecates the types of sampling")]
pub(super) enum Subject {
    Form(FormSource),
    Page(Box<Page>),
    Elsewhere(Box<Away>),
    Sample(Box<rmcp::model::CreateMessageRequestParams>),
    Roots,
}

/// A page to visit. In a box, so that the other kinds do not reserve space for it.
pub(super) struct Page {
    url: String,
}

/// A question whose answer does not come through the client.
pub(super) struct Away {
    /// The form. None for an approval and for a page of the author's own.
    form: Option<FormSource>,
    approvers: Approvers,
    /// The address of the author's own page.
    page: Option<String>,
    pub(super) within: Option<Duration>,
    /// Whether it was a question of another kind, which cannot be asked elsewhere.
    is_misused: bool,
}

impl Away {
    fn new() -> Self {
        let approvers = Approvers::anyone().not_requester();
        Self { form: None, approvers, page: None, within: None, is_misused: false }
    }

    /// What identifies the question, beside its message and its key.
    fn identity(&self, message: &str, key: &str) -> Result<Value, FlowError> {
        Ok(json!({
            "message": message,
            "key": key,
            "schema": self.schema(key)?,
            "approvers": self.approvers,
            "page": self.page,
        }))
    }

    fn schema(&self, key: &str) -> Result<Option<JsonObject>, FlowError> {
        let Some(source) = &self.form else { return Ok(None) };
        match serde_json::to_value(source.form(key)?.schema()) {
            Ok(Value::Object(schema)) => Ok(Some(schema)),
            _ => Err(FlowError::NotElsewhere),
        }
    }

    fn request(&self, message: String, key: &str, name: &dyn Fn() -> String) -> Result<InputRequest, FlowError> {
        if self.is_misused {
            return Err(FlowError::NotElsewhere);
        }
        let mut request = ElicitRequest::new(ElicitRequestParams::UrlElicitationParams {
            meta: Some(mark()),
            message: message.clone(),
            // The engine knows where it is shown.
            url: String::new(),
            elicitation_id: name(),
        });
        request.extensions.insert(PosedElsewhere {
            message,
            schema: self.schema(key)?,
            approvers: self.approvers.clone(),
            page: self.page.clone(),
            within: self.within,
            until: None,
        });
        Ok(InputRequest::Elicitation(request))
    }
}

impl Inquiry {
    pub(super) fn approval(message: impl Into<String>) -> Self {
        Self::new(Subject::Elsewhere(Box::new(Away::new())), message, || "approval".to_owned())
    }

    /// A page of the author's own, at this address.
    pub(super) fn own_page(message: impl Into<String>, address: impl Into<String>) -> Self {
        let away = Away { page: Some(address.into()), approvers: Approvers::anyone(), ..Away::new() };
        Self::new(Subject::Elsewhere(Box::new(away)), message, || "page".to_owned())
    }

    /// The same question, answered elsewhere by these people.
    pub(super) fn by(&mut self, approvers: Approvers) {
        match &mut self.subject {
            Subject::Elsewhere(away) => away.approvers = approvers,
            Subject::Form(source) => {
                let form = Some(source.clone());
                self.subject = Subject::Elsewhere(Box::new(Away { form, approvers, ..Away::new() }));
            }
            other => *other = Subject::Elsewhere(Box::new(Away { is_misused: true, ..Away::new() })),
        }
    }

    /// Sets how long it waits, if it is answered elsewhere. Returns whether it is.
    pub(super) fn wait_elsewhere(&mut self, time: Duration) -> bool {
        let Subject::Elsewhere(away) = &mut self.subject else { return false };
        away.within = Some(time);
        true
    }

    pub(super) fn form<T: FormType>(message: impl Into<String>) -> Self {
        Self::new(Subject::form::<T>(), message, Form::default_key::<T>)
    }

    pub(super) fn confirm(message: impl Into<String>) -> Self {
        Self::new(Subject::form::<bool>(), message, || "confirm".to_owned())
    }

    pub(super) fn form_with<T>(message: impl Into<String>, schema: &Schema<T>) -> Self {
        Self::new(Subject::Form(schema.source()), message, || "form".to_owned())
    }

    pub(super) fn choice<T>(message: impl Into<String>, schema: &Schema<T>) -> Self {
        Self::new(Subject::Form(schema.source()), message, || "choice".to_owned())
    }

    pub(super) fn page(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(Subject::Page(Box::new(Page { url: url.into() })), message, || "url".to_owned())
    }

    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub(super) fn sample(request: rmcp::model::CreateMessageRequestParams) -> Self {
        let subject = Subject::Sample(Box::new(request));
        Self::new(subject, "a question to the client's model", || "sample".to_owned())
    }

    pub(super) fn roots() -> Self {
        Self::new(Subject::Roots, "the client's roots", || "roots".to_owned())
    }

    fn new(subject: Subject, message: impl Into<String>, default_key: fn() -> String) -> Self {
        Self { subject, message: message.into().into(), key: None, default_key, reasks: None }
    }

    /// The same question with this default key.
    pub(super) fn named(self, default_key: fn() -> String) -> Self {
        Self { default_key, ..self }
    }

    /// The key: the given one, or the default, which it has from then on.
    pub(super) fn settle_key(&mut self) -> &Arc<str> {
        self.key.get_or_insert_with(|| (self.default_key)().into())
    }

    /// The key under which the question was asked.
    pub(super) fn settled_key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// How often it is asked again after an invalid answer.
    pub(super) fn reasks(&self, limits: &Limits) -> u32 {
        self.reasks.unwrap_or(limits.reasks)
    }

    /// The request to send, with these words and under this key. A page needs a unique name.
    pub(super) fn request(
        &self,
        words: String,
        limits: &Limits,
        name: &dyn Fn() -> String,
    ) -> Result<InputRequest, FlowError> {
        self.subject.request(words, self.settled_key(), limits, name)
    }

    /// The fingerprint that identifies the question on a later leg. It does not include the flow's id, unless the name
    /// does: a journal belongs to its flow anyway, and a saved journal can be replayed in another flow.
    pub(super) fn fingerprint(&self, limits: &Limits, name: &dyn Fn() -> String) -> Result<Fingerprint, FlowError> {
        match &self.subject {
            Subject::Form(source) => Ok(source.form(self.settled_key())?.fingerprint(&self.message)),
            Subject::Elsewhere(away) => Ok(Digest::of_shown(&away.identity(&self.message, self.settled_key())?).half()),
            _ => Ok(of_question(&self.request(self.message.to_string(), limits, name)?)),
        }
    }
}

impl Subject {
    pub(super) const fn form<T: FormType>() -> Self {
        Self::Form(FormSource::of::<T>())
    }

    pub(super) fn kind(&self) -> QuestionKind {
        match self {
            Self::Form(_) => QuestionKind::Form,
            Self::Page(_) => QuestionKind::Url,
            Self::Elsewhere(_) => QuestionKind::Elsewhere,
            Self::Sample(_) => QuestionKind::Sample,
            Self::Roots => QuestionKind::Roots,
        }
    }

    /// The origin of its form, if it is a form.
    pub(super) fn source(&self) -> Option<FormSource> {
        match self {
            Self::Form(source) => Some(source.clone()),
            _ => None,
        }
    }

    /// Whether only the question itself can read its answer, because its form was made at run time or it is asked elsewhere.
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Self::Elsewhere(_)) || matches!(self, Self::Form(source) if source.is_made())
    }

    pub(super) fn request(
        &self,
        message: String,
        key: &str,
        limits: &Limits,
        name: &dyn Fn() -> String,
    ) -> Result<InputRequest, FlowError> {
        Ok(match self {
            Self::Form(source) => {
                let form = source.form(key)?;
                let (choices, limit) = (form.options(), limits.choices);
                if source.is_made() && choices > limit {
                    return Err(FlowError::TooManyChoices { key: key.to_owned(), choices, limit });
                }
                form.request(message)
            }
            Self::Page(page) => {
                InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::UrlElicitationParams {
                    meta: None,
                    message,
                    url: page.url.clone(),
                    // Retired in 2026-07-28, but clients that read older messages still require it.
                    elicitation_id: name(),
                }))
            }
            Self::Elsewhere(away) => away.request(message, key, name)?,
            #[expect(deprecated, reason = "rmcp deprecates its types as well")]
            Self::Sample(request) => {
                InputRequest::CreateMessage(rmcp::model::CreateMessageRequest::new((**request).clone()))
            }
            #[expect(deprecated, reason = "rmcp deprecates its types as well")]
            Self::Roots => InputRequest::ListRoots(rmcp::model::ListRootsRequest::default()),
        })
    }

    /// Reads an accepted answer as the type that was asked for.
    pub(super) fn read<T: DeserializeOwned>(&self, key: &str, content: &Value) -> Result<T, InvalidAnswer> {
        match self {
            Self::Form(source) => source.form(key).map_err(unaskable)?.read(content),
            Self::Elsewhere(away) => match &away.form {
                Some(source) => source.form(key).map_err(unaskable)?.read(content),
                None => read_result(content),
            },
            _ => read_result(content),
        }
    }

    /// Reads an accepted answer that is JSON text.
    fn read_text<T: DeserializeOwned>(&self, key: &str, json: &str) -> Result<T, InvalidAnswer> {
        match self {
            Self::Form(source) => source.form(key).map_err(unaskable)?.read_text(json),
            Self::Elsewhere(away) => match &away.form {
                Some(source) => source.form(key).map_err(unaskable)?.read_text(json),
                None => serde_json::from_str(json).map_err(unreadable),
            },
            _ => serde_json::from_str(json).map_err(unreadable),
        }
    }
}

/// Reads what was accepted for a question that is not a form.
pub(super) fn read_result<T: DeserializeOwned>(result: &Value) -> Result<T, InvalidAnswer> {
    T::deserialize(result).map_err(unreadable)
}

fn unaskable(error: impl std::error::Error) -> InvalidAnswer {
    InvalidAnswer::whole(error.to_string())
}

fn unreadable(error: serde_json::Error) -> InvalidAnswer {
    InvalidAnswer::whole(format!("the answer cannot be read: {error}"))
}

/// How an answer becomes a `T`. Shared by all questions of one type.
pub(super) struct Reading<T> {
    pub(super) value: fn(&Subject, &str, &Value) -> Result<T, InvalidAnswer>,
    /// Reads an answer that is JSON text.
    pub(super) text: fn(&Subject, &str, &str) -> Result<T, InvalidAnswer>,
}

impl<T: DeserializeOwned> Reading<T> {
    pub(super) const OF_TYPE: Self = Self { value: Subject::read::<T>, text: Subject::read_text::<T> };
}
