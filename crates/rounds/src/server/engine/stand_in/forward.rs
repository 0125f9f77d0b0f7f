//! What a handler requests of its client and no round can ask: it goes to the real peer unchanged.

use rmcp::{
    ErrorData, RoleServer, ServiceError,
    model::{ClientResult, JsonRpcMessage, RequestId, ServerRequest},
    service::{PeerRequestOptions, RxJsonRpcMessage},
};
use tokio::sync::oneshot;

use crate::server::engine::link::Link;

/// A handler has given up on a request.
pub(super) struct Withdrawal {
    pub(super) reason: Option<String>,
}

/// Sends a request to the client of the leg in flight and waits for the response, or until the request is withdrawn.
pub(super) async fn request(
    link: Option<Link>,
    request: ServerRequest,
    withdrawn: oneshot::Receiver<Withdrawal>,
) -> Result<ClientResult, ServiceError> {
    let Some(link) = link else { return Err(ServiceError::TransportClosed) };
    let mut handle = link.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    tokio::select! {
        response = &mut handle.rx => response.unwrap_or(Err(ServiceError::TransportClosed)),
        Ok(Withdrawal { reason }) = withdrawn => {
            handle.cancel(reason.clone()).await?;
            Err(ServiceError::Cancelled { reason })
        }
    }
}

/// The response as the stand-in's peer takes it.
pub(super) fn message(response: Result<ClientResult, ServiceError>, id: RequestId) -> RxJsonRpcMessage<RoleServer> {
    match response {
        Ok(result) => JsonRpcMessage::response(result, id),
        Err(ServiceError::McpError(error)) => JsonRpcMessage::error(error, Some(id)),
        Err(error) => {
            let text = format!(
                "the request did not reach the client: {error}; send it while a request of the client is in flight"
            );
            JsonRpcMessage::error(ErrorData::internal_error(text, None), Some(id))
        }
    }
}
