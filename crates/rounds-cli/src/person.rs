//! A user of rmcp's own client who gives the same answer to every question.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, Implementation},
    service::RequestContext,
};
use serde_json::Value;

pub(crate) struct Person {
    answer: Value,
    said: Said,
}

/// The questions and answers so far.
#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<(String, Value)>>>);

impl Person {
    /// A person with this answer, and the record of what is asked.
    pub(crate) fn who_answers(answer: Value) -> (Self, Said) {
        let said = Said::default();
        (Self { answer, said: said.clone() }, said)
    }
}

impl ClientHandler for Person {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            // Only forms are declared, so no other question arrives.
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        self.said.add(message, self.answer.clone());
        serde_json::from_value(self.answer.clone())
            .map_err(|error| ErrorData::internal_error(format!("the configured answer is not valid: {error}"), None))
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rounds-tour", env!("CARGO_PKG_VERSION")))
    }
}

impl Said {
    /// Questions and their answers, in order.
    pub(crate) fn all(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, question: String, answer: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((question, answer));
    }
}
