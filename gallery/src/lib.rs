//! The same weather tool in every shape, one file each, so that the difference between two files is the difference
//! between two shapes and nothing else.
//!
//! [`Gallery`] is one server with all of them. This file has what they share.

mod airline;
mod bank;
mod basic;
mod basic_multiround;
mod book_flight;
mod delete_branch;
mod deploy;
mod old_style;
mod orders;
mod refund_large;
mod refund_order;
mod transfer;
mod travel;
mod weather_a;
mod weather_asked;
mod weather_b;
mod weather_c;
mod weather_d;
mod weather_e;
mod weather_f;
mod weather_g;
mod weather_h;
mod weather_i;
mod weather_lowlevel;
mod weather_naive;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::{prompt::PromptRouter, tool::ToolRouter},
    model::{
        CallToolResult, Implementation, ListResourceTemplatesResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ResourceTemplate, ServerCapabilities, ServerConfig,
    },
    prompt_handler, schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use rounds::{Legacy, Rounds, RoundsBuilder, asked::FixedQuestion};
use serde::{Deserialize, Serialize};

use crate::{airline::InMemory, bank::BankInMemory};
pub use crate::{
    airline::{Airline, Counted, PRICE},
    bank::{ACCOUNTS, Bank, Transfer},
};

/// The gallery, ready to be wrapped. `weather_a` and `weather_lowlevel` are written for modern clients only, and the
/// server pushes their question to legacy clients. `delete_all` is written for legacy clients only, and the server asks
/// modern clients what it pushes.
pub fn rounds() -> RoundsBuilder<Gallery> {
    rounds_with(Gallery::new())
}

/// The same for a gallery that the caller has created. `asks` names a type that tools ask for: if no form could ask for it,
/// the server would not be built.
pub fn rounds_with(gallery: Gallery) -> RoundsBuilder<Gallery> {
    let builder = Rounds::builder(gallery).pushes_for("delete_all");
    builder.legacy_for("weather_a", Legacy::push()).legacy_for("weather_lowlevel", Legacy::push()).asks::<Units>()
}

/// One server with every tool of the gallery.
pub struct Gallery {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
    audit: Audit,
    airline: Box<dyn Airline>,
    bank: Arc<dyn Bank>,
}

impl Gallery {
    /// A gallery with an empty audit, and an airline without sales.
    pub fn new() -> Self {
        Self::flying(InMemory::default())
    }

    /// A gallery with this airline.
    pub fn flying(airline: impl Airline) -> Self {
        Self {
            tool_router: Self::weather_tools() + Self::story_tools() + Self::audit_tools(),
            prompt_router: Self::prompt_router(),
            audit: Audit::default(),
            airline: Box::new(airline),
            bank: Arc::new(BankInMemory::default()),
        }
    }

    /// The same gallery with this bank.
    pub fn banking(mut self, bank: impl Bank) -> Self {
        self.bank = Arc::new(bank);
        self
    }

    /// The weather tool in every shape.
    fn weather_tools() -> ToolRouter<Self> {
        Self::weather_a_tools()
            + Self::weather_b_tools()
            + Self::weather_c_tools()
            + Self::weather_d_tools()
            + Self::weather_e_tools()
            + Self::weather_f_tools()
            + Self::weather_g_tools()
            + Self::weather_h_tools()
            + Self::weather_i_tools()
            + Self::weather_asked_tools()
            + Self::weather_naive_tools()
            + Self::weather_lowlevel_tools()
    }

    /// All other tools that ask.
    fn story_tools() -> ToolRouter<Self> {
        Self::basic_tools()
            + Self::basic_multiround_tools()
            + Self::deploy_tools()
            + Self::delete_branch_tools()
            + Self::old_style_tools()
            + Self::book_flight_tools()
            + Self::airline_tools()
            + Self::refund_order_tools()
            + Self::refund_large_tools()
            + Self::transfer_tools()
            + Self::balance_tools()
    }

    /// The number of audit entries of each tool.
    pub fn audited(&self) -> BTreeMap<String, u64> {
        self.audit.entries()
    }
}

impl Default for Gallery {
    fn default() -> Self {
        Self::new()
    }
}

#[tool_router(router = audit_tools)]
impl Gallery {
    #[tool(description = "How many audit entries each tool has written since the start")]
    async fn audit_log(&self) -> CallToolResult {
        CallToolResult::structured(serde_json::json!(self.audited()))
    }
}

#[tool_handler(router = self.tool_router)]
#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Gallery {
    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.forecast(&request.uri, &context).await.map(Into::into)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let forecast = ResourceTemplate::new("weather://forecast/{location}", "forecast")
            .with_description("The weather for a place, in units that are asked for");
        Ok(ListResourceTemplatesResult::with_all_items(vec![forecast]))
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build())
            .with_server_info(Implementation::new("rounds-gallery", env!("CARGO_PKG_VERSION")))
            .with_instructions("The same weather tool in every way there is to write it.")
    }
}

/// The arguments of the weather tool.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
pub(crate) struct Place {
    /// Where
    pub(crate) location: String,
}

// The question's form. (A doc comment would become part of the question.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Units {
    Metric,
    Imperial,
}

// For the shapes that ask before the handler runs. The others pass their own message.
impl FixedQuestion for Units {
    const MESSAGE: &'static str = "Which units?";
}

/// The weather report. The weather is always the same.
pub(crate) fn report(place: &Place, units: Units) -> String {
    let temperature = match units {
        Units::Metric => "22°C",
        Units::Imperial => "72°F",
    };
    format!("Weather in {}: {temperature}, partly cloudy.", place.location)
}

/// An effect that should run once per call: an entry in a log.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    entries: Mutex<BTreeMap<String, u64>>,
}

impl Audit {
    pub(crate) fn record(&self, tool: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        *entries.entry(tool.to_owned()).or_default() += 1;
    }

    fn entries(&self) -> BTreeMap<String, u64> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
