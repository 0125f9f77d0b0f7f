//! The tools that ask legacy clients. They are linear handlers like others: how a client is asked is not their concern.

#![expect(deprecated, reason = "the suite asks for samples, which SEP-2577 deprecates")]

use rmcp::{handler::server::wrapper::Parameters, schemars, tool, tool_router};
use rounds::{Answer, Ask, FlowError};
use serde::{Deserialize, Serialize};

use crate::{
    Conformance,
    asking::{prompt, said},
};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Prompted {
    /// The prompt for the client's model
    prompt: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Messaged {
    /// The message to show the user
    message: String,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
struct Contact {
    /// User's response
    username: String,
    /// User's email address
    email: String,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
struct Defaults {
    #[serde(default = "Defaults::name")]
    name: String,
    #[serde(default = "Defaults::age")]
    age: i64,
    #[serde(default = "Defaults::score")]
    score: f64,
    #[serde(default)]
    status: Status,
    #[serde(default = "Defaults::verified")]
    verified: bool,
}

impl Defaults {
    fn name() -> String {
        "John Doe".to_owned()
    }

    fn age() -> i64 {
        30
    }

    fn score() -> f64 {
        95.5
    }

    fn verified() -> bool {
        true
    }
}

#[derive(Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    #[default]
    Active,
    Inactive,
    Pending,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Enums {
    untitled_single: Plain,
    titled_single: Titled,
    #[schemars(extend("enumNames" = ["Option One", "Option Two", "Option Three"]))]
    legacy_enum: Legacy,
    untitled_multi: Vec<Plain>,
    titled_multi: Vec<Titled>,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Plain {
    Option1,
    Option2,
    Option3,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Titled {
    /// First Option
    Value1,
    /// Second Option
    Value2,
    /// Third Option
    Value3,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Legacy {
    Opt1,
    Opt2,
    Opt3,
}

#[tool_router(router = legacy_tools, vis = "pub(crate)")]
impl Conformance {
    #[tool(description = "Asks the client's model")]
    async fn test_sampling(
        &self,
        Parameters(Prompted { prompt: words }): Parameters<Prompted>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        let answer = ask.sample(prompt(&words, 100)).await?;
        Ok(format!("LLM response: {}", said(&answer)))
    }

    #[tool(description = "Asks the user for contact details")]
    async fn test_elicitation(
        &self,
        Parameters(Messaged { message }): Parameters<Messaged>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        Ok(format!("User response: {}", told(ask.form::<Contact>(message).answer().await?)))
    }

    #[tool(description = "Asks with a default for every kind of field")]
    async fn test_elicitation_sep1034_defaults(&self, ask: Ask) -> Result<String, FlowError> {
        let answer = ask.form::<Defaults>("Please review the defaults").answer().await?;
        Ok(format!("Elicitation completed: {}", told(answer)))
    }

    #[tool(description = "Asks with every kind of enum")]
    async fn test_elicitation_sep1330_enums(&self, ask: Ask) -> Result<String, FlowError> {
        let answer = ask.form::<Enums>("Please choose").answer().await?;
        Ok(format!("Elicitation completed: {}", told(answer)))
    }
}

fn told<T: Serialize>(answer: Answer<T>) -> String {
    match answer {
        Answer::Accepted(content) => {
            let content = serde_json::to_string(&content).unwrap_or_else(|error| error.to_string());
            format!("action=accept, content={content}")
        }
        Answer::Declined => "action=decline, content={}".to_owned(),
        Answer::Cancelled => "action=cancel, content={}".to_owned(),
    }
}
