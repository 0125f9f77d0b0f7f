//! The cost of a waiting handler: the memory of the process for each, and how long it takes to wake one among many.
//!
//! Memory is the resident memory that the operating system reports, so each figure comes from a separate process that
//! does nothing else: this program, started again with a task in its environment.

use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use bytes::Bytes;
use counts::Weather;
use http_body_util::BodyExt;
use rmcp::{ServerHandler, transport::streamable_http_server::StreamableHttpServerConfig};
use rounds::{Limits, Rounds};
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tower_service::Service;

use crate::{
    alone::Failure,
    flows::load::{answers, request},
    progress::Progress,
    report::{Lines, Section, Table, figure, whole},
    sample::Sample,
};

/// Numbers of waiting calls.
const FRAMES: [usize; 3] = [1_000, 10_000, 100_000];

/// A further number for the first handler, in one process.
const MANY: usize = 1_000_000;

/// How often one is woken at each number, in turns.
const TURNS: usize = 501;

/// Calls that end before the measurement: schemas are built, and memory is allocated.
const WARM_UP: usize = 100;

/// Shown instead of a figure that was not measured.
const NOT_MEASURED: &str = "–";

/// The environment variable that tells a process its task.
const TASK: &str = "ROUNDS_BENCH_PARKED";

/// The waiting handlers.
const HANDLERS: [(&str, &str); 3] = [
    ("ask", "the weather"),
    ("keeping", "the same, keeping its `RequestContext`"),
    ("weather_h", "`weather_h`, in the gallery with all its tools"),
];

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("parked", HANDLERS.len() * FRAMES.len() + 2);
    let mut table = Table::new(["who waits", "1,000", "10,000", "100,000", "1,000,000"]);
    let mut lines = Lines::new("Memory for each call that waits", "calls that wait", "bytes a call").log();
    for (n, (tool, name)) in HANDLERS.into_iter().enumerate() {
        let mut points = Vec::new();
        for frames in FRAMES.into_iter().chain((n == 0).then_some(MANY)) {
            progress.step(&format!("{} calls of `{tool}` that wait", whole(frames as f64)));
            points.push((frames as f64, start(&Task::Memory { tool: tool.to_owned(), frames })?[0]));
        }
        let mut cells: Vec<_> = points.iter().map(|(_, bytes)| format!("{} B", whole(*bytes))).collect();
        cells.resize(FRAMES.len() + 1, NOT_MEASURED.to_owned());
        table.push([name.to_owned()].into_iter().chain(cells));
        lines = lines.curve(name.replace('`', ""), points);
    }
    progress.step(&format!("wake one of {}, {} and {}", whole(1e3), whole(1e4), whole(1e5)));
    let ratios = start(&Task::Waking)?;
    table.push(
        ["to wake one, as multiples of that among 1,000".to_owned()]
            .into_iter()
            .chain(ratios.iter().map(|ratio| figure(*ratio)))
            .chain([NOT_MEASURED.to_owned()]),
    );
    let waking = Lines::new("Waking one of them", "calls that wait", "multiples of that among 1,000").log();
    Ok(Section {
        name: "parked",
        title: "Calls that wait",
        text: format!(
            "Weather calls with an `Ask` that have asked and wait for their answer, through `Endpoint` and without a \
             socket: what they add to the resident memory of a process that has served {WARM_UP} such calls before, \
             divided by their number. Each process then answers the call that has waited the longest. The last row \
             is the time of the leg that wakes one: {TURNS} at each number, in turns, in one process with three \
             servers."
        ),
        table,
        plots: vec![
            lines.mark(2560.0, "goal").into(),
            waking
                .curve("the leg that wakes it", FRAMES.map(|frames| frames as f64).into_iter().zip(ratios))
                .mark(1.0, "goal")
                .into(),
        ],
    })
}

/// The task of another process of this program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Prints how many bytes each of this many calls adds.
    Memory { tool: String, frames: usize },
    /// Prints how long it takes to wake a call, at each number of them, as multiples of the first.
    Waking,
}

impl Task {
    /// The task that this process was started for, if this program started it.
    pub(crate) fn of_this_process() -> Option<Self> {
        Self::read(&env::var(TASK).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some((tool, frames)) => Some(Self::Memory { tool: tool.to_owned(), frames: frames.parse().ok()? }),
            None => (text == "waking").then_some(Self::Waking),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Memory { tool, frames } => format!("{tool} {frames}"),
            Self::Waking => "waking".to_owned(),
        }
    }

