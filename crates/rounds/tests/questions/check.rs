//! Rules of the author's for an answer.

use std::{cell::Cell, sync::atomic::Ordering};

use rmcp::{handler::server::tool::ToolRoute, schemars, tool, tool_router};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Round, Steps,
    asked::{DeclaredQuestion, Question},
    durable,
    test::{Client, accept},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Repo, clients, server};

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
struct Even(u32);

#[derive(Deserialize, schemars::JsonSchema)]
struct Arguments {
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    #[expect(dead_code, reason = "read by `or_argument`")]
    even: Option<u32>,
}

fn is_even(n: u32) -> Result<(), String> {
    if n.is_multiple_of(2) { Ok(()) } else { Err(format!("{n} is odd")) }
}

impl Question for Even {
    type Server = Repo;
    type On = ();

    fn ask(repo: &Repo, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        let checks = repo.checks.clone();
        Ok(DeclaredQuestion::form("An even number?").reasks(1).check(move |even: &Self| {
            checks.fetch_add(1, Ordering::Relaxed);
            is_even(even.0)
        }))
    }
}

#[tool_router(router = rules)]
impl Repo {
    #[tool]
    async fn check_linear(&self, ask: Ask) -> Result<String, FlowError> {
        let n = ask.form::<u32>("An even number?").key("even").reasks(1).check(|n| is_even(*n)).await?;
        Ok(n.to_string())
    }

    #[tool]
    async fn check_declared(&self, Asked(even): Asked<Even>) -> String {
        even.0.to_string()
    }

    #[tool]
    async fn check_guard(&self, round: Round) -> Result<rmcp::model::CallToolResponse, FlowError> {
        let question = "An even number?";
        match round.given::<u32>("even").check(|n| is_even(*n)) {
            Given::Accepted(n) => Ok(text(n.to_string())),
            Given::Declined | Given::Cancelled => Ok(text("As you like.")),
            Given::Missing => round.ask_form::<u32>("even", question),
            Given::Invalid(problem) if round.number() > 1 => {
                Err(FlowError::Invalid { question: question.to_owned(), problem })
            }
            Given::Invalid(problem) => round.ask_form::<u32>("even", problem.noted(question)),
        }
    }
}

thread_local! {
    /// How often the rule of the durable handler ran in this test: each has a thread of its own.
    static DURABLE_CHECKS: Cell<usize> = const { Cell::new(0) };
}

async fn durably(flow: Durable<Repo>, _: Arguments) -> Result<String, FlowError> {
    let even = flow.form::<u32>("An even number?").key("even").reasks(1).or_argument("even");
    let n = even
        .check(|n| {
            DURABLE_CHECKS.set(DURABLE_CHECKS.get() + 1);
            is_even(*n)
        })
        .await?;
    flow.confirm("Sure?").await?;
    Ok(n.to_string())
}

fn stepped() -> ToolRoute<Repo> {
    let steps = Steps::<Repo, Arguments>::new("stepped", "Asks for an even number").step(
        "even",
        async |at, ()| -> Result<DeclaredQuestion<u32>, FlowError> {
            let checks = at.server().checks.clone();
            Ok(DeclaredQuestion::form("An even number?").reasks(1).check(move |n| {
                checks.fetch_add(1, Ordering::Relaxed);
                is_even(*n)
            }))
        },
    );
    let steps = steps.step("sure", async |_, _| Ok(DeclaredQuestion::<bool>::form("Sure?")));
    steps.finish(async |_, (n, _): (u32, bool)| Ok(n.to_string())).build().unwrap()
}

fn routes() -> Vec<ToolRoute<Repo>> {
    Repo::rules().into_iter().chain([durable("durably", "Asks for an even number", durably), stepped()]).collect()
}

const SHAPES: [(&str, Option<&str>); 5] = [
    ("check_linear", None),
    ("check_declared", None),
    ("check_guard", None),
    ("durably", Some("confirm")),
    ("stepped", Some("sure")),
];

fn even(n: u32) -> Value {
    accept(json!({ "even": n }))
}

#[tokio::test]
async fn a_rule_that_does_not_hold_is_told_and_asked_again_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for (tool, then) in SHAPES {
            let then = then.map(|key| accept(json!({ key: true })));
            let played = client.play(tool, json!({}), [even(3), even(4)].into_iter().chain(then)).await;
            assert_eq!(played.messages()[..2], ["An even number?", "An even number? (3 is odd)"], "{tool}");
            assert_eq!(played.text(), "4", "{tool}");
        }
    }
}

#[tokio::test]
async fn a_question_fails_after_its_own_number_of_attempts_in_every_shape_and_both_eras() {
    let server = server(routes());
    for client in clients(&server).await {
        for (tool, _) in SHAPES {
            let played = client.play(tool, json!({}), [even(3), even(5)]).await;
            assert!(played.is_tool_error(), "{tool}");
            assert_eq!(played.text(), r#"The answer to "An even number?" is not valid: 5 is odd"#, "{tool}");
        }
    }
}

#[tokio::test]
async fn replay_does_not_run_the_rule_again() {
    for (tool, then) in [("durably", "confirm"), ("stepped", "sure")] {
        let server = server(routes());
        let client = Client::modern(server.clone()).await;
        let asked = client.call(tool, json!({})).await.asked();
        let again = asked.accept("even", json!({"even": 3})).send(&client).await.asked();
        let then_asked = again.accept("even", json!({"even": 4})).send(&client).await.asked();
        let checks = || if tool == "durably" { DURABLE_CHECKS.get() } else { server.handler().checks() };
        let before = checks();
        assert_eq!(then_asked.accept(then, json!({ then: true })).send(&client).await.text(), "4", "{tool}");
        assert_eq!((before, checks()), (2, 2), "{tool}: once for each answer");
    }
}

#[tokio::test]
async fn an_argument_in_place_of_an_answer_is_checked() {
    let server = server(routes());
    let client = Client::connect(server, rounds::Era::Modern, json!({})).await;
    let leg = client.call("durably", json!({"even": 3})).await;
    assert!(leg.is_tool_error());
    assert_eq!(leg.text(), "the argument `even` is not valid: 3 is odd");
}
