//! Playing the legs of calls whose questions may be answered elsewhere: what happens before a leg, and how its client
//! waits after it.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams, InputRequest,
        InputRequiredResult, InputResponses, RequestMetaObject,
    },
    service::RequestContext,
};
use serde_json::Value;

use super::{
    ElsewhereService,
    kept::{Kept, RESULT_TOOL, Reference},
    wait::{Found, Open, decisions, waits_elsewhere},
    work::{opened, speak_modern},
};
use crate::{
    server::{
        engine::{
            core::Core,
            elsewhere::{Continued, Decisions},
            exchange::{Exchange, Response},
            handlers::Handlers,
            leg,
            legacy::push::Push,
            link::Link,
        },
        flows::{Flows, FlowsError},
        ledger::{
            Retention,
            documents::{DocumentChange, DocumentId, DocumentKind},
        },
        policy::{
            elsewhere::are_elsewhere,
            error::FlowError,
            gate::{Era, Peer, kind_of, required},
            principal::Principal,
        },
        seal::{
            Digest,
            envelope::{Envelope, Method, QuestionKind},
        },
    },
    shared::{clock::BoxFuture, order, wire::EXPIRES_IN},
};

/// Plays a leg with the handler of a server. Behind a pointer, so that nothing here is compiled once for each server.
pub(super) type PlayLeg<X> = Arc<
    dyn Fn(Arc<Core>, X, RequestContext<RoleServer>) -> BoxFuture<'static, Result<<X as Exchange>::Response, ErrorData>>
        + Send
        + Sync,
>;

pub(super) fn play_with<X: Exchange, H: ServerHandler>(handlers: Handlers<H>) -> PlayLeg<X> {
    Arc::new(move |core, request, context| {
        let handlers = handlers.clone();
        Box::pin(async move { leg::play(&core, &handlers, request, context).await })
    })
}

/// Lets a leg go on with these decisions. Those that it finds not to be on what it asks are recorded as such.
pub(super) fn decided_leg(
    flows: &Flows,
    envelope: &Envelope,
    answers: InputResponses,
    void: Vec<String>,
    context: &mut RequestContext<RoleServer>,
) {
    let (flows, flow, round) = (flows.clone(), envelope.flow.in_ledger(), envelope.round);
    let tell = move |keys: Vec<String>| -> BoxFuture<'static, ()> {
        let flows = flows.clone();
        Box::pin(async move { flows.void_round(flow, round, Some(&keys), OTHER_QUESTION).await })
    };
    context.extensions.insert(Decisions::new(envelope, answers, void, Box::new(tell)));
}

/// Why a decision does not count.
const OTHER_QUESTION: &str = "the handler asked something else when the call continued than what was shown";

/// Everything that plays the legs of a call, owned.
pub(crate) struct ElsewherePlayer<X: Exchange> {
    settings: Arc<ElsewhereService>,
    core: Arc<Core>,
    leg: PlayLeg<X>,
}

impl<X: Exchange> ElsewherePlayer<X> {
    pub(crate) fn new<H: ServerHandler>(
        settings: Arc<ElsewhereService>,
        core: Arc<Core>,
        handlers: Handlers<H>,
    ) -> Self {
        settings.work(&core, &handlers);
        Self { settings, core, leg: play_with(handlers) }
    }

