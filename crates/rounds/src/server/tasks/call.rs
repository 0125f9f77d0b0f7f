//! A tool call that may become a task, and the legs that its task plays.

use std::{
    convert::Infallible,
    future::{poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, InputRequiredResult, RequestMetaObject},
    service::RequestContext,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    TaskService,
    record::{Holder, NextLeg, Record, Run, Stage, object},
    run::{Live, Running},
    store::{self, Unkept},
    sweep::context_without_request,
    table::{TaskKey, leg_of, new_id},
};
use crate::{
    server::{
        elsewhere::{ElsewherePlayer, ElsewhereService, awaited},
        engine::{core::Core, handlers::Handlers, leg, task::TaskLeg},
        ledger::LedgerError,
        policy::principal::Principal,
        seal::{
            Digest, FlowId,
            envelope::{Envelope, Span},
            token,
        },
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// How often a leg that asks for a retry is played again, and the pause before the first time; it doubles.
const RETRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(250);

/// How much longer a call runs inline if it would become a task in the middle of an effect.
const EFFECT: Duration = Duration::from_secs(10);

/// How often a run looks at its task at least: a cancellation on another instance reaches it after this time.
const LOOK: Duration = Duration::from_secs(5);

type Played = Result<CallToolResponse, ErrorData>;
type LegFuture = BoxFuture<'static, Played>;

/// The future of a tool call: a leg, one that may become a task and has not been prepared for it, or one that has.
pub(crate) enum Called<L, P> {
    Leg(L),
    Promising(P),
    Offered(LegFuture),
}

impl<L, P> Future for Called<L, P>
where
    L: Future<Output = Played> + Unpin,
    P: Future<Output = Played> + Unpin,
{
    type Output = Played;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Played> {
        match &mut *self {
            Self::Leg(leg) => Pin::new(leg).poll(cx),
            Self::Promising(call) => Pin::new(call).poll(cx),
            Self::Offered(call) => call.as_mut().poll(cx),
        }
    }
}

/// A first leg that is played inline, and the little that a task would need beside it.
///
/// A copy of the request and its context would cost a third of a call, and most calls end at once. The handler's frame has
/// the arguments and the caller. The headers are not kept: a leg that such a task plays without a request has none, as if
/// another instance had taken the task over.
pub(crate) struct Promise<L> {
    leg: L,
    watched: TaskLeg,
    /// The token of the request. The leg has another one, which outlives the request.
    client: CancellationToken,
    token: CancellationToken,
    peer: Peer<RoleServer>,
    /// What the client declared, as JSON text.
    capabilities: Vec<u8>,
}

/// Whether a [`Promise`] is enough for this call: it is a first leg without a name, so that it is never played again, and
/// it has no answers.
pub(crate) fn is_brief(request: &CallToolRequestParams, context: &RequestContext<RoleServer>) -> bool {
    request.request_state.is_none() && request.input_responses.is_none() && leg::key_of(context).is_none()
}

/// Begins such a call.
pub(crate) fn promise<H: ServerHandler>(
    core: &Arc<Core>,
    handlers: &Handlers<H>,
    request: CallToolRequestParams,
    mut context: RequestContext<RoleServer>,
) -> Promise<impl Future<Output = Played> + Send + Unpin + 'static> {
    let (client, watched) = (std::mem::take(&mut context.ct), TaskLeg::default());
    context.extensions.insert(watched.clone());
    let (token, peer) = (context.ct.clone(), context.peer.clone());
    // Not `Value::to_string`, which takes five times as long.
    let capabilities = declared(&context).and_then(|declared| serde_json::to_vec(declared).ok()).unwrap_or_default();
    let leg = leg::play_owned(core.clone(), handlers.clone(), request, context);
    Promise { leg, watched, client, token, peer, capabilities }
}

impl<L: Future<Output = Played> + Unpin> Promise<L> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Played> {
        Pin::new(&mut self.leg).poll(cx)
    }
}

/// Everything that plays a leg, owned: a task outlives the request that it began with.
pub(crate) struct Player<H> {
    pub(crate) tasks: Arc<TaskService>,
    pub(crate) core: Arc<Core>,
    pub(crate) handlers: Handlers<H>,
    /// None if no question is answered elsewhere.
    pub(crate) elsewhere: Option<Arc<ElsewhereService>>,
}

