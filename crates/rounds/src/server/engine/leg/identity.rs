//! A first leg with an identity: a client that sends it again continues the same flow and gets the same reply.

use std::sync::Arc;

use rmcp::{ErrorData, RoleServer, ServerHandler, model::InputResponses, service::RequestContext};

use super::{Arrived, Leg, seal::Minted, without_refused_content};
use crate::{
    server::{
        engine::{
            answer::Answers,
            claim::{Acquired, ClaimGuard, acquire},
            effects::{AnsweredRound, Effects},
            exchange::{Exchange, Response},
            frame::Frame,
            reply::Reply,
            stop::{Stop, not_spilled, overtaken, unavailable},
            task::TaskLeg,
        },
        ledger::{ClaimRequest, LedgerError, OwnerLost, Spill},
        policy::{error::FlowError, gate::Era, observe::Station},
        seal::{Digest, FlowId, envelope::Span},
    },
    shared::wire::IDEMPOTENCY_KEY,
};

/// Whether a first leg has an identity.
#[derive(Clone, Copy)]
pub(super) enum Identity {
    None,
    Key,
    /// The key cannot be used, and why. It is refused only if the call asks or can run effects.
    Refused(&'static str),
}

impl Identity {
    /// Why the key cannot be used, if it cannot.
    pub(super) fn refused(self) -> Option<&'static str> {
        match self {
            Self::Refused(why) => Some(why),
            Self::None | Self::Key => None,
        }
    }
}

/// The longest key in bytes.
const LONGEST: usize = 255;

const TOO_LONG: &str =
    "the idempotency key is empty, longer than 255 bytes, or not text: send 22 or more random characters of base64url";
const TOO_WEAK: &str = "the idempotency key of a caller without a principal is the only secret of the call: send at least 128 random \
                        bits, as 22 characters of base64url or 32 hexadecimal digits";
const OTHER_ARGUMENTS: &str = "this idempotency key was used with other arguments: use a new key for a new call";
const OVER: &str =
    "the call with this idempotency key has ended, and its reply is no longer kept: use a new key for a new call";

