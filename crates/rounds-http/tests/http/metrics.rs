//! Metrics: what a scraper reads, over real sockets, and what a client cannot add to it.

use std::{
    collections::BTreeSet,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use gallery::Gallery;
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use prometheus_parse::{Sample, Value};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::{
    Limits, Rounds, RoundsBuilder,
    ledger::{ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    metrics::Prometheus,
    test::{Client, Clock},
    time::{BoxFuture, Timestamp},
};
use rounds_http::{Endpoint, Port, Scrape};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

/// A server of the gallery at a port that serves its metrics.
struct Scraped {
    server: Rounds<Gallery>,
    clock: Clock,
    address: SocketAddr,
}

impl Scraped {
    async fn new(configure: impl FnOnce(RoundsBuilder<Gallery>) -> RoundsBuilder<Gallery>) -> Self {
        let (metrics, clock) = (Prometheus::new(), Clock::new());
        let builder = gallery::rounds().clock(clock.clone()).observe(metrics.clone());
        let server = configure(builder).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Endpoint::new(&server, StreamableHttpServerConfig::default());
        let port = Port::new(listener, "/mcp").with_metrics(Scrape::new(metrics).with_host("metrics.example.com"));
        tokio::spawn(port.serve(endpoint, pending()));
        Self { server, clock, address }
    }

    async fn get(&self, host: &str, method: Method) -> (StatusCode, Option<String>, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri("/metrics").header("host", host);
        let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// What a scraper reads.
    async fn scrape(&self) -> Series {
        let (status, kind, text) = self.get("10.1.2.3:9000", Method::GET).await;
        assert_eq!((status, kind.as_deref()), (StatusCode::OK, Some(Prometheus::CONTENT_TYPE)));
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        Series { samples: prometheus_parse::Scrape::parse(lines).unwrap().samples, text }
    }
}

/// The series of a scrape.
struct Series {
    samples: Vec<Sample>,
    text: String,
}

impl Series {
    /// The value of a series, or the number of measurements of a histogram. Zero if there is none.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let is_wanted = |sample: &&Sample| {
            sample.metric == name && labels.iter().all(|(key, value)| sample.labels.get(key) == Some(*value))
        };
        self.samples.iter().filter(is_wanted).map(|sample| number(&sample.value)).sum()
    }

    /// The names and labels of all series, without their values.
    fn names(&self) -> BTreeSet<String> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => *value,
        // The last bucket holds all measurements.
        Value::Histogram(buckets) => buckets.last().map_or(0.0, |bucket| bucket.count),
        Value::Summary(_) => 0.0,
    }
}

fn metric() -> serde_json::Value {
    json!({"units": "metric"})
}

#[tokio::test]
async fn a_linear_flow_counts_from_its_start_to_its_end() {
    let scraped = Scraped::new(|builder| builder).await;
    let client = Client::modern(scraped.server.clone()).await;
    let tool = [("method", "tools/call"), ("target", "weather_h")];

    let asked = client.call("weather_h", json!({"location": "Tokyo"})).await.asked();
    let waiting = scraped.scrape().await;
    assert_eq!(waiting.value("rounds_flows_started_total", &tool), 1.0);
    assert_eq!(waiting.value("rounds_rounds_total", &tool), 1.0);
    assert_eq!(waiting.value("rounds_questions_total", &[tool[0], tool[1], ("way", "asked")]), 1.0);
    assert_eq!(waiting.value("rounds_waiting_handlers", &[]), 1.0);
    assert!(waiting.value("rounds_waiting_bytes", &[]) > 1000.0);
    assert_eq!(waiting.value("rounds_limit", &[("limit", "waiting_handlers")]), 10_000.0);
    assert_eq!(waiting.value("rounds_flows_total", &[]), 0.0, "it has not ended");

    scraped.clock.advance(Duration::from_secs(42));
    assert_eq!(scraped.scrape().await.value("rounds_oldest_wait_seconds", &[]), 42.0);
    let answer = asked.accept("units", metric());
    let _ = answer.send(&client).await.text();
    let ended = scraped.scrape().await;
    assert_eq!(ended.value("rounds_flows_total", &[tool[0], tool[1], ("outcome", "complete")]), 1.0);
    assert_eq!(ended.value("rounds_legs_total", &[tool[0], tool[1], ("outcome", "input_required")]), 1.0);
    assert_eq!(ended.value("rounds_legs_total", &[tool[0], tool[1], ("outcome", "complete")]), 1.0);
    assert_eq!(ended.value("rounds_answer_duration_seconds_sum", &tool), 42.0, "the person took so long");
    assert_eq!(ended.value("rounds_answer_duration_seconds", &tool), 1.0);
    assert_eq!(ended.value("rounds_leg_duration_seconds", &tool), 2.0);
    for station in ["started", "asked", "opened", "claimed", "resumed"] {
        assert_eq!(ended.value("rounds_station_duration_seconds", &[("station", station)]), 1.0, "{station}");
    }
    assert_eq!(ended.value("rounds_station_duration_seconds", &[("station", "ended")]), 2.0);
    assert_eq!(ended.value("rounds_claims_total", &[("of", "round"), ("outcome", "fresh")]), 1.0);
    for step in ["claim", "settle"] {
        assert_eq!(ended.value("rounds_store_duration_seconds", &[("step", step)]), 1.0, "{step}");
    }
    assert_eq!(ended.value("rounds_waiting_handlers", &[]), 0.0);

    let _ = answer.send(&client).await.text();
    asked.decline("units").send(&client).await.frozen();
    let again = scraped.scrape().await;
    assert_eq!(again.value("rounds_flows_total", &[]), 1.0, "a retry is not another flow");
    assert_eq!(again.value("rounds_station_duration_seconds", &[("station", "replayed")]), 1.0);
    assert_eq!(again.value("rounds_claims_total", &[("outcome", "done")]), 1.0);
    assert_eq!(again.value("rounds_claims_total", &[("outcome", "answered_otherwise")]), 1.0);
    assert_eq!(again.value("rounds_refusals_total", &[("reason", "answered_otherwise")]), 1.0);
    assert_eq!(again.value("rounds_answer_duration_seconds", &tool), 1.0, "the answers arrived once");
}

