//! `counts CASE TIMES`: runs one case that many times, for `cargo xtask counts` to count its instructions.
//!
//! Subtracting the count of one run from that of a run with twice as many repetitions leaves out the start-up.
//!
//! `counts hour` is for `cargo xtask hour`. It counts no instructions, but it also needs an optimised build.

mod hour;

use std::{env, hint::black_box, process::ExitCode};

use counts::{Server, Weather};
use rounds::{KeyRing, Rounds, RoundsBuilder, test::Seal};

/// Size in bytes of the handler's state, in the cases without a server.
const STATE: usize = 256;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let times = |times: &str| times.parse::<usize>();
    let ran = match args[..] {
        ["hour"] => return an_hour(),
        ["seal", n] => times(n).map(seal),
        ["open", n] => times(n).map(open),
        ["guard", n] => times(n).map(|times| flows("guard", times)),
        ["ask", n] => times(n).map(|times| flows("ask", times)),
        ["durable", n] => times(n).map(|times| flows("durable", times)),
        ["plain", n] => times(n).map(|times| calls(Rounds::builder(Weather::new()), times)),
        ["pushes", n] => times(n).map(|times| calls(Rounds::builder(Weather::new()).pushes(), times)),
        _ => {
            eprintln!("usage: counts seal|open|guard|ask|durable|plain|pushes TIMES, or counts hour");
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
    let keys = KeyRing::from_bytes([[7; 32]]).expect("a key of 32 bytes is long enough");
    Seal::new(&keys, "counts", "weather", &rmcp::object!({"location": "Tokyo"}))
}

/// Whole flows of two legs each.
fn flows(tool: &'static str, times: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    runtime.block_on(async {
        let server = Server::start(Rounds::new(Weather::new()));
        for _ in 0..times {
            server.flow(tool).await;
        }
    });
}

/// Calls of a tool that asks nothing.
fn calls(builder: RoundsBuilder<Weather>, times: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    runtime.block_on(async {
        let server = Server::start(builder.build().expect("the defaults fit together"));
        for _ in 0..times {
            server.plain().await;
        }
    });
}
