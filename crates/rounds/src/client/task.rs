//! A call that the server answered with a task: it is polled, and its questions are answered through it.

use std::time::Duration;

use rmcp::{
    ErrorData,
    model::{
        CancelTaskParams, CancelTaskRequest, ClientRequest, CreateTaskResult, GetTaskParams, GetTaskRequest,
        UpdateTaskParams, UpdateTaskRequest,
    },
    service::ServiceError,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BadServer, Done, Pending, SendError, Sent, Server,
    leg::{own_meta, pending, request},
    reply::QuestionSet,
};
use crate::shared::kind::Method;

/// What is known of a task: enough to poll it from another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    poll_millis: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// The keys of the questions that were answered. A server may still show one for a while after it took the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<String>,
}

/// The longest id and the longest message that are kept, in bytes.
const LONGEST: usize = 4096;

/// How often a task is polled: at the server's pace, within these limits.
const PACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));
const DEFAULT_PACE: Duration = Duration::from_secs(1);

impl Task {
    pub(super) fn created(created: &CreateTaskResult) -> Result<Self, BadServer> {
        let task = &created.task;
        if task.task_id.len() > LONGEST {
            return Err(wrong("the id of its task is too long"));
        }
        let message = task.status_message.clone().filter(|message| message.len() <= LONGEST);
        let id = task.task_id.clone();
        Ok(Self { id, poll_millis: task.poll_interval_ms, message, answered: Vec::new() })
    }

    pub(super) fn poll_after(&self) -> Duration {
        self.poll_millis.map_or(DEFAULT_PACE, Duration::from_millis).clamp(PACE.0, PACE.1)
    }
}

impl Pending {
    /// The id of the task that the call has become, if it has. Such a call waits at the server:
    /// [`send`](Self::send) brings the answers that there are, and returns what has come of it.
    pub fn task_id(&self) -> Option<&str> {
        self.task.as_deref().map(|task| &*task.id)
    }

    /// What the server says of how far the task is.
    pub fn status_message(&self) -> Option<&str> {
        self.task.as_deref()?.message.as_deref()
    }

    /// How long to wait before the task is polled again with [`send`](Self::send).
    pub fn poll_after(&self) -> Option<Duration> {
        self.task.as_deref().map(Task::poll_after)
    }

    /// Asks the server to cancel the task. It may still end with a result. Does nothing for a call that is not a task.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send), except that questions may be open.
    pub async fn cancel_task(&self, server: impl Into<Server<'_>>) -> Result<(), SendError> {
        let (Some(task), server) = (&self.task, server.into()) else { return Ok(()) };
        self.check_server(&server)?;
        let params = CancelTaskParams::new(task.id.clone());
        let cancel = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params));
        request(server.peer, cancel, own_meta(&self.call.meta)).await.map_err(gone)?;
        Ok(())
    }

    /// Brings the answers to the task, and polls it.
    pub(super) async fn send_to_task(&self, task: &Task, server: &Server<'_>) -> Result<Sent, SendError> {
        let (mut task, meta) = (task.clone(), own_meta(&self.call.meta));
        if let Some(answers) = self.wire_answers() {
            task.answered.extend(answers.keys().cloned());
            let params = UpdateTaskParams::new(task.id.clone(), answers);
            let update = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(params));
            request(server.peer, update, meta.clone()).await.map_err(gone)?;
        }
        let get = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(task.id.clone())));
        let got = request(server.peer, get, meta).await.map_err(gone)?;
        self.read_task(task, serde_json::to_value(got).unwrap_or_default(), server)
    }

    fn read_task(&self, mut task: Task, mut got: Value, server: &Server<'_>) -> Result<Sent, SendError> {
        let text = |name: &str| got.get(name).and_then(Value::as_str).filter(|text| text.len() <= LONGEST);
        task.message = text("statusMessage").map(str::to_owned);
        task.poll_millis = got.get("pollIntervalMs").and_then(Value::as_u64);
        let status = text("status").unwrap_or_default().to_owned();
        let mut take = |name: &str| got.get_mut(name).map(Value::take).unwrap_or_default();
        match &*status {
            "working" => Ok(Sent::Later(self.polled(task))),
            "input_required" => {
                if let Some(requests) = got.get_mut("inputRequests").and_then(Value::as_object_mut) {
                    requests.retain(|key, _| !task.answered.contains(key));
                    if requests.is_empty() {
                        return Ok(Sent::Later(self.polled(task)));
                    }
                }
                let asks = QuestionSet::of_json(got)?;
                let mut asks = pending(self.start_over(), self.round + 1, asks, server, true)?;
                asks.task = Some(Box::new(task));
                Ok(Sent::Asks(asks))
            }
            "completed" => Ok(Sent::Done(Done::of_json(Method::Tool, take("result"))?)),
            "failed" => match serde_json::from_value::<ErrorData>(take("error")) {
                Ok(error) => Err(SendError::Refused(error)),
                Err(_) => Err(wrong("its task has failed without an error").into()),
            },
            "cancelled" => Err(SendError::TaskCancelled),
            _ => Err(wrong("its task has no status that this client knows").into()),
        }
    }

    /// The same call without questions: it waits at the server.
    fn polled(&self, task: Task) -> Self {
        let mut polled = self.clone();
        polled.call = self.start_over();
        polled.questions.clear();
        polled.answers.clear();
        polled.task = Some(Box::new(task));
        polled
    }
}

/// The error of a request about a task. One that the server does not know, or no longer, can only be started over.
fn gone(error: ServiceError) -> SendError {
    match error {
        ServiceError::McpError(error) if error.code == rmcp::model::ErrorCode::INVALID_PARAMS => {
            SendError::StateRefused(error)
        }
        other => SendError::of(other, false),
    }
}

fn wrong(why: &str) -> BadServer {
    BadServer::Result { method: "tasks/get", why: why.to_owned() }
}
