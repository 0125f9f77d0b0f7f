//! Guard-first handlers: the handler is called again for each round, and checks which answers it was given.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    handler::server::common::{AsRequestContext, FromContextPart},
    model::{CallToolResponse, InputRequests, InputRequiredResult},
    service::RequestContext,
};
use serde::{Serialize, de::DeserializeOwned};

use super::inquiry::{Inquiry, Subject, read_result};
use crate::{
    server::{
        engine::{
            answer::Received,
            effects::{ClaimKeeper, Effects},
            view::View,
        },
        flows::{Decision, fingerprint},
        form::{FormType, Schema},
        ledger::kit::SelfClaimed,
        policy::{elsewhere::Approvers, error::FlowError, gate::Era, principal::Principal},
        seal::{FlowId, envelope::QuestionKind},
    },
    shared::{check::InvalidAnswer, order},
};

/// One round of a handler that is called again for each round.
///
/// It is for flows that have to survive a restart or to continue on any instance; [`Ask`](crate::Ask) is easier to
/// write. Take it as an argument of a `#[tool]` method, check what was [`given`](Self::given), and ask for what is
/// missing:
///
/// ```
/// use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, schemars, tool, tool_router};
/// use rounds::{FlowError, Given, Round, text};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct Place {
///     location: String,
/// }
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// #[serde(rename_all = "lowercase")]
/// enum Units {
///     Metric,
///     Imperial,
/// }
///
/// struct Weather;
///
/// #[tool_router]
/// impl Weather {
///     #[tool(description = "Weather for a place")]
///     async fn weather(
///         &self,
///         Parameters(place): Parameters<Place>,
///         round: Round,
///     ) -> Result<CallToolResponse, FlowError> {
///         match round.given::<Units>("units") {
///             Given::Accepted(Units::Metric) => Ok(text(format!("{}: 22°C", place.location))),
///             Given::Accepted(Units::Imperial) => Ok(text(format!("{}: 72°F", place.location))),
///             Given::Declined | Given::Cancelled => Ok(text("As you like.")),
///             Given::Missing | Given::Invalid(_) => round.ask_form::<Units>("units", "Which units?"),
///         }
///     }
/// }
/// ```
///
/// In a `#[prompt]` method it is a `Round<PromptResponse>`, and the method returns a
/// [`PromptResponse`](crate::prompt::PromptResponse). In a resource it is a `Round<ReadResourceResponse>`, taken from
/// the request context with [`from_context`](Self::from_context).
///
/// # What runs again
///
/// The whole handler, on every leg. Code above the question therefore runs once for each leg: keep it free of effects,
/// put effects after the last question, or wrap them in [`once`](Self::once).
///
/// # Guarantees
///
/// The answers and the state in a round were sealed by this server for this request: same principal, same target, same
/// arguments. The same answers get the same reply without another run. Other answers to a round that was answered are
/// refused. Only answers that came without a state are not verified: [`solicited`](Self::solicited) is false for them.
pub struct Round<R = CallToolResponse> {
    view: Arc<View>,
    response: PhantomData<fn() -> R>,
}

/// The answer to one question.
///
/// It has five cases and is not an `Option`, because a handler has to treat "declined" and "not asked yet" differently:
/// one that cannot distinguish them asks a user who declined again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "handlers match on all five")]
pub enum Given<T> {
    /// The user accepted, with this value. It matches the schema.
    Accepted(T),
    /// The user declined.
    Declined,
    /// The user dismissed the question without a choice.
    Cancelled,
    /// There is no answer: the question was not asked yet, or the client left it out.
    Missing,
    /// There is an answer that does not match what was asked for.
    Invalid(InvalidAnswer),
}

