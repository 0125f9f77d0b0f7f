//! Questions that are answered elsewhere: what a leg adds to them before they leave, and whose answers it takes.

use rmcp::{
    RoleServer,
    model::{ElicitRequestParams, InputRequest, InputRequests, InputResponses},
    service::RequestContext,
};

use super::Leg;
use crate::{
    server::{
        engine::{
            core::Core,
            elsewhere::{Decisions, keys_elsewhere},
            exchange::Exchange,
            frame::Frame,
        },
        policy::{
            elsewhere::{AskingElsewhere, PosedElsewhere, are_elsewhere, leave_elsewhere},
            error::FlowError,
        },
        seal::{
            envelope::{AskedKey, Envelope},
            page,
        },
    },
    shared::clock::Timestamp,
};

/// The state that a request brings, if it opens and is bound to this request.
pub(crate) fn peek<X: Exchange>(
    core: &std::sync::Arc<Core>,
    request: &mut X,
    context: &RequestContext<RoleServer>,
) -> Option<Box<Envelope>> {
    let state = request.state().clone()?;
    Leg::new(core, request, context).open(&state).ok()
}

impl Leg<'_> {
    /// The answers to questions that are answered elsewhere are the decisions, and never what the client sent.
    pub(super) fn take_decisions(
        &self,
        envelope: &Envelope,
        sent: &mut InputResponses,
        context: &RequestContext<RoleServer>,
    ) {
        let mut elsewhere = keys_elsewhere(&envelope.asked).peekable();
        if elsewhere.peek().is_none() {
            return;
        }
        let decisions = context.extensions.get::<Decisions>().and_then(|decisions| decisions.of(envelope));
        for key in elsewhere {
            match decisions.and_then(|decisions| decisions.get(key)) {
                Some(answer) => sent.insert(key.to_owned(), answer.clone()),
                None => sent.remove(key),
            };
        }
    }

    /// The decisions that this leg goes on with.
    pub(super) fn decisions(&self, envelope: &Envelope, context: &RequestContext<RoleServer>) -> Option<Decisions> {
        context.extensions.get::<Decisions>().filter(|decisions| decisions.of(envelope).is_some()).cloned()
    }

    /// Takes away the decisions that do not count, now that the round is claimed with the digest of all of them.
    pub(super) fn leave_void(&self, sent: &mut InputResponses, decisions: Option<&Decisions>) {
        if let Some(decisions) = decisions {
            sent.retain(|key, _| !decisions.is_void(key));
        }
    }

    /// Finds the decisions of this round that the handler did not take, because it asked something else than what was
    /// shown. The people who made them are told before the reply is recorded, and the record of the flow says so.
    pub(super) async fn tell_unlike(
        &self,
        asked: &[AskedKey],
        decisions: Option<&Decisions>,
        recorded: Option<&mut InputResponses>,
        frame: &Frame,
    ) {
        let Some(decisions) = decisions else { return };
        let is_unlike = |key: &&str| decisions.is_void(key) || frame.found_unlike(key);
        let unlike: Vec<_> = keys_elsewhere(asked).filter(is_unlike).map(str::to_owned).collect();
        if unlike.is_empty() {
            return;
        }
        let answers = recorded.into_iter().flatten().filter(|(key, _)| unlike.contains(key));
        for answer in answers.filter_map(|(_, answer)| answer.as_object_mut()) {
            answer.insert("void".to_owned(), true.into());
        }
        decisions.tell_unlike(unlike).await;
    }

    /// Prepares the questions that are answered elsewhere: they have a round of their own, and say until when they wait and
    /// where they are shown. Returns until when the last of them waits, if there are some.
    pub(super) fn place_elsewhere(
        &self,
        requests: &mut InputRequests,
        frame: &Frame,
    ) -> Result<Option<Timestamp>, FlowError> {
        leave_elsewhere(requests);
        if !are_elsewhere(requests) {
            return Ok(None);
        }
        let asking = self.core.elsewhere.as_ref().ok_or(FlowError::NotElsewhere)?;
        let (now, flow, round) = (self.core.now(), self.round.claim_id().flow, self.round.next().number);
        let mut last = now;
        for (key, request) in requests.iter_mut() {
            let posed = PosedElsewhere::of_mut(request).ok_or(FlowError::NotElsewhere)?;
            let within = posed.within.unwrap_or_else(|| frame.round_lifetime());
            let until = posed.until.unwrap_or(now + within).min(now + AskingElsewhere::LONGEST);
            posed.until = Some(until);
            last = last.max(until);
            self.fits(posed, frame)?;
            let address = match &posed.page {
                Some(page) => {
                    let question = (flow, round, key.clone());
                    page.replace("{name}", &page::name(&self.core.record_keys(), self.core.new_nonce(), &question))
                }
                None => asking.address(flow, key).unwrap_or_default(),
            };
            show_at(request, address, format!("{flow}-{round}-{key}"));
        }
        Ok(Some(last))
    }

    /// A question that is recorded only in part cannot be shown.
    fn fits(&self, posed: &PosedElsewhere, frame: &Frame) -> Result<(), FlowError> {
        let limit = self.core.limits.record_bytes / 2;
        let question = serde_json::to_vec(posed).map_or(usize::MAX, |json| json.len());
        let bytes = question.saturating_add(frame.arguments.as_ref().map_or(0, |arguments| arguments.len()));
        if bytes > limit { Err(FlowError::StateTooLarge { bytes, limit }) } else { Ok(()) }
    }
}

fn show_at(request: &mut InputRequest, address: String, id: String) {
    if let InputRequest::Elicitation(request) = request
        && let ElicitRequestParams::UrlElicitationParams { url, elicitation_id, .. } = &mut request.params
    {
        (*url, *elicitation_id) = (address, id);
    }
}
