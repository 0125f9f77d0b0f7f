//! Order: the fields of a form as their type declares them, the questions of a round as they were asked.
//!
//! Both travel as members of JSON objects, and clients show members in the order in which they come. rmcp sorts the
//! members of a question by name, so the order is also declared beside them, under [`ORDER`]; the clients of this
//! library follow that.
//!
//! | what carries the question | order in `_meta` | order of the members |
//! |---|---|---|
//! | `rounds_http::Endpoint`, in both lanes and both eras | yes | yes |
//! | [`transport::stdio`](crate::transport::stdio), or any writer in an [`InOrder`](crate::transport::InOrder) | yes | yes |
//! | rmcp's `stdio()`, rmcp's `StreamableHttpService` | yes | no: sorted by name |
//!
//! A struct with a flattened part does not declare the order of its fields. Its required fields come first, in their
//! order, and then the others by name.

#[cfg(feature = "server")]
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult, RequestMetaObject,
};
use serde_json::Value;

/// The key in `_meta` of the order in which to show things: a list of names.
///
/// In the `_meta` of a result it orders the keys of `inputRequests`; in the `_meta` of a question's `params`, the
/// `properties` of its `requestedSchema`. It is present only if the order differs from that of the names. Names that it
/// does not list come after those that it lists.
pub const ORDER: &str = "rounds/order";

/// Length limit of a message that is put in order, in bytes. The message is parsed as a whole, which takes many times
/// as much memory.
#[cfg(feature = "server")]
const LONGEST: usize = 1 << 20;

/// The beginning of a list of names, as rmcp writes it. Within a JSON string its quotes would be escaped.
#[cfg(feature = "server")]
const BEGINS: &str = r#""rounds/order":["#;

/// A message of JSON-RPC with the members of its questions in the order that it declares. None if it declares none, if
/// it is not JSON, or if it is longer than a mebibyte.
///
/// Nothing but the order of members changes.
#[cfg(feature = "server")]
pub fn in_order(json: &str) -> Option<String> {
    if json.len() > LONGEST || !json.contains(BEGINS) {
        return None;
    }
    let message: Value = serde_json::from_str(json).ok()?;
    let mut ordered = Vec::with_capacity(json.len());
    write(&mut ordered, &message, Part::Message).ok()?;
    String::from_utf8(ordered).ok()
}

