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
    model::{ElicitRequest, ElicitRequestParams, InputRequest},
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    server::{
        engine::{
            answer::Received,
            frame::{Frame, OpenQuestion, Opened},
            view::View,
        },
        form::{Form, FormType, MakeForm},
        policy::{error::FlowError, gate::Era},
        seal::{
            FlowId,
            digest::{Fingerprint, of_question},
            envelope::QuestionKind,
        },
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
        let how = const { &How::form(Form::default_key::<T>) };
        self.asking(Query { how, request: None, refused: None }, message)
    }

    /// Asks for a confirmation. Awaited, it is true only if the user accepted and answered yes. A no, a decline and a
    /// dismissal are all false; [`QuestionBuilder::answer`] distinguishes them.
    pub fn confirm(&self, message: impl Into<String>) -> QuestionBuilder<bool> {
        let how = const { &How::form(|| "confirm".to_owned()) };
        self.asking(Query { how, request: None, refused: Some(false) }, message)
    }

    /// Asks the user to visit a page, such as one for signing in. Ask for secrets this way, because no form may ask for
    /// them. Acceptance means that the user agreed to open the page, not that they completed it.
    pub fn url(&self, message: impl Into<String>, url: impl Into<String>) -> QuestionBuilder<()> {
        let url = url.into();
        let request = move |message: String, _: &str, name: &dyn Fn() -> String| {
            Ok(InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message,
                url: url.clone(),
                elicitation_id: name(),
            })))
        };
        let how = &How {
            kind: QuestionKind::Url,
            form: None,
            default_key: || "url".to_owned(),
            read: |_, _| Ok(()),
            read_text: |_, _| Ok(()),
        };
        self.asking(Query { how, request: Some(Box::new(request)), refused: None }, message)
    }

    /// Asks the client's model.
    #[deprecated(note = "SEP-2577 deprecates sampling, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn sample(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
    ) -> QuestionBuilder<rmcp::model::CreateMessageResult> {
        let sample = move |_, _: &str, _: &dyn Fn() -> String| {
            Ok(InputRequest::CreateMessage(rmcp::model::CreateMessageRequest::new(request.clone())))
        };
        let how = &How {
            kind: QuestionKind::Sample,
            form: None,
            default_key: || "sample".to_owned(),
            read: |_, result| from_json(result),
            read_text: |_, result| from_text(result),
        };
        let query = Query { how, request: Some(Box::new(sample)), refused: None };
        self.asking(query, "a question to the client's model")
    }

    /// Asks the client for its roots.
    #[deprecated(note = "SEP-2577 deprecates roots, and so does rmcp")]
    #[expect(deprecated, reason = "rmcp deprecates its types as well")]
    pub fn roots(&self) -> QuestionBuilder<rmcp::model::ListRootsResult> {
        let roots =
            |_, _: &str, _: &dyn Fn() -> String| Ok(InputRequest::ListRoots(rmcp::model::ListRootsRequest::default()));
        let how = &How {
            kind: QuestionKind::Roots,
            form: None,
            default_key: || "roots".to_owned(),
            read: |_, result| from_json(result),
            read_text: |_, result| from_text(result),
        };
        self.asking(Query { how, request: Some(Box::new(roots)), refused: None }, "the client's roots")
    }

    fn asking<T: 'static>(&self, query: Query<T>, message: impl Into<String>) -> QuestionBuilder<T> {
        let message = message.into().into();
        QuestionBuilder { ask: self.clone(), query, message, key: None, within: None, otherwise: None }
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
    pub(super) query: Query<T>,
    pub(super) message: Arc<str>,
    pub(super) key: Option<Arc<str>>,
    pub(super) within: Option<Within>,
    pub(super) otherwise: Option<Otherwise<T>>,
}

/// Builds the request from a message, a key, and a function that makes a unique name if the request needs one.
pub(super) type MakeRequest =
    Box<dyn Fn(String, &str, &dyn Fn() -> String) -> Result<InputRequest, FlowError> + Send + Sync>;

/// A kind of question, and the parts that differ between questions of this kind.
pub(super) struct Query<T: 'static> {
    pub(super) how: &'static How<T>,
    /// Builds the request of a question that is not a form.
    pub(super) request: Option<MakeRequest>,
    /// The value that a refusal stands for, if it stands for one.
    pub(super) refused: Option<T>,
}

