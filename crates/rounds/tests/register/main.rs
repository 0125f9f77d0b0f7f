//! The register as a server uses it: what is recorded of a flow, and how a flow is cancelled and deleted.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod apart;
mod cancel;
mod documents;
mod identity;
mod keys;
mod records;
mod steps;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Durable, FlowError, KeyRing, Principal, Rounds, RoundsBuilder, durable,
    ledger::Ledger,
    register::{FlowQuery, FlowStatus, FlowSummary},
    test::Clock,
};
use rounds_testkit::Units;
use serde::Deserialize;
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

/// A server with a tool of each kind: one whose handler waits, and one that is run again.
#[derive(Clone)]
struct Weather {
    tool_router: ToolRouter<Self>,
    /// How many handlers there are now.
    alive: Arc<AtomicUsize>,
    charged: Arc<AtomicUsize>,
    /// Wakes a handler that has its answer and works.
    work: Arc<Notify>,
    /// Tells that one has begun to work.
    works: Arc<Notify>,
}

struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tool_router]
impl Weather {
    fn new() -> Self {
        let mut tool_router = Self::tool_router();
        tool_router = tool_router.with_route(durable("book", "Books a trip", book));
        tool_router = tool_router.with_route(durable("prepaid", "Books a trip, and then asks", prepaid));
        Self {
            tool_router,
            alive: Arc::default(),
            charged: Arc::default(),
            work: Arc::default(),
            works: Arc::default(),
        }
    }

    #[tool(description = "Weather for a city")]
    async fn weather(&self, Parameters(Place { city }): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        let _alive = Alive::new(&self.alive);
        let units: Units = ask.form("Which canary-question?").await?;
        if city == "slow" {
            self.works.notify_one();
            self.work.notified().await;
        }
        Ok(format!("canary-result {city} {units:?}"))
    }

    #[tool(description = "Says something and asks nothing")]
    async fn plain(&self) -> String {
        "plain".to_owned()
    }

    fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    fn charged(&self) -> usize {
        self.charged.load(Ordering::SeqCst)
    }
}

async fn book(flow: Durable<Weather>, place: Place) -> Result<String, FlowError> {
    let units: Units = flow.form("Which canary-question?").await?;
    let charge = charge(&flow, &place).await?;
    Ok(format!("canary-result {} {units:?} charge {charge}", place.city))
}

/// The effect comes before the first question, so that only an idempotency key can keep it from running again.
async fn prepaid(flow: Durable<Weather>, place: Place) -> Result<String, FlowError> {
    let charge = charge(&flow, &place).await?;
    let units: Units = flow.form("Which canary-question?").await?;
    Ok(format!("canary-result {} {units:?} charge {charge}", place.city))
}

async fn charge(flow: &Durable<Weather>, place: &Place) -> Result<usize, FlowError> {
    let slow = place.city == "slow";
    let charge = async |shop: &Weather, _key: &str| {
        if slow {
            shop.works.notify_one();
            shop.work.notified().await;
        }
        shop.charged.fetch_add(1, Ordering::SeqCst) + 1
    };
    flow.once("charge", charge).await
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

fn keys(keys: &[u8]) -> KeyRing {
    KeyRing::from_bytes(keys.iter().map(|key| [*key; 32])).unwrap()
}

fn builder(weather: &Weather, ledger: impl Ledger, clock: &Clock) -> RoundsBuilder<Weather> {
    let builder = Rounds::builder(weather.clone()).ledger(ledger).clock(clock.clone());
    builder.keys(keys(&[1])).audience("weather").principal(|_: &_| Some(Principal::new("canary-principal"))).register()
}

async fn listed(server: &Rounds<Weather>, status: FlowStatus) -> Vec<FlowSummary> {
    server.flows().list(FlowQuery::new().status(status)).await.unwrap().flows
}

/// The only flow with this status.
async fn only(server: &Rounds<Weather>, status: FlowStatus) -> FlowSummary {
    let mut flows = listed(server, status).await;
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows.remove(0)
}

/// Waits for what another task does, in real time.
async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it happens in time");
}
