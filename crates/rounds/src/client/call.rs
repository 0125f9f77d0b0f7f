//! A call: its target and arguments, from the first leg to the last.

use std::{collections::BTreeMap, fmt};

use rmcp::model::{CallToolResult, ContentBlock, GetPromptResult, JsonObject, ReadResourceResult, ResourceContents};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Pending, SendError, Server, leg::ClientLeg};
use crate::shared::kind::Method;

/// Default length limit of a server's state, in bytes.
const MAX_STATE: usize = 1 << 20;

/// A call of a tool, a prompt or a resource that may take several rounds.
///
/// It is a value: it can be kept, compared, serialised and sent more than once, each time as a new call.
///
/// ```
/// use rmcp::object;
/// use rounds::client::{Call, Sent, Server};
///
/// # async fn example(server: Server<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let call = Call::tool("weather", object!({"location": "Paris"}));
/// match call.send(server.clone()).await? {
///     Sent::Done(done) => println!("{}", done.text()),
///     Sent::Asks(mut pending) => {
///         for question in pending.questions() {
///             println!("{} asks: {}", question.origin(), question.message());
///         }
///         pending.accept("units", object!({"units": "metric"}))?;
///         pending.send(server).await?;
///     }
///     Sent::Later(pending) => { pending.send(server).await?; }
///     other => println!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    #[serde(with = "wire_name")]
    pub(super) method: Method,
    pub(super) target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<JsonObject>,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub(super) meta: JsonObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_state: Option<usize>,
    /// What identifies this call if its first leg is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key: Option<String>,
    /// The forms that were filled in so far, by the key of their question.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) suggestions: BTreeMap<String, JsonObject>,
}

impl Call {
    /// Calls a tool.
    pub fn tool(name: impl Into<String>, arguments: JsonObject) -> Self {
        Self::new(Method::Tool, name.into(), Some(arguments))
    }

    /// Gets a prompt.
    pub fn prompt(name: impl Into<String>, arguments: JsonObject) -> Self {
        Self::new(Method::Prompt, name.into(), Some(arguments))
    }

    /// Reads a resource.
    pub fn resource(uri: impl Into<String>) -> Self {
        Self::new(Method::Resource, uri.into(), None)
    }

    fn new(method: Method, target: String, arguments: Option<JsonObject>) -> Self {
        Self {
            method,
            target,
            arguments,
            meta: JsonObject::new(),
            max_state: None,
            idempotency_key: None,
            suggestions: BTreeMap::new(),
        }
    }

    /// Sends this with the `_meta` of every leg, for traces and the like. Keys that belong to the protocol are left
    /// out.
    pub fn with_meta(mut self, meta: JsonObject) -> Self {
        self.meta = meta;
        self
    }

    /// Sets the length limit of the server's state, in bytes. The default is 1 MiB.
    pub fn with_max_state(mut self, bytes: usize) -> Self {
        self.max_state = Some(bytes);
        self
    }

    /// Sets the idempotency key of the call: a server of this library that gets the first leg again with the same key
    /// continues the same flow and sends the same reply. Without this setting, every [`send`](Self::send) has a random
    /// key of its own, and so has every [`drive`](super::drive).
    ///
    /// Servers may refuse keys of fewer than 128 random bits, written as base64url or hex.
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Gives the call a random key if it has none.
    pub(super) fn identify(&mut self) {
        self.idempotency_key.get_or_insert_with(random_key);
    }

    /// The method: one of three.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The name of the tool or the prompt, or the URI of the resource.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The arguments of the call.
    pub fn arguments(&self) -> Option<&JsonObject> {
        self.arguments.as_ref()
    }

    /// Sends the first leg and waits for the response. If the future is dropped, the request is cancelled at the
    /// server.
    ///
    /// # Errors
    ///
    /// See [`SendError`]. There is no timeout: [`drive`](super::drive) has one.
    pub async fn send(&self, server: impl Into<Server<'_>>) -> Result<Sent, SendError> {
        self.send_to(&server.into()).await
    }

    pub(super) async fn send_to(&self, server: &Server<'_>) -> Result<Sent, SendError> {
        ClientLeg::First(self).send(server).await
    }

    pub(super) fn max_state(&self) -> usize {
        self.max_state.unwrap_or(MAX_STATE)
    }
}

/// 128 random bits in hex.
pub(super) fn random_key() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Prints no answers, which must not be logged.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// The outcome of a leg.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Sent {
    /// The call has ended.
    Done(Done),
    /// The server asks questions first.
    Asks(Pending),
    /// The server asks nothing, and wants to be called again with its state after a moment, or the call continues as a
    /// [task](Pending::task_id) that is to be polled. Call [`Pending::send`], as [`drive`](super::drive) does; there is
    /// nothing to answer.
    Later(Pending),
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Done {
    /// The result of the tool. It may report a failure: see [`Done::is_error`].
    Tool(CallToolResult),
    /// The prompt.
    Prompt(GetPromptResult),
    /// The contents of the resource.
    Resource(ReadResourceResult),
}

impl Done {
    /// Whether the result reports a failure of the tool.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Tool(result) if result.is_error == Some(true))
    }

    /// All texts in the result, joined by line breaks; other content is left out.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = match self {
            Self::Tool(result) => result.content.iter().filter_map(block).collect(),
            Self::Prompt(result) => result.messages.iter().filter_map(|message| block(&message.content)).collect(),
            Self::Resource(result) => result.contents.iter().filter_map(contents).collect(),
        };
        texts.join("\n")
    }

    /// The result as it is on the wire.
    pub fn to_json(&self) -> Value {
        let json = match self {
            Self::Tool(result) => serde_json::to_value(result),
            Self::Prompt(result) => serde_json::to_value(result),
            Self::Resource(result) => serde_json::to_value(result),
        };
        // rmcp's results are objects with string keys, which JSON can express.
        json.unwrap_or_default()
    }
}

fn block(block: &ContentBlock) -> Option<&str> {
    block.as_text().map(|text| text.text.as_str())
}

fn contents(contents: &ResourceContents) -> Option<&str> {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => Some(text),
        _ => None,
    }
}

/// Writes a method by its name on the wire into a saved call.
mod wire_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::observe::Method;

    pub(super) fn serialize<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(method.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
        let name = String::deserialize(deserializer)?;
        Method::from_name(&name).ok_or_else(|| D::Error::custom("not a method that may be answered with a question"))
    }
}
