//! Durable: linear, and on any instance. The handler is run from the top on every leg, and goes through what it has been
//! through already without doing it again.

use std::{marker::PhantomData, ops::ControlFlow, sync::Arc, time::SystemTime};

use rmcp::{
    ErrorData, RoleServer,
    handler::server::{
        common::{AsRequestContext, FromContextPart},
        prompt::{IntoGetPromptResult, PromptContext},
        router::prompt::PromptRoute,
        tool::{IntoCallToolResult, ToolCallContext, ToolRoute, parse_json_object, schema_for_input},
    },
    model::{JsonObject, Prompt, Tool},
    schemars::JsonSchema,
    service::RequestContext,
};
use serde::{Serialize, de::DeserializeOwned};

use super::ask::{Answer, Ask, How, Otherwise, QuestionBuilder, Within};
use crate::{
    server::{
        engine::{
            answer::Received,
            effects,
            frame::OpenQuestion,
            journal::{Journal, Operation, Reached},
            view::View,
        },
        form::FormType,
        policy::{
            error::FlowError,
            gate::{Era, required},
        },
        seal::{
            Digest, FlowId,
            digest::Fingerprint,
            envelope::{QuestionKind, Settled},
            journal::{Entry, RecordedFailure},
        },
    },
    shared::{check::InvalidAnswer, clock::BoxFuture},
};

#[doc = include_str!("docs/durable.md")]
pub struct Durable<S> {
    view: Arc<View>,
    ask: Ask,
    server: Arc<S>,
}

impl<S> Drop for Durable<S> {
    fn drop(&mut self) {
        if let Some(journal) = self.view.frame.journal.get() {
            journal.leave();
        }
    }
}

