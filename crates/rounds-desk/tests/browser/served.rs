//! A server with a desk at a real port.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use gallery::Gallery;
use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
use rounds::{
    Ask, FlowError, Rounds,
    elsewhere::{Approvers, Decision, Elsewhere},
    test::Client,
};
use rounds_desk::{Action, Desk, Recorder};
use tokio::net::TcpListener;

/// A server, and the address of its desk.
pub(crate) struct Served<H = Gallery> {
    pub(crate) server: Rounds<H>,
    address: SocketAddr,
    pub(crate) actions: Arc<Mutex<Vec<Action>>>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let (listener, recorder) = (listener().await, Recorder::new());
        let server = gallery::rounds().register().observe(recorder.clone()).build().unwrap();
        Self::of(server, listener, &recorder)
    }
}

impl Served<Shop> {
    /// A server that wants approvals, whose questions are at its own desk.
    pub(crate) async fn shop() -> Self {
        let (listener, recorder) = (listener().await, Recorder::new());
        let page = format!("http://{}/questions", listener.local_addr().unwrap());
        let builder = Rounds::builder(Shop { tool_router: Shop::tool_router() }).register();
        let server = builder.elsewhere(Elsewhere::at(page)).observe(recorder.clone()).build().unwrap();
        Self::of(server, listener, &recorder)
    }
}

impl<H: ServerHandler> Served<H> {
    fn of(server: Rounds<H>, listener: TcpListener, recorder: &Recorder) -> Self {
        let address = listener.local_addr().unwrap();
        let actions = Arc::<Mutex<Vec<Action>>>::default();
        let recorded = actions.clone();
        let desk = Desk::new(&server).recorder(recorder).try_it();
        let desk = desk.record(move |action| recorded.lock().unwrap().push(action.clone())).service(address).unwrap();
        let router = axum::Router::new().fallback_service(desk);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { server, address, actions }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn client(&self) -> Client {
        Client::modern(self.server.clone()).await
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A shop that refunds only what a person has approved.
pub(crate) struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Shop {
    #[tool(description = "Refunds an order, after an approval")]
    async fn refund(&self, ask: Ask) -> Result<String, FlowError> {
        let asked = ask.approval("Refund 900 of order o-1?").key("approval").by(Approvers::anyone());
        Ok(match asked.within(Duration::from_secs(3600)).await? {
            Decision::Approved { by, .. } => format!("refunded, approved by {by}"),
            Decision::Denied { by, reason, .. } => format!("denied by {by}: {reason}"),
            Decision::Expired => "expired".to_owned(),
        })
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}
