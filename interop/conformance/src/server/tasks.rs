//! The tools of the tasks extension. Questions of a task go through `tasks/get` and `tasks/update`, which rmcp
//! implements; questions before a task exists are a round.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    handler::server::wrapper::Parameters,
    model::{
        CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult, ElicitRequest,
        ElicitRequestParams, ElicitationSchema, InputRequest,
    },
    schemars,
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions},
    tool, tool_router,
};
use rounds::{FlowError, Given, Round, text};
use serde::Deserialize;
use tokio::time::sleep;

use crate::{Conformance, asking::Named};

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
    ) -> CallToolResponse {
        let done = format!("Computed {label}.");
        if !takes_tasks(&context) {
            sleep(Duration::from_secs(seconds)).await;
            return text(done);
        }
        self.task(move |task| {
            Box::pin(async move {
                tokio::select! {
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                    () = sleep(Duration::from_secs(seconds)) => Ok(success(done)),
                }
            })
        })
    }

    #[tool(description = "Fails, as a task")]
    async fn failing_job(&self, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        needs_tasks(&context)?;
        Ok(self.task(|_| Box::pin(async { Ok(CallToolResult::error(vec![ContentBlock::text("It failed.")])) })))
    }

    #[tool(description = "Breaks, as a task")]
    async fn protocol_error_job(&self, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        needs_tasks(&context)?;
        let broken = || TaskExit::Error(ErrorData::internal_error("It broke.", None));
        Ok(self.task(move |_| Box::pin(async move { Err(broken()) })))
    }

    #[tool(description = "Deletes nothing, after a task has asked")]
    async fn confirm_delete(
        &self,
        Parameters(File { filename }): Parameters<File>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        needs_tasks(&context)?;
        Ok(self.task(move |task| {
            Box::pin(async move {
                let answer = task.request_input("confirm", confirmation(&format!("Delete {filename}?"))?).await?;
                Ok(success(format!("{filename}: {answer}")))
            })
        }))
    }

    #[tool(description = "Asks for two things at once, as a task")]
    async fn multi_input(&self, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        needs_tasks(&context)?;
        Ok(self.task(|task| {
            Box::pin(async move {
                let (first, second) = tokio::try_join!(
                    task.request_input("first", confirmation("The first?")?),
                    task.request_input("second", confirmation("The second?")?),
                )?;
                Ok(success(format!("{first} and {second}")))
            })
        }))
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
                Ok(self.task(move |_| Box::pin(async move { Ok(success(format!("Hello, {name}!"))) })))
            }
            Given::Declined | Given::Cancelled => Ok(text("Hello, stranger!")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Named>("user_name", "What is your name?"),
        }
    }
}

impl Conformance {
    fn task(&self, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
        CreateTaskResult::new(self.tasks.spawn(TaskOptions::new().with_poll_interval_ms(50), work)).into()
    }
}

fn takes_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

fn needs_tasks(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if takes_tasks(context) {
        return Ok(());
    }
    let required = ClientCapabilities::builder().enable_tasks().build();
    Err(ErrorData::missing_required_client_capability(required))
}

fn confirmation(message: &str) -> Result<InputRequest, ErrorData> {
    let schema = ElicitationSchema::builder().required_bool("confirm").build();
    Ok(InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: schema.map_err(|error| ErrorData::internal_error(error, None))?,
    })))
}

fn success(words: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(words)])
}
