//! One leg: from the request that came in to the response that goes out.
//!
//! open ─▶ claim ─▶ resume ─▶ run until it ends or asks ─▶ gate ─▶ seal ─▶ record ─▶ response

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{ErrorCode, InputRequests, InputRequiredResult, InputResponses},
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::view::View;
use crate::{
    answer::Answers,
    clock::Timestamp,
    error::FlowError,
    exchange::{Exchange, Response},
    gate::Peer,
    ledger::{Bid, Claimed, Fence, Keep, LedgerError, Orphan, Round},
    observe::{Event, Outcome, Station, Tracing},
    refusal::Refusal,
    rounds::Core,
    seal::{
        Digest,
        envelope::{Asked, Binding, Envelope, Resume, Span},
        token,
    },
};

/// Plays one leg and gives what goes back to the client.
pub(crate) async fn play<X: Exchange, H: ServerHandler>(
    core: &Core,
    handler: &H,
    request: X,
    context: RequestContext<RoleServer>,
) -> Result<X::Response, ErrorData> {
    let span = Tracing::span(X::METHOD, request.target(), &context);
    let leg = Leg::new(core, &request, &context);
    leg.play(handler, request, context).instrument(span).await
}

/// Says that a state could not even be read as one.
pub(crate) fn refuse_unreadable(core: &Core, method: crate::seal::envelope::Method) -> ErrorData {
    core.observe(&Event { flow: None, round: 0, method, target: "", station: &Station::Refused(Refusal::WrongType) });
    Refusal::frozen()
}

struct Leg<'a> {
    core: &'a Core,
    binding: Binding,
    peer: Peer,
    over_http: bool,
    /// The flow is drawn anew for a first leg, and replaced by the one in the state when there is one.
    round: Round,
    opened: bool,
}

/// How the handler's part of a leg ended.
enum Ran<R> {
    Returned(Result<R, ErrorData>),
    Panicked,
    /// The client went away, and nobody else waits.
    Cancelled,
    /// Another instance took the round over.
    Overtaken,
}

impl<'a> Leg<'a> {
    fn new<X: Exchange>(core: &'a Core, request: &X, context: &RequestContext<RoleServer>) -> Self {
        let principal = core.identify(context);
        Self {
            core,
            binding: Binding {
                principal: principal.as_ref().map(crate::Principal::digest),
                method: X::METHOD,
                target: request.target().to_owned(),
                arguments: Digest::of_arguments(request.arguments()),
            },
            peer: Peer::of(context),
            over_http: crate::rounds::is_over_http(context),
            round: Round { flow: core.new_flow(), number: 0 },
            opened: false,
        }
    }

    async fn play<X: Exchange, H: ServerHandler>(
        mut self,
        handler: &H,
        mut request: X,
        context: RequestContext<RoleServer>,
    ) -> Result<X::Response, ErrorData> {
        let sent = request.answers().take().unwrap_or_default();
        let state = request.state().take();
        let depends_on_answers = state.is_some() || !sent.is_empty();
        let played = match state {
            None => self.begin(handler, request, sent, context).await,
            Some(token) => match self.open(&token) {
                Ok(envelope) => self.go_on(handler, request, envelope, sent, context).await,
                Err(refusal) => Err(self.refuse(refusal)),
            },
        };
        match played {
            Ok(mut response) => {
                if depends_on_answers {
                    response.forbid_caching();
                }
                self.event(Station::Ended(response.outcome()));
                Ok(response)
            }
            Err(Stop { error, outcome }) => {
                self.event(Station::Ended(outcome));
                Err(error)
            }
        }
    }

    /// The first leg: there is nothing to claim yet.
    async fn begin<X: Exchange, H: ServerHandler>(
        &self,
        handler: &H,
        mut request: X,
        sent: InputResponses,
        context: RequestContext<RoleServer>,
    ) -> Result<X::Response, Stop> {
        let answered = !sent.is_empty();
        let deadline = self.core.now() + self.core.flow_deadline;
        let view = Arc::new(View {
            round: self.round,
            peer: self.peer.clone(),
            answers: Answers::unsolicited(sent.clone()),
            state: None,
            solicited: false,
        });
        *request.answers() = answered.then_some(sent);
        let leg_token = context.ct.clone();
        let run = self.run(handler, request, &view, context);
        let ran = tokio::select! {
            biased;
            ran = run => ran,
            () = leg_token.cancelled() => Ran::Cancelled,
        };
        let (asked, response) = self.conclude::<X>(ran, &view, deadline)?;
        if let Some(keep) = asked {
            let admitted = self.core.ledger.admit(self.next(), keep).await;
            if let Err(error) = admitted {
                return Ok(X::Response::failed(unavailable(error))?);
            }
        }
        Ok(response)
    }

