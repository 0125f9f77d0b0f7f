//! A tool call that may become a task, and the legs that its task plays.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, InputRequiredResult, RequestMetaObject},
    service::RequestContext,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    TaskService,
    record::{NextLeg, Record, Stage, object},
    table::{Entry, leg_of},
};
use crate::{
    server::{
        engine::{core::Core, handlers::Handlers, leg, link::StatusLine},
        policy::principal::Principal,
        seal::{
            Digest, FlowId,
            envelope::{Envelope, Span},
            token,
        },
    },
    shared::clock::BoxFuture,
};

/// How often a leg that asks for a retry is played again, and the pause before the first time; it doubles.
const RETRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(250);

type Played = Result<CallToolResponse, ErrorData>;
type LegFuture = BoxFuture<'static, Played>;

/// The future of a tool call: a leg, or a leg that may become a task.
pub(crate) enum Called<L> {
    Leg(L),
    Offered(LegFuture),
}

impl<L: Future<Output = Played> + Unpin> Future for Called<L> {
    type Output = Played;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Played> {
        match &mut *self {
            Self::Leg(leg) => Pin::new(leg).poll(cx),
            Self::Offered(call) => call.as_mut().poll(cx),
        }
    }
}

/// Everything that plays a leg, owned: a task outlives the request that it began with.
pub(crate) struct Player<H> {
    pub(crate) tasks: Arc<TaskService>,
    pub(crate) core: Arc<Core>,
    pub(crate) handlers: Handlers<H>,
}

impl<H: ServerHandler> Player<H> {
    /// Plays the leg of a call. If it takes longer than this, the call becomes a task, and the leg goes on in it.
    pub(crate) async fn call(
        self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
        after: Duration,
    ) -> Played {
        let owner = caller(&self.core, &context);
        let same = leg_of(&request, owner);
        if let Some(entry) = same.and_then(|leg| self.tasks.table.of_leg(leg)) {
            return Ok(entry.handle(self.core.now()).into());
        }
        let (client, status) = (std::mem::take(&mut context.ct), StatusLine::default());
        context.extensions.insert(status.clone());
        let until = until(&self.core, &request);
        let mut leg = self.leg(request.clone(), context.clone());
        if !after.is_zero()
            && let Some(ended) = in_time(&self.core, after, &mut leg, &client, &context.ct).await
        {
            return ended;
        }
        let now = self.core.now();
        let record = Record::new(owner, request, capabilities(&context), now, until);
        match self.tasks.table.insert(&self.core, record, same, context.ct.clone(), status.clone()) {
            Ok(entry) => {
                status.is_of_task();
                let handle = entry.handle(now);
                tokio::spawn(self.follow(entry, context, leg));
                Ok(handle.into())
            }
            Err(full) => {
                tracing::warn!(target: "rounds", "a call does not become a task: {full}");
                listened(leg, &client, &context.ct).await
            }
        }
    }

    /// Sends the next leg of a task whose questions are answered.
    pub(super) fn go_on(self, entry: Arc<Entry>, leg: NextLeg, mut context: RequestContext<RoleServer>) {
        let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
        let (request, capabilities) = entry.look(|record| (record.request(&leg), record.capabilities.clone()));
        // What can be asked is what the client of the call can answer, whatever it says in an update.
        context.meta.0.0.insert(declared.to_owned(), capabilities);
        context.extensions.insert(entry.status.clone());
        context.ct = entry.cancel.clone();
        let leg = self.leg(request, context.clone());
        tokio::spawn(self.follow(entry, context, leg));
    }

    /// Plays legs until the task has ended or asks.
    async fn follow(self, entry: Arc<Entry>, context: RequestContext<RoleServer>, mut leg: LegFuture) {
        let mut retries = 0;
        loop {
            let ended = attend(&self.core, &entry, leg).await;
            let next = match ended {
                Ended::Played(Err(error)) if retries < RETRIES && entry.may_retry(&error) => {
                    self.core.clock.sleep(PAUSE * 2_u32.pow(retries)).await;
                    retries += 1;
                    entry.look(|record| match &record.stage {
                        Stage::Working(leg) => Some(leg.clone()),
                        _ => None,
                    })
                }
                ended => self.settle(&entry, ended),
            };
            let Some(next) = next else { return };
            leg = self.leg(entry.look(|record| record.request(&next)), context.clone());
        }
    }

