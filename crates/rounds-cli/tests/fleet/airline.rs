//! A thousand flights, while instances are killed. The airline's records are outside of all instances.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Fleet,
    call::{Call, text},
    in_time,
};

pub(crate) const FLIGHTS: usize = 1000;
const AT_ONCE: usize = 12;
const KILLS: usize = 9;

on_every_store!(a_thousand_flights_with_kills_are_charged_once_each);

async fn a_thousand_flights_with_kills_are_charged_once_each(fleet: Fleet) {
    let fleet = Arc::new(fleet);
    let (next, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(watch::Sender::new(0)));
    let mut people = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (fleet, next, ended) = (fleet.clone(), next.clone(), ended.clone());
        people.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= FLIGHTS {
                    return;
                }
                book(&fleet, number).await;
                ended.send_modify(|flights| *flights += 1);
            }
        });
    }
    for kill in 0..KILLS {
        until(&ended, (kill + 1) * FLIGHTS / (KILLS + 1)).await;
        fleet.kill(kill % 3).await;
        fleet.replace(kill % 3).await;
    }
    until(&ended, FLIGHTS).await;
    while let Some(person) = people.join_next().await {
        person.unwrap();
    }
    check_the_books(&fleet).await;
}

/// Books a flight. A client that is told of a booking has been charged for it.
async fn book(fleet: &Fleet, number: usize) {
    let call = Call::booking(number);
    let seat = call.accepted(&fleet.send(&call).await, "seat", json!("12A"));
    let pay = call.accepted(&fleet.send(&seat).await, "confirm", json!(true));
    assert_eq!(text(&fleet.send(&pay).await), format!("Booked {}: charged 140.", flight(number)));
}

fn flight(number: usize) -> String {
    format!("LHR to FCO on day {number}, seat 12A")
}

pub(crate) async fn until(ended: &watch::Sender<usize>, wanted: usize) {
    in_time("the next flights", ended.subscribe().wait_for(|flights| *flights >= wanted)).await.unwrap();
}

pub(crate) async fn check_the_books(fleet: &Fleet) {
    let charges = fleet.store.charges().await;
    let mut charged: HashMap<&str, usize> = HashMap::new();
    for (flight, attempts) in charges.values() {
        assert!(*attempts >= 1);
        *charged.entry(flight).or_default() += 1;
    }
    for number in 0..FLIGHTS {
        assert_eq!(charged.get(&*flight(number)), Some(&1), "flight {number} was charged once");
    }
    assert_eq!(charges.len(), FLIGHTS, "no other flight was charged");
}
