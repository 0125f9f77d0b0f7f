//! Messages in JSON, as rmcp prints them.

use std::{borrow::Cow, collections::BTreeMap, mem};

use rmcp::model::{
    DetailedTask, ElicitRequest, ElicitRequestParams, ElicitationCreateRequestMethod, ElicitationSchema, Extensions,
    GetTaskResult, InputRequest, InputRequests, InputRequiredResult, JsonRpcMessage, JsonRpcNotification,
    JsonRpcResponse, MetaObject, NotificationMetaObject, ObjectTypeConst, PrimitiveSchemaDefinition,
    ProgressNotification, ProgressNotificationMethod, ProgressNotificationParam, ProgressToken, RequestId, ResultType,
    ServerJsonRpcMessage, ServerNotification, ServerResult, Task, TaskPayload, TaskStatus,
};
use rounds::order::ORDER;
use serde_json::Value;

/// How an event of a stream begins and ends.
pub(crate) const BEGIN: &[u8] = b"data: ";
pub(crate) const END: &[u8] = b"\n\n";

/// Prints a message as an event of a stream. If that fails, nothing is printed.
pub(crate) fn event(to: &mut Vec<u8>, message: &ServerJsonRpcMessage) -> serde_json::Result<()> {
    let before = to.len();
    to.extend_from_slice(BEGIN);
    let printed = print(to, message);
    match printed {
        Ok(()) => to.extend_from_slice(END),
        Err(_) => to.truncate(before),
    }
    printed
}

fn print(body: &mut Vec<u8>, message: &ServerJsonRpcMessage) -> serde_json::Result<()> {
    match message {
        JsonRpcMessage::Response(JsonRpcResponse { id, result: ServerResult::InputRequiredResult(asks), .. })
            if ALL_IS_PRINTED =>
        {
            print_asks(body, id, asks)
        }
        JsonRpcMessage::Response(JsonRpcResponse { id, result: ServerResult::GetTaskResult(got), .. })
            if ALL_IS_PRINTED && ALL_OF_TASK_IS_PRINTED && is_known(&got.task.payload) =>
        {
            print_task(body, id, got)
        }
        JsonRpcMessage::Notification(JsonRpcNotification {
            notification: ServerNotification::ProgressNotification(progress),
            ..
        }) if ALL_OF_PROGRESS_IS_PRINTED && progress.extensions.is_empty() => print_progress(body, progress),
        _ => serde_json::to_writer(body, message),
    }
}

/// The same for progress: see [`ALL_IS_PRINTED`].
const ALL_OF_PROGRESS_IS_PRINTED: bool = size_of::<ProgressNotificationParam>()
    == size_of::<(ProgressToken, f64, Option<f64>, Option<String>, Option<NotificationMetaObject>)>()
    && size_of::<ProgressNotification>()
        == size_of::<(ProgressNotificationMethod, ProgressNotificationParam, Extensions)>();

/// Prints progress as rmcp does, with its members in the order of their names. rmcp prints it by way of a `Value`.
fn print_progress(to: &mut Vec<u8>, progress: &ProgressNotification) -> serde_json::Result<()> {
    let told = &progress.params;
    let mut message = Object::begin(to);
    text(message.member("jsonrpc"), "2.0");
    serde_json::to_writer(message.member("method"), &progress.method)?;
    let mut params = Object::begin(message.member("params"));
    if let Some(meta) = &told.meta {
        serde_json::to_writer(params.member("_meta"), meta)?;
    }
    if let Some(message) = &told.message {
        text(params.member("message"), message);
    }
    serde_json::to_writer(params.member("progress"), &told.progress)?;
    serde_json::to_writer(params.member("progressToken"), &told.progress_token)?;
    if let Some(total) = &told.total {
        serde_json::to_writer(params.member("total"), total)?;
    }
    params.end();
    message.end();
    Ok(())
}

/// Whether what is printed of questions here is all that they have. A field that a later rmcp adds makes a type larger, unless it has
/// no size itself, and its questions rmcp's to print.
const ALL_IS_PRINTED: bool = size_of::<InputRequiredResult>()
    == size_of::<(ResultType, Option<InputRequests>, Option<String>, Option<MetaObject>)>()
    && size_of::<ElicitRequest>() == size_of::<(ElicitationCreateRequestMethod, ElicitRequestParams, Extensions)>()
    && size_of::<ElicitationSchema>()
        == size_of::<(
            Option<Cow<'_, str>>,
            ObjectTypeConst,
            Option<Cow<'_, str>>,
            BTreeMap<String, PrimitiveSchemaDefinition>,
            Option<Vec<String>>,
            Option<Vec<String>>,
            Option<Cow<'_, str>>,
        )>();

