//! Questions: what a server wants to know, as something to show.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rmcp::model::{CreateMessageRequestParams, ElicitRequestParams, InputRequest, JsonObject, RequestMetaObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, AnswerError, Field, Origin, field::required};
use crate::{Kind, Timestamp, check::check};

/// How large the questions of a round may be together, in bytes.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// How large a question may be that a person is to read, in bytes.
const MAX_FORM_BYTES: usize = 256 << 10;

/// A question, to be shown to somebody together with who asks. Clones are the same question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    read: Arc<Read>,
    context: Arc<Context>,
}

/// A question as it came, and what it says.
#[derive(Debug)]
struct Read {
    key: String,
    asked: Asked,
    raw: RawQuestion,
    /// How the form was filled in before.
    suggested: Option<JsonObject>,
    /// The form's fields, once somebody has looked at them: who knows a question by its key does not.
    fields: OnceLock<Vec<Field>>,
}

/// All else is read off these.
impl PartialEq for Read {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.raw == other.raw && self.suggested == other.suggested
    }
}

/// What a question is about, by its kind.
#[derive(Debug)]
enum Asked {
    Form { message: String },
    Url { message: String, url: String },
    Sample(Box<CreateMessageRequestParams>),
    Roots,
}

/// What all questions of a round have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Context {
    pub(super) origin: Origin,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) pushed: bool,
}

impl Question {
    /// The key that its answer goes by. A question that a legacy server [pushed](Self::is_pushed) has none: it is empty.
    pub fn key(&self) -> &str {
        &self.read.key
    }

    /// What kind of answer it wants.
    pub fn kind(&self) -> Kind {
        match self.read.asked {
            Asked::Form { .. } => Kind::Form,
            Asked::Url { .. } => Kind::Url,
            Asked::Sample(_) => Kind::Sample,
            Asked::Roots => Kind::Roots,
        }
    }

    /// The question in the server's words; in ours where it has none. They come from the server: whoever shows them on a
    /// terminal takes control characters out.
    pub fn message(&self) -> &str {
        match &self.read.asked {
            Asked::Form { message } | Asked::Url { message, .. } => message,
            Asked::Sample(_) => "The server wants to use your model.",
            Asked::Roots => "The server wants to know your roots.",
        }
    }

    /// The fields of its form, in the order in which they are to be shown. Empty if it is no form, and for a form that
    /// only asks for consent.
    pub fn fields(&self) -> &[Field] {
        let Read { asked: Asked::Form { .. }, raw, suggested, fields, .. } = &*self.read else { return &[] };
        let read = |schema| Field::of_schema(schema, &raw.order, suggested.as_ref());
        fields.get_or_init(|| raw.schema().map(read).unwrap_or_default())
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The page to visit. Show it whole, and open it only when told to.
    pub fn url(&self) -> Option<&str> {
        match &self.read.asked {
            Asked::Url { url, .. } => Some(url),
            _ => None,
        }
    }

    /// What the model is to be given.
    pub fn sample(&self) -> Option<&CreateMessageRequestParams> {
        match &self.read.asked {
            Asked::Sample(params) => Some(params),
            _ => None,
        }
    }

    /// Who asks.
    pub fn origin(&self) -> &Origin {
        &self.context.origin
    }

    /// How long an answer is good for, if the server has said so: nothing once it is too late.
    pub fn expires_in(&self) -> Option<Duration> {
        super::pending::left(self.context.expires_at)
    }

    /// Whether a server of the legacy era asks, over the live connection.
    pub fn is_pushed(&self) -> bool {
        self.context.pushed
    }

    /// The question as it came: its method and its parameters.
    pub fn raw(&self) -> (&str, &Value) {
        (&self.read.raw.method, &self.read.raw.params)
    }

    /// Checks an answer to this question. Whole numbers that were spelled as floats come back as such, and what the form
    /// does not know is left out.
    ///
    /// # Errors
    ///
    /// When it is of another kind, or does not fit the form: then the error says which field is wrong and why.
    pub fn check(&self, answer: Answer) -> Result<Answer, AnswerError> {
        let Read { key, raw, .. } = &*self.read;
        if !answer.fits(self.kind()) {
            return Err(AnswerError::OtherKind { key: key.clone(), wanted: self.kind() });
        }
        match (answer, raw.schema()) {
            (Answer::Form(content), Some(schema)) => {
                let invalid = |problem| AnswerError::Invalid { key: key.clone(), problem };
                let content = Value::Object(content);
                let mut checked = check(schema, &content).map_err(invalid)?;
                // What is required and not described is let through as it is.
                for name in required(schema) {
                    if let (None, Some(value)) = (checked.get(name), content.get(name)) {
                        checked.insert(name.to_owned(), value.clone());
                    }
                }
                Ok(Answer::Form(checked))
            }
            (answer, _) => Ok(answer),
        }
    }

    /// The form as it would be if nobody changed anything: suggestions, and defaults where there are none.
    pub fn prefilled(&self) -> JsonObject {
        let value = |field: &Field| field.suggested.clone().or_else(|| field.default.clone());
        self.fields().iter().filter_map(|field| Some((field.name.clone(), value(field)?))).collect()
    }

    /// Reads a question, or says what is wrong with it.
    pub(super) fn read(
        key: String,
        raw: RawQuestion,
        context: Arc<Context>,
        suggested: Option<&JsonObject>,
    ) -> Result<Self, String> {
        let asked = match raw.method.as_str() {
            "elicitation/create" => elicitation(&raw)?,
            "sampling/createMessage" => {
                let params = CreateMessageRequestParams::deserialize(&raw.params);
                Asked::Sample(Box::new(params.map_err(|_| "it is no sampling request".to_owned())?))
            }
            "roots/list" => Asked::Roots,
            other => return Err(format!("{:?} is no question", super::error::short(other))),
        };
        let (suggested, fields) = (suggested.cloned(), OnceLock::new());
        Ok(Self { read: Arc::new(Read { key, asked, raw, suggested, fields }), context })
    }

    pub(super) fn to_raw(&self) -> (&str, &RawQuestion) {
        (&self.read.key, &self.read.raw)
    }
}

fn elicitation(raw: &RawQuestion) -> Result<Asked, String> {
    let text = |name: &str| raw.params.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = text("message").ok_or("it has no message")?;
    match raw.params.get("mode").map(Value::as_str) {
        None | Some(Some("form")) => {
            let schema = raw.schema().ok_or("its schema is not an object")?;
            if schema.get("type").is_some_and(|name| name != "object") {
                return Err("its schema is not that of an object".to_owned());
            }
            Field::check_schema(schema)?;
            Ok(Asked::Form { message })
        }
        Some(Some("url")) => Ok(Asked::Url { message, url: text("url").ok_or("it has no URL")? }),
        Some(_) => Err("its mode is neither form nor url".to_owned()),
    }
}

/// A question as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RawQuestion {
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
    /// The order of a form's fields, which a JSON object does not keep here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) order: Vec<String>,
}