impl<H> Clone for Player<H> {
    fn clone(&self) -> Self {
        let Self { tasks, core, handlers, elsewhere } = self;
        Self { tasks: tasks.clone(), core: core.clone(), handlers: handlers.clone(), elsewhere: elsewhere.clone() }
    }
}

/// A run that is about to begin.
pub(super) struct NewRun {
    holder: Holder,
    /// Its lease, if tasks are kept outside of this process.
    pub(super) lease: Option<Run>,
}

impl<H: ServerHandler> Player<H> {
    /// Goes on with a leg that has not ended at once. If it takes longer than this, the call becomes a task, and the leg goes
    /// on in it.
    pub(crate) fn wait(
        self,
        promise: Promise<impl Future<Output = Played> + Send + Unpin + 'static>,
        after: Duration,
    ) -> LegFuture {
        Box::pin(async move {
            let Promise { leg, watched, client, token, peer, capabilities } = promise;
            let (mut leg, began): (LegFuture, _) = (Box::pin(leg), self.core.now());
            let mut ended = in_time(&self.core, after, &mut leg, &client, &token).await;
            if ended.is_none() {
                ended = past_effect(&self.core, &mut leg, &watched).await;
            }
            if let Some(ended) = ended {
                return ended;
            }
            let Some((request, caller)) = watched.call() else {
                return listened(leg, &client, &token).await;
            };
            let capabilities: Value = serde_json::from_slice(&capabilities).unwrap_or_default();
            let mut context = context_without_request(peer);
            let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
            context.meta.0.0.insert(declared.to_owned(), capabilities.clone());
            context.extensions.insert(watched.clone());
            context.ct = token;
            let (id, until) = (new_id(&self.core, None), began + self.core.lifetimes.flow(&request.name));
            let record = Record::new(caller.as_ref(), request, capabilities, self.core.now(), until);
            watched.goes_on_for(caller);
            self.become_task(id, record, watched, context, leg, &client).await
        })
    }

    /// Plays the leg of a call. If it takes longer than this, the call becomes a task, and the leg goes on in it.
    ///
    /// What only a task needs is found out when there is one: a call that ends before that asks nothing more of the store.
    pub(crate) fn call(
        self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
        after: Duration,
    ) -> LegFuture {
        Box::pin(self.offer(request, context, after))
    }

    async fn offer(
        self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
        after: Duration,
    ) -> Played {
        self.sweep_from_now_on(&context);
        if after.is_zero()
            && let Some(handle) = self.handle_of_equal(&request, &context).await
        {
            return Ok(handle);
        }
        let client = std::mem::take(&mut context.ct);
        let first = self.first_leg(&request, &context, after);
        let watched = first.clone().unwrap_or_default();
        context.extensions.insert(watched.clone());
        let (mut leg, began) = (self.leg(request.clone(), context.clone()), self.core.now());
        if !after.is_zero() {
            let mut ended = in_time(&self.core, after, &mut leg, &client, &context.ct).await;
            if ended.is_none() {
                ended = past_effect(&self.core, &mut leg, &watched).await;
            }
            if let Some(ended) = ended {
                // An equal leg may have become a task before it replied.
                if watched.is_replayed()
                    && let Some(handle) = self.handle_of_equal(&request, &context).await
                {
                    return Ok(handle);
                }
                if !asks_elsewhere(&ended) {
                    return ended;
                }
                leg = Box::pin(ready(ended));
            }
        }
        let (caller, until) = (caller(&self.core, &context), deadline(&self.core, &request, began));
        let id = new_id(&self.core, self.equal_leg(&request, &context));
        let mut record = Record::new(
            caller.as_ref(),
            request,
            declared(&context).cloned().unwrap_or_default(),
            self.core.now(),
            until,
        );
        if let Some(first) = first {
            match called(&mut leg, &first).await {
                // Its handler was not called: there is nothing to poll for.
                Some(Err(error)) if !first.is_called() => return Err(error),
                Some(played) => {
                    // Its questions are recorded with the flow: played again, the leg asks the same.
                    if let Ok(CallToolResponse::InputRequired(asks)) = &played {
                        record.flow = opened(&self.core, asks.request_state.as_deref()).map(|(flow, _)| flow);
                    }
                    leg = Box::pin(ready(played));
                }
                None => record.flow = first.runs_again_as(),
            }
        }
        self.become_task(id, record, watched, context, leg, &client).await
    }

