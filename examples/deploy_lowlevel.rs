//! The server of `deploy_server` by hand: no macros, `call_tool` written out, and a state in plain text.
//! `cargo run --example deploy_client -- --http --server deploy_lowlevel` starts it.
//!
//! The handler writes `awaiting-confirm` and reads `awaiting-confirm`. `Rounds` around it is the only security: it seals
//! the text on its way out, binds it to the request, lets it be used once, and gives the text back with the answer.

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
        ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, Tool,
    },
    object,
    service::RequestContext,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{Rounds, transport::stdio};
use rounds_http::Endpoint;
use serde_json::Value;
use tokio::net::TcpListener;

const STATE: &str = "awaiting-confirm";

struct Deploy;

impl ServerHandler for Deploy {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(env) = arguments.get("env").and_then(Value::as_str) else {
            return Err(ErrorData::invalid_params("`env` is missing", None));
        };
        // The first round has no state: ask. The answers of a client that was not asked are not looked at.
        let Some(state) = request.request_state else { return Ok(question(env).into()) };
        assert_eq!(state, STATE, "a state that reaches the handler is one that the handler wrote");
        let answers = request.input_responses.unwrap_or_default();
        let said = match answers.get("confirm") {
            Some(answer) if answer["action"] == "accept" && answer["content"]["confirm"] == true => {
                format!("deployed to {env}")
            }
            Some(_) => format!("deployment to {env} cancelled"),
            None => return Ok(question(env).into()),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(said)]).into())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let arguments = object!({"type": "object", "properties": {"env": {"type": "string"}}, "required": ["env"]});
        Ok(ListToolsResult::with_all_items(vec![Tool::new("deploy", "Deploys, after asking whether to", arguments)]))
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn question(env: &str) -> InputRequiredResult {
    let confirm = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!("Deploy to {env}?"),
        requested_schema: ElicitationSchema::builder().required_bool("confirm").build_unchecked(),
    };
    let confirm = InputRequest::Elicitation(ElicitRequest::new(confirm));
    InputRequiredResult::new(Some(InputRequests::from([("confirm".into(), confirm)])), Some(STATE.into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Rounds::new(Deploy);
    if std::env::args().any(|arg| arg == "--http") {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        eprintln!("listening on http://{}/mcp", listener.local_addr()?);
        let endpoint = Endpoint::new(&server, StreamableHttpServerConfig::default());
        axum::serve(listener, axum::Router::new().route_service("/mcp", endpoint)).await?;
    } else {
        server.serve(stdio()).await?.waiting().await?;
    }
    Ok(())
}
