//! The benchmark's weather tool, served by pmcp.
//!
//! It encrypts and binds the state by itself. A question is a signal in the metadata of a result, which is then
//! discarded.

use std::{error::Error, net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
use axum::{Router, serve::ListenerExt};
use pmcp::{
    RequestHandlerExtra, Server, ToolHandler, ToolOutput,
    server::{
        axum_router::{RouterConfig, concurrent_router_with_config},
        streamable_http_server::StreamableHttpServerConfig,
    },
    types::{
        CallToolResult, Content, ToolInfo,
        capabilities::ServerCapabilities,
        elicitation::{ElicitAction, ElicitRequestParams},
        mrtr::{InputRequest, InputRequests, InputResponse, MrtrSignal},
        protocol::{LATEST_PROTOCOL_VERSION, PROTOCOL_VERSION_2026_07_28, ProtocolVersion},
    },
};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

struct Weather;

#[async_trait]
impl ToolHandler for Weather {
    /// The default would print the report as JSON, in quotation marks.
    async fn handle_output(&self, args: Value, extra: RequestHandlerExtra) -> pmcp::Result<ToolOutput> {
        let location = args["location"].as_str().ok_or_else(|| pmcp::Error::validation("location is missing"))?;
        // Present only if a state arrived that could be opened.
        if extra.mrtr_continuation().is_none() {
            return self.handle(args, extra).await.map(ToolOutput::Payload);
        }
        let Some(InputResponse::Elicitation(answer)) = extra.input_responses().and_then(|all| all.get("units")) else {
            return Err(pmcp::Error::validation("no answer to units"));
        };
        if answer.action != ElicitAction::Accept {
            return Ok(text("Cancelled."));
        }
        let units = answer.content.as_ref().and_then(|content| content.get("units"));
        let temperature = if units.is_some_and(|units| units == "metric") { "22°C" } else { "72°F" };
        Ok(text(format!("Weather in {location}: {temperature}, partly cloudy.")))
    }

    async fn handle(&self, _: Value, extra: RequestHandlerExtra) -> pmcp::Result<Value> {
        let signal = MrtrSignal { input_requests: question(), continuation: json!({}) };
        let entry = signal.into_meta_entry().map_err(|error| pmcp::Error::internal(error.to_string()))?;
        extra.set_result_meta(Map::from_iter([entry]));
        Ok(Value::Null)
    }

    fn metadata(&self) -> Option<ToolInfo> {
        let schema =
            json!({ "type": "object", "properties": { "location": { "type": "string" } }, "required": ["location"] });
        Some(ToolInfo::new("weather", Some("Weather for a place".to_owned()), schema))
    }
}

fn question() -> InputRequests {
    let form = ElicitRequestParams::Form {
        message: "Which units?".to_owned(),
        requested_schema: json!({
            "type": "object",
            "properties": { "units": { "type": "string", "enum": ["metric", "imperial"] } },
            "required": ["units"],
        }),
    };
    InputRequests::from([("units".to_owned(), InputRequest::Elicitation(Box::new(form)))])
}

fn text(text: impl Into<String>) -> ToolOutput {
    ToolOutput::Result(CallToolResult::new(vec![Content::text(text)]))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let versions = [LATEST_PROTOCOL_VERSION, PROTOCOL_VERSION_2026_07_28];
    let server = Server::builder()
        .name("pmcp")
        .version("2.23.0")
        .capabilities(ServerCapabilities::tools_only())
        .with_supported_protocol_versions(versions.map(|version| ProtocolVersion(version.to_owned())))
        .tool("weather", Weather)
        .build()?;
    // JSON instead of events. With the router's other constructor, requests would wait for each other.
    let server_config = StreamableHttpServerConfig::stateless();
    let router =
        concurrent_router_with_config(Arc::new(server), RouterConfig { server_config, ..RouterConfig::default() });

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, Router::new().nest("/mcp", router)).await?;
    Ok(())
}
