//! The three requests that may be answered with a question, as one: `tools/call`, `prompts/get`, `resources/read`.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult,
        GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequiredResult, InputResponses, JsonObject,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerResult,
    },
    service::RequestContext,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    server::{
        policy::{
            error::{Failure, FlowError, Wire},
            observe::Outcome,
        },
        seal::envelope::Method,
    },
    shared::order,
};

/// A request that may be answered with a question.
pub(crate) trait Exchange: Clone + Send + Sync + Sized + 'static {
    const METHOD: Method;
    type Response: Response;

    fn target(&self) -> &str;
    fn arguments(&self) -> Option<&JsonObject>;
    /// Where its arguments are, if it can have some.
    fn arguments_mut(&mut self) -> Option<&mut Option<JsonObject>>;
    fn answers(&mut self) -> &mut Option<InputResponses>;
    fn state(&mut self) -> &mut Option<String>;
    fn call<H: ServerHandler>(
        self,
        handler: &H,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<Self::Response, ErrorData>> + Send;
}

/// What such a request is answered with.
pub(crate) trait Response: From<InputRequiredResult> + Into<ServerResult> + Clone + Send + 'static {
    /// The result of a leg that ends the flow.
    type Complete: DeserializeOwned + Into<Self>;

    /// A result of this request, out of all that a server may answer with.
    fn from_result(result: ServerResult) -> Option<Self>;

    /// The questions, or the response itself when it has none.
    fn into_asks(self) -> Result<InputRequiredResult, Self>;

    /// The questions, if it has some.
    fn asks(&self) -> Option<&InputRequiredResult>;

    /// How a leg with this response ended.
    fn outcome(&self) -> Outcome {
        if self.asks().is_some() { Outcome::InputRequired } else { Outcome::Complete }
    }

    /// The failure in words where the result has a place for them, as an error of the protocol otherwise.
    fn failed(error: FlowError) -> Result<Self, Failure> {
        match error.wire() {
            Wire::Words(error) => Self::in_words(error).map_err(Failure::is_reply),
            Wire::Protocol(failure) => Err(failure),
        }
    }

    /// A result that says the words of this error, or the error where no result has a place for them.
    fn in_words(error: ErrorData) -> Result<Self, ErrorData> {
        Err(error)
    }

    /// Marks a result that depends on answers as one that must not be cached.
    fn forbid_caching(&mut self) {}

    /// Writes the response as a ledger keeps it: the result as it is on the wire.
    fn write_json(&self, json: &mut Vec<u8>) -> serde_json::Result<()>;

    fn from_json(json: &[u8]) -> serde_json::Result<Self> {
        let result: Value = serde_json::from_slice(json)?;
        match result.get("resultType").and_then(Value::as_str) {
            Some("input_required") => {
                let mut asks = InputRequiredResult::deserialize(result)?;
                asks.input_requests.iter_mut().flat_map(|asked| asked.values_mut()).for_each(order::restore_fields);
                Ok(asks.into())
            }
            Some("task") => Self::task(result),
            _ => Ok(Self::Complete::deserialize(result)?.into()),
        }
    }

    fn task(_result: Value) -> serde_json::Result<Self> {
        Err(serde::de::Error::custom("only a tool call becomes a task"))
    }
}

macro_rules! exchange {
    ($request:ty, $response:ty, $method:expr, $call:ident, $target:ident, $(.$arguments:ident)?) => {
        impl Exchange for $request {
            const METHOD: Method = $method;
            type Response = $response;

            fn target(&self) -> &str {
                &self.$target
            }

            fn arguments(&self) -> Option<&JsonObject> {
                None$(.or(self.$arguments.as_ref()))?
            }

            fn arguments_mut(&mut self) -> Option<&mut Option<JsonObject>> {
                None$(.or(Some(&mut self.$arguments)))?
            }

            fn answers(&mut self) -> &mut Option<InputResponses> {
                &mut self.input_responses
            }

            fn state(&mut self) -> &mut Option<String> {
                &mut self.request_state
            }

            fn call<H: ServerHandler>(
                self,
                handler: &H,
                context: RequestContext<RoleServer>,
            ) -> impl Future<Output = Result<Self::Response, ErrorData>> + Send {
                handler.$call(self, context)
            }
        }
    };
}

exchange!(CallToolRequestParams, CallToolResponse, Method::Tool, call_tool, name, .arguments);
exchange!(GetPromptRequestParams, GetPromptResponse, Method::Prompt, get_prompt, name, .arguments);
exchange!(ReadResourceRequestParams, ReadResourceResponse, Method::Resource, read_resource, uri,);

/// What every response has in common, written once: it is complete, or it asks.
macro_rules! outcomes {
    ($complete:ident $(, $other:ident)*) => {
        type Complete = $complete;

        fn from_result(result: ServerResult) -> Option<Self> {
            match result {
                ServerResult::$complete(result) => Some(result.into()),
                ServerResult::InputRequiredResult(result) => Some(result.into()),
                $(ServerResult::$other(result) => Some(result.into()),)*
                _ => None,
            }
        }

        fn into_asks(self) -> Result<InputRequiredResult, Self> {
            match self {
                Self::InputRequired(asks) => Ok(asks),
                other => Err(other),
            }
        }

        fn asks(&self) -> Option<&InputRequiredResult> {
            match self {
                Self::InputRequired(asks) => Some(asks),
                _ => None,
            }
        }

        fn write_json(&self, json: &mut Vec<u8>) -> serde_json::Result<()> {
            match self {
                Self::Complete(result) => serde_json::to_writer(json, result),
                Self::InputRequired(asks) => serde_json::to_writer(json, asks),
                other => serde_json::to_writer(json, &ServerResult::from(other.clone())),
            }
        }
    };
}

impl Response for CallToolResponse {
    outcomes!(CallToolResult, CreateTaskResult);

    fn outcome(&self) -> Outcome {
        match self {
            Self::Complete(result) if result.is_error == Some(true) => Outcome::ToolError,
            Self::InputRequired(_) => Outcome::InputRequired,
            _ => Outcome::Complete,
        }
    }

    fn in_words(error: ErrorData) -> Result<Self, ErrorData> {
        Ok(CallToolResult::error(vec![ContentBlock::text(error.message)]).into())
    }

    fn task(result: Value) -> serde_json::Result<Self> {
        Ok(CreateTaskResult::deserialize(result)?.into())
    }
}

impl Response for GetPromptResponse {
    outcomes!(GetPromptResult);
}

impl Response for ReadResourceResponse {
    outcomes!(ReadResourceResult);

    fn forbid_caching(&mut self) {
        if let Self::Complete(result) = self {
            result.ttl_ms = Some(0);
            result.cache_scope = Some(CacheScope::Private);
        }
    }
}
