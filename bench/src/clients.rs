//! Requests as clients really send them: with a progress token, with a log level, with notifications before the result; and by the clients of three
//! SDKs, each a process of its own.

pub(crate) mod generator;
pub(crate) mod rmcp_client;

use std::time::Duration;

use self::generator::Generator;
use crate::{
    Options,
    alone::Failure,
    flows::{
        self, Server, Stack,
        cores::Cores,
        load::{Called, Connections, Wants},
        median, peers,
    },
    progress::Progress,
    report::{Bars, Section, Table, figure},
};

/// How many connections call at once.
const CONNECTIONS: usize = 8;

/// How often each row has its turn, after one that is not counted.
const TURNS: usize = 61;

/// How long a turn takes.
const TURN: Duration = Duration::from_millis(50);

/// The same for clients of other languages, which do less in it.
const LONG_TURNS: usize = 11;
const LONG_TURN: Duration = Duration::from_millis(1000);

/// One line of the comparison.
struct Row {
    sent: String,
    server: String,
    driver: Driver,
    /// Its process, by its place among them.
    at: usize,
    /// CPU seconds of the server for each call.
    turns: Vec<f64>,
}

enum Driver {
    /// Requests written by hand.
    Requests(Called, Connections),
    Client(Generator),
}

pub(crate) async fn measure(options: Options) -> Result<Section, Failure> {
    let cores = Cores::part()?;
    let mut started = Started { servers: Vec::new(), rows: Vec::new(), cores: cores.as_ref() };
    started.requests(options)?;
    if options.peers {
        started.clients()?;
    }
    let Started { servers, mut rows, .. } = started;
    if cores.is_some() {
        // With a core of its own, the caller need not sleep. While a client is at work, it does.
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
    let mut progress = Progress::new("clients", TURNS + 1);
    for turn in 0..=TURNS {
        progress.step(&format!("{} rows", rows.len()));
        for row in rows.iter_mut().filter(|row| turn <= row.driver.turns()) {
            let before = servers[row.at].cpu()?;
            let calls = row.driver.drive().await.map_err(|error| format!("{}, {}: {error}", row.sent, row.server))?;
            let cpu = servers[row.at].cpu()?.saturating_sub(before);
            if turn > 0 {
                row.turns.push(cpu.as_secs_f64() / calls as f64);
            }
        }
    }
    Ok(report(&rows))
}

impl Driver {
    fn turns(&self) -> usize {
        match self {
            Self::Requests(..) => TURNS,
            Self::Client(_) => LONG_TURNS,
        }
    }

    /// Drives a server for a turn, and counts the calls.
    async fn drive(&mut self) -> Result<usize, Failure> {
        match self {
            Self::Requests(called, connections) => Ok(connections.drive(*called, CONNECTIONS, TURN).await?.flows.len()),
            Self::Client(generator) => generator.drive(LONG_TURN),
        }
    }
}

/// What has been started, and the rows that use it.
struct Started<'a> {
    servers: Vec<Server>,
    rows: Vec<Row>,
    cores: Option<&'a Cores>,
}

/// The weather's servers, each with the name of the tool there. Bare rmcp is the one that the others are compared with.
const WEATHER: [(&str, Stack, &str); 4] = [
    (RMCP, Stack::Rmcp, "weather"),
    ("bare axum", Stack::Axum, "weather"),
    ("`Endpoint` at a `Port`", Stack::Endpoint, "weather_e"),
    ("`Endpoint` in axum", Stack::EndpointInAxum, "weather_e"),
];

const STEPS: [(&str, Stack); 4] = [
    (RMCP, Stack::Steps),
    ("bare axum", Stack::Axum),
    ("`Endpoint` at a `Port`", Stack::StepsAtPort),
    ("`Endpoint` in axum", Stack::StepsInAxum),
];

const RMCP: &str = "bare rmcp, in axum";