impl Leg<'_> {
    /// The flow that the client named with a key, if it did, or that a task has given the leg.
    pub(super) fn identify(&mut self, context: &RequestContext<RoleServer>) -> Option<FlowId> {
        if let Some(flow) = self.task.as_ref().and_then(TaskLeg::flow) {
            self.identity = Identity::Key;
            return Some(flow);
        }
        if self.peer.era == Era::Legacy {
            return None;
        }
        let key = match key_of(context)? {
            Ok(key) => key,
            Err(why) => {
                self.identity = Identity::Refused(why);
                return None;
            }
        };
        if self.binding.principal.is_none() && !is_secret(key) {
            self.identity = Identity::Refused(TOO_WEAK);
            return None;
        }
        self.identity = Identity::Key;
        let call = Digest::of_target(self.binding.method, &self.binding.target);
        Some(FlowId::from_bytes(self.core.record_keys().sealing().flow(self.binding.principal, call, key)))
    }

    /// The first leg of a flow that the client named: it is run once.
    pub(super) async fn begin_once<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        mut given: Arrived<X>,
        sent: InputResponses,
    ) -> Result<X::Response, Stop> {
        let (now, lifetimes) = (self.core.now(), &self.core.lifetimes);
        let deadline = now + lifetimes.flow(&self.binding.target);
        let expires_at = (now + lifetimes.round(&self.binding.target)).min(deadline);
        let span = Span { issued_at: now, expires_at, deadline };
        let claim = match self.claim_first(span, &given.1).await? {
            Ok(claim) => claim,
            Err(reply) => return self.replay::<X>(&reply),
        };
        *given.0.answers() = (!sent.is_empty()).then(|| without_refused_content(sent.clone()));
        let answers = (!sent.is_empty()).then(|| Answers::unsolicited(sent));
        let onces = Effects::of(vec![], AnsweredRound { span, fence: claim.fence() });
        let view = self.view(handler, answers, Some(onces), None, false, &given);
        let frame = view.frame.clone();
        let concluded = self.run(handler, given, view, Some(&claim), deadline).await;
        let (minted, concluded) = match concluded {
            Ok((minted, response)) => (minted, Ok(response)),
            Err(stop) => (None, Err(stop)),
        };
        let has_effects = frame.onces.get().is_some_and(|onces| !onces.claimed_names().is_empty());
        let reopens = matches!(&concluded, Err(stop) if stop.reopens());
        if reopens || (minted.is_none() && !has_effects) {
            // A call that asks nothing and has no effect is not recorded. The claim is released in the background.
            drop(claim);
            return concluded;
        }
        let recorded = self.record_first::<X>(claim, concluded, minted, &frame).await;
        if recorded.is_err() {
            frame.abort();
        }
        recorded
    }

    /// Claims the first leg, or gives the reply of an equal one.
    async fn claim_first(
        &self,
        span: Span,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<ClaimGuard, Vec<u8>>, Stop> {
        let answers = Digest::of_first_leg(self.round.flow, self.binding.arguments);
        let lease = self.core.limits.lease;
        let request = ClaimRequest { answers, keep: self.keep(span), lease, orphan: OwnerLost::Free };
        let waits = || self.event(&Station::Waiting);
        let refused = |why: &'static str| Err(ErrorData::invalid_params(why, None).into());
        match acquire(self.core, self.round.claim_id(), request, None, Some(&context.ct), None, waits).await? {
            Acquired::Held(claim, _) => Ok(Ok(claim)),
            Acquired::Done(Some(reply)) => Ok(Err(reply)),
            Acquired::AnsweredOtherwise => refused(OTHER_ARGUMENTS),
            Acquired::Done(None) | Acquired::Dead | Acquired::FlowCancelled => refused(OVER),
            Acquired::StillRunning => Err(FlowError::retry("an equal request is still being worked on").into()),
            Acquired::Cancelled => Err(Stop::cancelled()),
        }
    }

    /// Records the reply before it leaves, with the record of a flow that asks.
    async fn record_first<X: Exchange>(
        &self,
        mut claim: ClaimGuard,
        concluded: Result<X::Response, Stop>,
        minted: Option<Minted>,
        frame: &Frame,
    ) -> Result<X::Response, Stop> {
        let reply = match &concluded {
            Ok(response) => Reply::encode(Ok(response)),
            Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
        };
        let reply = self.kept(reply);
        let change = match (&minted, &concluded) {
            (Some(minted), Ok(response)) => self.first_asked(minted, response, frame).map(Box::new),
            _ => None,
        };
        if change.is_some() {
            self.core.watch_register();
        }
        let (spill, spent) = match minted {
            Some(Minted { span, spill, spent, .. }) => {
                let id = self.round.next().claim_id();
                (spill.map(|state| Spill { id, keep: self.keep(span), state }), spent)
            }
            None => (None, frame.onces.get().map(|onces| onces.spent(|_| true)).unwrap_or_default()),
        };
        match claim.settle(reply, spill, spent, change).await {
            Ok(true) => concluded.inspect(|response| self.report_questions(response)),
            Ok(false) => Err(overtaken()),
            Err(full @ LedgerError::Full { .. }) => {
                claim.give_back().await;
                Ok(X::Response::failed(not_spilled(full))?)
            }
            Err(error) => {
                claim.forget();
                Err(unavailable(error).into())
            }
        }
    }
}

/// The key that came with a request: in its `_meta`, or else in its header.
pub(crate) fn key_of(context: &RequestContext<RoleServer>) -> Option<Result<&str, &'static str>> {
    let in_meta = context.meta.0.0.get(IDEMPOTENCY_KEY).map(|key| key.as_str());
    let key = in_meta.or_else(|| in_header(context))?;
    let fits = |key: &&str| !key.is_empty() && key.len() <= LONGEST;
    Some(key.filter(fits).ok_or(TOO_LONG))
}

#[cfg(feature = "http")]
fn in_header(context: &RequestContext<RoleServer>) -> Option<Option<&str>> {
    let parts = context.extensions.get::<http::request::Parts>()?;
    parts.headers.get("idempotency-key").map(|key| key.to_str().ok())
}

#[cfg(not(feature = "http"))]
fn in_header(_context: &RequestContext<RoleServer>) -> Option<Option<&str>> {
    None
}

/// Whether a key can have 128 random bits: 32 hexadecimal digits, or 22 characters of base64url.
fn is_secret(key: &str) -> bool {
    let is_hex = key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_base64url = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'='));
    is_base64url && key.len() >= if is_hex { 32 } else { 22 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_128_bits_is_not_a_secret() {
        for secret in
            ["0123456789abcdef0123456789ABCDEF", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "AbCdEfGhIjKlMnOpQrStUv"]
        {
            assert!(is_secret(secret), "{secret}");
        }
        for weak in [
            "",
            "1",
            "0123456789abcdef0123456789abcde",
            "AbCdEfGhIjKlMnOpQrStU",
            "a key with spaces in it, long enough",
        ] {
            assert!(!is_secret(weak), "{weak}");
        }
    }
}
