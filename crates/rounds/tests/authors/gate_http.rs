//! The gate over real HTTP, in front of a server without questions.

use rmcp::{
    ServerHandler, handler::server::router::tool::ToolRouter, object, tool, tool_handler, tool_router,
    transport::StreamableHttpClientTransport,
};
use rounds::{
    Rounds,
    client::{Call, DriveLimits, DriveOutcome, Host, UserAnswer, drive, scripted},
    confirm::Confirm,
};

struct Files {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Files {
    #[tool(annotations(destructive_hint = true))]
    async fn delete(&self) -> String {
        "deleted".to_owned()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Files {}

#[tokio::test]
async fn a_server_without_questions_is_confirmed_over_http_in_either_era() {
    let files = Files { tool_router: Files::tool_router() };
    let server = Rounds::builder(files).confirm(Confirm::destructive()).build().unwrap();
    let address = crate::serve(&server).await;
    for legacy in [false, true] {
        for (answer, text) in [
            (UserAnswer::Form(object!({"confirm_call": true})), "deleted"),
            (UserAnswer::Decline, "The user declined: Run \"delete\"?"),
        ] {
            let host = Host::new(scripted().answer("confirm_call", answer));
            let host = if legacy { host.legacy_only() } else { host };
            let to = StreamableHttpClientTransport::from_uri(address.as_str());
            let client = host.at(address.as_str()).connect(to).await.unwrap();
            let call = Call::tool("delete", object!({}));
            let driven = drive(&client, call, client.service().responder(), DriveLimits::default());
            let DriveOutcome::Done(done) = driven.await.unwrap() else { panic!("expected a result") };
            assert_eq!(done.text(), text);
        }
    }
}
