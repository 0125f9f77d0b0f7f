//! A name that was given to `legacy_for` or `pushes_for` and that no tool has causes one warning.
//!
//! The only test in this file, because `tracing` caches for the whole process which events are enabled.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without is there, or the test fails")]

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{
        ListPromptsResult, ListToolsResult, PaginatedRequestParams, Prompt, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use rounds::{Legacy, Rounds, RoundsBuilder, test::Client};
use rounds_testkit::Log;
use serde_json::json;

struct Kitchen(ToolRouter<Self>);

#[tool_router]
impl Kitchen {
    #[tool]
    async fn cook(&self) -> String {
        "done".to_owned()
    }
}

#[tool_handler(router = self.0)]
impl ServerHandler for Kitchen {}

/// A server with prompts, whose tools are listed in pages and cannot be looked up, or are listed in one page.
struct Paged {
    pages: bool,
}

impl ServerHandler for Paged {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_prompts().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str| Tool::new(name, "", rmcp::object!({"type": "object"}));
        let mut listed = ListToolsResult::default();
        match request.and_then(|page| page.cursor) {
            None if self.pages => (listed.tools, listed.next_cursor) = (vec![tool("cook")], Some("2".to_owned())),
            None => listed.tools = vec![tool("cook"), tool("bake")],
            Some(_) => listed.tools = vec![tool("bake")],
        }
        Ok(listed)
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let listed = ListPromptsResult::with_all_items(vec![Prompt::new("recipe", Some(""), None)]);
        Ok(listed)
    }
}

/// The warnings since the last call.
fn warned(log: &Log) -> Vec<String> {
    log.take().lines().filter(|line| line.contains("legacy_for")).map(str::to_owned).collect()
}

fn configured<H: ServerHandler>(builder: RoundsBuilder<H>) -> Rounds<H> {
    let names = ["cook", "bake", "recipe", "file:///menu", "cok"];
    names.into_iter().fold(builder, |builder, name| builder.legacy_for(name, Legacy::push())).build().unwrap()
}

#[tokio::test]
async fn a_target_that_nothing_has_is_warned_of_once_the_tools_are_known() {
    let (log, _listening) = Log::listen(tracing::Level::INFO);
    let named = |warnings: &[String], name: &str| warnings.iter().filter(|line| line.contains(name)).count();

    for known_by in ["tools/list", "tools/call"] {
        let server = configured(Rounds::builder(Kitchen(Kitchen::tool_router())));
        let client = Client::modern(server.clone()).await;
        let _ = client.call("no such tool", json!({})).await;
        assert_eq!(warned(&log), Vec::<String>::new(), "a call of an unknown tool says nothing about the known ones");
        let _ = client.request(known_by, json!({"name": "cook", "arguments": {}})).await;
        let warnings = warned(&log);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        for name in ["name=\"cok\"", "name=\"bake\"", "name=\"recipe\""] {
            assert_eq!(named(&warnings, name), 1, "{warnings:?}");
        }
        for client in [client, Client::legacy(server).await] {
            let _ = client.request("tools/list", json!({})).await;
            let _ = client.call("cook", json!({})).await;
        }
        assert_eq!(warned(&log), Vec::<String>::new(), "once");
    }

    let client = Client::modern(configured(Rounds::builder(Paged { pages: true }))).await;
    for page in [json!({}), json!({"cursor": "2"})] {
        let _ = client.request("tools/list", page).await;
    }
    let _ = client.request("prompts/list", json!({})).await;
    assert_eq!(warned(&log), Vec::<String>::new(), "a paged list may have been seen in part");

    let client = Client::modern(configured(Rounds::builder(Paged { pages: false }))).await;
    let _ = client.request("tools/list", json!({})).await;
    assert_eq!(warned(&log), Vec::<String>::new(), "the name may be that of a prompt");
    let _ = client.request("prompts/list", json!({})).await;
    let warnings = warned(&log);
    assert_eq!((warnings.len(), named(&warnings, "cok")), (1, 1), "{warnings:?}");

    let server = Rounds::builder(Kitchen(Kitchen::tool_router())).pushes_for("cook").pushes_for("cok");
    let _ = Client::modern(server.build().unwrap()).await.request("tools/list", json!({})).await;
    let warnings: Vec<_> = log.take().lines().filter(|line| line.contains("pushes_for")).map(str::to_owned).collect();
    assert_eq!((warnings.len(), named(&warnings, "cok")), (1, 1), "{warnings:?}");
}
