//! A tool that tells its client how far it is, as often as it is told to, on bare rmcp.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProgressNotificationParam,
        ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use serde_json::Value;

#[derive(Clone)]
pub(super) struct Steps;

impl ServerHandler for Steps {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let steps = request.arguments.as_ref().and_then(|arguments| arguments.get("steps")).and_then(Value::as_u64);
        let steps = u32::try_from(steps.unwrap_or_default()).unwrap_or_default();
        if let Some(token) = context.meta.get_progress_token() {
            for step in 0..steps {
                let mut progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
                progress.total = Some(f64::from(steps));
                progress.message = Some(format!("step {step} of {steps}"));
                let told = context.peer.notify_progress(progress).await;
                told.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            }
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}
