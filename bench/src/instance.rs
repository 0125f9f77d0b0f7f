//! The CPU time of an instance whose claims are in Redis, compared with the same server that keeps them in memory.

use std::time::Duration;

use rounds_testkit::Redis;

use crate::{
    alone::Failure,
    flows::{Server, Stack, cores::Cores, load::Connections, median, ours},
    progress::Progress,
    report::{Bars, Section, Table, figure},
};

/// Numbers of simultaneous connections.
const CONNECTIONS: [usize; 2] = [8, 64];

/// Number of turns of each row with each number of connections, after one that is not counted.
const TURNS: usize = 41;

const TURN: Duration = Duration::from_millis(100);

/// The environment variable that tells a server where its Redis is.
pub(crate) const REDIS: &str = "ROUNDS_BENCH_REDIS";

struct Row {
    name: &'static str,
    tool: &'static str,
    /// Index of its server.
    server: usize,
    /// Index of the row that it is compared with.
    reference: usize,
    /// CPU time of a flow in each turn, by number of connections.
    turns: [Vec<f64>; CONNECTIONS.len()],
}

pub(crate) async fn measure() -> Result<Section, Failure> {
    let redis = Redis::start();
    let cores = Cores::part()?;
    let start = |stack| -> Result<_, Failure> {
        let mut command = ours(stack)?;
        command.env(REDIS, redis.url());
        let server = match &cores {
            Some(cores) => cores.among_servers(|| Server::start(command))??,
            None => Server::start(command)?,
        };
        let connections = Connections::to(server.address);
        Ok((server, connections))
    };
    let mut servers = [start(Stack::Endpoint)?, start(Stack::OnRedis)?, start(Stack::OnRedisWithRegister)?];
    let row = |name, tool, server, reference| Row { name, tool, server, reference, turns: Default::default() };
    let mut rows = [
        row("linear, in memory", "weather_h", 0, 0),
        row("linear, claims in Redis", "weather_h", 1, 0),
        row("linear, claims and register in Redis", "weather_h", 2, 0),
        row("guard, in memory", "weather_e", 0, 3),
        row("guard, claims in Redis", "weather_e", 1, 3),
        row("guard, claims and register in Redis", "weather_e", 2, 3),
    ];
    let mut progress = Progress::new("instance", TURNS + 1);
    for turn in 0..=TURNS {
        progress.step("an instance in memory and on Redis, in turns");
        for (place, count) in CONNECTIONS.into_iter().enumerate() {
            for row in &mut rows {
                let (server, connections) = &mut servers[row.server];
                let before = server.cpu()?;
                let load = connections.drive(row.tool, count, TURN).await?;
                let cpu = server.cpu()?.saturating_sub(before).as_secs_f64() / load.flows.len() as f64;
                if turn > 0 {
                    row.turns[place].push(cpu);
                }
            }
        }
    }
    Ok(section(&rows))
}

fn section(rows: &[Row]) -> Section {
    let mut table = Table::new(["a call with one question", "CPU at 8 connections", "CPU at 64 connections"]);
    let mut bars = Bars::new("An instance on Redis", "CPU for each flow, as multiples of the same in memory");
    for row in rows {
        let ratios: Vec<_> = (0..CONNECTIONS.len()).map(|place| row.against(&rows[row.reference], place)).collect();
        let cells = [vec![row.name.to_owned()], ratios.iter().map(|ratio| figure(*ratio)).collect()].concat();
        table.push(cells);
        bars = bars.group(row.name, [ratios[0]]);
    }
    let reference = median(rows[0].turns[0].iter().map(|cpu| cpu * 1e6).collect());
    Section {
        name: "instance",
        title: "The CPU of an instance",
        text: format!(
            "CPU time that the system charges to an instance for each weather call of two legs, without that of Redis, as \
             multiples of the same server with its claims in memory. Medians of {TURNS} turns of {} ms, in which all rows \
             follow each other. In memory, a linear call took {} µs at 8 connections in this run.",
            TURN.as_millis(),
            figure(reference),
        ),
        table,
        plots: vec![bars.mark(1.6, "goal").into()],
    }
}

impl Row {
    fn against(&self, other: &Self, place: usize) -> f64 {
        let turns = self.turns[place].iter().zip(&other.turns[place]);
        median(turns.map(|(own, other)| own / other).collect())
    }
}
