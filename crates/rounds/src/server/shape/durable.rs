//! Durable handlers: linear code that continues on any instance. The handler runs from its beginning on every leg, and
//! its recorded operations return their recorded values.

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

use super::ask::{Answer, Ask, QuestionBuilder, Within, begun};
use crate::{
    server::{
        engine::{
            answer::Received,
            effects::{self, ClaimKeeper},
            frame::OpenQuestion,
            journal::{Journal, Operation, Reached},
            view::View,
        },
        flows::Decision,
        form::{Alternative, FormType, Schema},
        ledger::kit::SelfClaimed,
        policy::{
            error::FlowError,
            gate::{Era, required},
            principal::Principal,
        },
        seal::{
            FlowId,
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
        if let Some(journal) = self.view.frame.journal() {
            journal.leave();
        }
    }
}

impl<S: Send + Sync + 'static> Durable<S> {
    /// The flow of a request, for handlers that are neither tools nor prompts, such as those of resources. The handler
    /// has to follow the rules of durable handlers from there on: one operation at a time, and every effect in a
    /// [`once`](Self::once).
    ///
    /// # Errors
    ///
    /// [`FlowError::NotWrapped`] if the server is not wrapped in [`Rounds`](crate::Rounds), and
    /// [`FlowError::ServerNotFound`] if the wrapped server is not an `S`.
    pub fn from_context(context: &RequestContext<RoleServer>) -> Result<Self, FlowError> {
        let view = View::take(context, "Durable")?;
        reach(&view, context);
        Self::of(view)
    }

    fn of(view: Arc<View>) -> Result<Self, FlowError> {
        let server = find(&view)?;
        view.frame.replay(|| Journal::empty(&view.frame.core.limits)).enter();
        Ok(Self { ask: Ask::of(&view), view, server })
    }

    /// A handle that the server owns, for crates that run effects in a way of their own, such as `rounds-sql` with a pool
    /// of connections. The caller must use it only inside of a [`once`](Self::once).
    #[doc(hidden)]
    pub fn handle_of<H>(&self, handle: impl FnOnce(&S) -> H) -> H {
        handle(&self.server)
    }

    /// Asks for a `T` with a form, as [`Ask::form`] does.
    pub fn form<T: FormType>(&self, message: impl Into<String>) -> QuestionBuilder<T> {
        self.ask.form(message)
    }

    /// Asks with a form that is known only at run time, as [`Ask::form_with`] does. The schema has to be the same
    /// whenever the handler runs: look up what it depends on in a [`once`](Self::once).
    pub fn form_with<T>(&self, message: impl Into<String>, schema: impl Into<Schema<T>>) -> QuestionBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.ask.form_with(message, schema)
    }

    /// Asks for one of these options, as [`Ask::choose`] does. The options have to be the same whenever the handler
    /// runs: look them up in a [`once`](Self::once).
    pub fn choose<C: Into<Alternative>>(
        &self,
        message: impl Into<String>,
        options: impl IntoIterator<Item = C>,
    ) -> QuestionBuilder<String> {
        self.ask.choose(message, options)
    }

    /// Asks for any number of these options, as [`Ask::choose_some`] does. The options have to be the same whenever the
    /// handler runs.
    pub fn choose_some<C: Into<Alternative>>(
        &self,
        message: impl Into<String>,
        options: impl IntoIterator<Item = C>,
    ) -> QuestionBuilder<Vec<String>> {
        self.ask.choose_some(message, options)
    }

    /// Asks for a confirmation, as [`Ask::confirm`] does.
    pub fn confirm(&self, message: impl Into<String>) -> QuestionBuilder<bool> {
        self.ask.confirm(message)
    }

    /// Asks the user to visit a page, as [`Ask::url`] does.
    pub fn url(&self, message: impl Into<String>, url: impl Into<String>) -> QuestionBuilder<()> {
        self.ask.url(message, url)
    }

    /// Asks another person than the caller for an approval, as [`Ask::approval`] does. The flow can wait for days, up to
    /// 30: nothing of it is in memory meanwhile.
    pub fn approval(&self, message: impl Into<String>) -> QuestionBuilder<Decision> {
        self.ask.approval(message)
    }

    /// Asks with a page of the server's own, as [`Ask::page`] does.
    pub fn page<T>(&self, message: impl Into<String>, address: impl Into<String>) -> QuestionBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.ask.page(message, address)
    }

    /// Asks the client's model.
    #[deprecated(note = "SEP-2577 deprecates sampling, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn sample(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
    ) -> QuestionBuilder<rmcp::model::CreateMessageResult> {
        self.ask.sample(request)
    }

    /// Asks the client for its roots.
    #[deprecated(note = "SEP-2577 deprecates roots, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn roots(&self) -> QuestionBuilder<rmcp::model::ListRootsResult> {
        self.ask.roots()
    }

    /// Asks two to four questions in one round. Returns the accepted values; a refusal of any question is an error. If
    /// two questions have the same key, a number is appended to the second, even if the key was given.
    ///
    /// # Errors
    ///
    /// The first error of any question. As every operation, [`FlowError::Concurrent`] if another operation is in
    /// flight, also within a [`once`](Self::once); after an error that ended the flow, that error.
    pub async fn all<A: Together>(&self, questions: A) -> Result<A::Values, FlowError> {
        let operation = self.journal().begin()?;
        questions.ask(&operation).await
    }

    /// Runs an effect once in this flow, and returns its recorded value when the handler runs again. The effect gets
    /// the server, which is not available elsewhere, and its idempotency key, which is the same for every attempt.
    ///
    /// # Errors
    ///
    /// The errors of [`Round::once`](crate::Round::once); [`FlowError::TooManyEntries`] before the effect runs;
    /// [`FlowError::Diverged`] if another operation was recorded in its place; and those of every operation, as in
    /// [`all`](Self::all).
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(&S, &str) -> T,
    ) -> Result<T, FlowError> {
        self.try_once(name, async move |server: &S, key: &str| Ok::<_, FlowError>(effect(server, key).await)).await
    }

    /// Runs an effect that may fail, as [`once`](Self::once) does. A failure is recorded like a value: when the handler
    /// runs again, this call fails in the same way and the effect does not run. The next call with the same name is
    /// another attempt, with the same key.
    ///
    /// [`FlowError::Failed`], [`FlowError::Retry`] and [`FlowError::Protocol`] can be recorded. After any other error,
    /// and after one that is larger than an entry may be, the handler may return but not ask: a question fails with
    /// [`FlowError::Unrecorded`].
    ///
    /// # Errors
    ///
    /// The effect's own errors, and those of [`once`](Self::once).
    pub async fn try_once<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(&S, &str) -> Result<T, E>,
    ) -> Result<T, FlowError> {
        let keyed = async || effect(&self.server, &self.view.effect_key(name)).await;
        self.journaled(name, ClaimKeeper::Ledger, keyed).await
    }

    /// Runs an effect that keeps its claim itself. For crates that run effects in a way of their own, such as `rounds-sql`.
    #[doc(hidden)]
    pub async fn try_once_self_claimed<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce(SelfClaimed) -> Result<T, E>,
    ) -> Result<T, FlowError> {
        let claimed = async || effect(self.view.self_claimed(name)).await;
        self.journaled(name, ClaimKeeper::Effect, claimed).await
    }

    /// Runs an effect, unless the journal has its outcome, and records the outcome there.
    async fn journaled<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        keeper: ClaimKeeper,
        effect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FlowError> {
        let operation = self.journal().begin()?;
        // Checked before the journal, because the result is the same on every leg and is not recorded.
        self.view.unused_once(name)?;
        let wanted = Entry::Once { name: name.to_owned(), value: String::new() };
        match operation.recorded(&wanted)?.as_deref() {
            Some(Entry::Once { value, .. }) => {
                self.view.met_once(name, value);
                return effects::read(name, value);
            }
            Some(Entry::Failed { failure, .. }) => return Err(failure.clone().into()),
            _ => operation.reserve_effect(&wanted).inspect_err(|error| self.view.frame.core.note_limit(error))?,
        }
        let had = self.view.once(name, keeper, effect).await;
        match &had {
            Ok(value) => {
                let value = serde_json::to_string(value).map_err(FlowError::State)?;
                operation.record(Entry::Once { name: name.to_owned(), value })?;
            }
            Err(_) if self.view.has_lost(name) => {
                operation.record(Entry::Once { name: name.to_owned(), value: effects::LOST.to_owned() })?;
            }
            // The handler may continue after this failure, and a later leg gets the same failure. If it cannot be
            // recorded, later questions fail; the handler gets the failure itself in any case.
            Err(failed) => match RecordedFailure::of(failed) {
                Some(failure) => drop(operation.record(Entry::Failed { name: name.to_owned(), failure })),
                None => operation.unrecorded_failure(&wanted, RecordedFailure::unfit(failed)),
            },
        }
        had
    }

    /// The current time, the same whenever the handler runs again.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] if another operation was recorded in its place, [`FlowError::TooManyEntries`].
    pub fn now(&self) -> Result<SystemTime, FlowError> {
        let operation = self.journal().begin()?;
        let now = self.view.frame.core.now();
        match operation.recorded(&Entry::Now(now))?.as_deref() {
            Some(Entry::Now(then)) => Ok((*then).into()),
            _ => operation.record(Entry::Now(now)).map(|()| now.into()),
        }
    }

    /// Random bytes, the same whenever the handler runs again.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] if another operation was recorded in its place, [`FlowError::TooManyEntries`].
    pub fn random(&self) -> Result<[u8; 32], FlowError> {
        let operation = self.journal().begin()?;
        let drawn = self.view.frame.core.random();
        match operation.recorded(&Entry::Random(drawn))?.as_deref() {
            Some(Entry::Random(then)) => Ok(*then),
            _ => operation.record(Entry::Random(drawn)).map(|()| drawn),
        }
    }

    /// Whether this flow runs with a change of the handler. False for a flow that had passed this place before the
    /// change was deployed.
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

    /// Sends a round without a question, so that the client holds everything recorded so far. What ran before it does
    /// not run again, even if this is the first leg and the client would otherwise have nothing to retry with.
    ///
    /// The library sends such a round only here, and where a [`Round`](crate::Round) ends a leg with a state and no question. The
    /// protocol allows it, but not every host follows it: see [the guide](crate::guide::choosing_a_shape). If your users' hosts are not known, ask a question instead.
    ///
    /// # Errors
    ///
    /// [`FlowError::Diverged`] if another operation was recorded in its place, [`FlowError::TooManyEntries`], and, as
    /// for a question, [`FlowError::FlowEnded`] and [`FlowError::NoPrincipal`].
    pub async fn checkpoint(&self) -> Result<(), FlowError> {
        let operation = self.journal().begin()?;
        if operation.recorded(&Entry::Checkpoint)?.is_some() {
            return Ok(());
        }
        operation.reserve(&Entry::Checkpoint)?;
        let frame = &self.view.frame;
        // A client of the legacy era has no token to send back, and its call is one leg.
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
            frame.pose(question, true)?.await?;
        }
        operation.record(Entry::Checkpoint)
    }

    /// The protocol era of the client. Clients of both eras can be asked.
    pub fn era(&self) -> Era {
        self.ask.era()
    }

    /// The principal that the flow belongs to: the caller, as the server [identifies](crate::RoundsBuilder::principal)
    /// it. None for a caller without one. It is the same on all legs of a flow.
    pub fn principal(&self) -> Option<&Principal> {
        self.view.frame.caller()
    }

    /// Whether the client can be asked with a form, as [`Ask::can_form`]. Like the methods below, it depends on what the
    /// client of this leg declares, which may change: a handler that takes another way then ends with an error. If a
    /// question has an alternative, [`or`](QuestionBuilder::or) is recorded and safe.
    pub fn can_form(&self) -> bool {
        self.ask.can_form()
    }

    /// Whether the client can be asked to visit a page.
    pub fn can_url(&self) -> bool {
        self.ask.can_url()
    }

    /// Whether the client's model can be sampled.
    pub fn can_sample(&self) -> bool {
        self.ask.can_sample()
    }

    /// Whether the client can be asked for its roots.
    pub fn can_roots(&self) -> bool {
        self.ask.can_roots()
    }

    /// Reports the progress of the call, as [`Ask::progress`] does. It is not recorded: a run that replays reports it
    /// again, to the client of the leg in flight.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        // A durable handler may wait only for what is recorded, and for effects.
        let _sending = self.view.frame.begin_effect();
        self.ask.progress(progress, total, message).await;
    }

    /// The id of the flow, the same on all of its legs.
    pub fn flow(&self) -> FlowId {
        self.view.round.flow
    }

    fn journal(&self) -> &Journal {
        let frame = &self.view.frame;
        frame.replay(|| Journal::empty(&frame.core.limits))
    }
}

