//! A relay within one process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use rounds::{
    relay::{Inbox, Relay, RelayError},
    time::BoxFuture,
};

use crate::in_time;

/// Carries messages between the servers of one process, and loses, delays or refuses them where a test says so.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Wires>>);

/// The state of a hub, which a test may change.
#[derive(Default)]
pub struct Wires {
    /// Where the messages to each instance go.
    pub inboxes: HashMap<String, Inbox>,
    /// Instances that are there and hear nothing.
    pub deaf: Vec<String>,
    /// Whether every message fails.
    pub away: bool,
    /// How many of the next messages are never done being sent.
    pub stuck: usize,
    /// Messages that are kept back, for each instance that is in here.
    pub held: HashMap<String, Vec<Vec<u8>>>,
    /// All messages that were carried, with their receivers.
    pub carried: Vec<(String, Vec<u8>)>,
}

/// The end of a hub that one instance holds.
pub struct Wire {
    hub: Hub,
    here: String,
}

impl Hub {
    /// The state, locked.
    pub fn wires(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap()
    }

    /// The relay of the instance with this name.
    pub fn at(&self, here: &str) -> Wire {
        Wire { hub: self.clone(), here: here.to_owned() }
    }

    /// Waits until this holds of the hub.
    pub async fn until(&self, holds: impl Fn(&Wires) -> bool) {
        let held = async {
            while !holds(&self.wires()) {
                tokio::task::yield_now().await;
            }
        };
        in_time(held).await;
    }

    fn gets_stuck(&self) -> bool {
        let mut wires = self.wires();
        let stuck = wires.stuck > 0;
        wires.stuck = wires.stuck.saturating_sub(1);
        stuck
    }
}

impl Relay for Wire {
    fn here(&self) -> &str {
        &self.here
    }

    fn post(&self, to: &str, message: Vec<u8>) -> BoxFuture<'_, Result<bool, RelayError>> {
        let to = to.to_owned();
        Box::pin(async move {
            if self.hub.gets_stuck() {
                return std::future::pending().await;
            }
            let mut wires = self.hub.wires();
            if wires.away {
                return Err(RelayError::new("the hub is away"));
            }
            if let Some(held) = wires.held.get_mut(&to) {
                held.push(message);
                return Ok(true);
            }
            let Some(inbox) = wires.inboxes.get(&to).cloned() else { return Ok(false) };
            if !wires.deaf.contains(&to) {
                wires.carried.push((to, message.clone()));
                drop(wires);
                inbox.deliver(&message);
            }
            Ok(true)
        })
    }

    fn hears(&self) -> bool {
        !self.hub.wires().deaf.contains(&self.here)
    }

    fn listen(&self, inbox: Inbox) {
        self.hub.wires().inboxes.insert(self.here.clone(), inbox);
    }
}
