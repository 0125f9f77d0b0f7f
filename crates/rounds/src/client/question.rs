//! Questions: what a server asks, in a form that a host can show.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::{
    collections::HashSet,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rmcp::model::{
    CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, JsonObject,
    RequestMetaObject,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AnswerError, BadServer, Field, Origin, UserAnswer, reply::read_time};
use crate::shared::{
    check::{InvalidAnswer, check, check_form, required},
    clock::Timestamp,
    kind::QuestionKind,
    order::{ORDER, listed},
    wire::EXPIRES_IN,
};

/// Size limit of the questions of a round together, in bytes.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// Size limit of a question that a person reads, in bytes.
const MAX_FORM_BYTES: usize = 256 << 10;

/// A question, to be shown together with the server that asks. Clones are the same question.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedQuestion {
    read: Arc<QuestionParts>,
    context: Arc<Context>,
}

/// A question as it came, and its contents.
#[derive(Debug)]
struct QuestionParts {
    key: String,
    asked: QuestionContent,
    came: Came,
    /// How the form was filled in before.
    suggested: Option<JsonObject>,
    /// The fields of the form, read when they are first needed: a responder that identifies questions by key does not
    /// need them.
    fields: OnceLock<Vec<Field>>,
}

/// Compares the parts from which all others are computed.
impl PartialEq for QuestionParts {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.came.raw() == other.came.raw() && self.suggested == other.suggested
    }
}

/// The contents of a question, by its kind.
#[derive(Debug)]
enum QuestionContent {
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
    pub(super) received_at: Timestamp,
    pub(super) pushed: bool,
    /// Whether it is asked through a task.
    pub(super) of_task: bool,
}

impl AskedQuestion {
    /// The name by which its author knows the question: its [key](Self::key), without the number that a task of this library
    /// appends so that no two of its questions have the same key.
    pub fn name(&self) -> &str {
        let key = self.key();
        match key.rsplit_once('.') {
            Some((name, number)) if self.context.of_task && number.bytes().all(|digit| digit.is_ascii_digit()) => name,
            _ => key,
        }
    }

    /// The key of its answer. Empty for a question that a legacy server [pushed](Self::is_pushed).
    pub fn key(&self) -> &str {
        &self.read.key
    }

    /// The kind of answer that it wants.
    pub fn kind(&self) -> QuestionKind {
        match self.read.asked {
            QuestionContent::Form { .. } => QuestionKind::Form,
            QuestionContent::Url { .. } => QuestionKind::Url,
            QuestionContent::Sample(_) => QuestionKind::Sample,
            QuestionContent::Roots => QuestionKind::Roots,
        }
    }

    /// The server's message, or a message of our own if it has none. A server's message is untrusted text: remove
    /// control characters before showing it on a terminal.
    pub fn message(&self) -> &str {
        match &self.read.asked {
            QuestionContent::Form { message } | QuestionContent::Url { message, .. } => message,
            QuestionContent::Sample(_) => "The server wants to use your model.",
            QuestionContent::Roots => "The server wants to know your roots.",
        }
    }

