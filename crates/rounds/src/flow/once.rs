//! Effects that happen once in a flow, however often its handler runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use serde::{Serialize, de::DeserializeOwned};

use super::view::View;
use crate::{
    error::{FlowError, place},
    ledger::{Bid, ClaimId, Claimed, Fence, Keep, Orphan, What},
    observe::Station,
    seal::{Digest, envelope::Span},
};

/// The effects of a flow, as far as this leg knows: those that came sealed in the state, and those it has had itself.
#[derive(Debug, Default)]
pub(crate) struct Onces {
    known: Mutex<Known>,
    /// When the flow is over; none on the first leg, of which no other leg will ever know.
    span: Option<Span>,
}

#[derive(Debug, Default)]
struct Known {
    /// The values, as JSON text.
    values: BTreeMap<String, String>,
    /// The names that this run of the handler has used.
    used: BTreeSet<String>,
    /// Those whose effects have begun and not come to an end, in this run or in a task that outlives one.
    under_way: BTreeSet<String>,
}

impl Known {
    fn bytes(&self) -> usize {
        self.values.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl Onces {
    pub(crate) fn of(values: Vec<(String, String)>, span: Span) -> Self {
        let known = Known { values: values.into_iter().collect(), ..Known::default() };
        Self { known: Mutex::new(known), span: Some(span) }
    }

    /// The handler is called again: each name may be used once more.
    pub(crate) fn called_again(&self) {
        self.known().used.clear();
    }

    /// What the next token carries of them. No ledger knows what a first leg has begun, and the next is not to begin it again.
    pub(crate) fn recorded(&self) -> Vec<(String, String)> {
        let Known { values, under_way, .. } = &*self.known();
        let lost = under_way.iter().filter(|name| self.span.is_none() && !values.contains_key(*name));
        let lost = lost.map(|name| (name.clone(), LOST.to_owned()));
        values.clone().into_iter().chain(lost).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    /// Runs an effect, or gives the value it had when it ran.
    pub(crate) async fn once<T, E>(
        &self,
        name: &str,
        effect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FlowError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<FlowError>,
    {
        if self.frame.is_cancelled() {
            self.frame.until_ended().await;
            return Err(FlowError::FlowEnded);
        }
        if let Some(value) = self.known_value(name)? {
            return read(name, &value);
        }
        let named = UnderWay { onces: &self.frame.onces, name };
        // From here on: a durable handler that waits for the ledger waits for its effect.
        let under_way = self.frame.begin_effect();
        let outcome = self.have(name, effect).await;
        drop((under_way, named));
        if self.frame.is_cancelled() {
            // The leg is gone: the effect was to come to its end, and nothing after it is to begin. A task that outlives the handler goes on.
            self.frame.until_ended().await;
        }
        outcome
    }

    /// Has the effect, or takes what another leg has had of it.
    async fn have<T, E>(&self, name: &str, effect: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, FlowError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<FlowError>,
    {
        // What did not happen may be tried again under the same name.
        let failed = || {
            self.frame.onces.known().used.remove(name);
        };
        let fence = match self.claim_once(name).await.inspect_err(|_| failed())? {
            Turn::Run(fence) => fence,
            Turn::Value(value) => {
                self.frame.onces.known().values.insert(name.to_owned(), value.clone());
                return read(name, &value);
            }
        };
        let mut claim = Release { view: self, name, fence };
        match claim.renewed(effect()).await {
            Ok(value) => claim.settle(&value).map(|()| value),
            Err(error) => {
                claim.give_back().await;
                failed();
                Err(error.into())
            }
        }
    }

    /// A value that is known already. Otherwise the name is taken, and there is room for its value.
    fn known_value(&self, name: &str) -> Result<Option<String>, FlowError> {
        let limits = &self.frame.core.limits;
        let mut known = self.frame.onces.known();
        if known.used.contains(name) {
            return Err(FlowError::DuplicateOnce { name: name.to_owned() });
        }
        if let Some(value) = known.values.get(name).cloned() {
            known.used.insert(name.to_owned());
            return Ok(Some(value));
        }
        // An earlier run of the handler has left it to a task.
        if known.under_way.contains(name) {
            return Err(FlowError::OnceLost { name: name.to_owned() });
        }
        if known.values.len() + known.under_way.len() >= limits.onces {
            return Err(FlowError::TooManyOnces { limit: limits.onces });
        }
        let (room, bytes) = (limits.room(), known.bytes() + name.len() + limits.once_bytes);
        if bytes > room {
            return Err(FlowError::StateTooLarge { bytes, limit: room });
        }
        known.under_way.insert(name.to_owned());
        known.used.insert(name.to_owned());
        Ok(None)
    }

    /// An effect whose value stands in the journal: nothing else in this run may have its name.
    pub(crate) fn met_once(&self, name: &str) -> Result<(), FlowError> {
        if self.frame.onces.known().used.insert(name.to_owned()) {
            return Ok(());
        }
        Err(FlowError::DuplicateOnce { name: name.to_owned() })
    }

    /// Whether an effect has happened and its value is not kept.
    pub(crate) fn has_lost(&self, name: &str) -> bool {
        self.frame.onces.known().values.get(name).is_some_and(|value| value == LOST)
    }

    /// Claims an effect in the ledger: a leg before this one may have had it and not come to reply, or may be at it still.
    async fn claim_once(&self, name: &str) -> Result<Turn, FlowError> {
        let Some(span) = self.frame.onces.span else { return Ok(Turn::Run(None)) };
        let core = &self.frame.core;
        let keep = Keep { now: core.now(), until: span.deadline_remembered_until() + core.limits.wait };
        let give_up = keep.now + core.limits.wait;
        let mut bid = Bid { answers: self.once_digest(name), keep, lease: core.limits.lease, orphan: Orphan::Free };
        loop {
            bid.keep.now = core.now();
            let waiting = match core.claim(self.once_id(name), bid).await.map_err(FlowError::retry)? {
                Claimed::Fresh { fence, .. } => return Ok(Turn::Run(Some(fence))),
                Claimed::Done(Some(value)) => return Ok(Turn::Value(String::from_utf8(value).unwrap_or_default())),
                Claimed::Running(waiting) => waiting,
                _ => return Err(FlowError::OnceLost { name: name.to_owned() }),
            };
            let left = give_up.since(bid.keep.now);
            if left.is_zero() {
                return Err(FlowError::retry("an effect of this call is still under way"));
            }
            tokio::select! {
                () = waiting => {}
                () = core.clock.sleep(left.min(bid.lease)) => {}
            }
        }
    }

    fn once_id(&self, name: &str) -> ClaimId {
        ClaimId { flow: self.round.flow.in_ledger(), what: What::Once(self.once_digest(name)) }
    }

    fn once_digest(&self, name: &str) -> Digest {
        Digest::of_once(self.round.flow, name)
    }
}

/// An effect that has begun, until it has come to its end or was given up.
struct UnderWay<'a> {
    onces: &'a Onces,
    name: &'a str,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.onces.known().under_way.remove(self.name);
    }
}

/// What a handler that comes to an effect has to do.
enum Turn {
    /// Run it; under this fence, where there is a ledger that others look at.
    Run(Option<Fence>),
    /// Take its value.
    Value(String),
}

/// An effect that is this leg's to run. Dropped before it came to its end, as by a panic, it is given back.
struct Release<'a> {
    view: &'a View,
    name: &'a str,
    fence: Option<Fence>,
}

impl Release<'_> {
    /// Runs the effect, saying from time to time that it is still under way.
    async fn renewed<T>(&self, effect: impl Future<Output = T>) -> T {
        let core = &self.view.frame.core;
        let lease = core.limits.lease;
        let mut pause = lease / 3;
        tokio::pin!(effect);
        loop {
            tokio::select! {
                biased;
                outcome = &mut effect => return outcome,
                () = async { core.clock.sleep(pause).await }, if self.fence.is_some() => {
                    let id = self.view.once_id(self.name);
                    // Whoever took over runs it with the same key, and nothing stops this one any more.
                    let renewed = core.ledger.renew(id, self.fence.unwrap_or_default(), core.now() + lease).await;
                    pause = if renewed.is_ok() { lease / 3 } else { lease / 30 };
                }
            }
        }
    }

    /// Records the value, and does not wait for the ledger to say so: where it cannot, the effect's key is all that is left,
    /// should this leg not come to reply, and waiting would change nothing about it. One whose value cannot be kept has happened, too.
    fn settle<T: Serialize>(&mut self, value: &T) -> Result<(), FlowError> {
        let View { frame, round, .. } = self.view;
        let json = serde_json::to_string(value);
        // Others that were under way at the same time may have taken the room.
        let left = frame.core.limits.room().saturating_sub(frame.onces.known().bytes() + self.name.len());
        let fits = |json: &&String| json.len() <= frame.core.limits.once_bytes.min(left);
        if let Some(fence) = self.fence.take() {
            let kept = json.as_ref().ok().filter(fits).map(|json| json.clone().into_bytes());
            let (id, answers) = (self.view.once_id(self.name), self.view.once_digest(self.name));
            let (core, name) = (frame.core.clone(), self.name.to_owned());
            begun(async move {
                if let Err(error) = core.settle(id, fence, answers, kept, None).await {
                    tracing::warn!(target: "rounds", %error, name, "an effect could not be recorded");
                }
            });
        }
        frame.event(round.number, &Station::Effect { name: self.name.to_owned() });
        let kept = json.as_ref().ok().filter(fits).map_or(LOST, String::as_str);
        frame.onces.known().values.insert(self.name.to_owned(), kept.to_owned());
        match json {
            Ok(json) if fits(&&json) => Ok(()),
            Ok(_) => Err(FlowError::OnceLost { name: self.name.to_owned() }),
            Err(error) => Err(FlowError::State(error)),
        }
    }

    async fn give_back(&mut self) {
        if let Some(fence) = self.fence.take() {
            let id = self.view.once_id(self.name);
            drop(self.view.frame.core.ledger.release(id, fence, Orphan::Free, false).await);
        }
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let (Some(fence), Ok(runtime)) = (self.fence.take(), tokio::runtime::Handle::try_current()) else { return };
        let (core, id) = (self.view.frame.core.clone(), self.view.once_id(self.name));
        runtime.spawn(async move { core.ledger.release(id, fence, Orphan::Free, false).await });
    }
}

/// Begins at once, so that nothing that is done after it gets to the ledger before it, and comes to its end by itself.
fn begun(recording: impl Future<Output = ()> + Send + 'static) {
    let mut recording = Box::pin(recording);
    let begun = recording.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if begun.is_pending() {
        tokio::spawn(recording);
    }
}

/// What is kept of an effect whose value is not. It is no JSON.
pub(crate) const LOST: &str = "";

/// The value of an effect that has happened.
pub(crate) fn read<T: DeserializeOwned>(name: &str, value: &str) -> Result<T, FlowError> {
    if value == LOST {
        return Err(FlowError::OnceLost { name: name.to_owned() });
    }
    serde_json::from_str(value).map_err(|error| {
        tracing::warn!(target: "rounds", name, error = place(&error), "the value of an effect has another type now");
        FlowError::StateUnreadable(error)
    })
}
