//! The instances of a simulated fleet, and the faults that befall them.

use std::{
    future::{Future, pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    RoleServer, ServerHandler,
    model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion},
    service::{Peer, RunningService, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use rounds::{KeyRing, Limits, Rounds};
use tokio::time::sleep;

use crate::{
    history::Event,
    plan::{Fault, Scheduled},
    relay::{Hub, Line, SimulatedRelay},
    rng::Rng,
    shop::Shop,
    store::{SimulatedLedger, Store},
    world::{Gate, ProcessClock, World},
};

/// All instances, with what they share.
pub(crate) struct Fleet {
    pub(crate) world: Arc<World>,
    store: Arc<Store>,
    hub: Arc<Hub>,
    /// The current process of each instance.
    running: Mutex<Vec<Arc<Process>>>,
    /// Processes that were killed. Nothing of them is dropped, because no destructor of a killed process runs.
    killed: Mutex<Vec<Arc<Process>>>,
    entropy: Mutex<Rng>,
    nobody: RunningService<RoleServer, Nobody>,
}

/// One process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    pub(crate) server: Rounds<Shop>,
    cut_from_store: Arc<AtomicBool>,
    cut_from_relay: Arc<AtomicBool>,
    line: Arc<Line>,
}

impl Fleet {
    pub(crate) fn start(world: &Arc<World>, entropy: Rng) -> Arc<Self> {
        let client = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::default())
            .with_protocol_version(ProtocolVersion::V_2026_07_28);
        let fleet = Self {
            world: world.clone(),
            store: Store::new(),
            hub: Hub::new(world),
            running: Mutex::default(),
            killed: Mutex::default(),
            entropy: Mutex::new(entropy),
            nobody: serve_directly(Nobody, Nowhere, Some(client)),
        };
        for slot in 0..world.plan.instances {
            let process = fleet.process(slot, 1);
            fleet.running.lock().unwrap().push(process);
        }
        Arc::new(fleet)
    }

    /// A process of an instance.
    fn process(&self, slot: usize, start: usize) -> Arc<Process> {
        let Self { world, store, hub, .. } = self;
        let name = format!("{}{start}", ["a", "b", "c"][slot]);
        let (gate, line) = (Gate::new(), Line::new());
        let (cut_from_store, cut_from_relay) = (Arc::default(), Arc::default());
        let ledger = SimulatedLedger::new(world, store, &name, &gate, &cut_from_store);
        let relay = SimulatedRelay {
            hub: hub.clone(),
            here: name.clone(),
            gate: gate.clone(),
            cut: Arc::clone(&cut_from_relay),
            line: line.clone(),
        };
        let limits = Limits::default().with_lease(world.plan.lease).with_wait(world.plan.wait);
        let entropy = Mutex::new(self.entropy.lock().unwrap().fork());
        let server = Rounds::builder(Shop { world: world.clone(), gate: gate.clone(), instance: name.clone() })
            .keys(KeyRing::from_bytes([[7; 32]]).unwrap())
            .audience("simulation")
            .clock(ProcessClock { world: world.clone(), gate: gate.clone() })
            .entropy(move |bytes| entropy.lock().unwrap().fill(bytes))
            .round_lifetime(world.plan.round)
            .flow_deadline(world.plan.flow)
            .limits(limits)
            .ledger(ledger)
            .relay(relay)
            .build()
            .unwrap();
        Arc::new(Process { name, gate, server, cut_from_store, cut_from_relay, line })
    }

    /// A peer for the contexts of requests, which reaches no client.
    pub(crate) fn peer(&self) -> Peer<RoleServer> {
        self.nobody.peer().clone()
    }

    /// An instance, as a load balancer picks one.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Arc<Process> {
        let running = self.running.lock().unwrap();
        running[rng.below(running.len() as u64) as usize].clone()
    }

    fn of(&self, slot: usize) -> Arc<Process> {
        self.running.lock().unwrap()[slot].clone()
    }

    /// Lets every fault happen at its time.
    pub(crate) fn schedule(self: &Arc<Self>) {
        for (number, scheduled) in self.world.plan.faults.clone().into_iter().enumerate() {
            tokio::spawn(self.clone().befall(number, scheduled));
        }
    }

    async fn befall(self: Arc<Self>, number: usize, Scheduled { at, lasts, fault }: Scheduled) {
        sleep(at).await;
        let process = match fault {
            Fault::Kill(slot) | Fault::Pause(slot) | Fault::CutStore(slot) | Fault::CutRelay { slot, .. } => {
                Some(self.of(slot))
            }
            _ => None,
        };
        let name = process.as_ref().map(|process| process.name.clone()).unwrap_or_default();
        if process.as_ref().is_some_and(|process| process.gate.is_dead()) {
            return;
        }
        self.world.record(Event::Begins { number, fault, process: name });
        match (fault, &process) {
            (Fault::Kill(slot), Some(process)) => return self.kill(slot, process, number, lasts).await,
            (Fault::Pause(_), Some(process)) => {
                process.gate.pause();
                sleep(lasts).await;
                process.gate.go_on();
            }
            (Fault::CutStore(_), Some(process)) => {
                process.cut_from_store.store(true, Ordering::Relaxed);
                sleep(lasts).await;
                process.cut_from_store.store(false, Ordering::Relaxed);
            }
            (Fault::CutRelay { silent, .. }, Some(process)) => {
                process.cut_from_relay.store(true, Ordering::Relaxed);
                if silent {
                    process.line.fall_silent();
                } else {
                    self.hub.unsubscribe(Some(&process.name));
                    process.line.close();
                }
                sleep(lasts).await;
                process.cut_from_relay.store(false, Ordering::Relaxed);
            }
            (Fault::PauseStore | Fault::RestartStore, _) => {
                self.store.gate.pause();
                sleep(lasts).await;
                if fault == Fault::RestartStore {
                    self.store.restart();
                }
                self.store.gate.go_on();
            }
            (Fault::PauseRelay, _) => {
                self.hub.gate.pause();
                self.all().iter().for_each(|process| process.line.fall_silent());
                sleep(lasts).await;
                self.hub.gate.go_on();
            }
            (Fault::RestartRelay, _) => {
                self.hub.gate.pause();
                self.hub.unsubscribe(None);
                self.all().iter().for_each(|process| process.line.close());
                sleep(lasts).await;
                self.hub.gate.go_on();
            }
            (_, None) => {}
        }
        self.world.record(Event::Ends { number });
    }

    /// Kills a process, and starts another one later.
    async fn kill(&self, slot: usize, process: &Arc<Process>, number: usize, lasts: Duration) {
        process.gate.kill();
        self.hub.unsubscribe(Some(&process.name));
        self.killed.lock().unwrap().push(process.clone());
        sleep(lasts).await;
        let started = self.process(slot, 2 + number);
        self.running.lock().unwrap()[slot] = started;
    }

    fn all(&self) -> Vec<Arc<Process>> {
        self.running.lock().unwrap().clone()
    }
}

struct Nobody;

impl ServerHandler for Nobody {}

/// A transport that neither sends nor receives.
struct Nowhere;

impl Transport<RoleServer> for Nowhere {
    type Error = std::io::Error;

    fn send(&mut self, _: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        pending().await
    }

    async fn close(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
