//! Steps: named questions one after the other, and a finish that nothing reaches before all are in.

use std::{collections::BTreeSet, marker::PhantomData, sync::Arc};

use rmcp::{
    ErrorData,
    handler::server::tool::{IntoCallToolResult, ToolCallContext, ToolRoute, schema_for_input},
    model::{CallToolResponse, InputRequests, InputRequiredResult, Tool},
    schemars::JsonSchema,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    durable::{prepare, read_arguments},
    posed::{DeclaredQuestion, Settled, read},
};
use crate::{
    server::{
        engine::{answer::Received, view::View},
        form::FormType,
        policy::{error::FlowError, gate::Era},
        seal::{Digest, FlowId},
    },
    shared::clock::BoxFuture,
};

#[doc = include_str!("docs/steps.md")]
#[must_use = "steps become a tool with `finish` and `build`"]
pub struct Steps<S, P, C = ()> {
    name: String,
    description: String,
    names: Vec<String>,
    run: Run<S, P, C>,
    refused: Option<Rule<S, P>>,
}

/// Goes through the steps, and gives what they came to.
type Run<S, P, C> = Arc<dyn Fn(Step<S, P>) -> BoxFuture<'static, Result<C, Halt>> + Send + Sync>;

/// How a call ends when a step is refused.
type Rule<S, P> =
    Arc<dyn Fn(Step<S, P>, String, Refused) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync>;

/// How a person refused a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "rules match on both")]
pub enum Refused {
    /// They said no.
    Declined,
    /// They dismissed the question without a choice.
    Cancelled,
}

/// Why the finish is not reached in this leg.
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
    /// A tool of this name, with no step yet. The arguments of the call are a `P`.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let run: Run<S, P, ()> = Arc::new(|_| Box::pin(std::future::ready(Ok(()))));
        Self { name: name.into(), description: description.into(), names: vec![], run, refused: None }
    }
}

impl<S, P, C> Steps<S, P, C>
where
    S: Send + Sync + 'static,
    P: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    C: Clone + Send + Sync + 'static,
{
    /// Adds a step that comes to a `T`. It is given what the steps before it came to, and asks, or gives the value at once.
    ///
    /// It may look things up, and is to have no effects: it runs when the flow first comes to it, and once more for every answer
    /// that does not fit, is missing or is a refusal. With its value in, it does not run again.
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
                // One that always asks is never skipped; only a name that was a `maybe` before a deploy can come to this.
                let value =
                    value.ok_or(FlowError::failed("this step was skipped by an earlier version of the tool"))?;
                Ok(so_far.append(value))
            }
        })
    }

    /// Adds a step that may be skipped because of what came before: it comes to an `Option<T>`, and to `None` when it gives no
    /// question.
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
        Steps { name: self.name, description: self.description, names: self.names, run, refused: self.refused }
    }

    /// Says how the call ends when a person declines or dismisses a step: the rule is given the step's name. It runs in the last leg,
    /// as the finish does, and may have effects as that. Without one the call ends with a tool error in words.
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

    /// What the call comes to when all values are in. It runs in the last leg only, so this is the place for effects; a leg that
    /// fails on the server's side is run again, so wrap what must not happen twice in a [`once`](Step::once).
    pub fn finish<R, F, Fut>(self, finish: F) -> Finished<S>
    where
        C: Collected,
        R: IntoCallToolResult + Send + 'static,
        F: Fn(Step<S, P>, C) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, FlowError>> + Send + 'static,
    {
        let Self { name, description, names, run, refused } = self;
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
        Finished { name, description, names, schema, call: Box::new(call) }
    }
}

impl Halt {
    async fn into_response<S, P>(
        self,
        at: Step<S, P>,
        rule: Option<&Rule<S, P>>,
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
    name: String,
    description: String,
    names: Vec<String>,
    schema: Result<Arc<rmcp::model::JsonObject>, String>,
    call: Box<dyn Call<S>>,
}

trait Call<S>: Fn(ToolCallContext<'_, S>) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync {}

impl<S, F> Call<S> for F where
    F: Fn(ToolCallContext<'_, S>) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> + Send + Sync
{
}

impl<S: Send + Sync + 'static> Finished<S> {
    /// The tool, as an ordinary route of rmcp.
    ///
    /// # Errors
    ///
    /// [`StepsError`] when two steps have the same name, or the arguments are no struct.
    pub fn build(self) -> Result<ToolRoute<S>, StepsError> {
        let mut seen = BTreeSet::new();
        if let Some(name) = self.names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(StepsError::DuplicateStep { tool: self.name, step: name.clone() });
        }
        let schema = self.schema.map_err(|why| StepsError::Arguments { tool: self.name.clone(), why })?;
        let call = self.call;
        Ok(ToolRoute::new_dyn(Tool::new(self.name, self.description, schema), move |context| call(context)))
    }
}

/// Why steps make no tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    /// Two steps have the same name.
    #[error("two steps of `{tool}` are named `{step}`: give each its own name")]
    DuplicateStep {
        /// The tool.
        tool: String,
        /// The name.
        step: String,
    },
    /// The arguments' type is not a struct.
    #[error("the arguments of `{tool}`: {why}")]
    Arguments {
        /// The tool.
        tool: String,
        /// What rmcp says of them.
        why: String,
    },
}

