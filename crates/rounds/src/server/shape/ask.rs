//! Linear handlers: the handler asks, waits, and continues where it stopped.

use std::{
    future::poll_fn,
    marker::PhantomData,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rmcp::{
    ErrorData, Peer, RoleServer,
    handler::server::common::{AsRequestContext, FromContextPart},
    service::RequestContext,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::inquiry::{Inquiry, Reading};
use crate::{
    server::{
        engine::{
            answer::Received,
            core::Core,
            frame::{Answering, Frame, OpenQuestion, PendingAnswer},
            view::View,
        },
        flows::Decision,
        form::{Alternative, FormType, Schema},
        policy::{elsewhere::Approvers, error::FlowError, gate::Era, principal::Principal},
        seal::{FlowId, envelope::QuestionKind},
    },
    shared::{
        check::InvalidAnswer,
        clock::{BoxFuture, Timestamp},
    },
};

#[doc = include_str!("docs/ask.md")]
#[derive(Clone)]
pub struct Ask {
    pub(super) frame: Arc<Frame>,
}

/// A user's answer, as [`QuestionBuilder::answer`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "handlers match on all three")]
pub enum Answer<T> {
    /// The user accepted, with this value.
    Accepted(T),
    /// The user declined.
    Declined,
    /// The user dismissed the question without a choice.
    Cancelled,
}

impl<T> Answer<T> {
    /// The accepted value. For a refusal, the value that stands for it, or an error if there is none.
    pub(super) fn into_value(self, refused: Option<T>, question: &str) -> Result<T, FlowError> {
        let question = || question.to_owned();
        match (self, refused) {
            (Self::Accepted(value), _) | (_, Some(value)) => Ok(value),
            (Self::Declined, None) => Err(FlowError::Declined { question: question() }),
            (Self::Cancelled, None) => Err(FlowError::Cancelled { question: question() }),
        }
    }
}

impl Ask {
    /// The `Ask` of a request, for handlers that are not written with rmcp's macros, such as those of resources.
    ///
    /// # Errors
    ///
    /// [`FlowError::NotWrapped`] if the server is not wrapped in [`Rounds`](crate::Rounds).
    pub fn from_context(context: &RequestContext<RoleServer>) -> Result<Self, FlowError> {
        let view = View::take(context, "Ask")?;
        view.frame.reach(context);
        Ok(Self::of(&view))
    }

    /// Asks for a `T` with a form. A struct becomes a form with its fields. Any other type becomes a form with one
    /// field, named after the question's key.
    pub fn form<T: FormType>(&self, message: impl Into<String>) -> QuestionBuilder<T> {
        self.asking(Inquiry::form::<T>(message))
    }

    /// Asks with a form that is known only at run time: a JSON Schema, or a type whose fields are narrowed for this
    /// call. See [`Schema`].
    ///
    /// ```
    /// # use rmcp::model::JsonObject;
    /// # use rounds::{Ask, FlowError};
    /// # async fn handler(ask: Ask) -> Result<(), FlowError> {
    /// let schema = serde_json::json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    /// let settings: JsonObject = ask.form_with("Which size?", schema).await?;
    /// # let _ = settings; Ok(()) }
    /// ```
    pub fn form_with<T>(&self, message: impl Into<String>, schema: impl Into<Schema<T>>) -> QuestionBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.asking(Inquiry::form_with(message, &schema.into()))
    }

    /// Asks for one of these options, and returns its value. An option is a text, a pair of a value and its title, or a
    /// [`Alternative`]. An answer that is not one of them is not valid, and the question is asked again.
    ///
    /// ```
    /// # use rounds::{Ask, FlowError};
    /// # async fn handler(ask: Ask, branches: Vec<String>) -> Result<(), FlowError> {
    /// let branch = ask.choose("Which branch?", branches).key("branch").await?;
    /// let colour = ask.choose("Which colour?", [("r", "Red"), ("g", "Green")]).await?;
    /// # let _ = (branch, colour); Ok(()) }
    /// ```
    ///
    /// It fails with [`FlowError::FormType`] if there is no option, and with [`FlowError::TooManyChoices`] if there are
    /// more than [`Limits::choices`](crate::Limits::choices).
    pub fn choose<C: Into<Alternative>>(
        &self,
        message: impl Into<String>,
        options: impl IntoIterator<Item = C>,
    ) -> QuestionBuilder<String> {
        self.asking(Inquiry::choice(message, &Schema::<String>::choice(options)))
    }

    /// Asks for any number of these options, as [`choose`](Self::choose) does for one.
    pub fn choose_some<C: Into<Alternative>>(
        &self,
        message: impl Into<String>,
        options: impl IntoIterator<Item = C>,
    ) -> QuestionBuilder<Vec<String>> {
        self.asking(Inquiry::choice(message, &Schema::<Vec<String>>::choices(options)))
    }

    /// Asks for a confirmation. Awaited, it is true only if the user accepted and answered yes. A no, a decline and a
    /// dismissal are all false; [`QuestionBuilder::answer`] distinguishes them.
    pub fn confirm(&self, message: impl Into<String>) -> QuestionBuilder<bool> {
        QuestionBuilder { refused: Some(false), ..self.asking(Inquiry::confirm(message)) }
    }

    /// Asks the user to visit a page, such as one for signing in. Ask for secrets this way, because no form may ask for
    /// them. Acceptance means that the user agreed to open the page, not that they completed it.
    pub fn url(&self, message: impl Into<String>, url: impl Into<String>) -> QuestionBuilder<()> {
        self.asking(Inquiry::page(message, url))
    }

    /// Asks another person than the caller for an approval. The answer does not come through the client: see
    /// [the guide](crate::guide::elsewhere). By default every person may decide who has signed in and is not the
    /// requester; [`by`](QuestionBuilder::by) sets another rule.
    ///
    /// The handler waits in memory, so a restart of the process ends the call, however long the question may
    /// [wait](QuestionBuilder::within): for questions that take hours or days, use a [`Durable`](crate::Durable).
    ///
    /// ```
    /// # use rounds::{Ask, FlowError, elsewhere::{Approvers, Decision}};
    /// # async fn handler(ask: Ask) -> Result<String, FlowError> {
    /// match ask.approval("Refund 900?").by(Approvers::role("manager").not_requester()).await? {
    ///     Decision::Approved { by, .. } => Ok(format!("approved by {by}")),
    ///     _ => Ok("denied".to_owned()),
    /// }
    /// # }
    /// ```
    pub fn approval(&self, message: impl Into<String>) -> QuestionBuilder<Decision> {
        self.asking(Inquiry::approval(message))
    }

    /// Asks with a page of the server's own, such as one for signing in or for a payment. In the address, `{name}` stands for
    /// a name that cannot be guessed. The handler of the page completes the question with
    /// [`Flows::complete`](crate::register::Flows::complete) and that name, once. To open the page grants nothing.
    ///
    /// ```
    /// # use rounds::{Ask, FlowError};
    /// # async fn handler(ask: Ask) -> Result<String, FlowError> {
    /// let account: String = ask.page("Sign in to your bank", "https://shop.example/sign-in?question={name}").await?;
    /// # Ok(account) }
    /// ```
    pub fn page<T>(&self, message: impl Into<String>, address: impl Into<String>) -> QuestionBuilder<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.asking(Inquiry::own_page(message, address))
    }

    /// Asks the client's model.
    #[deprecated(note = "SEP-2577 deprecates sampling, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn sample(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
    ) -> QuestionBuilder<rmcp::model::CreateMessageResult> {
        self.asking(Inquiry::sample(request))
    }

    /// Asks the client for its roots.
    #[deprecated(note = "SEP-2577 deprecates roots, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn roots(&self) -> QuestionBuilder<rmcp::model::ListRootsResult> {
        self.asking(Inquiry::roots())
    }

    fn asking<T: DeserializeOwned + 'static>(&self, inquiry: Inquiry) -> QuestionBuilder<T> {
        let reading = const { &Reading::OF_TYPE };
        QuestionBuilder { ask: self.clone(), inquiry, reading, refused: None, options: None }
    }

    /// The protocol era of the client. Clients of both eras can be asked, and the handler need not know how.
    pub fn era(&self) -> Era {
        self.frame.with_peer(|peer| peer.era)
    }

    /// Whether the client can be asked with a form: it declared so, and a question can reach it.
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
        self.frame.with_peer(|peer| (peer.era == Era::Modern || peer.back_channel) && peer.can(kind))
    }

    /// The client of the leg in flight, for notifications. None while the handler waits for an answer, and none in a
    /// leg that landed on another instance and was handed over. Take it again after every question: the peer of an
    /// earlier leg no longer reaches the client.
    pub fn peer(&self) -> Option<Peer<RoleServer>> {
        self.frame.link().map(|link| link.peer)
    }

    /// Reports the progress of the call to the client of the leg in flight. Does nothing if no leg is in flight, if the
    /// leg landed on another instance, or if its client gave no progress token.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        if let Some(link) = self.frame.link() {
            link.progress(progress, total, message).await;
        }
    }

    /// The principal that the flow belongs to: the caller, as the server [identifies](crate::RoundsBuilder::principal)
    /// it. None for a caller without one. It is the same on all legs of a flow.
    pub fn principal(&self) -> Option<&Principal> {
        self.frame.caller()
    }

    /// The id of the flow, the same on all of its legs.
    pub fn flow(&self) -> FlowId {
        self.frame.flow
    }
}