/// Implemented only to give a readable compile error: `Durable` cannot be an argument of a `#[tool]` or `#[prompt]`
/// method, because such a method has a `&self`. Without this impl, the compiler's message would not name `Durable`.
impl<C: AsRequestContext, S> FromContextPart<C> for Durable<S> {
    fn from_context_part(_context: &mut C) -> Result<Self, ErrorData> {
        const {
            assert!(
                size_of::<S>() == usize::MAX,
                "a durable handler is a function without `&self`, takes no `Ask` beside its `Durable` (ask with `flow.form(..)`), and is \
                 not in a `#[tool_router]` or `#[prompt_router]`: \
                 write `async fn book(flow: Durable<Shop>, trip: Trip)` and `router.with_route(durable(\"book\", \"..\", book))`; \
                 or with `#[tool]` on it, in another `impl`, `durable::tool(Shop::book_tool_attr(), Shop::book)`"
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

/// The server as the type that a handler is written for: the wrapped server, or the server inside a wrapped `Arc`.
fn find<S: Send + Sync + 'static>(view: &View) -> Result<Arc<S>, FlowError> {
    let found = match view.server.clone().downcast::<S>() {
        Ok(server) => Some(server),
        Err(other) => other.downcast::<Arc<S>>().ok().map(|server| (*server).clone()),
    };
    found.ok_or(FlowError::ServerNotFound { wanted: std::any::type_name::<S>() })
}

/// Makes a tool from a durable handler, as an ordinary route of rmcp:
/// `router.with_route(durable("book", "Book a trip", book))`.
///
/// The handler is a function of the flow and the arguments. It cannot capture anything, because a captured value would
/// exist on one instance and not on the next. For a tool with a title, annotations, icons, an output schema, or with
/// rmcp's `#[tool]`, use [`durable::tool`](crate::durable::tool).
///
/// # Panics
///
/// If the type of the arguments is not a struct, as in rmcp.
pub fn durable<S, P, R, F, Fut>(
    name: impl Into<std::borrow::Cow<'static, str>>,
    description: impl Into<std::borrow::Cow<'static, str>>,
    handler: F,
) -> ToolRoute<S>
where
    S: Send + Sync + 'static,
    P: Arguments,
    R: IntoCallToolResult,
    F: Fn(Durable<S>, P) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
{
    durable_tool(Tool::new(name, description, JsonObject::new()), handler)
}

/// Makes a tool from a durable handler, with everything that a tool of rmcp has. The input schema is that of the
/// handler's arguments, whatever the tool has.
///
/// rmcp's `#[tool]` describes the handler, from its doc comment to its output schema, if it is in an `impl` without
/// `#[tool_router]`: [the guide](crate::guide::choosing_a_shape) has an example. Without the macro:
///
/// ```
/// use rmcp::{Json, handler::server::router::tool::ToolRouter, model::{JsonObject, Tool, ToolAnnotations}, schemars};
/// use rounds::{Durable, FlowError, durable};
/// use serde::{Deserialize, Serialize};
///
/// struct Shop;
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct Order { item: String }
///
/// #[derive(Serialize, schemars::JsonSchema)]
/// struct Receipt { item: String }
///
/// async fn buy(flow: Durable<Shop>, order: Order) -> Result<Json<Receipt>, FlowError> {
///     flow.confirm(format!("Buy {}?", order.item)).await?;
///     Ok(Json(Receipt { item: order.item }))
/// }
///
/// let tool = Tool::new("buy", "Buys something, after asking", JsonObject::new())
///     .with_title("Buy")
///     .with_annotations(ToolAnnotations::new().destructive(true))
///     .with_output_schema::<Receipt>();
/// let router: ToolRouter<Shop> = ToolRouter::new().with_route(durable::tool(tool, buy));
/// assert!(router.has_route("buy"));
/// ```
///
/// # Panics
///
/// If the type of the arguments is not a struct, as in rmcp.
pub fn durable_tool<S, P, R, F, Fut>(tool: Tool, handler: F) -> ToolRoute<S>
where
    S: Send + Sync + 'static,
    P: Arguments,
    R: IntoCallToolResult,
    F: Fn(Durable<S>, P) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
{
    const { assert!(size_of::<F>() == 0, "a durable handler cannot capture anything: use the server inside `once`") };
    let input_schema =
        schema_for_input::<P>().unwrap_or_else(|why| panic!("the arguments of a tool must be a struct: {why}"));
    ToolRoute::new_dyn(with_input(tool, input_schema), move |context: ToolCallContext<'_, S>| {
        let prepared = prepare::<S>(&context.request_context, "Durable");
        if let Ok((view, _)) = &prepared {
            reach(view, &context.request_context);
        }
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

/// The tool with this input schema.
pub(super) fn with_input(mut tool: Tool, schema: Arc<JsonObject>) -> Tool {
    tool.input_schema = schema;
    tool
}

/// Makes a prompt from a durable handler, as an ordinary route of rmcp. See [`durable`].
///
/// With rmcp's `#[prompt]` on the handler, in an `impl` without `#[prompt_router]`, the prompt has its doc comment, title
/// and arguments: `durable_prompt(Shop::plan_prompt_attr(), Shop::plan)`.
pub fn durable_prompt<S, P, R, F, Fut>(prompt: Prompt, handler: F) -> PromptRoute<S>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + Send + 'static,
    R: IntoGetPromptResult,
    F: Fn(Durable<S>, P) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
{
    const { assert!(size_of::<F>() == 0, "a durable handler cannot capture anything: use the server inside `once`") };
    PromptRoute::new_dyn(prompt, move |context: PromptContext<'_, S>| {
        let prepared = prepare::<S>(&context.context, "Durable");
        if let Ok((view, _)) = &prepared {
            reach(view, &context.context);
        }
        let arguments = parse_json_object(context.arguments.unwrap_or_default());
        Box::pin(async move {
            let (view, _) = prepared?;
            handler(Durable::of(view)?, arguments?).await.map_err(ErrorData::from)?.into_get_prompt_result()
        }) as BoxFuture<'_, _>
    })
}

/// Lets a durable handler report progress, if its client wants to know.
fn reach(view: &View, context: &RequestContext<RoleServer>) {
    if context.meta.get_progress_token().is_some() {
        view.frame.reach(context);
    }
}

/// The leg and the server, for a route that is built from functions.
pub(super) fn prepare<S: Send + Sync + 'static>(
    context: &RequestContext<RoleServer>,
    extractor: &'static str,
) -> Result<(Arc<View>, Arc<S>), ErrorData> {
    let view = View::take(context, extractor)?;
    let server = find(&view)?;
    Ok((view, server))
}

/// The arguments of such a tool, or a tool error that says why they are not valid. rmcp does the same for other tools:
/// the model reads the text and calls again.
pub(super) fn read_arguments<P: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<P, FlowError> {
    parse_json_object(arguments.unwrap_or_default()).map_err(|misfit| FlowError::failed(misfit.message))
}

/// The arguments of a durable tool: one struct.
///
/// There is nothing to implement: every type that derives `Deserialize` and `JsonSchema` has it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a durable handler",
    note = "a durable handler takes its `Durable` and one struct that derives `serde::Deserialize` and `schemars::JsonSchema`, or \
            rmcp's `Parameters` of one; it asks with the `Durable`, and does not take an `Ask` or a `Round`"
)]
pub trait Arguments: DeserializeOwned + JsonSchema + Send + 'static {}

impl<P: DeserializeOwned + JsonSchema + Send + 'static> Arguments for P {}

/// Questions that are asked together in one round: tuples of [`QuestionBuilder`].
pub trait Together: sealed::Sealed {
    /// The accepted values.
    type Values;

    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
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

