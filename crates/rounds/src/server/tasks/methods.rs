//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{GetTaskResult, UpdateTaskParams},
    service::RequestContext,
};

use super::{
    TaskService,
    call::{Player, abort, caller},
    record::Stage,
    require_declared,
    table::{Entry, is_ours},
};
use crate::server::engine::core::Core;

impl TaskService {
    /// Whether a task with this id could be one of ours.
    pub(crate) fn is_ours(id: &str) -> bool {
        is_ours(id)
    }

    /// The present state of the task.
    pub(crate) fn get(
        &self,
        core: &Core,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let entry = self.find(core, id, context)?;
        Ok(entry.look(|record| record.got(id, entry.status.get(), core.now())))
    }

    /// Cancels the task, unless it has ended. A handler that runs is told to stop, and may still end.
    pub(crate) fn cancel(&self, core: &Core, id: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let entry = self.find(core, id, context)?;
        entry.cancel.cancel();
        let (now, keep) = (core.now(), core.lifetimes.round);
        let waited = self.table.change(core, &entry, |record| {
            let Stage::Asking(asking) = &record.stage else { return None };
            let state = asking.state.clone();
            record.end(Stage::Cancelled, now, keep);
            Some(state)
        });
        if let Ok(Some(state)) = waited {
            abort(core, Some(&state));
        }
        Ok(())
    }

    /// The task with this id, if the caller may see it and it is not over.
    fn find(&self, core: &Core, id: &str, context: &RequestContext<RoleServer>) -> Result<Arc<Entry>, ErrorData> {
        require_declared(context)?;
        let (now, keep) = (core.now(), core.lifetimes.round);
        let entry = self.table.find(id).filter(|entry| entry.owner == caller(core, context)).ok_or_else(unknown)?;
        if entry.look(|record| record.is_over(now)) {
            self.table.remove(&entry);
            return Err(unknown());
        }
        if entry.look(|record| record.is_late(now)) {
            // A failure takes less than the questions that it replaces.
            let _ = self.table.change(core, &entry, |record| record.expire(now, keep));
        }
        Ok(entry)
    }
}

impl<H: ServerHandler> Player<H> {
    /// Takes answers to the questions of a task. Those to other questions are ignored.
    pub(crate) fn update(
        self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let entry = self.tasks.find(&self.core, &request.task_id, &context)?;
        let now = self.core.now();
        let answered =
            self.tasks.table.change(&self.core, &entry, |record| record.answer(request.input_responses, now));
        let next = answered.map_err(|full| ErrorData::internal_error(full.to_string(), None))?;
        if let Some(leg) = next {
            self.go_on(entry, leg, context);
        }
        Ok(())
    }
}

/// What is said of an id that is unknown, another caller's, or expired.
pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params("Unknown or expired task", None)
}