/// What a step sees, and the finish: the server, the arguments, and the flow.
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

    /// Which protocol the client speaks. One of the legacy era cannot be asked, unless the server was told to
    /// [push](crate::Legacy::Push).
    pub fn era(&self) -> Era {
        self.view.peer.era
    }

    /// The name of the flow, the same on all of its legs.
    pub fn flow(&self) -> FlowId {
        self.view.round.flow
    }

    /// Runs an effect once in this flow, as [`Round::once`](crate::Round::once) does.
    ///
    /// # Errors
    ///
    /// As [`Round::once`](crate::Round::once).
    pub async fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> T,
    ) -> Result<T, FlowError> {
        self.view.once(name, async move || Ok::<_, FlowError>(effect().await)).await
    }

    /// As [`once`](Self::once), for an effect that may fail, as [`Round::try_once`](crate::Round::try_once) does. What failed in a step
    /// fails in the same way when that step runs again. Once the step has its value, the next call under the same name, in a
    /// later step or in the finish, is another attempt.
    ///
    /// # Errors
    ///
    /// The effect's own, and those of [`once`](Self::once).
    pub async fn try_once<T: Serialize + DeserializeOwned, E: Into<FlowError>>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FlowError> {
        self.view.once(name, effect).await
    }

    /// The idempotency key of an effect: the same whenever it is tried in this flow, and in no other.
    pub fn once_key(&self, name: &str) -> String {
        format!("{:?}", Digest::of_effect(self.view.round.flow, name))
    }

    /// What a step comes to: what it came to before, what was answered, or what it gives at once; otherwise it asks.
    async fn value<T: StepValue, Fut>(&self, name: &str, pose: impl Fn() -> Fut) -> Result<Option<T>, Halt>
    where
        Fut: Future<Output = Result<Option<DeclaredQuestion<T>>, FlowError>>,
    {
        let (known, answered) = {
            let answers = self.view.frame.answers();
            (answers.known(name).map(str::to_owned), answers.to_posed(name))
        };
        if let Some(json) = known {
            self.view.frame.onces.pass_step(name);
            // A list of one or none, so that a value whose JSON is `null` is not taken for a step that was skipped.
            let mut kept: Vec<T> = serde_json::from_str(&json).map_err(FlowError::StateUnreadable)?;
            return Ok(kept.pop());
        }
        if let Some((kind, Received::Accepted(content))) = &answered
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
            // What was asked is only to be named: a no is a no, also where the step comes to something else by now, or fails.
            let posed = self.in_step(name, pose()).await.ok().flatten();
            let question = posed.as_ref().and_then(DeclaredQuestion::message).unwrap_or(name).to_owned();
            return Err(Halt::Refused { step: name.to_owned(), question, how });
        }
        let posed = self.in_step(name, pose()).await?.map(|posed| posed.key(name));
        let value = match posed.map(|posed| posed.settle(&self.view, false)).transpose()? {
            Some(Settled::Asks(key, request)) => {
                if let Some(error) = self.view.frame.onces.cannot_ask() {
                    return Err(Halt::Failed(error));
                }
                let requests = InputRequests::from([(key, *request)]);
                return Err(Halt::Asks(InputRequiredResult::from_input_requests(requests)));
            }
            Some(Settled::Value(value)) => Some(value),
            None => None,
        };
        let json = serde_json::to_string(value.as_slice()).map_err(FlowError::State)?;
        self.view.frame.answers().keep(name, json);
        Ok(value)
    }

    /// Runs a step. What fails in it is behind the flow as soon as the step has its value, and is not met by what comes after it.
    async fn in_step<T>(&self, name: &str, step: impl Future<Output = T>) -> T {
        let onces = &self.view.frame.onces;
        onces.enter_step(Some(name));
        let came_to = step.await;
        onces.enter_step(None);
        came_to
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
        f.debug_struct("Steps").field("name", &self.name).field("steps", &self.names).finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for Finished<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("name", &self.name).field("steps", &self.names).finish_non_exhaustive()
    }
}

/// What a step may come to: whatever a form can ask for and the state can carry.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be what a step comes to",
    note = "it needs `Clone`, `serde::Serialize`, `serde::Deserialize` and `schemars::JsonSchema`, and may not borrow"
)]
pub trait StepValue: FormType + Serialize + Clone + Sync {}

impl<T: FormType + Serialize + Clone + Sync> StepValue for T {}

/// A tuple that takes one more value at its end. There is one for up to seven values, so that there are up to eight steps.
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
