//! Steps: named questions in sequence, and a finish that runs only after all of them have their values.

use std::{collections::BTreeSet, marker::PhantomData, sync::Arc};

use rmcp::{
    ErrorData,
    handler::server::tool::{IntoCallToolResult, ToolCallContext, ToolRoute, schema_for_input},
    model::{CallToolResponse, InputRequests, InputRequiredResult, JsonObject, Tool},
    schemars::JsonSchema,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    durable::{prepare, read_arguments, with_input},
    inquiry::{Subject, read_result},
    posed::{DeclaredQuestion, SettledQuestion},
};
use crate::{
    server::{
        engine::{answer::Received, effects::ClaimKeeper, view::View},
        form::FormType,
        ledger::kit::SelfClaimed,
        policy::{error::FlowError, gate::Era, principal::Principal},
        seal::{FlowId, envelope::QuestionKind},
    },
    shared::{check::InvalidAnswer, clock::BoxFuture},
};

#[doc = include_str!("docs/steps.md")]
#[must_use = "steps become a tool with `finish` and `build`"]
pub struct Steps<S, P, C = ()> {
    tool: Tool,
    names: Vec<String>,
    run: Run<S, P, C>,
    refused: Option<RefusalRule<S, P>>,
}

/// Runs the steps and returns their values.
type Run<S, P, C> = Arc<dyn Fn(Step<S, P>) -> BoxFuture<'static, Result<C, Halt>> + Send + Sync>;

/// How a call ends when the user refuses a step.
type RefusalRule<S, P> =
    Arc<dyn Fn(Step<S, P>, String, Refused) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync>;

/// How a user refused a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "rules match on both")]
pub enum Refused {
    /// The user declined.
    Declined,
    /// The user dismissed the question without a choice.
    Cancelled,
}

/// Why this leg does not reach the finish.
enum Halt {
    Asks(InputRequiredResult),
    Refused { step: String, question: String, how: Refused },
    Failed(FlowError),
}

impl From<FlowError> for Halt {
    fn from(error: FlowError) -> Self {
        Self::Failed(error)
    }
}

impl<S, P> Steps<S, P>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    /// Starts a tool with this name and no step yet. The arguments of the call are a `P`.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::of(Tool::new(name.into(), description.into(), JsonObject::new()))
    }

    /// Starts this tool, with the title, annotations, icons and output schema that it has, and no step yet. Its input
    /// schema becomes that of `P`.
    pub fn of(tool: Tool) -> Self {
        let run: Run<S, P, ()> = Arc::new(|_| Box::pin(std::future::ready(Ok(()))));
        Self { tool, names: vec![], run, refused: None }
    }
}

