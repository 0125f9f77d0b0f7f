//! What the stand-in says of its client: what the request in flight declares.

use rmcp::{
    ErrorData, Peer, RoleServer, ServiceError,
    model::{ClientCapabilities, Implementation, InitializeRequestParams, ProtocolVersion, RequestMetaObject},
    service::{RequestContext, ServiceRole as _},
};

use crate::server::{
    engine::{frame::Frame, weight},
    policy::capabilities::Capabilities,
};

/// The capabilities that the stand-in declares just now.
pub(super) struct DeclaredClient {
    declared: Capabilities,
    bytes: usize,
}

impl DeclaredClient {
    /// The client of a request, and what rmcp is told of it.
    ///
    /// rmcp refuses requests to a peer that speaks 2026-07-28, so the stand-in speaks the version before. The handler reads the
    /// client's version from the request.
    pub(super) fn of(context: &mut RequestContext<RoleServer>, frame: &Frame) -> (Self, InitializeRequestParams) {
        let [version, capabilities] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
        if !context.meta.contains_key(version)
            && let Some(version) = context.protocol_version()
        {
            context.meta.set_protocol_version(version);
        }
        let bytes = context.meta.get(capabilities).map_or(0, weight::of);
        let info = InitializeRequestParams::new(
            context.client_capabilities().unwrap_or_default(),
            context.client_info().unwrap_or_else(|| Implementation::new("unknown", "")),
        );
        let declared = frame.with_peer(|peer| peer.capabilities);
        (Self { declared, bytes }, info.with_protocol_version(ProtocolVersion::V_2025_11_25))
    }

    /// Declares what the leg in flight declares, where that is something else than before.
    pub(super) fn follow(&mut self, frame: &Frame, peer: &Peer<RoleServer>) {
        let declared = frame.with_peer(|peer| peer.capabilities);
        if std::mem::replace(&mut self.declared, declared) == declared {
            return;
        }
        let (Some(info), Ok(capabilities)) = (peer.peer_info(), serde_json::from_str(&declared.to_json())) else {
            return;
        };
        let client_info = info.client_info.clone();
        let info = InitializeRequestParams::new(capabilities, client_info);
        peer.set_peer_info(info.with_protocol_version(ProtocolVersion::V_2025_11_25));
        self.bytes = 0;
    }

    /// What it takes of memory that a client has chosen, about.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The error with which rmcp itself fails a request to a modern client.
pub(super) fn refusal() -> Option<ErrorData> {
    let info = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("unknown", ""));
    match RoleServer::enforce_outbound_request(Some(&info.with_protocol_version(ProtocolVersion::V_2026_07_28))) {
        Err(ServiceError::McpError(error)) => Some(error),
        _ => None,
    }
}
