//! A call: what is to be called and with what, from the first leg to the last.

use std::{collections::BTreeMap, fmt};

use rmcp::model::{
    CallToolResult, ContentBlock, CreateTaskResult, GetPromptResult, JsonObject, ReadResourceResult, ResourceContents,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Pending, SendError, Server, leg::Leg};
use crate::shared::kind::Method;

/// How long a server's state may be by default, in bytes.
const MAX_STATE: usize = 1 << 20;

/// A call of a tool, for a prompt or of a resource, that may take several rounds.
///
/// It is a value: it can be kept, compared, serialised and sent more than once, each time as a call of its own.
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
///     Sent::Task(task) => println!("goes on as task {}", task.task.task_id),
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
        Self { method, target, arguments, meta: JsonObject::new(), max_state: None, suggestions: BTreeMap::new() }
    }

    /// Sends this with the `_meta` of every leg, for traces and the like. What the protocol itself keeps there is not
    /// for a caller to say, and is left out.
    pub fn with_meta(mut self, meta: JsonObject) -> Self {
        self.meta = meta;
        self
    }

    /// Carries states of up to this many bytes. The default is 1 MiB.
    pub fn with_max_state(mut self, bytes: usize) -> Self {
        self.max_state = Some(bytes);
        self
    }

    /// Which of the three requests it is.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The name of the tool or the prompt, or the URI of the resource.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// What it is called with.
    pub fn arguments(&self) -> Option<&JsonObject> {
        self.arguments.as_ref()
    }

    /// Sends the first leg and waits for what becomes of it. Dropping the future tells the server that nobody waits.
    ///
    /// # Errors
    ///
    /// See [`SendError`]. There is no limit of time: [`drive`](super::drive) has one.
    pub async fn send(&self, server: impl Into<Server<'_>>) -> Result<Sent, SendError> {
        self.send_to(&server.into()).await
    }

    pub(super) async fn send_to(&self, server: &Server<'_>) -> Result<Sent, SendError> {
        Leg::First(self).send(server).await
    }

    pub(super) fn max_state(&self) -> usize {
        self.max_state.unwrap_or(MAX_STATE)
    }
}

/// Without what was typed, which does not belong in a log.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// What became of a leg.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Sent {
    /// The call has ended.
    Done(Done),
    /// The server wants to know something first.
    Asks(Pending),
    /// The server asks nothing, and wants to be called again with its state: after a moment, as [`drive`](super::drive)
    /// does. There is nothing to answer; [`Pending::send`] is all there is to do.
    Later(Pending),
    /// A tool call goes on as a task, which is polled for with `tasks/get`.
    Task(Box<CreateTaskResult>),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Done {
    /// What the tool returned. It may say that it failed: see [`Done::is_error`].
    Tool(CallToolResult),
    /// The prompt.
    Prompt(GetPromptResult),
    /// What is in the resource.
    Resource(ReadResourceResult),
}

impl Done {
    /// Whether a tool says that it failed.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Tool(result) if result.is_error == Some(true))
    }

    /// All the text in it, line by line; what is not text is left out.
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
        // rmcp's results are objects with text for keys, which is all that JSON asks for.
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

/// A method by its name on the wire, in what is saved.
mod wire_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::observe::Method;

    pub(super) fn serialize<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(method.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
        let name = String::deserialize(deserializer)?;
        Method::from_name(&name).ok_or_else(|| D::Error::custom("no method that may be answered with a question"))
    }
}
