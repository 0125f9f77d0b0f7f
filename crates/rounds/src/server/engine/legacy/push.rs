//! The push: a question to a client of the legacy era, as a request of our own over the live connection.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rmcp::{
    Peer, RoleServer, ServiceError,
    model::{CancelledNotificationParam, InputRequest, RequestId, ServerRequest},
    service::PeerRequestOptions,
};

use crate::{
    server::{
        engine::{answer::Received, link::Link},
        policy::error::FlowError,
        seal::envelope::QuestionKind,
    },
    shared::{clock::Clock, order},
};

/// How often a client that gave a progress token is told that we are still waiting, so that its own clock does not run
/// out while a person thinks.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// One question to be pushed.
pub(crate) struct Push {
    pub(crate) link: Link,
    pub(crate) kind: QuestionKind,
    pub(crate) request: InputRequest,
    /// How long to wait for the answer.
    pub(crate) patience: Duration,
    pub(crate) message: Arc<str>,
}

impl Push {
    /// Pushes the question and waits for the answer. Dropped before that, it tells the client not to bother.
    ///
    /// To be polled in the task in which rmcp handles the request: that is how it knows which request this one belongs to.
    pub(crate) async fn send(mut self, clock: Arc<dyn Clock>) -> Result<Received, FlowError> {
        let peer = &self.link.peer;
        let failed = |error| FlowError::ClientFailed(Box::new(error));
        let options = PeerRequestOptions::no_options();
        order::say_fields(&mut self.request);
        let sent = peer.send_request_with_option(as_server_request(self.request), options).await;
        let mut handle = sent.map_err(failed)?;
        let mut withdraw = Withdraw { peer: peer.clone(), request: Some(handle.id.clone()) };
        let response = async {
            let response = (&mut handle.rx).await;
            response.unwrap_or(Err(ServiceError::TransportClosed))
        };
        let response = tokio::select! {
            biased;
            response = response => response,
            () = clock.sleep(self.patience) => return Err(FlowError::NotInTime { question: self.message.to_string() }),
            () = signs_of_life(&self.link, &*clock) => unreachable!("signs of life go on until they are dropped"),
        };
        withdraw.request = None;
        let answer = serde_json::to_value(response.map_err(failed)?).unwrap_or_default();
        Ok(Received::read(self.kind, Cow::Owned(answer)))
    }
}

async fn signs_of_life(link: &Link, clock: &dyn Clock) {
    loop {
        clock.sleep(SIGN_OF_LIFE).await;
        link.sign_of_life("Waiting for an answer").await;
    }
}

/// Tells the client, when dropped, that a question need not be answered any more.
struct Withdraw {
    peer: Peer<RoleServer>,
    request: Option<RequestId>,
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the question was withdrawn".to_owned());
            // A client that is gone need not be told.
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(request), reason)).await;
        });
    }
}

fn as_server_request(request: InputRequest) -> ServerRequest {
    match request {
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
        // Made by this crate, which makes none but these.
        _ => unreachable!("a question is an elicitation, a sampling or a roots request"),
    }
}
