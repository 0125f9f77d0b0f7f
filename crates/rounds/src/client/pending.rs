//! A call that waits for answers: its questions, its answers so far, and its server.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rmcp::model::{InputResponses, JsonObject};

use super::{
    AnswerError, AskedQuestion, Call, Field, Origin, SendError, Sent, Server, UserAnswer, leg::ClientLeg,
    question::Context, task::Task,
};
use crate::shared::clock::Timestamp;

/// A call that waits for answers.
///
/// It is a value, and serialises: show it now, save it to a file or a database, and answer it later from another
/// process, over another connection, to another instance of the same server. The answers so far are part of it. So is
/// the server's state, which means nothing to a client but may be valuable to an attacker: protect it as you protect
/// what users type.
///
/// ```
/// use rmcp::object;
/// use rounds::client::{Pending, Server};
///
/// # async fn example(mut pending: Pending, server: Server<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let saved: String = pending.to_json();
///
/// // Later, elsewhere:
/// let mut pending = Pending::from_json(&saved)?;
/// for question in pending.questions() {
///     println!("{}", question.message());
///     for field in question.fields() {
///         println!("  {}: {:?}", field.label, field.kind);
///     }
/// }
/// pending.accept("units", object!({"units": "metric"}))?; // checked: the error says which field is wrong, and why
/// assert!(pending.open().is_empty());
/// let sent = pending.send(server).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq)]
pub struct Pending {
    pub(super) call: Call,
    pub(super) round: u32,
    pub(super) questions: Vec<AskedQuestion>,
    pub(super) state: Option<String>,
    pub(super) answers: BTreeMap<String, UserAnswer>,
    pub(super) context: Arc<Context>,
    pub(super) received_at: Timestamp,
    /// The task that the call has become.
    pub(super) task: Option<Box<Task>>,
}

impl Pending {
    pub(super) fn new(
        call: Call,
        round: u32,
        questions: Vec<AskedQuestion>,
        state: Option<String>,
        context: Arc<Context>,
        received_at: Timestamp,
    ) -> Self {
        Self { call, round, questions, state, answers: BTreeMap::new(), context, received_at, task: None }
    }

    /// The call that this is a round of.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The number of this round, from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The questions, all of which have to be answered, in the order in which to show them: the order of asking, if the
    /// server declares it.
    pub fn questions(&self) -> &[AskedQuestion] {
        &self.questions
    }

    /// The question with this key.
    pub fn question(&self, key: &str) -> Option<&AskedQuestion> {
        self.questions.iter().find(|question| question.key() == key)
    }

