//! Three questions in sequence, in every shape: the effect runs once, or once per leg where the handler is written so;
//! and no answer counts before its question was asked.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rmcp::{
    ServerHandler,
    handler::server::router::tool::{ToolRoute, ToolRouter},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Asked, Durable, Era, FlowError, Given, Legacy, Round, Rounds, Steps,
    asked::{DeclaredQuestion, FixedQuestion},
    durable,
    test::Client,
    text,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ERAS, accept, play_in_turn};

const KEYS: [&str; 3] = ["one", "two", "three"];

/// The tools, with how often the effect of each runs in a call of a modern client and of a legacy one.
const TOOLS: &[(&str, [u32; 2])] = &[
    ("guard", [1, 1]),
    ("once", [1, 1]),
    ("steps", [1, 1]),
    ("linear", [1, 1]),
    ("journal", [1, 1]),
    ("declared", [1, 1]),
    // Four legs run the effect four times; so do four calls of the handler if the server pushes.
    ("naive", [4, 4]),
    // It throws its question at a modern client, and awaits the answer of a legacy one.
    ("thrown", [4, 1]),
];

struct Tools {
    tool_router: ToolRouter<Self>,
    effects: Mutex<BTreeMap<&'static str, u32>>,
}

impl Tools {
    fn server() -> Rounds<Self> {
        let routes = ToolRouter::new().with_route(durable("journal", "Durable", journal)).with_route(steps());
        let tools = Self { tool_router: Self::tool_router() + routes, effects: Mutex::default() };
        Rounds::builder(tools).legacy(Legacy::push()).build().unwrap()
    }

    fn effect(&self, tool: &'static str) {
        *self.effects.lock().unwrap_or_else(PoisonError::into_inner).entry(tool).or_default() += 1;
    }

    fn effects(&self, tool: &str) -> u32 {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).get(tool).copied().unwrap_or(0)
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[derive(Deserialize, schemars::JsonSchema)]
struct One(u32);

#[derive(Deserialize, schemars::JsonSchema)]
struct Two(u32);

#[derive(Deserialize, schemars::JsonSchema)]
struct Three(u32);

impl FixedQuestion for One {
    const MESSAGE: &'static str = "one";
}

impl FixedQuestion for Two {
    const MESSAGE: &'static str = "two";
}

impl FixedQuestion for Three {
    const MESSAGE: &'static str = "three";
}

#[tool_router]
impl Tools {
    #[tool(description = "Guard-first")]
    async fn guard(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        let ended = guarded(&round);
        if matches!(ended, Ok(CallToolResponse::Complete(_))) {
            self.effect("guard");
        }
        ended
    }

    #[tool(description = "Guard-first, with once")]
    async fn once(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        round.once("effect", async || self.effect("once")).await?;
        guarded(&round)
    }

    #[tool(description = "Guard-first, with its effect above the guard")]
    async fn naive(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        self.effect("naive");
        guarded(&round)
    }

    #[tool(description = "With questions that are thrown")]
    async fn thrown(&self, round: Round, ask: Ask) -> Result<CallToolResponse, FlowError> {
        self.effect("thrown");
        if round.era() == Era::Legacy { awaited(&ask).await } else { guarded(&round) }
    }

    #[tool(description = "Linear")]
    async fn linear(&self, ask: Ask) -> Result<CallToolResponse, FlowError> {
        self.effect("linear");
        awaited(&ask).await
    }

    #[tool(description = "Declared")]
    async fn declared(
        &self,
        Asked(One(one)): Asked<One>,
        Asked(Two(two)): Asked<Two>,
        Asked(Three(three)): Asked<Three>,
    ) -> CallToolResponse {
        self.effect("declared");
        sum([one, two, three])
    }
}

fn guarded(round: &Round) -> Result<CallToolResponse, FlowError> {
    let mut numbers = vec![];
    for key in KEYS {
        match round.given(key) {
            Given::Accepted(number) => numbers.push(number),
            _ => return round.ask_form::<u32>(key, key),
        }
    }
    Ok(sum(numbers))
}

async fn awaited(ask: &Ask) -> Result<CallToolResponse, FlowError> {
    let mut numbers = vec![];
    for key in KEYS {
        numbers.push(ask.form(key).key(key).await?);
    }
    Ok(sum(numbers))
}

async fn journal(flow: Durable<Tools>, _: Nothing) -> Result<CallToolResponse, FlowError> {
    flow.once("effect", async |tools, _key| tools.effect("journal")).await?;
    let mut numbers = vec![];
    for key in KEYS {
        numbers.push(flow.form(key).key(key).await?);
    }
    Ok(sum(numbers))
}

fn steps() -> ToolRoute<Tools> {
    let steps = Steps::<Tools, Nothing>::new("steps", "Steps")
        .step("one", async |_, ()| Ok(DeclaredQuestion::<u32>::form("one")))
        .step("two", async |_, (_,)| Ok(DeclaredQuestion::<u32>::form("two")))
        .step("three", async |_, (_, _)| Ok(DeclaredQuestion::<u32>::form("three")))
        .finish(async |step, (one, two, three)| {
            step.server().effect("steps");
            Ok(sum([one, two, three]))
        });
    steps.build().unwrap()
}

fn sum(numbers: impl IntoIterator<Item = u32>) -> CallToolResponse {
    text(numbers.into_iter().sum::<u32>().to_string())
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {}})
}

#[tokio::test]
async fn an_effect_happens_once_in_three_rounds_or_once_for_each_leg_where_it_was_written_so() {
    for (tool, effects) in TOOLS {
        for (era, effects) in ERAS.into_iter().zip(effects) {
            let server = Tools::server();
            let client = match era {
                Era::Legacy => Client::legacy(server.clone()).await,
                _ => Client::modern(server.clone()).await,
            };
            let answers = KEYS.iter().zip([1, 2, 3]).map(|(key, number)| accept(json!({*key: number})));
            let played = play_in_turn(&client, era, "tools/call", call(tool), answers).await;
            assert_eq!(played.messages(), KEYS, "{tool} {era:?}");
            assert_eq!(played.leg.text(), "6", "{tool} {era:?}");
            assert_eq!(server.handler().effects(tool), *effects, "{tool} {era:?}");
        }
    }
}

#[tokio::test]
async fn no_client_answers_a_question_before_it_is_asked_or_marks_an_effect_as_had() {
    for (tool, [effects, _]) in TOOLS {
        let server = Tools::server();
        let client = Client::modern(server.clone()).await;
        let mut asked = client.request("tools/call", call(tool)).await.asked();
        for (key, number) in KEYS.iter().zip([1, 2, 3]) {
            assert_eq!(asked.keys(), [*key], "{tool}");
            let forged = ["effect", "finish", "steps", "done"].iter().chain(&KEYS);
            let retry = forged.fold(asked.retry(), |retry, key| retry.accept(key, json!({*key: 100})));
            let leg = retry.accept(key, json!({*key: number})).send(&client).await;
            if *key == "three" {
                assert_eq!(leg.text(), "6", "{tool}");
                assert_eq!(server.handler().effects(tool), *effects, "{tool}");
                break;
            }
            asked = leg.asked();
        }
    }
}
