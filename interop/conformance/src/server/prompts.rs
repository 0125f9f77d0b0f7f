//! The prompts, one of which asks.

use rmcp::{
    ErrorData,
    handler::server::wrapper::Parameters,
    model::{ContentBlock, PromptMessage, ResourceContents, Role},
    prompt, prompt_router, schemars,
};
use rounds::{Given, Round, prompt::PromptResponse};
use serde::Deserialize;

use crate::{Conformance, content::PNG};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Arguments {
    /// First test argument
    arg1: String,
    /// Second test argument
    arg2: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Embedded {
    /// URI of the resource to embed
    resource_uri: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Context {
    context: String,
}

#[prompt_router(vis = "pub(crate)")]
impl Conformance {
    #[prompt(description = "A prompt that asks what it is about")]
    async fn test_input_required_result_prompt(
        &self,
        round: Round<PromptResponse>,
    ) -> Result<PromptResponse, ErrorData> {
        let context = match round.given::<Context>("user_context") {
            Given::Accepted(Context { context }) => context,
            Given::Declined | Given::Cancelled => "anything".to_owned(),
            Given::Missing | Given::Invalid(_) => {
                return Ok(round.ask_form::<Context>("user_context", "What context should the prompt use?")?);
            }
        };
        Ok(vec![said(format!("Talk about {context}."))].into())
    }

    #[prompt(description = "A text")]
    async fn test_simple_prompt(&self) -> Vec<PromptMessage> {
        vec![said("This is a simple prompt for testing.")]
    }

    #[prompt(description = "A text with two arguments in it")]
    async fn test_prompt_with_arguments(
        &self,
        Parameters(Arguments { arg1, arg2 }): Parameters<Arguments>,
    ) -> Vec<PromptMessage> {
        vec![said(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
    }

    #[prompt(description = "A resource and a text")]
    async fn test_prompt_with_embedded_resource(
        &self,
        Parameters(Embedded { resource_uri }): Parameters<Embedded>,
    ) -> Vec<PromptMessage> {
        let resource = ResourceContents::text("Embedded resource content for testing.", resource_uri);
        vec![
            PromptMessage::new(Role::User, ContentBlock::resource(resource.with_mime_type("text/plain"))),
            said("Please process the embedded resource above."),
        ]
    }

    #[prompt(description = "An image and a text")]
    async fn test_prompt_with_image(&self) -> Vec<PromptMessage> {
        vec![
            PromptMessage::new(Role::User, ContentBlock::image(PNG, "image/png")),
            said("Please analyze the image above."),
        ]
    }
}

fn said(words: impl Into<String>) -> PromptMessage {
    PromptMessage::new_text(Role::User, words.into())
}