impl<S: Send + Sync + 'static> Durable<S> {
    /// For handlers that are neither tools nor prompts, such as those of resources. What follows in that handler is durable,
    /// and has to keep to it: one operation after another, and every effect in a [`once`](Self::once).
    ///
    /// # Errors
    ///
    /// [`FlowError::NotWrapped`] in a server that nobody wrapped in [`Rounds`](crate::Rounds), and
    /// [`FlowError::ServerNotFound`] when it was another server than an `S`.
    pub fn from_context(context: &RequestContext<RoleServer>) -> Result<Self, FlowError> {
        Self::of(View::take(context, "Durable")?)
    }

    fn of(view: Arc<View>) -> Result<Self, FlowError> {
        let server = find(&view)?;
        view.frame.journal.get_or_init(|| Journal::empty(&view.frame.core.limits).into()).enter();
        Ok(Self { ask: Ask::of(&view), view, server })
    }

    /// Asks for a `T` with a form, as [`Ask::form`] does.
    pub fn form<T: FormType>(&self, message: impl Into<String>) -> QuestionBuilder<T> {
        self.ask.form(message)
    }

    /// Asks for a yes, as [`Ask::confirm`] does.
    pub fn confirm(&self, message: impl Into<String>) -> QuestionBuilder<bool> {
        self.ask.confirm(message)
    }

    /// Asks the person to visit a page, as [`Ask::url`] does.
    pub fn url(&self, message: impl Into<String>, url: impl Into<String>) -> QuestionBuilder<()> {
        self.ask.url(message, url)
    }

    /// Asks the client's model.
    #[deprecated(note = "sampling is deprecated by SEP-2577, as it is in rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn sample(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
    ) -> QuestionBuilder<rmcp::model::CreateMessageResult> {
        self.ask.sample(request)
    }

    /// Asks the client for its roots.
    #[deprecated(note = "roots are deprecated by SEP-2577, as they are in rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn roots(&self) -> QuestionBuilder<rmcp::model::ListRootsResult> {
        self.ask.roots()
    }

    /// Asks several questions in one round: a pair, a triple or four. Gives what was accepted; a refusal of any is its error. A key
    /// that two of them have gets a number at the second, also where it was given.
    ///
    /// # Errors
    ///
    /// The first error of any of them. As every operation, [`FlowError::Concurrent`] while another is under way, also within a
    /// [`once`](Self::once), and from then on whatever has ended the flow.
    pub async fn all<A: Together>(&self, questions: A) -> Result<A::Values, FlowError> {
        let operation = self.journal().begin()?;
        questions.ask(&operation).await
    }

    /// Runs an effect once in this flow, and gives what it came to whenever the handler is run again. It is given the server,
    /// which cannot be reached elsewhere, and its idempotency key, the same however often it is tried.
    ///
    /// # Errors
    ///
    /// As [`Round::once`](crate::Round::once), [`FlowError::TooManyEntries`] before it runs, [`FlowError::Diverged`]
    /// when something else was recorded in its place, and those of every operation, as in [`all`](Self::all).
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(&S, &str) -> T,
    ) -> Result<T, FlowError> {
        self.try_once(name, async move |server: &S, key: &str| Ok::<_, FlowError>(effect(server, key).await)).await
    }

    /// As [`once`](Self::once), for an effect that may fail. A failure is recorded like a value: whenever the handler is run again,
    /// this call fails in the same way and the effect does not run. The next call under the same name is another attempt, with the
    /// same key.
    ///
    /// [`FlowError::Failed`], [`FlowError::Retry`] and [`FlowError::Protocol`] can be recorded. After any other error, and after one
    /// that is larger than an entry may be, the handler may end but not ask: a question fails with [`FlowError::Unrecorded`].
    ///
    /// # Errors
    ///
    /// The effect's own, and those of [`once`](Self::once).
    pub async fn try_once<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(&S, &str) -> Result<T, E>,
    ) -> Result<T, FlowError> {
        let operation = self.journal().begin()?;
        // Whatever the journal has: it is the same on every leg, and no entry.
        self.view.unused_once(name)?;
        let wanted = Entry::Once { name: name.to_owned(), value: String::new() };
        match operation.recorded(&wanted)?.as_deref() {
            Some(Entry::Once { value, .. }) => {
                self.view.met_once(name);
                return effects::read(name, value);
            }
            Some(Entry::Failed { failure, .. }) => return Err(failure.clone().into()),
            _ => operation.reserve_effect(&wanted)?,
        }
        let key = format!("{:?}", Digest::of_effect(self.view.round.flow, name));
        let had = self.view.once(name, async || effect(&self.server, &key).await).await;
        match &had {
            Ok(value) => {
                let value = serde_json::to_string(value).map_err(FlowError::State)?;
                operation.record(Entry::Once { name: name.to_owned(), value })?;
            }
            Err(_) if self.view.has_lost(name) => {
                operation.record(Entry::Once { name: name.to_owned(), value: effects::LOST.to_owned() })?;
            }
            // The handler may go on from here, and a later leg meets the same failure. What cannot be written is noted, and then
            // nothing is asked after it; the handler gets the failure itself in any case.
            Err(failed) => match RecordedFailure::of(failed) {
                Some(failure) => drop(operation.record(Entry::Failed { name: name.to_owned(), failure })),
                None => operation.unrecorded_failure(&wanted, RecordedFailure::unfit(failed)),
            },
        }
        had
    }

    /// The time, the same whenever the handler is run again.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] when something else was recorded in its place, [`FlowError::TooManyEntries`].
    pub fn now(&self) -> Result<SystemTime, FlowError> {
        let operation = self.journal().begin()?;
        let now = self.view.frame.core.now();
        match operation.recorded(&Entry::Now(now))?.as_deref() {
            Some(Entry::Now(then)) => Ok((*then).into()),
            _ => operation.record(Entry::Now(now)).map(|()| now.into()),
        }
    }

    /// Random bytes, the same whenever the handler is run again.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] when something else was recorded in its place, [`FlowError::TooManyEntries`].
    pub fn random(&self) -> Result<[u8; 32], FlowError> {
        let operation = self.journal().begin()?;
        let drawn = self.view.frame.core.random();
        match operation.recorded(&Entry::Random(drawn))?.as_deref() {
            Some(Entry::Random(then)) => Ok(*then),
            _ => operation.record(Entry::Random(drawn)).map(|()| drawn),
        }
    }

    /// Whether this flow has a change of the handler: false for one that was past this place before the change was deployed.
    ///
    /// ```text
    /// if flow.patched("insurance")? {
    ///     let insured = flow.confirm("Insure it?").await?;
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`FlowError::TooManyEntries`]; [`FlowError::EntryTooLarge`] for a name that is larger than an entry may be.
    pub fn patched(&self, change: &str) -> Result<bool, FlowError> {
        let operation = self.journal().begin()?;
        let entry = Entry::Patched(change.to_owned());
        match operation.meets(&entry) {
            Some(met) => Ok(met),
            None => operation.record(entry).map(|()| true),
        }
    }

    /// Puts all so far into the client's hands before going on: a round without a question. What was done before it is not
    /// done again, even if this is the first leg and its client never hears of it otherwise.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] when something else was recorded in its place, [`FlowError::TooManyEntries`], [`FlowError::FlowEnded`] and
    /// [`FlowError::NoPrincipal`] as for a question.
    pub async fn checkpoint(&self) -> Result<(), FlowError> {
        let operation = self.journal().begin()?;
        if operation.recorded(&Entry::Checkpoint)?.is_some() {
            return Ok(());
        }
        operation.reserve(&Entry::Checkpoint)?;
        let frame = &self.view.frame;
        // A client of the legacy era has nothing to come back with, and its call is one leg.
        if !operation.passes() && frame.with_peer(|peer| peer.era == Era::Modern) {
            let (key, message) = ("checkpoint".into(), "".into());
            let question = OpenQuestion {
                key,
                kind: QuestionKind::Form,
                request: None,
                form: None,
                digest: None,
                message,
                until: None,
            };
            frame.open(question, true)?.await?;
        }
        operation.record(Entry::Checkpoint)
    }

    /// Which protocol the client speaks. Both can be asked.
    pub fn era(&self) -> Era {
        self.ask.era()
    }

    /// The name of the flow, the same on all of its legs.
    pub fn flow(&self) -> FlowId {
        self.view.round.flow
    }

    fn journal(&self) -> &Journal {
        let frame = &self.view.frame;
        frame.journal.get_or_init(|| Journal::empty(&frame.core.limits).into())
    }
}

