//! The clients: each plays one flow after the other, of a shape and with a behaviour that the seed chooses.

use std::{
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    call::{Call, asks_for_a_retry, is_frozen},
    fleet::Instances,
    history::{End, Flow, History, LEG, LIFETIME, Leg, Shape},
    seed::Seed,
    task::{self, Airline},
};

/// How long a client sends the same leg again.
const PATIENCE: Duration = Duration::from_secs(40);

/// What all clients share.
pub(crate) struct Crowd {
    pub(crate) instances: Arc<Instances>,
    pub(crate) history: Arc<History>,
    pub(crate) shapes: Vec<Shape>,
    /// No flow begins after this moment.
    pub(crate) until: Instant,
    /// No flow whose answer comes too late begins after this moment.
    pub(crate) late_until: Instant,
    pub(crate) next: AtomicUsize,
}

impl Crowd {
    /// Plays flows until the time is over.
    pub(crate) async fn play(self: Arc<Self>, mut seed: Seed) {
        while Instant::now() < self.until {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let shape = *seed.choose(&self.shapes);
            let client = Client { crowd: self.clone(), legs: Arc::default(), seed: seed.part(number as u64) };
            self.history.add(client.play(number, shape).await);
            sleep(seed.millis(0..50)).await;
        }
    }
}

/// The client of one flow.
struct Client {
    crowd: Arc<Crowd>,
    legs: Arc<Mutex<Vec<Leg>>>,
    seed: Seed,
}

impl Client {
    async fn play(mut self, number: usize, shape: Shape) -> Flow {
        let is_late = shape != Shape::TaskBooking && Instant::now() < self.crowd.late_until && self.seed.percent(5);
        let mut flow = Flow {
            number,
            shape,
            expected: expected(shape, number),
            is_late,
            asked: Duration::ZERO,
            owner: None,
            has_paid: false,
            legs: vec![],
            ends: vec![],
        };
        match shape {
            Shape::TaskBooking => self.book_as_task(&mut flow).await,
            _ => self.answer_all(&mut flow).await,
        }
        flow.legs = self.legs.lock().unwrap().clone();
        flow
    }

    async fn answer_all(&mut self, flow: &mut Flow) {
        let first = first_leg(flow.shape, flow.number);
        let questions = questions(flow.shape);
        let mut call = first.clone();
        for (round, (key, value)) in questions.iter().enumerate() {
            let Some((at, response)) = self.send(&call).await else { return flow.ends.push(End::Nothing) };
            if response["result"]["requestState"].is_null() {
                return flow.ends.push(end(&response));
            }
            flow.owner = flow.owner.or(Some(at));
            flow.asked = self.crowd.history.now();
            let is_last = round + 1 == questions.len();
            let think = if flow.is_late && is_last { LIFETIME + LIFETIME / 4 } else { self.seed.millis(0..1200) };
            sleep(think).await;
            call = first.accepted(&response, key, value.clone());
            flow.has_paid = is_last;
            if is_last && self.seed.percent(20) && !flow.is_late {
                self.end_with_another_answer(flow, &call, &first.accepted(&response, key, other(value))).await;
                return;
            }
        }
        let (one, other) = (self.seed.percent(20), self.seed.percent(20));
        // The same leg twice at the same time: one of them runs, and both get its reply.
        let (first, second) =
            tokio::join!(self.send(&call), async { if one { Some(self.send(&call).await) } else { None } });
        flow.ends.extend([Some(first), second].into_iter().flatten().map(|reply| ended(reply.as_ref())));
        if other && !flow.is_late {
            // Again, when it has ended.
            let again = self.send(&call).await;
            flow.ends.push(ended(again.as_ref()));
        }
    }

    /// Sends the answer, and then another one to the same question.
    async fn end_with_another_answer(&self, flow: &mut Flow, answer: &Call, other: &Call) {
        let reply = self.send(answer).await;
        let replied = ended(reply.as_ref());
        let is_replied = matches!(replied, End::Reply(_));
        flow.ends.push(replied);
        if is_replied {
            let second = self.send(other).await;
            flow.ends.push(match ended(second.as_ref()) {
                End::Frozen => End::OtherAnswerRefused,
                End::Nothing => End::Nothing,
                _ => End::OtherAnswerTaken,
            });
        }
    }

