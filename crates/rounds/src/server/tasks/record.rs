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
    server::{
        policy::principal::Principal,
        seal::{Digest, FlowId, envelope::Span},
    },
    shared::{
        clock::Timestamp,
        order::{self, ORDER},
    },
};

/// How often a task is to be polled at first and at last: while a leg runs, and while a person is awaited.
const POLL_WORKING: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const POLL_ASKING: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Everything that is kept of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The principal that called the tool.
    pub(super) owner: Option<Digest>,
    /// Its name, for a leg that is played without a request of its.
    pub(super) caller: Option<String>,
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
    /// The flow of its first leg, if that can be played again: it continues the same flow then.
    pub(super) flow: Option<FlowId>,
    /// The run that plays its leg. None if tasks are kept in the memory of one process.
    pub(super) run: Option<Run>,
    /// Whether the client wants it to end.
    pub(super) cancelled: bool,
    /// What its handler said last of how far it is.
    pub(super) message: Option<String>,
}

/// A run of a leg, and its lease on the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) holder: Holder,
    /// When another run may take the leg over.
    pub(super) until: Timestamp,
}

/// The random name of a run.
pub(super) type Holder = [u8; 16];

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

/// What came of answers.
pub(super) enum Answered {
    /// Some questions still wait.
    InPart,
    /// All are answered: this is the next leg.
    Goes(NextLeg),
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
    /// A task of this caller whose leg is this one.
    pub(super) fn new(
        caller: Option<&Principal>,
        mut call: CallToolRequestParams,
        capabilities: Value,
        now: Timestamp,
        until: Timestamp,
    ) -> Self {
        call.meta = None;
        let leg =
            NextLeg { state: call.request_state.take(), answers: call.input_responses.take().unwrap_or_default() };
        Self {
            owner: caller.map(Principal::digest),
            caller: caller.map(|caller| caller.as_str().to_owned()),
            call,
            capabilities,
            created: now,
            changed: now,
            until,
            shown: 0,
            stage: Stage::Working(leg),
            flow: None,
            run: None,
            cancelled: false,
            message: None,
        }
    }

    /// The leg that it works on.
    pub(super) fn leg(&self) -> Option<&NextLeg> {
        match &self.stage {
            Stage::Working(leg) => Some(leg),
            _ => None,
        }
    }

    /// Whether this run plays its leg.
    pub(super) fn is_run_by(&self, holder: Holder) -> bool {
        self.leg().is_some() && self.run.as_ref().is_none_or(|run| run.holder == holder)
    }

    /// When an instance should look whether its run is still there.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.leg().and(self.run.as_ref()).map(|run| run.until)
    }

    /// Whether its leg can be played again: its claim, or the flow that it belongs to, keeps effects from running twice.
    pub(super) fn can_play_again(&self) -> bool {
        self.leg().is_some_and(|leg| leg.state.is_some()) || self.flow.is_some()
    }

    /// Whether there is something to be done for it: its run is lost, or its questions were not answered in time.
    pub(super) fn needs_care(&self, now: Timestamp) -> bool {
        self.is_late(now) || self.due().is_some_and(|due| due <= now)
    }

    /// Extends the lease of a run that is known to be there, although it could not renew it in time.
    pub(super) fn is_still_run_by(&mut self, live: Holder, until: Timestamp) -> bool {
        let run = self.run.as_mut().filter(|run| run.holder == live);
        run.map(|run| run.until = until).is_some()
    }

    /// Does that: this run takes its leg over, or it ends. Gives the leg to play, if there is one.
    pub(super) fn care(&mut self, run: Run, now: Timestamp, keep: Duration) -> Option<NextLeg> {
        self.expire(now, keep);
        if !self.needs_care(now) {
            return None;
        }
        if self.cancelled {
            self.end(Stage::Cancelled, now, keep);
        } else if !self.can_play_again() {
            let lost = "the server process that ran this call has stopped; the call was not run again, because it may \
                        have had effects: find out, and start it again if needed";
            self.end(Stage::Failed(ErrorData::internal_error(lost, None)), now, keep);
        } else {
            self.run = Some(run);
        }
        self.leg().cloned()
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

    /// Ends the task. What came of it is kept for this long at least. What a further leg would need is not kept, so that a
    /// failure takes less than what it ends, whatever the call has brought.
    pub(super) fn end(&mut self, stage: Stage, now: Timestamp, keep: Duration) {
        self.enter(stage, now);
        (self.run, self.message, self.flow) = (None, None, None);
        (self.call.arguments, self.capabilities) = (None, Value::Null);
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
        self.until = span.deadline;
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
        (self.until, self.run, self.message) = (span.deadline, None, None);
        self.enter(
            Stage::Asking(Asking { state, until: span.expires_at, questions, answers: InputResponses::new() }),
            now,
        );
    }

    /// Takes these answers. Those to questions that do not wait are ignored. None if all of them are.
    pub(super) fn answer(&mut self, given: &InputResponses, now: Timestamp) -> Option<Answered> {
        let Stage::Asking(asking) = &mut self.stage else { return None };
        let before = asking.questions.len();
        asking.questions.retain(|question| match given.get(&question.shown) {
            Some(answer) => {
                asking.answers.insert(question.key.clone(), answer.clone());
                false
            }
            None => true,
        });
        match asking.questions.len() {
            0 => {
                let (state, answers) = (std::mem::take(&mut asking.state), std::mem::take(&mut asking.answers));
                let leg = NextLeg { state: Some(state), answers };
                self.enter(Stage::Working(leg.clone()), now);
                Some(Answered::Goes(leg))
            }
            left if left == before => None,
            _ => Some(Answered::InPart),
        }
    }

    /// Cancels it: at once if it asks, and otherwise by what its run does. Gives the state of the round that it asked.
    /// None if that changes nothing.
    pub(super) fn cancel(&mut self, now: Timestamp, keep: Duration) -> Option<Option<String>> {
        match &mut self.stage {
            Stage::Asking(asking) => {
                let state = std::mem::take(&mut asking.state);
                self.end(Stage::Cancelled, now, keep);
                Some(Some(state))
            }
            Stage::Working(_) if !self.cancelled => {
                self.cancelled = true;
                Some(None)
            }
            _ => None,
        }
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
            Stage::Working(_) => message.or_else(|| self.message.clone()),
            _ => None,
        };
        task.poll_interval_ms = self.poll_interval(now).map(|interval| interval.as_millis() as u64);
        DetailedTask::new(task, payload)
    }

    /// A tenth of the time since it changed last. There is nothing to poll for in a task that has ended.
    fn poll_interval(&self, now: Timestamp) -> Option<Duration> {
        let (least, most) = match self.stage {
            Stage::Working(_) => POLL_WORKING,
            Stage::Asking(_) => POLL_ASKING,
            _ => return None,
        };
        Some((now.since(self.changed) / 10).clamp(least, most))
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
        let mut requests = InputRequests::new();
        for question in &self.questions {
            requests.insert(question.shown.clone(), question.request.clone());
        }
        requests
    }
}

