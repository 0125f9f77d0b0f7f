//! A relay like the one on Redis: each instance subscribes to a channel of its own, and a message to a channel without a
//! subscriber says that the instance is gone, unless this instance was itself disconnected a moment ago.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rounds::{
    relay::{Inbox, Relay, RelayError},
    time::BoxFuture,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use crate::{
    history::Event,
    world::{Gate, World},
};

/// How long a call to the relay may take, and the milliseconds between two checks of the subscription.
const TIMEOUT: Duration = Duration::from_secs(1);
const PINGS: u64 = 2_000;

/// How long a process may not notice a cut that closes no connection: until a check of the subscription has timed out.
pub(crate) const SILENT_MILLIS: u64 = PINGS + 1_000 + 500;

/// Pause before a message without a receiver is sent again.
const MOMENT: Duration = Duration::from_millis(250);

/// For how long after a lost subscription no other instance counts as gone.
const SETTLING: Duration = Duration::from_millis(7_500);

/// The relay's server.
pub(crate) struct Hub {
    pub(crate) world: Arc<World>,
    pub(crate) gate: Arc<Gate>,
    channels: Mutex<BTreeMap<String, Subscriber>>,
    /// Messages in a row that were lost, by receiver.
    lost: Mutex<BTreeMap<String, u32>>,
}

#[derive(Clone)]
struct Subscriber {
    inbox: Inbox,
    gate: Arc<Gate>,
    cut: Arc<AtomicBool>,
}

impl Hub {
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let (channels, lost) = (Mutex::default(), Mutex::default());
        Arc::new(Self { world: world.clone(), gate: Gate::new(), channels, lost })
    }

    /// Ends the subscription of one instance, or of all.
    pub(crate) fn unsubscribe(&self, only: Option<&str>) {
        self.channels.lock().unwrap().retain(|name, _| only.is_some_and(|only| only != name));
    }

    fn subscriber(&self, name: &str) -> Option<Subscriber> {
        self.channels.lock().unwrap().get(name).cloned()
    }

    /// Carries a message to a subscriber. A message may be lost, but not two in a row: an owner that hears none of three
    /// messages counts as gone.
    fn carry(self: &Arc<Self>, from: &str, to: &str, message: Vec<u8>) -> bool {
        let Some(subscriber) = self.subscriber(to) else { return false };
        let mut in_a_row = self.lost.lock().unwrap();
        let lost = in_a_row.entry(to.to_owned()).or_default();
        *lost = if *lost == 0 && self.world.loses() { 1 } else { 0 };
        if *lost > 0 {
            self.world.record(Event::Lost);
            return true;
        }
        drop(in_a_row);
        let (hub, from, to) = (self.clone(), from.to_owned(), to.to_owned());
        tokio::spawn(async move {
            sleep(hub.world.latency()).await;
            if subscriber.cut.load(Ordering::Relaxed) {
                return;
            }
            subscriber.gate.pass().await;
            hub.world.record(Event::Delivered { from, to });
            subscriber.inbox.deliver(&message);
        });
        true
    }
}

/// The relay of one process.
pub(crate) struct SimulatedRelay {
    pub(crate) hub: Arc<Hub>,
    pub(crate) here: String,
    pub(crate) gate: Arc<Gate>,
    pub(crate) cut: Arc<AtomicBool>,
    pub(crate) line: Arc<Line>,
}

/// What an instance knows of its subscription.
#[derive(Debug)]
pub(crate) struct Line {
    known: Mutex<Known>,
    trouble: Notify,
}

#[derive(Debug, Clone, Copy)]
enum Known {
    FromTheStart,
    Lost,
    Since(Instant),
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { known: Mutex::new(Known::FromTheStart), trouble: Notify::new() })
    }

    /// The connection was closed, which this instance notices at once.
    pub(crate) fn close(&self) {
        self.set(Known::Lost);
        self.trouble.notify_one();
    }

    /// Nothing arrives any more, which this instance notices when a ping is not answered.
    pub(crate) fn fall_silent(&self) {
        self.trouble.notify_one();
    }

    fn is_lost(&self) -> bool {
        matches!(*self.known.lock().unwrap(), Known::Lost)
    }

    fn is_steady(&self) -> bool {
        match *self.known.lock().unwrap() {
            Known::FromTheStart => true,
            Known::Lost => false,
            Known::Since(moment) => moment.elapsed() >= SETTLING,
        }
    }

    fn set(&self, known: Known) {
        *self.known.lock().unwrap() = known;
    }
}

impl SimulatedRelay {
    /// Reaches the relay's server, or fails when it does not answer in time.
    async fn reach(&self, until: Instant) -> Result<(), RelayError> {
        self.gate.pass().await;
        sleep(self.hub.world.latency()).await;
        let is_cut = self.cut.load(Ordering::Relaxed);
        let in_time = timeout_at(until, self.hub.gate.pass()).await;
        if is_cut || in_time.is_err() {
            sleep_until(until).await;
            self.gate.pass().await;
            return Err(RelayError::new("the relay did not answer in time"));
        }
        Ok(())
    }

    async fn send(&self, to: String, message: Vec<u8>) -> Result<bool, RelayError> {
        for attempt in 0..2 {
            if attempt > 0 {
                sleep(MOMENT).await;
            }
            self.reach(Instant::now() + TIMEOUT).await?;
            let heard = self.hub.carry(&self.here, &to, message.clone());
            sleep(self.hub.world.latency()).await;
            self.gate.pass().await;
            if heard {
                return Ok(true);
            }
        }
        match self.line.is_steady() {
            true => Ok(false),
            false => Err(RelayError::new("this instance has just subscribed again")),
        }
    }
}

impl Relay for SimulatedRelay {
    fn here(&self) -> &str {
        &self.here
    }

    fn post(&self, to: &str, message: Vec<u8>) -> BoxFuture<'_, Result<bool, RelayError>> {
        Box::pin(self.send(to.to_owned(), message))
    }

    fn hears(&self) -> bool {
        !self.line.is_lost()
    }

    fn listen(&self, inbox: Inbox) {
        let subscriber = Subscriber { inbox, gate: self.gate.clone(), cut: self.cut.clone() };
        self.hub.channels.lock().unwrap().insert(self.here.clone(), subscriber.clone());
        tokio::spawn(listen(self.hub.clone(), self.here.clone(), subscriber, self.line.clone()));
    }
}

/// Notices a lost subscription, and subscribes again.
async fn listen(hub: Arc<Hub>, here: String, subscriber: Subscriber, line: Arc<Line>) {
    let reaches = || async {
        subscriber.gate.pass().await;
        let answered = async {
            sleep(hub.world.latency()).await;
            hub.gate.pass().await;
        };
        timeout(TIMEOUT, answered).await.is_ok() && !subscriber.cut.load(Ordering::Relaxed)
    };
    loop {
        line.trouble.notified().await;
        if !line.is_lost() {
            let until_ping = hub.world.rng().millis(0, PINGS);
            sleep(until_ping).await;
            if reaches().await && hub.subscriber(&here).is_some() {
                continue;
            }
            line.set(Known::Lost);
        }
        loop {
            let pause = hub.world.rng().millis(20, 500);
            sleep(pause).await;
            if reaches().await {
                break;
            }
        }
        hub.channels.lock().unwrap().insert(here.clone(), subscriber.clone());
        line.set(Known::Since(Instant::now()));
    }
}