    /// Keeps the task of a call, in which its leg goes on, and answers with its handle.
    async fn become_task(
        self,
        id: String,
        mut record: Record,
        watched: TaskLeg,
        context: RequestContext<RoleServer>,
        leg: LegFuture,
        client: &CancellationToken,
    ) -> Played {
        let (run, until) = (self.new_run(), record.until);
        record.run.clone_from(&run.lease);
        let (key, handle) = (Digest::of_task(&id), record.created(&id, watched.message(), self.core.now()));
        match self.tasks.insert(&self.core, key, record).await {
            Ok(true) => {
                watched.is_of_task();
                let running = self.tasks.runs.enter(run.live(key, context.ct.clone(), watched));
                tokio::spawn(self.follow(running, until, context, leg));
                Ok(handle.into())
            }
            Ok(false) => {
                // An equal leg became this task at the same time. The one of the two that runs has to end.
                tokio::spawn(leg);
                Ok(self.handle(&id).await.unwrap_or_else(|| handle.into()))
            }
            Err(unkept) => {
                tracing::warn!(target: "rounds", error = %unkept, "a call does not become a task");
                listened(leg, client, &context.ct).await
            }
        }
    }

    /// By what this leg is known again, if it is.
    fn equal_leg(&self, request: &CallToolRequestParams, context: &RequestContext<RoleServer>) -> Option<Digest> {
        let caller = caller(&self.core, context);
        leg_of(request, name_of(context), caller.as_ref().map(Principal::digest))
    }