impl<S, P, C> Steps<S, P, C>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    /// Adds a step with a value of type `T`. The step gets the values of the steps before it, and returns a question or
    /// the value itself.
    ///
    /// A step may look things up and must have no effects. It runs when the flow first reaches it, and again after
    /// every answer that is not valid, is missing or is a refusal. Once its value is known, it does not run again.
    pub fn step<T, F, Fut>(self, name: impl Into<String>, step: F) -> Steps<S, P, C::Output>
    where
        T: StepValue,
        C: Append<T>,
        F: Fn(Step<S, P>, C) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<DeclaredQuestion<T>, FlowError>> + Send + 'static,
    {
        let step = Arc::new(step);
        self.then(name.into(), move |at, name, so_far: C| {
            let step = step.clone();
            async move {
                let pose = || async { step(at.clone(), so_far.clone()).await.map(Some) };
                let value = at.value::<T, _>(&name, pose).await?;
                // Unreachable unless the step was a `maybe` before a deploy: a step that always asks is never skipped.
                let value = value.ok_or(FlowError::failed(
                    "an earlier version of this tool skipped the step: start the call again",
                ))?;
                Ok(so_far.append(value))
            }
        })
    }

    /// Adds a step that may be skipped because of earlier values. Its value is an `Option<T>`, and `None` if it returns
    /// no question.
    pub fn maybe<T, F, Fut>(self, name: impl Into<String>, step: F) -> Steps<S, P, C::Output>
    where
        T: StepValue,
        C: Append<Option<T>>,
        F: Fn(Step<S, P>, C) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<DeclaredQuestion<T>>, FlowError>> + Send + 'static,
    {
        let step = Arc::new(step);
        self.then(name.into(), move |at, name, so_far: C| {
            let step = step.clone();
            async move {
                let pose = || step(at.clone(), so_far.clone());
                let value = at.value::<T, _>(&name, pose).await?;
                Ok(so_far.append(value))
            }
        })
    }

    fn then<D, Fut>(
        mut self,
        name: String,
        next: impl Fn(Step<S, P>, Arc<str>, C) -> Fut + Send + Sync + 'static,
    ) -> Steps<S, P, D>
    where
        Fut: Future<Output = Result<D, Halt>> + Send + 'static,
    {
        let (before, next) = (self.run, Arc::new(next));
        let key: Arc<str> = name.as_str().into();
        self.names.push(name);
        let run: Run<S, P, D> = Arc::new(move |at| {
            let (before, next, key) = (before.clone(), next.clone(), key.clone());
            Box::pin(async move {
                let so_far = before(at.clone()).await?;
                next(at, key, so_far).await
            })
        });
        Steps { tool: self.tool, names: self.names, run, refused: self.refused }
    }

    /// Sets the rule that ends the call when the user declines or dismisses a step. The rule gets the step's name. It
    /// runs in the last leg, as the finish does, and may have effects too. Without a rule, the call ends with a tool
    /// error.
    pub fn refused<R, F, Fut>(mut self, rule: F) -> Self
    where
        R: IntoCallToolResult + Send + 'static,
        F: Fn(Step<S, P>, String, Refused) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
    {
        self.refused = Some(Arc::new(move |at, step, how| {
            let ended = rule(at, step, how);
            Box::pin(async move { ended.await.into_call_tool_result() })
        }));
        self
    }

    /// Sets the finish, which runs after all values are known and returns the result of the call.
    ///
    /// It runs in the last leg only, so effects belong here. A leg that fails on the server's side runs again, so wrap
    /// what must not happen twice in a [`once`](Step::once).
    pub fn finish<R, F, Fut>(self, finish: F) -> Finished<S>
    where
        C: Collected,
        R: IntoCallToolResult + Send + 'static,
        F: Fn(Step<S, P>, C) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
    {
        let Self { tool, names, run, refused } = self;
        let finish = Arc::new(finish);
        let call = move |context: ToolCallContext<'_, S>| {
            let (prepared, arguments) =
                (prepare(&context.request_context, "Steps"), read_arguments::<P>(context.arguments));
            let (run, finish, refused) = (run.clone(), finish.clone(), refused.clone());
            Box::pin(async move {
                let (view, server) = prepared?;
                let at = match arguments {
                    Ok(arguments) => Step { view, server, arguments: Arc::new(arguments) },
                    Err(misfit) => return misfit.into_call_tool_result(),
                };
                match run(at.clone()).await {
                    Ok(collected) => finish(at, collected).await.into_call_tool_result(),
                    Err(halt) => halt.into_response(at, refused.as_ref()).await,
                }
            }) as BoxFuture<'static, _>
        };
        let schema = schema_for_input::<P>();
        Finished { tool, names, schema, call: Box::new(call) }
    }
}

impl Halt {
    async fn into_response<S, P>(
        self,
        at: Step<S, P>,
        rule: Option<&RefusalRule<S, P>>,
    ) -> Result<CallToolResponse, ErrorData> {
        match (self, rule) {
            (Self::Asks(asks), _) => Ok(asks.into()),
            (Self::Failed(error), _) => error.into_call_tool_result(),
            (Self::Refused { step, how, .. }, Some(rule)) => rule(at, step, how).await,
            (Self::Refused { question, how: Refused::Declined, .. }, None) => {
                FlowError::Declined { question }.into_call_tool_result()
            }
            (Self::Refused { question, how: Refused::Cancelled, .. }, None) => {
                FlowError::Cancelled { question }.into_call_tool_result()
            }
        }
    }
}

/// Steps with a finish, ready to become a tool.
#[must_use = "it becomes a tool with `build`"]
pub struct Finished<S> {
    tool: Tool,
    names: Vec<String>,
    schema: Result<Arc<JsonObject>, String>,
    call: Box<dyn StepsHandler<S>>,
}

