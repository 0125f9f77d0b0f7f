//! A whole weather call over HTTP, two legs, at servers in separate processes.
//!
//! The load is a closed loop. Rows take turns, so that other load on the machine affects all of them.

pub(crate) mod cores;
pub(crate) mod load;
pub(crate) mod peers;
mod serve;
mod server;

use std::{env, process::Command, time::Duration};

use self::{cores::Cores, load::Connections};
pub(crate) use self::{serve::Stack, server::Server};
use crate::{
    Options,
    alone::Failure,
    progress::Progress,
    report::{Bars, Section, Table, figure, whole},
};

/// Numbers of simultaneous connections.
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// Number of turns of each row with each number of connections, after one that is not counted.
const TURNS: usize = 61;

/// Duration of a turn: short, so that compared rows meet the same conditions.
const TURN: Duration = Duration::from_millis(50);

/// The shapes of the tool that ask for units, by their name in the gallery.
const SHAPES: [(&str, &str); 8] = [
    ("weather_e", "guard (`Round`)"),
    ("weather_h", "linear (`Ask`)"),
    ("weather_i", "`Durable`, with a `once`"),
    ("weather_f", "guard with `once`"),
    ("weather_g", "`Steps`"),
    ("weather_asked", "declared (`Asked`)"),
    ("weather_a", "guard that is pushed to legacy clients"),
    ("weather_c", "one tool of two, by era"),
];

/// How many of them, from the first, are also measured in axum.
const IN_AXUM: usize = 3;

/// The rows that all others are compared with.
const FLOOR: usize = 0;
const RMCP: usize = 1;

/// A server, and the connections to it, which are kept from one turn to the next.
type Served = (Server, Connections);

/// One line of the comparison.
struct Row {
    name: String,
    /// Index of its server.
    server: usize,
    tool: &'static str,
    turns: [Vec<Turn>; CONNECTIONS.len()],
}

/// The result of one turn, in seconds per flow.
struct Turn {
    cpu: f64,
    took: f64,
    p50: f64,
    p99: f64,
}

pub(crate) async fn measure(options: Options) -> Result<Section, Failure> {
    let cores = Cores::part()?;
    let (mut servers, mut rows) = start(options, cores.as_ref())?;
    if cores.is_some() {
        // With a core of its own, the caller need not sleep.
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
    let mut progress = Progress::new("flows", TURNS + 1);
    for turn in 0..=TURNS {
        let seconds = TURN.as_secs_f64() * (rows.len() * CONNECTIONS.len()) as f64;
        progress.step(&format!("{} rows, some {} s", rows.len(), whole(seconds)));
        for (place, count) in CONNECTIONS.into_iter().enumerate() {
            for row in &mut rows {
                let (server, connections) = &mut servers[row.server];
                let taken = row.take_turn(server, connections, count).await;
                let taken = taken.map_err(|error| format!("{}: {error}", row.name))?;
                if turn > 0 {
                    row.turns[place].push(taken);
                }
            }
        }
    }
    Ok(report(&rows, cores.is_some()))
}

impl Row {
    fn new(name: String, server: usize, tool: &'static str) -> Self {
        Self { name, server, tool, turns: Default::default() }
    }

    async fn take_turn(&self, server: &Server, connections: &mut Connections, count: usize) -> Result<Turn, Failure> {
        let before = server.cpu()?;
        let load = connections.drive(self.tool, count, TURN).await?;
        let flows = load.flows.len() as f64;
        Ok(Turn {
            cpu: server.cpu()?.saturating_sub(before).as_secs_f64() / flows,
            took: load.took.as_secs_f64() / flows,
            p50: load.quantile(0.5).as_secs_f64(),
            p99: load.quantile(0.99).as_secs_f64(),
        })
    }

    /// The median over the turns of this row's value, as a multiple of the other row's value in the same turn.
    fn against(&self, other: &Self, place: usize, of: fn(&Turn) -> f64) -> f64 {
        let turns = self.turns[place].iter().zip(&other.turns[place]);
        median(turns.map(|(turn, other)| of(turn) / of(other)).collect())
    }
}

/// The command that starts one of our own servers.
pub(crate) fn ours(stack: Stack) -> Result<Command, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.env(serve::STACK, stack.name());
    Ok(command)
}