/// Not to be used: an argument of a `#[tool]` or `#[prompt]` method it is not, as such a method has a `&self`. Without this,
/// the compiler would say so in a page that does not name it.
impl<C: AsRequestContext, S> FromContextPart<C> for Durable<S> {
    fn from_context_part(_context: &mut C) -> Result<Self, ErrorData> {
        const {
            assert!(
                size_of::<S>() == usize::MAX,
                "a durable handler is a function without `&self`, and no `#[tool]` or `#[prompt]` method: write \
                 `async fn book(flow: Durable<Shop>, trip: Trip)` and `router.with_route(durable(\"book\", \"..\", book))`"
            );
        };
        unreachable!("this does not compile")
    }
}

impl<S> std::fmt::Debug for Durable<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durable")
            .field("flow", &self.view.round.flow)
            .field("server", &PhantomData::<S>)
            .finish_non_exhaustive()
    }
}

/// The server as the type that a handler is written for: the one that was wrapped, or the one inside of an `Arc` that was.
fn find<S: Send + Sync + 'static>(view: &View) -> Result<Arc<S>, FlowError> {
    let found = match view.server.clone().downcast::<S>() {
        Ok(server) => Some(server),
        Err(other) => other.downcast::<Arc<S>>().ok().map(|server| (*server).clone()),
    };
    found.ok_or(FlowError::ServerNotFound { wanted: std::any::type_name::<S>() })
}

/// Makes a tool of a durable handler, as an ordinary route of rmcp: `router.with_route(durable("book", "Book a trip", book))`.
///
/// The handler is a function of the flow and the arguments. It cannot capture anything: what it captured would be there on one
/// instance and not on the next.
///
/// # Panics
///
/// When the arguments' type is not a struct, as rmcp would.
pub fn durable<S, P, R, F, Fut>(
    name: impl Into<std::borrow::Cow<'static, str>>,
    description: impl Into<std::borrow::Cow<'static, str>>,
    handler: F,
) -> ToolRoute<S>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + JsonSchema + Send + 'static,
    R: IntoCallToolResult,
    F: Fn(Durable<S>, P) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
{
    const { assert!(size_of::<F>() == 0, "a durable handler cannot capture anything: reach the server inside of `once`") };
    let schema = schema_for_input::<P>().unwrap_or_else(|why| panic!("the arguments of a tool: {why}"));
    ToolRoute::new_dyn(Tool::new(name, description, schema), move |context: ToolCallContext<'_, S>| {
        let prepared = prepare::<S>(&context.request_context, "Durable");
        let arguments = read_arguments(context.arguments);
        Box::pin(async move {
            let (view, _) = prepared?;
            match arguments {
                Ok(arguments) => handler(Durable::of(view)?, arguments).await.into_call_tool_result(),
                Err(misfit) => misfit.into_call_tool_result(),
            }
        }) as BoxFuture<'_, _>
    })
}

