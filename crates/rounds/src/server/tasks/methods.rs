//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{GetTaskResult, UpdateTaskParams},
    service::RequestContext,
};

use super::{
    TaskService,
    call::{Player, caller},
    record::{Answered, Record},
    require_declared,
    table::{TaskKey, is_ours},
};
use crate::server::{policy::principal::Principal, seal::Digest};

impl TaskService {
    /// Whether a task with this id could be one of ours.
    pub(crate) fn is_ours(id: &str) -> bool {
        is_ours(id)
    }
}

impl<H: ServerHandler> Player<H> {
    /// The present state of the task.
    pub(crate) async fn get(self, id: &str, context: RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        let key = Digest::of_task(id);
        let record = self.find(key, &context).await?;
        let message = self.tasks.runs.find(key).and_then(|live| live.status.get());
        Ok(record.got(id, message, self.core.now()))
    }

    /// Takes answers to the questions of a task. Those to other questions are ignored.
    pub(crate) async fn update(
        self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let key = Digest::of_task(&request.task_id);
        self.find(key, &context).await?;
        let (now, run) = (self.core.now(), self.new_run());
        let answered = self.tasks.change(&self.core, key, |record| {
            let answered = record.answer(&request.input_responses, now)?;
            record.run.clone_from(&run.lease);
            Some((answered, record.clone()))
        });
        if let Some((Answered::Goes(leg), record)) = answered.await? {
            self.go_on(key, run, &record, &leg, context);
        }
        Ok(())
    }

    /// Cancels the task, unless it has ended. A handler that runs is told to stop, and may still end.
    pub(crate) async fn cancel(self, id: &str, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let key = Digest::of_task(id);
        self.find(key, &context).await?;
        let (now, keep) = (self.core.now(), self.core.lifetimes.round);
        let waited = self.tasks.change(&self.core, key, |record| record.cancel(now, keep)).await?;
        if let Some(live) = self.tasks.runs.find(key) {
            live.cancel.cancel();
        }
        if let Some(Some(state)) = waited {
            self.abort(Some(&state)).await;
        }
        Ok(())
    }

    /// The task, if the caller may see it and it is not over. If its run is lost, it goes on here.
    async fn find(&self, key: TaskKey, context: &RequestContext<RoleServer>) -> Result<Record, ErrorData> {
        require_declared(context)?;
        self.sweep_from_now_on(context);
        let now = self.core.now();
        let record = self.tasks.read(&self.core, key).await?;
        if record.owner != caller(&self.core, context).as_ref().map(Principal::digest) {
            return Err(unknown());
        }
        if record.is_over(now) {
            self.tasks.table.remove(key);
            return Err(unknown());
        }
        if !record.needs_care(now) {
            return Ok(record);
        }
        self.care_for(key, context.clone()).await?;
        Ok(self.tasks.read(&self.core, key).await?)
    }
}

/// What is said of an id that is unknown, another caller's, or expired.
pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params("Unknown or expired task", None)
}