trait StepsHandler<S>:
    Fn(ToolCallContext<'_, S>) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync
{
}

impl<S, F> StepsHandler<S> for F where
    F: Fn(ToolCallContext<'_, S>) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync
{
}

impl<S: Send + Sync + 'static> Finished<S> {
    /// Builds the tool, as an ordinary route of rmcp.
    ///
    /// # Errors
    ///
    /// [`StepsError`] if two steps have the same name, or if the arguments are not a struct.
    pub fn build(self) -> Result<ToolRoute<S>, StepsError> {
        let mut seen = BTreeSet::new();
        if let Some(name) = self.names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(StepsError::DuplicateStep { tool: self.tool.name.into_owned(), step: name.clone() });
        }
        let schema = self.schema.map_err(|why| StepsError::Arguments { tool: self.tool.name.to_string(), why })?;
        let call = self.call;
        Ok(ToolRoute::new_dyn(with_input(self.tool, schema), move |context| call(context)))
    }
}

/// Why steps cannot become a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    /// Two steps have the same name.
    #[error("two steps of `{tool}` are named `{step}`: give each its own name")]
    DuplicateStep {
        /// The name of the tool.
        tool: String,
        /// The name of the steps.
        step: String,
    },
    /// The type of the arguments is not a struct.
    #[error("the arguments of `{tool}` must be a struct: {why}")]
    Arguments {
        /// The name of the tool.
        tool: String,
        /// rmcp's description of the problem.
        why: String,
    },
}

/// The context of a step or of the finish: the server, the arguments, and the flow.
pub struct Step<S, P> {
    view: Arc<View>,
    server: Arc<S>,
    arguments: Arc<P>,
}

impl<S, P> Step<S, P> {
    /// The server that was wrapped.
    pub fn server(&self) -> &S {
        &self.server
    }

    /// The arguments of the call.
    pub fn arguments(&self) -> &P {
        &self.arguments
    }

    /// The protocol era of the client. A client of the legacy era cannot be asked, unless the server is configured to
    /// [push](crate::Legacy::Push).
    pub fn era(&self) -> Era {
        self.view.peer.era
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

    /// Runs an effect once in this flow, as [`Round::once`](crate::Round::once) does.
    ///
    /// # Errors
    ///
    /// The errors of [`Round::once`](crate::Round::once).
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> T,
    ) -> Result<T, FlowError> {
        self.view.once(name, ClaimKeeper::Ledger, async move || Ok::<_, FlowError>(effect().await)).await
    }

    /// Runs an effect that may fail, as [`Round::try_once`](crate::Round::try_once) does. A failure in a step is
    /// returned again when that step runs again. Once the step has its value, the next call with the same name, in a
    /// later step or in the finish, is another attempt.
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

    /// The value of a step: the recorded one, the answer, or the one that the step returns; otherwise the step asks.
    async fn value<T: StepValue, Fut>(&self, name: &str, pose: impl Fn() -> Fut) -> Result<Option<T>, Halt>
    where
        Fut: Future<Output = Result<Option<DeclaredQuestion<T>>, FlowError>>,
    {
        let (known, answered, is_typed) = {
            let answers = self.view.frame.answers();
            let is_typed = answers.posed(name).is_some_and(|posed| !posed.needs_question());
            (answers.known(name).map(str::to_owned), answers.to_posed(name), is_typed)
        };
        if let Some(json) = known {
            self.view.frame.onces.pass_step(name);
            // The record is a list of at most one value, because `null` alone could be a value or a skipped step.
            let mut kept: Vec<T> = serde_json::from_str(&json).map_err(FlowError::StateUnreadable)?;
            return Ok(kept.pop());
        }
        if let Some((kind, Received::Accepted(content))) = &answered
            && is_typed
            && let Ok(value) = read::<T>(name, *kind, content)
        {
            self.view.frame.onces.pass_step(name);
            return Ok(Some(value));
        }
        let refused = match answered {
            Some((_, Received::Declined)) => Some(Refused::Declined),
            Some((_, Received::Cancelled)) => Some(Refused::Cancelled),
            _ => None,
        };
        if let Some(how) = refused {
            // The step runs only to learn the question's message. A refusal ends the call, even if the step now fails
            // or would ask something else.
            let posed = self.in_step(name, pose()).await.ok().flatten();
            let question = posed.as_ref().and_then(DeclaredQuestion::message).unwrap_or(name).to_owned();
            return Err(Halt::Refused { step: name.to_owned(), question, how });
        }
        let posed = self.in_step(name, pose()).await?.map(|posed| posed.key(name));
        let value = match posed.map(|posed| posed.settle(&self.view, false)).transpose()? {
            Some(SettledQuestion::Asks(key, request)) => {
                if let Some(error) = self.view.frame.onces.cannot_ask() {
                    return Err(Halt::Failed(error));
                }
                let requests = InputRequests::from([(key, *request)]);
                return Err(Halt::Asks(InputRequiredResult::from_input_requests(requests)));
            }
            Some(SettledQuestion::Value(value)) => Some(value),
            None => None,
        };
        let json = serde_json::to_string(value.as_slice()).map_err(FlowError::State)?;
        self.view.frame.answers().keep(name, json);
        Ok(value)
    }

