//! Several instances of one server, in one process.

use rmcp::ServerHandler;
use rounds::{KeyRing, Rounds, RoundsBuilder, ledger::MemoryLedger, test::Clock};

use crate::Hub;

/// What the instances of a fleet share: keys, an audience, a ledger, a clock and a relay.
#[derive(Clone)]
pub struct Fleet {
    /// Their clock, which moves when the test moves it.
    pub clock: Clock,
    /// Their ledger.
    pub ledger: MemoryLedger,
    /// Their relay. Instances from [`builder`](Self::builder) are not connected to it.
    pub hub: Hub,
}

impl Fleet {
    /// A fleet without instances.
    pub fn new() -> Self {
        Self { clock: Clock::new(), ledger: MemoryLedger::new(), hub: Hub::default() }
    }

    /// An instance that the others cannot hand legs to.
    pub fn builder<H: ServerHandler>(&self, handler: H) -> RoundsBuilder<H> {
        self.join(Rounds::builder(handler))
    }

    /// An instance that the others can hand legs to, under a name.
    pub fn routed<H: ServerHandler>(&self, name: &str, handler: H) -> RoundsBuilder<H> {
        self.builder(handler).relay(self.hub.at(name))
    }

    /// Gives an instance what the fleet shares.
    pub fn join<H: ServerHandler>(&self, builder: RoundsBuilder<H>) -> RoundsBuilder<H> {
        builder
            .keys(KeyRing::from_bytes([[7; 32]]).unwrap())
            .audience("fleet")
            .ledger(self.ledger.clone())
            .clock(self.clock.clone())
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new()
    }
}
