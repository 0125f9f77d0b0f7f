//! What authors look for, over real HTTP and in both eras: everything that a tool has, progress, the caller, and a
//! pattern.

use std::sync::{Arc, Mutex};

use rmcp::{
    ClientHandler, RoleClient, ServerHandler,
    model::{ClientConfig, ProgressNotificationParam},
    object,
    service::NotificationContext,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use rounds::{
    Legacy, Principal, Rounds,
    client::{Call, Done, DriveLimits, DriveOutcome, Host, Scripted, UserAnswer, drive, scripted},
};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{durable, pattern, principal, serve, tools};

/// A client that notes the progress of its calls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<ProgressNotificationParam>>>);

impl ClientHandler for Notes {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().unwrap().push(params);
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }
}

/// Plays a call to its end, as the user with this bearer token.
async fn play(address: &str, legacy: bool, call: Call, answers: Scripted, notes: &Notes) -> Done {
    let call_reports = call.target() == "progresses";
    let config = StreamableHttpClientTransportConfig::with_uri(address).auth_header("ada");
    let host = Host::new(answers).with_handler(notes.clone()).at(address);
    let host = if legacy { host.legacy_only() } else { host.modern_only() };
    let client = host.connect(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let driven = drive(&client, call, client.service().responder(), DriveLimits::default()).await.unwrap();
    let DriveOutcome::Done(done) = driven else { panic!("expected a result, got {driven:?}") };
    // rmcp delivers notifications beside the response.
    if call_reports {
        in_time(async {
            while notes.0.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    client.cancel().await.unwrap();
    done
}

/// The same call over HTTP, with a client of each era.
async fn in_both_eras<H: ServerHandler>(
    server: &Rounds<H>,
    call: Call,
    answers: impl Fn() -> Scripted,
    check: impl Fn(Done, &Notes, bool),
) {
    let address = serve(server).await;
    for legacy in [false, true] {
        let notes = Notes::default();
        check(play(&address, legacy, call.clone(), answers(), &notes).await, &notes, legacy);
    }
}

fn sure() -> Scripted {
    scripted().answer("sure", UserAnswer::Form(object!({"sure": true})))
}

#[tokio::test]
async fn durable_tools_and_steps_over_http() {
    let server = Rounds::builder(tools::shop()).legacy(Legacy::push()).build().unwrap();
    for tool in ["buy", "described", "step_by_step"] {
        in_both_eras(&server, Call::tool(tool, object!({"item": "mug"})), sure, |done, _, legacy| {
            let json = done.to_json();
            assert_eq!(json["structuredContent"], json!({"item": "mug", "sure": true}), "{tool} {legacy}");
        })
        .await;
    }
    let whom = || scripted().answer("whom", UserAnswer::Form(object!({"whom": "Ada"})));
    in_both_eras(&server, Call::prompt("recommend", object!({"item": "a mug"})), whom, |done, _, legacy| {
        assert_eq!(done.text(), "Recommend a mug for Ada.", "{legacy}");
    })
    .await;
}

#[tokio::test]
async fn what_a_durable_handler_may_ask_and_its_progress_over_http() {
    let server = durable::server();
    in_both_eras(&server, Call::tool("can", object!({})), sure, |done, _, legacy| {
        assert_eq!(done.text(), "true false false false", "{legacy}");
    })
    .await;
    let go_on = || scripted().answer("confirm", UserAnswer::Form(object!({"confirm": true})));
    in_both_eras(&server, Call::tool("progresses", object!({})), go_on, |done, notes, legacy| {
        assert_eq!(done.text(), "done");
        let told: Vec<_> = notes.0.lock().unwrap().iter().filter_map(|told| told.message.clone()).collect();
        assert!(told.contains(&"halfway".to_owned()), "{legacy}: {told:?}");
    })
    .await;
}

#[tokio::test]
async fn every_shape_knows_the_caller_over_http() {
    let builder = Rounds::builder(principal::bank()).legacy(Legacy::push());
    let server = builder
        .principal(|context: &rmcp::service::RequestContext<rmcp::RoleServer>| {
            let parts = context.extensions.get::<http::request::Parts>()?;
            let bearer = parts.headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
            Some(Principal::new(bearer))
        })
        .build()
        .unwrap();
    for tool in principal::SHAPES {
        in_both_eras(&server, Call::tool(tool, object!({})), sure, |done, _, legacy| {
            assert_eq!(done.text(), "ada, then ada", "{tool} {legacy}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_pattern_over_http() {
    let answers = || scripted().answer("flight", UserAnswer::Form(object!({"flight": "LX14"})));
    in_both_eras(&pattern::server(), Call::tool("rebook", object!({})), answers, |done, _, legacy| {
        assert_eq!(done.text(), "Rebooked to LX14.", "{legacy}");
    })
    .await;
}
