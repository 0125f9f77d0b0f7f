//! The record of a task: where it stands, and every step it may take from there. It does no I/O.

use std::time::Duration;

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CreateTaskResult, DetailedTask, GetTaskResult, InputRequest, InputRequests,
        InputRequiredResult, InputResponses, JsonObject, MetaObject, Task, TaskPayload,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    server::seal::{Digest, envelope::Span},
    shared::{
        clock::Timestamp,
        order::{self, ORDER},
    },
};

/// How often a task is to be polled at first, and at most how much later while a leg runs and while a person is awaited.
const POLL: Duration = Duration::from_millis(500);
const POLL_WORKING: Duration = Duration::from_secs(5);
const POLL_ASKING: Duration = Duration::from_secs(30);

/// Everything that is kept of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The principal that called the tool.
    pub(super) owner: Option<Digest>,
    /// The call, without state and answers.
    pub(super) call: CallToolRequestParams,
    /// What the client declared when it called.
    pub(super) capabilities: Value,
    created: Timestamp,
    changed: Timestamp,
    /// Until when it may work and is kept: the deadline of its flow, and longer if it ends shortly before that.
    pub(super) until: Timestamp,
    /// How many questions were shown.
    shown: u32,
    pub(super) stage: Stage,
}

/// Where a task stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Stage {
    /// A leg runs: this one.
    Working(NextLeg),
    /// Questions wait for answers.
    Asking(Asking),
    Completed(JsonObject),
    Failed(ErrorData),
    Cancelled,
}

/// What a leg brings beside the call: nothing, if it is the first one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct NextLeg {
    pub(super) state: Option<String>,
    pub(super) answers: InputResponses,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Asking {
    /// The sealed state of the round.
    pub(super) state: String,
    /// Until when the round can be answered.
    until: Timestamp,
    questions: Vec<Shown>,
    /// The answers so far, by the keys that the handler knows.
    answers: InputResponses,
}

/// A question that is shown under a key of its own: a handler may use a key again, and a task may not.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shown {
    shown: String,
    key: String,
    request: InputRequest,
}

impl Record {
    /// A task whose leg is this one.
    pub(super) fn new(
        owner: Option<Digest>,
        mut call: CallToolRequestParams,
        capabilities: Value,
        now: Timestamp,
        until: Timestamp,
    ) -> Self {
        call.meta = None;
        let leg =
            NextLeg { state: call.request_state.take(), answers: call.input_responses.take().unwrap_or_default() };
        let stage = Stage::Working(leg);
        Self { owner, call, capabilities, created: now, changed: now, until, shown: 0, stage }
    }

    /// The request of the leg that it works on.
    pub(super) fn request(&self, NextLeg { state, answers }: &NextLeg) -> CallToolRequestParams {
        let mut request = self.call.clone();
        request.request_state.clone_from(state);
        request.input_responses = (!answers.is_empty()).then(|| answers.clone());
        request
    }

    /// Takes a step that others can see.
    fn enter(&mut self, stage: Stage, now: Timestamp) {
        (self.stage, self.changed) = (stage, now);
    }

    /// Ends the task. What came of it is kept for this long at least.
    pub(super) fn end(&mut self, stage: Stage, now: Timestamp, keep: Duration) {
        self.enter(stage, now);
        self.until = self.until.max(now + keep);
    }

    /// A leg has asked. If it has questions, they wait from here on; if it only wants to be called again, this is its next
    /// leg.
    pub(super) fn proceed(&mut self, asks: InputRequiredResult, span: Span, now: Timestamp) -> Option<NextLeg> {
        if asks.input_requests.as_ref().is_some_and(|requests| !requests.is_empty()) {
            self.ask(asks, span, now);
            return None;
        }
        let leg = NextLeg { state: asks.request_state, answers: InputResponses::new() };
        self.enter(Stage::Working(leg.clone()), now);
        Some(leg)
    }

    /// A leg has asked: its questions wait from here on, each under a key that no other question of this task has.
    fn ask(&mut self, mut asks: InputRequiredResult, span: Span, now: Timestamp) {
        let keys = order::keys(&asks);
        let mut requests = asks.input_requests.take().unwrap_or_default();
        let state = asks.request_state.take().unwrap_or_default();
        let questions = keys.into_iter().filter_map(|key| {
            let request = requests.remove(&key)?;
            self.shown += 1;
            Some(Shown { shown: format!("{key}.{}", self.shown), key, request })
        });
        let questions = questions.collect();
        self.until = span.deadline;
        self.enter(
            Stage::Asking(Asking { state, until: span.expires_at, questions, answers: InputResponses::new() }),
            now,
        );
    }