    /// Plays a leg, once the questions of its round are decided.
    pub(crate) fn play(
        self,
        request: X,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<X::Response, ErrorData>> {
        Box::pin(async move { self.go(request, context, None).await })
    }

    /// Plays a leg of a task, which waits for the decisions on its round for as long as its flow may take. What the leg
    /// asks then is left to the task.
    pub(crate) fn play_in_task(
        self,
        mut request: X,
        mut context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<X::Response, ErrorData>> {
        Box::pin(async move {
            if let Some(envelope) = self.waits_elsewhere(&mut request, &context) {
                let found = self.decisions(&envelope, envelope.span.deadline.since(self.core.now()), &context).await;
                if context.ct.is_cancelled() {
                    self.withdraw(&envelope).await;
                }
                if let Found::Decided(answers, void) = found? {
                    decided_leg(&self.flows(), &envelope, answers, void, &mut context);
                }
            }
            let played = (self.leg)(self.core.clone(), request, context).await?;
            if let Some((_, envelope)) = self.asks_elsewhere(&played) {
                self.settings.announce(&self.flows(), &envelope).await;
            }
            Ok(played)
        })
    }
}

impl ElsewherePlayer<CallToolRequestParams> {
    /// Plays the tool that fetches the outcome of a call that is kept.
    pub(crate) fn result(
        self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> {
        Box::pin(async move { self.fetch(request, context).await })
    }

    async fn fetch(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.as_ref();
        let Some(name) = arguments.and_then(|arguments| arguments.get("reference")).and_then(Value::as_str) else {
            return Err(ErrorData::invalid_params("`reference` is missing: pass the reference of the call", None));
        };
        let found = Reference::find(&self.flows(), name, self.principal(&context)).await.map_err(unavailable)?;
        let Some((kept, reference)) = found else {
            return Ok(said("There is no call with this reference, or its time is over."));
        };
        let mut call = kept.request();
        match request.request_state {
            // A question of a later leg is answered through this tool too.
            Some(state) => (call.request_state, call.input_responses) = (Some(state), request.input_responses),
            None => {
                if let Some(outcome) = kept.outcome() {
                    return outcome;
                }
            }
        }
        let peer = Peer::of(&context);
        if peer.era == Era::Legacy {
            // A leg that was played without this client has asked in the modern way. So does this one: what it asks is pushed.
            let capabilities = capabilities(&context);
            speak_modern(&mut context, capabilities);
        }
        context.extensions.insert(Continued);
        loop {
            let played = self.go(call.clone(), context.clone(), Some(reference.clone())).await?;
            let Some(asks) = played.asks().filter(|_| peer.era == Era::Legacy) else { return Ok(played) };
            match self.push_all(asks.clone(), &peer, &call, &context).await {
                Ok(answers) => {
                    (call.request_state, call.input_responses) = (asks.request_state.clone(), Some(answers));
                }
                Err(error) => return CallToolResponse::failed(error).map_err(|failure| failure.error),
            }
        }
    }

    /// Pushes the questions of a leg to a client of the legacy era, one after the other, and returns the answers.
    async fn push_all(
        &self,
        asks: InputRequiredResult,
        peer: &Peer,
        call: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<InputResponses, FlowError> {
        let patience = self.core.lifetimes.round(&call.name);
        let (keys, mut requests) = (order::keys(&asks), asks.input_requests.unwrap_or_default());
        let mut answers = InputResponses::new();
        for (key, request) in keys.into_iter().filter_map(|key| requests.remove_entry(&key)) {
            let kind = kind_of(&request)?;
            peer.permits(kind, &request)?;
            let message = message(&request).into();
            let push = Push { link: Link::of(context), kind, request, patience, message };
            answers.extend(push.send(self.core.clock.clone()).await?.to_raw(kind).map(|answer| (key, answer)));
        }
        Ok(answers)
    }
}

impl<X: Exchange> ElsewherePlayer<X> {
    /// Plays a leg. With a reference, the client does not wait for its own call.
    async fn go(
        &self,
        mut request: X,
        mut context: RequestContext<RoleServer>,
        reference: Option<Reference>,
    ) -> Result<X::Response, ErrorData> {
        if let Some(envelope) = self.waits_elsewhere(&mut request, &context) {
            let hold = self.settings.hold;
            match self.decisions(&envelope, hold, &context).await? {
                Found::Decided(answers, void) => {
                    decided_leg(&self.flows(), &envelope, answers, void, &mut context);
                }
                Found::Gone => {}
                Found::Open(open) => return self.not_decided(*open, &envelope, request, &context, reference).await,
            }
        }
        let played = (self.leg)(self.core.clone(), request.clone(), context.clone()).await?;
        self.deliver(played, request, context, reference).await
    }

    /// The state of this leg, if its round waits for decisions.
    fn waits_elsewhere(&self, request: &mut X, context: &RequestContext<RoleServer>) -> Option<Box<Envelope>> {
        leg::peek(&self.core, request, context).filter(|envelope| waits_elsewhere(envelope))
    }

    /// Withdraws the questions of a call that was cancelled: they can no longer be decided.
    async fn withdraw(&self, envelope: &Envelope) {
        if let Err(error) = self.flows().cancel(envelope.flow.in_ledger(), "its task was cancelled").await {
            tracing::warn!(target: "rounds", %error, "the questions of a cancelled task could not be withdrawn");
        }
    }

    async fn decisions(
        &self,
        envelope: &Envelope,
        hold: Duration,
        context: &RequestContext<RoleServer>,
    ) -> Result<Found, ErrorData> {
        let found = decisions(&self.core, &self.flows(), envelope, hold, &context.ct).await;
        let cancelled = || ErrorData::internal_error("the request was cancelled", None);
        found.map_err(unavailable)?.ok_or_else(cancelled)
    }

    /// There is no decision yet: the client gets the same state back, or the reference of its call.
    async fn not_decided(
        &self,
        open: Open,
        envelope: &Envelope,
        mut request: X,
        context: &RequestContext<RoleServer>,
        reference: Option<Reference>,
    ) -> Result<X::Response, ErrorData> {
        self.settings.announce(&self.flows(), envelope).await;
        let state = request.state().clone().unwrap_or_default();
        let mut asks = InputRequiredResult::new(Some(open.requests.clone()), Some(state));
        if self.core.announce_expiry {
            let left = open.until().since(self.core.now()).as_millis() as u64;
            asks.meta.get_or_insert_default().0.insert(EXPIRES_IN.to_owned(), left.into());
        }
        if reference.is_none() && asks_here(&Peer::of(context), &asks) {
            let sent = envelope.round + self.count_held(&open, envelope).await.map_err(unavailable)?;
            if sent < self.settings.rounds {
                return Ok(asks.into());
            }
        }
        self.refer(asks, envelope, request, context, reference).await
    }

    /// Counts how often the questions of a round were given back, this time included.
    async fn count_held(&self, open: &Open, envelope: &Envelope) -> Result<u32, FlowsError> {
        let flows = self.flows();
        let (flow, until) = (open.record.summary.id, open.record.summary.kept_until);
        let key = Digest::of_document("held", flow, &envelope.round.to_string());
        let id = DocumentId { kind: DocumentKind::Decision, key };
        loop {
            let found = flows.read_document(id).await?;
            let before = found.as_ref().map(|(version, _)| *version);
            let held = found.map_or(0, |(_, count)| count.first().copied().unwrap_or_default());
            let held = held.saturating_add(1);
            let keep = Retention { until, ..self.core.keep(until, envelope.binding.principal) };
            let change = DocumentChange { sealed: vec![held], due: None, keep, tell: None };
            if flows.write_document(id, before, change).await?.is_some() {
                return Ok(u32::from(held));
            }
        }
    }

    /// Decides how the client waits for the decisions on what a leg asks.
    async fn deliver(
        &self,
        played: X::Response,
        request: X,
        context: RequestContext<RoleServer>,
        reference: Option<Reference>,
    ) -> Result<X::Response, ErrorData> {
        let Some((asks, envelope)) = self.asks_elsewhere(&played) else { return Ok(played) };
        self.settings.announce(&self.flows(), &envelope).await;
        let peer = Peer::of(&context);
        if reference.is_some() || !asks_here(&peer, &asks) {
            return self.refer(asks, &envelope, request, &context, reference).await;
        }
        match peer.era {
            Era::Legacy => Box::pin(self.push(asks, envelope, request, context)).await,
            _ if envelope.round < self.settings.rounds => Ok(played),
            _ => self.refer(asks, &envelope, request, &context, reference).await,
        }
    }

    /// What a leg asks elsewhere, and what its state carries, if it does.
    fn asks_elsewhere(&self, played: &X::Response) -> Option<(InputRequiredResult, Envelope)> {
        let asks = played.asks().filter(|asks| asks.input_requests.as_ref().is_some_and(are_elsewhere))?;
        let envelope = opened(&self.core, asks.request_state.as_deref()?)?;
        Some((asks.clone(), envelope))
    }

    /// Pushes the questions to a client of the legacy era, and waits for the decisions while its call is in flight.
    async fn push(
        &self,
        asks: InputRequiredResult,
        envelope: Envelope,
        mut request: X,
        mut context: RequestContext<RoleServer>,
    ) -> Result<X::Response, ErrorData> {
        let patience = self.core.lifetimes.round(request.target());
        let requests = asks.input_requests.clone().unwrap_or_default();
        let pushes = requests.into_values().map(|request| {
            let push = Push {
                link: Link::of(&context),
                kind: QuestionKind::Url,
                message: message(&request).into(),
                request,
                patience,
            };
            // Whether the user visits the page says nothing about the decision.
            async { drop(push.send(self.core.clock.clone()).await) }
        });
        let mut pushes: Vec<_> = pushes.map(Box::pin).collect();
        let pushed = async {
            for push in &mut pushes {
                push.await;
            }
            std::future::pending::<()>().await;
        };
        let found = tokio::select! {
            biased;
            found = self.decisions(&envelope, patience, &context) => found?,
            () = pushed => unreachable!("it does not end before it is dropped"),
        };
        drop(pushes);
        if let Found::Open(_) = found {
            return self.refer(asks, &envelope, request, &context, None).await;
        }
        (*request.state(), *request.answers()) = (asks.request_state, None);
        context.extensions.insert(Continued);
        self.go(request, context, None).await
    }

    /// Keeps the call, and ends it with an error that has its reference.
    async fn refer(
        &self,
        asks: InputRequiredResult,
        envelope: &Envelope,
        request: X,
        context: &RequestContext<RoleServer>,
        reference: Option<Reference>,
    ) -> Result<X::Response, ErrorData> {
        if X::METHOD != Method::Tool {
            let required = Box::new(required(QuestionKind::Url, false));
            return X::Response::failed(FlowError::MissingCapability { required }).map_err(|failure| failure.error);
        }
        let mut call = CallToolRequestParams::new(request.target().to_owned());
        call.arguments = request.arguments().cloned();
        let state = asks.request_state.unwrap_or_default();
        let (flows, caller) = (self.flows(), self.core.identify(context));
        let kept = Kept::new(&call, state, envelope, caller.as_ref(), capabilities(context));
        kept.keep(&self.core, &flows).await.map_err(unavailable)?;
        let reference = match reference {
            Some(reference) => reference,
            None => Reference::make(&self.core, &flows, &kept).await.map_err(unavailable)?,
        };
        let questions = asks.input_requests.unwrap_or_default();
        let questions: Vec<_> = questions.values().map(message).collect();
        let later = match self.settings.has_result_tool {
            true => format!(
                " The call goes on by itself once there is one. Call the tool {RESULT_TOOL} with this reference later: it has the \
                 outcome then."
            ),
            false => String::new(),
        };
        let words = format!(
            "Another person has to decide first: {} There is no decision yet. The reference of this call is {}.{later}",
            questions.join(" "),
            reference.name,
        );
        X::Response::failed(FlowError::Failed(words)).map_err(|failure| failure.error)
    }

    fn flows(&self) -> Flows {
        Flows::of(&self.core, Some(self.settings.deciders.clone()))
    }

    fn principal(&self, context: &RequestContext<RoleServer>) -> Option<Digest> {
        self.core.identify(context).as_ref().map(Principal::digest)
    }
}

/// Whether the client can be led to a page for each of these questions.
fn asks_here(peer: &Peer, asks: &InputRequiredResult) -> bool {
    let reaches = peer.era == Era::Modern || peer.back_channel;
    let requests = asks.input_requests.iter().flat_map(|requests| requests.values());
    reaches && peer.can(QuestionKind::Url) && requests.map(address).all(|address| !address.is_empty())
}

/// What a call waits for, if it asks what is decided elsewhere: in words for its caller.
pub(crate) fn awaited(asks: &InputRequiredResult) -> Option<String> {
    let requests = asks.input_requests.as_ref().filter(|requests| are_elsewhere(requests))?;
    let questions: Vec<_> = requests.values().map(message).collect();
    Some(format!("Another person has to decide: {}", questions.join(" ")))
}

fn address(request: &InputRequest) -> &str {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::UrlElicitationParams { url, .. } => url,
            _ => "",
        },
        _ => "",
    }
}

fn message(request: &InputRequest) -> &str {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::UrlElicitationParams { message, .. }
            | ElicitRequestParams::FormElicitationParams { message, .. } => message,
            _ => "",
        },
        _ => "",
    }
}

/// The capabilities that a request declares for its client.
fn capabilities(context: &RequestContext<RoleServer>) -> Value {
    let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    match Era::of(context) {
        Era::Modern => context.meta.get(declared).cloned().unwrap_or_default(),
        Era::Legacy => {
            let declared = context.peer.peer_info().map(|info| serde_json::to_value(&info.capabilities));
            declared.and_then(Result::ok).unwrap_or_default()
        }
    }
}

fn said(words: &str) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(words)]).into()
}

fn unavailable(error: FlowsError) -> ErrorData {
    FlowError::retry(error).into()
}