/// A value that is written as an object, as one.
pub(super) fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    /// A task that asks, as the first release with tasks has written it.
    const ASKING: &str = include_str!("asking.json");

    fn asking() -> Record {
        let mut call = CallToolRequestParams::new("book");
        call.arguments = serde_json::from_str(r#"{"to": "Rome"}"#).expect("it is an object");
        let capabilities = serde_json::json!({"elicitation": {}});
        let mut record = Record::new(Some(&Principal::new("ann")), call, capabilities, NOW, NOW + KEEP);
        let question = serde_json::json!({
            "seat": {"method": "elicitation/create", "params": {
                "mode": "form", "message": "Which seat?",
                "requestedSchema": {"type": "object", "properties": {"seat": {"type": "string"}}},
            }},
        });
        let asks: InputRequests = serde_json::from_value(question).expect("it is a question");
        let asks = InputRequiredResult::new(Some(asks), Some("sealed".to_owned()));
        let span = Span { issued_at: NOW, expires_at: NOW + KEEP, deadline: NOW + KEEP };
        assert!(record.proceed(asks, span, NOW).is_none());
        record
    }

    const KEEP: Duration = Duration::from_secs(600);

    #[test]
    fn a_task_that_an_earlier_release_has_written_is_answered() {
        let mut earlier: Record = serde_json::from_str(ASKING).expect("this release reads it");
        let given = InputResponses::from([("seat.1".to_owned(), serde_json::json!({"action": "accept"}))]);
        let Some(Answered::Goes(leg)) = earlier.answer(&given, NOW) else { panic!("its question waits") };
        assert_eq!(leg.state.as_deref(), Some("sealed"));
        assert_eq!(earlier.request(&leg).arguments, asking().call.arguments);
    }

    #[test]
    fn an_earlier_release_reads_the_tasks_of_this_one() {
        // What it does not know it leaves out, and what it needs has to be there.
        let ours = serde_json::to_value(asking()).expect("a record is JSON");
        let theirs: Value = serde_json::from_str(ASKING).expect("it is JSON");
        for (name, value) in theirs.as_object().expect("it is an object") {
            assert_eq!(ours.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn an_end_takes_less_than_what_it_ends() {
        let mut record = asking();
        record.call.arguments = serde_json::from_value(serde_json::json!({"note": "x".repeat(10_000)})).ok();
        record.end(Stage::Failed(ErrorData::internal_error("too long", None)), NOW, KEEP);
        let written = serde_json::to_vec(&record).expect("a record is JSON");
        assert!(written.len() < 1_000, "{}", written.len());
    }
}
