//! The page of a flow: its handler runs, and its journal as a file for a replay.

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
use rounds::{
    Durable, FlowError, KeyRing, Limits, Rounds, durable,
    ledger::MemoryLedger,
    register::{FlowQuery, NoJournal},
    test::{Client, Replayed, replay},
};
use rounds_desk::{Permission, Recorder, Visitor};
use serde_json::json;

use crate::stage::Stage;

fn trip() -> serde_json::Value {
    json!({"from": "Rome", "to": "Oslo", "date": "today"})
}

#[tokio::test]
async fn the_journal_of_a_flow_can_be_replayed_at_every_stage() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("book_flight", trip()).await.asked();
    let flow = stage.get("/").await.link("book_flight");
    let download = async || {
        let page = stage.get(&flow).await;
        let file = stage.get(&page.link("Download the journal")).await;
        assert_eq!(file.headers["content-type"], "application/json");
        let id = flow.trim_start_matches("/flows/");
        assert_eq!(file.headers["content-disposition"], format!("attachment; filename=\"journal-{id}.json\""));
        assert_eq!(file.headers["cache-control"], "no-store");
        replay(&stage.server, "book_flight", trip(), &file.text).await
    };
    assert_eq!(download().await, Replayed::Asks(vec!["seat".to_owned()]));
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    assert_eq!(download().await, Replayed::Asks(vec!["confirm".to_owned()]));
    asked.accept("confirm", json!({"confirm": true})).send(&client).await.text();
    assert_eq!(download().await, Replayed::Ended);
    let page = stage.get(&flow).await;
    page.shows("<li>the question `seat`</li>").shows("the effect `charge`").shows("As a test");
    page.shows("rounds::test::replay(&amp;server, &quot;book_flight&quot;, arguments, saved)");
}

struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Order {
    number: String,
}

async fn monday(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    flow.once("reserve", async |_, _| 1).await?;
    let size: String = flow.form(format!("Which size of {}?", order.number)).key("size").await?;
    Ok(if flow.confirm("Sure?").await? { size } else { "none".to_owned() })
}

async fn tuesday(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    flow.once("reserve", async |_, _| 1).await?;
    let size: String = flow.form(format!("What size of {}?", order.number)).key("size").await?;
    Ok(if flow.confirm("Sure?").await? { size } else { "none".to_owned() })
}

fn shop<F, Fut>(handler: F, keys: &KeyRing, ledger: &MemoryLedger, recorder: &Recorder) -> Rounds<Shop>
where
    F: Fn(Durable<Shop>, Order) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    let route = durable("order", "Orders", handler);
    let builder = Rounds::builder(Shop { tool_router: ToolRouter::new().with_route(route) });
    let builder = builder.keys(keys.clone()).audience("shop").ledger(ledger.clone()).register();
    builder.observe(recorder.clone()).build().unwrap()
}

