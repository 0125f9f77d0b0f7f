//! Declared questions: the question is an argument, and is asked before the handler runs.

use rmcp::{
    ErrorData, RoleServer,
    handler::server::{common::FromContextPart, prompt::PromptContext, tool::ToolCallContext, wrapper::Parameters},
    model::InputRequests,
    service::RequestContext,
};
use serde::de::DeserializeOwned;

use super::{
    ask::Answer,
    posed::{DeclaredQuestion, SettledQuestion},
};
use crate::{
    server::{
        engine::{frame::Declared, view::View},
        form::FormType,
        policy::{error::FlowError, principal::Principal},
    },
    shared::order,
};

#[doc = include_str!("docs/asked.md")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "handlers destructure it in their arguments, like rmcp's `Parameters`")]
pub struct Asked<T>(pub T);

/// A question that a server `S` can ask before a handler runs. See [`Asked`] for an example of each kind.
///
/// It is implemented for every type with a fixed [message](FixedQuestion), for an [`Answer`] of any question, which
/// returns a refusal as a value, and for tuples of two to four questions, which are asked in one round.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a question that this server can ask",
    note = "write `impl rounds::asked::FixedQuestion for {Self}` with its message, or `impl rounds::asked::Question<YourServer> for {Self}` if the \
            question depends on the call"
)]
pub trait Question<S>: Sized {
    /// What the question depends on: `()` for nothing; [`Parameters`] for the arguments of the call; [`Asked`] for the
    /// answer to another question, which is asked in an earlier round; `Option<Principal>` for the caller, or
    /// [`Principal`], without which the call fails with [`FlowError::NoPrincipal`]; or a tuple of these.
    type On: QuestionInput<S>;

    /// The question, or the value itself if there is nothing to ask.
    ///
    /// It is called on every leg, so it must have no effects. An answer counts only for the exact question that was
    /// shown: if this returns another question on a later leg, that question is asked.
    ///
    /// # Errors
    ///
    /// An error that ends the call. [`FlowError::failed`] becomes a tool error with that text.
    fn ask(server: &S, on: Self::On) -> Result<DeclaredQuestion<Self>, FlowError>;
}

/// A question whose message is always the same.
pub trait FixedQuestion: FormType {
    /// The message of the question.
    const MESSAGE: &'static str;
}

impl<S, T: FixedQuestion> Question<S> for T {
    type On = ();

    fn ask(_server: &S, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(T::MESSAGE))
    }
}

impl<S, T: Question<S> + 'static> Question<S> for Answer<T> {
    type On = T::On;

    fn ask(server: &S, on: T::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        T::ask(server, on).map(DeclaredQuestion::answered)
    }
}

/// An input that a question may depend on.
pub trait QuestionInput<S>: sealed::Sealed + Sized {
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError>;
}

mod sealed {
    pub trait Sealed {}
}

/// Collects the declared questions of one leg.
pub(crate) struct QuestionCollector<'a, S> {
    server: &'a S,
    view: &'a View,
    requests: InputRequests,
    /// The keys of the requests, in the order of asking.
    keys: Vec<String>,
}

impl<S> QuestionCollector<'_, S> {
    /// The value of a question, or none if the question, or one that it depends on, has to be asked first.
    fn value<T: Question<S>>(&mut self) -> Result<Option<T>, FlowError> {
        let Some(on) = T::On::find(self)? else { return Ok(None) };
        match T::ask(self.server, on)?.settle(self.view, true)? {
            SettledQuestion::Value(value) => Ok(Some(value)),
            SettledQuestion::Asks(key, request) => match self.requests.get(&key) {
                // Two questions may depend on the same question.
                Some(asked) if *asked != *request => Err(FlowError::DuplicateKey { key }),
                Some(_) => Ok(None),
                None => {
                    self.keys.push(key.clone());
                    self.requests.insert(key, *request);
                    Ok(None)
                }
            },
        }
    }
}