            #[expect(private_interfaces, reason = "the trait is sealed")]
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
    /// Chooses a key that no other question of the round has.
    fn name_apart(&mut self, keys: &mut Vec<String>) {
        let wanted = self.inquiry.settle_key().to_string();
        let mut key = wanted.clone();
        for n in 2.. {
            if !keys.contains(&key) {
                break;
            }
            key = format!("{wanted}_{n}");
        }
        keys.push(key.clone());
        self.inquiry.key = Some(key.into());
    }

    async fn value_within(mut self, operation: &Operation<'_>) -> Result<T, FlowError> {
        let question = self.fingerprint()?;
        let answer = self.answer_within(operation, question).await?;
        answer.into_value(self.refused, &self.inquiry.message)
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, FlowError> {
        let key = self.inquiry.settle_key().clone();
        self.inquiry.fingerprint(&self.ask.frame.core.limits, &|| key.to_string())
    }

    /// The recorded answer, if it is the next entry of the journal. Otherwise begins an operation for this question.
    pub(super) fn recall<'a>(
        &mut self,
        journal: &'a Journal,
    ) -> Result<ControlFlow<Answer<T>, (Operation<'a>, Fingerprint)>, FlowError> {
        let question = self.fingerprint();
        if let Ok(question) = question
            && let Some(answer) = journal.recall(self.inquiry.settled_key(), question)
        {
            return self.recalled(answer).map(ControlFlow::Break);
        }
        let operation = journal.begin()?;
        Ok(ControlFlow::Continue((operation, question?)))
    }

