//! Responders: the ready-made ones, and responders made of functions.

use std::sync::Arc;

use rmcp::{ClientHandler, object};
use rounds::{
    client::{
        AskedQuestion, BoxError, Call, DriveLimits, DriveOutcome, Host, NotAnswered, Responder, Server, Stopped,
        UserAnswer, concurrently, defaults_only, drive, observed, only, scripted, unavailable,
    },
    observe::QuestionKind,
    time::BoxFuture,
};
use serde_json::{Value, json};

use crate::{Act, Raw, asks_units, knows_units, metric, soon, text, units_form};

const KINDS: [QuestionKind; 4] = [QuestionKind::Form, QuestionKind::Url, QuestionKind::Sample, QuestionKind::Roots];

fn can(responder: &dyn Responder) -> Vec<QuestionKind> {
    KINDS.into_iter().filter(|kind| responder.can(*kind)).collect()
}

/// The answers of this responder to these questions, as the server sees them, or the error.
async fn answers<R: Responder>(asks: Value, responder: R) -> Result<Value, Stopped> {
    let (raw, client) = Raw::modern(move |request| {
        if request["params"].get("requestState").is_some() {
            return text("done");
        }
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    let driven = soon(drive(&client, Call::tool("x", object!({})), &responder, DriveLimits::default())).await;
    match driven {
        Ok(DriveOutcome::Done(_)) => Ok(raw.requests("tools/call")[1]["params"]["inputResponses"].clone()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(raw.requests("tools/call").len(), 1, "nothing was sent");
            let stopped = format!("{error:?}");
            assert!(error.pending().is_some(), "{stopped}");
            Err(into_stopped(error))
        }
    }
}

/// The reason alone, which an error does not release while it holds the call.
fn into_stopped(error: rounds::client::DriveError) -> Stopped {
    match error.stopped() {
        Stopped::Responder { key, source } => {
            let source = source.downcast_ref::<NotAnswered>().copied().expect("a ready-made responder");
            Stopped::Responder { key: key.clone(), source: source.into() }
        }
        Stopped::CannotAnswer { key, kind } => Stopped::CannotAnswer { key: key.clone(), kind: *kind },
        other => panic!("{other}"),
    }
}

fn page() -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://example.com"}})
}

fn form(schema: Value) -> Value {
    json!({"method": "elicitation/create", "params": {"message": "Well?", "requestedSchema": schema}})
}

#[tokio::test]
async fn every_way_to_write_a_function_is_a_responder() {
    async fn function(_: AskedQuestion) -> Result<UserAnswer, std::convert::Infallible> {
        Ok(metric())
    }
    let known = Arc::new(metric());
    let capturing = move |question: AskedQuestion| {
        let known = known.clone();
        async move { if question.key() == "units" { Ok((*known).clone()) } else { Err("what?") } }
    };
    struct Written;
    impl Responder for Written {
        fn answer(&self, _question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
            Box::pin(async { Ok(metric()) })
        }
    }
    let expected = json!({"units": {"action": "accept", "content": {"units": "metric"}}});
    let asks = json!({"units": units_form()});
    assert_eq!(answers(asks.clone(), function).await.unwrap(), expected);
    assert_eq!(answers(asks.clone(), async |_: AskedQuestion| Ok::<_, String>(metric())).await.unwrap(), expected);
    assert_eq!(answers(asks.clone(), capturing).await.unwrap(), expected);
    assert_eq!(answers(asks.clone(), Written).await.unwrap(), expected);
    let shared: Arc<dyn Responder> = Arc::new(function);
    assert_eq!(answers(asks, shared).await.unwrap(), expected);
}

#[tokio::test]
async fn a_table_answers_by_key_or_by_the_servers_words() {
    let table =
        scripted().answer("units", metric()).answer("Well?", UserAnswer::Decline).answer("page", UserAnswer::Visit);
    let asks = json!({"units": units_form(), "page": page(), "other": form(json!({"type": "object"}))});
    let sent = answers(asks, table).await.unwrap();
    assert_eq!(sent["units"]["content"], json!({"units": "metric"}));
    assert_eq!((&sent["page"]["action"], &sent["other"]["action"]), (&json!("accept"), &json!("decline")));
    let stopped = answers(json!({"ghost": units_form()}), knows_units()).await.unwrap_err();
    assert!(matches!(stopped, Stopped::Responder { key, .. } if key == "ghost"));
}

#[tokio::test]
async fn defaults_are_given_where_there_are_all_and_the_rest_is_cancelled() {
    let all = json!({
        "type": "object", "required": ["a"],
        "properties": {"a": {"type": "integer", "default": 3}, "b": {"type": "string"}, "c": {"type": "boolean", "default": true}},
    });
    let some = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
    let consent = json!({"type": "object", "properties": {}});
    let asks = json!({"all": form(all), "some": form(some), "consent": form(consent)});
    let sent = answers(asks, defaults_only()).await.unwrap();
    assert_eq!(sent["all"], json!({"action": "accept", "content": {"a": 3, "c": true}}));
    assert_eq!((&sent["some"], &sent["consent"]), (&json!({"action": "cancel"}), &json!({"action": "cancel"})));
    let page = answers(json!({"page": page()}), defaults_only()).await.unwrap_err();
    assert!(matches!(page, Stopped::CannotAnswer { kind: QuestionKind::Url, .. }), "it does not declare pages");
}

#[tokio::test]
async fn nobody_declares_nothing_and_answers_nothing() {
    assert_eq!(can(&unavailable()), []);
    let stopped = answers(json!({"units": units_form()}), unavailable()).await.unwrap_err();
    assert!(matches!(stopped, Stopped::CannotAnswer { .. }));
    let capabilities = Host::new(unavailable()).get_info().capabilities;
    assert_eq!(serde_json::to_value(capabilities).unwrap(), json!({}));
}

#[tokio::test]
async fn a_list_permits_kinds_and_servers_and_refuses_the_rest_without_a_no() {
    let asks = json!({"units": units_form()});
    assert!(answers(asks.clone(), only(knows_units()).server("raw")).await.is_ok());
    assert!(answers(asks.clone(), only(knows_units()).server("other").server("raw")).await.is_ok());
    let stopped = answers(asks.clone(), only(knows_units()).server("other")).await.unwrap_err();
    let Stopped::Responder { source, .. } = stopped else { panic!("{stopped}") };
    assert_eq!(source.downcast_ref(), Some(&NotAnswered::NotAllowed));
    let stopped = answers(asks, only(knows_units()).kinds([QuestionKind::Url])).await.unwrap_err();
    assert!(matches!(stopped, Stopped::CannotAnswer { kind: QuestionKind::Form, .. }));
}

#[tokio::test]
async fn a_server_with_an_address_is_permitted_by_its_address_and_not_by_its_name() {
    for (permitted, answered) in [("raw", false), ("https://raw.example", true)] {
        let (_raw, client) =
            Raw::modern(
                |request| {
                    if request["params"].get("requestState").is_some() { text("done") } else { asks_units("s") }
                },
            )
            .await;
        let server = Server::from(&client).at("https://raw.example");
        let responder = only(knows_units()).server(permitted);
        let driven = drive(server, Call::tool("x", object!({})), &responder, DriveLimits::default()).await;
        assert_eq!(driven.is_ok(), answered, "{permitted}");
    }
}

#[test]
fn what_a_responder_can_do_is_what_is_declared() {
    let ask = |_: AskedQuestion| async { Ok::<_, String>(UserAnswer::Cancel) };
    let declared = |host: &dyn Fn() -> Value| host();
    let of = |capabilities: rmcp::model::ClientCapabilities| serde_json::to_value(capabilities).unwrap();
    assert_eq!(
        declared(&|| of(Host::new(ask).get_info().capabilities)),
        json!({"elicitation": {"form": {}, "url": {}}})
    );
    assert_eq!(of(Host::new(knows_units()).get_info().capabilities), json!({"elicitation": {"form": {}}}));
    assert_eq!(of(Host::new(defaults_only()).get_info().capabilities), json!({"elicitation": {"form": {}}}));
    let pages = scripted().answer("page", UserAnswer::Visit);
    assert_eq!(of(Host::new(pages).get_info().capabilities), json!({"elicitation": {"url": {}}}));
    let all = Host::new(only(ask).kinds(KINDS)).get_info().capabilities;
    assert_eq!(of(all), json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}));
    let wrapped = concurrently(observed(only(ask).kinds([QuestionKind::Roots]), |_: &_| {}));
    assert_eq!(can(&wrapped), [QuestionKind::Roots]);
    assert!(wrapped.is_concurrent() && !observed(ask, |_: &_| {}).is_concurrent());
}
