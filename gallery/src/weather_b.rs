//! B, the cautionary tale: an await that does not wait. Do not ship it.
//!
//! The body reads like H. But for a modern client `elicit` does not wait: its `?` throws the question out of the body,
//! and the answer arrives in a second run from the top. By then, everything above the await has run twice for one call,
//! and nothing in the body shows it. For a legacy client it does wait, and everything runs once, so tests with a legacy
//! client do not find the mistake. `rounds` has no such function. This one shows that the mistake takes twenty lines.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{Answer, Ask, Era, FlowError, Given, Round, form::FormType, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_b_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (a thrown question: do not write it like this)")]
    async fn weather_b(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
        ask: Ask,
    ) -> Result<CallToolResponse, FlowError> {
        let body = async {
            self.audit.record("weather_b");
            Ok(match elicit::<Units>(&round, &ask, "units", "Which units?").await? {
                Answer::Accepted(units) => report(&place, units),
                Answer::Declined => "Cancelled (decline).".to_owned(),
                Answer::Cancelled => "Cancelled (cancel).".to_owned(),
            })
        };
        match body.await {
            Ok(outcome) => Ok(text(outcome)),
            Err(Thrown::Question(question)) => question,
            Err(Thrown::Error(error)) => Err(error),
        }
    }
}

enum Thrown {
    Question(Result<CallToolResponse, FlowError>),
    Error(FlowError),
}

async fn elicit<T: FormType>(round: &Round, ask: &Ask, key: &str, message: &str) -> Result<Answer<T>, Thrown> {
    if round.era() == Era::Legacy {
        return ask.form(message).key(key).answer().await.map_err(Thrown::Error);
    }
    match round.given(key) {
        Given::Accepted(value) => Ok(Answer::Accepted(value)),
        Given::Declined => Ok(Answer::Declined),
        Given::Cancelled => Ok(Answer::Cancelled),
        Given::Missing | Given::Invalid(_) => Err(Thrown::Question(round.ask_form::<T>(key, message))),
    }
}