/// A part of a message, with the order of its members if another part declares it.
#[cfg(feature = "server")]
#[derive(Clone, Copy)]
enum Part<'a> {
    Message,
    Result,
    Requests(Option<&'a Value>),
    Request,
    Params,
    Schema(Option<&'a Value>),
    Properties(Option<&'a Value>),
    Other,
}

#[cfg(feature = "server")]
impl<'a> Part<'a> {
    /// The part that a member of this part is, given the order that the enclosing object declares for it.
    fn member(self, name: &str, said: Option<&'a Value>) -> Self {
        match (self, name) {
            (Self::Message, "result") => Self::Result,
            (Self::Message | Self::Request, "params") => Self::Params,
            (Self::Result, "inputRequests") => Self::Requests(said),
            (Self::Requests(_), _) => Self::Request,
            (Self::Params, "requestedSchema") => Self::Schema(said),
            (Self::Schema(order), "properties") => Self::Properties(order),
            _ => Self::Other,
        }
    }
}

#[cfg(feature = "server")]
fn write(to: &mut Vec<u8>, value: &Value, part: Part<'_>) -> serde_json::Result<()> {
    let (Value::Object(members), false) = (value, matches!(part, Part::Other)) else {
        return serde_json::to_writer(to, value);
    };
    let said = members.get("_meta").and_then(|meta| meta.get(ORDER));
    let mut members: Vec<_> = members.iter().collect();
    if let Part::Requests(order) | Part::Properties(order) = part {
        arrange(&mut members, listed(order), |(name, _)| name);
    }
    to.push(b'{');
    for (at, (name, member)) in members.into_iter().enumerate() {
        if at > 0 {
            to.push(b',');
        }
        serde_json::to_writer(&mut *to, name)?;
        to.push(b':');
        write(to, member, part.member(name, said))?;
    }
    to.push(b'}');
    Ok(())
}

/// The names that a `_meta` lists. Other values are skipped.
pub(crate) fn listed(meta: Option<&Value>) -> impl Iterator<Item = &str> {
    meta.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Sorts things in this order; those that it does not list come last, in the order that they had.
pub(crate) fn arrange<'a, T>(things: &mut [T], order: impl Iterator<Item = &'a str>, name: impl Fn(&T) -> &str) {
    let mut places = std::collections::HashMap::new();
    for (place, name) in order.enumerate() {
        places.entry(name).or_insert(place);
    }
    if !places.is_empty() {
        things.sort_by_key(|thing| places.get(name(thing)).copied().unwrap_or(usize::MAX));
    }
}

/// The keys of questions in the order of asking, as a `_meta` lists them; none if that is the order of their names.
#[cfg(feature = "server")]
pub(crate) fn of_keys<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> Option<Value> {
    (!keys.clone().is_sorted()).then(|| keys.collect())
}

/// Questions that were asked in this order.
#[cfg(feature = "server")]
pub(crate) fn asks(requests: InputRequests, order: Option<Value>) -> InputRequiredResult {
    let mut asks = InputRequiredResult::from_input_requests(requests);
    say(&mut asks, order);
    asks
}

/// Declares the order in which these questions were asked.
#[cfg(feature = "server")]
pub(crate) fn say(asks: &mut InputRequiredResult, order: Option<Value>) {
    if let Some(order) = order {
        asks.meta.get_or_insert_default().0.insert(ORDER.to_owned(), order);
    }
}

/// The keys of these questions in the order of asking.
#[cfg(feature = "server")]
pub(crate) fn keys(asks: &InputRequiredResult) -> Vec<String> {
    let mut keys: Vec<_> = asks.input_requests.iter().flat_map(|requests| requests.keys().cloned()).collect();
    arrange(&mut keys, listed(asks.meta.as_ref().and_then(|meta| meta.get(ORDER))), |key| key);
    keys
}

/// Declares the order of a form's fields, if it differs from that of their names.
#[cfg(feature = "server")]
pub(crate) fn say_fields(request: &mut InputRequest) {
    let InputRequest::Elicitation(ElicitRequest { params, .. }) = request else { return };
    let ElicitRequestParams::FormElicitationParams { meta, requested_schema: schema, .. } = params else { return };
    let order = schema.property_order.as_deref().unwrap_or_default();
    if !order.is_sorted() {
        let order = || order.iter().map(String::as_str).collect();
        meta.get_or_insert_default().entry(ORDER).or_insert_with(order);
    }
}

/// Puts the fields of a form that was read from JSON in the order that it declares.
#[cfg(feature = "server")]
pub(crate) fn restore_fields(request: &mut InputRequest) {
    let InputRequest::Elicitation(ElicitRequest { params, extensions, .. }) = request else { return };
    let ElicitRequestParams::FormElicitationParams { meta, requested_schema: schema, .. } = params else { return };
    // rmcp leaves the metadata that it has read there.
    if let Some(read) = extensions.remove::<RequestMetaObject>() {
        meta.get_or_insert_default().extend(read);
    }
    let mut names: Vec<String> = schema.properties.keys().cloned().collect();
    arrange(&mut names, listed(meta.as_ref().and_then(|meta| meta.get(ORDER))), |name| name);
    schema.property_order = Some(names);
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn questions_and_fields_are_written_in_the_order_that_is_said_and_nothing_else_is_changed() {
        let form = r#"{"method":"elicitation/create","params":{"_meta":{"rounds/order":["z","a"],"x":1.5},"message":"?","requestedSchema":{"properties":{"a":{"properties":{"b":1,"a":2}},"k":{},"z":{}},"type":"object"}}}"#;
        let ordered = form.replace(
            r#"{"a":{"properties":{"b":1,"a":2}},"k":{},"z":{}}"#,
            r#"{"z":{},"a":{"properties":{"a":2,"b":1}},"k":{}}"#,
        );
        assert_eq!(in_order(form), Some(ordered.clone()), "as a push");
        let asks = |form: &str, requests: &str| {
            let meta = r#"{"rounds/order":["c","nowhere","c","b"]}"#;
            let requests = requests.replace("FORM", form);
            format!(r#"{{"id":1,"jsonrpc":"2.0","result":{{"_meta":{meta},"inputRequests":{{{requests}}}}}}}"#)
        };
        let came = asks(form, r#""a":FORM,"b":{"method":"roots/list"},"c":FORM"#);
        let expected = asks(&ordered, r#""c":FORM,"b":{"method":"roots/list"},"a":FORM"#);
        assert_eq!(in_order(&came), Some(expected), "as a result");
    }

    #[test]
    fn what_says_no_order_or_is_not_a_question_is_left_alone() {
        assert_eq!(in_order(r#"{"result":{"inputRequests":{"b":1,"a":2}}}"#), None);
        assert_eq!(BEGINS, format!("{ORDER:?}:["));
        assert_eq!(in_order(BEGINS), None);
        assert_eq!(in_order(&serde_json::json!({ "text": BEGINS }).to_string()), None);
        let elsewhere = r#"{"result":{"content":{"_meta":{"rounds/order":["b","a"]},"inputRequests":{"a":1,"b":2}}}}"#;
        assert_eq!(in_order(elsewhere).as_deref(), Some(elsewhere), "a tool's own data is not changed");
        let said = |order: &str| {
            format!(r#"{{"result":{{"_meta":{{"rounds/order":{order}}},"inputRequests":{{"a":1,"b":2}}}}}}"#)
        };
        for order in ["1", "{}", "[]", "[1,null,[\"b\"]]"] {
            assert!(in_order(&said(order)).is_none_or(|written| written == said(order)), "{order}");
        }
        let long = said(r#"["b"]"#).replace(":2", &format!(":{:?}", "x".repeat(LONGEST)));
        assert_eq!(in_order(&long), None);
    }
}