    /// The fields of its form, in the order in which to show them. Empty if it is not a form, and for a form that only
    /// asks for consent.
    pub fn fields(&self) -> &[Field] {
        let QuestionParts { asked: QuestionContent::Form { .. }, came, suggested, fields, .. } = &*self.read else {
            return &[];
        };
        fields.get_or_init(|| {
            let raw = came.raw();
            let read = |schema| Field::of_schema(schema, &raw.order, suggested.as_ref());
            raw.schema().map(read).unwrap_or_default()
        })
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The page to visit. Show the whole URL, and open it only with the user's consent.
    pub fn url(&self) -> Option<&str> {
        match &self.read.asked {
            QuestionContent::Url { url, .. } => Some(url),
            _ => None,
        }
    }

    /// The sampling request for the model.
    pub fn sample(&self) -> Option<&CreateMessageRequestParams> {
        match &self.read.asked {
            QuestionContent::Sample(params) => Some(params),
            _ => None,
        }
    }

    /// The server that asks.
    pub fn origin(&self) -> &Origin {
        &self.context.origin
    }

    /// How long the server accepts an answer to this question, if it said so: zero once it is too late. It may be less
    /// than for [the whole round](super::Pending::expires_in).
    pub fn expires_in(&self) -> Option<Duration> {
        let Context { expires_at, received_at, .. } = *self.context;
        let own = self.read.came.expires_in().map(|time| received_at + time);
        super::pending::left(own.into_iter().chain(expires_at).min())
    }

    /// Whether a server of the legacy era pushed it over the live connection.
    pub fn is_pushed(&self) -> bool {
        self.context.pushed
    }

    /// The question as it came: its method and its parameters.
    pub fn raw(&self) -> (&str, &Value) {
        let RawQuestion { method, params, .. } = self.read.came.raw();
        (method, params)
    }

    /// Checks an answer to this question. Integers that were written as floats are returned as integers, and fields
    /// that the form does not have are left out.
    ///
    /// # Errors
    ///
    /// If the answer is of another kind, or is not valid for the form. The error says which field is wrong and why.
    pub fn check(&self, answer: UserAnswer) -> Result<UserAnswer, AnswerError> {
        let QuestionParts { key, came, .. } = &*self.read;
        if !answer.fits(self.kind()) {
            return Err(AnswerError::OtherKind { key: key.clone(), wanted: self.kind() });
        }
        let UserAnswer::Form(content) = answer else { return Ok(answer) };
        let invalid = |problem| AnswerError::Invalid { key: key.clone(), problem };
        came.checked(content).map(UserAnswer::Form).map_err(invalid)
    }

    /// The form as it is if the user changes nothing: suggestions, or else defaults.
    pub fn prefilled(&self) -> JsonObject {
        let value = |field: &Field| field.suggested.clone().or_else(|| field.default.clone());
        self.fields().iter().filter_map(|field| Some((field.name.clone(), value(field)?))).collect()
    }

    /// Reads a question as it is on the wire, such as one that a server recorded, in order to show it outside of a call.
    /// Its [origin](Self::origin) and its [time](Self::expires_in) are not known.
    ///
    /// # Errors
    ///
    /// [`BadServer::Question`] or [`BadServer::AsksTooMuch`] if it cannot be asked.
    pub fn from_json(key: impl Into<String>, json: Value) -> Result<Self, BadServer> {
        let key = key.into();
        let bad = |why| BadServer::Question { key: super::error::short(&key).to_string(), why };
        let came = Came::of_json(json).map_err(bad)?;
        came.check_size().map_err(|what| BadServer::AsksTooMuch { what })?;
        let origin = Origin { name: None, version: None, address: None };
        let context =
            Context { origin, expires_at: None, received_at: Timestamp::from_millis(0), pushed: false, of_task: false };
        Self::read(key.clone(), came, Arc::new(context), None).map_err(bad)
    }

    /// Reads a question, or returns what is wrong with it.
    pub(super) fn read(
        key: String,
        came: Came,
        context: Arc<Context>,
        suggested: Option<&JsonObject>,
    ) -> Result<Self, String> {
        let asked = came.asked()?;
        let (suggested, fields) = (suggested.cloned(), OnceLock::new());
        Ok(Self { read: Arc::new(QuestionParts { key, asked, came, suggested, fields }), context })
    }

    pub(super) fn to_raw(&self) -> (&str, &RawQuestion) {
        (&self.read.key, self.read.came.raw())
    }
}

/// A question as it came: as JSON, or as a form that rmcp has read. The JSON of the latter is computed when it is
/// needed.
#[derive(Debug)]
pub(super) enum Came {
    Json(RawQuestion),
    Form(Box<ReadForm>),
}

#[derive(Debug)]
pub(super) struct ReadForm {
    message: String,
    schema: ElicitationSchema,
    meta: Option<RequestMetaObject>,
    raw: OnceLock<RawQuestion>,
}

impl Came {
    /// The question that rmcp has read.
    pub(super) fn of_request(request: InputRequest) -> Result<Self, String> {
        match request {
            InputRequest::Elicitation(ElicitRequest {
                params: ElicitRequestParams::FormElicitationParams { meta, message, requested_schema: schema },
                extensions,
                ..
            }) => {
                let meta = extensions.get::<RequestMetaObject>().cloned().or(meta);
                Ok(Self::Form(Box::new(ReadForm { message, schema, meta, raw: OnceLock::new() })))
            }
            other => Self::of_json(serde_json::to_value(other).map_err(|_| "it is not JSON".to_owned())?),
        }
    }

