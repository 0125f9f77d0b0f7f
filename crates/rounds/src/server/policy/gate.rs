//! The capability gate: a question is sent only to a client that declared in this request that it can answer it.

use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitationCapability, InputRequest, InputRequests, RequestMetaObject,
    RootsCapabilities, SamplingCapability, UrlElicitationCapability,
};
use rmcp::{RoleServer, service::RequestContext};
use serde_json::Value;

use super::{
    capabilities::Capabilities,
    elsewhere::{PosedElsewhere, are_elsewhere},
    error::FlowError,
};
use crate::server::seal::envelope::{AskedKey, QuestionKind};
pub(crate) use crate::shared::kind::Era;

impl Era {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        let [version, _] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
        // Reads what `RequestContext::protocol_version` reads, without a copy for clients that send it with each
        // request.
        match context.meta.get(version).and_then(Value::as_str) {
            Some(version) => Self::of_version(version),
            None => context.protocol_version().map_or(Self::Legacy, |version| Self::of_version(version.as_str())),
        }
    }
}

/// The peer of a leg: the era it speaks, and the kinds of question it can answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) era: Era,
    pub(crate) capabilities: Capabilities,
    /// Whether a request of our own would reach it. False for a modern peer, which never gets one.
    pub(crate) back_channel: bool,
}

impl Peer {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        let era = Era::of(context);
        let capabilities = match era {
            Era::Modern => {
                let [_, declared] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
                let read = context.meta.get(declared).and_then(Capabilities::read);
                // Falls back to rmcp, which has other sources of capabilities and accepts other forms, such as lists for objects.
                read.or_else(|| context.client_capabilities().as_ref().map(Capabilities::from))
            }
            // Capabilities in a legacy client's request do not count: a push that the client did not declare at
            // `initialize` hangs.
            Era::Legacy => context.peer.peer_info().map(|info| (&info.capabilities).into()),
        };
        let back_channel = era == Era::Legacy && !is_stateless_http(context);
        Self { era, capabilities: capabilities.unwrap_or_default(), back_channel }
    }

    /// Whether this kind of question may be sent.
    pub(crate) fn can(&self, kind: QuestionKind) -> bool {
        self.capabilities.can(kind)
    }

    /// Whether this question may be sent or pushed to this peer, and if not, why not.
    pub(crate) fn permits(&self, kind: QuestionKind, request: &InputRequest) -> Result<(), FlowError> {
        if kind == QuestionKind::Elsewhere {
            // Its answer does not come through this client.
            return Ok(());
        }
        if self.era == Era::Legacy && !self.back_channel {
            return Err(FlowError::NoBackChannel);
        }
        let tools = matches!(request, InputRequest::CreateMessage(request) if uses_tools(&request.params));
        if self.can(kind) && (!tools || self.capabilities.can_use_tools()) {
            return Ok(());
        }
        Err(FlowError::MissingCapability { required: Box::new(required(kind, tools)) })
    }

    /// Lists the questions as they were asked, or fails with the capabilities that the client would have to declare.
    pub(crate) fn admit<'a>(&self, requests: &'a InputRequests) -> Result<Vec<AskedKey<&'a str>>, FlowError> {
        let elsewhere = are_elsewhere(requests);
        if self.era == Era::Legacy && !elsewhere {
            return Err(FlowError::LegacyClient);
        }
        requests
            .iter()
            .map(|(key, request)| {
                let kind = if elsewhere { QuestionKind::Elsewhere } else { kind_of(request)? };
                self.permits(kind, request)?;
                Ok(AskedKey { key: key.as_str(), kind })
            })
            .collect()
    }
}

#[cfg(feature = "http")]
fn is_stateless_http(context: &RequestContext<RoleServer>) -> bool {
    let parts = context.extensions.get::<http::request::Parts>();
    parts.is_some_and(|parts| !parts.headers.contains_key("mcp-session-id"))
}

