//! The outlet for OpenTelemetry: the instruments of a meter, which an exporter reads.

use std::{fmt, sync::Arc, time::Duration};

use opentelemetry::{
    KeyValue, StringValue,
    metrics::{self, Histogram, Meter},
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

/// Metrics for OpenTelemetry. Clones count into the same metrics.
///
/// Make it with a meter of your application, and register it with
/// [`RoundsBuilder::observe`](crate::RoundsBuilder::observe). Names begin with `rounds.`, such as `rounds.flows`; times
/// are histograms in seconds, such as `rounds.leg_duration`. The metrics and labels are those of `Prometheus`.
#[derive(Clone)]
pub struct OpenTelemetry(Arc<Recorder<Instruments>>);

impl OpenTelemetry {
    /// Metrics that this meter records.
    pub fn new(meter: &Meter) -> Self {
        let servers = Arc::new(Servers::default());
        for gauge in Gauge::ALL {
            let servers = servers.clone();
            let name = format!("rounds.{}", gauge.name());
            meter
                .f64_observable_gauge(name)
                .with_description(gauge.help())
                .with_callback(move |observer| {
                    for (_, labels, value) in servers.read().iter().filter(|(of, ..)| of == gauge) {
                        observer.observe(*value, &attributes(labels));
                    }
                })
                .build();
        }
        Self(Arc::new(Recorder::new(Instruments::of(meter), servers)))
    }
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetry").finish_non_exhaustive()
    }
}

impl Observe for OpenTelemetry {
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
    }

    fn measures(&self) -> bool {
        self.0.measures()
    }

    fn built(&self, gauges: &Gauges) {
        self.0.built(gauges);
    }

    fn has_target(&self, method: Method, name: &str) {
        self.0.has_target(method, name);
    }

    fn store_called(&self, call: &StoreCall<'_>) {
        self.0.store_called(call);
    }

    fn limit_reached(&self, limit: Limit) {
        self.0.limit_reached(limit);
    }
}

/// The instruments, in the order of `ALL`.
struct Instruments {
    counters: Vec<metrics::Counter<u64>>,
    timers: Vec<Histogram<f64>>,
}

impl Instruments {
    fn of(meter: &Meter) -> Self {
        let counter = |counter: &Counter| {
            meter.u64_counter(format!("rounds.{}", counter.name())).with_description(counter.help()).build()
        };
        let timer = |timer: &Timer| {
            let histogram = meter.f64_histogram(format!("rounds.{}", timer.name())).with_description(timer.help());
            histogram.with_unit("s").with_boundaries(timer.bounds().to_vec()).build()
        };
        Self { counters: Counter::ALL.iter().map(counter).collect(), timers: Timer::ALL.iter().map(timer).collect() }
    }
}

impl Outlet for Instruments {
    fn add(&self, counter: Counter, labels: Labels) {
        self.counters[counter as usize].add(1, &attributes(&labels));
    }

    fn record(&self, timer: Timer, labels: Labels, time: Duration) {
        self.timers[timer as usize].record(time.as_secs_f64(), &attributes(&labels));
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| KeyValue::new(key, StringValue::from(value.to_owned()))).collect()
}
