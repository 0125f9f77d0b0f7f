//! Shutdown behind axum, while a legacy client is asked: the recipe of the deploying guide.

use std::{convert::Infallible, sync::Arc};

use rmcp::{
    ServerHandler,
    handler::server::router::tool::ToolRouter,
    object, tool, tool_handler, tool_router,
    transport::{StreamableHttpClientTransport, streamable_http_server::StreamableHttpServerConfig},
};
use rounds::{
    Ask, FlowError, Rounds,
    client::{AskedQuestion, Call, DriveLimits, Host, UserAnswer, drive},
};
use rounds_testkit::in_time;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

struct Files {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Files {
    #[tool]
    async fn empty(&self, ask: Ask) -> Result<String, FlowError> {
        ask.confirm("Delete all?").await.map(|yes| yes.to_string())
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Files {}

#[tokio::test]
async fn a_server_behind_axum_ends_while_a_legacy_client_is_asked() {
    rounds_testkit::install_crypto();
    let server = Rounds::new(Files { tool_router: Files::tool_router() });

    let (accepting, streams) = (CancellationToken::new(), CancellationToken::new());
    let mcp = server.streamable_http(StreamableHttpServerConfig::default().with_cancellation_token(streams.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = axum::serve(listener, axum::Router::new().nest_service("/mcp", mcp))
        .with_graceful_shutdown(accepting.clone().cancelled_owned());
    let serving = tokio::spawn(async move { serving.await });

    let asked = Arc::new(Notify::new());
    let person = {
        let asked = asked.clone();
        move |_: AskedQuestion| {
            asked.notify_one();
            std::future::pending::<Result<UserAnswer, Infallible>>()
        }
    };
    let to = StreamableHttpClientTransport::from_uri(address.as_str());
    let client = Host::new(person).legacy_only().at(address.as_str()).connect(to).await.unwrap();
    let call = Call::tool("empty", object!({}));
    let calling = tokio::spawn(async move {
        drive(&client, call, client.service().responder(), DriveLimits::default()).await.map(drop)
    });
    in_time(asked.notified()).await;

    // First no more connections, then the streams: axum waits for every response, and one that asks does not end.
    accepting.cancel();
    assert!(!serving.is_finished(), "a user is thinking");
    streams.cancel();
    in_time(serving).await.unwrap().unwrap();
    calling.abort();
}
