//! The smallest handler that asks: a function.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse, ServerCapabilities, ServerConfig},
    schemars,
    service::RequestContext,
};
use rounds::{Ask, FlowError, asked::FixedQuestion};
use serde::{Deserialize, Serialize};

/// A server whose every tool is this function.
pub struct Tool<F>(pub F);

impl<F, Fut> ServerHandler for Tool<F>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ask = Ask::from_context(&context)?;
        drop(context);
        (self.0)(ask).await.into_call_tool_result()
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

// What most tests ask for. (A doc comment would become part of the question.)
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it, and a comment would become part of the question")]
pub enum Units {
    Metric,
    Imperial,
}

impl FixedQuestion for Units {
    const MESSAGE: &'static str = "Which units?";
}

/// Asks for units and returns the answer.
pub async fn units(ask: Ask) -> Result<String, FlowError> {
    let units: Units = ask.form("Which units?").await?;
    Ok(format!("{units:?}"))
}
