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
pub struct Asked<T: QuestionSet>(pub T);

/// A question that a server can ask before a handler runs. See [`Asked`] for an example of each kind.
///
/// It is implemented for every type with a fixed [message](FixedQuestion), and for an [`Answer`] of any question, which
/// returns a refusal as a value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a question",
    label = "this type has no question yet",
    note = "write `impl rounds::asked::FixedQuestion for {Self}` with its message, or `impl rounds::asked::Question for {Self}` if the question \
            depends on the call"
)]
pub trait Question: Sized {
    /// The server that can ask it, or `dyn` [`AnyServer`] if it does not depend on the server.
    type Server: ?Sized;

    /// What the question depends on: `()` for nothing; [`Parameters`] for the arguments of the call; [`Asked`] for the
    /// answer to another question, which is asked in an earlier round; `Option<Principal>` for the caller, or
    /// [`Principal`], without which the call fails with [`FlowError::NoPrincipal`]; or a tuple of these.
    type On: QuestionInput<Self::Server>;

    /// The question, or the value itself if there is nothing to ask.
    ///
    /// It is called on every leg, so it must have no effects. An answer counts only for the exact question that was
    /// shown: if this returns another question on a later leg, that question is asked.
    ///
    /// # Errors
    ///
    /// An error that ends the call. [`FlowError::failed`] becomes a tool error with that text.
    fn ask(server: &Self::Server, on: Self::On) -> Result<DeclaredQuestion<Self>, FlowError>;
}

/// A question whose message is always the same.
pub trait FixedQuestion: FormType {
    /// The message of the question.
    const MESSAGE: &'static str;
}

/// Any server at all, as `dyn AnyServer`: the [`Question::Server`] of a question that every server can ask.
pub trait AnyServer {}

impl<S> AnyServer for S {}

#[diagnostic::do_not_recommend]
impl<T: FixedQuestion> Question for T {
    type Server = dyn AnyServer;
    type On = ();

    fn ask(_server: &Self::Server, (): ()) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(T::MESSAGE))
    }
}

impl<T: Question + 'static> Question for Answer<T> {
    type Server = T::Server;
    type On = T::On;

    fn ask(server: &T::Server, on: T::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        T::ask(server, on).map(DeclaredQuestion::answered)
    }
}

/// What an [`Asked`] can ask for: a [`Question`], or a tuple of two to four, which are asked in one round.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a question",
    label = "this type has no question yet",
    note = "write `impl rounds::asked::FixedQuestion for {Self}` with its message, or `impl rounds::asked::Question for {Self}` if the question \
            depends on the call"
)]
pub trait QuestionSet: sealed::Set + Sized {}

impl<T: Question> sealed::Set for T {}

#[diagnostic::do_not_recommend]
impl<T: Question> QuestionSet for T {}

/// [`QuestionSet`] that a server `S` can ask.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a question that `{S}` can ask",
    note = "`type Server` of its `Question` is another server: make it `{S}`, or `dyn AnyServer` if it does not depend on the server"
)]
pub trait AskedBy<S: ?Sized>: QuestionSet {
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "no other crate can name the collector, so none can implement the trait")]
    fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError>;
}

#[diagnostic::do_not_recommend]
#[expect(private_interfaces, reason = "no other crate can name the collector")]
impl<S: AsServer<T::Server> + ?Sized, T: Question> AskedBy<S> for T {
    fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        let server = server.as_server();
        let Some(on) = T::On::find(server, collector)? else { return Ok(None) };
        collector.settle(T::ask(server, on)?)
    }
}

/// A server as the type that a question is written for.
pub trait AsServer<Q: ?Sized> {
    #[doc(hidden)]
    fn as_server(&self) -> &Q;
}

impl<S> AsServer<Self> for S {
    fn as_server(&self) -> &Self {
        self
    }
}

impl<S: 'static> AsServer<dyn AnyServer> for S {
    fn as_server(&self) -> &(dyn AnyServer + 'static) {
        self
    }
}

impl AsServer<Self> for dyn AnyServer {
    fn as_server(&self) -> &Self {
        self
    }
}

/// An input that a question may depend on.
pub trait QuestionInput<S: ?Sized>: sealed::Sealed + Sized {
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError>;
}

mod sealed {
    pub trait Sealed {}

    pub trait Set {}
}

/// Collects the declared questions of one leg.
pub(crate) struct QuestionCollector<'a> {
    view: &'a View,
    requests: InputRequests,
    /// The keys of the requests, in the order of asking.
    keys: Vec<String>,
}

