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

use rmcp::model::{CallToolRequestParams, GetPromptRequestParams, InputResponses, ReadResourceRequestParams};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    core::Core,
    leg,
    relay::{Relay, RelayError},
};
use crate::server::{
    policy::{
        capabilities::Capabilities,
        error::{FlowError, with_sources},
        observe::Tracing,
    },
    seal::{
        envelope::{Binding, Method},
        message,
    },
};

/// How often the owner reports that it still works on an errand.
const SIGN_OF_LIFE: Duration = Duration::from_millis(700);

/// After how long without a sign an errand is sent again because it may be lost, and after the last time the owner counts as
/// gone.
const SILENCE: Duration = Duration::from_secs(1);

/// How often in all. An owner whose connection is dead needs a while to know it.
const SENT: u32 = 3;

/// After how long a message that is still being sent is given up.
const SENDING: Duration = Duration::from_secs(2);

/// A leg that is handed to another instance.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    pub(super) binding: Binding,
    pub(super) over_http: bool,
    /// What the client can be asked, as JSON of the capabilities that it has to declare for that. Instances of an earlier version say
    /// all that it declared.
    capabilities: String,
    pub(super) state: String,
    /// The answers, as JSON.
    answers: String,
    /// Where in a trace the leg is.
    pub(super) trace: Option<(String, String)>,
}

impl Errand {
    pub(super) fn new(
        binding: Binding,
        over_http: bool,
        capabilities: Capabilities,
        state: &str,
        answers: &InputResponses,
    ) -> Self {
        let json = |value: serde_json::Result<String>| value.expect("what came as JSON can be written as JSON");
        Self {
            binding,
            over_http,
            capabilities: capabilities.to_json(),
            state: state.to_owned(),
            answers: json(serde_json::to_string(answers)),
            trace: Tracing::here(),
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let declared = serde_json::from_str(&self.capabilities).ok();
        declared.as_ref().and_then(Capabilities::read).unwrap_or_default()
    }

    pub(super) fn answers(&self) -> InputResponses {
        serde_json::from_str(&self.answers).unwrap_or_default()
    }
}

/// Names an errand: 128 random bits.
type Id = [u8; 16];

/// What one instance says to another.
#[derive(Debug, Serialize, Deserialize)]
struct Message<B = Body> {
    id: Id,
    body: B,
}

#[derive(Debug, Serialize, Deserialize)]
enum Body {
    Errand {
        from: String,
        errand: Box<Errand>,
    },
    /// Numbered, so that none counts twice.
    AtIt(u32),
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