    fn leg(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> LegFuture {
        let (core, handlers) = (self.core.clone(), self.handlers.clone());
        Box::pin(async move { leg::play(&core, &handlers, request, context).await })
    }

    /// Records what came of a leg. Returns the next one if it needs no answers.
    fn settle(&self, entry: &Entry, ended: Ended) -> Option<NextLeg> {
        let (core, table) = (&self.core, &self.tasks.table);
        let (now, keep) = (core.now(), core.lifetimes.round);
        let end = |stage| table.change(core, entry, |record| record.end(stage, now, keep));
        let changed = match ended.outcome(entry) {
            Outcome::Ends(stage) => end(stage).map(|()| None),
            Outcome::Asks(asks) => match opened(core, asks.request_state.as_deref()) {
                Some((_, span)) => table.change(core, entry, |record| record.proceed(*asks, span, now)),
                None => end(Stage::Failed(internal("the questions have no state of this server"))).map(|()| None),
            },
            Outcome::Withdrawn(asks) => {
                abort(core, asks.request_state.as_deref());
                end(Stage::Cancelled).map(|()| None)
            }
        };
        changed.unwrap_or_else(|full| {
            if let Stage::Asking(asking) = entry.look(|record| record.stage.clone()) {
                abort(core, Some(&asking.state));
            }
            // A failure takes less than what it replaces.
            let _ = end(Stage::Failed(internal(&full.to_string())));
            None
        })
    }
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
    fn outcome(self, entry: &Entry) -> Outcome {
        let cancelled = entry.cancel.is_cancelled();
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
            Self::Played(Err(error)) => Stage::Failed(error),
            Self::Cancelled => Stage::Cancelled,
            Self::Overdue => Stage::Failed(internal(
                "the call took longer than a flow may: start it again, or raise `flow_deadline`",
            )),
        })
    }
}

impl Entry {
    /// Whether a leg with this error is played again. A first leg is not: it has no state by which its effects would be
    /// known.
    fn may_retry(&self, error: &ErrorData) -> bool {
        let asks_for_it = error.data.as_ref().is_some_and(|data| data["reason"] == "retry");
        let later = self.look(|record| matches!(&record.stage, Stage::Working(NextLeg { state: Some(_), .. })));
        asks_for_it && later && !self.cancel.is_cancelled()
    }
}

/// Waits for the end of a leg, for its deadline, and after a cancellation for the grace period.
async fn attend(core: &Core, entry: &Entry, leg: LegFuture) -> Ended {
    let overdue = core.clock.sleep(entry.look(|record| record.until).since(core.now()));
    let cancelled = async {
        entry.cancel.cancelled().await;
        core.clock.sleep(core.limits.grace).await;
    };
    tokio::select! {
        biased;
        played = leg => Ended::Played(played),
        () = cancelled => Ended::Cancelled,
        () = overdue => Ended::Overdue,
    }
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

/// Ends the handler that waits for the answers to this state, if it waits in this process.
pub(super) fn abort(core: &Core, state: Option<&str>) {
    if let Some(frame) = opened(core, state).and_then(|(flow, _)| core.frames.find(flow)) {
        frame.abort();
    }
}

/// The principal of a request.
pub(super) fn caller(core: &Core, context: &RequestContext<RoleServer>) -> Option<Digest> {
    core.identify(context).as_ref().map(Principal::digest)
}

/// The flow of a state, and its times.
fn opened(core: &Core, state: Option<&str>) -> Option<(FlowId, Span)> {
    let plaintext = token::open(&core.keys(), core.limits.token_bytes, state?).ok()?;
    let envelope: Envelope = Envelope::from_bytes(&plaintext).ok()?;
    Some((envelope.flow, envelope.span))
}

/// The deadline of the flow that this request begins or goes on with.
fn until(core: &Core, request: &CallToolRequestParams) -> crate::time::Timestamp {
    let going_on = opened(core, request.request_state.as_deref());
    going_on.map_or_else(|| core.now() + core.lifetimes.flow(&request.name), |(_, span)| span.deadline)
}

fn capabilities(context: &RequestContext<RoleServer>) -> Value {
    let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    context.meta.get(declared).cloned().unwrap_or_default()
}

fn internal(words: &str) -> ErrorData {
    ErrorData::internal_error(words.to_owned(), None)
}