    /// Every field of every form, with the key of its question, in the order in which to show them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Field)> {
        self.questions.iter().flat_map(|question| question.fields().iter().map(|field| (question.key(), field)))
    }

    /// The server that asks.
    pub fn origin(&self) -> &Origin {
        &self.context.origin
    }

    /// How long the server accepts an answer, if it said so: zero once it is too late. Measured by the clock of this
    /// machine.
    pub fn expires_in(&self) -> Option<Duration> {
        left(self.context.expires_at)
    }

    /// When the server stops accepting an answer, if it said so.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.context.expires_at.map(SystemTime::from)
    }

    /// When the questions came.
    pub fn received_at(&self) -> SystemTime {
        self.received_at.into()
    }

    /// The length of the server's state in bytes, if there is one.
    pub fn state_bytes(&self) -> Option<usize> {
        self.state.as_ref().map(String::len)
    }

    /// Answers a question, or changes its answer.
    ///
    /// # Errors
    ///
    /// If nothing was asked under this key, if the answer is of another kind, or if it is not valid for the form: then
    /// the error says which field is wrong and why. An earlier answer is kept.
    pub fn answer(&mut self, key: &str, answer: UserAnswer) -> Result<(), AnswerError> {
        let question = self.question(key).ok_or_else(|| AnswerError::NotAsked { key: key.to_owned() })?;
        let answer = question.check(answer)?;
        self.answers.insert(key.to_owned(), answer);
        Ok(())
    }

    /// Accepts a form with this content.
    ///
    /// # Errors
    ///
    /// The errors of [`answer`](Self::answer).
    pub fn accept(&mut self, key: &str, content: JsonObject) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Form(content))
    }

    /// Declines a form or a page: a user saw it and declined.
    ///
    /// # Errors
    ///
    /// If nothing was asked under this key, or if the question cannot be declined.
    pub fn decline(&mut self, key: &str) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Decline)
    }

    /// Cancels a form or a page: the user dismissed it, or no user saw it.
    ///
    /// # Errors
    ///
    /// If nothing was asked under this key, or if the question cannot be cancelled.
    pub fn cancel(&mut self, key: &str) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Cancel)
    }

    /// Removes an answer, so that the question is open again.
    pub fn reopen(&mut self, key: &str) -> Option<UserAnswer> {
        self.answers.remove(key)
    }

    /// The answer to a question.
    pub fn answered(&self, key: &str) -> Option<&UserAnswer> {
        self.answers.get(key)
    }

    /// The keys of the questions without an answer.
    pub fn open(&self) -> Vec<&str> {
        let keys = self.questions.iter().map(AskedQuestion::key);
        keys.filter(|key| !self.answers.contains_key(*key)).collect()
    }

    /// Sends the answers with the server's state, and waits for the response. If the future is dropped, the request is
    /// cancelled at the server.
    ///
    /// The value does not change, so it can be sent again after a failed connection. A server with `rounds` replies to
    /// the same answers with the same result, and runs nothing twice.
    ///
    /// # Errors
    ///
    /// If a question is [open](Self::open), if the server is not the one that [asked](Self::origin), or if the
    /// connection is of the legacy era: then nothing is sent. See [`SendError`] for the rest.
    pub async fn send(&self, server: impl Into<Server<'_>>) -> Result<Sent, SendError> {
        self.send_to(&server.into()).await
    }

    pub(super) async fn send_to(&self, server: &Server<'_>) -> Result<Sent, SendError> {
        if self.questions.iter().any(|question| self.answered(question.key()).is_none()) {
            return Err(SendError::Open { keys: self.open().into_iter().map(str::to_owned).collect() });
        }
        self.check_server(server)?;
        match &self.task {
            Some(task) => self.send_to_task(task, server).await,
            None => ClientLeg::Next(self).send(server).await,
        }
    }

    /// Checks that this is the server that asked, over a connection that can carry answers.
    pub(super) fn check_server(&self, server: &Server<'_>) -> Result<(), SendError> {
        if server.is_legacy() {
            return Err(SendError::LegacyConnection);
        }
        let found = server.origin();
        if !self.origin().is_same(&found) {
            return Err(SendError::OtherServer { asked_by: Box::new(self.origin().clone()), found: Box::new(found) });
        }
        Ok(())
    }

    /// The same call from the beginning, for when the server no longer accepts an answer. The answers of this round and
    /// of earlier ones are not sent: they come back as [`Field::suggested`] when the questions are asked again.
    pub fn start_over(&self) -> Call {
        let mut call = self.call.clone();
        for (key, answer) in &self.answers {
            if let UserAnswer::Form(content) = answer {
                call.suggestions.insert(key.clone(), content.clone());
            }
        }
        call
    }

    pub(super) fn wire_answers(&self) -> Option<InputResponses> {
        let answers = self.answers.iter().map(|(key, answer)| (key.clone(), answer.to_wire()));
        (!self.questions.is_empty()).then(|| answers.collect())
    }
}

/// The time until then, by the clock of this machine.
pub(super) fn left(until: Option<Timestamp>) -> Option<Duration> {
    until.map(|until| until.since(SystemTime::now().into()))
}

/// Prints neither the server's state nor the user's answers, which must not be logged.
impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("call", &self.call)
            .field("round", &self.round)
            .field("origin", self.origin())
            .field("questions", &self.questions.iter().map(AskedQuestion::key).collect::<Vec<_>>())
            .field("open", &self.open())
            .field("state_bytes", &self.state_bytes())
            .field("expires_at", &self.context.expires_at)
            .finish_non_exhaustive()
    }
}