    /// Asks as a durable handler does: returns an answer from the journal, records an answer that has just arrived, or
    /// asks the open question.
    pub(super) async fn answer_within(
        &mut self,
        operation: &Operation<'_>,
        digest: Fingerprint,
    ) -> Result<Answer<T>, FlowError> {
        let (key, message) = (self.inquiry.settle_key().to_string(), self.inquiry.message.clone());
        let kind = self.inquiry.subject.kind();
        let cannot = || FlowError::MissingCapability { required: Box::new(required(kind, false)) };
        let late = || FlowError::NotInTime { question: message.to_string() };
        let wanted = Entry::Answer { key, question: digest, answer: Settled::Declined };
        let mut misfits = 0;
        let mut words = message.to_string();
        loop {
            let problem = match operation.recorded_question(&wanted, &message)?.as_deref() {
                Some(Entry::Misfit { problem, .. }) => problem.clone(),
                Some(Entry::Unasked { .. }) => return self.instead(cannot()).map(Answer::Accepted),
                Some(Entry::Late { .. }) => return self.instead(late()).map(Answer::Accepted),
                Some(Entry::Answer { answer, .. }) => return self.recalled(answer),
                _ => match self.receive(operation, &wanted, digest, words).await? {
                    ControlFlow::Break(answer) => return Ok(answer),
                    ControlFlow::Continue(problem) => problem,
                },
            };
            let problem = InvalidAnswer::whole(problem);
            if misfits == self.inquiry.reasks(&self.ask.frame.core.limits) {
                return Err(FlowError::Invalid { question: message.to_string(), problem });
            }
            misfits += 1;
            words = problem.noted(&message);
        }
    }