impl<T> Given<T> {
    /// Checks an accepted value with a rule of the author's. If the rule does not hold, the answer is [`Given::Invalid`]
    /// with the rule's message; [`InvalidAnswer::noted`] adds it to the message of the question that asks again.
    ///
    /// ```
    /// # use rmcp::model::CallToolResponse;
    /// # use rounds::{FlowError, Given, Round, text};
    /// # fn handler(round: Round) -> Result<CallToolResponse, FlowError> {
    /// let is_even = |n: &u32| if n % 2 == 0 { Ok(()) } else { Err("it is odd") };
    /// match round.given("n").check(is_even) {
    ///     Given::Accepted(n) => Ok(text(format!("{n} is even."))),
    ///     Given::Declined | Given::Cancelled => Ok(text("As you like.")),
    ///     Given::Missing => round.ask_form::<u32>("n", "An even number?"),
    ///     Given::Invalid(problem) => round.ask_form::<u32>("n", problem.noted("An even number?")),
    /// }
    /// # }
    /// ```
    pub fn check<M: Into<String>>(self, rule: impl FnOnce(&T) -> Result<(), M>) -> Self {
        match self {
            Self::Accepted(value) => match rule(&value) {
                Ok(()) => Self::Accepted(value),
                Err(why) => Self::Invalid(InvalidAnswer::whole(why)),
            },
            other => other,
        }
    }
}

impl<R: From<InputRequiredResult>> Round<R> {
    /// The round of a request, for handlers that are not written with rmcp's macros.
    ///
    /// # Errors
    ///
    /// [`FlowError::NotWrapped`] if the server is not wrapped in [`Rounds`](crate::Rounds).
    pub fn from_context(context: &RequestContext<RoleServer>) -> Result<Self, FlowError> {
        Ok(Self { view: View::take(context, "Round")?, response: PhantomData })
    }

    /// The answer to the form that was asked under this key, in this round or an earlier one.
    pub fn given<T: FormType>(&self, key: &str) -> Given<T> {
        self.read(key, &Subject::form::<T>())
    }

    /// The answer to the form that was asked with this schema under this key. An answer that does not match the schema
    /// as it is now is [`Given::Invalid`].
    ///
    /// ```
    /// # use rmcp::model::CallToolResponse;
    /// # use rounds::{FlowError, Given, Round, form::Schema, text};
    /// # fn handler(round: Round, branches: Vec<String>) -> Result<CallToolResponse, FlowError> {
    /// let branch = Schema::choice(branches);
    /// match round.given_with::<String>("branch", &branch) {
    ///     Given::Accepted(branch) => Ok(text(format!("Deleted {branch}."))),
    ///     Given::Declined | Given::Cancelled => Ok(text("Not deleted.")),
    ///     Given::Missing | Given::Invalid(_) => round.ask_form_with("branch", "Which branch?", &branch),
    /// }
    /// # }
    /// ```
    pub fn given_with<T: DeserializeOwned>(&self, key: &str, schema: &Schema<T>) -> Given<T> {
        self.read(key, &Subject::Form(schema.source()))
    }

    /// Whether the user agreed to visit the page that was asked under this key. It does not mean that they completed
    /// it.
    pub fn given_url(&self, key: &str) -> Given<()> {
        self.read_kind(key, QuestionKind::Url)
    }

    /// The response of the client's model to the request that was asked under this key.
    #[deprecated(note = "SEP-2577 deprecates sampling, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its type as well")]
    pub fn given_sample(&self, key: &str) -> Given<rmcp::model::CreateMessageResult> {
        self.read_kind(key, QuestionKind::Sample)
    }

    /// The client's roots, asked under this key.
    #[deprecated(note = "SEP-2577 deprecates roots, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its type as well")]
    pub fn given_roots(&self, key: &str) -> Given<rmcp::model::ListRootsResult> {
        self.read_kind(key, QuestionKind::Roots)
    }

    /// The answer to the form that was asked elsewhere under this key. [`Given::Cancelled`] if there was none in time.
    pub fn given_elsewhere<T: FormType>(&self, key: &str) -> Given<T> {
        self.received(key, QuestionKind::Elsewhere, |content| Subject::form::<T>().read(key, content))
    }

