//! Two rounds: the second question depends on the answer to the first. The answers travel sealed with the client, so
//! any instance can continue.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, schemars, tool, tool_router};
use rounds::{FlowError, Given, Round, text};
use serde::Deserialize;

use crate::Gallery;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct WorkItem {
    /// The number of the work item
    work_item_id: u32,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
enum Resolution {
    Fixed,
    #[serde(rename = "Won't Fix")]
    WontFix,
    Duplicate,
    #[serde(rename = "By Design")]
    ByDesign,
}

#[tool_router(router = basic_multiround_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Resolves a work item, asking how, and of a duplicate of which one")]
    async fn resolve_work_item(
        &self,
        Parameters(WorkItem { work_item_id }): Parameters<WorkItem>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        let unresolved = || Ok(text(format!("#{work_item_id} is left as it is.")));
        let resolution = match round.given("resolution") {
            Given::Accepted(Resolution::Duplicate) => match round.given::<u32>("duplicate_of") {
                Given::Accepted(other) => format!("Duplicate of #{other}"),
                Given::Declined | Given::Cancelled => return unresolved(),
                Given::Missing | Given::Invalid(_) => {
                    return round.ask_form::<u32>("duplicate_of", format!("What is #{work_item_id} a duplicate of?"));
                }
            },
            Given::Accepted(Resolution::Fixed) => "Fixed".to_owned(),
            Given::Accepted(Resolution::WontFix) => "Won't Fix".to_owned(),
            Given::Accepted(Resolution::ByDesign) => "By Design".to_owned(),
            Given::Declined | Given::Cancelled => return unresolved(),
            Given::Missing | Given::Invalid(_) => {
                return round.ask_form::<Resolution>("resolution", format!("How is #{work_item_id} resolved?"));
            }
        };
        Ok(text(format!("#{work_item_id} resolved as {resolution}.")))
    }
}