impl<C: AsRequestContext> FromContextPart<C> for Ask {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::from_context(context.as_request_context())?)
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("flow", &self.frame.flow).finish_non_exhaustive()
    }
}

impl Ask {
    pub(super) fn of(view: &View) -> Self {
        Self { frame: view.frame.clone() }
    }
}

/// A question that is asked when it is awaited.
///
/// `.await` returns the accepted value. A decline or a dismissal is [`FlowError::Declined`] or
/// [`FlowError::Cancelled`], which `?` turns into a tool error with that text. [`answer`](Self::answer) returns all
/// three as values.
#[must_use = "a question is asked when it is awaited"]
pub struct QuestionBuilder<T: 'static> {
    pub(super) ask: Ask,
    pub(super) inquiry: Inquiry,
    pub(super) reading: &'static Reading<T>,
    /// The value that a refusal stands for, if it stands for one.
    pub(super) refused: Option<T>,
    /// What most questions do not have. In a box, because a question is kept while it waits.
    pub(super) options: Option<Box<QuestionOptions<T>>>,
}

pub(super) struct QuestionOptions<T> {
    pub(super) within: Option<Within>,
    pub(super) otherwise: Option<Otherwise<T>>,
    check: Option<Check<T>>,
}

/// The author's rule for an answer.
pub(super) type Check<T> = Box<dyn Fn(&T) -> Result<(), InvalidAnswer> + Send + Sync>;

