//! Numbers as they were written: what holds in a program in which a crate has enabled `serde_json/arbitrary_precision`.
//!
//! It holds in every other program too. `cargo xtask test` also runs this file, and the unit tests, with the feature
//! on.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::sync::{Arc, Mutex};

use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{CallToolResponse, JsonObject},
    object, schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Legacy, Round, Rounds,
    asked::FixedQuestion,
    client::{AskedQuestion, Call, Done, DriveLimits, DriveOutcome, Host, Pending, Sent, UserAnswer, drive},
    durable,
    observe::Refusal,
    test::{Client, Events},
};
use serde::Deserialize;
use serde_json::{Number, Value, json};

/// Texts of numbers, no two of which are equal.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "1.5",
    "1e400",
    "-1e400",
    "1e-400",
    "9007199254740993",
    "9007199254740992",
    "18446744073709551616",
    "18446744073709551617",
    "1000000000000000000000000000000000000000000",
    "1000000000000000000000000000000000000000001",
    "0.1",
    "0.10000000000000000001",
];

fn is_exact() -> bool {
    Number::from_i128(i128::MAX).is_some()
}

/// The number, if this program can parse it.
fn number(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Whether these are equal here: a program that does not keep numbers as they were written has a double for a long or
/// small one.
fn are_same(one: &Value, other: &Value) -> bool {
    one == other || (!is_exact() && (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Amounts {
    #[schemars(range(min = -10, max = 10))]
    rate: f64,
    count: u8,
    balance: i64,
    #[schemars(range(min = 0))]
    weight: Option<f64>,
}

impl FixedQuestion for Amounts {
    const MESSAGE: &'static str = "How much?";
}

impl Amounts {
    fn told(&self) -> String {
        let Self { rate, count, balance, weight } = self;
        format!("{rate} {count} {balance} {weight:?}")
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[derive(Default)]
struct Bank {
    tool_router: ToolRouter<Self>,
    seen: Arc<Mutex<Vec<Value>>>,
}

#[tool_router]
impl Bank {
    #[tool]
    async fn linear(&self, Parameters(arguments): Parameters<JsonObject>, ask: Ask) -> Result<String, FlowError> {
        self.seen.lock().unwrap().push(Value::Object(arguments));
        ask.form::<Amounts>("How much?").await.map(|amounts| amounts.told())
    }

    #[tool]
    async fn guarded(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<Amounts>("amounts") {
            Given::Accepted(amounts) => Ok(rounds::text(amounts.told())),
            _ => round.ask_form::<Amounts>("amounts", "How much?"),
        }
    }

    #[tool]
    async fn declared(&self, Asked(amounts): Asked<Amounts>) -> String {
        amounts.told()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Bank {}

async fn durably(flow: Durable<Bank>, _nothing: Nothing) -> Result<String, FlowError> {
    let (quoted, odd) = flow.once("quote", async |_bank, _key| (0.1 + 0.2, i64::MIN)).await?;
    let amounts: Amounts = flow.form(format!("How much of {quoted} and {odd}?")).await?;
    flow.confirm("Go on?").await?;
    let (again, odd_again) = flow.once("again", async |_bank, _key| (quoted, odd)).await?;
    assert_eq!((again, odd_again), (0.1 + 0.2, i64::MIN));
    Ok(amounts.told())
}

fn server() -> (Rounds<Bank>, Events) {
    let tool_router = Bank::tool_router().with_route(durable("durably", "", durably));
    let events = Events::new();
    let builder = Rounds::builder(Bank { tool_router, ..Bank::default() }).observe(events.clone());
    (builder.legacy(Legacy::push()).build().unwrap(), events)
}

fn amounts() -> Value {
    json!({"rate": 2.5, "count": 3.0, "balance": -9007199254740993_i64, "weight": 0.1})
}

const TOLD: &str = "2.5 3 -9007199254740993 Some(0.1)";

/// `cargo xtask test` sets it when the feature is on, so that this test cannot pass without the feature.
#[test]
fn numbers_are_exact_where_they_are_said_to_be() {
    if std::env::var_os("EXPECT_EXACT_NUMBERS").is_some() {
        assert!(is_exact(), "serde_json/arbitrary_precision is off");
        assert!(NUMBERS.iter().all(|text| number(text).is_some()));
    }
}

#[tokio::test]
async fn a_state_belongs_to_the_numbers_that_it_was_asked_with_and_to_no_others() {
    let (server, events) = server();
    let client = Client::modern(server.clone()).await;
    let mut refused = 0;
    for asked_with in NUMBERS.iter().filter_map(|text| number(text)) {
        let asked = client.call("guarded", json!({"n": asked_with, "in": [{"n": asked_with}]})).await.asked();
        let answer = asked.accept("amounts", amounts());
        for other in NUMBERS.iter().filter_map(|text| number(text)).filter(|other| !are_same(other, &asked_with)) {
            events.clear();
            for arguments in
                [json!({"n": other, "in": [{"n": asked_with}]}), json!({"n": asked_with, "in": [{"n": other}]})]
            {
                answer.clone().with("arguments", arguments).send(&client).await.frozen();
            }
            assert_eq!(events.refusals(), [Refusal::Arguments; 2], "{asked_with} and {other}");
            refused += 1;
        }
        assert_eq!(answer.send(&client).await.text(), TOLD, "{asked_with}");
    }
    assert!(refused >= if is_exact() { NUMBERS.len() * (NUMBERS.len() - 1) } else { 60 }, "{refused}");
}

#[tokio::test]
async fn a_round_that_was_answered_with_a_number_is_not_answered_with_another() {
    let (server, events) = server();
    let client = Client::modern(server.clone()).await;
    let respond = |n: &Value| json!({"action": "accept", "content": {"rate": 1, "count": 1, "balance": 1, "n": n}});
    for given in NUMBERS.iter().filter_map(|text| number(text)) {
        let asked = client.call("guarded", json!({})).await.asked();
        let answered = asked.retry().respond("amounts", respond(&given));
        assert_eq!(answered.send(&client).await.text(), "1 1 1 None");
        for other in NUMBERS.iter().filter_map(|text| number(text)) {
            events.clear();
            let leg = asked.retry().respond("amounts", respond(&other)).send(&client).await;
            match are_same(&other, &given) {
                true => assert_eq!(leg.text(), "1 1 1 None", "the same again"),
                false => assert_eq!(events.refusals(), [Refusal::AnsweredOtherwise], "{given} and {other}"),
            }
        }
    }
}

#[tokio::test]
async fn forms_are_checked_and_read_in_every_shape_and_both_eras() {
    let (server, _) = server();
    let (modern, legacy) = (Client::modern(server.clone()).await, Client::legacy(server.clone()).await);
    for tool in ["linear", "guarded", "declared", "durably"] {
        let asked = modern.call(tool, json!({"n": 1.5})).await.asked();
        let mut done = asked.accept("amounts", amounts()).send(&modern).await;
        if tool == "durably" {
            assert!(asked.message("amounts").ends_with("of 0.30000000000000004 and -9223372036854775808?"));
            done = done.asked().accept("confirm", json!({"confirm": true})).send(&modern).await;
        }
        assert_eq!(done.text(), TOLD, "{tool}");
        let leg = legacy.start("tools/call", json!({"name": tool, "arguments": {"n": 1.5}})).await;
        let accept = |content: Value| json!({"action": "accept", "content": content});
        legacy.pushed().await.unwrap().answer(accept(amounts())).await;
        if tool == "durably" {
            legacy.pushed().await.unwrap().answer(accept(json!({"confirm": true}))).await;
        }
        assert_eq!(leg.finish().await.text(), TOLD, "{tool}");
    }
    assert_eq!(server.handler().seen.lock().unwrap().as_slice(), [json!({"n": 1.5}), json!({"n": 1.5})]);

    for (field, text, problem) in [
        ("rate", "11", "`rate` must be at most 10"),
        ("rate", "1e400", "`rate` must be at most 10"),
        ("rate", "-1e400", "`rate` must be at least -10"),
        ("weight", "-1e400", "`weight` must be at least 0"),
        ("count", "2.5", "`count` must be a whole number"),
        ("count", "1e400", "`count` must be a whole number"),
        ("balance", "99999999999999999999999", "`balance` must be a whole number"),
        ("count", "300", "`count` must be at most 255"),
    ] {
        let Some(value) = number(text) else { continue };
        let mut wrong = amounts();
        wrong[field] = value;
        let asked = modern.call("linear", json!({})).await.asked().accept("amounts", wrong).send(&modern).await.asked();
        assert!(asked.message("amounts").contains(problem), "{text}: {}", asked.message("amounts"));
    }
}

#[tokio::test]
async fn a_client_asks_saves_and_answers() {
    let (server, _) = server();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
    let responder = async |question: AskedQuestion| -> Result<UserAnswer, std::convert::Infallible> {
        let content = if question.key() == "confirm" { json!({"confirm": true}) } else { amounts() };
        let Value::Object(content) = content else { unreachable!("it is an object") };
        Ok(UserAnswer::Form(content))
    };
    let client = Host::new(rounds::client::defaults_only()).connect(ours).await.unwrap();
    for tool in ["linear", "guarded", "declared", "durably"] {
        let call = Call::tool(tool, object!({"n": 0.1, "m": u64::MAX}));
        let Sent::Asks(pending) = call.send(&client).await.unwrap() else { panic!("{tool} asks") };
        let pending = Pending::from_json(&pending.to_json()).unwrap();
        assert_eq!(pending.fields().count(), 4);
        let outcome = drive(&client, pending, &responder, DriveLimits::default()).await.unwrap();
        let DriveOutcome::Done(done @ Done::Tool(_)) = outcome else { panic!("{tool} ends") };
        assert_eq!(done.text(), TOLD, "{tool}");
    }
}