impl QuestionCollector<'_> {
    /// The value of a question, or none if it has to be asked first.
    fn settle<T>(&mut self, question: DeclaredQuestion<T>) -> Result<Option<T>, FlowError> {
        match question.settle(self.view, true)? {
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

impl<T: QuestionSet> Asked<T> {
    /// The answer to a declared question, for handlers that are not written with rmcp's macros, such as those of
    /// resources. Take it before anything else, and return its error with `?`: if the question has to be asked first,
    /// that error asks it.
    ///
    /// # Errors
    ///
    /// If there is no answer yet. Return the error unchanged.
    pub fn from_context<S>(server: &S, context: &RequestContext<RoleServer>) -> Result<Self, ErrorData>
    where
        T: AskedBy<S>,
    {
        let view = View::take(context, "Asked")?;
        let mut collector = QuestionCollector { view: &view, requests: InputRequests::new(), keys: Vec::new() };
        let declared = match T::find(server, &mut collector) {
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

impl<S, T: AskedBy<S>> FromContextPart<ToolCallContext<'_, S>> for Asked<T> {
    fn from_context_part(context: &mut ToolCallContext<'_, S>) -> Result<Self, ErrorData> {
        Self::from_context(context.service, &context.request_context)
    }
}

impl<S, T: AskedBy<S>> FromContextPart<PromptContext<'_, S>> for Asked<T> {
    fn from_context_part(context: &mut PromptContext<'_, S>) -> Result<Self, ErrorData> {
        Self::from_context(context.server, &context.context)
    }
}

impl sealed::Sealed for () {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S: ?Sized> QuestionInput<S> for () {
    fn find(_server: &S, _collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        Ok(Some(()))
    }
}

impl<P> sealed::Sealed for Parameters<P> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S: ?Sized, P: DeserializeOwned> QuestionInput<S> for Parameters<P> {
    fn find(_server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        let arguments = collector.view.frame.arguments.as_deref().unwrap_or("{}");
        let misfit = |error| ErrorData::invalid_params(format!("the arguments are not valid: {error}"), None);
        Ok(Some(Self(serde_json::from_str(arguments).map_err(misfit)?)))
    }
}

impl sealed::Sealed for Option<Principal> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S: ?Sized> QuestionInput<S> for Option<Principal> {
    fn find(_server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        Ok(Some(collector.view.frame.caller().cloned()))
    }
}

impl sealed::Sealed for Principal {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S: ?Sized> QuestionInput<S> for Principal {
    fn find(_server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        collector.view.frame.caller().cloned().map(Some).ok_or(FlowError::NoPrincipal)
    }
}

impl<T: QuestionSet> sealed::Sealed for Asked<T> {}

#[expect(private_interfaces, reason = "the trait is sealed")]
impl<S: ?Sized, T: AskedBy<S>> QuestionInput<S> for Asked<T> {
    fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
        Ok(T::find(server, collector)?.map(Self))
    }
}

/// Implements the traits for tuples: an input of several parts needs all of them, and several questions are asked in one
/// round.
macro_rules! together {
    ($($name:ident: $T:ident),+) => {
        impl<$($T),+> sealed::Sealed for ($($T,)+) {}

        #[expect(private_interfaces, reason = "the trait is sealed")]
        impl<S: ?Sized, $($T: QuestionInput<S>),+> QuestionInput<S> for ($($T,)+) {
            fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
                $(let $name = $T::find(server, collector)?;)+
                Ok((|| Some(($($name?,)+)))())
            }
        }

        impl<$($T: Question),+> sealed::Set for ($($T,)+) {}

        #[diagnostic::do_not_recommend]
        impl<$($T: Question),+> QuestionSet for ($($T,)+) {}

        #[diagnostic::do_not_recommend]
        #[expect(private_interfaces, reason = "no other crate can name the collector")]
        impl<S: ?Sized, $($T: Question + AskedBy<S>),+> AskedBy<S> for ($($T,)+) {
            fn find(server: &S, collector: &mut QuestionCollector<'_>) -> Result<Option<Self>, FlowError> {
                $(let $name = $T::find(server, collector)?;)+
                Ok((|| Some(($($name?,)+)))())
            }
        }
    };
}

together!(a: A, b: B);
together!(a: A, b: B, c: C);
together!(a: A, b: B, c: C, d: D);
