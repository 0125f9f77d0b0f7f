//! How much memory JSON takes as a tree, about: what a client sends in a few bytes can take hundreds.

use rmcp::{RoleServer, service::RequestContext};
use serde_json::{Map, Value};

/// Of a node in the map that an object is, which has room for eleven members.
const NODE: usize = 632;

/// How many members a node has room for.
const MEMBERS: usize = 11;

/// Of an entry of a header map, beside its texts.
#[cfg(feature = "http")]
const HEADER: usize = 128;

/// What a client has chosen of a context: `_meta` and headers.
pub(super) fn of_context(context: &RequestContext<RoleServer>) -> usize {
    #[cfg(feature = "http")]
    let parts = context.extensions.get::<http::request::Parts>();
    #[cfg(feature = "http")]
    let headers = parts.map_or(0, |parts| {
        let headers = parts.headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len());
        headers.sum::<usize>() + parts.uri.path_and_query().map_or(0, |path| path.as_str().len())
    });
    #[cfg(not(feature = "http"))]
    let headers = 0;
    of_object(&context.meta.0.0) + headers
}

/// What the members of an object take.
pub(crate) fn of_object(members: &Map<String, Value>) -> usize {
    // Those of a large one are half full.
    let nodes = if members.len() > MEMBERS { members.len() / (MEMBERS / 2) } else { usize::from(!members.is_empty()) };
    members.iter().fold(nodes * NODE, |bytes, (name, value)| bytes + name.len() + of(value))
}

/// What a value takes beside its place in what it is in.
pub(crate) fn of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => {
            values.iter().fold(values.capacity() * size_of::<Value>(), |bytes, value| bytes + of(value))
        }
        Value::Object(members) => of_object(members),
    }
}