#[cfg(not(feature = "http"))]
fn is_stateless_http(_context: &RequestContext<RoleServer>) -> bool {
    false
}

pub(crate) fn kind_of(request: &InputRequest) -> Result<QuestionKind, FlowError> {
    Ok(match request {
        InputRequest::CreateMessage(_) => QuestionKind::Sample,
        InputRequest::ListRoots(_) => QuestionKind::Roots,
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams { .. } => QuestionKind::Form,
            ElicitRequestParams::UrlElicitationParams { .. }
                if request.extensions.get::<PosedElsewhere>().is_some() =>
            {
                QuestionKind::Elsewhere
            }
            ElicitRequestParams::UrlElicitationParams { .. } => QuestionKind::Url,
            _ => return Err(FlowError::failed("this version of rounds cannot ask in this elicitation mode")),
        },
        _ => return Err(FlowError::failed("this version of rounds cannot ask this kind of question")),
    })
}

#[expect(deprecated, reason = "sampling is deprecated and still has to be gated")]
fn uses_tools(params: &rmcp::model::CreateMessageRequestParams) -> bool {
    params.tools.is_some() || params.tool_choice.is_some()
}

pub(crate) fn required(kind: QuestionKind, tools: bool) -> ClientCapabilities {
    let mut required = ClientCapabilities::default();
    match kind {
        QuestionKind::Form => required.elicitation = Some(ElicitationCapability::new()),
        QuestionKind::Url | QuestionKind::Elsewhere => {
            required.elicitation = Some(ElicitationCapability::new().with_url(UrlElicitationCapability::new()));
        }
        QuestionKind::Sample => {
            let mut sampling = SamplingCapability::default();
            sampling.tools = tools.then(Default::default);
            required.sampling = Some(sampling);
        }
        QuestionKind::Roots => required.roots = Some(RootsCapabilities::default()),
    }
    required
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn peer(capabilities: Value) -> Peer {
        Peer { era: Era::Modern, capabilities: Capabilities::read(&capabilities).unwrap(), back_channel: false }
    }

    fn asks(request: Value) -> InputRequests {
        InputRequests::from([("key".to_owned(), serde_json::from_value(request).unwrap())])
    }

    #[test]
    fn a_question_goes_only_to_a_client_that_declared_its_kind_and_mode() {
        let form = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}});
        let url = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x", "elicitationId": "1"}});
        let sample = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
        let tools =
            json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "tools": []}});
        let roots = json!({"method": "roots/list"});
        for (declared, admitted) in [
            (json!({}), vec![]),
            (json!({"elicitation": {}}), vec![&form]),
            (json!({"elicitation": {"form": {}}}), vec![&form]),
            (json!({"elicitation": {"url": {}}}), vec![&url]),
            (json!({"elicitation": {"form": {}, "url": {}}}), vec![&form, &url]),
            (json!({"sampling": {}}), vec![&sample]),
            (json!({"sampling": {"tools": {}}}), vec![&sample, &tools]),
            (json!({"roots": {}}), vec![&roots]),
        ] {
            for ask in [&form, &url, &sample, &tools, &roots] {
                let asks = asks(ask.clone());
                let outcome = peer(declared.clone()).admit(&asks);
                assert_eq!(outcome.is_ok(), admitted.contains(&ask), "{declared} asked {ask}");
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (ask, required) in [
            (
                json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}}),
                json!({"elicitation": {}}),
            ),
            (
                json!({"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x", "elicitationId": "1"}}),
                json!({"elicitation": {"url": {}}}),
            ),
            (
                json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "tools": []}}),
                json!({"sampling": {"tools": {}}}),
            ),
            (json!({"method": "roots/list"}), json!({"roots": {}})),
        ] {
            let refused: rmcp::ErrorData = peer(json!({})).admit(&asks(ask)).unwrap_err().into();
            assert_eq!(refused.code.0, -32021);
            assert_eq!(refused.data, Some(json!({"requiredCapabilities": required})));
        }
    }
}