    /// The outcome of a question that is not in the journal yet, which is recorded: the answer, or what is wrong with
    /// it.
    async fn receive(
        &mut self,
        operation: &Operation<'_>,
        wanted: &Entry,
        digest: Fingerprint,
        words: String,
    ) -> Result<ControlFlow<Answer<T>, String>, FlowError> {
        let message = self.inquiry.message.clone();
        let key = || wanted.key().unwrap_or_default().to_owned();
        let record = |entry| operation.record_question(entry, &message);
        let settled = match self.arrived(operation, wanted, digest, words).await {
            Err(error) if error.cannot_ask() => {
                record(Entry::Unasked { key: key(), question: digest })?;
                return self.instead(error).map(Answer::Accepted).map(ControlFlow::Break);
            }
            Err(error @ FlowError::NotInTime { .. }) => {
                record(Entry::Late { key: key(), question: digest })?;
                return self.instead(error).map(Answer::Accepted).map(ControlFlow::Break);
            }
            Ok(Received::Late) => {
                record(Entry::Late { key: key(), question: digest })?;
                let late = FlowError::NotInTime { question: message.to_string() };
                return self.instead(late).map(Answer::Accepted).map(ControlFlow::Break);
            }
            Err(error) => return Err(error),
            Ok(Received::Declined) => Ok((Settled::Declined, Answer::Declined)),
            Ok(Received::Cancelled) => Ok((Settled::Cancelled, Answer::Cancelled)),
            Ok(Received::Malformed(problem)) => Err(problem),
            Ok(Received::Accepted(content)) => self
                .read(&content)
                .map(|value| (Settled::accepted(self.inquiry.subject.kind(), &content), Answer::Accepted(value))),
        };
        match settled {
            Ok((answer, value)) => {
                record(Entry::Answer { key: key(), question: digest, answer })?;
                Ok(ControlFlow::Break(value))
            }
            Err(problem) => {
                let problem = problem.to_string();
                record(Entry::Misfit { key: key(), question: digest, problem: problem.clone() })?;
                Ok(ControlFlow::Continue(problem))
            }
        }
    }