    pub(crate) fn taken(&self) -> MutexGuard<'_, HashMap<Id, CancellationToken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an errand.
pub(super) enum Routed {
    /// The reply, as a ledger keeps it.
    Reply(Vec<u8>),
    /// The owner is gone for certain.
    Gone,
    /// Nothing was heard of the owner for too long. Where the relay is away by then, that says nothing about the owner.
    Silent(Option<RelayError>),
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
    let errand = Body::Errand { from: relay.here().to_owned(), errand: Box::new(errand) };
    if !post(core, relay, owner, id, &errand).await.map_err(FlowError::retry)? {
        return Ok(Routed::Gone);
    }
    let (mut signs, mut silence, mut sent) = (0, core.clock.sleep(SILENCE), 1);
    loop {
        tokio::select! {
            biased;
            said = receiver.recv() => match said {
                Some(Body::Report(reply)) => return Ok(Routed::Reply(reply)),
                Some(Body::AtIt(sign)) if sign > signs => {
                    (signs, silence, sent) = (sign, core.clock.sleep(SILENCE), 1);
                }
                Some(_) => {}
                None => return Ok(Routed::Silent(None)),
            },
            () = leg_token.cancelled() => {
                // If it does not arrive, only the owner wastes the rest of the leg.
                let _ = post(core, relay, owner, id, &Body::Cancel).await;
                return Ok(Routed::Cancelled);
            }
            () = &mut silence => {
                if sent == SENT {
                    return Ok(Routed::Silent(None));
                }
                match post(core, relay, owner, id, &errand).await {
                    Ok(true) => (silence, sent) = (core.clock.sleep(SILENCE), sent + 1),
                    Ok(false) => return Ok(Routed::Gone),
                    Err(away) => return Ok(Routed::Silent(Some(away))),
                }
            }
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

/// Posts a message. A relay that does not send it in time counts as away, so no leg waits forever.
async fn post(core: &Core, relay: &Arc<dyn Relay>, to: &str, id: Id, body: &Body) -> Result<bool, RelayError> {
    let plaintext =
        postcard::to_stdvec(&Message { id, body }).expect("a message has no type that postcard cannot write");
    let sealed = message::seal(&core.message_keys(), core.new_nonce(), to, &plaintext);
    tokio::select! {
        biased;
        posted = relay.post(to, sealed) => posted,
        () = core.clock.sleep(SENDING) => Err(RelayError::new("it took too long to send a message")),
    }
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
            // At once, so that a cancellation right behind it finds it. One that arrives twice is taken once.
            if let Some(taken) = Taken::new(core, message.id) {
                tokio::spawn(take(taken, relay.clone(), from, errand));
            }
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
async fn take(taken: Taken, relay: Arc<dyn Relay>, from: String, errand: Box<Errand>) {
    let (core, id, token) = (taken.core.clone(), taken.id, taken.token.clone());
    let played = async {
        match errand.binding.method {
            Method::Tool => leg::play_errand::<CallToolRequestParams>(&core, *errand, token).await,
            Method::Prompt => leg::play_errand::<GetPromptRequestParams>(&core, *errand, token).await,
            Method::Resource => leg::play_errand::<ReadResourceRequestParams>(&core, *errand, token).await,
        }
    };
    // Beside the leg, which a slow relay is not to hold up.
    let signs = async {
        for sign in 1.. {
            core.clock.sleep(SIGN_OF_LIFE).await;
            // An instance that gets none looks for the reply in the ledger.
            let _ = post(&core, &relay, &from, id, &Body::AtIt(sign)).await;
        }
    };
    let reply = tokio::select! {
        biased;
        reply = played => reply,
        () = signs => unreachable!("signs of life go on until they are dropped"),
    };
    if let Some(reply) = reply
        && let Err(error) = post(&core, &relay, &from, id, &Body::Report(reply)).await
    {
        tracing::warn!(target: "rounds", error = with_sources(&error), "a reply could not be reported to the instance where its leg landed");
    }
}

/// An errand that was taken, until it is over, however it ended.
struct Taken {
    core: Arc<Core>,
    id: Id,
    token: CancellationToken,
}

impl Taken {
    /// None when it is under way already.
    fn new(core: &Arc<Core>, id: Id) -> Option<Self> {
        let token = CancellationToken::new();
        match core.routes.taken().entry(id) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(token.clone()),
        };
        Some(Self { core: core.clone(), id, token })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.core.routes.taken().remove(&self.id);
        self.core.draining.may_be_done();
    }
}

/// A message that is read is written and read again as the same. For the fuzz targets.
#[cfg(feature = "test")]
pub(crate) fn fuzz(plaintext: &[u8]) {
    let Ok(message) = postcard::from_bytes::<Message>(plaintext) else { return };
    let written = postcard::to_stdvec(&message).expect("what was read can be written");
    let again = postcard::from_bytes::<Message>(&written).expect("what was written can be read");
    assert_eq!(postcard::to_stdvec(&again), Ok(written));
    if let Body::Errand { errand, .. } = message.body {
        let _ = (errand.capabilities(), errand.answers());
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientCapabilities;
    use serde_json::json;

    use super::*;
    use crate::server::seal::{Digest, golden};

    fn errand(declared: &str) -> Errand {
        let (method, target) = (Method::Tool, "weather".to_owned());
        let binding = Binding { principal: None, method, target, arguments: Digest::of_arguments(None) };
        let capabilities = Capabilities::read(&serde_json::from_str(declared).unwrap()).unwrap();
        Errand::new(binding, true, capabilities, "r1.state", &InputResponses::new())
    }

    const DECLARED: &str = r#"{"experimental":{"a":{"b":1}},"sampling":{"tools":{}},"elicitation":{"url":{}}}"#;

    /// One message of each kind, as the current format has it.
    fn messages() -> [Message; 4] {
        let errand = Body::Errand { from: "a-1".to_owned(), errand: Box::new(errand(DECLARED)) };
        let bodies = [errand, Body::AtIt(3), Body::Report(b"r{}".to_vec()), Body::Cancel];
        bodies.map(|body| Message { id: [7; 16], body })
    }

    fn lines(messages: &[Message]) -> Vec<String> {
        messages.iter().map(|message| golden::hex(&postcard::to_stdvec(message).unwrap())).collect()
    }

    /// A change here is a change of what instances say to each other during a deploy.
    #[test]
    fn both_formats_are_pinned_by_golden_messages() {
        let (previous, current) = (include_str!("golden-1.messages"), include_str!("golden-2.messages"));
        assert_eq!(lines(&messages()), current.lines().collect::<Vec<_>>());
        // The same but for an errand of the previous release, which says all that the client declared.
        let mut before = messages();
        if let Body::Errand { errand, .. } = &mut before[0].body {
            errand.capabilities = DECLARED.to_owned();
        }
        assert_eq!(lines(&before), previous.lines().collect::<Vec<_>>());
        for golden in [previous, current] {
            let read = golden.lines().map(|line| postcard::from_bytes(&golden::bytes(line)).unwrap());
            let read: Vec<Message> = read.collect();
            assert_eq!(lines(&read), golden.lines().collect::<Vec<_>>());
            let Body::Errand { errand: read, .. } = &read[0].body else { panic!("{read:?}") };
            assert_eq!(read.capabilities(), errand(DECLARED).capabilities());
            assert_ne!(read.capabilities(), Capabilities::default());
        }
    }

    #[test]
    fn an_earlier_version_reads_what_the_client_can_be_asked_and_no_more_is_sent() {
        let many: Vec<_> = (0..10_000).map(|n| (n.to_string(), json!({}))).collect();
        let experimental: serde_json::Map<_, _> = many.into_iter().collect();
        let declared = json!({"elicitation": {}, "roots": {"listChanged": true}, "experimental": experimental});
        let sent = postcard::to_stdvec(&errand(&declared.to_string())).unwrap();
        assert!(sent.len() < 256, "{} bytes", sent.len());
        let read: Errand = postcard::from_bytes(&sent).unwrap();
        let read: ClientCapabilities = serde_json::from_str(&read.capabilities).unwrap();
        assert!(read.elicitation.is_some_and(|modes| modes.form.is_some() && modes.url.is_none()));
        assert!(read.roots.is_some() && read.sampling.is_none() && read.experimental.is_none());
    }
}
