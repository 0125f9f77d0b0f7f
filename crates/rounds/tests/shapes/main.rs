//! Questions that the library asks for a handler: declared questions, steps, and a guard's questions to a legacy
//! client.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod asked;
mod eras;
mod order;
mod steps;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use rmcp::{
    ServerHandler,
    handler::server::{
        router::{prompt::PromptRouter, tool::ToolRouter},
        tool::ToolRoute,
    },
    prompt_handler, tool_handler,
};
use rounds_testkit::{Stage, Units};
use serde_json::{Value, json};

/// A server with the tools of a test. It counts events, and has a price that may change.
#[derive(Default)]
struct Shop {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
    counts: Arc<Mutex<BTreeMap<String, usize>>>,
    price: Mutex<u32>,
}

impl Shop {
    fn stage(tool_router: ToolRouter<Self>) -> Stage<Self> {
        Stage::of(Self { tool_router, ..Self::default() })
    }

    fn stage_of(route: ToolRoute<Self>) -> Stage<Self> {
        Self::stage(ToolRouter::new().with_route(route))
    }

    fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn counted(&self, what: &str) -> usize {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    fn price(&self) -> u32 {
        *self.price.lock().unwrap()
    }

    fn set_price(&self, price: u32) {
        *self.price.lock().unwrap() = price;
    }
}

#[tool_handler(router = self.tool_router)]
#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Shop {
    async fn read_resource(
        &self,
        request: rmcp::model::ReadResourceRequestParams,
        context: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::ReadResourceResponse, rmcp::ErrorData> {
        asked::read_forecast(self, &request.uri, &context)
    }
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}
