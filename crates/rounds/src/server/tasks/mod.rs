//! Tasks: the same handler behind a handle that is polled (the extension `io.modelcontextprotocol/tasks`).
//!
//! A task is a client of our own legs that runs inside the server. It sends the first leg; when a leg asks, it keeps the
//! state and shows the questions to `tasks/get`; when `tasks/update` has brought every answer, it sends the next leg. What
//! a leg promises (claims, single use, effects, the journal) therefore holds for tasks without a line of its own, in every
//! shape. The engine does not know this folder.

mod call;
mod methods;
mod record;
mod run;
mod store;
mod sweep;
mod table;

pub(crate) use self::call::{Called, Player, is_brief, promise};

use std::{collections::HashMap, sync::atomic::AtomicBool, time::Duration};

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, ClientCapabilities, RequestMetaObject, TASKS_EXTENSION_ID},
    service::RequestContext,
};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::{run::Runs, table::Table};
use super::policy::gate::Era;

/// When a tool call becomes a task. Only calls whose own request declares the extension `io.modelcontextprotocol/tasks`
/// do; to all others this setting makes no difference.
///
/// ```
/// use std::time::Duration;
/// use rmcp::ServerHandler;
/// use rounds::{Rounds, tasks::Tasks};
///
/// struct Shop;
/// impl ServerHandler for Shop {}
///
/// let server = Rounds::builder(Shop)
///     .tasks(Tasks::after(Duration::from_secs(20)))   // a call that takes longer is polled
///     .tasks_for("book_flight", Tasks::at_once())     // from its beginning
///     .tasks_for("weather", Tasks::never())
///     .build()?;
/// # Ok::<(), rounds::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tasks {
    after: Option<Duration>,
}

impl Tasks {
    /// Never: every call is answered with its result or its questions. This is the default.
    pub const fn never() -> Self {
        Self { after: None }
    }

    /// From the beginning: the task is created before the handler runs, and every question goes through it.
    pub const fn at_once() -> Self {
        Self::after(Duration::ZERO)
    }

    /// After this time. A leg that ends earlier is answered as without tasks, with its result or its questions. A leg
    /// that takes longer is answered with a task; its handler runs on undisturbed. The time counts for each leg.
    pub const fn after(time: Duration) -> Self {
        Self { after: Some(time) }
    }
}

/// The tasks of one server: when calls become one, and those that exist.
pub(crate) struct TaskService {
    default: Tasks,
    by_tool: HashMap<String, Tasks>,
    table: Table,
    runs: Runs,
    /// Whether tasks whose run is lost are looked for, and what ends that with the server.
    sweeps: AtomicBool,
    over: CancellationToken,
    _ends: DropGuard,
}

impl TaskService {
    /// None if no call ever becomes a task.
    pub(crate) fn new(default: Tasks, by_tool: HashMap<String, Tasks>) -> Option<Self> {
        let some = by_tool.values().chain([&default]).any(|tasks| *tasks != Tasks::never());
        some.then(|| {
            let over = CancellationToken::new();
            let (sweeps, _ends) = (AtomicBool::new(false), over.clone().drop_guard());
            Self { default, by_tool, table: Table::default(), runs: Runs::default(), sweeps, over, _ends }
        })
    }

    /// After how long this call becomes a task, if it may.
    pub(crate) fn offers(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Option<Duration> {
        let after = self.by_tool.get(&*request.name).unwrap_or(&self.default).after?;
        declares(context).then_some(after)
    }
}

/// Whether this request itself declares the extension. What a client said at `initialize` does not count.
fn declares(context: &RequestContext<RoleServer>) -> bool {
    let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    let extension = context.meta.get(declared).and_then(|declared| declared.get("extensions")?.get(TASKS_EXTENSION_ID));
    extension.is_some_and(Value::is_object) && Era::of(context) == Era::Modern
}

/// Refuses a request that does not declare the extension.
pub(crate) fn require_declared(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match declares(context) {
        true => Ok(()),
        false => {
            Err(ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tasks_has_no_service_for_them() {
        assert!(TaskService::new(Tasks::default(), HashMap::new()).is_none());
        assert!(TaskService::new(Tasks::never(), HashMap::from([("a".to_owned(), Tasks::never())])).is_none());
        assert!(TaskService::new(Tasks::never(), HashMap::from([("a".to_owned(), Tasks::at_once())])).is_some());
        assert_eq!(Tasks::at_once(), Tasks::after(Duration::ZERO));
    }
}
