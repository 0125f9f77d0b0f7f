//! One HTTP endpoint for the clients of both eras.

mod accept;
mod dispatch;

use std::{
    convert::Infallible,
    fmt::{self, Debug, Display},
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use http::Request;
use http_body::Body;
use rmcp::{
    RoleServer, ServerHandler,
    service::RunningService,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::{SessionManager, local::LocalSessionManager},
    },
};
use rounds::Rounds;

use crate::{
    accept::Read,
    dispatch::{BoxResponse, Form, Nobody},
};

/// An rmcp server over HTTP.
pub struct Endpoint<H, M = LocalSessionManager> {
    lanes: Arc<Lanes<H, M>>,
}

impl<H: ServerHandler> Endpoint<Rounds<H>> {
    /// A server with rounds.
    pub fn new(server: &Rounds<H>, config: StreamableHttpServerConfig) -> Self {
        let form = if config.json_response { Form::Json } else { Form::EventStream };
        Self::with(server.clone(), server.streamable_http(config), Some(form))
    }
}

impl<H: ServerHandler, M: SessionManager> Endpoint<H, M> {
    /// Any handler over the service that rmcp serves it with.
    pub fn over(handler: H, rmcp: StreamableHttpService<H, M>) -> Self {
        // In a stream, the events may have to be kept: whether there is a store for them is not for others to see.
        let form = rmcp.config.json_response.then_some(Form::Json);
        Self::with(handler, rmcp, form)
    }

    fn with(handler: H, rmcp: StreamableHttpService<H, M>, form: Option<Form>) -> Self {
        Self { lanes: Arc::new(Lanes { handler: Arc::new(handler), idle: OnceLock::new(), rmcp, form }) }
    }
}

impl<H, M> Clone for Endpoint<H, M> {
    fn clone(&self) -> Self {
        Self { lanes: self.lanes.clone() }
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
    type Future = Pin<Box<dyn Future<Output = Result<BoxResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let lanes = self.lanes.clone();
        Box::pin(async move { Ok(lanes.serve(request).await) })
    }
}

struct Lanes<H, M> {
    handler: Arc<H>,
    /// Started by the first request, as it takes a runtime.
    idle: OnceLock<RunningService<RoleServer, Nobody>>,
    rmcp: StreamableHttpService<H, M>,
    /// `None` is no fast lane.
    form: Option<Form>,
}

impl<H: ServerHandler, M: SessionManager> Lanes<H, M> {
    async fn serve<B>(&self, request: Request<B>) -> BoxResponse
    where
        B: Body<Data: Send, Error: Display + Send> + Send + 'static,
    {
        let config = &self.rmcp.config;
        let stop = &config.cancellation_token;
        let form = self.form.filter(|_| accept::head(&request, config));
        let Some(form) = form else {
            // Boxed, here and below, as it is larger than everything else together.
            return Box::pin(self.rmcp.handle(request)).await;
        };
        let (head, body) = request.into_parts();
        let body = Read::up_to(config.max_request_body_bytes, body).await;
        let whole = body.whole().filter(|_| !stop.is_cancelled());
        let accepted = whole.and_then(|body| accept::body(body, &head, &*self.handler));
        let Some(accepted) = accepted else {
            return Box::pin(self.rmcp.handle(Request::from_parts(head, body))).await;
        };
        let peer = self.idle.get_or_init(dispatch::idle).peer().clone();
        dispatch::answer(self.handler.clone(), peer, accepted, head, stop, form).await
    }
}