/// The kind of a question and how its answer is read. Shared by all questions of one kind and type.
pub(super) struct How<T> {
    pub(super) kind: QuestionKind,
    /// Makes the form under a key. None for a question that is not a form.
    pub(super) form: Option<MakeForm>,
    pub(super) default_key: fn() -> String,
    pub(super) read: fn(&str, &Value) -> Result<T, InvalidAnswer>,
    /// Reads an answer that is JSON text.
    pub(super) read_text: fn(&str, &str) -> Result<T, InvalidAnswer>,
}

impl<T: 'static> Query<T> {
    /// The request to send, with this message.
    pub(super) fn request(
        &self,
        words: String,
        key: &str,
        name: &dyn Fn() -> String,
    ) -> Result<InputRequest, FlowError> {
        match (&self.request, self.how.form) {
            (Some(request), _) => request(words, key, name),
            (None, Some(form)) => Ok(form(key)?.request(words)),
            (None, None) => Err(FlowError::NothingAsked),
        }
    }

    /// The fingerprint that identifies the question on a later leg. It does not include the flow's id: a journal
    /// belongs to its flow anyway, and a saved journal can be replayed in another flow.
    pub(super) fn fingerprint(&self, message: &str, key: &str) -> Result<Fingerprint, FlowError> {
        match self.how.form {
            Some(form) => Ok(form(key)?.fingerprint(message)),
            None => Ok(of_question(&self.request(message.to_owned(), key, &|| key.to_owned())?)),
        }
    }
}

impl<T: FormType> How<T> {
    const fn form(default_key: fn() -> String) -> Self {
        Self {
            kind: QuestionKind::Form,
            form: Some(|key| Form::of::<T>(key)),
            default_key,
            read: read_form,
            read_text: |key, json| {
                let form = Form::of::<T>(key).map_err(|unaskable| InvalidAnswer::whole(unaskable.to_string()))?;
                form.read_text(json)
            },
        }
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
        self.key = Some(key.into().into());
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
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(Within::For(time));
        self
    }

    /// Sets the value to use if the client [cannot be asked](FlowError::cannot_ask), or if the question was not
    /// answered [in time](Self::within). It does not replace the answer of a user who declined.
    pub fn or(mut self, value: T) -> Self {
        self.otherwise = Some(Otherwise::Value(value));
        self
    }

    /// Takes the value from this argument of the call if the client cannot be asked. If the argument is missing, the
    /// model is told to ask the user and to call again with it. Unlike [`or`](Self::or), it does not apply to a
    /// question that timed out.
    ///
    /// The model then answers for the user: use it only where that is acceptable. The argument has to be an optional
    /// one in the tool's input schema.
    pub fn or_argument(mut self, argument: impl Into<String>) -> Self {
        self.otherwise = Some(Otherwise::Argument(argument.into()));
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
        async move { self.asked().await }
    }

    async fn asked(&mut self) -> Result<Answer<T>, FlowError> {
        if let Some(journal) = self.ask.frame.clone().journal.get() {
            let (operation, question) = match self.recall(journal)? {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(begun) => begun,
            };
            // In a box, so that the futures of handlers without a journal do not reserve space for it.
            return Box::pin(self.answer_within(&operation, question)).await;
        }
        let core = &self.ask.frame.core;
        let until = Within::begun(&mut self.within, || core.now());
        let mut patience = until.map(|until| core.clock.sleep(until.since(core.now())));
        let key_is_default = self.key.is_none();
        let mut opened = self.open(self.message.to_string(), key_is_default)?;
        let mut asked = 0;
        loop {
            let received = poll_fn(|cx| match Pin::new(&mut opened).poll(cx) {
                Poll::Pending if is_over(&mut patience, cx) => {
                    Poll::Ready(Err(FlowError::NotInTime { question: self.message.to_string() }))
                }
                received => received,
            })
            .await;
            let problem = match received {
                Ok(Received::Declined) => return Ok(Answer::Declined),
                Ok(Received::Cancelled) => return Ok(Answer::Cancelled),
                Ok(Received::Malformed(problem)) => problem,
                Ok(Received::Accepted(content)) => match (self.query.how.read)(self.settled_key(), &content) {
                    Ok(value) => return Ok(Answer::Accepted(value)),
                    Err(problem) => problem,
                },
                Err(error) => {
                    let (otherwise, read) = (self.otherwise.take(), self.query.how.read);
                    let instead =
                        Otherwise::instead(otherwise, error, &self.ask, read, self.settled_key(), &self.message);
                    return instead.map(Answer::Accepted);
                }
            };
            if asked == self.ask.frame.core.limits.reasks {
                return Err(FlowError::Invalid { question: self.message.to_string(), problem });
            }
            asked += 1;
            opened = self.open(problem.noted(&self.message), key_is_default)?;
        }
    }

