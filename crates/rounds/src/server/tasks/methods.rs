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
use crate::{
    server::{policy::principal::Principal, seal::Digest},
    shared::clock::Timestamp,
};

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
        let message = self.tasks.runs.find(key).and_then(|live| live.leg.message());
        self.find(key, &context, |record, now| record.got(id, message.clone(), now)).await
    }

    /// Takes answers to the questions of a task. Those to other questions are ignored.
    pub(crate) async fn update(
        self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let key = Digest::of_task(&request.task_id);
        self.find(key, &context, |_, _| ()).await?;
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
        self.find(key, &context, |_, _| ()).await?;
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

    /// Looks at the task, if the caller may see it and it is not over. If its run is lost, it goes on here.
    async fn find<T>(
        &self,
        key: TaskKey,
        context: &RequestContext<RoleServer>,
        look: impl Fn(&Record, Timestamp) -> T,
    ) -> Result<T, ErrorData> {
        require_declared(context)?;
        self.sweep_from_now_on(context);
        let (now, caller) = (self.core.now(), caller(&self.core, context));
        let owner = caller.as_ref().map(Principal::digest);
        let found = self.tasks.look(&self.core, key, |record| {
            if record.owner != owner {
                Found::Foreign
            } else if record.is_over(now) {
                Found::Over
            } else if record.needs_care(now) {
                Found::NeedsCare
            } else {
                Found::Seen(look(record, now))
            }
        });
        match found.await? {
            Found::Seen(seen) => Ok(seen),
            Found::Foreign => Err(unknown()),
            Found::Over => {
                self.tasks.table.remove(key);
                Err(unknown())
            }
            Found::NeedsCare => {
                self.care_for(key, context.clone()).await?;
                let now = self.core.now();
                Ok(self.tasks.look(&self.core, key, |record| look(record, now)).await?)
            }
        }
    }
}

/// What a request finds under the id of a task.
enum Found<T> {
    Seen(T),
    Foreign,
    Over,
    NeedsCare,
}

/// What is said of an id that is unknown, another caller's, or expired.
pub(crate) fn unknown() -> ErrorData {
    ErrorData::invalid_params("Unknown or expired task", None)
}
