//! Effects that happen once in a flow, however often its handler runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    claim::{self, Acquired, ClaimGuard, OwnRound},
    frame::Frame,
    view::View,
};
use crate::server::{
    ledger::{ClaimId, ClaimKind, ClaimRequest, Fence, OwnerLost, kit::SelfClaimed},
    policy::{
        error::{FlowError, place, with_sources},
        limits::Limits,
        observe::Station,
    },
    seal::{Digest, attempt::Attempt, envelope::Span, journal::RecordedFailure},
};

/// The effects of a flow, as far as this leg knows: those that came sealed in the state, and those it has had itself.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    known: Mutex<Known>,
    /// The round that this leg answers; none on the first leg, of which no other leg will ever know.
    answered: Option<AnsweredRound>,
}

/// The round that a leg answers, with the fence of its claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredRound {
    pub(crate) span: Span,
    pub(crate) fence: Fence,
}

#[derive(Debug, Default)]
struct Known {
    /// The values, as JSON text.
    values: BTreeMap<String, String>,
    /// The attempts that failed, by name, in the order in which they were made.
    failed: BTreeMap<String, Vec<Attempt>>,
    /// How many of those this run of the handler has come to, by name.
    met: BTreeMap<String, usize>,
    /// The step that is being run, in a handler of [`Steps`](crate::Steps).
    step: Option<String>,
    /// What happened and could not be recorded, and why: a later leg would not know of it, so that there must not be one.
    unrecorded: Option<(String, String)>,
    /// The names that this run of the handler has used.
    used: BTreeSet<String>,
    /// The names of effects that are running, in this run or in a task that outlives one.
    under_way: BTreeSet<String>,
    /// Those that this leg has claimed; without an id where the effect keeps its claim itself.
    claimed: Vec<(String, Option<ClaimId>)>,
}

impl Known {
    fn bytes(&self) -> usize {
        let failed =
            self.failed.iter().flat_map(|(name, attempts)| attempts.iter().map(move |attempt| (name, &attempt.text)));
        self.values.iter().chain(failed).map(|(name, value)| name.len() + value.len()).sum()
    }

    fn count(&self) -> usize {
        self.values.len() + self.under_way.len() + self.failed.values().map(Vec::len).sum::<usize>()
    }

    /// The failure of the attempt that this run of the handler comes to next, if that was made before and failed.
    fn meet_failure(&mut self, name: &str) -> Option<RecordedFailure> {
        let attempts = self.failed.get(name)?;
        let met = self.met.get(name).copied().unwrap_or_default();
        let failure = attempts.get(met)?.failure.clone();
        self.met.insert(name.to_owned(), met + 1);
        Some(failure)
    }

    /// An attempt has failed, in this run of the handler.
    fn fail(&mut self, name: &str, error: &FlowError, limits: &Limits) {
        self.used.remove(name);
        let Some(failure) = RecordedFailure::of(error) else {
            return self.not_recorded(name, RecordedFailure::unfit(error));
        };
        let attempt = Attempt::new(self.step.clone(), failure);
        let left = limits.room().saturating_sub(self.bytes() + name.len());
        let (bytes, limit) = (attempt.text.len(), limits.effect_bytes.min(left));
        if bytes > limit {
            let why = format!("its failure takes {bytes} bytes, and there is room for {limit}");
            return self.not_recorded(name, why);
        }
        let attempts = self.failed.entry(name.to_owned()).or_default();
        attempts.push(attempt);
        self.met.insert(name.to_owned(), attempts.len());
    }

    fn not_recorded(&mut self, name: &str, why: impl Into<String>) {
        self.unrecorded.get_or_insert_with(|| (format!("the effect `{name}`"), why.into()));
    }
}

impl Effects {
    pub(crate) fn of(values: Vec<(String, String)>, answered: AnsweredRound) -> Self {
        let mut known = Known::default();
        for (name, value) in values {
            match Attempt::read(&value) {
                Some(attempt) => known.failed.entry(name).or_default().push(attempt),
                // What cannot be read stands in the way of the value after it.
                None => drop(known.values.entry(name).or_insert(value)),
            }
        }
        Self { known: Mutex::new(known), answered: Some(answered) }
    }

    /// The handler is called again: each name may be used once more, and the attempts at each are met again.
    pub(crate) fn called_again(&self) {
        let mut known = self.known();
        known.used.clear();
        known.met.clear();
    }

