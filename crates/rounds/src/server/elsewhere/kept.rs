//! Calls whose client no longer waits: the state of one is kept with its flow, so that it goes on by itself, and under a
//! reference, with which `flow_result` fetches the outcome.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, Tool},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    server::{
        engine::core::Core,
        flows::{Flows, FlowsError},
        ledger::documents::{DocumentChange, DocumentId, DocumentKind, Version},
        policy::principal::Principal,
        seal::{Digest, FlowId, envelope::Envelope},
    },
    shared::clock::Timestamp,
};

/// The name of the tool that fetches the outcome.
pub(crate) const RESULT_TOOL: &str = "flow_result";

/// The longest reference that is looked for.
const LONGEST: usize = 64;

/// How often a call is written again if another instance has changed it meanwhile.
const WRITES: usize = 16;

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
    /// The id of its flow in the register.
    pub(super) flow: FlowId,
    /// The round that waits for decisions.
    pub(super) round: u32,
    tool: String,
    arguments: Option<JsonObject>,
    state: String,
    /// What its client declared when it called.
    pub(super) capabilities: Value,
    /// The name of its principal, for a leg that is played without a request of its.
    pub(super) caller: Option<String>,
    principal: Option<Digest>,
    until: Timestamp,
    stage: Stage,
}

/// Where a call stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Its questions were not all decided, or no leg has gone on with the decisions.
    Waits,
    /// A leg has gone on. The ledger has its reply: questions for the client, or a result too large to be kept here.
    Replied,
    Completed(Value),
    Failed(ErrorData),
}

impl Kept {
    pub(super) fn new(
        call: &CallToolRequestParams,
        state: String,
        envelope: &Envelope,
        caller: Option<&Principal>,
        capabilities: Value,
    ) -> Self {
        Self {
            flow: envelope.flow.in_ledger(),
            round: envelope.round,
            tool: call.name.to_string(),
            arguments: call.arguments.clone(),
            state,
            capabilities,
            caller: caller.map(|caller| caller.as_str().to_owned()),
            principal: caller.map(Principal::digest),
            until: envelope.span.remembered_until(),
            stage: Stage::Waits,
        }
    }

    /// The request of its next leg.
    pub(super) fn request(&self) -> CallToolRequestParams {
        let mut call = CallToolRequestParams::new(self.tool.clone());
        call.arguments.clone_from(&self.arguments);
        call.request_state = Some(self.state.clone());
        call
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waits)
    }

    /// What came of it, if that is kept here.
    pub(super) fn outcome(self) -> Option<Result<CallToolResponse, ErrorData>> {
        match self.stage {
            Stage::Completed(result) => {
                serde_json::from_value::<CallToolResult>(result).ok().map(|result| Ok(result.into()))
            }
            Stage::Failed(error) => Some(Err(error)),
            Stage::Waits | Stage::Replied => None,
        }
    }

    /// The call of this flow.
    pub(super) async fn read(flows: &Flows, flow: FlowId) -> Result<Option<(Self, Version)>, FlowsError> {
        Self::read_by(flows, of_flow(flow)).await
    }

    pub(super) async fn read_by(flows: &Flows, id: DocumentId) -> Result<Option<(Self, Version)>, FlowsError> {
        let Some((version, content)) = flows.read_document(id).await? else { return Ok(None) };
        let kept = serde_json::from_slice(&content).map_err(|_| FlowsError::UnreadableDocument)?;
        Ok(Some((kept, version)))
    }

    /// Writes it if this is its newest version. `due` is when an instance has to look at it.
    pub(super) async fn write(
        &self,
        core: &Core,
        flows: &Flows,
        before: Option<Version>,
        due: Option<Timestamp>,
    ) -> Result<Option<Version>, FlowsError> {
        let sealed = serde_json::to_vec(self).expect("a call has no type that JSON cannot write");
        let keep = core.keep(self.until, self.principal);
        flows.write_document(of_flow(self.flow), before, DocumentChange { sealed, due, keep, tell: None }).await
    }

    /// Keeps it, unless a later round of its flow is kept. It is due after a lease: if its decisions came before it was kept, they
    /// were not seen.
    pub(super) async fn keep(&self, core: &Core, flows: &Flows) -> Result<(), FlowsError> {
        for _ in 0..WRITES {
            let before = Self::read(flows, self.flow).await?;
            if before.as_ref().is_some_and(|(before, _)| before.round >= self.round) {
                return Ok(());
            }
            let due = core.now() + core.limits.lease;
            if self.write(core, flows, before.map(|(_, version)| version), Some(due)).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Records what came of a leg, unless the call is in a later round by now.
    pub(super) async fn enter(
        mut self,
        core: &Core,
        flows: &Flows,
        stage: Stage,
        due: Option<Timestamp>,
    ) -> Result<(), FlowsError> {
        self.stage = stage;
        if !self.waits() {
            // The outcome can be fetched for as long as the record of an ended flow is kept.
            let end = core.flow_end(core.now());
            self.until = self.until.max(end.now + end.retention);
        }
        for _ in 0..WRITES {
            let Some((now, version)) = Self::read(flows, self.flow).await? else { return Ok(()) };
            let is_over = now.round != self.round || !now.waits();
            if is_over || self.write(core, flows, Some(version), due).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The reference of a call that is kept: a document that leads to its flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reference {
    flow: FlowId,
    principal: Option<Digest>,
    #[serde(skip)]
    pub(super) name: String,
}

impl Reference {
    /// Makes a reference to this call.
    pub(super) async fn make(core: &Core, flows: &Flows, kept: &Kept) -> Result<Self, FlowsError> {
        let name = BASE64_URL_SAFE_NO_PAD.encode(&core.random()[..18]);
        let reference = Self { flow: kept.flow, principal: kept.principal, name };
        let sealed = serde_json::to_vec(&reference).expect("a reference has no type that JSON cannot write");
        let end = core.flow_end(kept.until);
        let keep = core.keep(kept.until + end.retention, kept.principal);
        let change = DocumentChange { sealed, due: None, keep, tell: None };
        flows.write_document(of_reference(&reference.name), None, change).await?;
        Ok(reference)
    }

    /// The call behind this reference, if it is one of this principal's.
    pub(super) async fn find(
        flows: &Flows,
        name: &str,
        principal: Option<Digest>,
    ) -> Result<Option<(Kept, Self)>, FlowsError> {
        if name.len() > LONGEST {
            return Ok(None);
        }
        let Some((_, content)) = flows.read_document(of_reference(name)).await? else { return Ok(None) };
        let Ok(reference) = serde_json::from_slice::<Self>(&content) else { return Ok(None) };
        if reference.principal != principal {
            return Ok(None);
        }
        let kept = Kept::read(flows, reference.flow).await?;
        Ok(kept.map(|(kept, _)| (kept, Self { name: name.to_owned(), ..reference })))
    }
}

fn of_reference(reference: &str) -> DocumentId {
    let key = Digest::of_document("reference", FlowId::from_bytes([0; 16]), reference);
    DocumentId { kind: DocumentKind::Decision, key }
}

fn of_flow(flow: FlowId) -> DocumentId {
    DocumentId { kind: DocumentKind::Call, key: Digest::of_document("call", flow, "") }
}
