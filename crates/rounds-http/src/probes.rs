//! Probes: `/livez` and `/readyz`, for load balancers and orchestrators.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::Full;
use rounds::health::{Health, NotReady};
use tokio::{sync::Mutex, time::Instant};
use tower_service::Service;

/// Answers probes: `GET /livez` and `GET /readyz`. Clones share what they found out.
///
/// | path | 200 | 503 |
/// |---|---|---|
/// | `/livez` | always: the process answers | |
/// | `/readyz` | the server can serve legs | it is draining, or its ledger or relay cannot be reached |
///
/// A [`Port`](crate::Port) serves it with `with_probes`; in axum, mount it beside the endpoint:
///
/// ```no_run
/// # use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
/// # use rounds::Rounds;
/// # use rounds_http::{Endpoint, Probes};
/// # struct Weather;
/// # impl rmcp::ServerHandler for Weather {}
/// # let server = Rounds::new(Weather);
/// let probes = Probes::new(server.health());
/// let router: axum::Router = axum::Router::new()
///     .route_service("/mcp", Endpoint::new(&server, StreamableHttpServerConfig::default()))
///     .route_service("/livez", probes.clone())
///     .route_service("/readyz", probes);
/// ```
///
/// Probes come from inside of the network, under an address and not a host name, so the `Host` of a request is not
/// checked. The answer does not say why a store cannot be reached: the log does, when the server becomes ready and when
/// it stops being so. The store is asked once a second at most, however many probes arrive.
#[derive(Clone)]
pub struct Probes(Arc<Inner>);

struct Inner {
    health: Health,
    latest: Mutex<Option<Latest>>,
}

/// What the latest check of the store said.
struct Latest {
    at: Instant,
    unready: Option<String>,
}

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Live,
    Ready,
}

impl Probes {
    /// How long the result of a check counts.
    const FRESH: Duration = Duration::from_secs(1);

    /// Probes of the server with this health: [`Rounds::health`](rounds::Rounds::health).
    pub fn new(health: Health) -> Self {
        Self(Arc::new(Inner { health, latest: Mutex::default() }))
    }

    /// The probe at this path.
    pub(crate) fn at(method: &Method, path: &str) -> Option<Probe> {
        match path {
            _ if method != Method::GET && method != Method::HEAD => None,
            "/livez" => Some(Probe::Live),
            "/readyz" => Some(Probe::Ready),
            _ => None,
        }
    }

    pub(crate) async fn answer(&self, probe: Probe) -> Response<Bytes> {
        let unready = match probe {
            Probe::Live => None,
            Probe::Ready if self.0.health.is_draining() => Some(NotReady::Draining.to_string()),
            Probe::Ready => self.unready().await,
        };
        match unready {
            None => text(StatusCode::OK, "ok\n".to_owned()),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        }
    }

    /// Why the server is not ready, if it is not.
    async fn unready(&self) -> Option<String> {
        // Other probes wait for the check, and then take its result.
        let mut latest = self.0.latest.lock().await;
        if let Some(latest) = latest.as_ref().filter(|latest| latest.at.elapsed() < Self::FRESH) {
            return latest.unready.clone();
        }
        let was_unready = latest.as_ref().is_some_and(|latest| latest.unready.is_some());
        let checked = self.0.health.ready().await;
        match &checked {
            Err(error) if !was_unready => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(target: "rounds", error, "the server is not ready");
            }
            Ok(()) if was_unready => tracing::warn!(target: "rounds", "the server is ready again"),
            _ => {}
        }
        let unready = checked.err().map(|error| error.to_string());
        *latest = Some(Latest { at: Instant::now(), unready: unready.clone() });
        unready
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").field("health", &self.0.health).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Probes {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Answers a request for any other path with a 404.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (probes, probe) = (self.clone(), Self::at(request.method(), request.uri().path()));
        Box::pin(async move {
            let response = match probe {
                Some(probe) => probes.answer(probe).await,
                None => text(StatusCode::NOT_FOUND, String::new()),
            };
            Ok(response.map(Full::new))
        })
    }
}

pub(crate) fn text(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