impl<T> Asked<T> {
    /// The answer to a declared question, for handlers that are not written with rmcp's macros, such as those of
    /// resources. Take it before anything else, and return its error with `?`: if the question has to be asked first,
    /// that error asks it.
    ///
    /// # Errors
    ///
    /// If there is no answer yet. Return the error unchanged.
    pub fn from_context<S>(server: &S, context: &RequestContext<RoleServer>) -> Result<Self, ErrorData>
    where
        T: Question<S>,
    {
        let view = View::take(context, "Asked")?;
        let mut collector = QuestionCollector { server, view: &view, requests: InputRequests::new(), keys: Vec::new() };
        let declared = match collector.value() {
            Ok(Some(value)) => return Ok(Self(value)),
            Ok(None) => {
                let order = order::of_keys(collector.keys.iter().map(String::as_str));
                Declared::Asks(collector.requests, order)
            }
            Err(error) => Declared::Failed(error),
        };
        view.frame.declare(declared);
        Err(ErrorData::internal_error(
            "a declared question has no answer yet: return this error unchanged from the handler",
            None,
        ))
    }
}

impl<S, T: Question<S>> FromContextPart<ToolCallContext<'_, S>> for Asked<T> {
    fn from_context_part(context: &mut ToolCallContext<'_, S>) -> Result<Self, ErrorData> {
        Self::from_context(context.service, &context.request_context)
    }
}

impl<S, T: Question<S>> FromContextPart<PromptContext<'_, S>> for Asked<T> {
    fn from_context_part(context: &mut PromptContext<'_, S>) -> Result<Self, ErrorData> {
        Self::from_context(context.server, &context.context)
    }
}

impl sealed::Sealed for () {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S> QuestionInput<S> for () {
    fn find(_desk: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
        Ok(Some(()))
    }
}

impl<P> sealed::Sealed for Parameters<P> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S, P: DeserializeOwned> QuestionInput<S> for Parameters<P> {
    fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
        let arguments = collector.view.frame.arguments.as_deref().unwrap_or("{}");
        let misfit = |error| ErrorData::invalid_params(format!("the arguments are not valid: {error}"), None);
        Ok(Some(Self(serde_json::from_str(arguments).map_err(misfit)?)))
    }
}

impl sealed::Sealed for Option<Principal> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S> QuestionInput<S> for Option<Principal> {
    fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
        Ok(Some(collector.view.frame.caller().cloned()))
    }
}

impl sealed::Sealed for Principal {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S> QuestionInput<S> for Principal {
    fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
        collector.view.frame.caller().cloned().map(Some).ok_or(FlowError::NoPrincipal)
    }
}

impl<T> sealed::Sealed for Asked<T> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S, T: Question<S>> QuestionInput<S> for Asked<T> {
    fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
        Ok(collector.value()?.map(Self))
    }
}

/// Implements both traits for tuples: an input of several parts needs all of them, and several questions are asked in
/// one round.
macro_rules! together {
    ($($name:ident: $T:ident),+) => {
        impl<$($T),+> sealed::Sealed for ($($T,)+) {}

        #[expect(private_interfaces, reason = "the trait is sealed")]
        impl<S, $($T: QuestionInput<S>),+> QuestionInput<S> for ($($T,)+) {
            fn find(collector: &mut QuestionCollector<'_, S>) -> Result<Option<Self>, FlowError> {
                $(let $name = $T::find(collector)?;)+
                Ok((|| Some(($($name?,)+)))())
            }
        }

        impl<S, $($T: Question<S>),+> Question<S> for ($($T,)+) {
            type On = ($(Asked<$T>,)+);

            fn ask(_server: &S, ($(Asked($name),)+): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
                Ok(DeclaredQuestion::known(($($name,)+)))
            }
        }
    };
}

together!(a: A, b: B);
together!(a: A, b: B, c: C);
together!(a: A, b: B, c: C, d: D);
