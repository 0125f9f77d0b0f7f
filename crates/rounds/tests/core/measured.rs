//! Observers that measure, and the metrics that OpenTelemetry gets.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{Desk, Visit, sell, shop, small};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{AggregatedMetrics, MetricData},
};
use rounds::{
    Rounds,
    metrics::OpenTelemetry,
    observe::{Event, Gauges, Limit, Method, Observe, Station, StoreCall},
    test::Client,
};
use serde_json::json;

/// The values of all series, by name and labels: sums, gauges, and the number of measurements of histograms.
fn exported(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> BTreeMap<String, f64> {
    exporter.reset();
    provider.force_flush().unwrap();
    let mut series = BTreeMap::new();
    for resource in exporter.get_finished_metrics().unwrap() {
        for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
            let mut add = |labels: Vec<String>, value: f64| {
                series.insert(format!("{}{{{}}}", metric.name(), labels.join(",")), value);
            };
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    sum.data_points().for_each(|point| add(labels(point.attributes()), point.value() as f64));
                }
                AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                    gauge.data_points().for_each(|point| add(labels(point.attributes()), point.value()));
                }
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    assert_eq!(metric.unit(), "s");
                    histogram.data_points().for_each(|point| add(labels(point.attributes()), point.count() as f64));
                }
                other => panic!("{}: {other:?}", metric.name()),
            }
        }
    }
    series
}

fn labels<'a>(attributes: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> Vec<String> {
    let mut labels: Vec<_> = attributes.map(|label| format!("{}={}", label.key, label.value)).collect();
    labels.sort();
    labels
}

#[tokio::test]
async fn the_meter_of_an_exporter_gets_the_same_metrics() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let metrics = OpenTelemetry::new(&provider.meter("test"));
    let server = Rounds::builder(shop()).observe(metrics).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("order", json!({})).await.asked();
    let _ = asked.accept("size", small()).send(&client).await.text();
    asked.decline("size").send(&client).await.frozen();
    let series = exported(&provider, &exporter);
    let order = "method=tools/call,target=other";
    for (name, value) in [
        (format!("rounds.flows_started{{{order}}}"), 1.0),
        ("rounds.flows{method=tools/call,outcome=complete,target=other}".to_owned(), 1.0),
        (format!("rounds.rounds{{{order}}}"), 1.0),
        ("rounds.refusals{reason=answered_otherwise}".to_owned(), 1.0),
        ("rounds.claims{of=round,outcome=fresh}".to_owned(), 1.0),
        (format!("rounds.answer_duration{{{order}}}"), 1.0),
        (format!("rounds.leg_duration{{{order}}}"), 3.0),
        ("rounds.station_duration{station=ended}".to_owned(), 3.0),
        ("rounds.store_duration{step=settle}".to_owned(), 1.0),
        ("rounds.waiting_handlers{}".to_owned(), 0.0),
        ("rounds.limit{limit=waiting_handlers}".to_owned(), 10_000.0),
    ] {
        assert_eq!(series.get(&name), Some(&value), "{name} in {series:#?}");
    }
}

/// Records what only observers that measure receive.
#[derive(Clone, Default)]
struct Measuring {
    measures: bool,
    received: Arc<Mutex<Vec<String>>>,
}

impl Measuring {
    fn note(&self, what: String) {
        self.received.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }
}

impl Observe for Measuring {
    fn event(&self, event: &Event<'_>) {
        if let Station::Ended(_) = event.station {
            self.note(format!("ended, timed: {}, ends the flow: {}", event.elapsed.is_some(), event.ends_flow));
        }
    }

    fn measures(&self) -> bool {
        self.measures
    }

    fn built(&self, gauges: &Gauges) {
        self.note(format!("built, {} wait", gauges.read().unwrap().waiting_handlers));
    }

    fn has_target(&self, method: Method, name: &str) {
        self.note(format!("has {method} {name}"));
    }

    fn store_called(&self, call: &StoreCall<'_>) {
        self.note(format!("{} {:?}", call.step, call.claim.map(|claim| claim.outcome.as_str())));
    }

    fn limit_reached(&self, limit: Limit) {
        self.note(format!("limit {}", limit.as_str()));
    }
}

#[tokio::test]
async fn an_observer_that_does_not_measure_gets_events_without_times_and_nothing_else() {
    for measures in [false, true] {
        let observer = Measuring { measures, ..Measuring::default() };
        let server = Rounds::builder(shop()).observe(observer.clone()).build().unwrap();
        let client = Client::modern(server).await;
        let asked = client.call("order", json!({})).await.asked();
        let _ = asked.accept("size", small()).send(&client).await.text();
        let expected: &[&str] = match measures {
            false => &["ended, timed: false, ends the flow: false", "ended, timed: false, ends the flow: true"],
            true => &[
                "built, 0 wait",
                "ended, timed: true, ends the flow: false",
                "claim Some(\"fresh\")",
                "settle None",
                "ended, timed: true, ends the flow: true",
            ],
        };
        assert_eq!(observer.take(), expected);
    }
}

#[tokio::test]
async fn the_end_of_a_flow_is_told_once_however_it_ends() {
    let desk = Desk::new(|turn| async move {
        match &*turn.target {
            "panics" => panic!("on purpose"),
            "fails" => Err(rounds::FlowError::failed("on purpose")),
            "retries" => Err(rounds::FlowError::retry("on purpose")),
            _ => sell(&turn),
        }
    });
    let observer = Measuring::default();
    let stage = Visit::with(desk, |builder| builder.observe(observer.clone())).await;
    let ends = || {
        let received = observer.take();
        received.iter().filter(|what| what.ends_with("ends the flow: true")).count()
    };
    for (tool, ended) in [("panics", 1), ("fails", 1), ("retries", 1)] {
        let _ = stage.client.call(tool, json!({})).await;
        assert_eq!(ends(), ended, "{tool}: the client has no state to go on with");
    }
    let asked = stage.order().await;
    assert_eq!(ends(), 0);
    asked.retry().with("requestState", json!("r1.forged")).send(&stage.client).await.frozen();
    assert_eq!(ends(), 0, "a refused state is not the end of its flow");
    for ended in [1, 0] {
        let _ = asked.accept("size", small()).send(&stage.client).await.text();
        assert_eq!(ends(), ended, "a retry gets the reply and ends nothing");
    }
    stage.clock.advance(Duration::from_secs(1));
}
