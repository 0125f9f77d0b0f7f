//! The cost of a large register: to list what waits, and to play a leg, with a million flows.

use std::time::Duration;

use counts::Server;
use rounds::{
    FlowId, KeyRing,
    ledger::{Ledger, MemoryLedger, PrincipalShare},
    register::{FlowChange, FlowPart, FlowQuery, FlowStatus, Flows},
};
use rounds_sql::{PostgresLedger, SqliteLedger};
use rounds_testkit::Postgres;
use tokio::task::JoinSet;

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Section, Table, figure, whole},
    sample::Sample,
    stores::{Folder, claimed_leg, server},
};

/// The number of flows, of which every second one waits.
const FLOWS: usize = 1_000_000;

/// How often each is measured, in turns.
const TURNS: usize = 500;

/// How many flows are recorded at the same time.
const AT_ONCE: usize = 64;

pub(crate) async fn measure() -> Result<Section, Failure> {
    measured(FLOWS, TURNS).await
}

async fn measured(flows: usize, turns: usize) -> Result<Section, Failure> {
    let mut progress = Progress::new("register", 4);
    let (folder, postgres) = (Folder::new("register")?, Postgres::with(&["fsync=off"]));
    let file = |name: &str| SqliteLedger::open(folder.0.join(name));
    let memory = || MemoryLedger::new().with_flow_bytes(usize::MAX);
    let (empty, full) = (postgres.database(), postgres.database());
    let mut rows = Vec::new();
    progress.step(&format!("record {} flows in memory", whole(flows as f64)));
    rows.push(Row::new("memory", memory(), memory(), flows).await?);
    progress.step("the same in SQLite");
    rows.push(Row::new("SQLite", file("empty.db").await?, file("full.db").await?, flows).await?);
    progress.step("the same in Postgres");
    let ledgers = (PostgresLedger::connect(&empty).await?, PostgresLedger::connect(&full).await?);
    rows.push(Row::new("Postgres", ledgers.0, ledgers.1, flows).await?);
    progress.step("lists and legs, in turns");
    for _ in 0..turns {
        for row in &mut rows {
            row.turn().await?;
        }
    }
    Ok(section(flows, turns, &rows))
}

/// A store with one flow, and the same store with many.
struct Row {
    store: &'static str,
    empty: Server,
    full: Server,
    flows: Flows,
    list: Sample,
    leg_in_empty: Sample,
    leg_in_full: Sample,
}

impl Row {
    async fn new<L: Ledger + Clone>(store: &'static str, empty: L, full: L, flows: usize) -> Result<Self, Failure> {
        let opened = Flows::open(full.clone(), &KeyRing::from_bytes([[7; 32]])?, Some("bench"))?;
        let (empty, server) = (server(empty, true)?, server(full.clone(), true)?);
        let [list, leg_in_empty, leg_in_full] = [(); 3].map(|()| Sample::new(store));
        claimed_leg(&server, &mut Sample::new(store)).await;
        fill(&opened, &full, flows).await?;
        Ok(Self { store, empty, full: server, flows: opened, list, leg_in_empty, leg_in_full })
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        let waiting = FlowQuery::new().status(FlowStatus::Waiting);
        self.list.time(self.flows.list(waiting)).await?;
        claimed_leg(&self.empty, &mut self.leg_in_empty).await;
        claimed_leg(&self.full, &mut self.leg_in_full).await;
        Ok(())
    }
}

/// Records copies of the flow that is there, of which every second one waits for a day.
async fn fill<L: Ledger + Clone>(opened: &Flows, ledger: &L, flows: usize) -> Result<(), Failure> {
    let listed = opened.list(FlowQuery::new()).await?.flows;
    let only = listed.first().ok_or("the flow that was played is in the register")?;
    let record = opened.get(only.id).await?.ok_or("a listed flow can be read")?;
    let entry = *record.timeline.entries().first().ok_or("a flow has a beginning")?;
    let sealed = record.parts.values().next().cloned().unwrap_or_default();
    let mut under_way = JoinSet::new();
    for number in 0..flows as u64 {
        let mut summary = record.summary.clone();
        let name = |part: u64| (number * 2 + part).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let id = [name(0), name(1)].concat();
        summary.id = FlowId::from_bytes(id.try_into().map_err(|_| "a flow id has 16 bytes")?);
        if number % 2 == 0 {
            summary.status = FlowStatus::Waiting;
            summary.open_until = summary.created + Duration::from_secs(24 * 3600);
        }
        let part = Some(FlowPart { number: 0, sealed: sealed.clone() });
        let change = FlowChange { summary, entry, part, share: PrincipalShare::Common };
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
    let mut table = Table::new(["store", "list what waits", "a leg, of one in an empty register"]);
    for row in rows {
        let list = row.list.median().as_secs_f64() * 1e3;
        let leg = row.leg_in_full.ratio_to(&row.leg_in_empty);
        table.push([row.store.to_owned(), format!("{} ms", figure(list)), figure(leg)]);
    }
    Section {
        name: "register",
        title: "A large register",
        text: format!(
            "A register with {} flows, of which half wait. The first page of those that wait, a hundred flows; and the \
             second leg of a guard-first weather call, as a multiple of the same leg with an empty register on the same \
             store. {turns} of each, in turns; medians. Postgres does not wait for its disk here.",
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
        for store in ["memory", "SQLite", "Postgres"] {
            assert!(section.contains(&format!("| {store} |")), "{section}");
        }
    }
}
