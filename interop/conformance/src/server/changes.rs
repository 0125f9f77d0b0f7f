//! Lists that change when a tool is told to change them, and those who listen for it.

use rmcp::{service::SubscriptionContext, tool, tool_router};
use tokio::sync::broadcast;

use crate::Conformance;

#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

/// Tells every listener of every change.
#[derive(Debug)]
pub(crate) struct Changes(broadcast::Sender<Change>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::Sender::new(16))
    }
}

impl Changes {
    /// Tells one listener, until it has gone.
    pub(crate) async fn tell(&self, listener: &SubscriptionContext) {
        let mut changes = self.0.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = listener.cancelled() => return,
            };
            let told = match change {
                Ok(Change::Tools) if listener.accepted().tools_list_changed == Some(true) => {
                    listener.sink().notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if listener.accepted().prompts_list_changed == Some(true) => {
                    listener.sink().notify_prompt_list_changed().await
                }
                Err(broadcast::error::RecvError::Closed) => return,
                _ => Ok(()),
            };
            if told.is_err() {
                return;
            }
        }
    }

    fn announce(&self, change: Change) {
        // Without listeners there is nobody to tell.
        let _ = self.0.send(change);
    }
}

#[tool_router(router = change_tools, vis = "pub(crate)")]
impl Conformance {
    #[tool(description = "Says that the list of tools has changed")]
    async fn test_trigger_tool_change(&self) -> String {
        self.changes.announce(Change::Tools);
        "Told.".to_owned()
    }

    #[tool(description = "Says that the list of prompts has changed")]
    async fn test_trigger_prompt_change(&self) -> String {
        self.changes.announce(Change::Prompts);
        "Told.".to_owned()
    }
}
