//! Calls whose client no longer waits: their state is kept under a reference, with which `flow_result` goes on.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rmcp::model::{CallToolRequestParams, JsonObject, Tool};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    server::{
        engine::core::Core,
        flows::{Flows, FlowsError},
        ledger::documents::{DocumentChange, DocumentId, DocumentKind, Version},
        seal::{Digest, FlowId},
    },
    shared::clock::Timestamp,
};

/// The name of the tool that fetches the outcome.
pub(crate) const RESULT_TOOL: &str = "flow_result";

/// The longest reference that is looked for.
const LONGEST: usize = 64;

/// The listed form of that tool.
pub(crate) fn result_tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"reference": {"type": "string", "description": "The reference that the call ended with"}},
        "required": ["reference"],
    });
    let schema = schema.as_object().cloned().unwrap_or_default();
    Tool::new(
        RESULT_TOOL,
        "The outcome of an earlier call that waits for a decision elsewhere, by the reference that the call ended with",
        schema,
    )
}

/// A call that is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    tool: String,
    arguments: Option<JsonObject>,
    pub(super) state: String,
    principal: Option<Digest>,
    until: Timestamp,
}

impl Kept {
    pub(super) fn new(
        call: &CallToolRequestParams,
        state: String,
        principal: Option<Digest>,
        until: Timestamp,
    ) -> Self {
        Self { tool: call.name.to_string(), arguments: call.arguments.clone(), state, principal, until }
    }

    /// The call that it is, without its state.
    pub(super) fn call(&self) -> CallToolRequestParams {
        let mut call = CallToolRequestParams::new(self.tool.clone());
        call.arguments.clone_from(&self.arguments);
        call
    }

    /// Keeps it under this reference, which it has or gets.
    pub(super) async fn keep(
        &self,
        core: &Core,
        flows: &Flows,
        reference: Option<&Reference>,
    ) -> Result<Reference, FlowsError> {
        let (name, before) = match reference {
            Some(reference) => (reference.name.clone(), Some(reference.version)),
            None => (BASE64_URL_SAFE_NO_PAD.encode(&core.random()[..18]), None),
        };
        let sealed = serde_json::to_vec(self).expect("a call has no type that JSON cannot write");
        let keep = core.keep(self.until, self.principal);
        let written = flows.write_document(id(&name), before, DocumentChange { sealed, due: None, keep, tell: None });
        // Another request with the same reference may have been first: then it has kept the same.
        let version = written.await?.or(before);
        Ok(Reference { version: version.unwrap_or(Version { number: 0, bytes: 0 }), name })
    }

    /// The call that is kept under this reference, if it is one of this principal's.
    pub(super) async fn find(
        flows: &Flows,
        name: &str,
        principal: Option<Digest>,
    ) -> Result<Option<(Self, Reference)>, FlowsError> {
        if name.len() > LONGEST {
            return Ok(None);
        }
        let Some((version, content)) = flows.read_document(id(name)).await? else { return Ok(None) };
        let kept: Option<Self> = serde_json::from_slice(&content).ok();
        let kept = kept.filter(|kept| kept.principal == principal);
        Ok(kept.map(|kept| (kept, Reference { name: name.to_owned(), version })))
    }
}

/// The reference of a call that is kept.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) name: String,
    version: Version,
}

fn id(reference: &str) -> DocumentId {
    let key = Digest::of_document("kept", FlowId::from_bytes([0; 16]), reference);
    DocumentId { kind: DocumentKind::Decision, key }
}