    /// The decision on the approval that was asked under this key with this message. [`Decision::Expired`] if there was
    /// none in time. A decision on another message does not count: it is [`Given::Missing`].
    pub fn decision(&self, key: &str, message: &str) -> Given<Decision> {
        let received = self.view.frame.answers().get(key, QuestionKind::Elsewhere);
        match received {
            Some(Received::Late) => Given::Accepted(Decision::Expired),
            Some(Received::Accepted(content)) if content["question"] != fingerprint(message) => {
                self.view.frame.answers().note_unlike(key);
                Given::Missing
            }
            _ => self.read_kind(key, QuestionKind::Elsewhere),
        }
    }

    fn read<T: DeserializeOwned>(&self, key: &str, form: &Subject) -> Given<T> {
        self.received(key, QuestionKind::Form, |content| form.read(key, content))
    }

    /// The answer to a question that is not a form.
    fn read_kind<T: DeserializeOwned>(&self, key: &str, kind: QuestionKind) -> Given<T> {
        self.received(key, kind, read_result)
    }

    fn received<T>(
        &self,
        key: &str,
        kind: QuestionKind,
        read: impl FnOnce(&serde_json::Value) -> Result<T, InvalidAnswer>,
    ) -> Given<T> {
        let received = self.view.frame.answers().get(key, kind);
        match received {
            None => Given::Missing,
            Some(Received::Declined) => Given::Declined,
            Some(Received::Cancelled | Received::Late) => Given::Cancelled,
            Some(Received::Malformed(problem)) => Given::Invalid(problem),
            Some(Received::Accepted(content)) => match read(&content) {
                Ok(value) => Given::Accepted(value),
                Err(problem) => Given::Invalid(problem),
            },
        }
    }