    /// A leg that goes on with a flow: it runs when the round is its own, and otherwise gets what that run replied.
    async fn go_on<X: Exchange, H: ServerHandler>(
        &self,
        handler: &H,
        mut request: X,
        envelope: Envelope,
        mut sent: InputResponses,
        context: RequestContext<RoleServer>,
    ) -> Result<X::Response, Stop> {
        sent.retain(|key, _| envelope.asked.iter().any(|asked| asked.key == *key));
        let bid = Bid {
            answers: Digest::of_answers(&sent),
            keep: Keep { now: self.core.now(), until: envelope.span.expires_at },
            lease: self.core.limits.lease,
            orphan: Orphan::Free,
        };
        let fence = match self.claim(bid, &context.ct).await? {
            Won::Run(fence) => fence,
            Won::Reply(reply) => return self.replay::<X>(&reply),
        };
        let Resume::Handler { settled, state } = envelope.resume;
        let view = Arc::new(View {
            round: self.round,
            peer: self.peer.clone(),
            answers: Answers::solicited(&settled, &envelope.asked, &sent),
            state: state.clone(),
            solicited: true,
        });
        *request.answers() = Some(without_refused_content(sent));
        *request.state() = state;
        let leg_token = context.ct.clone();
        let ran = self.hold(fence, self.run(handler, request, &view, context), leg_token).await;
        let concluded = self.conclude::<X>(ran, &view, envelope.span.deadline);
        self.record::<X>(fence, concluded).await
    }

    fn open(&mut self, state: &str) -> Result<Envelope, Refusal> {
        let plaintext = token::open(&self.core.keys(), self.core.limits.token_bytes, state)?;
        let envelope = Envelope::from_bytes(&plaintext)?;
        // Known from here on, so that a refusal can be told of its flow.
        self.round = Round { flow: envelope.flow, number: envelope.round };
        self.opened = true;
        envelope.check(&self.binding, self.core.now())?;
        self.event(Station::Opened);
        Ok(envelope)
    }

    /// Claims the round, waiting for an equal leg that is at work on it.
    async fn claim(&self, mut bid: Bid, leg_token: &CancellationToken) -> Result<Won, Stop> {
        let give_up = bid.keep.now + self.core.limits.wait;
        let mut told = false;
        loop {
            bid.keep.now = self.core.now();
            let claimed = self.core.ledger.claim(self.round, bid).await;
            let waiting = match claimed.map_err(unavailable)? {
                Claimed::Fresh(fence) => {
                    self.event(Station::Claimed { fence });
                    return Ok(Won::Run(fence));
                }
                Claimed::Done(Some(reply)) => return Ok(Won::Reply(reply)),
                Claimed::Done(None) => return Err(self.refuse(Refusal::ReplyGone)),
                Claimed::AnsweredOtherwise => return Err(self.refuse(Refusal::AnsweredOtherwise)),
                Claimed::Dead => return Err(self.refuse(Refusal::Dead)),
                Claimed::Running(waiting) => waiting,
            };
            if !std::mem::replace(&mut told, true) {
                self.event(Station::Waiting);
            }
            let left = give_up.since(bid.keep.now);
            if left.is_zero() {
                return Err(FlowError::retry("an equal request is still being worked on").into());
            }
            tokio::select! {
                () = waiting => {}
                // The one at work may be gone: its lease tells.
                () = self.core.clock.sleep(left.min(bid.lease)) => {}
                () = leg_token.cancelled() => return Err(Stop::cancelled()),
            }
        }
    }

    /// Runs the handler, with a token of its own: the leg's counts only as far as [`hold`](Self::hold) says.
    async fn run<X: Exchange, H: ServerHandler>(
        &self,
        handler: &H,
        request: X,
        view: &Arc<View>,
        mut context: RequestContext<RoleServer>,
    ) -> Ran<X::Response> {
        self.event(Station::Resumed);
        view.put(&mut context);
        let token = CancellationToken::new();
        context.ct = token.clone();
        // Whatever the handler started is told when its part is over, however it ended.
        let _over = token.drop_guard();
        let called = async { request.call(handler, context).await };
        match AssertUnwindSafe(called).catch_unwind().await {
            Ok(returned) => Ran::Returned(returned),
            Err(_) => Ran::Panicked,
        }
    }