    /// The question in the JSON of a request.
    pub(super) fn of_json(mut json: Value) -> Result<Self, String> {
        let mut take = |name: &str| json.get_mut(name).map(Value::take).unwrap_or_default();
        let Value::String(method) = take("method") else { return Err("it has no method".to_owned()) };
        Ok(Self::Json(RawQuestion::of(method, take("params"))))
    }

    fn raw(&self) -> &RawQuestion {
        match self {
            Self::Json(raw) => raw,
            Self::Form(form) => form.raw.get_or_init(|| form.to_raw()),
        }
    }

    /// How long an answer is accepted, if the question itself says so.
    fn expires_in(&self) -> Option<Duration> {
        let said = match self {
            Self::Json(raw) => raw.params.get("_meta")?.get(EXPIRES_IN),
            Self::Form(form) => form.meta.as_ref()?.get(EXPIRES_IN),
        };
        read_time(said)
    }

    /// Its contents, or what is wrong with it.
    fn asked(&self) -> Result<QuestionContent, String> {
        match self {
            Self::Json(raw) => raw.asked(),
            Self::Form(form) => {
                let ElicitationSchema { properties, required, .. } = &form.schema;
                Field::check_names(properties.keys().chain(required.iter().flatten()).map(String::as_str))?;
                Ok(QuestionContent::Form { message: form.message.clone() })
            }
        }
    }

    /// An answer to a form as it is sent, or what is wrong with it.
    fn checked(&self, mut content: JsonObject) -> Result<JsonObject, InvalidAnswer> {
        // Fields that are required but not described are passed through unchecked.
        match self {
            Self::Json(raw) => {
                let Some(schema) = raw.schema() else { return Ok(content) };
                let mut checked = check(schema, &mut content)?;
                checked.extend(required(schema).filter_map(|name| content.remove_entry(name)));
                Ok(checked)
            }
            Self::Form(form) => {
                let mut checked = check_form(&form.schema, &mut content)?;
                checked.extend(form.schema.required.iter().flatten().filter_map(|name| content.remove_entry(name)));
                Ok(checked)
            }
        }
    }

    /// Its size, approximately in bytes of JSON, or an error if it exceeds the limit.
    pub(super) fn check_size(&self) -> Result<usize, String> {
        let (bytes, most) = match self {
            Self::Json(raw) => (raw.size(), raw.most()),
            Self::Form(form) => (form.size(), MAX_FORM_BYTES),
        };
        if bytes > most { Err(format!("more than {most} bytes in one question")) } else { Ok(bytes) }
    }
}

impl ReadForm {
    fn size(&self) -> usize {
        let Self { message, schema, meta, .. } = self;
        let ElicitationSchema { schema, title, description, properties, required, .. } = schema;
        let texts = [schema, title, description].into_iter().flatten().map(|text| text.len());
        // Even an empty name takes its quotes and a comma.
        let names = required.iter().flatten().chain(properties.keys()).map(|name| name.len() + 3);
        let mut bytes = Bytes(message.len() + texts.chain(names).sum::<usize>());
        for field in properties.values() {
            bytes.count(field);
        }
        bytes.count(meta);
        bytes.0
    }

