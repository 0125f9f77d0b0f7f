//! The memory of a call that waits for its user: the handler's future, the frame, the question and the timer; and how
//! much of the client's message is kept.
//!
//! Alone in its binary, because it counts every allocation of the process.

use std::{
    alloc::System,
    sync::{Mutex, OnceLock, PoisonError},
};

use rmcp::{
    RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::RequestMetaObject,
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use rounds::{Ask, FlowError, Legacy, Rounds, test::Client};
use serde::Deserialize;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Units {
    Metric,
    Imperial,
}

struct Weather {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Weather {
    #[tool(description = "Weather for a city")]
    async fn weather(&self, Parameters(Place { city }): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        Ok(match ask.form("Which units?").await? {
            Units::Metric => format!("{city}: 22°C"),
            Units::Imperial => format!("{city}: 72°F"),
        })
    }

    #[tool(description = "The same, and keeps the context of its request while it waits")]
    async fn keeping(&self, ask: Ask, context: RequestContext<RoleServer>) -> Result<String, FlowError> {
        META.get_or_init(|| context.meta.clone());
        // Captures the whole context: the macro's future would keep only the fields that are named below.
        let kept = context;
        let _: Units = ask.form("Which units?").await?;
        Ok(kept.id.to_string())
    }
}

/// The `_meta` of a request, as a handler finds it.
static META: OnceLock<RequestMetaObject> = OnceLock::new();

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

/// Number of bytes that are allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Runs one test at a time, and ends its tasks before the next one: each counts the allocations of the whole process.
fn alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

/// A limit that leaves space in 2.5 KiB of resident memory for the allocator's overhead. Debug and release builds
/// differ by a few bytes only.
const MOST: usize = 2240;

#[test]
fn a_call_that_waits_takes_less_than_two_and_a_half_kibibytes() {
    alone(async {
        let server = Rounds::new(Weather { tool_router: Weather::tool_router() });
        let client = Client::modern(server.clone()).await;
        let park = async |calls: usize| {
            for n in 0..calls {
                let asked = client.call("weather", json!({"city": format!("City {n}")})).await.asked();
                assert_eq!(asked.message("units"), "Which units?");
            }
        };
        // Allocations that are made once, however many calls wait.
        park(100).await;
        let before = allocated();
        park(1000).await;
        let each = (allocated() - before) / 1000;
        assert_eq!(server.waiting_calls(), 1100);
        assert!(each < MOST, "{each} bytes per call");
        let counted = server.waiting_bytes() / 1100;
        assert!(counted > each / 2 && counted < each, "{counted} of {each} bytes are counted");
    });
}

/// rmcp's context is kept as it is: decision 0088 says why. This is about what is added to it.
#[test]
fn a_handler_that_keeps_its_context_keeps_its_meta_and_little_more() {
    alone(async {
        let server = Rounds::new(Weather { tool_router: Weather::tool_router() });
        let client = Client::modern(server.clone()).await;
        let park = async |tool: &str| {
            let before = allocated();
            for _ in 0..500 {
                client.call(tool, json!({"city": "Bern"})).await.asked();
            }
            (allocated() - before) / 500
        };
        // Allocations that are made once, however many calls wait.
        park("weather").await;
        park("keeping").await;
        let (plain, keeping) = (park("weather").await, park("keeping").await);
        let before = allocated();
        let metas: Vec<_> = (0..1000).map(|_| META.get().unwrap().clone()).collect();
        let meta = (allocated() - before) / metas.len();
        let more = keeping - plain - meta;
        assert!(more < 700, "{plain} bytes without the context and {keeping} with it, of which {meta} are its meta");
    });
}

/// A value that takes eighty times its text as a tree.
fn bulk() -> Value {
    json!(vec![json!({"a": {}}); 4_000])
}

#[test]
fn a_call_that_waits_for_a_push_keeps_no_tree_of_its_request() {
    alone(async {
        for legacy in [Legacy::Degrade, Legacy::push()] {
            let server =
                Rounds::builder(Weather { tool_router: Weather::tool_router() }).legacy(legacy).build().unwrap();
            let client = Client::legacy(server.clone()).await;
            let start = async |params: Value| {
                let leg = client.start("tools/call", params).await;
                (leg, client.pushed().await.unwrap())
            };
            let _warm = start(json!({"name": "weather", "arguments": {"city": "Bern"}})).await;
            for (what, arguments, meta, answers) in [
                ("arguments", bulk(), json!({}), json!({})),
                ("meta", json!(0), json!({"example/more": bulk()}), json!({})),
                ("answers", json!(0), json!({}), json!({"units": {"action": "accept", "content": {"more": bulk()}}})),
            ] {
                let arguments = json!({"city": "Bern", "more": arguments});
                let params =
                    json!({"name": "weather", "arguments": arguments, "_meta": meta, "inputResponses": answers});
                // The test itself keeps what it sends.
                let before = allocated();
                let sent = params.clone();
                let by_the_test = allocated() - before;
                let _waiting = start(sent).await;
                let kept = allocated().saturating_sub(before + by_the_test);
                assert!(
                    kept < 200_000,
                    "{kept} bytes of {what} are kept, with {legacy:?}, and {by_the_test} by the test"
                );
            }
        }
    });
}