impl<T> Default for QuestionOptions<T> {
    fn default() -> Self {
        Self { within: None, otherwise: None, check: None }
    }
}

/// What to use if the client cannot be asked; a value is also used when the question's timeout passes.
pub(super) enum Otherwise<T> {
    Value(T),
    Argument(String),
}

/// Timeout of a question: a duration, and once the question was asked, a point in time.
#[derive(Clone, Copy)]
pub(super) enum Within {
    For(Duration),
    Until(Timestamp),
}

impl Within {
    /// The time at which a question times out, which is fixed when it is first asked.
    pub(super) fn begun(within: &mut Option<Self>, now: impl FnOnce() -> Timestamp) -> Option<Timestamp> {
        let until = match (*within)? {
            Self::For(time) => now() + time,
            Self::Until(until) => until,
        };
        *within = Some(Self::Until(until));
        Some(until)
    }
}

impl<T: Send + 'static> QuestionBuilder<T> {
    /// Sets the question's key on the wire, which is also the name of the field in a form with one field.
    ///
    /// The default is the name of the type (`Units` becomes `units`, a plain type such as `String` becomes `answer`),
    /// or `confirm`, `url`, `sample` or `roots`. If another open question has the default key already, a number is
    /// appended. If two open questions are given the same key, the second fails with [`FlowError::DuplicateKey`].
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.inquiry.key = Some(key.into().into());
        self
    }

    /// Sets a rule for the value, with the message that the user sees if the rule does not hold. The question is then
    /// asked again, as after an answer that does not match the form: see [`reasks`](Self::reasks).
    ///
    /// ```
    /// # use rounds::{Ask, FlowError};
    /// # async fn handler(ask: Ask) -> Result<(), FlowError> {
    /// let even = ask.form::<u32>("An even number?").check(|n| if n % 2 == 0 { Ok(()) } else { Err("it is odd") });
    /// # even.await?; Ok(()) }
    /// ```
    ///
    /// In a handler with a [`Durable`](crate::Durable) the outcome is recorded, and the rule does not run again for an
    /// answer that was recorded. A value of [`or`](Self::or) is not checked; one of
    /// [`or_argument`](Self::or_argument) is, on every leg. A rule that was set before is replaced.
    pub fn check<M: Into<String>>(mut self, rule: impl Fn(&T) -> Result<(), M> + Send + Sync + 'static) -> Self {
        let rule = move |value: &T| rule(value).map_err(InvalidAnswer::whole);
        self.options().check = Some(Box::new(rule));
        self
    }

    /// Sets how often this question is asked again after an invalid answer, instead of
    /// [`Limits::reasks`](crate::Limits::reasks). With two, the user has three attempts. After the last, the question
    /// fails with [`FlowError::Invalid`].
    pub fn reasks(mut self, reasks: u32) -> Self {
        self.inquiry.reasks = Some(reasks);
        self
    }

    fn options(&mut self) -> &mut QuestionOptions<T> {
        self.options.get_or_insert_default()
    }

    /// Has the form answered elsewhere, by these people, and not by the client's user: see
    /// [the guide](crate::guide::elsewhere). For an [approval](Ask::approval) it sets who may decide.
    ///
    /// ```
    /// # use rounds::{Ask, FlowError, elsewhere::Approvers};
    /// # async fn handler(ask: Ask) -> Result<(), FlowError> {
    /// let discount: u32 = ask.form("Which discount?").by(Approvers::role("sales")).await?;
    /// # let _ = discount; Ok(()) }
    /// ```
    ///
    /// If the question cannot be answered elsewhere, it fails with [`FlowError::NotElsewhere`].
    pub fn by(mut self, approvers: Approvers) -> Self {
        self.inquiry.by(approvers);
        self
    }

    /// Sets the timeout of this question, which replaces [the round's lifetime](crate::RoundsBuilder::round_lifetime).
    /// It may be shorter or longer, but does not go beyond the flow's deadline.
    ///
    /// When it passes, the question is withdrawn and fails with [`FlowError::NotInTime`], or returns the value of
    /// [`or`](Self::or). That needs a round that is still open: a round lasts for its lifetime or for the longest
    /// timeout of its questions, and a handler that still waits when it ends is dropped. The client is told the timeout
    /// of each question.
    ///
    /// A handler with a [`Durable`](crate::Durable) is not in memory while its question waits, and continues when the
    /// client sends the next leg. The arrival time of that leg counts: an answer that arrives after the timeout is not
    /// used.
    ///
    /// A question that is answered [elsewhere](Self::by) extends the flow's deadline with its timeout, up to 30 days. The
    /// time of the decision counts.
    pub fn within(mut self, time: Duration) -> Self {
        self.options().within = Some(Within::For(time));
        self
    }

    /// Sets the value to use if the client [cannot be asked](FlowError::cannot_ask), or if the question was not
    /// answered [in time](Self::within). It does not replace the answer of a user who declined.
    pub fn or(mut self, value: T) -> Self {
        self.options().otherwise = Some(Otherwise::Value(value));
        self
    }

    /// Takes the value from this argument of the call if the client cannot be asked. If the argument is missing, the
    /// model is told to ask the user and to call again with it. Unlike [`or`](Self::or), it does not apply to a
    /// question that timed out.
    ///
    /// The model then answers for the user: use it only where that is acceptable. The argument has to be an optional
    /// one in the tool's input schema.
    pub fn or_argument(mut self, argument: impl Into<String>) -> Self {
        self.options().otherwise = Some(Otherwise::Argument(argument.into()));
        self
    }

    /// Asks, and returns the answer: accepted, declined or cancelled.
    ///
    /// # Errors
    ///
    /// [`FlowError`] if there is no answer: the client cannot be asked, the timeout passed, the flow has ended, the
    /// answers were not valid, or no form can ask for the type.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store the question twice in the future that is kept while it waits"
    )]
    pub fn answer(mut self) -> impl Future<Output = Result<Answer<T>, FlowError>> + Send {
        async move { self.wait_for_answer().await }
    }

    async fn wait_for_answer(&mut self) -> Result<Answer<T>, FlowError> {
        if let Answering::Replays(journal) = self.ask.frame.clone().answering() {
            let (operation, question) = match self.recall(journal)? {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(begun) => begun,
            };
            // In a box, so that the futures of handlers without a journal do not reserve space for it.
            return Box::pin(self.answer_within(&operation, question)).await;
        }
        let core = &self.ask.frame.core;
        let until = begun(&mut self.options, core);
        // The time of a decision counts, and not that of the leg which brings it.
        let until = until.filter(|_| self.inquiry.subject.kind() != QuestionKind::Elsewhere);
        let mut patience = until.map(|until| core.clock.sleep(until.since(core.now())));
        let key_is_default = self.inquiry.key.is_none();
        let mut opened = self.pose(self.inquiry.message.to_string(), key_is_default)?;
        let mut asked = 0;
        loop {
            let received = poll_fn(|cx| match Pin::new(&mut opened).poll(cx) {
                Poll::Pending if is_over(&mut patience, cx) => {
                    Poll::Ready(Err(FlowError::NotInTime { question: self.inquiry.message.to_string() }))
                }
                received => received,
            })
            .await;
            let problem = match received {
                Ok(Received::Declined) => return Ok(Answer::Declined),
                Ok(Received::Cancelled) => return Ok(Answer::Cancelled),
                Ok(Received::Late) => {
                    let late = FlowError::NotInTime { question: self.inquiry.message.to_string() };
                    return self.instead(late).map(Answer::Accepted);
                }
                Ok(Received::Malformed(problem)) => problem,
                Ok(Received::Accepted(content)) => match self.read(&content) {
                    Ok(value) => return Ok(Answer::Accepted(value)),
                    Err(problem) => problem,
                },
                Err(error) => return self.instead(error).map(Answer::Accepted),
            };
            if asked == self.inquiry.reasks(&self.ask.frame.core.limits) {
                return Err(FlowError::Invalid { question: self.inquiry.message.to_string(), problem });
            }
            asked += 1;
            opened = self.pose(problem.noted(&self.inquiry.message), key_is_default)?;
        }
    }

    /// Poses the question, with this message. A separate function, so that the waiting future does not store these
    /// temporaries.
    fn pose(&mut self, words: String, key_is_default: bool) -> Result<PendingAnswer, FlowError> {
        let Self { ask: Ask { frame }, inquiry, options, .. } = self;
        let key = inquiry.settle_key().clone();
        let question = OpenQuestion {
            kind: inquiry.subject.kind(),
            request: Some(Box::new(inquiry.request(words, &frame.core.limits, &|| frame.new_name())?)),
            form: inquiry.subject.source(),
            digest: None,
            key,
            message: inquiry.message.clone(),
            until: begun(options, &frame.core),
        };
        frame.pose(question, key_is_default)
    }

    /// Reads an accepted answer, and checks it with the author's rule.
    pub(super) fn read(&self, content: &Value) -> Result<T, InvalidAnswer> {
        let value = (self.reading.value)(&self.inquiry.subject, self.inquiry.settled_key(), content)?;
        match self.options.as_ref().and_then(|options| options.check.as_ref()) {
            Some(check) => check(&value).map(|()| value),
            None => Ok(value),
        }
    }

    /// The replacement for an answer that did not come, or the error if there is none.
    pub(super) fn instead(&mut self, error: FlowError) -> Result<T, FlowError> {
        let argument = match self.options.as_mut().and_then(|options| options.otherwise.take()) {
            Some(Otherwise::Value(value)) if error.cannot_ask() || matches!(error, FlowError::NotInTime { .. }) => {
                return Ok(value);
            }
            Some(Otherwise::Argument(argument)) if error.cannot_ask() => argument,
            _ => return Err(error),
        };
        let arguments = self.ask.frame.arguments.as_deref().and_then(|arguments| serde_json::from_str(arguments).ok());
        let given = arguments.as_ref().and_then(|arguments: &Value| arguments.get(&argument));
        match given {
            None | Some(Value::Null) => {
                Err(FlowError::NeedsArgument { question: self.inquiry.message.to_string(), argument })
            }
            // A form with one field is asked for as an object, but the argument is the bare value.
            Some(value) => self
                .read(&json!({ self.inquiry.settled_key(): value }))
                .or_else(|problem| if value.is_object() { self.read(value) } else { Err(problem) })
                .map_err(|problem| FlowError::Failed(format!("the argument `{argument}` is not valid: {problem}"))),
        }
    }
}

