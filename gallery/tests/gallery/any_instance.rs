//! The shapes that keep nothing in memory: each leg may reach any instance with the keys and the ledger.

use gallery::Gallery;
use rounds::{
    KeyRing, Rounds,
    ledger::MemoryLedger,
    test::{AskedRound, Client, Retry},
};
use serde_json::json;

use super::{
    book_flight::{BOOKED, seat, to_rome, yes},
    shapes::SHAPES,
};

/// Two servers that share only their keys and their ledger. Consecutive legs go to different servers.
pub(crate) struct Pair {
    servers: [Rounds<Gallery>; 2],
    clients: [Client; 2],
    ledger: MemoryLedger,
    next: usize,
    /// Instances that were replaced, for their audits.
    gone: Vec<Rounds<Gallery>>,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        let ledger = MemoryLedger::new();
        let servers = [instance(&ledger), instance(&ledger)];
        let clients = [Client::modern(servers[0].clone()).await, Client::modern(servers[1].clone()).await];
        Self { servers, clients, ledger, next: 0, gone: vec![] }
    }

    pub(crate) fn other(&mut self) -> &Client {
        self.next += 1;
        &self.clients[self.next % 2]
    }

    /// Restarts the instance that served the last leg.
    async fn restarted(&mut self) -> &Client {
        let at = self.next % 2;
        let old = std::mem::replace(&mut self.servers[at], instance(&self.ledger));
        self.gone.push(old);
        self.clients[at] = Client::modern(self.servers[at].clone()).await;
        &self.clients[at]
    }

    /// Number of handlers that wait in memory.
    pub(crate) fn waiting_calls(&self) -> usize {
        self.servers.iter().map(Rounds::waiting_calls).sum()
    }

    /// Number of audit entries of a tool, over all instances so far.
    fn audited(&self, tool: &str) -> u64 {
        let servers = self.servers.iter().chain(&self.gone);
        servers.filter_map(|server| server.handler().audited().get(tool).copied()).sum()
    }

    /// The sum, over both instances, of a number that a tool without arguments returns.
    async fn sum(&self, tool: &str, name: &str) -> u64 {
        let mut sum = 0;
        for client in &self.clients {
            let told = client.call(tool, json!({})).await;
            sum += told.result()["structuredContent"][name].as_u64().unwrap_or(0);
        }
        sum
    }
}

fn instance(ledger: &MemoryLedger) -> Rounds<Gallery> {
    let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
    gallery::rounds().keys(keys).audience("fleet").ledger(ledger.clone()).build().unwrap()
}

fn metric(asked: &AskedRound) -> Retry {
    asked.accept("units", json!({"units": "metric"}))
}

fn kelvin(asked: &AskedRound) -> Retry {
    asked.accept("units", json!({"units": "kelvin"}))
}

#[tokio::test]
async fn a_weather_call_goes_on_at_the_other_instance_with_one_audit_entry() {
    for tool in SHAPES.iter().filter(|shape| !shape.waits && shape.audits == [1, 1]).map(|shape| shape.tool) {
        let mut fleet = Pair::new().await;
        let asked = fleet.other().call(tool, json!({"location": "Tokyo"})).await.asked();
        let asked = kelvin(&asked).send(fleet.other()).await.asked();
        for _ in ["the answer", "its retry"] {
            let done = metric(&asked).send(fleet.other()).await;
            assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{tool}");
        }
        asked.decline("units").send(fleet.other()).await.frozen();
        assert_eq!(fleet.audited(tool), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_weather_call_goes_on_after_a_restart_between_any_two_legs_with_one_audit_entry() {
    for tool in SHAPES.iter().filter(|shape| !shape.waits && shape.audits == [1, 1]).map(|shape| shape.tool) {
        let mut fleet = Pair::new().await;
        let asked = fleet.other().call(tool, json!({"location": "Tokyo"})).await.asked();
        let asked = kelvin(&asked).send(fleet.restarted().await).await.asked();
        for _ in ["the answer", "its retry"] {
            let done = metric(&asked).send(fleet.restarted().await).await;
            assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{tool}");
        }
        asked.decline("units").send(fleet.restarted().await).await.frozen();
        assert_eq!(fleet.audited(tool), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_linear_call_whose_leg_misses_its_frame_gets_the_frozen_error_and_goes_on_where_it_waits() {
    let mut fleet = Pair::new().await;
    let asked = fleet.other().call("weather_h", json!({"location": "Tokyo"})).await.asked();
    metric(&asked).send(fleet.other()).await.frozen();
    assert_eq!(metric(&asked).send(fleet.other()).await.text(), "Weather in Tokyo: 22°C, partly cloudy.");
    assert_eq!(fleet.audited("weather_h"), 1);

    let asked = fleet.other().call("weather_h", json!({"location": "Tokyo"})).await.asked();
    metric(&asked).send(fleet.restarted().await).await.frozen();
    assert_eq!(fleet.audited("weather_h"), 2, "nothing ran for the lost flow");
}

#[tokio::test]
async fn a_call_of_two_rounds_goes_on_at_the_other_instance_and_after_a_restart() {
    for (tool, arguments, [(one, first), (two, second)], text) in [
        (
            "resolve_work_item",
            json!({"work_item_id": 4522}),
            [("resolution", json!("Duplicate")), ("duplicate_of", json!(4301))],
            "#4522 resolved as Duplicate of #4301.",
        ),
        (
            "refund_order",
            json!({"order_id": "ORD-7002", "reason": "broken"}),
            [("scope", json!("mug")), ("restock", json!(true))],
            "Refunded 1800 of ORD-7002 (broken), restocked.",
        ),
    ] {
        let mut fleet = Pair::new().await;
        let asked = fleet.other().call(tool, arguments).await.asked();
        let asked = asked.accept(one, json!({one: first})).send(fleet.other()).await.asked();
        let last = asked.accept(two, json!({two: second}));
        assert_eq!(last.send(fleet.restarted().await).await.text(), text);
        assert_eq!(last.send(fleet.other()).await.text(), text, "its retry");
        assert!(fleet.audited("refund_order") <= 1);
    }
}

#[tokio::test]
async fn a_booking_goes_on_at_the_other_instance_with_one_quote_and_one_charge() {
    let mut fleet = Pair::new().await;
    let asked = fleet.other().call("book_flight", to_rome()).await.asked();
    let seated = asked.accept("seat", seat());
    let payment = seated.send(fleet.other()).await.asked();
    let paid = payment.accept("confirm", yes());
    for _ in ["the answer", "its retry"] {
        assert_eq!(paid.send(fleet.other()).await.text(), BOOKED);
    }
    let again = seated.send(fleet.other()).await.asked();
    assert_eq!(again.accept("confirm", yes()).send(fleet.other()).await.text(), BOOKED);
    for (name, times) in [("quotes", 1), ("charges", 1), ("duplicates", 0)] {
        assert_eq!(fleet.sum("airline_ledger", name).await, times, "{name}");
    }
}