    /// A step begins, or none is run any more. The attempts that fail in it belong to it.
    pub(crate) fn enter_step(&self, step: Option<&str>) {
        self.known().step = step.map(str::to_owned);
    }

    /// A step has its value and is not run again: this run has passed the attempts that failed in it.
    pub(crate) fn pass_step(&self, step: &str) {
        let Known { failed, met, .. } = &mut *self.known();
        for (name, attempts) in failed {
            let before = met.get(name).copied().unwrap_or_default();
            let of_step = |attempt: &&Attempt| attempt.step.as_deref() == Some(step);
            let passed = attempts.iter().skip(before).take_while(of_step).count();
            met.insert(name.clone(), before + passed);
        }
    }

    /// Why nothing can be asked any more, if that is so: something happened that a later leg would not know of.
    pub(crate) fn cannot_ask(&self) -> Option<FlowError> {
        let (what, why) = self.known().unrecorded.clone()?;
        Some(FlowError::Unrecorded { what, why })
    }

    /// What the next token carries of them. No ledger knows what a first leg has begun, and the next is not to begin it again.
    pub(crate) fn recorded(&self) -> Vec<(String, String)> {
        let Known { values, failed, under_way, .. } = &*self.known();
        let failed = failed
            .iter()
            .flat_map(|(name, attempts)| attempts.iter().map(|attempt| (name.clone(), attempt.text.clone())));
        let lost = under_way.iter().filter(|name| self.answered.is_none() && !values.contains_key(*name));
        let lost = lost.map(|name| (name.clone(), LOST.to_owned()));
        // A value comes after the attempts before it.
        failed.chain(values.clone()).chain(lost).collect()
    }