    async fn book_as_task(&self, flow: &mut Flow) {
        let (number, sender) = (flow.number, Sender { crowd: self.crowd.clone(), legs: self.legs.clone() });
        // It panics when it is told something wrong.
        let booked = tokio::spawn(async move { task::book(number, &sender).await }).await;
        flow.has_paid = true;
        flow.ends.push(match booked {
            Ok(()) => End::Reply(flow.expected.clone()),
            Err(error) => End::Wrong(panicked(error)),
        });
    }

    async fn send(&self, call: &Call) -> Option<(usize, Value)> {
        Sender { crowd: self.crowd.clone(), legs: self.legs.clone() }.persist(call).await
    }
}

fn panicked(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()),
        Err(error) => error.to_string(),
    }
}

/// Sends legs, and records them.
struct Sender {
    crowd: Arc<Crowd>,
    legs: Arc<Mutex<Vec<Leg>>>,
}

impl Sender {
    /// Sends a leg to one instance after the other, as long as connections break and errors are retryable. Returns the
    /// instance that answered.
    async fn persist(&self, call: &Call) -> Option<(usize, Value)> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let at = self.crowd.instances.next();
            let sent = self.crowd.history.now();
            // Longer than a leg may take: a client that goes changes what the server does.
            let got = timeout(LEG * 2, self.crowd.instances.send_to(at, call)).await;
            let took = self.crowd.history.now() - sent;
            let told = match &got {
                Ok(Ok(response)) => summary(response),
                Ok(Err(error)) if error.is_status() => error.to_string(),
                Ok(Err(_)) => "the connection broke".to_owned(),
                Err(_) => "no response".to_owned(),
            };
            self.legs.lock().unwrap().push(Leg { at, sent, took, got: told });
            match got {
                Ok(Ok(response)) if !asks_for_a_retry(&response) => return Some((at, response)),
                _ => sleep(Duration::from_millis(60)).await,
            }
        }
        None
    }
}

impl Airline for Sender {
    async fn send(&self, call: Call) -> Value {
        match self.persist(&call).await {
            Some((_, response)) => response,
            None => ready(json!({"error": "no reply at all"})).await,
        }
    }
}

fn first_leg(shape: Shape, number: usize) -> Call {
    let weather = |letter: &str| Call::tool(&format!("weather_{letter}"), &json!({"location": place(number)}));
    match shape {
        Shape::Guard => weather("e"),
        Shape::GuardWithEffect => weather("f"),
        Shape::Steps => weather("g"),
        Shape::Linear => weather("h"),
        Shape::Durable => weather("i"),
        Shape::Declared => weather("asked"),
        Shape::Booking | Shape::TaskBooking => Call::booking(number),
        Shape::Transfer => Call::tool("transfer", &json!({"from": "alice", "to": "bob", "amount": amount(number)})),
    }
}

/// The keys of the questions, and the answers.
fn questions(shape: Shape) -> Vec<(&'static str, Value)> {
    match shape {
        Shape::Booking | Shape::TaskBooking => vec![("seat", json!("12A")), ("confirm", json!(true))],
        Shape::Transfer => vec![("confirm", json!(true))],
        _ => vec![("units", json!("metric"))],
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!(!value),
        _ => json!("imperial"),
    }
}

fn expected(shape: Shape, number: usize) -> String {
    match shape {
        Shape::Booking | Shape::TaskBooking => format!("Booked LHR to FCO on day {number}, seat 12A: charged 140."),
        Shape::Transfer => format!("Transferred {}.", amount(number)),
        _ => format!("Weather in {}: 22°C, partly cloudy.", place(number)),
    }
}

fn place(number: usize) -> String {
    format!("Place {number}")
}

fn amount(number: usize) -> usize {
    number % 50 + 1
}

fn ended(reply: Option<&(usize, Value)>) -> End {
    reply.map_or(End::Nothing, |(_, response)| end(response))
}

fn end(response: &Value) -> End {
    match response["result"]["content"][0]["text"].as_str() {
        _ if is_frozen(response) => End::Frozen,
        Some(text) if response["result"]["isError"] != true => End::Reply(text.to_owned()),
        _ => End::Wrong(response.to_string()),
    }
}

fn summary(response: &Value) -> String {
    let result = &response["result"];
    match (result["content"][0]["text"].as_str(), result["status"].as_str()) {
        _ if is_frozen(response) => "the frozen error".to_owned(),
        _ if asks_for_a_retry(response) => format!("retry ({})", response["error"]["message"].as_str().unwrap_or("")),
        (Some(text), _) => text.to_owned(),
        (_, Some(status)) => format!("task {status}"),
        _ if !result["requestState"].is_null() => "a question".to_owned(),
        _ => response.to_string(),
    }
}
