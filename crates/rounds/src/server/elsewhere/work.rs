//! What no request waits for: calls that go on by themselves once they are decided, and notifications.
//!
//! Every instance looks for documents that are due, at random times, and at once when something was decided through it. A call
//! that is due is taken by one instance for a lease. Whether its leg runs is decided by the claim of its round, as for every leg.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, ProtocolVersion, RequestId, RequestMetaObject},
    service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    ElsewhereService,
    kept::{Kept, Stage},
    play::{PlayLeg, decided_leg, play_with},
    wait::{Found, look, waits_elsewhere},
};
use crate::{
    server::{
        engine::{core::Core, elsewhere::Continued, handlers::Handlers, leg, task::TaskLeg},
        flows::{Flows, FlowsError},
        ledger::{
            LedgerError,
            documents::{DocumentId, DocumentKind, Version},
        },
        policy::{elsewhere::are_elsewhere, principal::Principal},
        seal::{envelope::Envelope, refusal::Refusal, token},
    },
    shared::clock::{Clock, Timestamp},
};

/// How many documents one sweep looks at, and how many one step removes.
const AT_ONCE: usize = 100;

/// How often documents whose time is over are removed: after so many sweeps.
const REMOVES: u32 = 20;

/// How many calls go on by themselves at once, and how many notifications are sent at once. The others wait in the ledger.
const CALLS: usize = 32;
const NOTICES: usize = 16;

/// Whether this instance looks for what is due, and how much it does at once.
pub(super) struct Places {
    works: AtomicBool,
    calls: Arc<Semaphore>,
    notices: Arc<Semaphore>,
    /// Ends the work with the server.
    over: CancellationToken,
    _ends: DropGuard,
}

impl Default for Places {
    fn default() -> Self {
        let over = CancellationToken::new();
        let _ends = over.clone().drop_guard();
        let (calls, notices) = (Arc::new(Semaphore::new(CALLS)), Arc::new(Semaphore::new(NOTICES)));
        Self { works: AtomicBool::new(false), calls, notices, over, _ends }
    }
}

impl Places {
    fn for_call(&self) -> Option<OwnedSemaphorePermit> {
        self.calls.clone().try_acquire_owned().ok()
    }

    pub(super) fn for_notice(&self) -> Option<OwnedSemaphorePermit> {
        self.notices.clone().try_acquire_owned().ok()
    }
}

impl ElsewhereService {
    /// Looks for what is due from now on, if a runtime is there to do so.
    pub(crate) fn work<H: ServerHandler>(self: &Arc<Self>, core: &Arc<Core>, handlers: &Handlers<H>) {
        let works = &self.places.works;
        if works.load(Ordering::Relaxed) || Handle::try_current().is_err() || works.swap(true, Ordering::Relaxed) {
            return;
        }
        let worker =
            Worker { settings: Arc::downgrade(self), core: Arc::downgrade(core), leg: play_with(handlers.clone()) };
        let (over, clock) = (self.places.over.clone(), core.clock.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = worker.work(clock) => {}
            }
        });
    }
}

/// What looks for work. It keeps no server alive.
struct Worker {
    settings: Weak<ElsewhereService>,
    core: Weak<Core>,
    leg: PlayLeg<CallToolRequestParams>,
}

impl Worker {
    async fn work(self, clock: Arc<dyn Clock>) {
        for number in 1_u32.. {
            let Some(worked) = self.worked() else { return };
            let pause = pause(worked.core.limits.lease, worked.core.random()[0]);
            let Some(wake) = worked.core.elsewhere.as_ref().map(|elsewhere| elsewhere.wake.clone()) else { return };
            drop(worked);
            tokio::select! {
                biased;
                () = wake.notified() => {}
                () = clock.sleep(pause) => {}
            }
            let Some(worked) = self.worked() else { return };
            if let Err(error) = worked.sweep(number % REMOVES == 0).await {
                tracing::warn!(target: "rounds", %error, "decided calls could not be looked for; the next sweep may do it");
            }
        }
    }

    fn worked(&self) -> Option<Worked> {
        let (settings, core) = (self.settings.upgrade()?, self.core.upgrade()?);
        let flows = Flows::of(&core, Some(settings.deciders.clone()));
        Some(Worked { settings, core, flows, leg: self.leg.clone() })
    }
}