#[tokio::test]
async fn effects_are_counted_when_they_run_and_when_they_are_replayed() {
    let scraped = Scraped::new(|builder| builder).await;
    let client = Client::modern(scraped.server.clone()).await;
    for tool in ["weather_f", "weather_i"] {
        let asked = client.call(tool, json!({"location": "Tokyo"})).await.asked();
        let key = asked.keys()[0].to_owned();
        let _ = asked.accept(&key, metric()).send(&client).await.text();
        let series = scraped.scrape().await;
        for result in ["run", "replayed"] {
            assert_eq!(
                series.value("rounds_effects_total", &[("target", tool), ("result", result)]),
                1.0,
                "{tool} {result}\n{}",
                series.text
            );
        }
    }
}

#[tokio::test]
async fn a_pushed_question_counts_with_the_time_that_its_answer_took() {
    let scraped = Scraped::new(|builder| builder).await;
    let client = Client::legacy(scraped.server.clone()).await;
    let call = client.start("tools/call", json!({"name": "weather_h", "arguments": {"location": "Tokyo"}})).await;
    let pushed = client.pushed().await.unwrap();
    scraped.clock.advance(Duration::from_secs(7));
    pushed.answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    let _ = call.finish().await.text();
    let series = scraped.scrape().await;
    let tool = ("target", "weather_h");
    assert_eq!(series.value("rounds_questions_total", &[tool, ("way", "pushed")]), 1.0);
    assert_eq!(series.value("rounds_answer_duration_seconds_sum", &[tool]), 7.0);
    assert_eq!(series.value("rounds_flows_total", &[tool, ("outcome", "complete")]), 1.0);
}

#[tokio::test]
async fn a_handler_that_nobody_answers_is_a_flow_that_expired() {
    let scraped = Scraped::new(|builder| builder).await;
    let client = Client::modern(scraped.server.clone()).await;
    let _ = client.call("weather_h", json!({"location": "Tokyo"})).await.asked();
    scraped.clock.until_asleep(1).await;
    scraped.clock.advance(Duration::from_secs(3601));
    while scraped.server.waiting_calls() > 0 {
        tokio::task::yield_now().await;
    }
    let series = scraped.scrape().await;
    assert_eq!(series.value("rounds_flows_total", &[("target", "weather_h"), ("outcome", "expired")]), 1.0);
}

#[tokio::test]
async fn limits_that_are_reached_are_counted_by_their_name() {
    let limits = Limits::default().with_frames(1, 1).with_rounds(1);
    let scraped = Scraped::new(|builder| builder.limits(limits)).await;
    let client = Client::modern(scraped.server.clone()).await;
    let place = json!({"location": "Tokyo"});
    let asked = client.call("weather_h", place.clone()).await.asked();
    assert!(client.call("weather_h", place).await.is_tool_error());
    // A question that the person leaves open is asked again, which is a second round.
    let _ = asked.retry().send(&client).await;
    let series = scraped.scrape().await;
    for limit in ["waiting_handlers", "rounds"] {
        assert_eq!(series.value("rounds_limits_reached_total", &[("limit", limit)]), 1.0, "{limit}\n{}", series.text);
    }
}

