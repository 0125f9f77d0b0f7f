//! The gallery on the wire: what clients of both eras see, and what the audit records.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod any_instance;
mod book_flight;
mod delete_branch;
mod deploy;
mod forgery;
mod no_way_back;
mod old_style;
mod refund_large;
mod refund_order;
mod resolve_work_item;
mod shapes;
mod three_rounds;
mod travel;
mod weather;

use std::pin::pin;

use gallery::Gallery;
use rounds::{
    Era, Rounds,
    test::{Client, Events, Leg, Pushed},
};
use serde_json::{Value, json};

const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

/// A gallery with an observer and a client.
struct Visit {
    client: Client,
    server: Rounds<Gallery>,
    events: Events,
    era: Era,
}

impl Visit {
    async fn new(era: Era) -> Self {
        let events = Events::new();
        let server = gallery::rounds().observe(events.clone()).build().unwrap();
        let client = match era {
            Era::Legacy => Client::legacy(server.clone()).await,
            _ => Client::modern(server.clone()).await,
        };
        Self { client, server, events, era }
    }

    fn audited(&self, tool: &str) -> u64 {
        self.server.handler().audited().get(tool).copied().unwrap_or(0)
    }

    /// Plays a flow to its end with one answer to every question, in the way of the client's era.
    async fn play(&self, method: &str, params: Value, answer: &Value) -> Played {
        self.play_in_turn(method, params, std::iter::repeat(answer.clone())).await
    }

    /// Like [`play`](Self::play), with an answer for each question.
    async fn play_in_turn(&self, method: &str, params: Value, answers: impl IntoIterator<Item = Value>) -> Played {
        play_in_turn(&self.client, self.era, method, params, answers).await
    }
}

async fn play_in_turn(
    client: &Client,
    era: Era,
    method: &str,
    params: Value,
    answers: impl IntoIterator<Item = Value>,
) -> Played {
    let mut answers = answers.into_iter();
    let mut answer = || answers.next().expect("no further question");
    let mut questions = Vec::new();
    let mut call = client.start(method, params).await;
    loop {
        let leg = {
            let mut leg = pin!(call.finish());
            loop {
                tokio::select! {
                    leg = &mut leg => break leg,
                    Some(pushed) = client.pushed() => {
                        assert_eq!(era, Era::Legacy, "a modern client gets no pushed question");
                        questions.push(question_of(&pushed));
                        pushed.answer(answer()).await;
                    }
                }
            }
        };
        if leg.response()["result"]["resultType"] != "input_required" {
            return Played { questions, leg };
        }
        let asked = leg.asked();
        questions.extend(asked.keys().into_iter().map(|key| asked.question(key).raw().clone()));
        let retry = asked.keys().iter().fold(asked.retry(), |retry, key| retry.respond(key, answer()));
        call = retry.start(client).await;
    }
}

/// A pushed question as a modern client would have received it: without the members of the request that carries it.
fn question_of(pushed: &Pushed) -> Value {
    let mut params = pushed.params().clone();
    params.as_object_mut().unwrap().remove("_meta");
    json!({"method": pushed.method(), "params": params})
}

/// A flow that has ended.
struct Played {
    questions: Vec<Value>,
    leg: Leg,
}

impl Played {
    /// The messages of the questions, in order.
    fn messages(&self) -> Vec<&str> {
        self.questions.iter().map(|question| question["params"]["message"].as_str().unwrap()).collect()
    }

    /// Expects exactly this question, with a form of one field.
    #[track_caller]
    fn asked_for(&self, message: &str, field: &str, schema: Value) {
        let form = json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": message,
                "requestedSchema": {"type": "object", "properties": {field: schema}, "required": [field]},
            },
        });
        assert_eq!(self.questions, [form]);
    }
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

fn decline() -> Value {
    json!({"action": "decline"})
}

fn cancel() -> Value {
    json!({"action": "cancel"})
}

fn units() -> Value {
    json!({"type": "string", "enum": ["metric", "imperial"], "title": "Units"})
}
