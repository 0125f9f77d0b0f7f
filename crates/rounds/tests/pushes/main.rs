//! Handlers that are written with rmcp alone and ask through `context.peer`: with `.pushes()`, modern clients are asked too.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod answers;
mod asking;
mod attack;
mod notifying;
mod rmcp_client;
mod routed;
mod services;
mod together;
mod withdrawing;

use std::future::Future;

use rmcp::{
    ErrorData, RoleServer, ServerHandler, elicit_safe,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
        GetPromptResponse, GetPromptResult, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, ResourceContents, Role, ServerCapabilities, ServerConfig,
    },
    schemars,
    service::RequestContext,
};
use rounds::{Rounds, RoundsBuilder};
use rounds_testkit::Stage;
use serde::{Deserialize, Serialize};

/// A server that knows nothing of this library. Every tool, prompt and resource is this function.
struct Old<F>(F);

impl<F, Fut> ServerHandler for Old<F>
where
    F: Fn(RequestContext<RoleServer>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ErrorData>> + Send + 'static,
{
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text((self.0)(context).await?)]).into())
    }

    async fn get_prompt(
        &self,
        _request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, (self.0)(context).await?)]).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text((self.0)(context).await?, request.uri)]).into())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build())
    }
}

/// A stage with `.pushes()`.
fn stage<F, Fut>(handler: F) -> Stage<Old<F>>
where
    F: Fn(RequestContext<RoleServer>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ErrorData>> + Send + 'static,
{
    stage_with(handler, |builder| builder)
}

/// A stage with `.pushes()` and other settings.
fn stage_with<F, Fut>(
    handler: F,
    configure: impl FnOnce(RoundsBuilder<Old<F>>) -> RoundsBuilder<Old<F>>,
) -> Stage<Old<F>>
where
    F: Fn(RequestContext<RoleServer>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ErrorData>> + Send + 'static,
{
    Stage::with(Old(handler), |builder| configure(builder.pushes()))
}

/// A server without the setting.
fn without<F, Fut>(handler: F) -> Rounds<Old<F>>
where
    F: Fn(RequestContext<RoleServer>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ErrorData>> + Send + 'static,
{
    Rounds::new(Old(handler))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
struct Why {
    why: String,
}

elicit_safe!(Sure, Why);

/// Asks whether, then why.
async fn delete_all(context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
    use rmcp::service::ElicitationError::{UserCancelled, UserDeclined};
    let failed = |error: rmcp::service::ElicitationError| ErrorData::internal_error(error.to_string(), None);
    match context.peer.elicit::<Sure>("Delete everything?").await {
        Ok(Some(Sure { sure: true })) => {}
        Ok(_) | Err(UserDeclined | UserCancelled) => return Ok("kept".to_owned()),
        Err(error) => return Err(failed(error)),
    }
    let why = context.peer.elicit::<Why>("Why?").await.map_err(failed)?;
    Ok(format!("deleted, because {}", why.map(|why| why.why).unwrap_or_default()))
}
