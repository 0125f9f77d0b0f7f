//! Tools that do not ask: every kind of content, a failure, progress, logs, and various input schemas.

#![expect(deprecated, reason = "SEP-2577 deprecates logs, and clients of the legacy era expect them")]

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
        wrapper::Parameters,
    },
    model::{
        CallToolResult, ContentBlock, JsonObject, LoggingLevel, LoggingMessageNotificationParam,
        ProgressNotificationParam, ProtocolVersion, ResourceContents, Tool,
    },
    schemars,
    service::RequestContext,
    tool, tool_router,
};
use rounds::text;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Conformance;

/// A red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// The shortest possible silence.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// Duration of a step, in tools that report progress.
const STEP: Duration = Duration::from_millis(20);

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Routed {
    /// Where to, which also travels as the header `Mcp-Param-Region`
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

#[tool_router(router = content_tools, vis = "pub(crate)")]
impl Conformance {
    /// Scenarios that need any tool take the first one, and call it without arguments.
    #[tool(description = "Does nothing")]
    async fn a_tool_without_arguments(&self) -> String {
        "Nothing was done.".to_owned()
    }

    #[tool(description = "Text")]
    async fn test_simple_text(&self) -> String {
        "This is a simple text response for testing.".to_owned()
    }

    #[tool(description = "An image")]
    async fn test_image_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::image(PNG, "image/png")])
    }

    #[tool(description = "A sound")]
    async fn test_audio_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::audio(WAV, "audio/wav")])
    }

    #[tool(description = "A resource within the result")]
    async fn test_embedded_resource(&self) -> CallToolResult {
        let resource = ResourceContents::text("This is an embedded resource content.", "test://embedded-resource");
        CallToolResult::success(vec![ContentBlock::resource(resource.with_mime_type("text/plain"))])
    }

    #[tool(description = "Text, an image and a resource")]
    async fn test_multiple_content_types(&self) -> CallToolResult {
        let resource = ResourceContents::text(r#"{"test":"data","value":123}"#, "test://mixed-content-resource");
        CallToolResult::success(vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            ContentBlock::resource(resource.with_mime_type("application/json")),
        ])
    }

    #[tool(description = "Fails")]
    async fn test_error_handling(&self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text("This tool intentionally returns an error for testing")])
    }

    #[tool(description = "Reports how far it has come")]
    async fn test_tool_with_progress(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let Some(token) = context.meta.get_progress_token() else {
            return Ok("Done, without progress: the request has no token.".to_owned());
        };
        for progress in [0.0, 50.0, 100.0] {
            let param = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
            context.peer.notify_progress(param).await.map_err(lost)?;
            sleep(STEP).await;
        }
        Ok("Done.".to_owned())
    }

    #[tool(description = "Logs what it does")]
    async fn test_tool_with_logging(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        log(&context, &["Tool execution started", "Tool processing data", "Tool execution completed"]).await
    }

    #[tool(description = "Logs, if the request says that it may")]
    async fn test_logging_tool(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        log(&context, &["Logged"]).await
    }

    /// Only its name matters: closing and resuming a stream during a call is the transport's concern.
    #[tool(description = "Could be cut off, and answers")]
    async fn test_reconnection(&self) -> String {
        "Still here.".to_owned()
    }

    #[tool(description = "Takes an argument that is in a header as well")]
    async fn test_routed(&self, Parameters(Routed { region }): Parameters<Routed>) -> String {
        format!("Routed to {region}.")
    }
}

impl Conformance {
    /// A tool whose schema has keywords that no Rust type generates.
    pub(crate) fn schema_tools() -> ToolRouter<Self> {
        let tool = Tool::new("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", schema());
        ToolRouter::new().with_route(ToolRoute::new_dyn(tool, |_: ToolCallContext<'_, Self>| {
            Box::pin(async { Ok(text("Thank you.")) })
        }))
    }
}

async fn log(context: &RequestContext<RoleServer>, lines: &[&str]) -> Result<String, ErrorData> {
    let is_wanted = context.protocol_version() < Some(ProtocolVersion::V_2026_07_28)
        || context.meta.get("io.modelcontextprotocol/logLevel").is_some();
    for line in lines.iter().filter(|_| is_wanted) {
        let param = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line));
        context.peer.notify_logging_message(param).await.map_err(lost)?;
        sleep(STEP).await;
    }
    Ok("Done.".to_owned())
}

fn lost(error: rmcp::ServiceError) -> ErrorData {
    ErrorData::internal_error(format!("the client cannot be notified: {error}"), None)
}

fn schema() -> Arc<JsonObject> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    });
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::default(),
    }
}
