//! What it costs to be watched: an observer, and `tracing` with somebody who listens.

use std::{
    io,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use counts::{Server, Weather};
use rmcp::{RoleClient, model::CallToolRequestParams, service::RunningService};
use rounds::{
    Rounds,
    observe::{Event, Observe},
};
use tracing::{Level, Metadata, Subscriber, callsite::rebuild_interest_cache, subscriber::Interest};
use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt};

use crate::{
    alone::Failure,
    client::{Person, arguments, connect},
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

/// A server, with and without a transport before it.
struct Ways {
    bare: Server,
    client: RunningService<RoleClient, Person>,
}

impl Ways {
    async fn to(server: Rounds<Weather>) -> Result<Self, Failure> {
        Ok(Self { bare: Server::start(server.clone()), client: connect(server).await? })
    }

    async fn bare(&self) {
        for _ in 0..FLOWS {
            self.bare.flow("guard").await;
        }
    }

    async fn whole(&self) -> Result<(), Failure> {
        for _ in 0..FLOWS {
            let request = CallToolRequestParams::new("guard").with_arguments(arguments());
            let called = self.client.call_tool(request).await?;
            assert!(!called.content.is_empty(), "it ends with the weather");
        }
        Ok(())
    }
}

/// Those who watch, and what that takes.
struct Watched {
    name: &'static str,
    level: LevelFilter,
    bare: Sample,
    whole: Sample,
}

impl Watched {
    fn by(name: &'static str, level: LevelFilter) -> Self {
        Self { name, level, bare: Sample::new(name), whole: Sample::new(name) }
    }

    async fn turn(&mut self, ways: &Ways) -> Result<(), Failure> {
        Listening::set(self.level);
        self.bare.time(ways.bare()).await;
        self.whole.time(ways.whole()).await
    }

    fn ratios_to(&self, reference: &Self) -> [f64; 2] {
        [self.bare.ratio_to(&reference.bare), self.whole.ratio_to(&reference.whole)]
    }
}

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("observing", 1);
    progress.step(&format!("{TURNS} turns of {FLOWS} flows each"));
    tracing::subscriber::set_global_default(written_nowhere())?;
    let counter = Counter::default();
    let unseen = Ways::to(Rounds::new(Weather::new())).await?;
    let seen = Ways::to(Rounds::builder(Weather::new()).observe(counter.clone()).build()?).await?;

    let mut nobody = Watched::by("nobody", LevelFilter::OFF);
    let mut watched = [
        Watched::by("an observer", LevelFilter::OFF),
        Watched::by("an observer, and `tracing` at info", LevelFilter::INFO),
        Watched::by("an observer, and `tracing` at debug", LevelFilter::DEBUG),
    ];
    for _ in 0..TURNS {
        nobody.turn(&unseen).await?;
        for watched in &mut watched {
            watched.turn(&seen).await?;
        }
    }
    Listening::set(LevelFilter::OFF);
    assert!(counter.0.load(Ordering::Relaxed) > 0, "the observer has seen something");
    Ok(section(&nobody, &watched))
}

/// A subscriber as servers have it, for the whole process, whose lines are made and then dropped: what it costs to write them is
/// not ours.
fn written_nowhere() -> impl Subscriber + Send + Sync {
    let written = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false).with_writer(io::sink);
    written.finish().with(Listening)
}

/// Lets through what `rounds` says up to a level that changes from turn to turn, and nothing of rmcp's.
struct Listening;

static LEVEL: RwLock<LevelFilter> = RwLock::new(LevelFilter::OFF);

impl Listening {
    fn set(level: LevelFilter) {
        *LEVEL.write().expect("nobody panics while setting it") = level;
        rebuild_interest_cache();
    }

    fn level() -> LevelFilter {
        *LEVEL.read().expect("nobody panics while setting it")
    }
}

impl<S: Subscriber> Layer<S> for Listening {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match metadata.target() == "rounds" && *metadata.level() <= Self::level() {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(Self::level())
    }
}

fn section(nobody: &Watched, watched: &[Watched]) -> Section {
    const COLUMNS: [&str; 2] = ["without a transport", "a whole call"];
    let mut table = Table::new(["who watches"].into_iter().chain(COLUMNS));
    table.push([nobody.name, "1", "1"]);
    let mut bars = Bars::new("A flow that is watched", "multiples of one that nobody watches").series(COLUMNS);
    for watched in watched {
        let ratios = watched.ratios_to(nobody);
        table.push([watched.name.to_owned(), figure(ratios[0]), figure(ratios[1])]);
        bars = bars.group(watched.name, ratios);
    }
    Section {
        name: "observing",
        title: "Being watched",
        text: format!(
            "A guard-first call of two legs, {TURNS} turns of {FLOWS}; medians, as multiples of the same with no observer and \
             nobody listening: once the legs alone, without a transport, and once the whole call, over a connection in memory and \
             with rmcp's client, as in \"Driving a call\". The observer counts events. At info, the level that servers run at, \
             `tracing` has a span for each leg; at debug also a line for each station of it, which is formatted and dropped. \
             What rmcp itself says is not listened to."
        ),
        table,
        plots: vec![bars.mark(1.05, "goal").into()],
    }
}