    /// Runs the task on a separate thread, because this is called within a runtime.
    pub(crate) fn run(self) -> ExitCode {
        let done = std::thread::spawn(move || -> Result<Vec<f64>, Failure> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                match self {
                    Self::Memory { tool, frames } => Ok(vec![memory(&tool, frames).await?]),
                    Self::Waking => waking().await,
                }
            })
        });
        match done.join() {
            Ok(Ok(figures)) => {
                println!("{}", json!(figures));
                ExitCode::SUCCESS
            }
            Ok(Err(error)) => {
                eprintln!("bench: {error}");
                ExitCode::FAILURE
            }
            Err(_) => ExitCode::FAILURE,
        }
    }
}

/// Starts this program again for this task, and returns what it prints.
fn start(task: &Task) -> Result<Vec<f64>, Failure> {
    let mut process = Command::new(env::current_exe()?);
    let output = process.env(TASK, task.text()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the process for `{}` failed ({})", task.text(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn memory(tool: &str, frames: usize) -> Result<f64, Failure> {
    match tool {
        "weather_h" => added(serve(gallery::Gallery::new(), frames)?, tool, frames).await,
        _ => added(serve(Weather::new(), frames)?, tool, frames).await,
    }
}

/// How many bytes each of this many calls adds.
async fn added<H: ServerHandler>(mut server: Served<H>, tool: &str, frames: usize) -> Result<f64, Failure> {
    for _ in 0..WARM_UP {
        let answers = ask(&mut server, tool).await?;
        leg(&mut server, tool, answers).await?;
    }
    let before = resident()?;
    let first = ask(&mut server, tool).await?;
    for _ in 1..frames {
        ask(&mut server, tool).await?;
    }
    let added = resident()? - before;
    let told = leg(&mut server, tool, first).await?;
    if !String::from_utf8_lossy(&told).contains("22°C") {
        return Err(
            format!("the first of {frames} calls is no longer waiting: {}", String::from_utf8_lossy(&told)).into()
        );
    }
    Ok(added / frames as f64)
}

async fn waking() -> Result<Vec<f64>, Failure> {
    let mut servers = Vec::new();
    for frames in FRAMES {
        let mut server = serve(Weather::new(), frames)?;
        let mut asked = Vec::with_capacity(frames);
        for _ in 0..frames {
            asked.push(ask(&mut server, "ask").await?);
        }
        servers.push((server, asked, Sample::new("")));
    }
    for turn in 0..TURNS {
        for (server, asked, sample) in &mut servers {
            // Not the latest one, which is still in the caches, but one from anywhere, and another takes its place.
            let place = turn * 7919 % asked.len();
            let answers = std::mem::replace(&mut asked[place], ask(server, "ask").await?);
            sample.time(leg(server, "ask", answers)).await?;
        }
    }
    let (_, _, reference) = &servers[0];
    Ok(servers.iter().map(|(_, _, sample)| sample.ratio_to(reference)).collect())
}

type Served<H> = Endpoint<Rounds<H>>;

fn serve<H: ServerHandler>(handler: H, frames: usize) -> Result<Served<H>, Failure> {
    // None of them may expire while the others are begun.
    let hours = Duration::from_secs(3600);
    let limits = Limits::default().with_frames(frames + 1, frames + 1).with_frame_bytes(usize::MAX, usize::MAX);
    let builder = Rounds::builder(handler).limits(limits);
    let server = builder.round_lifetime(hours).flow_deadline(hours).build()?;
    Ok(Endpoint::new(&server, StreamableHttpServerConfig::default().with_json_response(true)))
}

/// A first leg, and the parameters of the second.
async fn ask<H: ServerHandler>(server: &mut Served<H>, tool: &str) -> Result<Value, Failure> {
    answers(&leg(server, tool, json!({})).await?)
}

async fn leg<H: ServerHandler>(server: &mut Served<H>, tool: &str, more: Value) -> Result<Bytes, Failure> {
    let response = server.call(request("localhost", tool, more)?).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

/// The resident memory of this process, in bytes.
fn resident() -> Result<f64, Failure> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")
        .map_err(|error| format!("the memory of a process is read from /proc, as on Linux: {error}"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("/proc has no resident memory")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_the_task_that_it_was_started_with() {
        for task in [Task::Memory { tool: "ask".to_owned(), frames: 1_000 }, Task::Waking] {
            assert_eq!(Task::read(&task.text()), Some(task));
        }
        assert_eq!(Task::read("dreaming"), None);
    }

    #[test]
    fn memory_is_seen_to_grow() {
        let before = resident().unwrap();
        let grown = vec![1u8; 8 << 20];
        assert!(resident().unwrap() >= before + grown.len() as f64 / 2.0);
    }
}