#[tokio::test]
async fn a_flow_on_two_instances_shows_where_each_leg_ran_and_what_it_sent() {
    let (keys, ledger, recorder) = (KeyRing::ephemeral(), MemoryLedger::new(), Recorder::new());
    let [one, two] = [(); 2].map(|()| shop(monday, &keys, &ledger, &recorder));
    let stage = Stage::of(one.clone(), recorder.clone(), |desk| desk);
    let (first, second) = (Client::modern(one).await, Client::modern(two).await);
    let asked = first.call("order", json!({"number": "o-1"})).await.asked();
    let bytes = asked.state().len();
    let flow = stage.get("/").await.link("order");
    let page = stage.get(&flow).await;
    page.shows("The handler ran once from its beginning.").shows(&format!("{bytes} characters"));
    page.shows("The effect <strong>reserve</strong> ran once").shows("Idempotency key <code>");
    let asked = asked.accept("size", json!({"size": "M"})).send(&second).await.asked();
    asked.accept("confirm", json!({"confirm": true})).send(&first).await.text();
    let page = stage.get(&flow).await;
    page.shows("The handler ran 3 times from its beginning.");
    let table =
        page.text.split("<table aria-label=\"Handler runs\">").nth(1).unwrap().split("</table>").next().unwrap();
    let rows: Vec<_> = table.split("<th scope=\"row\">").skip(1).collect();
    let [leg1, leg2, leg3] = rows.as_slice() else { panic!("three legs: {rows:?}") };
    let [at1, at2, at3] =
        [leg1, leg2, leg3].map(|leg| leg.split("<code title=\"").nth(1).unwrap().split('"').next().unwrap());
    assert!(at1 == at3 && at1 != at2, "{at1}, {at2}, {at3}");
    assert!(leg1.contains("reserve") && leg1.contains("characters"), "{leg1}");
    assert!(!leg2.contains("reserve"), "an effect is that of one leg: {leg2}");
    assert!(!leg3.contains("characters"), "the last one sends no state: {leg3}");
    assert_eq!(page.text.matches("<strong>reserve</strong>").count(), 1);

    let saved = stage.get(&format!("{flow}/journal")).await.text;
    let changed = shop(tuesday, &keys, &ledger, &recorder);
    let replayed = replay(&changed, "order", json!({"number": "o-1"}), &saved).await;
    assert!(matches!(replayed, Replayed::Diverged { position: 1, .. }), "{replayed:?}");
}

#[tokio::test]
async fn a_handler_that_waits_ran_once() {
    let stage = Stage::new();
    let client = stage.client().await;
    let asked = client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    let page = stage.get("/?status=completed").await;
    let flow = page.link("weather_h");
    let page = stage.get(&flow).await;
    page.shows("The handler ran once from its beginning.").shows("continued where it waited");
    page.shows("this handler is not durable").hides("Download the journal");
    let none = stage.get(&format!("{flow}/journal")).await;
    assert_eq!(none.status, 404);
    none.shows("its handler is not durable");
}

#[tokio::test]
async fn a_journal_that_exceeds_the_record_is_not_there_in_part() {
    let recorder = Recorder::new();
    let limits = Limits::default().with_record_bytes(2048);
    let server = gallery::rounds().register().limits(limits).observe(recorder.clone()).build().unwrap();
    let stage = Stage::of(server, recorder, |desk| desk);
    let client = stage.client().await;
    let asked = client.call("book_flight", trip()).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4".repeat(800)})).send(&client).await.asked();
    let flow = stage.get("/").await.link("book_flight");
    stage.get(&flow).await.shows("does not have the whole journal").hides("Download the journal");
    asked.accept("confirm", json!({"confirm": true})).send(&client).await.text();
    assert_eq!(stage.get(&format!("{flow}/journal")).await.status, 404);
    let flows = stage.server.flows();
    let id = flows.list(FlowQuery::new()).await.unwrap().flows[0].id;
    let details = flows.details(&flows.get(id).await.unwrap().unwrap()).unwrap();
    assert_eq!(details.journal().err(), Some(NoJournal::Incomplete));
    assert_eq!(details.rounds[0].answers.as_ref().unwrap()["seat"]["action"], "accept", "the rest is recorded");
}

#[tokio::test]
async fn a_journal_is_for_visitors_who_may_read() {
    let check = |visitor: &Visitor<'_>, permission| match visitor.principal().map(|principal| principal.as_str()) {
        Some("reader") => permission == Permission::Read,
        Some("approver") => permission == Permission::Answer,
        Some("operator") => permission == Permission::Act,
        _ => false,
    };
    let stage = Stage::with(|desk| desk.check(check));
    stage.client().await.call("book_flight", trip()).await.asked();
    let flow = stage.get_as("reader", "/").await.link("book_flight");
    let journal = format!("{flow}/journal");
    assert_eq!(stage.get_as("reader", &journal).await.status, 200);
    for name in ["approver", "operator", "stranger"] {
        let page = stage.get_as(name, &journal).await;
        assert_eq!(page.status, 403, "{name}");
        page.hides("entries").hides("seat");
    }
    assert_eq!(stage.get(&journal).await.status, 403);
    assert_eq!(stage.post(&journal, &[], Some("reader")).await.status, 403);
}
