//! The return type of a prompt that is called again for each round.

use rmcp::{
    ErrorData,
    handler::server::prompt::IntoGetPromptResult,
    model::{GetPromptResponse, GetPromptResult, InputRequiredResult, PromptMessage},
};

/// The return type of a `#[prompt]` method with a [`Round`](crate::Round): messages, or questions.
///
/// rmcp's macro accepts a method that always returns messages or always returns questions. This type can be either.
///
/// ```
/// use rmcp::{ErrorData, model::{PromptMessage, Role}, prompt, prompt_router};
/// use rounds::{Given, prompt::PromptResponse, Round};
///
/// struct Planner;
///
/// #[prompt_router]
/// impl Planner {
///     #[prompt(description = "Plan a day, at a pace that is asked for")]
///     async fn plan_day(&self, round: Round<PromptResponse>) -> Result<PromptResponse, ErrorData> {
///         let pace = match round.given::<String>("pace") {
///             Given::Accepted(pace) => pace,
///             Given::Declined | Given::Cancelled => "leisurely".to_owned(),
///             Given::Missing | Given::Invalid(_) => return Ok(round.ask_form::<String>("pace", "At what pace?")?),
///         };
///         Ok(vec![PromptMessage::new_text(Role::User, format!("Plan a day at a {pace} pace."))].into())
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PromptResponse(GetPromptResponse);

impl From<Vec<PromptMessage>> for PromptResponse {
    fn from(messages: Vec<PromptMessage>) -> Self {
        GetPromptResult::new(messages).into()
    }
}

impl From<GetPromptResult> for PromptResponse {
    fn from(result: GetPromptResult) -> Self {
        Self(result.into())
    }
}

impl From<InputRequiredResult> for PromptResponse {
    fn from(asks: InputRequiredResult) -> Self {
        Self(asks.into())
    }
}

impl IntoGetPromptResult for PromptResponse {
    fn into_get_prompt_result(self) -> Result<GetPromptResponse, ErrorData> {
        Ok(self.0)
    }
}
