//! A server that is written with rmcp alone, and the one line with which it asks every client:
//! `cargo run --example unmodified`.
//!
//! Its handler asks through the peer of the request, as servers did before 2026-07-28. A modern client cannot be asked
//! in this way: rmcp's peer says so, and the handler gives up. Nothing in `Files` changes below, only the line that
//! builds the server.

use rmcp::{
    Peer, RoleServer, ServerHandler, elicit_safe,
    handler::server::router::tool::ToolRouter,
    schemars,
    service::ElicitationError::{UserCancelled, UserDeclined},
    tool, tool_handler, tool_router,
};
use rounds::{
    Rounds,
    test::{Client, accept},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

elicit_safe!(Sure);

#[derive(Clone)]
struct Files {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Files {
    #[tool(description = "Deletes everything, after asking")]
    async fn delete_all(&self, peer: Peer<RoleServer>) -> String {
        match peer.elicit::<Sure>("Delete everything?").await {
            Ok(Some(Sure { sure: true })) => "deleted".to_owned(),
            Ok(_) | Err(UserDeclined | UserCancelled) => "kept".to_owned(),
            // Some servers take this error for a yes.
            Err(_) => "kept, because this client cannot be asked".to_owned(),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Files {}

/// Calls the tool, with a user who agrees if there is a question.
async fn play(who: &str, client: Client) {
    let called = client.call("delete_all", json!({})).await;
    if !called.is_asked() {
        return println!("{who} was not asked: {}", called.text());
    }
    let asked = called.asked();
    println!("{who} was asked: {}", asked.message("sure"));
    let answered = asked.retry().respond("sure", accept(json!({"sure": true}))).send(&client).await;
    println!("{who} gets:      {}", answered.text());
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), rounds::BuildError> {
    let files = Files { tool_router: Files::tool_router() };

    println!("as it is:");
    play("  an old client   ", Client::legacy(files.clone()).await).await;
    play("  a modern client ", Client::modern(files.clone()).await).await;

    // The line. A server would continue with `.serve(rounds::transport::stdio())`.
    let server = Rounds::builder(files).pushes().build()?;

    println!("with one line:");
    play("  an old client   ", Client::legacy(server.clone()).await).await;
    play("  a modern client ", Client::modern(server).await).await;
    Ok(())
}
