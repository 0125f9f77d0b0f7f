//! A prompt and a resource template that ask: a question can answer any of the three methods.

#![expect(missing_docs, reason = "rmcp's prompt macro generates a public function without documentation")]

use rmcp::{
    ErrorData, RoleServer,
    model::{PromptMessage, ReadResourceResult, ResourceContents, Role},
    prompt, prompt_router,
    service::RequestContext,
};
use rounds::Ask;

use crate::{Gallery, Place, Units, report};

/// Prefix of a forecast's URI, which the place follows.
const FORECAST: &str = "weather://forecast/";

#[prompt_router(vis = "pub(crate)")]
impl Gallery {
    #[prompt(name = "plan_day", description = "Plan a day, at a pace that is asked for")]
    async fn plan_day(&self, ask: Ask) -> Result<Vec<PromptMessage>, ErrorData> {
        let pace: String = ask.form("At what pace?").key("pace").await?;
        Ok(vec![PromptMessage::new_text(Role::User, format!("Plan a day for me, at a {pace} pace."))])
    }
}

impl Gallery {
    /// The resource template `weather://forecast/{location}`, which asks for units.
    pub(crate) async fn forecast(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let Some(location) = uri.strip_prefix(FORECAST).filter(|location| !location.is_empty()) else {
            return Err(ErrorData::resource_not_found(format!("no such resource: {uri}"), None));
        };
        let place = Place { location: location.to_owned() };
        let units: Units = Ask::from_context(context)?.form("Which units?").await?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(report(&place, units), uri)]))
    }
}