/// Starts the servers, and returns them with the rows that are measured at them.
fn start(options: Options, cores: Option<&Cores>) -> Result<(Vec<Served>, Vec<Row>), Failure> {
    let mut servers = Vec::new();
    let mut start = |command: Command| -> Result<usize, Failure> {
        let server = match cores {
            Some(cores) => cores.among_servers(|| Server::start(command))??,
            None => Server::start(command)?,
        };
        let connections = Connections::to(server.address);
        servers.push((server, connections));
        Ok(servers.len() - 1)
    };
    let mut rows = vec![
        Row::new("bare axum, JSON in and out".to_owned(), start(ours(Stack::Axum)?)?, "weather"),
        Row::new("bare rmcp, its HMAC codec, in axum".to_owned(), start(ours(Stack::Rmcp)?)?, "weather"),
        Row::new("bare rmcp, its HMAC codec, at a `Port`".to_owned(), start(ours(Stack::RmcpAtPort)?)?, "weather"),
        Row::new("`Durable`, `Endpoint` at a `Port`".to_owned(), start(ours(Stack::Durable)?)?, "durable"),
        Row::new("`Durable`, `Endpoint` in axum".to_owned(), start(ours(Stack::DurableInAxum)?)?, "durable"),
    ];
    for (stack, over, shapes) in [
        (Stack::Endpoint, "`Endpoint` at a `Port`", &SHAPES[..]),
        (Stack::EndpointInAxum, "`Endpoint` in axum", &SHAPES[..IN_AXUM]),
        (Stack::RoundsOverRmcp, "rmcp's HTTP in axum", &SHAPES[..]),
    ] {
        let server = start(ours(stack)?)?;
        rows.extend(shapes.iter().map(|(tool, shape)| Row::new(format!("{shape}, {over}"), server, tool)));
    }
    if options.peers {
        for peer in peers::all()? {
            rows.push(Row::new(peer.title(), start(peer.command())?, "weather"));
        }
    }
    Ok((servers, rows))
}

fn report(rows: &[Row], parted: bool) -> Section {
    let head =
        ["connections", "server", "CPU, of axum", "CPU, of rmcp", "flows/s, of rmcp", "p50, of rmcp", "p99, of rmcp"];
    let mut table = Table::new(head);
    let mut plots = Vec::new();
    let (floor, rmcp) = (&rows[FLOOR], &rows[RMCP]);
    for (place, count) in CONNECTIONS.into_iter().enumerate() {
        let mut bars = Bars::new(format!("{count} at once"), "server CPU for each flow, as multiples of bare axum")
            .mark(1.75, "goal of Endpoint");
        for row in rows {
            let cpu = row.against(floor, place, |turn| turn.cpu);
            let against = |of| figure(row.against(rmcp, place, of));
            table.push([
                count.to_string(),
                row.name.clone(),
                figure(cpu),
                against(|turn| turn.cpu),
                against(|turn| 1.0 / turn.took),
                against(|turn| turn.p50),
                against(|turn| turn.p99),
            ]);
            bars = bars.group(row.name.replace('`', ""), [cpu]);
        }
        plots.push(bars.into());
    }
    let where_ = if parted {
        "The caller has one core of the machine to itself, and never sleeps; the servers use the others, one at a time."
    } else {
        "The caller and the servers share one core."
    };
    let reference = median(floor.turns[1].iter().map(|turn| turn.cpu * 1e6).collect());
    Section {
        name: "flows",
        title: "A whole call over HTTP",
        text: format!(
            "A weather call with one question, two legs, at 1, 8 and 64 persistent connections, each with one call \
             after the other. Every server is a separate process, in axum except for those at a `Port`. {where_} CPU \
             is the time that the system charges to a server for each flow, in user and kernel mode. Medians of \
             {TURNS} turns of {} ms, in which all rows follow each other; each figure is a ratio to axum or rmcp in \
             the same turn. Bare axum took {} µs of CPU per flow at 8 connections in this run. Ours have all \
             defaults: sealed, bound, claimed, replies kept.",
            TURN.as_millis(),
            figure(reference),
        ),
        table,
        plots,
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