    /// Takes these answers. Those to questions that do not wait are ignored. Gives the next leg once all are there.
    pub(super) fn answer(&mut self, mut given: InputResponses, now: Timestamp) -> Option<NextLeg> {
        let Stage::Asking(asking) = &mut self.stage else { return None };
        asking.questions.retain(|question| match given.remove(&question.shown) {
            Some(answer) => {
                asking.answers.insert(question.key.clone(), answer);
                false
            }
            None => true,
        });
        if !asking.questions.is_empty() {
            return None;
        }
        let (state, answers) = (std::mem::take(&mut asking.state), std::mem::take(&mut asking.answers));
        let leg = NextLeg { state: Some(state), answers };
        self.enter(Stage::Working(leg.clone()), now);
        Some(leg)
    }

    /// Whether its questions can no longer be answered.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        matches!(&self.stage, Stage::Asking(asking) if asking.until <= now)
    }

    /// Fails the task if its questions were not answered in time.
    pub(super) fn expire(&mut self, now: Timestamp, keep: Duration) {
        if self.is_late(now) {
            let late = ErrorData::internal_error("the question was not answered in time: start the call again", None);
            self.end(Stage::Failed(late), now, keep);
        }
    }

    /// Whether it may be removed.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now && !matches!(self.stage, Stage::Working(_))
    }

    pub(super) fn created(&self, id: &str, message: Option<String>, now: Timestamp) -> CreateTaskResult {
        CreateTaskResult::new(self.seen(id, message, now).task)
    }

    pub(super) fn got(&self, id: &str, message: Option<String>, now: Timestamp) -> GetTaskResult {
        let mut got = GetTaskResult::new(self.seen(id, message, now));
        got.meta = self.order();
        got
    }

    fn seen(&self, id: &str, message: Option<String>, now: Timestamp) -> DetailedTask {
        let payload = self.payload();
        let mut task = Task::new(id, payload.status(), self.created.to_string(), self.changed.to_string())
            .with_ttl_ms(self.until.since(self.created).as_millis() as u64);
        task.status_message = match &self.stage {
            Stage::Failed(error) => Some(error.message.to_string()),
            Stage::Working(_) => message,
            _ => None,
        };
        task.poll_interval_ms = self.poll_interval(now).map(|interval| interval.as_millis() as u64);
        DetailedTask::new(task, payload)
    }

    /// A tenth of the time since it changed last. There is nothing to poll for in a task that has ended.
    fn poll_interval(&self, now: Timestamp) -> Option<Duration> {
        let most = match self.stage {
            Stage::Working(_) => POLL_WORKING,
            Stage::Asking(_) => POLL_ASKING,
            _ => return None,
        };
        Some((now.since(self.changed) / 10).clamp(POLL, most))
    }

    fn payload(&self) -> TaskPayload {
        match &self.stage {
            Stage::Working(_) => TaskPayload::Working,
            Stage::Asking(asking) => TaskPayload::InputRequired { input_requests: asking.requests() },
            Stage::Completed(result) => TaskPayload::Completed { result: result.clone() },
            Stage::Failed(error) => TaskPayload::Failed { error: object(error) },
            Stage::Cancelled => TaskPayload::Cancelled,
        }
    }

    /// The order in which its questions were asked, if that is not the order of their keys.
    fn order(&self) -> Option<MetaObject> {
        let Stage::Asking(asking) = &self.stage else { return None };
        let order = order::of_keys(asking.questions.iter().map(|question| &*question.shown))?;
        let mut meta = MetaObject::default();
        meta.0.insert(ORDER.to_owned(), order);
        Some(meta)
    }
}

impl Asking {
    pub(super) fn answers(&self) -> &InputResponses {
        &self.answers
    }

    fn requests(&self) -> InputRequests {
        self.questions.iter().map(|question| (question.shown.clone(), question.request.clone())).collect()
    }
}

/// A value that is written as an object, as one.
pub(super) fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}
