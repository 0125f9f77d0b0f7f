//! Questions that are known only at run time, in every shape and both eras: forms with a schema, choices, and rules for
//! answers.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod check;
mod choose;
mod http;
mod schema;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute},
    tool_handler,
};
use rounds::{Legacy, Limits, Rounds, test::Client};

/// A server with the tools of a test, branches that may change, and a count of how often a rule ran.
#[derive(Default)]
struct Repo {
    tool_router: ToolRouter<Self>,
    branches: Mutex<Vec<String>>,
    checks: Arc<AtomicUsize>,
}

impl Repo {
    fn with(routes: impl IntoIterator<Item = ToolRoute<Self>>) -> Self {
        let tool_router = routes.into_iter().fold(ToolRouter::new(), ToolRouter::with_route);
        let branches = ["main", "fix-login", "old-ui"].map(str::to_owned).to_vec();
        Self { tool_router, branches: Mutex::new(branches), ..Self::default() }
    }

    fn branches(&self) -> Vec<String> {
        self.branches.lock().unwrap().clone()
    }

    fn checks(&self) -> usize {
        self.checks.load(Ordering::Relaxed)
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Repo {}

fn server(routes: impl IntoIterator<Item = ToolRoute<Repo>>) -> Rounds<Repo> {
    let limits = Limits::default().with_choices(5);
    Rounds::builder(Repo::with(routes)).legacy(Legacy::push()).limits(limits).build().unwrap()
}

/// A client of each era.
async fn clients(server: &Rounds<Repo>) -> [Client; 2] {
    [Client::modern(server.clone()).await, Client::legacy(server.clone()).await]
}
