//! Scrapes: `/metrics`, for Prometheus.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HOST},
    uri::Authority,
};
use http_body_util::Full;
use rounds::metrics::Prometheus;
use tower_service::Service;

use crate::probes::text;

/// Answers scrapes: `GET /metrics`, with the [metrics](Prometheus) of a server as text.
///
/// A [`Port`](crate::Port) serves it with `with_metrics`; in axum, mount it beside the endpoint:
///
/// ```no_run
/// # use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
/// # use rounds::{Rounds, metrics::Prometheus};
/// # use rounds_http::{Endpoint, Scrape};
/// # struct Weather;
/// # impl rmcp::ServerHandler for Weather {}
/// let metrics = Prometheus::new();
/// let server = Rounds::builder(Weather).observe(metrics.clone()).build()?;
/// let router: axum::Router = axum::Router::new()
///     .route_service("/mcp", Endpoint::new(&server, StreamableHttpServerConfig::default()))
///     .route_service("/metrics", Scrape::new(metrics));
/// # Ok::<(), rounds::BuildError>(())
/// ```
///
/// Metrics name tools and say how much they are used, so every client that reaches the path can read that: let only the
/// scraper reach it, or serve it at a port of its own. Scrapers come under an address, or under a name that only you
/// know. A request is answered if its `Host` is an IP address, `localhost`, or one of [`with_host`](Self::with_host);
/// every other one gets a 403, so that no web page can read the metrics through a host name of its own (DNS rebinding).
#[derive(Debug, Clone)]
pub struct Scrape {
    metrics: Prometheus,
    hosts: Arc<Vec<String>>,
    any_host: bool,
}

impl Scrape {
    /// Scrapes of these metrics.
    pub fn new(metrics: Prometheus) -> Self {
        Self { metrics, hosts: Arc::default(), any_host: false }
    }

    /// Answers scrapes for this host too: a name. If it has a port, the port is not compared.
    pub fn with_host(mut self, host: impl AsRef<str>) -> Self {
        let host = host.as_ref();
        let name = host.parse::<Authority>().map_or_else(|_| host.to_owned(), |host| host.host().to_owned());
        Arc::make_mut(&mut self.hosts).push(name);
        self
    }

    /// Answers scrapes for any host, which lets web pages read the metrics through DNS rebinding.
    pub fn with_any_host(mut self) -> Self {
        self.any_host = true;
        self
    }

    /// Whether a request at this path is a scrape.
    pub(crate) fn is_at(path: &str) -> bool {
        path == "/metrics"
    }

    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Bytes> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, String::new());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if !self.serves(request) {
            let why = "metrics are not served for this host: add it with `Scrape::with_host`\n";
            return text(StatusCode::FORBIDDEN, why.to_owned());
        }
        let mut response = text(StatusCode::OK, self.metrics.text());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Prometheus::CONTENT_TYPE));
        response
    }

    fn serves<B>(&self, request: &Request<B>) -> bool {
        let Some(host) = request.headers().get(HOST) else { return self.any_host || request.uri().host().is_none() };
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let is_served = |host: Authority| {
            let host = host.host();
            let is_address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
            let is_named = self.hosts.iter().any(|named| named.eq_ignore_ascii_case(host));
            is_address || host.eq_ignore_ascii_case("localhost") || is_named
        };
        self.any_host || host.is_some_and(is_served)
    }
}

impl<B> Service<Request<B>> for Scrape {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Answers a request for any other path with a 404.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = match Self::is_at(request.uri().path()) {
            true => self.answer(&request),
            false => text(StatusCode::NOT_FOUND, String::new()),
        };
        ready(Ok(response.map(Full::new)))
    }
}
