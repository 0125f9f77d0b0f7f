//! The cost of remembered claims for the next leg: its time with a thousand claims, and with a million.

use std::time::{Duration, Instant};

use counts::{Server, Weather, answered, asked};
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rounds::{
    FlowId, Rounds,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger as _, MemoryLedger, OwnerLost, PrincipalShare, Retention,
    },
    test::Clock,
    time::Timestamp,
};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Section, Table, figure, whole},
};

/// Numbers of claims.
const CLAIMS: [usize; 3] = [1_000, 100_000, 1_000_000];

/// Number of turns, and of legs per turn: enough for a p99 of a few legs.
const TURNS: usize = 61;
const LEGS: usize = 1_000;

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("claims", CLAIMS.len() + 1);
    let mut rows = Vec::new();
    for claims in CLAIMS {
        progress.step(&format!("make {} claims", whole(claims as f64)));
        rows.push(Row::new(claims).await?);
    }
    progress.step(&format!("{TURNS} turns of {} legs with each", whole(LEGS as f64)));
    for _ in 0..TURNS {
        for row in &mut rows {
            row.turn().await;
        }
    }
    let mut table = Table::new(["claims", "p50", "p99", "longest"]);
    let ratio = |row: &Row, place: fn(&Times) -> Duration| {
        let ratios = row.turns.iter().zip(&rows[0].turns);
        median(ratios.map(|(turn, first)| place(turn).as_secs_f64() / place(first).as_secs_f64()).collect())
    };
    for row in &rows {
        let longest = row.turns.iter().map(|turn| turn.longest.as_secs_f64() * 1e6).fold(0.0, f64::max);
        table.push([
            whole(row.claims as f64),
            figure(ratio(row, |turn| turn.p50)),
            figure(ratio(row, |turn| turn.p99)),
            format!("{} µs", whole(longest)),
        ]);
    }
    let first = median(rows[0].turns.iter().map(|turn| turn.p99.as_secs_f64() * 1e6).collect());
    Ok(Section {
        name: "claims",
        title: "A leg among many claims",
        text: format!(
            "The second leg of a guard-first weather call, without a transport, with a ledger in memory that has \
             this many claims: {TURNS} turns of {} legs each, as multiples of the first row of the same turn, whose \
             p99 was {} µs in this run. Every leg takes a claim, records its reply, and removes as many expired \
             claims as were added: consecutive calls are a second apart.",
            whole(LEGS as f64),
            figure(first),
        ),
        table,
        plots: vec![],
    })
}

/// A server whose ledger has this many claims.
struct Row {
    claims: usize,
    server: Server,
    clock: Clock,
    turns: Vec<Times>,
}

/// The times of the legs of one turn.
struct Times {
    p50: Duration,
    p99: Duration,
    longest: Duration,
}

impl Row {
    async fn new(claims: usize) -> Result<Self, Failure> {
        let (ledger, clock) = (MemoryLedger::new(), Clock::new());
        for claim in 0..claims as u64 {
            remember(&ledger, &clock, claim).await?;
        }
        let server = Rounds::builder(Weather::new()).ledger(ledger).clock(clock.clone()).build()?;
        Ok(Self { claims, server: Server::start(server), clock, turns: Vec::new() })
    }

    async fn turn(&mut self) {
        let mut times = Vec::with_capacity(LEGS);
        let request = CallToolRequestParams::new("guard").with_arguments(rmcp::object!({"location": "Tokyo"}));
        for _ in 0..LEGS {
            self.clock.advance(Duration::from_secs(1));
            let state = asked(self.server.call(request.clone()).await);
            let answered = answered(request.clone(), state);
            let began = Instant::now();
            let said = self.server.call(answered).await;
            times.push(began.elapsed());
            assert!(matches!(said, CallToolResponse::Complete(_)), "expected the weather, got {said:?}");
        }
        times.sort_unstable();
        self.turns.push(Times { p50: times[LEGS / 2], p99: times[LEGS * 99 / 100], longest: times[LEGS - 1] });
    }
}

/// Adds an answered claim that is kept for longer than the measurement. The claims expire at different seconds.
async fn remember(ledger: &MemoryLedger, clock: &Clock, claim: u64) -> Result<(), Failure> {
    let name = |part: u64| (claim * 2 + part).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let flow = [name(0), name(1)].concat();
    let flow = FlowId::from_bytes(flow.try_into().map_err(|_| "a flow id has 16 bytes")?);
    let id = ClaimId { flow, what: ClaimKind::Round(1) };
    let now = Timestamp::from(rounds::time::Clock::now(clock));
    let until = now + Duration::from_secs(10_000_000 + claim % 690);
    let keep = Retention { now, until, share: PrincipalShare::Common };
    let bid = ClaimRequest {
        answers: Digest::from_bytes([1; 32]),
        keep,
        lease: Duration::from_secs(30),
        orphan: OwnerLost::Free,
    };
    let Claimed::Fresh { fence, .. } = ledger.claim(id, bid).await? else { return Err("a new claim is free".into()) };
    ledger.settle(id, fence, Some(vec![7; 40]), None, vec![]).await?;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