    /// Keeps the claim while the handler runs, and gives it up when the client goes away and nobody else waits.
    async fn hold<R>(&self, fence: Fence, run: impl Future<Output = Ran<R>>, leg_token: CancellationToken) -> Ran<R> {
        let lease = self.core.limits.lease;
        let mut gone = false;
        tokio::pin!(run);
        loop {
            tokio::select! {
                biased;
                ran = &mut run => return ran,
                () = leg_token.cancelled(), if !gone => {
                    let kept = self.core.ledger.release(self.round, fence, Orphan::Free, true).await;
                    if !kept.unwrap_or(false) {
                        return Ran::Cancelled;
                    }
                    gone = true;
                }
                () = self.core.clock.sleep(lease / 3) => {
                    let renewed = self.core.ledger.renew(self.round, fence, self.core.now() + lease).await;
                    // A ledger that is away says nothing about who owns the round; settling will.
                    if let Ok(false) = renewed {
                        return Ran::Overtaken;
                    }
                }
            }
        }
    }

    /// What the handler's part comes to: a response, with its questions sealed, and until when their token is good.
    fn conclude<X: Exchange>(
        &self,
        ran: Ran<X::Response>,
        view: &View,
        deadline: Timestamp,
    ) -> Result<(Option<Keep>, X::Response), Stop> {
        let response = match ran {
            Ran::Returned(returned) => returned?,
            Ran::Panicked => return Err(Stop::panicked()),
            Ran::Cancelled => return Err(Stop::cancelled()),
            Ran::Overtaken => return Err(overtaken()),
        };
        match response.into_asks() {
            Err(complete) => Ok((None, complete)),
            Ok(asks) => match self.seal(asks, view, deadline) {
                Ok((keep, asks)) => Ok((Some(keep), asks.into())),
                Err(error) => Ok((None, X::Response::failed(error)?)),
            },
        }
    }

    /// Lets the questions through the gate and seals what the flow knows into their state.
    fn seal(
        &self,
        mut asks: InputRequiredResult,
        view: &View,
        deadline: Timestamp,
    ) -> Result<(Keep, InputRequiredResult), FlowError> {
        let limits = &self.core.limits;
        let requests = asks.input_requests.take().unwrap_or_default();
        let kept = asks.request_state.take();
        if requests.is_empty() && kept.is_none() {
            return Err(FlowError::NothingAsked);
        }
        if requests.len() > limits.asks {
            return Err(FlowError::TooManyAsks { asks: requests.len(), limit: limits.asks });
        }
        if self.round.number >= limits.rounds {
            return Err(FlowError::TooManyRounds { limit: limits.rounds });
        }
        let asked = self.peer.admit(&requests)?;
        self.core.require_principal(self.binding.principal.is_some(), self.over_http)?;

        let now = self.core.now();
        let expires_at = (now + self.core.round_lifetime).min(deadline);
        let envelope = Envelope {
            flow: self.round.flow,
            round: self.next().number,
            span: Span { issued_at: now, expires_at, deadline },
            binding: self.binding.clone(),
            resume: Resume::Handler { settled: view.answers.settled(&asked), state: kept },
            asked,
        };
        let state = token::seal(&self.core.keys(), self.core.new_nonce(), &envelope.to_bytes());
        if state.len() > limits.token_bytes {
            return Err(FlowError::StateTooLarge { bytes: state.len(), limit: limits.token_bytes });
        }
        self.asked(&envelope.asked, state.len());
        if self.core.announce_expiry {
            let left = expires_at.since(now).as_millis() as u64;
            let meta = asks.meta.get_or_insert_default();
            meta.0.insert("rounds/expiresInMs".to_owned(), left.into());
        }
        asks.input_requests = (!requests.is_empty()).then_some(requests);
        asks.request_state = Some(state);
        let keep = Keep { now, until: expires_at };
        Ok((keep, asks))
    }

    /// Records the reply before it leaves, or gives the round back when the fault was ours.
    async fn record<X: Exchange>(
        &self,
        fence: Fence,
        concluded: Result<(Option<Keep>, X::Response), Stop>,
    ) -> Result<X::Response, Stop> {
        let concluded = concluded.map(|(_, response)| response);
        let reply = match &concluded {
            Err(stop) if stop.is_ours() => {
                let released = self.core.ledger.release(self.round, fence, Orphan::Free, false).await;
                // A lease that lapses does the same, only later.
                drop(released);
                return concluded;
            }
            Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
            Ok(response) => Reply::encode(Ok(response)),
        };
        let reply = reply.filter(|reply| reply.len() <= self.core.limits.reply_bytes);
        match self.core.ledger.settle(self.round, fence, reply).await {
            Ok(true) => concluded,
            Ok(false) => Err(overtaken()),
            Err(error) => Err(unavailable(error).into()),
        }
    }