    /// The handle of the task that an equal leg has become.
    async fn handle_of_equal(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<CallToolResponse> {
        let equal = self.equal_leg(request, context)?;
        self.handle(&new_id(&self.core, Some(equal))).await
    }

    /// The handle of a task that exists.
    async fn handle(&self, id: &str) -> Option<CallToolResponse> {
        let key = Digest::of_task(id);
        let record = self.tasks.read(&self.core, key).await.ok()?;
        let message = self.tasks.runs.find(key).and_then(|live| live.leg.message());
        Some(record.created(id, message, self.core.now()).into())
    }

    /// What makes a first leg one that can be played again, if tasks are kept: its flow has a name before its handler runs.
    /// The client has given it one with its idempotency key. Otherwise it gets one if it is a task from its beginning: the
    /// others would pay for it with a claim, also those that end in time.
    fn first_leg(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        after: Duration,
    ) -> Option<TaskLeg> {
        if request.request_state.is_some() || store::documents(&self.core).is_none() {
            return None;
        }
        let is_named = name_of(context).is_some();
        (is_named || after.is_zero()).then(|| TaskLeg::new((!is_named).then(|| self.core.new_flow()), None))
    }

    pub(super) fn new_run(&self) -> NewRun {
        let holder = *self.core.new_flow().as_bytes();
        let until = self.core.now() + self.core.limits.lease;
        let lease = store::documents(&self.core).map(|_| Run { holder, until });
        NewRun { holder, lease }
    }

    /// Plays a leg of a task: the next one, or one whose run is lost.
    pub(super) fn go_on(
        &self,
        key: TaskKey,
        run: NewRun,
        record: &Record,
        leg: &NextLeg,
        mut context: RequestContext<RoleServer>,
    ) {
        let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
        // What can be asked is what the client of the call can answer, whatever it says in an update.
        context.meta.0.0.insert(declared.to_owned(), record.capabilities.clone());
        let flow = record.flow.filter(|_| leg.state.is_none());
        let played = TaskLeg::new(flow, Some(record.caller.clone().map(Principal::new)));
        played.is_of_task();
        context.extensions.insert(played.clone());
        context.ct = CancellationToken::new();
        let running = self.tasks.runs.enter(run.live(key, context.ct.clone(), played));
        let (request, until) = (record.request(leg), record.until);
        let player = self.clone();
        let leg = player.leg(request, context.clone());
        tokio::spawn(player.follow(running, until, context, leg));
    }

    /// Plays legs until the task has ended or asks.
    async fn follow(self, run: Running, mut until: Timestamp, context: RequestContext<RoleServer>, mut leg: LegFuture) {
        let mut retries = 0;
        loop {
            let ended = self.attend(&run, until, leg).await;
            let next = match ended {
                Ended::Played(Err(error)) if retries < RETRIES && self.may_retry(&run, &error).await => {
                    self.core.clock.sleep(PAUSE * 2_u32.pow(retries)).await;
                    retries += 1;
                    self.working_leg(&run).await
                }
                ended => self.settle(&run, until, ended).await,
            };
            let Some(request) = next else { return };
            until = deadline(&self.core, &request, self.core.now());
            leg = self.leg(request, context.clone());
        }
    }

    fn leg(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> LegFuture {
        let (core, handlers) = (self.core.clone(), self.handlers.clone());
        match self.elsewhere.clone() {
            Some(elsewhere) => ElsewherePlayer::new(elsewhere, core, handlers).play_in_task(request, context),
            None => Box::pin(leg::play_owned(core, handlers, request, context)),
        }
    }

    /// Waits for the end of a leg, for its deadline, and after a cancellation for the grace period. Keeps the lease
    /// meanwhile.
    async fn attend(&self, run: &Running, until: Timestamp, leg: LegFuture) -> Ended {
        let core = &self.core;
        let overdue = core.clock.sleep(until.since(core.now()));
        let cancelled = async {
            run.cancel.cancelled().await;
            core.clock.sleep(core.limits.grace).await;
        };
        tokio::select! {
            biased;
            played = leg => Ended::Played(played),
            () = cancelled => Ended::Cancelled,
            () = overdue => Ended::Overdue,
            never = self.keep_lease(run) => match never {},
        }
    }

    /// Renews the lease of a run, shows how far it is, and learns whether it was cancelled elsewhere.
    async fn keep_lease(&self, run: &Running) -> Infallible {
        let lease = self.core.limits.lease;
        if store::documents(&self.core).is_none() {
            // A cancellation tells the run by itself, except one that came before the run was in the list.
            if self.tasks.read(&self.core, run.key).await.is_ok_and(|record| record.cancelled) {
                run.cancel.cancel();
            }
            return std::future::pending().await;
        }
        loop {
            self.core.clock.sleep((lease / 3).min(LOOK)).await;
            let (until, message) = (self.core.now() + lease, run.leg.message());
            let renewed = self.tasks.change(&self.core, run.key, |record| {
                if !record.is_run_by(run.holder) {
                    return None;
                }
                record.run = Some(Run { holder: run.holder, until });
                record.message.clone_from(&message);
                Some(record.cancelled)
            });
            // A store that is away may be back before the lease lapses. A run that was taken over ends by its claim.
            if let Ok(Some(true)) = renewed.await {
                run.cancel.cancel();
            }
        }
    }

    /// The leg that the run still has to play.
    async fn working_leg(&self, run: &Running) -> Option<CallToolRequestParams> {
        let record = self.tasks.read(&self.core, run.key).await.ok()?;
        record.leg().filter(|_| record.is_run_by(run.holder)).map(|leg| record.request(leg))
    }

    /// Whether a leg with this error is played again. A first leg without a name for its flow is not: its effects would
    /// not be known.
    async fn may_retry(&self, run: &Running, error: &ErrorData) -> bool {
        if !run.leg.asks_for_retry(error) || run.cancel.is_cancelled() {
            return false;
        }
        let record = self.tasks.read(&self.core, run.key).await;
        record.is_ok_and(|record| record.is_run_by(run.holder) && record.can_play_again())
    }

    /// Records what came of a leg. Returns the next one if it needs no answers.
    async fn settle(&self, run: &Running, until: Timestamp, ended: Ended) -> Option<CallToolRequestParams> {
        let outcome = ended.outcome(run);
        let outcome = match outcome {
            Outcome::Asks(mut asks) => {
                // What is decided elsewhere is not asked of the client: the next leg waits for it.
                if let Some(awaited) = awaited(&asks) {
                    run.leg.show(Some(&awaited));
                    asks.input_requests = None;
                }
                match opened(&self.core, asks.request_state.as_deref()) {
                    Some((_, span)) => Settled::Asks(asks, span),
                    None => Settled::Ends(Stage::Failed(internal("the questions have no state of this server"))),
                }
            }
            Outcome::Withdrawn(asks) => {
                self.abort(asks.request_state.as_deref()).await;
                Settled::Ends(Stage::Cancelled)
            }
            Outcome::Ends(stage) => Settled::Ends(stage),
        };
        let mut pause = PAUSE;
        loop {
            match self.record(run, &outcome).await {
                Ok(next) => return next,
                Err(Unkept::Unknown) => return None,
                Err(Unkept::NoRoom(full)) => return self.fail(run, &outcome, &full.to_string()).await,
                Err(Unkept::Ledger(LedgerError::Full { whose, limit })) => {
                    let full = LedgerError::Full { whose, limit };
                    return self.fail(run, &outcome, &full.to_string()).await;
                }
                // What came of it is not lost with a store that is away for a while.
                Err(Unkept::Ledger(_) | Unkept::Busy) if self.core.now() < until => {
                    self.core.clock.sleep(pause).await;
                    pause = (pause * 2).min(LOOK);
                }
                Err(_) => return None,
            }
        }
    }

    async fn record(&self, run: &Running, outcome: &Settled) -> Result<Option<CallToolRequestParams>, Unkept> {
        let (now, keep) = (self.core.now(), self.core.lifetimes.round);
        let next = self.tasks.change(&self.core, run.key, |record| {
            if !record.is_run_by(run.holder) {
                return None;
            }
            match outcome {
                Settled::Ends(stage) => {
                    record.end(stage.clone(), now, keep);
                    Some(None)
                }
                Settled::Asks(asks, span) => {
                    let leg = record.proceed((**asks).clone(), *span, now);
                    Some(leg.map(|leg| record.request(&leg)))
                }
            }
        });
        Ok(next.await?.flatten())
    }

    /// Ends the task because what came of it does not fit. A failure takes less.
    async fn fail(&self, run: &Running, outcome: &Settled, why: &str) -> Option<CallToolRequestParams> {
        if let Settled::Asks(asks, _) = outcome {
            self.abort(asks.request_state.as_deref()).await;
        }
        let _ = self.record(run, &Settled::Ends(Stage::Failed(internal(why)))).await;
        None
    }

    /// Ends the handler that waits for the answers to this state: in this process, and on every instance if the server
    /// keeps a register.
    pub(super) async fn abort(&self, state: Option<&str>) {
        let Some((flow, _)) = opened(&self.core, state) else { return };
        if let Some(frame) = self.core.frames.find(flow) {
            frame.abort();
        }
        if let Some(register) = self.core.register() {
            let end = self.core.flow_end(self.core.now());
            let _ = register.cancel(flow.in_ledger(), end).await;
        }
    }
}

impl NewRun {
    fn live(&self, key: TaskKey, cancel: CancellationToken, leg: TaskLeg) -> Live {
        Live { key, holder: self.holder, cancel, leg }
    }
}

/// What is recorded of a leg.
enum Settled {
    Ends(Stage),
    Asks(Box<InputRequiredResult>, Span),
}

/// How a leg of a task ended.
enum Ended {
    Played(Played),
    /// It was cancelled, and the handler did not stop in its grace period.
    Cancelled,
    Overdue,
}

/// What that means for the task.
enum Outcome {
    Ends(Stage),
    Asks(Box<InputRequiredResult>),
    /// It asks, and was cancelled.
    Withdrawn(Box<InputRequiredResult>),
}

impl Ended {
    fn outcome(self, run: &Running) -> Outcome {
        let cancelled = run.cancel.is_cancelled();
        Outcome::Ends(match self {
            Self::Played(Ok(CallToolResponse::Complete(result))) => Stage::Completed(object(&result)),
            Self::Played(Ok(CallToolResponse::InputRequired(asks))) if cancelled => {
                return Outcome::Withdrawn(Box::new(asks));
            }
            Self::Played(Ok(CallToolResponse::InputRequired(asks))) => return Outcome::Asks(Box::new(asks)),
            Self::Played(Ok(_)) => Stage::Failed(internal(
                "the tool answered with a task of its own: set `Tasks::never()` for it with `tasks_for`",
            )),
            Self::Played(Err(_)) if cancelled => Stage::Cancelled,
            // The state is one of ours, so the round that it belongs to is lost.
            Self::Played(Err(error)) if run.leg.was_refused(&error) => Stage::Failed(internal(
                "the server process in which this call waited has stopped, and the call cannot go on elsewhere: start it again",
            )),
            Self::Played(Err(error)) => Stage::Failed(error),
            Self::Cancelled => Stage::Cancelled,
            Self::Overdue => Stage::Failed(internal(
                "the call took longer than a flow may: start it again, or raise `flow_deadline`",
            )),
        })
    }
}

/// Plays a first leg until its handler is called, and gives what came of it if that is there by then.
async fn called(leg: &mut LegFuture, first: &TaskLeg) -> Option<Played> {
    poll_fn(|cx| match leg.as_mut().poll(cx) {
        Poll::Ready(played) => Poll::Ready(Some(played)),
        Poll::Pending if first.is_called() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Whether a leg asks what is decided elsewhere: its client would wait for that, and polls instead.
fn asks_elsewhere(played: &Played) -> bool {
    matches!(played, Ok(CallToolResponse::InputRequired(asks)) if awaited(asks).is_some())
}

/// The response of a leg, if it comes in this time.
async fn in_time(
    core: &Core,
    time: Duration,
    leg: &mut LegFuture,
    client: &CancellationToken,
    token: &CancellationToken,
) -> Option<Played> {
    // Most handlers come to something at once, and need no timer.
    if let Poll::Ready(played) = poll_fn(|cx| Poll::Ready(leg.as_mut().poll(cx))).await {
        return Some(played);
    }
    tokio::select! {
        biased;
        played = listened(&mut *leg, client, token) => Some(played),
        () = core.clock.sleep(time) => None,
    }
}

/// Plays on while an effect runs, so that what it comes to is recorded before the handle leaves. An effect that takes very
/// long does not keep the client from its handle.
async fn past_effect(core: &Core, leg: &mut LegFuture, watched: &TaskLeg) -> Option<Played> {
    if !watched.has_effect() {
        return None;
    }
    let on = poll_fn(|cx| match leg.as_mut().poll(cx) {
        Poll::Ready(played) => Poll::Ready(Some(played)),
        Poll::Pending if watched.has_effect() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    });
    tokio::select! {
        biased;
        played = on => played,
        () = core.clock.sleep(EFFECT) => None,
    }
}

/// Plays a leg, which is cancelled with its client's request.
async fn listened(
    mut leg: impl Future<Output = Played> + Unpin,
    client: &CancellationToken,
    token: &CancellationToken,
) -> Played {
    tokio::select! {
        biased;
        played = &mut leg => return played,
        () = client.cancelled() => token.cancel(),
    }
    leg.await
}

/// The principal of a request.
pub(super) fn caller(core: &Core, context: &RequestContext<RoleServer>) -> Option<Principal> {
    core.identify(context)
}

/// The flow of a state, and its times.
fn opened(core: &Core, state: Option<&str>) -> Option<(FlowId, Span)> {
    let plaintext = token::open(&core.keys(), core.limits.token_bytes, state?).ok()?;
    let envelope: Envelope = Envelope::from_bytes(&plaintext).ok()?;
    Some((envelope.flow, envelope.span))
}

/// The deadline of the flow that this request begins, at this time, or goes on with.
fn deadline(core: &Core, request: &CallToolRequestParams, began: Timestamp) -> Timestamp {
    let going_on = opened(core, request.request_state.as_deref());
    going_on.map_or_else(|| began + core.lifetimes.flow(&request.name), |(_, span)| span.deadline)
}

/// The idempotency key of a call, by which its flow is named.
fn name_of(context: &RequestContext<RoleServer>) -> Option<&str> {
    leg::key_of(context).and_then(Result::ok)
}

/// What the client declared that it can do, in its request.
fn declared(context: &RequestContext<RoleServer>) -> Option<&Value> {
    let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    context.meta.get(declared)
}

fn internal(words: &str) -> ErrorData {
    ErrorData::internal_error(words.to_owned(), None)
}