    /// Runs an effect once in this flow, however often the handler runs. Later legs, retries of a leg, and legs that go
    /// back to an older token return the recorded value.
    ///
    /// ```
    /// # use rounds::{FlowError, Round};
    /// # async fn handler(round: Round, audit: &std::sync::Mutex<Vec<String>>) -> Result<(), FlowError> {
    /// let number = round.once("audit", async || {
    ///     let mut audit = audit.lock().unwrap();
    ///     audit.push("asked for the weather".to_owned());
    ///     audit.len()
    /// }).await?;
    /// # let _: usize = number; Ok(()) }
    /// ```
    ///
    /// The value is recorded as JSON, in the sealed state and in the ledger. An effect that has begun runs to its end,
    /// even if its handler is dropped, for as long as a [flow may take](crate::RoundsBuilder::flow_deadline). The code
    /// after it does not run then.
    ///
    /// Two windows remain. If a process dies between the effect and its record, the effect runs again: pass
    /// [`once_key`](Self::once_key) to the service that performs the effect, so that it can detect the repetition. And
    /// the first leg of a flow has no id that a client could retry with: a call that is sent again is another flow.
    ///
    /// # Errors
    ///
    /// - [`FlowError::DuplicateEffect`] if this run has used the name already.
    /// - [`FlowError::TooManyEffects`] and [`FlowError::StateTooLarge`], before the effect runs, if its value could not
    ///   be recorded.
    /// - [`FlowError::EffectLost`] if its value is larger than [`Limits::effect_bytes`](crate::Limits::effect_bytes),
    ///   or than the space left by effects that ran at the same time; if its value is no longer kept; or if the first
    ///   leg, or an earlier run for a legacy client, left it to a task that has not finished.
    /// - [`FlowError::State`] if it has run and its value cannot be written as JSON. Later calls fail with
    ///   `EffectLost`.
    /// - [`FlowError::StateUnreadable`] if the value was recorded as another type.
    /// - [`FlowError::Retry`], before the effect runs, if the ledger is unavailable or full, or if another leg runs the
    ///   effect for too long.
    /// - [`FlowError::FlowEnded`] in a task that outlives its handler.
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> T,
    ) -> Result<T, FlowError> {
        self.view.once(name, ClaimKeeper::Ledger, async move || Ok::<_, FlowError>(effect().await)).await
    }

    /// Runs an effect that may fail, as [`once`](Self::once) does. A failure that the handler continues after is
    /// recorded like a value: when the handler runs again, the first call with a name returns the outcome of the first
    /// attempt, the second call that of the second attempt, and so on. A call beyond those is another attempt, with the
    /// same [key](Self::once_key):
    ///
    /// ```
    /// # use rmcp::model::CallToolResponse;
    /// # use rounds::{FlowError, Given, Round, text};
    /// # async fn charge(key: String) -> Result<String, FlowError> { Ok(key) }
    /// # async fn handler(round: Round) -> Result<CallToolResponse, FlowError> {
    /// let attempt = || round.try_once("charge", async || charge(round.once_key("charge")).await);
    /// let receipt = match attempt().await {
    ///     Ok(receipt) => receipt,
    ///     Err(failed) => match round.given::<bool>("again") {
    ///         Given::Missing | Given::Invalid(_) => return round.ask_form::<bool>("again", format!("{failed}. Try again?")),
    ///         Given::Accepted(true) => attempt().await?,
    ///         _ => return Ok(text("Not paid.")),
    ///     },
    /// };
    /// # Ok(text(receipt)) }
    /// ```
    ///
    /// [`FlowError::Failed`], [`FlowError::Retry`] and [`FlowError::Protocol`] can be recorded. After any other error,
    /// after one that is larger than a value may be, and after an attempt that was dropped before it ended, as by a
    /// timeout around it, the handler may return but not ask: a question fails with [`FlowError::Unrecorded`].
    ///
    /// # Errors
    ///
    /// The effect's own errors, and those of [`once`](Self::once).
    pub async fn try_once<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FlowError> {
        self.view.once(name, ClaimKeeper::Ledger, effect).await
    }

    /// Runs an effect that keeps its claim itself. For crates that run effects in a way of their own, such as `rounds-sql`.
    #[doc(hidden)]
    pub async fn try_once_self_claimed<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(SelfClaimed) -> Result<T, E>,
    ) -> Result<T, FlowError> {
        let claimed = async || effect(self.view.self_claimed(name)).await;
        self.view.once(name, ClaimKeeper::Effect, claimed).await
    }

    /// The idempotency key of an effect: the same for every attempt in this flow, and different in every other flow.
    pub fn once_key(&self, name: &str) -> String {
        self.view.effect_key(name)
    }

    /// Ends the leg with one form. Short for [`questions`](Self::questions)`().form(key, message).send()`.
    ///
    /// # Errors
    ///
    /// The errors of [`Questions::send`].
    pub fn ask_form<T: FormType>(&self, key: &str, message: impl Into<String>) -> Result<R, FlowError> {
        self.questions().form::<T>(key, message).send()
    }

    /// Ends the leg with one form that is known only at run time. Short for
    /// [`questions`](Self::questions)`().form_with(key, message, schema).send()`.
    ///
    /// # Errors
    ///
    /// The errors of [`Questions::send`].
    pub fn ask_form_with<T: DeserializeOwned>(
        &self,
        key: &str,
        message: impl Into<String>,
        schema: &Schema<T>,
    ) -> Result<R, FlowError> {
        self.questions().form_with(key, message, schema).send()
    }

    /// Ends the leg with one page to visit. Short for [`questions`](Self::questions)`().url(key, message, url).send()`.
    ///
    /// # Errors
    ///
    /// The errors of [`Questions::send`].
    pub fn ask_url(&self, key: &str, message: impl Into<String>, url: impl Into<String>) -> Result<R, FlowError> {
        self.questions().url(key, message, url).send()
    }

    /// Starts a round with several questions, with a state to keep, or with both.
    pub fn questions(&self) -> Questions<R> {
        Questions { requests: Ok(InputRequests::new()), keys: Vec::new(), state: None, round: self.clone() }
    }

    /// The state that the handler kept with [`Questions::state`], if it kept one in the last round.
    ///
    /// # Errors
    ///
    /// [`FlowError::StateUnreadable`] if it was kept as another type, for example by an earlier version of the handler.
    /// On the wire that is the frozen error, and the flow has to be started again.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, FlowError> {
        let kept = self.view.state.as_deref();
        kept.map(serde_json::from_str).transpose().map_err(FlowError::StateUnreadable)
    }

    /// Whether the answers are to questions of this server. False on a first leg, even if it has answers: a handler can
    /// read those, but it is not known what the user was asked.
    pub fn solicited(&self) -> bool {
        self.view.solicited
    }

    /// The number of rounds that this flow has had: zero on the first leg.
    pub fn number(&self) -> u32 {
        self.view.round.number
    }

    /// The principal that the flow belongs to: the caller, as the server [identifies](crate::RoundsBuilder::principal)
    /// it. None for a caller without one. It is the same on all legs of a flow.
    pub fn principal(&self) -> Option<&Principal> {
        self.view.frame.caller()
    }

    /// The id of the flow, the same on all of its legs.
    pub fn flow(&self) -> FlowId {
        self.view.round.flow
    }

    /// The protocol era of the client. A client of the legacy era cannot be asked with a `Round`, unless the server is
    /// configured to [push](crate::Legacy::Push): use a default, end the call, or ask with an [`Ask`](crate::Ask).
    pub fn era(&self) -> Era {
        self.view.peer.era
    }

    /// Whether the client can be asked with a form. For a client of the legacy era this and the methods below are
    /// false, unless the server is configured to [push](crate::Legacy::Push).
    pub fn can_form(&self) -> bool {
        self.can(QuestionKind::Form)
    }

    /// Whether the client can be asked to visit a page.
    pub fn can_url(&self) -> bool {
        self.can(QuestionKind::Url)
    }

    /// Whether the client's model can be sampled.
    pub fn can_sample(&self) -> bool {
        self.can(QuestionKind::Sample)
    }

    /// Whether the client can be asked for its roots.
    pub fn can_roots(&self) -> bool {
        self.can(QuestionKind::Roots)
    }

    fn can(&self, kind: QuestionKind) -> bool {
        self.view.can(kind)
    }
}

