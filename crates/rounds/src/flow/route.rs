//! Routed legs: a leg that landed where its handler does not wait is handed to the instance where it does, and the reply comes
//! back.
//!
//! Four messages, each sealed and addressed: an errand goes there, signs of life and then a report come back, and a cancelled leg
//! sends a cancellation after its errand.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, GetPromptRequestParams, InputResponses, ReadResourceRequestParams,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::leg;
use crate::{
    error::FlowError,
    relay::{Relay, RelayError},
    rounds::Core,
    seal::{
        envelope::{Binding, Method},
        message,
    },
};

/// How often the owner says that it is still at it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(700);

/// After how long without a sign the owner counts as gone.
const SILENCE: Duration = Duration::from_secs(2);

/// A leg, as it is handed to another instance.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    pub(super) binding: Binding,
    pub(super) over_http: bool,
    /// The capabilities that the client declared, as JSON.
    capabilities: String,
    pub(super) state: String,
    /// The answers, as JSON.
    answers: String,
}

impl Errand {
    pub(super) fn new(
        binding: Binding,
        over_http: bool,
        capabilities: &ClientCapabilities,
        state: &str,
        answers: &InputResponses,
    ) -> Self {
        let json = |value: serde_json::Result<String>| value.expect("what came as JSON can be written as JSON");
        Self {
            binding,
            over_http,
            capabilities: json(serde_json::to_string(capabilities)),
            state: state.to_owned(),
            answers: json(serde_json::to_string(answers)),
        }
    }

    pub(super) fn capabilities(&self) -> ClientCapabilities {
        serde_json::from_str(&self.capabilities).unwrap_or_default()
    }

    pub(super) fn answers(&self) -> InputResponses {
        serde_json::from_str(&self.answers).unwrap_or_default()
    }
}

/// Names an errand: 128 random bits.
type Id = [u8; 16];

/// What one instance says to another.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    id: Id,
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
enum Body {
    Errand {
        from: String,
        errand: Box<Errand>,
    },
    AtIt,
    /// The reply, as a ledger keeps it.
    Report(Vec<u8>),
    Cancel,
}

/// What is under way between this instance and others.
#[derive(Default)]
pub(crate) struct Routes {
    /// Errands that were sent, and where what comes of them goes.
    sent: Mutex<HashMap<Id, mpsc::UnboundedSender<Body>>>,
    /// Errands that were taken, and how to cancel them.
    taken: Mutex<HashMap<Id, CancellationToken>>,
}

impl Routes {
    fn sent(&self) -> MutexGuard<'_, HashMap<Id, mpsc::UnboundedSender<Body>>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Id, CancellationToken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an errand.
pub(super) enum Routed {
    /// The reply, as a ledger keeps it.
    Reply(Vec<u8>),
    /// The owner is gone, or silent for too long.
    Gone,
    Cancelled,
}

/// Hands a leg to the instance where its handler waits.
pub(super) async fn hand(
    core: &Arc<Core>,
    relay: &Arc<dyn Relay>,
    owner: &str,
    errand: Errand,
    leg_token: &CancellationToken,
) -> Result<Routed, FlowError> {
    let id = *core.new_flow().as_bytes();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    core.routes.sent().insert(id, sender);
    let _forget = Forget { core, id };
    let body = Body::Errand { from: relay.here().to_owned(), errand: Box::new(errand) };
    if !post(core, relay, owner, id, body).await.map_err(FlowError::retry)? {
        return Ok(Routed::Gone);
    }
    loop {
        tokio::select! {
            biased;
            said = receiver.recv() => match said {
                Some(Body::Report(reply)) => return Ok(Routed::Reply(reply)),
                Some(_) => {}
                None => return Ok(Routed::Gone),
            },
            () = leg_token.cancelled() => {
                // One that does not arrive costs the owner the rest of the leg, and nobody else anything.
                let _ = post(core, relay, owner, id, Body::Cancel).await;
                return Ok(Routed::Cancelled);
            }
            () = core.clock.sleep(SILENCE) => return Ok(Routed::Gone),
        }
    }
}

/// Forgets an errand when its leg is over, however it ended.
struct Forget<'a> {
    core: &'a Core,
    id: Id,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.core.routes.sent().remove(&self.id);
    }
}

async fn post(core: &Core, relay: &Arc<dyn Relay>, to: &str, id: Id, body: Body) -> Result<bool, RelayError> {
    let plaintext =
        postcard::to_stdvec(&Message { id, body }).expect("a message has no type that postcard cannot write");
    let sealed = message::seal(&core.message_keys(), core.new_nonce(), to, &plaintext);
    relay.post(to, sealed).await
}

/// Takes a message that came for this instance.
pub(crate) fn deliver(core: &Arc<Core>, sealed: &[u8]) {
    let Some(relay) = &core.relay else { return };
    let opened = message::open(&core.message_keys(), relay.here(), sealed);
    let message = match opened.map(|plaintext| postcard::from_bytes::<Message>(&plaintext)) {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => {
            return tracing::warn!(target: "rounds", %error, "a message of an instance with another version was dropped");
        }
        Err(error) => {
            return tracing::warn!(target: "rounds", %error, "a message that no instance of this fleet sent was dropped");
        }
    };
    match message.body {
        Body::Errand { from, errand } => {
            tokio::spawn(take(core.clone(), relay.clone(), message.id, from, errand));
        }
        Body::Cancel => {
            if let Some(token) = core.routes.taken().get(&message.id) {
                token.cancel();
            }
        }
        said => {
            if let Some(waiting) = core.routes.sent().get(&message.id) {
                let _ = waiting.send(said);
            }
        }
    }
}

/// Plays another instance's leg here, and reports.
async fn take(core: Arc<Core>, relay: Arc<dyn Relay>, id: Id, from: String, errand: Box<Errand>) {
    let token = CancellationToken::new();
    match core.routes.taken().entry(id) {
        // It came twice. Who cancels it means the one that is at work.
        Entry::Occupied(_) => return,
        Entry::Vacant(free) => free.insert(token.clone()),
    };
    let taken = Taken { core: &core, id };
    let played = async {
        match errand.binding.method {
            Method::Tool => leg::play_errand::<CallToolRequestParams>(&core, *errand, token).await,
            Method::Prompt => leg::play_errand::<GetPromptRequestParams>(&core, *errand, token).await,
            Method::Resource => leg::play_errand::<ReadResourceRequestParams>(&core, *errand, token).await,
        }
    };
    tokio::pin!(played);
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut played => break reply,
            () = core.clock.sleep(SIGN_OF_LIFE) => {
                // Whoever hears none gives up by itself.
                let _ = post(&core, &relay, &from, id, Body::AtIt).await;
            }
        }
    };
    drop(taken);
    if let Some(reply) = reply {
        let _ = post(&core, &relay, &from, id, Body::Report(reply)).await;
    }
}

/// Forgets an errand that was taken when it is over, however it ended.
struct Taken<'a> {
    core: &'a Core,
    id: Id,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.core.routes.taken().remove(&self.id);
    }
}