/// Makes a prompt of a durable handler, as an ordinary route of rmcp. See [`durable`].
pub fn durable_prompt<S, P, R, F, Fut>(prompt: Prompt, handler: F) -> PromptRoute<S>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + Send + 'static,
    R: IntoGetPromptResult,
    F: Fn(Durable<S>, P) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
{
    const { assert!(size_of::<F>() == 0, "a durable handler cannot capture anything: reach the server inside of `once`") };
    PromptRoute::new_dyn(prompt, move |context: PromptContext<'_, S>| {
        let prepared = prepare::<S>(&context.context, "Durable");
        let arguments = parse_json_object(context.arguments.unwrap_or_default());
        Box::pin(async move {
            let (view, _) = prepared?;
            handler(Durable::of(view)?, arguments?).await.map_err(ErrorData::from)?.into_get_prompt_result()
        }) as BoxFuture<'_, _>
    })
}

/// What a route needs that is made of functions: the leg, and the server.
pub(super) fn prepare<S: Send + Sync + 'static>(
    context: &RequestContext<RoleServer>,
    extractor: &'static str,
) -> Result<(Arc<View>, Arc<S>), ErrorData> {
    let view = View::take(context, extractor)?;
    let server = find(&view)?;
    Ok((view, server))
}

/// The arguments of such a tool; or why they do not fit, in words, as rmcp does it for other tools: the model reads them, and calls
/// again.
pub(super) fn read_arguments<P: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<P, FlowError> {
    parse_json_object(arguments.unwrap_or_default()).map_err(|misfit| FlowError::failed(misfit.message))
}

/// Questions that are asked together, in one round: tuples of [`QuestionBuilder`].
pub trait Together: sealed::Sealed {
    /// What was accepted.
    type Values;

    #[doc(hidden)]
    #[expect(private_interfaces, reason = "nobody else implements it")]
    fn ask(self, operation: &Operation<'_>) -> impl Future<Output = Result<Self::Values, FlowError>> + Send;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! together {
    ($($question:ident: $T:ident),+) => {
        impl<$($T: Send + 'static),+> sealed::Sealed for ($(QuestionBuilder<$T>,)+) {}

        impl<$($T: Send + 'static),+> Together for ($(QuestionBuilder<$T>,)+) {
            type Values = ($($T,)+);

            #[expect(private_interfaces, reason = "nobody else implements it")]
            async fn ask(self, operation: &Operation<'_>) -> Result<Self::Values, FlowError> {
                let ($(mut $question,)+) = self;
                let mut keys = Vec::new();
                $($question.name_apart(&mut keys);)+
                operation.together(keys);
                let ($($question,)+) = tokio::join!($($question.value_within(operation)),+);
                Ok(($($question?,)+))
            }
        }
    };
}

together!(a: A, b: B);
together!(a: A, b: B, c: C);
together!(a: A, b: B, c: C, d: D);

impl<T: Send + 'static> QuestionBuilder<T> {
    /// Settles on a key that none of those asked together has.
    fn name_apart(&mut self, keys: &mut Vec<String>) {
        let wanted = self.key.as_deref().map_or_else(self.query.how.default_key, str::to_owned);
        let mut key = wanted.clone();
        for n in 2.. {
            if !keys.contains(&key) {
                break;
            }
            key = format!("{wanted}_{n}");
        }
        keys.push(key.clone());
        self.key = Some(key.into());
    }

    async fn value_within(mut self, operation: &Operation<'_>) -> Result<T, FlowError> {
        let key = self.key.get_or_insert_with(|| (self.query.how.default_key)().into());
        let question = self.query.fingerprint(&self.message, key)?;
        let answer = self.answer_within(operation, question).await?;
        answer.into_value(self.query.refused, &self.message)
    }

    /// The answer of an earlier leg, where the journal has it next. Otherwise an operation begins, for this question.
    pub(super) fn recall<'a>(
        &mut self,
        journal: &'a Journal,
    ) -> Result<ControlFlow<Answer<T>, (Operation<'a>, Fingerprint)>, FlowError> {
        let key = &*self.key.get_or_insert_with(|| (self.query.how.default_key)().into());
        let question = self.query.fingerprint(&self.message, key);
        if let Ok(question) = question
            && let Some(answer) = journal.recall(key, question)
        {
            return recall(key, answer, self.query.how.read_text).map(ControlFlow::Break);
        }
        let operation = journal.begin()?;
        Ok(ControlFlow::Continue((operation, question?)))
    }