impl<C: AsRequestContext, R: From<InputRequiredResult>> FromContextPart<C> for Round<R> {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::from_context(context.as_request_context())?)
    }
}

impl<R> Clone for Round<R> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), response: PhantomData }
    }
}

impl<R> std::fmt::Debug for Round<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Round")
            .field("flow", &self.view.round.flow)
            .field("number", &self.view.round.number)
            .field("era", &self.view.peer.era)
            .field("solicited", &self.view.solicited)
            .finish_non_exhaustive()
    }
}

/// The questions that end a leg, and the state to keep until they are answered. Made by [`Round::questions`].
#[must_use = "the questions are asked only if `send` is called and its result is returned"]
#[derive(Debug)]
pub struct Questions<R> {
    /// The first mistake is kept here and returned by `send`.
    requests: Result<InputRequests, FlowError>,
    /// The keys of the requests, in the order of asking.
    keys: Vec<String>,
    state: Option<String>,
    round: Round<R>,
}

impl<R: From<InputRequiredResult>> Questions<R> {
    /// Asks for a `T` with a form. A struct becomes a form with its fields. Any other type becomes a form with one
    /// field, named after the key. If the last answer was not valid, the message says why.
    pub fn form<T: FormType>(self, key: &str, message: impl Into<String>) -> Self {
        let message = noted(message.into(), self.round.given::<T>(key));
        self.with(key, Inquiry::form::<T>(message))
    }

    /// Asks with a form that is known only at run time, such as a choice. [`Round::given_with`] reads the answer with the
    /// same schema. If the last answer was not valid, the message says why.
    pub fn form_with<T: DeserializeOwned>(self, key: &str, message: impl Into<String>, schema: &Schema<T>) -> Self {
        let message = noted(message.into(), self.round.given_with(key, schema));
        self.with(key, Inquiry::form_with(message, schema))
    }

    /// Asks the user to visit a page, such as one for signing in. Ask for secrets this way, because no form may ask for
    /// them.
    pub fn url(self, key: &str, message: impl Into<String>, url: impl Into<String>) -> Self {
        self.with(key, Inquiry::page(message, url))
    }

