//! Clients: each plays one flow, sends its legs to any instance, and sends again what was not answered.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, ServerHandler as _,
    model::{CallToolRequestParams, CallToolResponse, RequestId, RequestMetaObject},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    fleet::{Fleet, Process},
    history::{End, Event, Leg, Outcome, Shape},
    rng::Rng,
    shop::{Flight, Seat},
};

/// How long a client goes on after the last fault: longer than any sequence of waits.
const PATIENCE: Duration = Duration::from_secs(300);

/// A client with one flow.
pub(crate) struct Client {
    fleet: Arc<Fleet>,
    rng: Rng,
    shape: Shape,
    pub(crate) flight: Flight,
}

/// What a client answers, which is the same in every leg of a round.
pub(crate) const SEAT: &str = "window";
const OTHER_SEAT: &str = "aisle";

/// The seat that a client answers with.
pub(crate) fn seat(answer: &str) -> Seat {
    if answer == SEAT { Seat::Window } else { Seat::Aisle }
}

impl Client {
    pub(crate) fn new(fleet: &Arc<Fleet>, flow: u32, mut rng: Rng) -> Self {
        let shape = rng.pick(&[Shape::Linear, Shape::Linear, Shape::Durable, Shape::Guard]);
        let work = rng.below(fleet.world.plan.work.as_millis() as u64 + 1);
        let flight = Flight { flow, work, confirms: rng.in_thousand(500) };
        Self { fleet: fleet.clone(), rng, shape, flight }
    }

    /// Plays the flow to its end.
    pub(crate) async fn play(mut self) {
        let world = self.fleet.world.clone();
        let start = self.rng.millis(0, world.plan.load.as_millis() as u64);
        sleep(start).await;
        let until = (world.plan.calm_from().max(world.plan.load) + PATIENCE).as_millis() as u64;
        let (mut asked, mut end) = (None, End::GivenUp);
        while world.now() < until {
            let (leg, outcome) = self.leg(&asked).await;
            match outcome {
                Outcome::Asked { key, state } => {
                    asked = Some((key, state));
                    let most = if self.rng.in_thousand(100) { 40_000 } else { 3_000 };
                    let thinks = self.rng.millis(0, most);
                    sleep(thinks).await;
                }
                Outcome::Text(text) => {
                    end = End::Text { leg, text };
                    break;
                }
                Outcome::Retry | Outcome::Nothing(_) => {
                    let pause = self.rng.millis(50, 1_500);
                    sleep(pause).await;
                }
                outcome => {
                    end = End::Lost { leg, outcome };
                    break;
                }
            }
        }
        world.record(Event::Over { flow: self.flight.flow, end });
    }

    /// Sends a leg and waits for its reply. Sometimes an equal leg, or one with another answer, is sent beside it.
    async fn leg(&mut self, asked: &Option<(String, String)>) -> (u32, Outcome) {
        if asked.is_some() && self.rng.in_thousand(120) {
            let answer = if self.rng.in_thousand(250) { OTHER_SEAT } else { SEAT };
            let (later, to) = (self.rng.millis(0, 400), self.fleet.pick(&mut self.rng));
            let sending = self.sending(asked, answer, to);
            tokio::spawn(async move {
                sleep(later).await;
                sending.send().await
            });
        }
        let to = self.fleet.pick(&mut self.rng);
        self.sending(asked, SEAT, to).send().await
    }

    fn sending(&mut self, asked: &Option<(String, String)>, answer: &'static str, to: Arc<Process>) -> Sending {
        let mut request = CallToolRequestParams::new(self.shape.tool());
        request.arguments = serde_json::to_value(&self.flight).unwrap().as_object().cloned();
        if let Some((key, state)) = asked {
            let content = if key == "seat" { json!({"seat": answer}) } else { json!({"sure": true}) };
            request.input_responses =
                Some([(key.clone(), json!({"action": "accept", "content": content}))].into_iter().collect());
            request.request_state = Some(state.clone());
        }
        let world = &self.fleet.world;
        let leg = Leg {
            leg: world.number(),
            flow: self.flight.flow,
            shape: self.shape,
            instance: to.name.clone(),
            state: request.request_state.clone(),
            answer: if asked.as_ref().is_some_and(|(key, _)| key == "seat") { answer } else { "" },
        };
        let is_impatient = self.rng.in_thousand(world.plan.impatient);
        let patience = if is_impatient { self.rng.millis(20, 4_000) } else { Duration::from_secs(200) };
        Sending { fleet: self.fleet.clone(), to, request, leg, patience }
    }
}

/// A leg that is about to be sent.
struct Sending {
    fleet: Arc<Fleet>,
    to: Arc<Process>,
    request: CallToolRequestParams,
    leg: Leg,
    patience: Duration,
}

impl Sending {
    async fn send(self) -> (u32, Outcome) {
        let (world, leg) = (self.fleet.world.clone(), self.leg.leg);
        world.record(Event::Sent(self.leg.clone()));
        let outcome = self.exchange().await;
        world.record(Event::Heard { leg, outcome: outcome.clone() });
        (leg, outcome)
    }

    async fn exchange(self) -> Outcome {
        let Self { fleet, to, request, leg, patience } = self;
        let world = fleet.world.clone();
        sleep(world.latency()).await;
        if to.gate.is_dead() {
            return Outcome::Nothing("not reachable");
        }
        if world.loses() {
            return Outcome::Nothing("the request was lost");
        }
        let mut context = RequestContext::new(RequestId::Number(leg.leg.into()), fleet.peer());
        context.meta = meta();
        let token = context.ct.clone();
        let (sender, receiver) = oneshot::channel();
        let (process, recording) = (to.clone(), world.clone());
        tokio::spawn(async move {
            process.gate.pass().await;
            let outcome = read(process.server.call_tool(request, context).await);
            process.gate.pass().await;
            recording.record(Event::Replied { leg: leg.leg, outcome: outcome.clone() });
            let _ = sender.send(outcome);
        });
        let outcome = tokio::select! {
            biased;
            outcome = receiver => outcome.unwrap_or(Outcome::Nothing("the server dropped the leg")),
            () = to.gate.died() => return Outcome::Nothing("the instance was killed"),
            () = sleep(patience) => {
                token.cancel();
                return Outcome::Nothing("cancelled");
            }
        };
        sleep(world.latency()).await;
        if world.loses() { Outcome::Nothing("the reply was lost") } else { outcome }
    }
}

/// What a modern client says with every request.
fn meta() -> RequestMetaObject {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    serde_json::from_value(meta).unwrap()
}

fn read(response: Result<CallToolResponse, ErrorData>) -> Outcome {
    match response {
        Ok(CallToolResponse::InputRequired(asks)) => {
            let key = asks.input_requests.iter().flatten().map(|(key, _)| key.clone()).next();
            Outcome::Asked { key: key.unwrap_or_default(), state: asks.request_state.unwrap_or_default() }
        }
        Ok(response) => {
            let value = match &response {
                CallToolResponse::Complete(result) => serde_json::to_value(result).unwrap(),
                _ => Value::Null,
            };
            match (value["isError"].as_bool(), value["content"][0]["text"].as_str()) {
                (Some(true), text) => Outcome::Error(text.unwrap_or_default().to_owned()),
                (_, text) => Outcome::Text(text.unwrap_or_default().to_owned()),
            }
        }
        Err(error) => match error.data.as_ref().and_then(|data| data["reason"].as_str()) {
            Some("invalid_request_state") => Outcome::Frozen,
            Some("retry") => Outcome::Retry,
            _ => Outcome::Error(error.message.into_owned()),
        },
    }
}