/// Prints questions as rmcp does, but for the order of members. rmcp prints a request by way of a `Value`, and a schema by way of a
/// copy, which costs more than all else of the message.
fn print_asks(to: &mut Vec<u8>, id: &RequestId, asks: &InputRequiredResult) -> serde_json::Result<()> {
    let mut message = Object::begin(to);
    text(message.member("jsonrpc"), "2.0");
    serde_json::to_writer(message.member("id"), id)?;
    let mut result = Object::begin(message.member("result"));
    serde_json::to_writer(result.member("resultType"), &asks.result_type)?;
    if let Some(asked) = &asks.input_requests {
        print_requests(result.member("inputRequests"), asked, asks.meta.as_ref())?;
    }
    if let Some(state) = &asks.request_state {
        text(result.member("requestState"), state);
    }
    if let Some(meta) = &asks.meta {
        serde_json::to_writer(result.member("_meta"), meta)?;
    }
    result.end();
    message.end();
    Ok(())
}

/// The same for a task: see [`ALL_IS_PRINTED`].
const ALL_OF_TASK_IS_PRINTED: bool = size_of::<GetTaskResult>()
    == size_of::<(ResultType, Option<MetaObject>, DetailedTask)>()
    && size_of::<DetailedTask>() == size_of::<(Task, TaskPayload)>()
    && size_of::<Task>() == size_of::<(String, TaskStatus, Option<String>, String, String, Option<u64>, Option<u64>)>();

/// Whether this is not a payload that a later rmcp has added.
fn is_known(payload: &TaskPayload) -> bool {
    use TaskPayload::{Cancelled, Completed, Failed, InputRequired, Working};
    matches!(payload, Working | InputRequired { .. } | Completed { .. } | Failed { .. } | Cancelled)
}

/// Prints a task as rmcp does, but for the order of its questions. rmcp prints it by way of a copy.
fn print_task(to: &mut Vec<u8>, id: &RequestId, got: &GetTaskResult) -> serde_json::Result<()> {
    let mut message = Object::begin(to);
    text(message.member("jsonrpc"), "2.0");
    serde_json::to_writer(message.member("id"), id)?;
    let mut result = Object::begin(message.member("result"));
    serde_json::to_writer(result.member("resultType"), &got.result_type)?;
    if let Some(meta) = &got.meta {
        serde_json::to_writer(result.member("_meta"), meta)?;
    }
    let task = &got.task.task;
    text(result.member("taskId"), &task.task_id);
    serde_json::to_writer(result.member("status"), &task.status)?;
    if let Some(message) = &task.status_message {
        text(result.member("statusMessage"), message);
    }
    text(result.member("createdAt"), &task.created_at);
    text(result.member("lastUpdatedAt"), &task.last_updated_at);
    serde_json::to_writer(result.member("ttlMs"), &task.ttl_ms)?;
    if let Some(interval) = &task.poll_interval_ms {
        serde_json::to_writer(result.member("pollIntervalMs"), interval)?;
    }
    match &got.task.payload {
        TaskPayload::InputRequired { input_requests } => {
            print_requests(result.member("inputRequests"), input_requests, got.meta.as_ref())?;
        }
        TaskPayload::Completed { result: came } => serde_json::to_writer(result.member("result"), came)?,
        TaskPayload::Failed { error } => serde_json::to_writer(result.member("error"), error)?,
        // The others have nothing but their status.
        _ => {}
    }
    result.end();
    message.end();
    Ok(())
}

/// Prints questions, in the order in which they were asked.
fn print_requests(to: &mut Vec<u8>, asked: &InputRequests, meta: Option<&MetaObject>) -> serde_json::Result<()> {
    let mut requests = Object::begin(to);
    let order = meta.and_then(|meta| meta.get(ORDER));
    let order: Vec<_> = order.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, request) in in_order(asked, &order) {
        print_request(requests.member_named(key), request)?;
    }
    requests.end();
    Ok(())
}

fn print_request(to: &mut Vec<u8>, request: &InputRequest) -> serde_json::Result<()> {
    match request {
        InputRequest::Elicitation(ElicitRequest {
            method,
            params: ElicitRequestParams::FormElicitationParams { meta, message, requested_schema },
            extensions,
            ..
        }) if extensions.is_empty() => {
            let mut request = Object::begin(to);
            serde_json::to_writer(request.member("method"), method)?;
            let mut params = Object::begin(request.member("params"));
            text(params.member("mode"), "form");
            if let Some(meta) = meta {
                serde_json::to_writer(params.member("_meta"), meta)?;
            }
            text(params.member("message"), message);
            print_schema(params.member("requestedSchema"), requested_schema)?;
            params.end();
            request.end();
            Ok(())
        }
        // By rmcp's own way, which also finds metadata in extensions.
        other => serde_json::to_writer(to, other),
    }
}

