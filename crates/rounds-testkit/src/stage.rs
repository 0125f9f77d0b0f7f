//! A server whose time and events are in the hands of a test.

use std::time::Duration;

use rmcp::ServerHandler;
use rounds::{
    Rounds, RoundsBuilder,
    observe::Station,
    test::{Client, Clock, Events},
};

/// A server, the clock that it reads, and the events that it reported.
pub struct Stage<H> {
    /// The server. Clones of it are the same server.
    pub server: Rounds<H>,
    /// Its clock, which moves when the test moves it.
    pub clock: Clock,
    /// Its events so far.
    pub events: Events,
}

impl<H: ServerHandler> Stage<H> {
    /// A stage with the default settings.
    pub fn of(handler: H) -> Self {
        Self::with(handler, |builder| builder)
    }

    /// A stage with other settings.
    pub fn with(handler: H, configure: impl FnOnce(RoundsBuilder<H>) -> RoundsBuilder<H>) -> Self {
        Self::at(&Clock::new(), handler, configure)
    }

    /// A stage at a clock that others share.
    pub fn at(clock: &Clock, handler: H, configure: impl FnOnce(RoundsBuilder<H>) -> RoundsBuilder<H>) -> Self {
        let (clock, events) = (clock.clone(), Events::new());
        let builder = Rounds::builder(handler).clock(clock.clone()).observe(events.clone());
        Self { server: configure(builder).build().unwrap(), clock, events }
    }

    /// A new client of the modern era.
    pub async fn modern(&self) -> Client {
        Client::modern(self.server.clone()).await
    }

    /// A new client of the legacy era.
    pub async fn legacy(&self) -> Client {
        Client::legacy(self.server.clone()).await
    }

    /// The handler that is wrapped.
    pub fn handler(&self) -> &H {
        self.server.handler()
    }

    /// Lets time pass once this many tasks wait for the clock, and lets the tasks that it wakes run.
    pub async fn passes(&self, sleepers: usize, time: Duration) {
        self.clock.until_asleep(sleepers).await;
        self.clock.advance(time);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// How many times a client was asked, in a result or by a push.
    pub fn asks(&self) -> usize {
        let asks = |station: &&Station| matches!(station, Station::Asked { .. } | Station::Pushed { .. });
        self.events.stations().iter().filter(asks).count()
    }
}

/// Waits for a future, and fails the test if that takes more than a minute.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}
