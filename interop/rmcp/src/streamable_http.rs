//! The service that makes a server for every request or session.

use std::{
    any::Any,
    convert::Infallible,
    env,
    fmt::Display,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rounds::Rounds;
use rounds_http::Endpoint;
use tower_service::Service;
use upstream::{
    ServerHandler,
    transport::streamable_http_server::{
        SessionManager,
        session::local::{LocalSessionManager, SessionConfig},
        tower as real,
    },
};

pub struct StreamableHttpService<S, M = LocalSessionManager>(Lane<S, M>);

/// Who responds.
enum Lane<S, M> {
    /// rmcp, with a factory that wraps.
    Rmcp(real::StreamableHttpService<Rounds<S>, M>),
    /// The endpoint, with what the test has configured behind it.
    Over(Endpoint<Rounds<S>, M>),
    /// The endpoint by itself.
    Endpoint(Endpoint<Rounds<S>>),
}

impl<S: ServerHandler, M: SessionManager> StreamableHttpService<S, M> {
    pub fn new(
        factory: impl Fn() -> Result<S, io::Error> + Send + Sync + 'static,
        sessions: Arc<M>,
        config: real::StreamableHttpServerConfig,
    ) -> Self {
        crate::count();
        let endpoint = env::var_os("RMCP_ENDPOINT").is_some();
        if endpoint && is_default(&sessions) {
            let make = move || factory().expect("the factory makes a handler");
            let server = crate::builder(make()).per_flow(make).build().expect("the defaults fit together");
            return Self(Lane::Endpoint(Endpoint::new(&server, config)));
        }
        let first = Arc::new(Mutex::<Option<Rounds<S>>>::default());
        let wrapped = move || {
            let handler = factory()?;
            let mut first = first.lock().expect("nothing panics while it is locked");
            // A handler for each call of the factory, as without us, and one core for all of them.
            let server = match &*first {
                Some(first) => first.with_handler(handler),
                None => {
                    let server = crate::builder(handler).build().expect("the defaults fit together");
                    first.insert(server).clone()
                }
            };
            Ok(server)
        };
        if !endpoint {
            return Self(Lane::Rmcp(real::StreamableHttpService::new(wrapped, sessions, config)));
        }
        let server = wrapped().expect("the factory makes a handler");
        Self(Lane::Over(Endpoint::over(server, real::StreamableHttpService::new(wrapped, sessions, config))))
    }

    pub async fn handle<B>(&self, request: Request<B>) -> Response<BoxBody<bytes::Bytes, Infallible>>
    where
        B: Body<Data: Send, Error: Display + Send> + Send + 'static,
    {
        match self.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Whether a test has neither configured the sessions nor kept them to look at.
fn is_default<M: SessionManager>(sessions: &Arc<M>) -> bool {
    let Some(local) = (&**sessions as &dyn Any).downcast_ref::<LocalSessionManager>() else { return false };
    let untouched = format!("{:?}", local.session_config) == format!("{:?}", SessionConfig::default());
    untouched && local.event_store().is_none() && Arc::strong_count(sessions) == 1
}

impl<S, M> Clone for StreamableHttpService<S, M> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Lane::Rmcp(service) => Lane::Rmcp(service.clone()),
            Lane::Over(endpoint) => Lane::Over(endpoint.clone()),
            Lane::Endpoint(endpoint) => Lane::Endpoint(endpoint.clone()),
        })
    }
}

impl<B, S, M> Service<Request<B>> for StreamableHttpService<S, M>
where
    B: Body<Data: Send, Error: Display + Send> + Send + 'static,
    S: ServerHandler,
    M: SessionManager,
{
    type Response = Response<BoxBody<bytes::Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match &mut self.0 {
            Lane::Rmcp(service) => service.call(request),
            Lane::Over(endpoint) => endpoint.call(request),
            Lane::Endpoint(endpoint) => endpoint.call(request),
        }
    }
}
