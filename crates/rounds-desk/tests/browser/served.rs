//! A server with a desk at a real port.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use gallery::Gallery;
use rounds::{Rounds, test::Client};
use rounds_desk::{Action, Desk, Recorder};

/// A server, and the address of its desk.
pub(crate) struct Served {
    pub(crate) server: Rounds<Gallery>,
    address: SocketAddr,
    pub(crate) actions: Arc<Mutex<Vec<Action>>>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let recorder = Recorder::new();
        let server = gallery::rounds().register().observe(recorder.clone()).build().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let actions = Arc::<Mutex<Vec<Action>>>::default();
        let recorded = actions.clone();
        let desk = Desk::new(&server).recorder(&recorder).try_it();
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