impl RawQuestion {
    /// The question that rmcp has read.
    pub(super) fn of_request(request: &InputRequest) -> Result<Self, String> {
        fn json(read: &impl Serialize) -> Result<Value, String> {
            serde_json::to_value(read).map_err(|_| "it is not JSON".to_owned())
        }
        let InputRequest::Elicitation(request) = request else { return Self::of_json(json(request)?) };
        // Mostly it is a form. Its parameters alone are a good deal less work than all of the request around them.
        let mut params = json(&request.params)?;
        if let (Some(meta), Some(params)) = (request.extensions.get::<RequestMetaObject>(), params.as_object_mut()) {
            params.insert("_meta".to_owned(), json(meta)?);
        }
        Ok(Self { method: "elicitation/create".to_owned(), params, order: Self::order(&request.params) })
    }

    /// The question that rmcp could not read.
    pub(super) fn of_json(mut json: Value) -> Result<Self, String> {
        let mut take = |name: &str| json.get_mut(name).map(Value::take).unwrap_or_default();
        let Value::String(method) = take("method") else { return Err("it has no method".to_owned()) };
        Ok(Self { method, params: take("params"), order: Vec::new() })
    }

    /// The schema of a form.
    fn schema(&self) -> Option<&JsonObject> {
        self.params.get("requestedSchema").and_then(Value::as_object)
    }

    pub(super) fn order(params: &ElicitRequestParams) -> Vec<String> {
        match params {
            ElicitRequestParams::FormElicitationParams { requested_schema, .. } => {
                requested_schema.property_order.clone().unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// How much there is of it, in bytes of JSON; or that it is more than anybody is shown.
    pub(super) fn check_size(&self) -> Result<usize, String> {
        let (mut bytes, most) = (Bytes(0), self.most());
        // JSON can be written as JSON, and counting does not fail.
        let _ = serde_json::to_writer(&mut bytes, &self.params);
        let Bytes(bytes) = bytes;
        if bytes > most { Err(format!("one of more than {most} bytes")) } else { Ok(bytes) }
    }

    fn most(&self) -> usize {
        // What a model is given may have pictures in it.
        if self.method == "sampling/createMessage" { MAX_BYTES } else { MAX_FORM_BYTES }
    }
}

/// Counts what is written.
struct Bytes(usize);

impl io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