    /// What their values take of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.known().bytes()
    }

    /// The effects that this leg has claimed and that no later leg will claim, given whether a later leg knows the value of an effect.
    pub(crate) fn spent(&self, is_carried: impl Fn(&str) -> bool) -> Vec<ClaimId> {
        let known = self.known();
        let spent = known.claimed.iter().filter(|(name, _)| is_carried(name));
        spent.filter_map(|(_, id)| *id).collect()
    }

    /// The names of the effects that this leg has claimed.
    pub(crate) fn claimed_names(&self) -> Vec<String> {
        self.known().claimed.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The names of the effects that this leg has run: those that it has claimed, and all of a first leg, which may claim
    /// none.
    pub(crate) fn ran_names(&self) -> Vec<String> {
        let mut names = self.claimed_names();
        if self.answered.is_none() {
            let more = self.known().values.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>();
            names.extend(more);
        }
        names
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
        keeper: ClaimKeeper,
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
            self.replayed_once(name, &value);
            return read(name, &value);
        }
        let mut named = UnderWay { onces: &self.frame.onces, name, ended: false };
        // From here on: a durable handler that waits for the ledger waits for its effect.
        let under_way = self.frame.begin_effect();
        let outcome = self.have(name, keeper, effect).await;
        named.ended = true;
        drop((under_way, named));
        if self.frame.is_cancelled() {
            // The leg is gone: the effect was to come to its end, and nothing after it is to begin. A task that outlives the handler goes on.
            self.frame.until_ended().await;
        }
        outcome
    }

    /// Has the effect, or takes what another leg has had of it.
    async fn have<T, E>(
        &self,
        name: &str,
        keeper: ClaimKeeper,
        effect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FlowError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<FlowError>,
    {
        // What did not happen may be tried again under the same name.
        let failed = |error: &FlowError| self.frame.onces.known().fail(name, error, &self.frame.core.limits);
        let claim = match self.claim_once(name, keeper).await {
            Err(error) if matches!(error, FlowError::EffectLost { .. }) => {
                self.frame.onces.known().values.insert(name.to_owned(), LOST.to_owned());
                return Err(error);
            }
            Err(error) => {
                failed(&error);
                return Err(error);
            }
            Ok(Turn::Run(claim)) => claim,
            Ok(Turn::Value(value)) => {
                self.frame.onces.known().values.insert(name.to_owned(), value.clone());
                self.replayed_once(name, &value);
                return read(name, &value);
            }
        };
        match renewed(claim.as_ref(), effect()).await {
            Ok(value) => self.settle_once(name, claim, &value).map(|()| value),
            Err(error) => {
                let error = error.into();
                if let Some(claim) = claim {
                    claim.give_back().await;
                }
                failed(&error);
                Err(error)
            }
        }
    }

    /// A value or a failure that is known already. Otherwise the name is taken, and there is room for its value.
    fn known_value(&self, name: &str) -> Result<Option<String>, FlowError> {
        let limits = &self.frame.core.limits;
        let mut known = self.frame.onces.known();
        let refused = |mut known: MutexGuard<'_, Known>, error: FlowError| {
            known.not_recorded(name, error.to_string());
            drop(known);
            self.frame.core.note_limit(&error);
            Err(error)
        };
        if known.used.contains(name) {
            // Whether it is in use may be another matter on the next leg.
            return refused(known, FlowError::DuplicateEffect { name: name.to_owned() });
        }
        if let Some(failure) = known.meet_failure(name) {
            return Err(failure.into());
        }
        if let Some(value) = known.values.get(name).cloned() {
            known.used.insert(name.to_owned());
            return Ok(Some(value));
        }
        // An earlier run of the handler has left it to a task.
        if known.under_way.contains(name) {
            return refused(known, FlowError::EffectLost { name: name.to_owned() });
        }
        if known.count() >= limits.effects {
            return refused(known, FlowError::TooManyEffects { limit: limits.effects });
        }
        let (room, bytes) = (limits.room(), known.bytes() + name.len() + limits.effect_bytes);
        if bytes > room {
            return refused(known, FlowError::StateTooLarge { bytes, limit: room });
        }
        known.under_way.insert(name.to_owned());
        known.used.insert(name.to_owned());
        Ok(None)
    }

    /// An effect whose value stands in the journal: nothing else in this run may have its name.
    pub(crate) fn met_once(&self, name: &str, value: &str) {
        self.frame.onces.known().used.insert(name.to_owned());
        self.replayed_once(name, value);
    }

    /// Tells observers that the value of an effect is returned again.
    fn replayed_once(&self, name: &str, value: &str) {
        if value != LOST && self.frame.core.is_observed() {
            self.frame.event(self.round.number, &Station::EffectReplayed { name: name.to_owned() });
        }
    }

    /// Whether an effect of this name may still run or be met in this run.
    pub(crate) fn unused_once(&self, name: &str) -> Result<(), FlowError> {
        match self.frame.onces.known().used.contains(name) {
            true => Err(FlowError::DuplicateEffect { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Whether an effect has happened and its value is not kept.
    pub(crate) fn has_lost(&self, name: &str) -> bool {
        self.frame.onces.known().values.get(name).is_some_and(|value| value == LOST)
    }

    /// Claims an effect in the ledger: an earlier leg may have run it without replying, or may still run it.
    async fn claim_once(&self, name: &str, keeper: ClaimKeeper) -> Result<Turn, FlowError> {
        let Some(answered) = self.frame.onces.answered else { return Ok(Turn::Run(None)) };
        let core = &self.frame.core;
        let AnsweredRound { span, fence } = answered;
        let round = OwnRound { id: self.round.claim_id(), fence, expires_at: span.expires_at };
        if let ClaimKeeper::Effect = keeper {
            self.frame.onces.known().claimed.push((name.to_owned(), None));
            round.renew(core, core.now()).await?;
            return Ok(Turn::Run(None));
        }
        // As long as the round runs, another leg may take it over and reach this effect. The round's end makes it shorter: see `spent`.
        let keep = core.keep(span.deadline_remembered_until(), self.frame.principal);
        let (id, answers, lease) = (self.once_id(name), self.once_digest(name), core.limits.lease);
        let request = ClaimRequest { answers, keep, lease, orphan: OwnerLost::Free };
        self.frame.onces.known().claimed.push((name.to_owned(), Some(id)));
        match claim::acquire(core, id, request, None, None, Some(round), || ()).await? {
            Acquired::Held(claim, _) => Ok(Turn::Run(Some(claim))),
            Acquired::Done(Some(value)) => Ok(Turn::Value(String::from_utf8(value).unwrap_or_default())),
            Acquired::StillRunning => Err(FlowError::retry("an effect of this call is still under way")),
            _ => Err(FlowError::EffectLost { name: name.to_owned() }),
        }
    }

    /// Records the value, and does not wait for the ledger to say so: where it cannot, the effect's key is all that is left,
    /// should this leg not come to reply, and waiting would change nothing about it. One whose value cannot be kept has happened, too.
    fn settle_once<T: Serialize>(&self, name: &str, claim: Option<ClaimGuard>, value: &T) -> Result<(), FlowError> {
        let View { frame, round, .. } = self;
        let json = serde_json::to_string(value);
        // Others that were under way at the same time may have taken the room.
        let left = frame.core.limits.room().saturating_sub(frame.onces.known().bytes() + name.len());
        let fits = |json: &&String| json.len() <= frame.core.limits.effect_bytes.min(left);
        if let Some(mut claim) = claim {
            let (kept, name) = (json.as_ref().ok().filter(fits).map(|json| json.clone().into_bytes()), name.to_owned());
            begun(async move {
                if let Err(error) = claim.settle(kept, None, vec![], None).await {
                    tracing::warn!(target: "rounds", error = with_sources(&error), name, "an effect could not be recorded");
                    claim.forget();
                }
            });
        }
        frame.event(round.number, &Station::Effect { name: name.to_owned() });
        let kept = json.as_ref().ok().filter(fits).map_or(LOST, String::as_str);
        frame.onces.known().values.insert(name.to_owned(), kept.to_owned());
        match json {
            Ok(json) if fits(&&json) => Ok(()),
            Ok(_) => Err(FlowError::EffectLost { name: name.to_owned() }),
            Err(error) => {
                // A later leg would find that the value is lost, which is another error.
                let why = format!("its value cannot be written as JSON: {error}");
                frame.onces.known().not_recorded(name, why);
                Err(FlowError::State(error))
            }
        }
    }

    /// What an effect needs that keeps its claim itself.
    pub(crate) fn self_claimed(&self, name: &str) -> SelfClaimed {
        let Frame { core, onces, .. } = &*self.frame;
        let (now, longest) = (core.now(), self.frame.flow_deadline());
        let kept_for = onces.answered.map_or(longest, |round| round.span.deadline_remembered_until().since(now));
        SelfClaimed { key: self.effect_key(name), kept_for, lease: core.limits.lease }
    }

    /// The idempotency key of an effect.
    pub(crate) fn effect_key(&self, name: &str) -> String {
        format!("{:?}", Digest::of_effect(self.round.flow, name))
    }

    fn once_id(&self, name: &str) -> ClaimId {
        ClaimId { what: ClaimKind::Once(self.once_digest(name)), ..self.round.claim_id() }
    }

    fn once_digest(&self, name: &str) -> Digest {
        Digest::of_once(self.round.flow, name)
    }
}

/// Who keeps the claim on an effect.
#[derive(Clone, Copy)]
pub(crate) enum ClaimKeeper {
    /// The ledger, under a lease.
    Ledger,
    /// The effect itself, such as with a row that commits together with it. The ledger is asked once, before it runs,
    /// whether this run still has the round.
    Effect,
}

/// An effect that has begun, until it has come to its end or was given up.
struct UnderWay<'a> {
    onces: &'a Effects,
    name: &'a str,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut known = self.onces.known();
        known.under_way.remove(self.name);
        if !self.ended {
            let why =
                "it was dropped before it came to its end; put a time limit inside of the effect and not around it";
            known.not_recorded(self.name, why);
        }
    }
}

/// What a handler does that reaches an effect.
enum Turn {
    /// Run it; with the claim on it, from the second leg on.
    Run(Option<ClaimGuard>),
    /// Take its value.
    Value(String),
}

/// Runs an effect, and renews the claim on it meanwhile.
async fn renewed<T>(claim: Option<&ClaimGuard>, effect: impl Future<Output = T>) -> T {
    let Some(claim) = claim else { return effect.await };
    let mut lease = claim.lease();
    tokio::pin!(effect);
    loop {
        tokio::select! {
            biased;
            outcome = &mut effect => return outcome,
            // If another leg has taken over, it runs the effect with the same key, and nothing stops this run any more.
            () = lease.due() => drop(lease.renew().await),
        }
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

/// The record of an effect whose value is not kept. It is not JSON.
pub(crate) const LOST: &str = "";

/// The value of an effect that has happened.
pub(crate) fn read<T: DeserializeOwned>(name: &str, value: &str) -> Result<T, FlowError> {
    if value == LOST {
        return Err(FlowError::EffectLost { name: name.to_owned() });
    }
    serde_json::from_str(value).map_err(|error| {
        tracing::warn!(target: "rounds", name, error = place(&error), "the value of an effect has another type now");
        FlowError::StateUnreadable(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::clock::Timestamp;

    const ANSWERED: AnsweredRound = {
        let then = Timestamp::from_millis(1_800_000_000_000);
        AnsweredRound { span: Span { issued_at: then, expires_at: then, deadline: then }, fence: 1 }
    };

    fn resumed(onces: &[(&str, &str)]) -> Effects {
        Effects::of(onces.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(), ANSWERED)
    }

    #[test]
    fn attempts_travel_before_the_value_and_are_met_in_order_in_every_run() {
        let onces = resumed(&[]);
        for words in ["one", "two"] {
            onces.known().fail("charge", &FlowError::failed(words), &Limits::default());
        }
        assert_eq!(onces.known().meet_failure("charge"), None, "both were made in this run");
        onces.known().values.insert("charge".to_owned(), "7".to_owned());
        let travels = onces.recorded();
        let written = [
            ("charge", r#"!{"failure":{"Failed":"one"}}"#),
            ("charge", r#"!{"failure":{"Failed":"two"}}"#),
            ("charge", "7"),
        ];
        assert_eq!(travels, written.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let next = resumed(&written);
        for _ in 0..2 {
            for words in ["one", "two"] {
                assert_eq!(next.known().meet_failure("charge"), Some(RecordedFailure::Failed(words.to_owned())));
            }
            assert_eq!(next.known().meet_failure("charge"), None);
            next.called_again();
        }
        assert_eq!(next.recorded(), travels, "and again in the round after");
    }

    #[test]
    fn what_failed_in_a_step_is_behind_when_that_step_is_passed() {
        let onces = resumed(&[
            ("charge", r#"!{"step":"a","failure":{"Failed":"one"}}"#),
            ("charge", r#"!{"step":"b","failure":{"Failed":"two"}}"#),
        ]);
        onces.pass_step("b");
        assert_eq!(
            onces.known().meet_failure("charge"),
            Some(RecordedFailure::Failed("one".to_owned())),
            "`a` comes first"
        );
        onces.called_again();
        onces.pass_step("a");
        assert_eq!(onces.known().meet_failure("charge"), Some(RecordedFailure::Failed("two".to_owned())));
        onces.called_again();
        onces.pass_step("a");
        onces.pass_step("b");
        assert_eq!(onces.known().meet_failure("charge"), None);
    }

    /// As an instance from before attempts were recorded reads one, and this one a failure of a later kind.
    #[test]
    fn an_attempt_that_is_not_known_is_a_value_that_cannot_be_read() {
        let attempt = r#"!{"failure":{"Novel":1}}"#;
        assert!(matches!(read::<serde_json::Value>("charge", attempt), Err(FlowError::StateUnreadable(_))));
        let onces = resumed(&[("charge", attempt), ("charge", "7")]);
        assert_eq!(onces.known().values.get("charge").map(String::as_str), Some(attempt), "it hides the value");
        assert_eq!(onces.known().meet_failure("charge"), None);
    }

    #[test]
    fn an_effect_is_spent_when_its_value_is_carried_and_not_when_only_a_failed_attempt_is() {
        use crate::server::seal::envelope::{HandlerRecord, Posing, Resume};
        let onces = resumed(&[("paid", "1"), ("failed", r#"!{"failure":{"Words":"no"}}"#), ("lost", LOST)]);
        let id = |number| ClaimId { flow: crate::FlowId::from_bytes([1; 16]), what: ClaimKind::Round(number) };
        onces.known().claimed = ["paid", "failed", "lost", "under way"]
            .into_iter()
            .map(str::to_owned)
            .zip((1..).map(|number| Some(id(number))))
            .collect();
        let carried = |onces| Resume::of(HandlerRecord { onces, ..HandlerRecord::default() }, Posing::default());
        let next = carried(vec![
            ("failed".to_owned(), r#"!{"failure":{"Words":"no"}}"#.to_owned()),
            ("paid".to_owned(), "1".to_owned()),
            ("lost".to_owned(), LOST.to_owned()),
        ]);
        assert_eq!(onces.spent(|name| next.carries(name)), [id(1), id(3)]);
        assert_eq!(onces.spent(|_| true).len(), 4, "where the flow is over, all of them");
    }
}
