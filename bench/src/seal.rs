//! Sealing and opening a state, against rmcp's codec for the same: encrypted and bound against signed and bound.

use std::{hint::black_box, time::Duration};

use rmcp::model::{RequestStateCodec, SealOptions};
use rounds::{KeyRing, test::Seal};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// How many bytes the handler keeps, and what they are called.
const SIZES: [(usize, &str); 4] = [(64, "64 B"), (256, "256 B"), (4 << 10, "4 KiB"), (64 << 10, "64 KiB")];

/// How often each is measured, in turns.
const TURNS: usize = 51;

/// How many bytes go through each in a turn, at least.
const BYTES: usize = 1 << 20;

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("seal", SIZES.len());
    let arguments = rmcp::object!({"location": "Tokyo"});
    let ours = Seal::new(&KeyRing::from_bytes([[7; 32]])?, "bench", "weather", &arguments);
    let theirs = RequestStateCodec::new_with_keyring("2026-07", [("2026-07", [7u8; 32])])?;
    // What is bound: rmcp leaves to the author what that is.
    let bound = format!("tools/call weather {}", serde_json::to_string(&arguments)?);
    let options = SealOptions::new().associated_data(bound.as_bytes()).ttl(Duration::from_secs(600));

    let mut table = Table::new([
        "state",
        "seal",
        "open",
        "the nonce of a seal alone",
        "a seal, that run",
        "an open, that run",
        "token",
        "rmcp's",
    ]);
    let mut bars = Bars::new("Sealing and opening a state", "multiples of rmcp's time").series(["seal", "open"]);
    for (size, name) in SIZES {
        progress.step(name);
        let mut state = "x".repeat(size);
        let times = (BYTES / size).clamp(50, 2000) as u32;
        let mut drawn = Sample::new(name);
        let [mut seal, mut open, mut rmcp_seal, mut rmcp_open] =
            [Sample::new(name), Sample::new(name), Sample::new(name), Sample::new(name)];
        let (token, rmcp_token) = (ours.seal(&mut state), theirs.seal_with(state.as_bytes(), &options));
        for _ in 0..TURNS {
            seal.time_each(times, || drop(black_box(ours.seal(black_box(&mut state)))));
            drawn.time_each(times, || getrandom::fill(black_box(&mut [0; 24])).expect("there is randomness"));
            rmcp_seal.time_each(times, || drop(black_box(theirs.seal_with(black_box(state.as_bytes()), &options))));
            open.time_each(times, || drop(black_box(ours.open(black_box(&token)))));
            rmcp_open.time_each(times, || drop(black_box(theirs.open_with(black_box(&rmcp_token), bound.as_bytes()))));
        }
        let ratios = [seal.ratio_to(&rmcp_seal), open.ratio_to(&rmcp_open)];
        table.push([
            name.to_owned(),
            figure(ratios[0]),
            figure(ratios[1]),
            figure(drawn.ratio_to(&rmcp_seal)),
            format!("{} µs", figure(seal.micros())),
            format!("{} µs", figure(open.micros())),
            format!("{} B", token.len()),
            format!("{} B", rmcp_token.len()),
        ]);
        bars = bars.group(name, ratios);
    }
    Ok(Section {
        name: "seal",
        title: "Seal and open",
        text: format!(
            "A state of so many bytes, into a `requestState` and out of it, {TURNS} turns of many; medians, as multiples of \
             what rmcp's `RequestStateCodec` takes with a ring, a lifetime, and tool and arguments as associated data. The state \
             itself is there before, for both. Ours encrypts, draws a nonce from the operating system, and carries what it is bound to; rmcp's signs. To draw the \
             nonce is a system call, unless the C library has a way around it, as glibc has from 2.41 on."
        ),
        table,
        plots: vec![bars.mark(1.0, "rmcp").mark(1.5, "goal at 256 B").into()],
    })
}
