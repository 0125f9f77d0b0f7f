//! The same over real HTTP, with the client half: its form model shows the options.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use rmcp::{
    object, tool, tool_router,
    transport::{StreamableHttpClientTransport, streamable_http_server::StreamableHttpServerConfig},
};
use rounds::{
    Ask, FlowError,
    client::{AskedQuestion, Call, DriveLimits, DriveOutcome, Host, UserAnswer, drive},
};

use crate::{Repo, server};

#[tool_router(router = over_http)]
impl Repo {
    #[tool]
    async fn pick(&self, ask: Ask) -> Result<String, FlowError> {
        let titled = [("r", "Red"), ("g", "Green")];
        ask.choose("Which colour?", titled).check(|colour| if colour == "g" { Ok(()) } else { Err("not red") }).await
    }
}

#[tokio::test]
async fn a_choice_and_its_rule_over_http_in_either_era() {
    rounds_testkit::install_crypto();
    let mcp = server(Repo::over_http()).streamable_http(StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().nest_service("/mcp", mcp)).await });
    for legacy in [false, true] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = seen.clone();
        let person = move |question: AskedQuestion| {
            let field = question.field("choice").unwrap();
            let (red, green) =
                (field.choice("Red").unwrap().value.clone(), field.choice("Green").unwrap().value.clone());
            let mut told = told.lock().unwrap();
            told.push(question.message().to_owned());
            let chosen = if told.len() == 1 { red } else { green };
            std::future::ready(Ok::<_, Infallible>(UserAnswer::Form(object!({ "choice": chosen }))))
        };
        let host = Host::new(person);
        let host = if legacy { host.legacy_only() } else { host };
        let client = host.at(address.as_str()).connect(StreamableHttpClientTransport::from_uri(address.as_str()));
        let client = client.await.unwrap();
        let driven =
            drive(&client, Call::tool("pick", object!({})), client.service().responder(), DriveLimits::default());
        let DriveOutcome::Done(done) = driven.await.unwrap() else { panic!("expected a result") };
        assert_eq!(done.text(), "g");
        assert_eq!(*seen.lock().unwrap(), ["Which colour?", "Which colour? (not red)"]);
    }
}
