//! Questions that the library asks on a handler's behalf: declared ones, steps, and what a guard asks a client of the legacy era.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without is there, or the test fails")]

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
    prompt_handler, schemars, tool_handler,
};
use rounds::{
    Rounds, RoundsBuilder,
    test::{Client, Clock, Events},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Units {
    Metric,
    Imperial,
}

/// A server of whatever tools a test gives it. It counts what happens in it, and knows a price that may change.
#[derive(Default)]
struct Shop {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
    counts: Arc<Mutex<BTreeMap<String, usize>>>,
    price: Mutex<u32>,
}

impl Shop {
    fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
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

/// A server with its time and its events in the test's hands.
struct Stage {
    server: Rounds<Shop>,
    clock: Clock,
    events: Events,
}

impl Stage {
    fn of(tool_router: ToolRouter<Shop>) -> Self {
        Self::with(Shop { tool_router, ..Shop::default() }, |builder| builder)
    }

    fn of_route(route: ToolRoute<Shop>) -> Self {
        Self::of(ToolRouter::new().with_route(route))
    }

    fn with(shop: Shop, configure: impl FnOnce(RoundsBuilder<Shop>) -> RoundsBuilder<Shop>) -> Self {
        let (clock, events) = (Clock::new(), Events::new());
        let builder = Rounds::builder(shop).clock(clock.clone()).observe(events.clone());
        Self { server: configure(builder).build().unwrap(), clock, events }
    }

    async fn modern(&self) -> Client {
        Client::modern(self.server.clone()).await
    }

    async fn legacy(&self) -> Client {
        Client::legacy(self.server.clone()).await
    }

    fn counted(&self, what: &str) -> usize {
        self.server.handler().counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}
