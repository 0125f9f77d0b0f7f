//! The server that the MCP conformance suite is run against: each tool, prompt and resource that its scenarios name.
//!
//! Everything that asks is written in one of the shapes of `rounds`, and all shapes are used. The rest is plain rmcp,
//! and goes through `Rounds` as well.

#![expect(deprecated, reason = "SEP-2577 deprecates logs, and clients of the legacy era set a level for them")]

mod asking;
mod changes;
mod content;
mod legacy;
mod prompts;
mod resources;
mod tasks;

use std::{
    future::pending,
    io::{self, Write},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::{prompt::PromptRouter, tool::ToolRouter},
    model::{
        CompleteRequestParams, CompleteResult, CompletionInfo, Implementation, ListResourceTemplatesResult,
        ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
        UnsubscribeRequestParams,
    },
    prompt_handler,
    service::{RequestContext, SubscriptionContext},
    tool_handler,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::Rounds;
use rounds_http::{Endpoint, Port};
use tokio::net::TcpListener;

use crate::changes::Changes;

/// Serves on a free port until it is killed. The first line on stderr names the port.
#[tokio::main]
async fn main() -> io::Result<()> {
    let server = tasks::configured(Rounds::builder(Conformance::new())).build().map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mcp = Endpoint::new(&server, StreamableHttpServerConfig::default());
    writeln!(io::stderr(), "listening on http://{}/mcp", listener.local_addr()?)?;
    Port::new(listener, "/mcp").serve(mcp, pending()).await;
    Ok(())
}

struct Conformance {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
    changes: Changes,
}

impl Conformance {
    fn new() -> Self {
        Self {
            tool_router: Self::asking_tools()
                + Self::durable_tools()
                + Self::legacy_tools()
                + Self::content_tools()
                + Self::schema_tools()
                + Self::change_tools()
                + Self::task_tools(),
            prompt_router: Self::prompt_router(),
            changes: Changes::default(),
        }
    }
}

#[tool_handler(router = self.tool_router)]
#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging();
        ServerConfig::new(capabilities.build())
            .with_server_info(Implementation::new("rounds-conformance", env!("CARGO_PKG_VERSION")))
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::new(CompletionInfo::default()))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::listed()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri).map(Into::into)
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.changes.accept();
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.changes.tell(&context).await;
        Ok(())
    }
}