/// What it takes to do the work that is due.
#[derive(Clone)]
pub(super) struct Worked {
    pub(super) settings: Arc<ElsewhereService>,
    pub(super) core: Arc<Core>,
    pub(super) flows: Flows,
    leg: PlayLeg<CallToolRequestParams>,
}

impl Worked {
    async fn sweep(&self, removes: bool) -> Result<(), FlowsError> {
        for id in self.flows.due_documents(DocumentKind::Decision, AT_ONCE).await? {
            passable(self.after_decision(id).await)?;
        }
        // A server that is about to end leaves them to the others.
        if !self.core.draining.has_begun() {
            for id in self.flows.due_documents(DocumentKind::Call, AT_ONCE).await? {
                passable(self.take_up(id).await)?;
            }
            if self.settings.notifying.is_some() {
                let due = self.flows.due_documents(DocumentKind::Notice, AT_ONCE).await?;
                passable(self.send_notices(due).await)?;
            }
        }
        if removes {
            self.flows.sweep_documents(AT_ONCE).await?;
        }
        Ok(())
    }

    /// Makes the call due that waits for this decision, if there is one.
    async fn after_decision(&self, id: DocumentId) -> Result<(), FlowsError> {
        let Some(decision) = self.flows.due_decision(id).await? else { return Ok(()) };
        if let Some((kept, version)) = Kept::read(&self.flows, decision.flow).await?
            && kept.waits()
            && kept.round == decision.round
            && kept.write(&self.core, &self.flows, Some(version), Some(self.core.now())).await?.is_none()
        {
            // It changes just now: the next sweep sees what came of that.
            return Ok(());
        }
        self.flows.attended(decision).await
    }

    /// Takes a call that is due, for a lease, and goes on with it if it is decided.
    async fn take_up(&self, id: DocumentId) -> Result<(), FlowsError> {
        let Some(place) = self.settings.places.for_call() else { return Ok(()) };
        let Some((kept, version)) = Kept::read_by(&self.flows, id).await? else { return Ok(()) };
        let due = kept.waits().then(|| self.core.now() + self.core.limits.lease);
        let Some(version) = kept.write(&self.core, &self.flows, Some(version), due).await? else { return Ok(()) };
        if kept.waits() {
            let worked = self.clone();
            tokio::spawn(async move {
                let flow = kept.flow;
                if let Err(error) = worked.play_decided(kept, version).await {
                    tracing::warn!(target: "rounds", %flow, %error, "a decided call could not go on; it is tried again");
                }
                drop(place);
            });
        }
        Ok(())
    }

    /// Plays the next leg of a call, if its questions are decided.
    async fn play_decided(&self, kept: Kept, version: Version) -> Result<(), FlowsError> {
        let leg = TaskLeg::new(None, Some(kept.caller.clone().map(Principal::new)));
        let (mut request, mut context) = (kept.request(), self.context(&kept, leg.clone()));
        let opened = leg::peek(&self.core, &mut request, &context).filter(|envelope| waits_elsewhere(envelope));
        let Some(envelope) = opened else {
            // Its time is over, or the keys of its state are.
            return kept.enter(&self.core, &self.flows, Stage::Failed(Refusal::frozen()), None).await;
        };
        match look(&self.flows, &envelope).await? {
            Found::Open(open) => {
                let due = open.until().max(self.core.now() + Duration::from_secs(1));
                return kept.write(&self.core, &self.flows, Some(version), Some(due)).await.map(drop);
            }
            Found::Decided(answers, void) => decided_leg(&self.flows, &envelope, answers, void, &mut context),
            Found::Gone => {}
        }
        tracing::info!(target: "rounds", flow = %kept.flow, round = kept.round, "a decided call goes on without its client");
        let played = self.play(&kept, version, request, context).await;
        self.settle(kept, &envelope, &leg, played).await
    }

    /// Plays a leg, and keeps the lease meanwhile.
    async fn play(
        &self,
        kept: &Kept,
        mut version: Version,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (clock, lease) = (&self.core.clock, self.core.limits.lease);
        let mut leg = (self.leg)(self.core.clone(), request, context);
        loop {
            tokio::select! {
                biased;
                played = &mut leg => return played,
                () = clock.sleep(lease / 3) => {
                    let renewed = kept.write(&self.core, &self.flows, Some(version), Some(self.core.now() + lease)).await;
                    // A store that is away may be back before the lease lapses. If it is not, the claim decides.
                    version = renewed.ok().flatten().unwrap_or(version);
                }
            }
        }
    }

