//! A confirmation: only an accepted "yes" counts as consent.

use rmcp::{handler::server::wrapper::Parameters, schemars, tool, tool_router};
use rounds::{Ask, FlowError};
use serde::Deserialize;

use crate::Gallery;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Deployment {
    /// Where to
    env: String,
}

#[tool_router(router = deploy_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Deploys, after asking whether to")]
    async fn deploy(
        &self,
        Parameters(Deployment { env }): Parameters<Deployment>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        if ask.confirm(format!("Deploy to {env}?")).await? {
            Ok(format!("deployed to {env}"))
        } else {
            Ok(format!("deployment to {env} cancelled"))
        }
    }
}