    /// The answer that came with this leg. Without one, the question is asked with these words.
    async fn arrived(
        &mut self,
        operation: &Operation<'_>,
        wanted: &Entry,
        digest: Fingerprint,
        words: String,
    ) -> Result<Received, FlowError> {
        let reached = operation.reach(self.inquiry.settled_key(), digest);
        if let Some(until) = reached.as_ref().and_then(|reached| reached.until) {
            self.options.get_or_insert_default().within = Some(Within::Until(until));
        }
        match reached {
            Some(Reached { is_late: true, .. }) => {
                return Err(FlowError::NotInTime { question: self.inquiry.message.to_string() });
            }
            Some(Reached { answer: Some(received), .. }) => return Ok(received),
            _ => operation.reserve(wanted)?,
        }
        let question = self.open_question(digest, words)?;
        self.ask.frame.pose(question, false)?.await
    }

    fn open_question(&mut self, digest: Fingerprint, words: String) -> Result<OpenQuestion, FlowError> {
        let Self { ask: Ask { frame }, inquiry, options, .. } = self;
        let key = inquiry.settle_key().clone();
        // The same on every leg, and different for a different page.
        let name = || format!("{}-{key}-{:08x}", frame.flow, u128::from_be_bytes(digest) >> 96);
        Ok(OpenQuestion {
            kind: inquiry.subject.kind(),
            request: Some(Box::new(inquiry.request(words, &frame.core.limits, &name)?)),
            form: inquiry.subject.source(),
            digest: Some(digest),
            message: inquiry.message.clone(),
            until: begun(options, &frame.core),
            key: key.clone(),
        })
    }

    /// An answer that an earlier leg recorded. It was checked then, and the author's rule does not run again.
    fn recalled(&self, answer: &Settled) -> Result<Answer<T>, FlowError> {
        match answer {
            Settled::Declined => Ok(Answer::Declined),
            Settled::Cancelled => Ok(Answer::Cancelled),
            // A journal has an entry of its own for it.
            Settled::Late => Err(FlowError::NotInTime { question: self.inquiry.message.to_string() }),
            Settled::Accepted { json, .. } => {
                let unreadable = |problem: InvalidAnswer| FlowError::StateUnreadable(serde::de::Error::custom(problem));
                let read = (self.reading.text)(&self.inquiry.subject, self.inquiry.settled_key(), json);
                read.map(Answer::Accepted).map_err(unreadable)
            }
        }
    }
}