    /// Asks another person than the caller for an approval, within this time, as [`Ask::approval`](crate::Ask::approval)
    /// does. [`Round::decision`] reads the decision.
    pub fn approval(self, key: &str, message: impl Into<String>, approvers: Approvers, within: Duration) -> Self {
        let mut inquiry = Inquiry::approval(message);
        inquiry.by(approvers);
        inquiry.wait_elsewhere(within);
        self.with(key, inquiry)
    }

    /// Has these people fill in a form, within this time, as [`QuestionBuilder::by`](crate::ask::QuestionBuilder::by)
    /// does. [`Round::given_elsewhere`] reads the answer.
    pub fn form_elsewhere<T: FormType>(
        self,
        key: &str,
        message: impl Into<String>,
        approvers: Approvers,
        within: Duration,
    ) -> Self {
        let mut inquiry = Inquiry::form::<T>(noted(message.into(), self.round.given_elsewhere::<T>(key)));
        inquiry.by(approvers);
        inquiry.wait_elsewhere(within);
        self.with(key, inquiry)
    }

    /// Asks the client's model.
    #[deprecated(note = "SEP-2577 deprecates sampling, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its type as well")]
    pub fn sample(self, key: &str, request: rmcp::model::CreateMessageRequestParams) -> Self {
        self.with(key, Inquiry::sample(request))
    }

    /// Asks the client for its roots.
    #[deprecated(note = "SEP-2577 deprecates roots, and so does rmcp")]
    pub fn roots(self, key: &str) -> Self {
        self.with(key, Inquiry::roots())
    }

    /// Keeps a state until the next leg, where [`Round::state`] returns it. It is sealed: the client can neither read
    /// nor change it. A state of an earlier round is not kept unless the handler sets it again.
    pub fn state<T: Serialize>(mut self, state: &T) -> Self {
        match serde_json::to_string(state) {
            Ok(state) => self.state = Some(state),
            Err(error) => self.fail(FlowError::State(error)),
        }
        self
    }

    /// Ends the leg: return its result from the handler.
    ///
    /// # Errors
    ///
    /// [`FlowError::FormType`] if a type cannot be asked for with a form, [`FlowError::DuplicateKey`],
    /// [`FlowError::NothingAsked`], [`FlowError::State`] if the state cannot be written, and [`FlowError::Unrecorded`]
    /// if the next run could not know how an effect of this run ended. Capabilities that the client lacks and exceeded
    /// limits are detected after the handler has returned.
    pub fn send(self) -> Result<R, FlowError> {
        let requests = self.requests?;
        if requests.is_empty() && self.state.is_none() {
            return Err(FlowError::NothingAsked);
        }
        if let Some(error) = self.round.view.frame.onces.get().and_then(Effects::cannot_ask) {
            return Err(error);
        }
        let requests = (!requests.is_empty()).then_some(requests);
        let mut asks = InputRequiredResult::new(requests, self.state);
        order::say(&mut asks, order::of_keys(self.keys.iter().map(String::as_str)));
        Ok(asks.into())
    }

    fn with(mut self, key: &str, inquiry: Inquiry) -> Self {
        if let Ok(requests) = &mut self.requests {
            let (limits, name) = (&self.round.view.frame.core.limits, || format!("{}-{key}", self.round.flow()));
            let mistake = match inquiry.subject.request(inquiry.message.to_string(), key, limits, &name) {
                Err(mistake) => Some(mistake),
                Ok(request) => {
                    self.keys.push(key.to_owned());
                    requests.insert(key.to_owned(), request).map(|_| FlowError::DuplicateKey { key: key.to_owned() })
                }
            };
            if let Some(mistake) = mistake {
                self.fail(mistake);
            }
        }
        self
    }

    fn fail(&mut self, mistake: FlowError) {
        if self.requests.is_ok() {
            self.requests = Err(mistake);
        }
    }
}

/// The message, with a note of what was wrong with the last answer. A message that has the note keeps it once.
fn noted<T>(message: String, given: Given<T>) -> String {
    match given {
        Given::Invalid(problem) if !message.ends_with(&problem.note()) => problem.noted(&message),
        _ => message,
    }
}
