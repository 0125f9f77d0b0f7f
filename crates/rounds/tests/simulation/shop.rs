//! The server that is simulated: a shop that books flights, with a tool for each shape.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse, ServerCapabilities, ServerConfig},
    schemars,
    service::RequestContext,
};
use rounds::{Ask, Durable, FlowError, Given, Round, text};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    history::Event,
    world::{Gate, World},
};

/// A shop in one process.
pub(crate) struct Shop {
    pub(crate) world: Arc<World>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) instance: String,
}

// What is asked first. (A doc comment would become part of the question.)
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Seat {
    Window,
    Aisle,
}

/// The arguments of every tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Flight {
    pub(crate) flow: u32,
    /// How long booking takes, in milliseconds.
    pub(crate) work: u64,
    /// Whether a second question follows.
    pub(crate) confirms: bool,
}

impl Flight {
    /// What a flow ends with whose client answers like this.
    pub(crate) fn report(&self, seat: Seat) -> String {
        format!("flight {}: {seat:?}", self.flow)
    }
}

impl Shop {
    /// Books a flight at an airline, which every process can reach and which books once for each key.
    async fn book(&self, flight: &Flight, key: &str) {
        sleep(Duration::from_millis(flight.work)).await;
        self.gate.pass().await;
        let (flow, key, instance) = (flight.flow, key.to_owned(), self.instance.clone());
        self.world.record(Event::Charged { flow, key, instance });
    }

    async fn linear(&self, ask: Ask, flight: Flight) -> Result<String, FlowError> {
        // It stands for this run of the handler.
        let key = self.world.number().to_string();
        let seat: Seat = ask.form("Which seat?").key("seat").await?;
        self.book(&flight, &key).await;
        if flight.confirms {
            ask.confirm("Sure?").key("sure").await?;
        }
        Ok(flight.report(seat))
    }

    async fn guard(&self, round: Round, flight: Flight) -> Result<CallToolResponse, FlowError> {
        let Given::Accepted(seat) = round.given::<Seat>("seat") else {
            return round.ask_form::<Seat>("seat", "Which seat?");
        };
        round.once("book", async || self.book(&flight, &round.once_key("book")).await).await?;
        match round.given::<bool>("sure") {
            Given::Missing if flight.confirms => round.ask_form::<bool>("sure", "Sure?"),
            _ => Ok(text(flight.report(seat))),
        }
    }
}

async fn durable(flow: Durable<Shop>, flight: Flight) -> Result<String, FlowError> {
    let seat: Seat = flow.form("Which seat?").key("seat").await?;
    flow.once("book", async |shop, key| shop.book(&flight, key).await).await?;
    if flight.confirms {
        flow.confirm("Sure?").key("sure").await?;
    }
    Ok(flight.report(seat))
}

impl ServerHandler for Shop {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let flight = serde_json::from_value(request.arguments.unwrap_or_default().into());
        let flight: Flight = flight.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        match &*request.name {
            "linear" => {
                let ask = Ask::from_context(&context)?;
                drop(context);
                self.linear(ask, flight).await.into_call_tool_result()
            }
            "durable" => durable(Durable::from_context(&context)?, flight).await.into_call_tool_result(),
            _ => self.guard(Round::from_context(&context)?, flight).await.into_call_tool_result(),
        }
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
