//! The tools of the tasks extension: ordinary handlers, which know nothing of tasks but that some refuse clients without them.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    handler::server::wrapper::Parameters,
    model::{CallToolResponse, ClientCapabilities},
    schemars,
    service::RequestContext,
    tool, tool_router,
};
use rounds::{Ask, FlowError, Given, Round, RoundsBuilder, tasks::Tasks, text};
use serde::Deserialize;
use tokio::time::sleep;

use crate::{Conformance, asking::Named};

/// When each tool becomes a task.
pub(crate) fn configured(server: RoundsBuilder<Conformance>) -> RoundsBuilder<Conformance> {
    let at_once = ["slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input"];
    let server = at_once.into_iter().fold(server, |server, tool| server.tasks_for(tool, Tasks::at_once()));
    // It asks in a round, which is quick, and then works for longer.
    server.tasks_for("test_tool_with_task", Tasks::after(WORK / 4))
}

const WORK: Duration = Duration::from_millis(400);

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Work {
    /// How long it takes
    seconds: u64,
    /// What to call it
    #[serde(default)]
    label: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct File {
    /// What to delete
    filename: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Sure {
    confirm: bool,
}

#[tool_router(router = task_tools, vis = "pub(crate)")]
impl Conformance {
    #[tool(description = "Greets, at once")]
    async fn greet(&self, Parameters(Named { name }): Parameters<Named>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(description = "Takes its time")]
    async fn slow_compute(
        &self,
        Parameters(Work { seconds, label }): Parameters<Work>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        tokio::select! {
            () = context.ct.cancelled() => Err(ErrorData::internal_error("It was cancelled.", None)),
            () = sleep(Duration::from_secs(seconds)) => Ok(format!("Computed {label}.")),
        }
    }

    #[tool(description = "Fails, as a task")]
    async fn failing_job(&self, context: RequestContext<RoleServer>) -> Result<String, FlowError> {
        needs_tasks(&context)?;
        Err(FlowError::failed("It failed."))
    }

    #[tool(description = "Breaks, as a task")]
    async fn protocol_error_job(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        needs_tasks(&context)?;
        Err(ErrorData::internal_error("It broke.", None))
    }

    #[tool(description = "Deletes nothing, after a task has asked")]
    async fn confirm_delete(
        &self,
        Parameters(File { filename }): Parameters<File>,
        ask: Ask,
        context: RequestContext<RoleServer>,
    ) -> Result<String, FlowError> {
        needs_tasks(&context)?;
        let answer = ask.confirm(format!("Delete {filename}?")).await?;
        Ok(format!("{filename}: {answer}"))
    }

    #[tool(description = "Asks for two things at once, as a task")]
    async fn multi_input(&self, ask: Ask, context: RequestContext<RoleServer>) -> Result<String, FlowError> {
        needs_tasks(&context)?;
        let (first, second) = tokio::join!(
            ask.form::<Sure>("The first?").key("first").into_future(),
            ask.form::<Sure>("The second?").key("second").into_future(),
        );
        Ok(format!("{} and {}", first?.confirm, second?.confirm))
    }

    #[tool(description = "Asks in a round, and goes on as a task")]
    async fn test_tool_with_task(
        &self,
        round: Round,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, FlowError> {
        needs_tasks(&context)?;
        match round.given::<Named>("user_name") {
            Given::Accepted(Named { name }) => {
                sleep(WORK).await;
                Ok(text(format!("Hello, {name}!")))
            }
            Given::Declined | Given::Cancelled => Ok(text("Hello, stranger!")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Named>("user_name", "What is your name?"),
        }
    }
}

fn needs_tasks(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks()) {
        return Ok(());
    }
    let required = ClientCapabilities::builder().enable_tasks().build();
    Err(ErrorData::missing_required_client_capability(required))
}
