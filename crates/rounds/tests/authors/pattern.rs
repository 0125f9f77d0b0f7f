//! A field with a `pattern`, which the protocol's forms do not have.

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool, tool_handler, tool_router};
use rounds::{
    Ask, BuildError, FlowError, Rounds,
    test::{accept, play_in_both_eras},
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Flight {
    /// The flight
    #[schemars(regex(pattern = "^[A-Z]{2}[0-9]+$"))]
    flight: String,
}

/// The pattern cannot be checked: expressions have no look-around.
#[derive(Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct Unaskable {
    #[schemars(extend("pattern" = "^(?!LX)"))]
    flight: String,
}

pub(crate) struct Airline {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Airline {
    #[tool]
    async fn rebook(&self, ask: Ask) -> Result<String, FlowError> {
        let Flight { flight } = ask.form("To which flight?").await?;
        Ok(format!("Rebooked to {flight}."))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Airline {}

pub(crate) fn server() -> Rounds<Airline> {
    Rounds::builder(Airline { tool_router: Airline::tool_router() }).asks::<Flight>().build().unwrap()
}

#[tokio::test]
async fn a_pattern_is_told_to_the_user_and_checked_in_both_eras() {
    let answers = [accept(json!({"flight": "14"})), accept(json!({"flight": "LX14"}))];
    let played = play_in_both_eras(&server(), "rebook", json!({}), answers).await;
    let shown = played.question(0).field("flight")["description"].clone();
    assert_eq!(shown, "The flight (must match ^[A-Z]{2}[0-9]+$)", "the user reads the rule before answering");
    assert!(played.question(0).field("flight").get("pattern").is_none());
    assert_eq!(played.messages()[1], "To which flight? (`flight` must match ^[A-Z]{2}[0-9]+$)");
    assert_eq!(played.text(), "Rebooked to LX14.");
}

#[test]
fn a_pattern_that_cannot_be_checked_fails_when_the_server_is_built() {
    let airline = Airline { tool_router: Airline::tool_router() };
    let error = Rounds::builder(airline).asks::<Flight>().asks::<Unaskable>().build().unwrap_err();
    let BuildError::FormType(error) = &error else { panic!("{error}") };
    assert_eq!(error.field(), Some("flight"));
    assert!(error.to_string().contains("Unaskable` cannot be asked for with a form: `flight` has a `pattern`"));
}