/// The time at which a question times out, if it has a timeout of its own.
pub(super) fn begun<T>(options: &mut Option<Box<QuestionOptions<T>>>, core: &Core) -> Option<Timestamp> {
    Within::begun(&mut options.as_mut()?.within, || core.now())
}

/// Whether a question's own timeout has passed. A question without one waits as long as its round.
fn is_over(patience: &mut Option<BoxFuture<'static, ()>>, cx: &mut Context<'_>) -> bool {
    patience.as_mut().is_some_and(|time| time.as_mut().poll(cx).is_ready())
}

impl QuestionBuilder<Decision> {
    /// Returns [`Decision::Expired`] if there is no decision in time, instead of failing with
    /// [`FlowError::NotInTime`].
    pub fn or_expired(self) -> Self {
        self.or(Decision::Expired)
    }
}

impl<T: Send + 'static> IntoFuture for QuestionBuilder<T> {
    type Output = Result<T, FlowError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let answer = self.wait_for_answer().await?;
            answer.into_value(self.refused, &self.inquiry.message)
        })
    }
}

impl<T: 'static> std::fmt::Debug for QuestionBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let type_ = PhantomData::<T>;
        f.debug_struct("QuestionBuilder")
            .field("message", &self.inquiry.message)
            .field("type", &type_)
            .finish_non_exhaustive()
    }
}
