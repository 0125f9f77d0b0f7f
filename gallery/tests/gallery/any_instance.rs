//! The shapes that keep nothing in memory: their legs may land on any instance that has the keys and the ledger.

use gallery::Gallery;
use rounds::{KeyRing, Rounds, ledger::MemoryLedger, test::Client};
use serde_json::json;

use super::book_flight::{BOOKED, seat, to_rome, yes};

/// Two servers that share their keys and their ledger, and nothing else. Each leg goes to the other one than the last.
struct Fleet {
    clients: [Client; 2],
    next: usize,
}

impl Fleet {
    async fn new() -> Self {
        let ledger = MemoryLedger::new();
        let instance = || {
            let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
            let server = Rounds::builder(Gallery::new()).keys(keys).audience("fleet").ledger(ledger.clone());
            Client::modern(server.build().unwrap())
        };
        Self { clients: [instance().await, instance().await], next: 0 }
    }

    fn other(&mut self) -> &Client {
        self.next += 1;
        &self.clients[self.next % 2]
    }

    /// A number that a tool without arguments tells, of both together.
    async fn sum(&self, tool: &str, name: &str) -> u64 {
        let mut sum = 0;
        for client in &self.clients {
            let told = client.call(tool, json!({})).await;
            sum += told.result()["structuredContent"][name].as_u64().unwrap_or(0);
        }
        sum
    }
}

#[tokio::test]
async fn a_weather_call_goes_on_at_the_other_instance_with_one_audit_entry() {
    for tool in ["weather_e", "weather_f", "weather_i"] {
        let mut fleet = Fleet::new().await;
        let asked = fleet.other().call(tool, json!({"location": "Tokyo"})).await.asked();
        let asked = asked.accept("units", json!({"units": "kelvin"})).send(fleet.other()).await.asked();
        let answered = asked.accept("units", json!({"units": "metric"}));
        for _ in ["the answer", "its retry"] {
            let done = answered.send(fleet.other()).await;
            assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{tool}");
        }
        asked.decline("units").send(fleet.other()).await.frozen();
        assert_eq!(fleet.sum("audit_log", tool).await, 1, "{tool}");
    }
}

#[tokio::test]
async fn a_booking_goes_on_at_the_other_instance_with_one_quote_and_one_charge() {
    let mut fleet = Fleet::new().await;
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
