//! A new version is rolled out, one instance after the other, while users answer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Fleet,
    call::{Call, METRIC, text},
    in_time,
};

#[derive(Default)]
struct Load {
    over: AtomicBool,
    /// Number of flows that have ended.
    durable: watch::Sender<usize>,
    linear: AtomicUsize,
}

impl Load {
    /// Books flights and asks for the weather alternately, until the test is over.
    async fn put_on(self: Arc<Self>, fleet: Arc<Fleet>, worker: usize) {
        let mut number = worker * 1_000_000;
        while !self.over.load(Ordering::SeqCst) {
            number += 1;
            let booking = Call::booking(number);
            let seat = booking.accepted(&fleet.send(&booking).await, "seat", json!("12A"));
            let weather = Call::weather("weather_h");
            let units = weather.metric(&fleet.send(&weather).await);
            let pay = booking.accepted(&fleet.send(&seat).await, "confirm", json!(true));
            let linear = fleet.send(&units).await;
            assert_eq!(text(&linear), METRIC, "no linear flow is lost that ends within the drain time");
            self.linear.fetch_add(1, Ordering::SeqCst);
            let booked = format!("Booked LHR to FCO on day {number}, seat 12A: charged 140.");
            assert_eq!(text(&fleet.send(&pay).await), booked, "no durable flow is lost");
            self.durable.send_modify(|flows| *flows += 1);
        }
    }

    /// Waits until this many more durable flows have ended.
    async fn goes_on(&self, flows: usize) {
        let wanted = *self.durable.borrow() + flows;
        in_time("the load", self.durable.subscribe().wait_for(|flows| *flows >= wanted)).await.unwrap();
    }
}

on_every_store!(a_rolling_restart_loses_no_flow);

async fn a_rolling_restart_loses_no_flow(fleet: Fleet) {
    let (fleet, load) = (Arc::new(fleet), Arc::new(Load::default()));
    let mut workers = JoinSet::new();
    for worker in 0..6 {
        workers.spawn(load.clone().put_on(fleet.clone(), worker));
    }
    for at in 0..3 {
        load.goes_on(10).await;
        fleet.signal(at, "TERM");
        fleet.log(at).ended().await;
        load.goes_on(5).await;
        fleet.replace(at).await;
    }
    load.goes_on(10).await;
    load.over.store(true, Ordering::SeqCst);
    in_time("the last flows", async {
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
    })
    .await;
    assert!(load.linear.load(Ordering::SeqCst) > 0);
    let ledger = fleet.send(&Call::tool("airline_ledger", &json!({}))).await;
    let charges = &ledger["result"]["structuredContent"]["charges"];
    assert_eq!(*charges, json!(*load.durable.borrow()), "{ledger}");
}