fn print_schema(to: &mut Vec<u8>, schema: &ElicitationSchema) -> serde_json::Result<()> {
    let mut object = Object::begin(to);
    if let Some(schema) = &schema.schema {
        text(object.member("$schema"), schema);
    }
    serde_json::to_writer(object.member("type"), &schema.type_)?;
    if let Some(title) = &schema.title {
        text(object.member("title"), title);
    }
    let mut properties = Object::begin(object.member("properties"));
    for (name, field) in in_order(&schema.properties, schema.property_order.as_deref().unwrap_or_default()) {
        serde_json::to_writer(properties.member_named(name), field)?;
    }
    properties.end();
    if let Some(required) = &schema.required {
        serde_json::to_writer(object.member("required"), required)?;
    }
    if let Some(description) = &schema.description {
        text(object.member("description"), description);
    }
    object.end();
    Ok(())
}

/// The members that have a place first, each in its first one, and then the others.
fn in_order<'a, T, S: AsRef<str>>(
    members: &'a BTreeMap<String, T>,
    order: &'a [S],
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let is_placed = |places: &[S], name: &str| places.iter().any(|place| place.as_ref() == name);
    let placed = order.iter().enumerate().filter(move |(at, name)| !is_placed(&order[..*at], name.as_ref()));
    let placed = placed.filter_map(|(_, name)| members.get_key_value(name.as_ref()));
    placed.chain(members.iter().filter(move |(name, _)| !is_placed(order, name)))
}

/// An object that is being printed.
struct Object<'a> {
    to: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    fn begin(to: &'a mut Vec<u8>) -> Self {
        to.push(b'{');
        Self { to, is_empty: true }
    }

    /// Where the value of this member is to be printed. Its name has nothing to escape.
    fn member(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.separate();
        plain(self.to, name);
        self.to.push(b':');
        self.to
    }

    /// The same for a name that may be anything.
    fn member_named(&mut self, name: &str) -> &mut Vec<u8> {
        self.separate();
        text(self.to, name);
        self.to.push(b':');
        self.to
    }

    fn separate(&mut self) {
        if !mem::replace(&mut self.is_empty, false) {
            self.to.push(b',');
        }
    }

    fn end(self) {
        self.to.push(b'}');
    }
}

/// Prints a text.
fn text(to: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // Most are plain, and to look at all bytes of them is quicker than to stop where one is not.
    if text.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
        plain(to, text);
    } else {
        // A text can be printed, and memory takes it.
        let _ = serde_json::to_writer(to, text);
    }
}

/// Prints a text with nothing to escape.
fn plain(to: &mut Vec<u8>, text: &str) {
    to.reserve(text.len() + 2);
    to.push(b'"');
    to.extend_from_slice(text.as_bytes());
    to.push(b'"');
}

#[cfg(test)]
#[expect(deprecated, reason = "SEP-2577 deprecates sampling and roots, and a server may still ask for them")]
mod tests {
    use rmcp::model::{CreateMessageRequest, CreateMessageRequestParams, ListRootsRequest, RequestMetaObject};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_printed_with_what_has_to_be_escaped() -> Result<(), Box<dyn std::error::Error>> {
        for character in (0..0x200).filter_map(char::from_u32) {
            let (given, mut printed) = (format!("so{character}"), Vec::new());
            text(&mut printed, &given);
            assert_eq!(String::from_utf8(printed)?, serde_json::to_string(&given)?);
        }
        Ok(())
    }