    /// Runs a step. Its failed effects are recorded for the step: once the step has its value, later calls do not
    /// return them.
    async fn in_step<T>(&self, name: &str, step: impl Future<Output = T>) -> T {
        let onces = &self.view.frame.onces;
        onces.enter_step(Some(name));
        let came_to = step.await;
        onces.enter_step(None);
        came_to
    }
}

/// Reads an accepted answer as the type that was asked for.
fn read<T: FormType>(key: &str, kind: QuestionKind, content: &Value) -> Result<T, InvalidAnswer> {
    match kind {
        QuestionKind::Form => Subject::form::<T>().read(key, content),
        _ => read_result(content),
    }
}

impl<S, P> Clone for Step<S, P> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), server: self.server.clone(), arguments: self.arguments.clone() }
    }
}

impl<S, P> std::fmt::Debug for Step<S, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step")
            .field("flow", &self.view.round.flow)
            .field("server", &PhantomData::<S>)
            .finish_non_exhaustive()
    }
}

impl<S, P, C> std::fmt::Debug for Steps<S, P, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").field("name", &self.tool.name).field("steps", &self.names).finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for Finished<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("name", &self.tool.name).field("steps", &self.names).finish_non_exhaustive()
    }
}

/// A value that a step can have: a form can ask for it, and the state can carry it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a step",
    note = "it needs `Clone`, `serde::Serialize`, `serde::Deserialize` and `schemars::JsonSchema`, and may not borrow"
)]
pub trait StepValue: FormType + Serialize + Clone + Sync {}

impl<T: FormType + Serialize + Clone + Sync> StepValue for T {}

/// A tuple that can be extended by one value. Implemented for up to seven values, so a tool can have up to eight steps.
pub trait Append<T> {
    /// The longer tuple.
    type Output: Clone + Send + Sync + 'static;

    /// Appends the value.
    fn append(self, value: T) -> Self::Output;
}

/// The values of one step or more.
#[diagnostic::on_unimplemented(
    message = "there is no step to finish",
    note = "add one with `.step(\"name\", ..)` before `.finish(..)`; a tool without questions is an ordinary `#[tool]` method"
)]
pub trait Collected {}

macro_rules! tuples {
    ($($value:ident: $T:ident)*) => {
        impl<$($T,)* Z> Append<Z> for ($($T,)*)
        where
            ($($T,)* Z,): Clone + Send + Sync + 'static,
        {
            type Output = ($($T,)* Z,);

            fn append(self, last: Z) -> Self::Output {
                let ($($value,)*) = self;
                ($($value,)* last,)
            }
        }

        impl<$($T,)* Z> Collected for ($($T,)* Z,) {}
    };
}

tuples!();
tuples!(a: A);
tuples!(a: A b: B);
tuples!(a: A b: B c: C);
tuples!(a: A b: B c: C d: D);
tuples!(a: A b: B c: C d: D e: E);
tuples!(a: A b: B c: C d: D e: E f: F);
tuples!(a: A b: B c: C d: D e: E f: F g: G);
