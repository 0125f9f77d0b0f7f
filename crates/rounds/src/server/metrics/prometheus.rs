//! The outlet for Prometheus: a text that a scraper fetches.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabel as _, EncodeLabelSet, EncodeMetric as _, LabelSetEncoder, text},
    metrics::{MetricType, counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{
    Recorder, Servers,
    instruments::{Counter, Gauge, Labels, Outlet, Timer},
};
use crate::{
    server::policy::{
        measure::{Gauges, Limit, StoreCall},
        observe::{Event, Observe},
    },
    shared::kind::Method,
};

/// Metrics for Prometheus, and for every other scraper that reads OpenMetrics. Clones count into the same metrics.
///
/// Register it with [`RoundsBuilder::observe`](crate::RoundsBuilder::observe), and serve its [`text`](Self::text):
/// `Port::with_metrics` of `rounds-http` does so at `/metrics`. Several servers of a process can share one: their
/// counts and gauges are added.
#[derive(Clone)]
pub struct Prometheus(Arc<Inner>);

struct Inner {
    recorder: Recorder<Families>,
    registry: Registry,
}

impl Prometheus {
    /// The type of the [text](Self::text), for the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Metrics without counts.
    pub fn new() -> Self {
        let (families, servers) = (Families::default(), Arc::new(Servers::default()));
        let mut registry = Registry::with_prefix("rounds");
        for (counter, family) in Counter::ALL.iter().zip(&families.counters) {
            registry.register(counter.name(), counter.help(), family.clone());
        }
        for (timer, family) in Timer::ALL.iter().zip(&families.timers) {
            registry.register_with_unit(timer.name(), timer.help(), Unit::Seconds, family.clone());
        }
        registry.register_collector(Box::new(ReadGauges(servers.clone())));
        Self(Arc::new(Inner { recorder: Recorder::new(families, servers), registry }))
    }

    /// All metrics at this moment, as OpenMetrics text, which ends with `# EOF`.
    ///
    /// It visits every waiting handler. Scrapers ask for it every few seconds, which is cheap; requests should not.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).and_then(|()| text::encode_eof(&mut text)).expect("a string takes everything");
        text
    }

    /// Writes the same without the `# EOF`, to be followed by metrics of your own.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&self, to: &mut impl fmt::Write) -> fmt::Result {
        text::encode_registry(to, &self.0.registry)
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

impl Observe for Prometheus {
    fn event(&self, event: &Event<'_>) {
        self.0.recorder.event(event);
    }

    fn measures(&self) -> bool {
        self.0.recorder.measures()
    }

    fn built(&self, gauges: &Gauges) {
        self.0.recorder.built(gauges);
    }

    fn has_target(&self, method: Method, name: &str) {
        self.0.recorder.has_target(method, name);
    }

    fn store_called(&self, call: &StoreCall<'_>) {
        self.0.recorder.store_called(call);
    }

    fn limit_reached(&self, limit: Limit) {
        self.0.recorder.limit_reached(limit);
    }
}

type Timers = Family<Labels, Histogram, fn() -> Histogram>;

/// The series of every instrument, in the order of `ALL`.
struct Families {
    counters: Vec<Family<Labels, counter::Counter>>,
    timers: Vec<Timers>,
}

impl Default for Families {
    fn default() -> Self {
        let timers = Timer::ALL.iter().map(|timer| match timer {
            Timer::Answer => Timers::new_with_constructor(|| Histogram::new(Timer::Answer.bounds().iter().copied())),
            _ => Timers::new_with_constructor(|| Histogram::new(Timer::Leg.bounds().iter().copied())),
        });
        Self { counters: Counter::ALL.iter().map(|_| Family::default()).collect(), timers: timers.collect() }
    }
}

impl Outlet for Families {
    fn add(&self, counter: Counter, labels: Labels) {
        self.counters[counter as usize].get_or_create(&labels).inc();
    }

    fn record(&self, timer: Timer, labels: Labels, time: Duration) {
        self.timers[timer as usize].get_or_create(&labels).observe(time.as_secs_f64());
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// Gauges, read when they are asked for.
struct ReadGauges(Arc<Servers>);

impl fmt::Debug for ReadGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGauges").finish_non_exhaustive()
    }
}

impl Collector for ReadGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read = self.0.read();
        for gauge in Gauge::ALL {
            let mut described = encoder.encode_descriptor(gauge.name(), gauge.help(), None, MetricType::Gauge)?;
            for (_, labels, value) in read.iter().filter(|(of, ..)| of == gauge) {
                // Without labels there is one series, and it has no braces.
                if *labels == Labels::none() {
                    ConstGauge::new(*value).encode(described)?;
                    break;
                }
                ConstGauge::new(*value).encode(described.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}
