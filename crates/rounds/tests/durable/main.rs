//! Durable handlers: linear code, each leg of which may reach another instance.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

mod deploys;
mod failures;
mod flows;
mod left;
mod others;
mod rules;
mod times;

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute},
    model::{ServerCapabilities, ServerConfig},
    schemars, tool_handler,
};
use rounds::{
    Durable, FlowError, Limits, Rounds,
    format::Format,
    test::{Client, Events},
};
use rounds_testkit::Fleet;
use serde::Deserialize;
use tokio::sync::Semaphore;

/// A server with one tool.
struct Airline {
    tool_router: ToolRouter<Self>,
    world: Arc<World>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Airline {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// The world outside of every process: it survives them, and counts.
struct World {
    effects: Mutex<BTreeMap<String, usize>>,
    keys: Mutex<Vec<String>>,
    /// While it is closed, it blocks every effect.
    gate: Semaphore,
    reached: Semaphore,
}

impl World {
    /// Runs an effect, and returns how often it ran before.
    fn have(&self, effect: &str) -> usize {
        let mut effects = self.effects.lock().unwrap();
        let count = effects.entry(effect.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    fn count(&self, effect: &str) -> usize {
        self.effects.lock().unwrap().get(effect).copied().unwrap_or(0)
    }

    async fn pass(&self) {
        self.reached.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Trip {
    to: String,
}

/// Instances that share only their keys and their ledger.
struct Flights {
    fleet: Fleet,
    events: Events,
    world: Arc<World>,
    /// `None`, unless a test is about it.
    grace: Duration,
    format: Format,
}

impl Flights {
    fn new() -> Self {
        let world = World {
            effects: Mutex::default(),
            keys: Mutex::default(),
            gate: Semaphore::new(0),
            reached: Semaphore::new(0),
        };
        let (grace, format) = (Duration::ZERO, Format::default());
        Self { fleet: Fleet::new(), events: Events::new(), world: Arc::new(world), grace, format }
    }

    fn server(&self, route: ToolRoute<Airline>) -> Rounds<Airline> {
        let airline = Airline { tool_router: ToolRouter::new().with_route(route), world: self.world.clone() };
        let builder = self.builder(airline).limits(Limits::default().with_grace(self.grace));
        builder.format(self.format).observe(self.events.clone()).build().unwrap()
    }

    /// A new instance with this tool, and a new client.
    async fn instance(&self, route: ToolRoute<Airline>) -> Client {
        Client::modern(self.server(route)).await
    }
}

/// The clock, the ledger and the keys are those of the fleet.
impl Deref for Flights {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

/// A quote, a seat, a confirmation, a charge.
async fn book(flow: Durable<Airline>, trip: Trip) -> Result<String, FlowError> {
    let price = flow.once("quote", async |airline, _key| 100 + airline.world.have("quote")).await?;
    let seat: String = flow.form(format!("{} for {price}. Which seat?", trip.to)).key("seat").await?;
    if !flow.confirm(format!("Pay {price}?")).await? {
        return Ok("not booked".to_owned());
    }
    let charge = flow
        .once("charge", async |airline, key| {
            airline.world.keys.lock().unwrap().push(key.to_owned());
            airline.world.have("charge")
        })
        .await?;
    Ok(format!("seat {seat}, charge {charge}"))
}
