//! A whole weather call over HTTP, two legs, at servers that are processes of their own.
//!
//! The load is a closed loop. Rows take turns, so that what else the machine does meets all of them.

mod load;
mod serve;
mod server;

use std::{env, error::Error, process::Command, time::Duration};

use load::Connections;
pub(crate) use serve::Stack;
use server::Server;

/// How many connections call at once.
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// How often each row has its turn with each number of connections, after one that is not counted.
const TURNS: usize = 7;

/// How long a turn takes.
const TURN: Duration = Duration::from_millis(400);

/// One line of the comparison.
struct Row {
    name: String,
    server: usize,
    tool: &'static str,
    turns: [Vec<Turn>; CONNECTIONS.len()],
}

/// What one turn came to.
struct Turn {
    cpu: f64,
    flows_per_second: f64,
    p50: f64,
    p99: f64,
}

pub(crate) async fn measure() -> Result<(), Box<dyn Error>> {
    let stacks = [Stack::Axum, Stack::Rmcp, Stack::RoundsOverRmcp];
    let mut servers = Vec::new();
    for stack in stacks {
        let mut command = Command::new(env::current_exe()?);
        command.args(["serve", stack.name()]);
        let server = Server::start(command)?;
        let connections = Connections::to(server.address);
        servers.push((server, connections));
    }
    let mut rows = vec![row("axum", 0, "weather"), row("rmcp", 1, "weather")];
    for tool in ["weather_e", "weather_f", "weather_g", "weather_h", "weather_i", "weather_asked"] {
        rows.push(row(tool, 2, tool));
    }
    for turn in 0..=TURNS {
        eprintln!("turn {turn} of {TURNS}");
        for (index, count) in CONNECTIONS.into_iter().enumerate() {
            for row in &mut rows {
                let (server, connections) = &mut servers[row.server];
                let before = server.cpu()?;
                let load = connections.drive(row.tool, count, TURN).await.map_err(|e| e.to_string())?;
                let spent = server.cpu()?.saturating_sub(before);
                if turn > 0 {
                    row.turns[index].push(Turn {
                        cpu: spent.as_secs_f64() / load.flows.len() as f64,
                        flows_per_second: load.flows_per_second(),
                        p50: load.quantile(0.5).as_secs_f64(),
                        p99: load.quantile(0.99).as_secs_f64(),
                    });
                }
            }
        }
    }
    for (index, count) in CONNECTIONS.into_iter().enumerate() {
        println!("\n{count} connections\n");
        for row in &rows {
            let against = |reference: usize, of: fn(&Turn) -> f64| {
                let pairs = row.turns[index].iter().zip(&rows[reference].turns[index]);
                median(pairs.map(|(turn, reference)| of(turn) / of(reference)).collect())
            };
            println!(
                "{:24} cpu {:7.1}us {:5.2} axum {:5.2} rmcp | flows {:5.2} | p50 {:5.2} p99 {:5.2}",
                row.name,
                median(row.turns[index].iter().map(|turn| turn.cpu * 1e6).collect()),
                against(0, |turn| turn.cpu),
                against(1, |turn| turn.cpu),
                against(1, |turn| turn.flows_per_second),
                against(1, |turn| turn.p50),
                against(1, |turn| turn.p99),
            );
        }
    }
    Ok(())
}

fn row(name: &str, server: usize, tool: &'static str) -> Row {
    Row { name: name.to_owned(), server, tool, turns: Default::default() }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