    /// Records what came of a leg.
    async fn settle(
        &self,
        kept: Kept,
        envelope: &Envelope,
        leg: &TaskLeg,
        played: Result<CallToolResponse, ErrorData>,
    ) -> Result<(), FlowsError> {
        let (core, flows) = (&self.core, &self.flows);
        match played {
            Ok(CallToolResponse::Complete(result)) => {
                let result = serde_json::to_value(&result).unwrap_or_default();
                let fits = result.to_string().len() <= core.limits.reply_bytes;
                kept.enter(core, flows, if fits { Stage::Completed(result) } else { Stage::Replied }, None).await
            }
            Ok(CallToolResponse::InputRequired(asks)) if asks.input_requests.as_ref().is_some_and(are_elsewhere) => {
                let state = asks.request_state.unwrap_or_default();
                let Some(next) = opened(core, &state) else {
                    return kept.enter(core, flows, Stage::Failed(Refusal::frozen()), None).await;
                };
                self.settings.announce(flows, &next).await;
                let caller = kept.caller.clone().map(Principal::new);
                let call = kept.request();
                Kept::new(&call, state, &next, caller.as_ref(), kept.capabilities).keep(core, flows).await
            }
            // What it asks its client is asked when the client fetches the outcome.
            Ok(_) => kept.enter(core, flows, Stage::Replied, None).await,
            Err(error) if leg.asks_for_retry(&error) => {
                let due: Timestamp = core.now() + core.limits.lease;
                kept.enter(core, flows, Stage::Waits, Some(due)).await
            }
            Err(error) => {
                if leg.was_refused(&error) {
                    let why = "the call could not go on: it has ended, or the process in which it waited has stopped";
                    flows.void_round(kept.flow, envelope.round, None, why).await;
                }
                kept.enter(core, flows, Stage::Failed(error), None).await
            }
        }
    }

    /// The context of a leg that no request of its caller brings.
    fn context(&self, kept: &Kept, leg: TaskLeg) -> RequestContext<RoleServer> {
        let mut context = RequestContext::new(RequestId::Number(0), nobody());
        speak_modern(&mut context, kept.capabilities.clone());
        context.extensions.insert(Continued);
        context.extensions.insert(leg);
        context
    }
}

/// Lets a leg take its client for a modern one that declares this.
pub(super) fn speak_modern(context: &mut RequestContext<RoleServer>, capabilities: serde_json::Value) {
    let [version, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    context.meta.0.0.insert(version.to_owned(), ProtocolVersion::V_2026_07_28.as_str().into());
    context.meta.0.0.insert(declared.to_owned(), capabilities);
}

/// What a state carries.
pub(super) fn opened(core: &Core, state: &str) -> Option<Envelope> {
    let plaintext = token::open(&core.keys(), core.limits.token_bytes, state).ok()?;
    Envelope::from_bytes(&plaintext).ok()
}

/// One document that does not open, as after a change of keys, does not keep the others from being looked at.
fn passable(outcome: Result<(), FlowsError>) -> Result<(), FlowsError> {
    match outcome {
        Err(error @ FlowsError::Ledger(LedgerError::Unavailable(_))) => Err(error),
        Err(error) => {
            tracing::warn!(target: "rounds", %error, "a decision or a decided call cannot be attended to");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Between a half and a whole lease, so that the instances of a fleet do not sweep at once.
fn pause(lease: Duration, random: u8) -> Duration {
    lease / 2 + lease / 2 * u32::from(random) / 255
}

/// A peer that is gone: a leg needs one, and what is sent through it is lost.
fn nobody() -> Peer<RoleServer> {
    serve_directly(Nobody, Nowhere, None).peer().clone()
}

struct Nobody;

impl ServerHandler for Nobody {}

struct Nowhere;

impl Transport<RoleServer> for Nowhere {
    type Error = std::convert::Infallible;

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        None
    }

    fn send(
        &mut self,
        _: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        std::future::ready(Ok(()))
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
