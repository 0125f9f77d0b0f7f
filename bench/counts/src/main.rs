//! `counts CASE TIMES`: runs one case that many times, for `cargo xtask counts` to count its instructions.
//!
//! Subtracting the count of one run from that of a run with twice as many repetitions leaves out the start-up.
//!
//! `counts hour` is for `cargo xtask hour`. It counts no instructions, but it also needs an optimised build.

mod hour;

use std::{env, hint::black_box, pin::Pin, process::ExitCode, time::Duration};

use counts::{
    Server, Weather,
    kept::Kept,
    lane::{self, Lane, Post},
};
use rounds::{KeyRing, Rounds, RoundsBuilder, tasks::Tasks, test::Seal};
use rounds_http::Endpoint;

/// Size in bytes of the handler's state, in the cases without a server.
const STATE: usize = 256;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let times = |times: &str| times.parse::<usize>();
    let ran = match args[..] {
        ["hour"] => return an_hour(),
        [case, n] if CASES.iter().any(|(name, _)| *name == case) => times(n).map(|times| run(case, times)),
        _ => {
            let cases: Vec<_> = CASES.iter().map(|(name, _)| *name).collect();
            eprintln!("usage: counts {} TIMES, or counts hour", cases.join("|"));
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counts: {}: {error}", args[1]);
            ExitCode::from(2)
        }
    }
}

/// Simulates an hour, and prints the result.
fn an_hour() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
    let lived = runtime.block_on(hour::Hour::live()).map_err(|error| error.to_string());
    match lived.and_then(|hour| hour.report()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("counts: {problem}");
            ExitCode::FAILURE
        }
    }
}

type Case = fn(usize) -> Pin<Box<dyn Future<Output = ()>>>;

/// Each case by its name.
const CASES: &[(&str, Case)] = &[
    ("seal", |times| Box::pin(async move { seal(times) })),
    ("open", |times| Box::pin(async move { open(times) })),
    ("guard", |times| Box::pin(flows(start(server()), "guard", times))),
    ("ask", |times| Box::pin(flows(start(server()), "ask", times))),
    ("durable", |times| Box::pin(flows(start(server()), "durable", times))),
    // A call that ends inline, without tasks and with them: of a client that does not declare them, and of one that does.
    ("plain", |times| Box::pin(calls(start(server()), times))),
    ("plain_tasks", |times| Box::pin(calls(start(promising()), times))),
    ("declared", |times| Box::pin(calls(start(server()).with_tasks(), times))),
    ("declared_tasks", |times| Box::pin(calls(start(promising()).with_tasks(), times))),
    ("declared_guard", |times| Box::pin(flows(start(server()).with_tasks(), "guard", times))),
    ("declared_guard_tasks", |times| Box::pin(flows(start(promising()).with_tasks(), "guard", times))),
    ("poll", |times| Box::pin(polls(start(tasked()).with_tasks(), times))),
    ("poll_kept", |times| Box::pin(polls(start(keeping()).with_tasks(), times))),
    ("plain_pushes", |times| Box::pin(calls(start(server().pushes()), times))),
    // The same over HTTP, in the fast lane and in rmcp's.
    ("fast_plain", |times| Box::pin(posts(endpoint(server()), times))),
    ("fast_tasks", |times| Box::pin(posts(endpoint(promising()), times))),
    ("fast_pushes", |times| Box::pin(posts(endpoint(server().pushes()), times))),
    ("fast_poll", |times| Box::pin(posted_polls(endpoint(tasked()), times))),
    ("fast_poll_kept", |times| Box::pin(posted_polls(endpoint(keeping()), times))),
    ("rmcp_plain", |times| Box::pin(posts(service(server()), times))),
    ("rmcp_tasks", |times| Box::pin(posts(service(promising()), times))),
    ("rmcp_pushes", |times| Box::pin(posts(service(server().pushes()), times))),
    ("rmcp_poll", |times| Box::pin(posted_polls(service(tasked()), times))),
];

fn run(wanted: &str, times: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    if let Some((_, case)) = CASES.iter().find(|(name, _)| *name == wanted) {
        // A case starts its server, which needs the runtime.
        let _within = runtime.enter();
        runtime.block_on(case(times));
    }
}

/// Seals the state of a call.
fn seal(times: usize) {
    let (seal, mut state) = (sealing(), "x".repeat(STATE));
    for _ in 0..times {
        black_box(seal.seal(black_box(&mut state)));
    }
}

/// Opens a sealed state.
fn open(times: usize) {
    let seal = sealing();
    let token = seal.seal(&mut "x".repeat(STATE));
    for _ in 0..times {
        black_box(seal.open(black_box(&token))).expect("the token was sealed by the same key");
    }
}

fn sealing() -> Seal {
    Seal::new(&ring(), "counts", "weather", &rmcp::object!({"location": "Tokyo"}))
}

fn ring() -> KeyRing {
    KeyRing::from_bytes([[7; 32]]).expect("a key of 32 bytes is long enough")
}

/// Whole flows of two legs each.
async fn flows(server: Server, tool: &'static str, times: usize) {
    for _ in 0..times {
        server.flow(tool).await;
    }
}

/// Calls of a tool that asks nothing.
async fn calls(server: Server, times: usize) {
    for _ in 0..times {
        server.plain().await;
    }
}

/// Polls of a task that waits for an answer.
async fn polls(server: Server, times: usize) {
    let id = server.task("guard").await;
    for _ in 0..times {
        black_box(server.poll(&id).await);
    }
}

/// The same call of a tool that asks nothing, over HTTP.
async fn posts(mut lane: impl Lane, times: usize) {
    let post = Post::call("plain");
    let result = post.result(&mut lane).await;
    assert!(result["content"][0]["text"].is_string(), "expected the weather, got {result}");
    for _ in 0..times {
        post.send(&mut lane).await;
    }
}

/// The same poll of a task that waits for an answer, over HTTP.
async fn posted_polls(mut lane: impl Lane, times: usize) {
    let created = Post::call("guard").result(&mut lane).await;
    let post = Post::poll(created["taskId"].as_str().expect("the call is a task"));
    while post.result(&mut lane).await["status"] != "input_required" {
        tokio::task::yield_now().await;
    }
    for _ in 0..times {
        post.send(&mut lane).await;
    }
}

fn server() -> RoundsBuilder<Weather> {
    Rounds::builder(Weather::new())
}

/// A server whose calls may become tasks, and here never take that long.
fn promising() -> RoundsBuilder<Weather> {
    server().tasks(Tasks::after(Duration::from_secs(20)))
}

/// A server whose calls are tasks from their beginning.
fn tasked() -> RoundsBuilder<Weather> {
    server().tasks(Tasks::at_once())
}

/// The same with tasks that outlive the process.
fn keeping() -> RoundsBuilder<Weather> {
    tasked().keys(ring()).audience("counts").ledger(Kept::new())
}

fn built(builder: RoundsBuilder<Weather>) -> Rounds<Weather> {
    builder.build().expect("the settings fit together")
}

fn start(builder: RoundsBuilder<Weather>) -> Server {
    Server::start(built(builder))
}

fn endpoint(builder: RoundsBuilder<Weather>) -> impl Lane {
    Endpoint::new(&built(builder), lane::config())
}

fn service(builder: RoundsBuilder<Weather>) -> impl Lane {
    built(builder).streamable_http(lane::config())
}
