//! Lists that change when a tool is called, and their subscribers.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use rmcp::{service::SubscriptionContext, tool, tool_router};
use tokio::sync::broadcast;

use crate::Conformance;

#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

/// Notifies every subscriber of every change.
#[derive(Debug)]
pub(crate) struct Changes {
    changes: broadcast::Sender<Change>,
    /// Subscriptions that are accepted and not running yet. rmcp acknowledges a subscription before it runs it, and
    /// changes in between must not be missed.
    accepted: Mutex<VecDeque<broadcast::Receiver<Change>>>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { changes: broadcast::Sender::new(16), accepted: Mutex::default() }
    }
}

impl Changes {
    /// Subscribes for a client that is about to be accepted. All subscribers get the same notifications.
    pub(crate) fn accept(&self) {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.changes.subscribe());
    }

    /// Notifies one subscriber, until it has disconnected.
    pub(crate) async fn tell(&self, listener: &SubscriptionContext) {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let mut changes = accepted.unwrap_or_else(|| self.changes.subscribe());
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
        // Fails only if there are no subscribers.
        let _ = self.changes.send(change);
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
