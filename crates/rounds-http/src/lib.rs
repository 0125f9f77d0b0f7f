//! One HTTP endpoint for the clients of both eras, with a fast lane for what current clients send.
//!
//! ```no_run
//! use axum::Router;
//! use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
//! use rounds::Rounds;
//! use rounds_http::Endpoint;
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> std::io::Result<()> {
//! let server = Rounds::new(Weather);
//! let config = StreamableHttpServerConfig::default().with_json_response(true);
//! // Where `server.streamable_http(config)` was:
//! let router = Router::new().route_service("/mcp", Endpoint::new(&server, config));
//! # axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8000").await?, router).await
//! # }
//! ```
//!
//! A server that has a port to itself needs no axum for that: with the feature `port`, `Port::new(listener, "/mcp").serve(endpoint, stop)`
//! is one line, and less work for every call.
//!
//! rmcp serves every request with a service loop of its own, two tasks and their channels. A request of 2026-07-28 needs none of that: its
//! handler can be called where the request came in. That is the fast lane.
//! Everything else goes, with its bytes, to the [`StreamableHttpService`] behind it.
//!
//! # What takes the fast lane
//!
//! `tools/call`, `prompts/get`, `resources/read`, the four lists, `completion/complete`, `tasks/…` and `server/discover`, of version 2026-07-28, with
//! or without a progress token, a log level or an `Origin` that is served. That is what current clients send.
//!
//! And only if there is no doubt that rmcp would accept them. A `Host` or an `Origin` that is not on the list as it is written
//! there, a header that is missing, doubled or encoded, a tool whose arguments are repeated in headers, an unknown field,
//! a body that is too large or not JSON: all that is rmcp's to look at, and what is wrong with it is rmcp's to say. The fast lane
//! has no errors of its own. What it has accepted goes through rmcp's dispatch, like every other request.
//!
//! A response is one message if nothing was sent before the result and the configuration allows JSON, and a stream from the first notification on. A handler that sends faster than its client
//! reads is slowed down: 16 KiB wait at most, or 1 MiB for a handler that does not wait for what it sends, which then gets an error.
//!
//! # What is different
//!
//! Status, headers and body are equal: a test sends requests by the thousand both ways, broken in every way there is. On purpose,
//! five things are not the same.
//!
//! - **A panic is answered**, with `-32603`. rmcp leaves the client waiting. (Handlers in [`Rounds`] are caught by it in both
//!   lanes.)
//! - **A stray notification goes nowhere**: one other than progress with the request's token, unless the request has a log level and the server declares that it logs. The protocol has
//!   no place for it. rmcp would turn the response into a stream for it.
//! - **A handler gets another progress token** than the client has sent: a number that no other request has. The client gets its own back.
//! - **A peer that was kept stays open.** A handler that keeps the `peer` of a request beyond its answer can send to
//!   it, and no client gets it. With rmcp that is an error.
//! - **The members of a question come in another order**: rmcp sorts them. Questions and the fields of a form are in the order in which
//!   they are to be shown, in both lanes: see [`rounds::order`].
//!
//! The handler's token is cancelled as with rmcp: when the answer is there, when the client is gone, and when the server stops. A
//! handler that is told so goes on in a task of its own, to its end, for as long as the runtime does. Only one that has asked is dropped
//! when its [grace period](rounds::Limits::grace) is over.

mod accept;
mod dispatch;
mod events;
mod json;
mod line;
mod log;
mod order;
mod origin;
#[cfg(feature = "port")]
mod port;
mod print;
mod probe;
mod probes;
#[cfg(feature = "metrics")]
mod scrape;
mod stream;
#[cfg(feature = "webhook")]
mod webhook;

use std::{
    convert::Infallible,
    fmt::{self, Debug, Display},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{SessionManager, StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::{Rounds, http::Sessions};

#[cfg(feature = "port")]
pub use crate::port::{Incoming, Port};
pub use crate::probes::Probes;
#[cfg(feature = "metrics")]
pub use crate::scrape::Scrape;
#[cfg(feature = "webhook")]
pub use crate::webhook::{Webhook, WebhookSetupError};
use crate::{
    accept::Read,
    dispatch::{BoxResponse, Form},
    json::Counted,
    line::Switchboard,
};

/// A server over HTTP, for axum, hyper and whatever else is built on tower. Clones are the same endpoint.
///
/// It responds as rmcp's [`StreamableHttpService`] does in the same configuration, and sooner where it can: see the
/// [crate](self).
pub struct Endpoint<H, M = Sessions> {
    lanes: Arc<Lanes<H, M>>,
    serves_any_origin: bool,
    json_values: usize,
}

impl<H: ServerHandler> Endpoint<Rounds<H>> {
    /// The server, as [`Rounds::streamable_http`] would serve it.
    ///
    /// Of requests with an `Origin`, which browsers send, those are served that come from the server itself (the origin is the request's own `Host`) or
    /// from one of the [`allowed_origins`](StreamableHttpServerConfig::allowed_origins). Where the `Host` is a loopback name, pages from a
    /// loopback name are served too, at any port. All others get a 403, in both lanes, unless [`with_any_origin`](Self::with_any_origin) serves them.
    /// Requests without an `Origin` are not concerned.
    pub fn new(server: &Rounds<H>, mut config: StreamableHttpServerConfig) -> Self {
        let mut rmcp = server.streamable_http(config.clone());
        config.legacy_session_mode = rmcp.config.legacy_session_mode;
        // Both share sessions and handlers. What is wrong with a foreign origin is rmcp's to say.
        let mut foreign = rmcp.clone();
        foreign.config = config.clone().enforce_origin_validation();
        rmcp.config = config.disable_allowed_origins();
        Self::with(server.clone(), rmcp, Some(foreign))
    }

    /// The probes of the server, to be mounted beside the endpoint.
    pub fn probes(&self) -> Probes {
        Probes::new(self.lanes.handler.health())
    }
}

impl<H: ServerHandler, M: SessionManager> Endpoint<H, M> {
    /// Any handler, with the service that serves it as it is. Where requests meet a clone of the handler there, they meet this
    /// one in the fast lane, and so clones have to share what they know.
    ///
    /// If its session manager has a store for events, requests that may be answered with a stream are the service's: all of them without
    /// [`json_response`](StreamableHttpServerConfig::json_response), and otherwise those with a progress token or a log level.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use rmcp::transport::streamable_http_server::{
    /// #     StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    /// # };
    /// # use rounds_http::Endpoint;
    /// # #[derive(Clone)]
    /// # struct Weather;
    /// # impl rmcp::ServerHandler for Weather {}
    /// let server = Weather;
    /// let config = StreamableHttpServerConfig::default().with_json_response(true);
    /// let served = server.clone();
    /// let service = StreamableHttpService::new(move || Ok(served.clone()), Arc::<LocalSessionManager>::default(), config);
    /// let endpoint = Endpoint::over(server, service);
    /// # let _ = endpoint;
    /// ```
    pub fn over(handler: H, rmcp: StreamableHttpService<H, M>) -> Self {
        Self::with(handler, rmcp, None)
    }

    fn with(handler: H, rmcp: StreamableHttpService<H, M>, foreign: Option<StreamableHttpService<H, M>>) -> Self {
        let may_stream = !probe::may_keep_events(&rmcp);
        let form = match rmcp.config.json_response {
            true => Some(Form::Json),
            false => may_stream.then_some(Form::EventStream),
        };
        let lanes = Lanes {
            handler: Arc::new(handler),
            switchboard: Switchboard::default(),
            looks_at_origins: foreign.is_some() || !probe::serves_any_origin(&rmcp),
            rmcp,
            foreign,
            form,
            may_stream,
        };
        Self { lanes: Arc::new(lanes), serves_any_origin: false, json_values: JSON_VALUES }
    }

    /// Sets how many JSON values a request may have: 50,000 by default. Strings, numbers, literals, arrays, objects and keys
    /// count as one each. They are counted before any of them is built, in both lanes, and a request with more gets a 413.
    ///
    /// With the default, a request takes less than 96 MiB while it is read, whatever is in it, with a body of up to 4 MiB
    /// ([`max_request_body_bytes`](StreamableHttpServerConfig::max_request_body_bytes)). Both limits together bound it: in rmcp's lane a value takes up to a kilobyte.
    pub fn with_json_values(mut self, limit: usize) -> Self {
        self.json_values = limit;
        self
    }

    /// Serves pages of any origin. Use it only where a request proves by itself that its user wants it, such as with a bearer token, and never for a server that
    /// trusts a cookie, a client certificate or the network that it is in: any page that a user visits could then call its tools.
    pub fn with_any_origin(mut self) -> Self {
        self.serves_any_origin = true;
        self
    }
}

impl<H, M> Clone for Endpoint<H, M> {
    fn clone(&self) -> Self {
        Self { lanes: self.lanes.clone(), ..*self }
    }
}

impl<H, M> Debug for Endpoint<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("config", &self.lanes.rmcp.config).finish_non_exhaustive()
    }
}

impl<H, M, B> tower_service::Service<Request<B>> for Endpoint<H, M>
where
    H: ServerHandler,
    M: SessionManager,
    B: Body<Data: Send, Error: Display + Send> + Send + 'static,
{
    type Response = BoxResponse;
    type Error = Infallible;
    type Future = Responding;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (lanes, json_values) = (self.lanes.clone(), self.json_values);
        let config = &lanes.rmcp.config;
        let is_served = |origin: &str| {
            // A service that was made elsewhere decides for itself.
            (self.serves_any_origin && lanes.foreign.is_some()) || lanes.serves(origin, &request)
        };
        let fast = lanes.form.and_then(|form| Some((form, accept::head(&request, config, is_served)?)));
        let Some((form, method)) = fast else {
            let is_own = self.serves_any_origin || origin::is_own(request.uri(), request.headers());
            return slow(lanes, request, is_own, json_values);
        };
        let (head, body) = request.into_parts();
        let limit = config.max_request_body_bytes;
        dispatch::boxed(|| async move {
            let body = Read::up_to(limit, body).await;
            if body.whole().is_some_and(|body| json::exceeds(body, json_values)) {
                return Ok(json::too_many(json_values));
            }
            Ok(match lanes.accept(head, body, method, form) {
                Ok(answer) => answer.await,
                // What is not whole, rmcp does not parse.
                Err(request) => return read(lanes.clone(), *request).await,
            })
        })
    }
}

