//! The server a team would deploy: axum, a sign-in, a principal, shared keys, probes, a graceful shutdown.
//!
//! ```sh
//! (umask 077; rounds keygen > keys)
//! KEYS=keys USERS=secret-1=alice,secret-2=bob LISTEN=127.0.0.1:8000 cargo run --example http_axum
//! ```
//!
//! Every instance gets the same keys. The handler is durable, so an answer may reach another instance than its question
//! came from, and a deploy ends no flow. Several instances also need a shared ledger: see the guide `deploying`.

use std::{collections::HashMap, env, error::Error, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use rmcp::{
    ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{Durable, FlowError, KeyRing, Principal, Rounds, durable};
use rounds_http::Endpoint;
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

#[derive(Deserialize, schemars::JsonSchema)]
struct Deployment {
    env: String,
}

struct Deploy {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Deploy {}

async fn deploy(flow: Durable<Deploy>, Deployment { env }: Deployment) -> Result<String, FlowError> {
    if !flow.confirm(format!("Deploy to {env}?")).await? {
        return Ok(format!("deployment to {env} cancelled"));
    }
    // The effect runs once per flow. The system behind it uses `key` to detect a repetition after a crash.
    flow.once("deploy", async |_server, key| eprintln!("deploying to {env}, idempotency key {key}")).await?;
    let user = flow.principal().ok_or(FlowError::NoPrincipal)?; // the same on every leg
    Ok(format!("deployed to {env}, as {} said", user.as_str()))
}

/// Users by their bearer tokens. A real server asks its identity provider instead.
type Users = Arc<HashMap<String, Principal>>;

/// Puts the principal into the request. A flow then belongs to the user who began it.
async fn sign_in(State(users): State<Users>, mut request: Request, next: Next) -> Response {
    let credentials = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let user = credentials.and_then(|value| users.get(value.strip_prefix("Bearer ")?)).cloned();
    let Some(user) = user else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let users = env::var("USERS")?;
    let users = users.split(',').filter_map(|user| user.split_once('='));
    let users: HashMap<_, _> = users.map(|(token, name)| (token.to_owned(), Principal::new(name))).collect();

    let tool_router = ToolRouter::new().with_route(durable("deploy", "Deploys, after asking whether to", deploy));
    let server = Rounds::builder(Deploy { tool_router })
        .keys(KeyRing::from_file(env::var("KEYS")?)?)
        .audience("deploy-prod")
        .principal(Principal::required(Principal::from_request))
        .build()?;

    // A server that other machines reach adds `.with_allowed_hosts(["mcp.example.com"])`.
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let (streams, endpoint) = (config.cancellation_token.clone(), Endpoint::new(&server, config));
    let probes = endpoint.probes();
    let mcp = Router::new().route_service("/mcp", endpoint).layer(from_fn_with_state(Users::new(users), sign_in));
    let router = mcp.route_service("/livez", probes.clone()).route_service("/readyz", probes);
    let listener = TcpListener::bind(env::var("LISTEN")?).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let mut stop = signal(SignalKind::terminate())?;
    let stop = async move {
        stop.recv().await;
        // Calls may end. The streams of legacy clients would stay open for as long as a user thinks, so they are closed.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            streams.cancel();
        });
    };
    Ok(axum::serve(listener, router).with_graceful_shutdown(stop).await?)
}
