//! Sealing and opening a state, compared with rmcp's codec: encrypted and bound against signed and bound.

use std::{hint::black_box, time::Duration};

use rmcp::model::{RequestStateCodec, SealOptions};
use rounds::{KeyRing, test::Seal};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// Sizes of the handler's state in bytes, and their names.
const SIZES: [(usize, &str); 4] = [(64, "64 B"), (256, "256 B"), (4 << 10, "4 KiB"), (64 << 10, "64 KiB")];

/// How often each is measured, in turns.
const TURNS: usize = 51;

/// Minimum number of bytes per turn.
const BYTES: usize = 1 << 20;

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("seal", SIZES.len());
    let arguments = rmcp::object!({"location": "Tokyo"});
    let ours = Seal::new(&KeyRing::from_bytes([[7; 32]])?, "bench", "weather", &arguments);
    let theirs = RequestStateCodec::new_with_keyring("2026-07", [("2026-07", [7u8; 32])])?;
    // The binding: with rmcp's codec, the author has to choose it.
    let bound = format!("tools/call weather {}", serde_json::to_string(&arguments)?);
    let options = SealOptions::new().associated_data(bound.as_bytes()).ttl(Duration::from_secs(600));

    let mut table = Table::new([
        "state",
        "seal",
        "open",
        "the nonce alone",
        "seal, in this run",
        "open, in this run",
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
            drawn.time_each(times, || {
                getrandom::fill(black_box(&mut [0; 24])).expect("the operating system provides randomness");
            });
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
            "Sealing a state of this size into a `requestState`, and opening it, {TURNS} turns of many; medians, as \
             multiples of the time of rmcp's `RequestStateCodec` with a ring, a lifetime, and tool and arguments as \
             associated data. For both, the state itself exists before. Ours encrypts, draws a nonce from the \
             operating system, and carries its binding; rmcp's signs. Drawing the nonce is a system call, unless the \
             C library avoids it, as glibc does from 2.41 on."
        ),
        table,
        plots: vec![bars.mark(1.0, "rmcp").mark(1.5, "goal at 256 B").into()],
    })
}