type Responding = Pin<Box<dyn Future<Output = Result<BoxResponse, Infallible>> + Send>>;

/// Has rmcp respond to a request whose body is still to be read. Not within the fast lane, whose every request would have the room on the
/// stack that this takes.
#[inline(never)]
fn slow<H, M, B>(lanes: Arc<Lanes<H, M>>, request: Request<B>, is_own: bool, json_values: usize) -> Responding
where
    H: ServerHandler,
    M: SessionManager,
    B: Body<Data: Send, Error: Display + Send> + Send + 'static,
{
    let (request, exceeded) = Counted::request(request, json_values);
    Box::pin(async move {
        let foreign = lanes.foreign.as_ref().filter(|_| !is_own);
        let response = foreign.unwrap_or(&lanes.rmcp).handle(erased(request)).await;
        Ok(if exceeded.is_set() { json::too_many(json_values) } else { order::in_order(response) })
    })
}

/// Has rmcp respond to a request whose body was read.
#[inline(never)]
fn read<H, M, B>(lanes: Arc<Lanes<H, M>>, request: Request<Read<B>>) -> Responding
where
    H: ServerHandler,
    M: SessionManager,
    B: Body<Data: Send, Error: Display + Send> + Send + 'static,
{
    Box::pin(async move { Ok(order::in_order(lanes.rmcp.handle(erased(request)).await)) })
}