#[tokio::test]
async fn a_store_that_fails_is_counted_by_step_and_reason() {
    let ledger = Failing::default();
    let scraped = Scraped::new(|builder| builder.ledger(ledger.clone())).await;
    let client = Client::modern(scraped.server.clone()).await;
    let asked = client.call("weather_e", json!({"location": "Tokyo"})).await.asked();
    ledger.is_full.store(true, Ordering::Relaxed);
    let _ = asked.accept("units", metric()).send(&client).await.error();
    ledger.is_away.store(true, Ordering::Relaxed);
    let _ = asked.accept("units", metric()).send(&client).await.error();
    let series = scraped.scrape().await;
    for reason in ["full", "unavailable"] {
        let labels = [("step", "claim"), ("reason", reason)];
        assert_eq!(series.value("rounds_store_failures_total", &labels), 1.0, "{reason}");
    }
    assert_eq!(series.value("rounds_limits_reached_total", &[("limit", "store")]), 1.0);
    assert_eq!(series.value("rounds_legs_total", &[("outcome", "internal_error")]), 2.0);
    assert_eq!(series.value("rounds_flows_total", &[]), 0.0, "the client may send the request again");
}

#[tokio::test]
async fn a_draining_server_says_so() {
    let scraped = Scraped::new(|builder| builder).await;
    assert_eq!(scraped.scrape().await.value("rounds_draining", &[]), 0.0);
    scraped.server.health().drain(Duration::ZERO).await;
    assert_eq!(scraped.scrape().await.value("rounds_draining", &[]), 1.0);
}

/// The attack: names cost a client nothing, and every series costs the server and its scraper memory for ever.
#[tokio::test]
async fn ten_thousand_names_that_a_client_makes_up_add_no_series() {
    let scraped = Scraped::new(|builder| builder).await;
    let client = Client::modern(scraped.server.clone()).await;
    let made_up = async |number: usize| {
        let name = format!("tool-{number}\" 1\n{{}}\\");
        let _ = client.call(&name, json!({})).await;
        if number.is_multiple_of(20) {
            let _ = client.prompt(&name, json!({})).await;
            let _ = client.read(&format!("weather://{name}")).await;
            let state = json!({"name": name, "arguments": {}, "requestState": "r1.forged"});
            client.request("tools/call", state).await.frozen();
        }
    };
    made_up(0).await;
    let before = scraped.scrape().await;
    for number in 1..=10_000 {
        made_up(number).await;
    }
    let after = scraped.scrape().await;
    assert_eq!(after.names(), before.names());
    let other = [("method", "tools/call"), ("target", "other")];
    assert_eq!(after.value("rounds_leg_duration_seconds", &other), 10_001.0 + 501.0, "they were counted");
}

#[tokio::test]
async fn metrics_are_not_served_under_a_host_name_that_a_web_page_could_have() {
    let scraped = Scraped::new(|builder| builder).await;
    for host in
        ["127.0.0.1", "[::1]:9000", "10.0.0.7:80", "localhost:8000", "metrics.example.com", "METRICS.example.com:1"]
    {
        assert_eq!(scraped.get(host, Method::GET).await.0, StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "metrics.example.com.evil"] {
        let (status, _, body) = scraped.get(host, Method::GET).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{host}");
        assert!(!body.contains("rounds_"), "{body}");
    }
    assert_eq!(scraped.get("127.0.0.1", Method::POST).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(scraped.get("127.0.0.1", Method::HEAD).await.0, StatusCode::OK);
}

/// A ledger that can be full, or away.
#[derive(Clone, Default)]
struct Failing {
    ledger: MemoryLedger,
    is_full: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
}

impl Failing {
    fn or_fails<'a, T>(&self, step: BoxFuture<'a, Result<T, LedgerError>>) -> BoxFuture<'a, Result<T, LedgerError>>
    where
        T: Send + 'a,
    {
        if self.is_away.load(Ordering::Relaxed) {
            return Box::pin(async { Err(LedgerError::Unavailable("NOPERM".into())) });
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Box::pin(async { Err(LedgerError::Full { whose: "all records", limit: 1 }) });
        }
        step
    }
}

impl Ledger for Failing {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.or_fails(self.ledger.spill(spill))
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.or_fails(self.ledger.claim(id, request))
    }

    fn renew(&self, id: ClaimId, fence: Fence, until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.or_fails(self.ledger.renew(id, fence, until))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.or_fails(self.ledger.settle(id, fence, reply, spill, spent))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.or_fails(self.ledger.release(id, fence, orphan, unless_awaited))
    }
}