impl Started<'_> {
    fn start(&mut self, command: std::process::Command) -> Result<usize, Failure> {
        self.servers.push(match self.cores {
            Some(cores) => cores.among_servers(|| Server::start(command))??,
            None => Server::start(command)?,
        });
        Ok(self.servers.len() - 1)
    }

    fn push(&mut self, sent: &str, server: &str, at: usize, driver: Driver) {
        self.rows.push(Row { sent: sent.to_owned(), server: server.to_owned(), driver, at, turns: Vec::new() });
    }

    fn requests(&mut self, options: Options) -> Result<(), Failure> {
        let mut weather = Vec::new();
        for (name, stack, tool) in WEATHER {
            weather.push((name.to_owned(), tool, self.start(flows::ours(stack)?)?));
        }
        if options.peers {
            for peer in peers::all()? {
                weather.push((peer.title(), "weather", self.start(peer.command())?));
            }
        }
        for (sent, wants) in
            [("no token", Wants::Nothing), ("a progress token", Wants::Progress), ("a log level", Wants::Logs)]
        {
            for (name, tool, at) in &weather {
                let connections = Connections::to(self.servers[*at].address);
                self.push(sent, name, *at, Driver::Requests(Called { tool, wants }, connections));
            }
        }
        for (name, stack) in STEPS {
            let at = self.start(flows::ours(stack)?)?;
            for (sent, steps) in [("a token, 1 notification", 1), ("a token, 100 notifications", 100)] {
                let called = Called { tool: "steps", wants: Wants::Steps(steps) };
                self.push(sent, name, at, Driver::Requests(called, Connections::to(self.servers[at].address)));
            }
        }
        Ok(())
    }

    /// Clients of other languages need what `--peers` has installed.
    fn clients(&mut self) -> Result<(), Failure> {
        for (name, stack, tool) in WEATHER.into_iter().filter(|(_, stack, _)| *stack != Stack::Axum) {
            let at = self.start(flows::ours(stack)?)?;
            for client in generator::ALL {
                let generator = Generator::start(client, self.servers[at].address, tool)?;
                self.push(client.name, name, at, Driver::Client(generator));
            }
        }
        Ok(())
    }
}

fn report(rows: &[Row]) -> Section {
    let mut table = Table::new(["sent", "server", "CPU, of rmcp", "CPU, of no token", "CPU, µs"]);
    let mut bars =
        Bars::new("Server CPU for each call", "multiples of bare rmcp with the same requests").mark(0.6, "goal");
    for row in rows {
        let same = |of: &&Row| of.sent == row.sent && of.server == RMCP;
        let of_rmcp = rows.iter().find(same).map_or(f64::NAN, |other| row.against(other));
        let plain = |of: &&Row| of.sent == "no token" && of.server == row.server;
        let is_weather = matches!(&row.driver, Driver::Requests(called, _) if !matches!(called.wants, Wants::Steps(_)));
        let of_plain = rows.iter().find(plain).filter(|_| is_weather).map_or(f64::NAN, |other| row.against(other));
        let micros = median(row.turns.iter().map(|cpu| cpu * 1e6).collect());
        table.push([row.sent.clone(), row.server.clone(), figure(of_rmcp), figure(of_plain), figure(micros)]);
        if row.server.contains("Endpoint") {
            bars = bars.group(format!("{}: {}", row.sent, row.server.replace('`', "")), [of_rmcp]);
        }
    }
    Section {
        name: "clients",
        title: "Requests as clients send them",
        text: format!(
            "What clients add to a request, and what that costs the server, at {CONNECTIONS} connections. The weather call of two legs; a tool that sends 1 and 100 progress \
             notifications, one after the other, and a result; and the weather call as the clients of three SDKs make it, all of which send a progress token. CPU is what the \
             system has on the server's account for each call. Medians of {TURNS} turns of {} ms, of {LONG_TURNS} turns of {} ms for the clients, in which all rows follow each \
             other; each figure is a ratio to another row in the same turn.",
            TURN.as_millis(),
            LONG_TURN.as_millis(),
        ),
        table,
        plots: vec![bars.into()],
    }
}

impl Row {
    /// The median over the turns of what this row took, as a multiple of what the other took in the same turn.
    fn against(&self, other: &Self) -> f64 {
        median(self.turns.iter().zip(&other.turns).map(|(own, other)| own / other).collect())
    }
}
