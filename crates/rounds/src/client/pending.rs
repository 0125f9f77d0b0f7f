//! A call that waits for answers: what is asked, what has been answered, and whose it is.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rmcp::model::{InputResponses, JsonObject};

use super::{
    AnswerError, AskedQuestion, Call, Field, Origin, SendError, Sent, Server, UserAnswer, leg::Leg, question::Context,
};
use crate::shared::clock::Timestamp;

/// A call that waits for answers.
///
/// It is a value, and serialises: it can be shown to somebody now, written to a file or a database, and answered tomorrow
/// from another process, over another connection, to another instance of the same server. What was answered is part of
/// it. So is the server's state, which says nothing to a client but may be worth a lot to a thief: keep it as you keep
/// what people type.
///
/// ```
/// use rmcp::object;
/// use rounds::client::{Pending, Server};
///
/// # async fn example(mut pending: Pending, server: Server<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let saved: String = pending.to_json();
///
/// // Tomorrow, elsewhere:
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
        Self { call, round, questions, state, answers: BTreeMap::new(), context, received_at }
    }

    /// The call that this is a round of.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Which round this is, from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The questions, all of which have to be answered, in the order in which they are to be shown: that of asking, where the server says it.
    pub fn questions(&self) -> &[AskedQuestion] {
        &self.questions
    }

    /// The question of this key.
    pub fn question(&self, key: &str) -> Option<&AskedQuestion> {
        self.questions.iter().find(|question| question.key() == key)
    }

    /// Every field of every form, with the key of its question, in the order in which they are to be shown.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Field)> {
        self.questions.iter().flat_map(|question| question.fields().iter().map(|field| (question.key(), field)))
    }

    /// The server that asks.
    pub fn origin(&self) -> &Origin {
        &self.context.origin
    }

    /// How long the server will take an answer, if it has said so: nothing once it is too late. By the clock of this
    /// machine.
    pub fn expires_in(&self) -> Option<Duration> {
        left(self.context.expires_at)
    }

    /// Until when the server will take an answer, if it has said so.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.context.expires_at.map(SystemTime::from)
    }

    /// When the questions came.
    pub fn received_at(&self) -> SystemTime {
        self.received_at.into()
    }

    /// How long the server's state is, in bytes, if there is one.
    pub fn state_bytes(&self) -> Option<usize> {
        self.state.as_ref().map(String::len)
    }

    /// Answers a question, or changes what was answered.
    ///
    /// # Errors
    ///
    /// When nothing was asked under this key, the answer is of another kind, or it does not fit the form: then the error
    /// says which field is wrong and why. What was answered before stands.
    pub fn answer(&mut self, key: &str, answer: UserAnswer) -> Result<(), AnswerError> {
        let question = self.question(key).ok_or_else(|| AnswerError::NotAsked { key: key.to_owned() })?;
        let answer = question.check(answer)?;
        self.answers.insert(key.to_owned(), answer);
        Ok(())
    }

    /// Accepts a form, filled in with this.
    ///
    /// # Errors
    ///
    /// As [`answer`](Self::answer).
    pub fn accept(&mut self, key: &str, content: JsonObject) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Form(content))
    }

    /// Declines a form or a page: somebody was shown it, and said no.
    ///
    /// # Errors
    ///
    /// When nothing was asked under this key, or what was asked cannot be declined.
    pub fn decline(&mut self, key: &str) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Decline)
    }

    /// Cancels a form or a page: it was put away, or nobody was there to see it.
    ///
    /// # Errors
    ///
    /// When nothing was asked under this key, or what was asked cannot be cancelled.
    pub fn cancel(&mut self, key: &str) -> Result<(), AnswerError> {
        self.answer(key, UserAnswer::Cancel)
    }

    /// Takes an answer back: the question is open again.
    pub fn reopen(&mut self, key: &str) -> Option<UserAnswer> {
        self.answers.remove(key)
    }

    /// What was answered to a question.
    pub fn answered(&self, key: &str) -> Option<&UserAnswer> {
        self.answers.get(key)
    }

    /// The keys of the questions without an answer.
    pub fn open(&self) -> Vec<&str> {
        let keys = self.questions.iter().map(AskedQuestion::key);
        keys.filter(|key| !self.answers.contains_key(*key)).collect()
    }

    /// Sends the answers, with the server's state as it came, and waits for what becomes of them. Dropping the future
    /// tells the server that nobody waits.
    ///
    /// This stays as it was: after a connection that failed it can be sent again. A server that keeps the promises of
    /// `rounds` replies to the same answers with the same result, and does nothing twice.
    ///
    /// # Errors
    ///
    /// When something is [open](Self::open), the server is another than the one that [asked](Self::origin), or the
    /// connection is one of the legacy era: then nothing is sent. See [`SendError`] for the rest.
    pub async fn send(&self, server: impl Into<Server<'_>>) -> Result<Sent, SendError> {
        self.send_to(&server.into()).await
    }

    pub(super) async fn send_to(&self, server: &Server<'_>) -> Result<Sent, SendError> {
        if self.questions.iter().any(|question| self.answered(question.key()).is_none()) {
            return Err(SendError::Open { keys: self.open().into_iter().map(str::to_owned).collect() });
        }
        if server.is_legacy() {
            return Err(SendError::LegacyConnection);
        }
        let found = server.origin();
        if !self.origin().is_same(&found) {
            return Err(SendError::OtherServer { asked_by: Box::new(self.origin().clone()), found: Box::new(found) });
        }
        Leg::Next(self).send(server).await
    }

    /// The same call from the beginning, for when the server no longer takes an answer. What was answered in this round
    /// and in those before is not sent: it comes back as [`Field::suggested`], for whoever is asked again.
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

/// How long it is until then, by the clock of this machine.
pub(super) fn left(until: Option<Timestamp>) -> Option<Duration> {
    until.map(|until| until.since(SystemTime::now().into()))
}

/// Without the server's state and without what was typed, neither of which belongs in a log.
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