    fn to_raw(&self) -> RawQuestion {
        let (meta, message, requested_schema) = (self.meta.clone(), self.message.clone(), self.schema.clone());
        RawQuestion::of_elicitation(&ElicitRequestParams::FormElicitationParams { meta, message, requested_schema })
    }
}

/// A question as JSON.
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
    pub(super) fn new(method: &str, params: &impl Serialize) -> Self {
        // What rmcp has read are objects with string keys, which JSON can express.
        let params = serde_json::to_value(params).unwrap_or_default();
        Self::of(method.to_owned(), params)
    }

    fn of(method: String, params: Value) -> Self {
        let mut raw = Self { method, params, order: Vec::new() };
        let order = raw.params.get("_meta").and_then(|meta| meta.get(ORDER)).cloned();
        raw.arrange(order.as_ref());
        raw
    }

    /// An elicitation. The order of its form is the one that its server declares, or else the one in which it came.
    pub(super) fn of_elicitation(params: &ElicitRequestParams) -> Self {
        let mut raw = Self::new("elicitation/create", params);
        if let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = params
            && raw.order.is_empty()
        {
            raw.order = requested_schema.property_order.clone().unwrap_or_default();
        }
        raw
    }

    /// Puts the fields of its form in the order that the server declares, if it declares one.
    pub(super) fn arrange(&mut self, order: Option<&Value>) {
        let properties = self.schema().and_then(|schema| schema.get("properties")?.as_object());
        let mut seen = HashSet::new();
        // The list may be long. Restricted to existing fields, it is not longer than the form.
        let known = |name: &str| properties.is_some_and(|fields| fields.contains_key(name));
        let order = listed(order).filter(|name| known(name) && seen.insert(*name));
        let order: Vec<_> = order.map(str::to_owned).collect();
        if !order.is_empty() {
            self.order = order;
        }
    }

    /// The schema of a form.
    fn schema(&self) -> Option<&JsonObject> {
        self.params.get("requestedSchema").and_then(Value::as_object)
    }

    /// Its contents, or what is wrong with it.
    fn asked(&self) -> Result<QuestionContent, String> {
        match self.method.as_str() {
            "elicitation/create" => self.elicitation(),
            "sampling/createMessage" => {
                let params = CreateMessageRequestParams::deserialize(&self.params);
                Ok(QuestionContent::Sample(Box::new(params.map_err(|_| "it is not a sampling request".to_owned())?)))
            }
            "roots/list" => Ok(QuestionContent::Roots),
            other => Err(format!("{:?} is not a question", super::error::short(other))),
        }
    }

    fn elicitation(&self) -> Result<QuestionContent, String> {
        let text = |name: &str| self.params.get(name).and_then(Value::as_str).map(str::to_owned);
        let message = text("message").ok_or("it has no message")?;
        match self.params.get("mode").map(Value::as_str) {
            None | Some(Some("form")) => {
                let schema = self.schema().ok_or("its schema is not an object")?;
                if schema.get("type").is_some_and(|name| name != "object") {
                    return Err("its schema is not that of an object".to_owned());
                }
                Field::check_schema(schema)?;
                Ok(QuestionContent::Form { message })
            }
            Some(Some("url")) => Ok(QuestionContent::Url { message, url: text("url").ok_or("it has no URL")? }),
            Some(_) => Err("its mode is neither form nor url".to_owned()),
        }
    }

    fn size(&self) -> usize {
        let mut bytes = Bytes(0);
        bytes.count(&self.params);
        bytes.0
    }

    fn most(&self) -> usize {
        // A sampling request may contain images.
        if self.method == "sampling/createMessage" { MAX_BYTES } else { MAX_FORM_BYTES }
    }
}

/// Counts the bytes that are written.
struct Bytes(usize);

impl Bytes {
    fn count(&mut self, json: &impl Serialize) {
        // A value that serialises to JSON can be counted.
        let _ = serde_json::to_writer(self, json);
    }
}