    #[test]
    fn questions_are_printed_as_rmcp_prints_them() -> Result<(), Box<dyn std::error::Error>> {
        const { assert!(ALL_IS_PRINTED, "print what is new in rmcp, too") };
        let mut schema = ElicitationSchema::builder().required_email("to").optional_bool("a copy", false).build()?;
        schema.schema = Some("https://json-schema.org/draft/2020-12/schema".into());
        (schema.title, schema.description) = (Some("A letter".into()), Some("of one page".into()));
        let meta = |from: &str| RequestMetaObject::from(serde_json::Map::from_iter([("from".to_owned(), json!(from))]));
        let form = |meta| ElicitRequestParams::FormElicitationParams {
            meta,
            message: "To \"whom\"?".to_owned(),
            requested_schema: schema.clone(),
        };
        let url = ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: "Sign in".to_owned(),
            url: "https://here.example/".to_owned(),
            elicitation_id: "1".to_owned(),
        };
        let mut extended = ElicitRequest::new(form(Some(meta("the parameters"))));
        extended.extensions.insert(meta("the extensions"));
        let requests = InputRequests::from([
            ("form".to_owned(), InputRequest::Elicitation(ElicitRequest::new(form(None)))),
            ("form_meta".to_owned(), InputRequest::Elicitation(ElicitRequest::new(form(Some(meta("the parameters")))))),
            ("extended".to_owned(), InputRequest::Elicitation(extended)),
            ("url".to_owned(), InputRequest::Elicitation(ElicitRequest::new(url))),
            ("roots".to_owned(), InputRequest::ListRoots(ListRootsRequest::default())),
            (
                "sampling".to_owned(),
                InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(vec![], 100))),
            ),
        ]);
        let mut all = InputRequiredResult::new(Some(requests), Some("a state".to_owned()));
        all.meta = Some(MetaObject(serde_json::Map::from_iter([("rounds/expiresInMs".to_owned(), json!(1))])));
        // A `Value` knows no order.
        for order in [None, Some(vec![]), Some(vec!["to", "a copy"]), Some(vec!["to", "no such", "to"])] {
            schema.property_order = order.map(|order| order.into_iter().map(str::to_owned).collect());
            let mut printed = Vec::new();
            print_schema(&mut printed, &schema)?;
            assert_eq!(String::from_utf8(printed)?, serde_json::to_string(&schema)?);
        }
        for asks in [all, InputRequiredResult::from_request_state("a state"), InputRequiredResult::new(None, None)] {
            let result = ServerResult::InputRequiredResult(asks);
            let message = ServerJsonRpcMessage::response(result, RequestId::String("1".into()));
            let mut printed = Vec::new();
            print(&mut printed, &message)?;
            assert_eq!(serde_json::from_slice::<Value>(&printed)?, serde_json::to_value(&message)?);
        }
        Ok(())
    }

    #[test]
    fn a_task_is_printed_as_rmcp_prints_it() -> Result<(), Box<dyn std::error::Error>> {
        const { assert!(ALL_OF_TASK_IS_PRINTED, "print what is new in rmcp, too") };
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let questions = InputRequests::from([
            ("roots.1".to_owned(), InputRequest::ListRoots(ListRootsRequest::default())),
            ("a \"b\".2".to_owned(), InputRequest::ListRoots(ListRootsRequest::default())),
        ]);
        let payloads = [
            TaskPayload::Working,
            TaskPayload::InputRequired { input_requests: questions },
            TaskPayload::Completed { result: object(json!({"content": [], "isError": true})) },
            TaskPayload::Failed { error: object(json!({"code": -32603, "message": "no \"luck\""})) },
            TaskPayload::Cancelled,
        ];
        for payload in payloads {
            assert!(is_known(&payload));
            let least = Task::new("rounds.1", payload.status(), "then", "now");
            let mut all = least.clone().with_ttl_ms(1000);
            (all.status_message, all.poll_interval_ms) = (Some("half\nway".to_owned()), Some(500));
            for (task, meta) in [(least, None), (all, Some(object(json!({ORDER: ["roots.1"]}))))] {
                let mut got = GetTaskResult::new(DetailedTask::new(task, payload.clone()));
                got.meta = meta.map(MetaObject);
                let message = ServerJsonRpcMessage::response(ServerResult::GetTaskResult(got), RequestId::Number(1));
                let mut printed = Vec::new();
                print(&mut printed, &message)?;
                assert_eq!(serde_json::from_slice::<Value>(&printed)?, serde_json::to_value(&message)?);
            }
        }
        Ok(())
    }

    #[test]
    fn progress_is_printed_as_rmcp_prints_it() -> Result<(), Box<dyn std::error::Error>> {
        const { assert!(ALL_OF_PROGRESS_IS_PRINTED, "print what is new in rmcp, too") };
        let meta: NotificationMetaObject = serde_json::from_value(json!({ "z": 1, "a": { "b": "\u{0}" } }))?;
        let numbers = [0.0, -0.0, 1.0, 0.1, 1e300, -1e-300, f64::NAN, f64::INFINITY, 9_007_199_254_740_993.0];
        let tokens = [RequestId::Number(i64::MIN), RequestId::Number(0), RequestId::String("größe\n\"".into())];
        for (token, number) in tokens.iter().flat_map(|token| numbers.map(|number| (token, number))) {
            for (total, message, meta) in
                [(None, None, None), (Some(number), Some("a \"b\"".to_owned()), Some(meta.clone()))]
            {
                let mut params = ProgressNotificationParam::new(ProgressToken(token.clone()), number);
                (params.total, params.message, params.meta) = (total, message, meta);
                let mut plain = ProgressNotification::new(params);
                let mut extended = plain.clone();
                extended.extensions.insert(NotificationMetaObject::default());
                plain.extensions = Extensions::default();
                for progress in [plain, extended] {
                    let message = ServerJsonRpcMessage::notification(progress.into());
                    let mut printed = Vec::new();
                    print(&mut printed, &message)?;
                    assert_eq!(String::from_utf8(printed)?, serde_json::to_string(&message)?);
                }
            }
        }
        Ok(())
    }
}
