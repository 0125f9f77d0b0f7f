//! A tool written with rmcp alone: it asks through the peer, as servers did before 2026-07-28.
//!
//! Nothing in this file knows `rounds`. The line that lets modern clients be asked is where the server is built.

use rmcp::{
    ErrorData, Peer, RoleServer, elicit_safe, schemars,
    service::ElicitationError::{self, UserCancelled, UserDeclined},
    tool, tool_router,
};
use serde::{Deserialize, Serialize};

use crate::Gallery;

// The questions' forms. (A doc comment would become part of the question.)
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
struct Reason {
    why: String,
}

elicit_safe!(Sure, Reason);

#[tool_router(router = old_style_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Deletes everything, after asking twice (written with rmcp alone)")]
    async fn delete_all(&self, peer: Peer<RoleServer>) -> Result<String, ErrorData> {
        let sure = accepted(peer.elicit::<Sure>("Delete everything?").await)?;
        if !sure.is_some_and(|Sure { sure }| sure) {
            return Ok("kept".to_owned());
        }
        let reason = accepted(peer.elicit::<Reason>("Why?").await)?;
        Ok(reason.map_or("kept".to_owned(), |Reason { why }| format!("deleted, because {why}")))
    }
}

/// The accepted answer. None if the user declined or dismissed the question.
fn accepted<T>(answer: Result<Option<T>, ElicitationError>) -> Result<Option<T>, ErrorData> {
    match answer {
        Ok(accepted) => Ok(accepted),
        Err(UserDeclined | UserCancelled) => Ok(None),
        Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
    }
}