    /// The reply of an equal leg. Its questions pass the gate again: this request may declare less.
    fn replay<X: Exchange>(&self, reply: &[u8]) -> Result<X::Response, Stop> {
        let Some(response) = Reply::decode::<X::Response>(reply) else {
            return Err(self.refuse(Refusal::ReplyGone));
        };
        self.event(Station::Replayed);
        match response?.into_asks() {
            Err(complete) => Ok(complete),
            Ok(asks) => match self.peer.admit(asks.input_requests.as_ref().unwrap_or(&InputRequests::new())) {
                Ok(_) => Ok(asks.into()),
                Err(error) => Ok(X::Response::failed(error)?),
            },
        }
    }

    /// The round that this leg's questions begin.
    fn next(&self) -> Round {
        Round { number: self.round.number + 1, ..self.round }
    }

    fn refuse(&self, refusal: Refusal) -> Stop {
        self.event(Station::Refused(refusal));
        Refusal::frozen().into()
    }

    fn asked(&self, asked: &[Asked], bytes: usize) {
        let keys = asked.iter().map(|asked| asked.key.clone()).collect();
        self.event(Station::Asked { keys, bytes });
    }

    #[expect(clippy::needless_pass_by_value, reason = "made on the spot by every caller")]
    fn event(&self, station: Station) {
        let unknown = matches!(station, Station::Refused(_)) && !self.opened;
        self.core.observe(&Event {
            flow: (!unknown).then_some(self.round.flow),
            round: self.round.number,
            method: self.binding.method,
            target: &self.binding.target,
            station: &station,
        });
    }
}

/// What a leg has won when it claimed a round.
enum Won {
    Run(Fence),
    Reply(Vec<u8>),
}

/// A reply as a ledger keeps it: a byte that tells results from errors, then JSON.
struct Reply;

impl Reply {
    const RESULT: u8 = b'r';
    const ERROR: u8 = b'e';

    /// None when it cannot be written, which is as good as one that is not kept.
    fn encode<R: Response>(reply: Result<&R, &ErrorData>) -> Option<Vec<u8>> {
        let (tag, json) = match reply {
            Ok(response) => (Self::RESULT, response.to_json()),
            Err(error) => (Self::ERROR, serde_json::to_vec(error)),
        };
        let mut kept = json.ok()?;
        kept.insert(0, tag);
        Some(kept)
    }

    fn decode<R: Response>(kept: &[u8]) -> Option<Result<R, ErrorData>> {
        match kept.split_first()? {
            (&Self::RESULT, json) => Some(Ok(R::from_json(json).ok()?)),
            (&Self::ERROR, json) => Some(Err(serde_json::from_slice(json).ok()?)),
            _ => None,
        }
    }
}

/// A leg that ends with an error.
struct Stop {
    error: ErrorData,
    outcome: Outcome,
}

impl Stop {
    /// rmcp drops the response to a cancelled request; this is what it drops.
    fn cancelled() -> Self {
        Self { error: ErrorData::internal_error("the request was cancelled", None), outcome: Outcome::Cancelled }
    }

    fn panicked() -> Self {
        Self { error: ErrorData::internal_error("the handler panicked", None), outcome: Outcome::Panicked }
    }

    /// Whether it is a fault on our side, or one that the same request need not meet again: then the round stays open.
    fn is_ours(&self) -> bool {
        let open = [ErrorCode::INTERNAL_ERROR, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY];
        open.contains(&self.error.code)
    }
}

impl From<ErrorData> for Stop {
    fn from(error: ErrorData) -> Self {
        let outcome = Outcome::Error { code: error.code.0 };
        Self { error, outcome }
    }
}

impl From<FlowError> for Stop {
    fn from(error: FlowError) -> Self {
        ErrorData::from(error).into()
    }
}

fn overtaken() -> Stop {
    FlowError::retry("another instance took the round over").into()
}

/// A handler that reads the answers as they came does not find content that nobody agreed to.
fn without_refused_content(mut sent: InputResponses) -> InputResponses {
    for answer in sent.values_mut().filter_map(serde_json::Value::as_object_mut) {
        if matches!(answer.get("action").and_then(|action| action.as_str()), Some("decline" | "cancel")) {
            answer.remove("content");
        }
    }
    sent
}

fn unavailable(error: LedgerError) -> FlowError {
    match error {
        full @ LedgerError::Full { .. } => FlowError::Busy(full),
        away => FlowError::retry(away),
    }
}
