//! The first page of the desk with many waiting flows: it should open at once however many wait.

use std::time::Duration;

use bytes::Bytes;
use counts::Weather;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use rounds::{
    FlowId, KeyRing, Rounds,
    ledger::{Ledger, MemoryLedger, PrincipalShare},
    register::{FlowChange, FlowQuery, FlowStatus},
    test::Client,
};
use rounds_desk::{Desk, DeskService};
use rounds_redis::RedisLedger;
use rounds_sql::{PostgresLedger, SqliteLedger};
use rounds_testkit::{Postgres, Redis};
use tokio::task::JoinSet;
use tower_service::Service as _;

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Section, Table, figure, whole},
    sample::Sample,
    stores::Folder,
};

/// The number of flows that wait, and the number of tools that they are of.
const FLOWS: usize = 100_000;
const TOOLS: u64 = 20;

/// How often each is measured, in turns. Counts are kept for a second, so that most turns do not count.
const TURNS: usize = 20;

/// How many flows are recorded at the same time.
const AT_ONCE: usize = 64;

/// How many of the oldest flows are real, so that their records can be opened for a page.
const REAL: usize = 50;

pub(crate) async fn measure() -> Result<Section, Failure> {
    measured(FLOWS, TURNS).await
}

async fn measured(flows: usize, turns: usize) -> Result<Section, Failure> {
    let mut progress = Progress::new("desk", 5);
    let (folder, postgres, redis) = (Folder::new("desk")?, Postgres::with(&["fsync=off"]), Redis::start());
    let mut rows = Vec::new();
    progress.step(&format!("record {} flows in memory", whole(flows as f64)));
    rows.push(Row::new("memory", MemoryLedger::new().with_flow_bytes(usize::MAX), flows).await?);
    progress.step("the same in SQLite");
    rows.push(Row::new("SQLite", SqliteLedger::open(folder.0.join("desk.db")).await?, flows).await?);
    progress.step("the same in Postgres");
    rows.push(Row::new("Postgres", PostgresLedger::connect(&postgres.database()).await?, flows).await?);
    progress.step("the same in Redis");
    rows.push(Row::new("Redis", RedisLedger::connect(&redis.url()).await?, flows).await?);
    progress.step("the first page, in turns");
    for _ in 0..turns {
        for row in &mut rows {
            row.turn().await?;
        }
    }
    Ok(section(flows, turns, &rows))
}

/// A store with many waiting flows, and the desk of a server on it.
struct Row {
    store: &'static str,
    server: Rounds<Weather>,
    count: Sample,
    page: Sample,
    bytes: usize,
}

impl Row {
    async fn new<L: Ledger + Clone>(store: &'static str, ledger: L, flows: usize) -> Result<Self, Failure> {
        let keys = KeyRing::from_bytes([[7; 32]])?;
        let builder = Rounds::builder(Weather::new()).keys(keys).audience("bench").ledger(ledger.clone());
        let server = builder.register().build()?;
        let client = Client::modern(server.clone()).await;
        for _ in 0..REAL.min(flows) {
            client.call("guard", serde_json::json!({"location": "Tokyo"})).await.asked();
        }
        fill(&server, &ledger, flows.saturating_sub(REAL)).await?;
        let [count, page] = [(); 2].map(|()| Sample::new(store));
        Ok(Self { store, server, count, page, bytes: 0 })
    }

    /// A new desk each time, so that nothing is kept from the turn before.
    async fn turn(&mut self) -> Result<(), Failure> {
        let flows = self.server.flows();
        self.count.time(flows.count(Some(FlowStatus::Waiting), usize::MAX >> 1)).await?;
        let desk = Desk::new(&self.server).service(([127, 0, 0, 1], 8000).into())?;
        self.bytes = self.page.time(first_page(desk)).await?;
        Ok(())
    }
}

/// The size of the first page.
async fn first_page(mut desk: DeskService) -> Result<usize, Failure> {
    let request = Request::get("/").header("host", "localhost").body(Full::<Bytes>::default())?;
    let Ok(response) = desk.call(request).await;
    if !response.status().is_success() {
        return Err(format!("the desk answered with {}", response.status()).into());
    }
    let Ok(page) = response.into_body().collect().await;
    Ok(page.to_bytes().len())
}

/// Records copies of a flow that is there, each later than all before.
async fn fill<L: Ledger + Clone>(server: &Rounds<Weather>, ledger: &L, flows: usize) -> Result<(), Failure> {
    let opened = server.flows();
    let listed = opened.list(FlowQuery::new()).await?.flows;
    let last = listed.last().ok_or("the flows that were played are in the register")?;
    let record = opened.get(last.id).await?.ok_or("a listed flow can be read")?;
    let entry = *record.timeline.entries().first().ok_or("a flow has a beginning")?;
    let mut under_way = JoinSet::new();
    for number in 0..flows as u64 {
        let mut summary = record.summary.clone();
        let name = |part: u64| (number * 2 + part).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let id = [name(0), name(1)].concat();
        summary.id = FlowId::from_bytes(id.try_into().map_err(|_| "a flow id has 16 bytes")?);
        summary.target = format!("tool_{}", number % TOOLS);
        summary.created = summary.created + Duration::from_millis(1 + number);
        summary.open_until = summary.created + Duration::from_secs(24 * 3600);
        summary.kept_until = summary.open_until + Duration::from_secs(24 * 3600);
        let change = FlowChange { summary, entry, part: None, share: PrincipalShare::Common };
        let ledger = ledger.clone();
        if under_way.len() == AT_ONCE {
            under_way.join_next().await.ok_or("some are under way")???;
        }
        under_way.spawn(async move {
            let register = ledger.register().ok_or("the ledger keeps a register")?;
            Ok::<(), Failure>(register.begin(change, None).await?)
        });
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(())
}

fn section(flows: usize, turns: usize, rows: &[Row]) -> Section {
    let mut table = Table::new(["store", "the first page", "of that, the counts by tool"]);
    for row in rows {
        let millis = |sample: &Sample| format!("{} ms", figure(sample.median().as_secs_f64() * 1e3));
        table.push([row.store.to_owned(), millis(&row.page), millis(&row.count)]);
    }
    Section {
        name: "desk",
        title: "The first page of the desk",
        text: format!(
            "A register in which {} flows of {TOOLS} tools wait. The first page of the desk, with 50 flows, their questions \
             and the counts by tool, through its service and without a socket. {turns} of each, in turns; medians. A desk \
             keeps counts of so many flows for a second; here nothing is kept. Postgres does not wait for its disk here.",
            whole(flows as f64),
        ),
        table,
        plots: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_store_has_a_row() {
        let section = measured(300, 2).await.unwrap().to_string();
        for store in ["memory", "SQLite", "Postgres", "Redis"] {
            assert!(section.contains(&format!("| {store} |")), "{section}");
        }
    }
}