impl io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(json: &str, meta: bool) -> InputRequest {
        let mut request: ElicitRequest = serde_json::from_str(json).unwrap();
        if meta {
            let from: JsonObject = rmcp::object!({"from": "the extensions"});
            request.extensions.insert(RequestMetaObject::from(from));
        }
        InputRequest::Elicitation(request)
    }

    #[test]
    fn a_form_that_rmcp_has_read_is_the_one_that_came() {
        let json = r#"{"method": "elicitation/create", "params": {
            "mode": "form",
            "message": "To whom?",
            "requestedSchema": {
                "type": "object",
                "title": "A letter",
                "description": "of one page",
                "properties": {"to": {"type": "string", "format": "email"}, "copies": {"type": "integer", "minimum": 1}},
                "required": ["to"]
            }
        }}"#;
        for meta in [false, true] {
            let read = Came::of_request(request(json, meta)).unwrap();
            let as_json = Came::of_json(serde_json::to_value(request(json, meta)).unwrap()).unwrap();
            let (raw, RawQuestion { method, params, .. }) = (read.raw(), as_json.raw());
            assert_eq!((&raw.method, &raw.params), (method, params));
            assert_eq!(raw.params.get("_meta").is_some(), meta);
            assert_eq!(raw.order, ["to", "copies"], "which JSON does not keep");
            assert!(matches!(read.asked(), Ok(QuestionContent::Form { message }) if message == "To whom?"));
            let answer = |content: Value| read.checked(content.as_object().unwrap().clone());
            assert_eq!(answer(json!({"copies": 2})).unwrap_err().field(), Some("to"));
            assert!(answer(json!({"to": "ada@example.com", "other": 1})).is_ok_and(|kept| kept.len() == 1));
        }
    }

    #[test]
    fn what_is_required_and_not_described_is_sent_as_it_is() {
        let json = r#"{"method": "elicitation/create", "params": {
            "mode": "form",
            "message": "To whom?",
            "requestedSchema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["stamp", "to"]}
        }}"#;
        let as_json = Came::of_json(serde_json::from_str(json).unwrap()).unwrap();
        for came in [Came::of_request(request(json, false)).unwrap(), as_json] {
            let content = rmcp::object!({"to": "Ada", "stamp": [1, null], "other": 1});
            assert_eq!(came.checked(content), Ok(rmcp::object!({"to": "Ada", "stamp": [1, null]})));
        }
    }

    #[test]
    fn all_of_a_form_that_rmcp_has_read_counts() {
        let long = "x".repeat(MAX_FORM_BYTES);
        let form = |change: &dyn Fn(&mut Value)| {
            let properties = json!({"to": {"type": "string"}});
            let schema = json!({"type": "object", "properties": properties});
            let params = json!({"mode": "form", "message": "To whom?", "requestedSchema": schema});
            let mut json = json!({"method": "elicitation/create", "params": params});
            change(&mut json["params"]);
            Came::of_request(request(&json.to_string(), false)).unwrap()
        };
        let size = form(&|_| {}).check_size().unwrap();
        assert!((20..200).contains(&size), "{size}");
        type Change<'a> = &'a dyn Fn(&mut Value);
        let changes: [Change<'_>; 9] = [
            &|params| params["message"] = json!(long),
            &|params| params["_meta"] = json!({"a": long}),
            &|params| params["requestedSchema"]["$schema"] = json!(long),
            &|params| params["requestedSchema"]["title"] = json!(long),
            &|params| params["requestedSchema"]["description"] = json!(long),
            &|params| params["requestedSchema"]["required"] = json!([long]),
            &|params| params["requestedSchema"]["required"] = json!(vec![""; MAX_FORM_BYTES / 3 + 1]),
            &|params| params["requestedSchema"]["properties"][&long] = json!({"type": "boolean"}),
            &|params| params["requestedSchema"]["properties"]["to"]["title"] = json!(long),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert!(form(change).check_size().is_err(), "{at}");
        }
    }
}