    /// Opens the question, with this message. A separate function, so that the waiting future does not store these
    /// temporaries.
    fn open(&mut self, words: String, key_is_default: bool) -> Result<Opened, FlowError> {
        let Self { ask: Ask { frame }, query, message, within, .. } = self;
        let key = self.key.get_or_insert_with(|| (query.how.default_key)().into());
        let question = OpenQuestion {
            kind: query.how.kind,
            request: Some(Box::new(query.request(words, key, &|| frame.new_name())?)),
            form: query.how.form,
            digest: None,
            key: key.clone(),
            message: message.clone(),
            until: Within::begun(within, || frame.core.now()),
        };
        frame.open(question, key_is_default)
    }

    /// The key under which the question was asked.
    fn settled_key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }
}

/// Whether a question's own timeout has passed. A question without one waits as long as its round.
fn is_over(patience: &mut Option<BoxFuture<'static, ()>>, cx: &mut Context<'_>) -> bool {
    patience.as_mut().is_some_and(|time| time.as_mut().poll(cx).is_ready())
}

impl<T> Otherwise<T> {
    /// The replacement for an answer that did not come, or the error if there is none.
    pub(super) fn instead(
        otherwise: Option<Self>,
        error: FlowError,
        ask: &Ask,
        read: fn(&str, &Value) -> Result<T, InvalidAnswer>,
        key: &str,
        question: &str,
    ) -> Result<T, FlowError> {
        let argument = match otherwise {
            Some(Self::Value(value)) if error.cannot_ask() || matches!(error, FlowError::NotInTime { .. }) => {
                return Ok(value);
            }
            Some(Self::Argument(argument)) if error.cannot_ask() => argument,
            _ => return Err(error),
        };
        let arguments = ask.frame.arguments.as_deref().and_then(|arguments| serde_json::from_str(arguments).ok());
        let given = arguments.as_ref().and_then(|arguments: &Value| arguments.get(&argument));
        match given {
            None | Some(Value::Null) => Err(FlowError::NeedsArgument { question: question.to_owned(), argument }),
            // A form with one field is asked for as an object, but the argument is the bare value.
            Some(value) => read(key, &json!({ key: value }))
                .or_else(|problem| if value.is_object() { read(key, value) } else { Err(problem) })
                .map_err(|problem| FlowError::Failed(format!("the argument `{argument}` is not valid: {problem}"))),
        }
    }
}

impl<T: Send + 'static> IntoFuture for QuestionBuilder<T> {
    type Output = Result<T, FlowError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let answer = self.asked().await?;
            answer.into_value(self.query.refused, &self.message)
        })
    }
}

impl<T: 'static> std::fmt::Debug for QuestionBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let type_ = PhantomData::<T>;
        f.debug_struct("QuestionBuilder").field("message", &self.message).field("type", &type_).finish_non_exhaustive()
    }
}

/// The accepted answer to a form, read as the type that was asked for.
pub(super) fn read_form<T: FormType>(key: &str, content: &Value) -> Result<T, InvalidAnswer> {
    match Form::of::<T>(key) {
        Ok(form) => form.read(content),
        Err(unaskable) => Err(InvalidAnswer::whole(unaskable.to_string())),
    }
}

fn from_text<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, InvalidAnswer> {
    from_json(
        &serde_json::from_str(json)
            .map_err(|error| InvalidAnswer::whole(format!("the answer cannot be read: {error}")))?,
    )
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, InvalidAnswer> {
    T::deserialize(value).map_err(|error| InvalidAnswer::whole(format!("the answer cannot be read: {error}")))
}