    /// Asks as a durable handler does: what was answered is taken from the journal, what has just come is written into it,
    /// and what is open is asked.
    pub(super) async fn answer_within(
        &mut self,
        operation: &Operation<'_>,
        digest: Fingerprint,
    ) -> Result<Answer<T>, FlowError> {
        let Self { ask, query, message, key, within, otherwise } = self;
        let How { kind, form, default_key, read, read_text } = *query.how;
        let key = key.take().map_or_else(default_key, |key| key.to_string());
        let wanted = Entry::Answer { key, question: digest, answer: Settled::Declined };
        let key = wanted.key().unwrap_or_default();
        let instead =
            |otherwise, error| Otherwise::instead(otherwise, error, ask, read, key, message).map(Answer::Accepted);
        let cannot = || FlowError::MissingCapability { required: Box::new(required(kind, false)) };
        let late = || FlowError::NotInTime { question: message.to_string() };
        let mut misfits = 0;
        let mut reworded = None;
        loop {
            let problem = match operation.recorded_question(&wanted, message)?.as_deref() {
                Some(Entry::Misfit { problem, .. }) => problem.clone(),
                Some(Entry::Unasked { .. }) => return instead(otherwise.take(), cannot()),
                Some(Entry::Late { .. }) => return instead(otherwise.take(), late()),
                Some(Entry::Answer { answer, .. }) => return recall(key, answer, read_text),
                _ => {
                    let reached = operation.reach(key, digest);
                    if let Some(until) = reached.as_ref().and_then(|reached| reached.until) {
                        *within = Some(Within::Until(until));
                    }
                    let received = match reached {
                        Some(Reached { is_late: true, .. }) => Err(late()),
                        Some(Reached { answer: Some(received), .. }) => Ok(received),
                        _ => {
                            operation.reserve(&wanted)?;
                            let words = reworded.take().unwrap_or_else(|| message.to_string());
                            // The same on every leg, and another for another page.
                            let name = || format!("{}-{key}-{:08x}", ask.frame.flow, u128::from_be_bytes(digest) >> 96);
                            let request = query.request(words, key, &name)?;
                            let question = OpenQuestion {
                                key: key.into(),
                                kind,
                                request: Some(Box::new(request)),
                                form,
                                digest: Some(digest),
                                message: message.clone(),
                                until: Within::begun(within, || ask.frame.core.now()),
                            };
                            ask.frame.open(question, false)?.await
                        }
                    };
                    let settled = match received {
                        Err(error) if error.cannot_ask() => {
                            let unasked = Entry::Unasked { key: key.to_owned(), question: digest };
                            operation.record_question(unasked, message)?;
                            return instead(otherwise.take(), error);
                        }
                        Err(error @ FlowError::NotInTime { .. }) => {
                            let late = Entry::Late { key: key.to_owned(), question: digest };
                            operation.record_question(late, message)?;
                            return instead(otherwise.take(), error);
                        }
                        Err(error) => return Err(error),
                        Ok(Received::Declined) => Ok((Settled::Declined, Answer::Declined)),
                        Ok(Received::Cancelled) => Ok((Settled::Cancelled, Answer::Cancelled)),
                        Ok(Received::Malformed(problem)) => Err(problem),
                        Ok(Received::Accepted(content)) => read(key, &content)
                            .map(|value| (Settled::accepted(kind, &content), Answer::Accepted(value))),
                    };
                    match settled {
                        Ok((answer, value)) => {
                            let answered = Entry::Answer { key: key.to_owned(), question: digest, answer };
                            operation.record_question(answered, message)?;
                            return Ok(value);
                        }
                        Err(problem) => {
                            let problem = problem.to_string();
                            let misfit =
                                Entry::Misfit { key: key.to_owned(), question: digest, problem: problem.clone() };
                            operation.record_question(misfit, message)?;
                            problem
                        }
                    }
                }
            };
            let problem = InvalidAnswer::whole(problem);
            if misfits == ask.frame.core.limits.reasks {
                return Err(FlowError::Invalid { question: message.to_string(), problem });
            }
            misfits += 1;
            reworded = Some(problem.noted(message));
        }
    }
}

/// An answer of an earlier leg.
fn recall<T>(
    key: &str,
    answer: &Settled,
    read_text: fn(&str, &str) -> Result<T, InvalidAnswer>,
) -> Result<Answer<T>, FlowError> {
    match answer {
        Settled::Declined => Ok(Answer::Declined),
        Settled::Cancelled => Ok(Answer::Cancelled),
        Settled::Accepted { json, .. } => {
            let unreadable = |problem: InvalidAnswer| FlowError::StateUnreadable(serde::de::Error::custom(problem));
            read_text(key, json).map(Answer::Accepted).map_err(unreadable)
        }
    }
}
