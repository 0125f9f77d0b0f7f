//! What it costs to be watched: an observer, and `tracing` with somebody who listens.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use counts::{Server, Weather};
use rounds::{
    Rounds,
    observe::{Event, Observe},
};
use tracing::{Dispatch, Level, callsite::rebuild_interest_cache, dispatcher};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// How often each is measured, in turns.
const TURNS: usize = 201;

/// How many flows a turn has.
const FLOWS: usize = 50;

/// Counts what happens, as one for metrics would.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Observe for Counter {
    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("observing", 1);
    progress.step(&format!("{TURNS} turns of {FLOWS} flows each"));
    let counter = Counter::default();
    let unseen = Server::start(Rounds::new(Weather::new()));
    let seen = Server::start(Rounds::builder(Weather::new()).observe(counter.clone()).build()?);

    let mut off = Sample::new("nobody");
    let mut observer = Sample::new("an observer");
    let mut info = Sample::new("an observer, and `tracing` at info");
    let mut debug = Sample::new("an observer, and `tracing` at debug");
    for _ in 0..TURNS {
        off.time(flows(&unseen)).await;
        observer.time(flows(&seen)).await;
        for (sample, level) in [(&mut info, Level::INFO), (&mut debug, Level::DEBUG)] {
            let listening = dispatcher::set_default(&written_nowhere(level));
            sample.time(flows(&seen)).await;
            drop(listening);
            // Without this, `tracing` would go on to ask who is listening.
            rebuild_interest_cache();
        }
    }
    assert!(counter.0.load(Ordering::Relaxed) > 0, "the observer has seen something");
    Ok(section(&off, &[observer, info, debug]))
}

async fn flows(server: &Server) {
    for _ in 0..FLOWS {
        server.flow("guard").await;
    }
}

/// A subscriber as servers have it, whose lines are made and then dropped: what it costs to write them is not ours.
fn written_nowhere(level: Level) -> Dispatch {
    tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(io::sink).finish().into()
}

fn section(off: &Sample, on: &[Sample]) -> Section {
    let mut table = Table::new(["who watches", "takes"]);
    table.push([off.name.to_owned(), "1".to_owned()]);
    let mut bars = Bars::new("A flow that is watched", "multiples of one that nobody watches");
    for sample in on {
        let ratio = sample.ratio_to(off);
        table.push([sample.name.to_owned(), figure(ratio)]);
        bars = bars.group(sample.name, [ratio]);
    }
    Section {
        name: "observing",
        title: "Being watched",
        text: format!(
            "A guard-first call of two legs, without a transport, {TURNS} turns of {FLOWS}; medians, as multiples of the same \
             with no observer and no subscriber. The observer counts events. At info, the level that servers run at, \
             `tracing` has a span for each leg; at debug also a line for each station of it, which is formatted and dropped."
        ),
        table,
        plots: vec![bars.mark(1.0, "nobody").mark(1.05, "goal").into()],
    }
}
