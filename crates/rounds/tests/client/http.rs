//! Over real HTTP: a server of both eras behind a socket, and a client of each era.

use rmcp::{
    object,
    transport::{StreamableHttpClientTransport, streamable_http_server::StreamableHttpServerConfig},
};
use rounds::{
    Era,
    client::{Call, DriveLimits, DriveOutcome, Host, Pending, Server, drive},
};

use crate::{asked, knows_units, metric, said, server, soon, units};

/// A real server behind a socket, at this address.
async fn listen() -> String {
    let mcp = server(units).streamable_http(StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().nest_service("/mcp", mcp)).await });
    address
}

fn to(
    address: &str,
) -> StreamableHttpClientTransport<impl rmcp::transport::streamable_http_client::StreamableHttpClient> {
    rounds_testkit::install_crypto();
    StreamableHttpClientTransport::from_uri(address)
}

#[tokio::test]
async fn a_call_is_driven_over_http_in_either_era() {
    let address = listen().await;
    for (host, era) in [(Host::new(knows_units()), Era::Modern), (Host::new(knows_units()).legacy_only(), Era::Legacy)]
    {
        let client = soon(host.at(address.as_str()).connect(to(&address))).await.unwrap();
        assert_eq!(Server::from(&client).era(), era);
        let driven = drive(&client, Call::tool("x", object!({})), client.service().responder(), DriveLimits::default());
        let DriveOutcome::Done(done) = soon(driven).await.unwrap() else { panic!("expected a result") };
        assert_eq!(done.text(), "Metric");
    }
}

#[tokio::test]
async fn a_call_is_answered_over_another_http_connection() {
    let address = listen().await;
    let saved = {
        let client = soon(Host::new(knows_units()).at(address.as_str()).connect(to(&address))).await.unwrap();
        asked(soon(Call::tool("x", object!({})).send(&client)).await.unwrap()).to_json()
    };
    let client = soon(Host::new(knows_units()).at(address.as_str()).connect(to(&address))).await.unwrap();
    let mut pending = Pending::from_json(&saved).unwrap();
    assert_eq!(pending.origin().address.as_deref(), Some(address.as_str()));
    pending.answer("units", metric()).unwrap();
    assert_eq!(said(soon(pending.send(&client)).await.unwrap()), "Metric");
}
