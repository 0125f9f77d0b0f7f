//! The cost of observation: an observer, and `tracing` with a subscriber.

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

/// Number of flows per turn.
const FLOWS: usize = 50;

/// Counts events, as an observer for metrics would.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Observe for Counter {
    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server, with and without a transport.
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
            assert!(!called.content.is_empty(), "the call ends with the weather");
        }
        Ok(())
    }
}

/// A way to observe, and its times.
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

    let mut unobserved = Watched::by("no observer", LevelFilter::OFF);
    let mut watched = [
        Watched::by("an observer", LevelFilter::OFF),
        Watched::by("an observer, and `tracing` at info", LevelFilter::INFO),
        Watched::by("an observer, and `tracing` at debug", LevelFilter::DEBUG),
    ];
    for _ in 0..TURNS {
        unobserved.turn(&unseen).await?;
        for watched in &mut watched {
            watched.turn(&seen).await?;
        }
    }
    Listening::set(LevelFilter::OFF);
    assert!(counter.0.load(Ordering::Relaxed) > 0, "the observer has seen events");
    Ok(section(&unobserved, &watched))
}

/// A subscriber like that of a server, for the whole process. Its lines are formatted and then dropped, because the
/// cost of writing them is not ours.
fn written_nowhere() -> impl Subscriber + Send + Sync {
    let written = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false).with_writer(io::sink);
    written.finish().with(Listening)
}

/// Passes events of `rounds` up to a level that changes from turn to turn, and none of rmcp.
struct Listening;

static LEVEL: RwLock<LevelFilter> = RwLock::new(LevelFilter::OFF);

impl Listening {
    fn set(level: LevelFilter) {
        *LEVEL.write().expect("no thread panics while setting it") = level;
        rebuild_interest_cache();
    }

    fn level() -> LevelFilter {
        *LEVEL.read().expect("no thread panics while setting it")
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

fn section(unobserved: &Watched, watched: &[Watched]) -> Section {
    const COLUMNS: [&str; 2] = ["without a transport", "a whole call"];
    let mut table = Table::new(["observed by"].into_iter().chain(COLUMNS));
    table.push([unobserved.name, "1", "1"]);
    let mut bars = Bars::new("A flow that is watched", "multiples of an unobserved flow").series(COLUMNS);
    for watched in watched {
        let ratios = watched.ratios_to(unobserved);
        table.push([watched.name.to_owned(), figure(ratios[0]), figure(ratios[1])]);
        bars = bars.group(watched.name, ratios);
    }
    Section {
        name: "observing",
        title: "Being watched",
        text: format!(
            "A guard-first call of two legs, {TURNS} turns of {FLOWS}; medians, as multiples of the same call with \
             no observer and no subscriber: once the legs alone, without a transport, and once the whole call, over \
             a connection in memory and with rmcp's client, as in \"Driving a call\". The observer counts events. At \
             info, the usual level of servers, `tracing` has a span for each leg; at debug also a line for each \
             station, which is formatted and dropped. Events of rmcp itself are filtered out."
        ),
        table,
        plots: vec![bars.mark(1.05, "goal").into()],
    }
}
