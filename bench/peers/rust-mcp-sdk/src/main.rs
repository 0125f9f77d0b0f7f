//! The benchmark's weather tool, served by rust-mcp-sdk.
//!
//! The codec signs its input and the time, and binds it to nothing, so the place travels in the state and is read from
//! there.

use std::{collections::BTreeMap, error::Error, net::Ipv4Addr, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::serve::ListenerExt;
use rust_mcp_axum::{McpMountOptions, mcp_routes};
use rust_mcp_sdk::{
    McpServer, RequestContext, ServerDetails, ToMcpServerHandler,
    id_generator::{FastIdGenerator, UuidGenerator},
    macros::{JsonSchema, mcp_tool},
    mcp_http::{
        DEFAULT_MAX_LISTEN_STREAMS, DnsRebindingOptions, McpAppState, McpHttpHandler, Middleware,
        resolve_dns_middleware,
    },
    mcp_server::{RequestStateCodec, ServerHandler},
    schema::{
        CallToolRequestParams, CallToolResult, ElicitRequest, ElicitRequestFormParams,
        ElicitRequestFormParamsRequestedSchema, ElicitResultAction, ElicitResultContent, ElicitResultContentPrimitive,
        Implementation, InputRequest, InputRequests, InputRequiredResult, InputResponse, ListToolsResult,
        ListToolsResultCacheScope, PaginatedRequestParams, PrimitiveSchemaDefinition, RpcError, ServerCapabilities,
        ServerCapabilitiesTools, ServerResult, TextContent, UntitledSingleSelectEnumSchema,
    },
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[mcp_tool(name = "weather", description = "Weather for a place")]
#[derive(Serialize, Deserialize, JsonSchema)]
struct Place {
    location: String,
}

struct Weather(RequestStateCodec);

#[async_trait]
impl ServerHandler for Weather {
    async fn handle_list_tools_request(
        &self,
        _: Option<PaginatedRequestParams>,
        _: &RequestContext,
        _: Arc<dyn McpServer>,
    ) -> Result<ListToolsResult, RpcError> {
        Ok(ListToolsResult {
            tools: vec![Place::tool()],
            meta: None,
            next_cursor: None,
            cache_scope: ListToolsResultCacheScope::Private,
            result_type: "complete".to_owned(),
            ttl_ms: 0,
        })
    }

    async fn handle_call_tool_request_mrtr(
        &self,
        params: CallToolRequestParams,
        _: &RequestContext,
        _: Arc<dyn McpServer>,
    ) -> Result<ServerResult, RpcError> {
        let invalid = |message: &str| RpcError::invalid_params().with_message(message);
        if params.name != "weather" {
            return Err(invalid("no such tool"));
        }
        let Some(state) = params.request_state else {
            let place: Place =
                serde_json::from_value(params.arguments.into()).map_err(|error| invalid(&error.to_string()))?;
            return Ok(self.ask(&place.location).into());
        };
        let location = self.0.decode_str(&state).ok_or_else(|| invalid("the state cannot be opened"))?;
        let Some(InputResponse::ElicitResult(answer)) =
            params.input_responses.and_then(|mut all| all.0.remove("units"))
        else {
            return Err(invalid("no answer to units"));
        };
        if answer.action != ElicitResultAction::Accept {
            return Ok(text("Cancelled.".to_owned()));
        }
        let units = answer.content.as_ref().and_then(|content| content.get("units"));
        let metric = matches!(
            units,
            Some(ElicitResultContent::Primitive(ElicitResultContentPrimitive::String(units))) if units == "metric"
        );
        let temperature = if metric { "22°C" } else { "72°F" };
        Ok(text(format!("Weather in {location}: {temperature}, partly cloudy.")))
    }
}

impl Weather {
    fn ask(&self, location: &str) -> InputRequiredResult {
        // Its macro for forms does not support enumerations.
        let options = vec!["metric".to_owned(), "imperial".to_owned()];
        let field = UntitledSingleSelectEnumSchema::new(options, None, None, None);
        let properties =
            BTreeMap::from([("units".to_owned(), PrimitiveSchemaDefinition::UntitledSingleSelectEnumSchema(field))]);
        let schema = ElicitRequestFormParamsRequestedSchema::new(properties, vec!["units".to_owned()], None);
        let form = ElicitRequestFormParams::new("Which units?".to_owned(), schema);
        let question = InputRequest::ElicitRequest(ElicitRequest::new(form.into()));
        InputRequiredResult {
            input_requests: Some(InputRequests(BTreeMap::from([("units".to_owned(), question)]))),
            meta: None,
            request_state: Some(self.0.encode_str(location)),
            result_type: "input_required".to_owned(),
        }
    }
}

fn text(text: String) -> ServerResult {
    CallToolResult::text_content(vec![TextContent::new(text, None, None)]).into()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    let handler = Weather(RequestStateCodec::with_key(key).with_max_age(Duration::from_secs(600)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;

    // Does the same as its ready-made server, which can neither set TCP_NODELAY nor listen on port 0: it rejects
    // requests to any other port than the configured one.
    let state = McpAppState {
        id_generator: Arc::new(UuidGenerator {}),
        stream_id_gen: Arc::new(FastIdGenerator::new(Some("s_"))),
        server_details: Arc::new(details()),
        handler: handler.to_mcp_server_handler(),
        ping_interval: Duration::from_secs(12),
        transport_options: Arc::default(),
        enable_json_response: true,
        message_observer: None,
        extensions: Arc::default(),
        active_listen_streams: Arc::default(),
        max_listen_streams: DEFAULT_MAX_LISTEN_STREAMS,
    };
    let hosts = resolve_dns_middleware(&mut DnsRebindingOptions::default(), "127.0.0.1", address.port());
    let middleware = hosts.into_iter().map(|hosts| Arc::new(hosts) as Arc<dyn Middleware>).collect();
    let http = McpHttpHandler::new(None, middleware, None);
    let routes = mcp_routes(Arc::new(state), &McpMountOptions::default(), http);

    println!("listening on http://{address}/mcp");
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, routes).await?;
    Ok(())
}

fn details() -> ServerDetails {
    ServerDetails {
        server_info: Implementation {
            name: "rust-mcp-sdk".to_owned(),
            version: "2.0.0".to_owned(),
            title: None,
            description: None,
            icons: Vec::new(),
            website_url: None,
        },
        capabilities: ServerCapabilities {
            tools: Some(ServerCapabilitiesTools { list_changed: None }),
            ..ServerCapabilities::default()
        },
        instructions: None,
        meta: None,
    }
}