/// A request whose body has one type wherever it came from. What rmcp does with a request is a lot of code for each type of body.
fn erased<B>(request: Request<B>) -> Request<UnsyncBoxBody<Bytes, String>>
where
    B: Body<Data = Bytes, Error: Display> + Send + 'static,
{
    request.map(|body| body.map_err(|error| error.to_string()).boxed_unsync())
}

/// How many JSON values a request may have, unless it is set.
const JSON_VALUES: usize = 50_000;

struct Lanes<H, M> {
    handler: Arc<H>,
    switchboard: Switchboard,
    rmcp: StreamableHttpService<H, M>,
    /// The same service for pages of other origins, which looks whether they are on its list. Without one, that is for `rmcp`.
    foreign: Option<StreamableHttpService<H, M>>,
    looks_at_origins: bool,
    /// `None` means that there is no fast lane.
    form: Option<Form>,
    /// Whether the fast lane may answer with a stream of several events.
    may_stream: bool,
}

impl<H: ServerHandler, M: SessionManager> Lanes<H, M> {
    /// Whether there is no doubt that rmcp serves pages of this origin.
    fn serves<B>(&self, origin: &str, request: &Request<B>) -> bool {
        match &self.foreign {
            Some(foreign) => {
                origin::is_own(request.uri(), request.headers())
                    || origin::is_listed(origin, &foreign.config.allowed_origins)
            }
            None => !self.looks_at_origins || origin::is_listed(origin, &self.rmcp.config.allowed_origins),
        }
    }

    /// What answers a request in the fast lane, or the request for rmcp.
    fn accept<B: Body>(
        &self,
        head: Parts,
        body: Read<B>,
        method: &'static str,
        form: Form,
    ) -> Result<impl Future<Output = BoxResponse> + Send + use<'_, H, M, B>, Box<Request<Read<B>>>> {
        let config = &self.rmcp.config;
        let whole = body.whole().filter(|_| !config.cancellation_token.is_cancelled());
        let accepted =
            whole.and_then(|body| accept::body(body, method, &head.headers, &*self.handler, self.may_stream));
        let Some(mut accepted) = accepted else { return Err(Request::from_parts(head, body).into()) };
        let line = self.switchboard.line(&mut accepted.meta, &*self.handler);
        Ok(dispatch::answer(self.handler.clone(), line, accepted, head, config, form))
    }
}
