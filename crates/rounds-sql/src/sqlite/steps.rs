//! The steps of a claim, as statements within a transaction.

use rounds::{
    FlowId,
    ledger::{
        documents::DocumentId,
        register::{Changed, FlowChange, FlowEnd, FlowSet, FlowStation, FlowStatus, Watcher},
    },
    time::Timestamp,
};
use sqlx::SqliteConnection;

use super::{documents, flows::Flows};
use crate::{
    claims::{Bid, COUNTS_MILLIS, Kept, Key, clock, first_fence, state},
    documents::Write,
};

/// A step, with everything it needs, so that it can wait for its turn.
#[derive(Debug)]
pub(crate) enum Step {
    Spill(Spilled),
    Claim {
        key: Key,
        bid: Bid,
        instance: [u8; 16],
        fits: bool,
        of_flow: Option<OfFlow>,
    },
    /// With the number of the round, unless it is an effect.
    Renew {
        key: Key,
        fence: i64,
        lease_until: i64,
        round: Option<u32>,
    },
    Settle {
        key: Key,
        fence: i64,
        outcome: Option<Vec<u8>>,
        spill: Option<Spilled>,
        spent: Vec<Key>,
        change: Option<Box<FlowChange>>,
    },
    Release {
        key: Key,
        fence: i64,
        state: i64,
        unless_awaited: bool,
        instance: [u8; 16],
        change: Option<Box<FlowChange>>,
    },
    Begin {
        change: Box<FlowChange>,
        spill: Option<Spilled>,
    },
    Cancel {
        id: FlowId,
        end: FlowEnd,
    },
    Delete {
        which: FlowSet,
        end: FlowEnd,
    },
    SweepFlows {
        now: Timestamp,
        most: usize,
    },
    WriteDocument(Write),
    RemoveDocument(DocumentId),
    SweepDocuments {
        now: Timestamp,
        most: usize,
    },
    Watch(Watcher),
    Look {
        key: Key,
        instance: [u8; 16],
    },
    Sweep,
}

/// A claim of a flow in the register.
#[derive(Debug)]
pub(crate) struct OfFlow {
    pub(crate) id: FlowId,
    pub(crate) change: Option<Box<FlowChange>>,
}

/// A spilled state, and the round that needs it.
#[derive(Debug)]
pub(crate) struct Spilled {
    pub(crate) key: Key,
    pub(crate) keep: Kept,
    pub(crate) state: Vec<u8>,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    Fresh {
        fence: i64,
        spilled: Option<Vec<u8>>,
    },
    Running,
    Done(Option<Vec<u8>>),
    AnsweredOtherwise,
    Dead,
    Cancelled,
    /// A new record does not fit into the caller's share.
    Full,
    /// The status before a cancellation, and the round.
    Ended(Option<(FlowStatus, u32)>),
    Count(u64),
    /// Whether the step happened; for a release, whether the claim is still held; for a look, whether it runs.
    Bool(bool),
}

/// A stored claim, as far as a request for it needs to know.
type Known = (i64, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

impl Step {
    pub(crate) fn is_claim(&self) -> bool {
        matches!(self, Self::Claim { .. })
    }

    /// The step that frees a claim whose caller never learned that it has it.
    pub(crate) fn undone(&self, outcome: &Outcome) -> Option<Self> {
        let (Self::Claim { key, instance, .. }, Outcome::Fresh { fence, .. }) = (self, outcome) else { return None };
        let (key, instance, fence) = (key.clone(), *instance, *fence);
        Some(Self::Release { key, fence, state: state::FREE, unless_awaited: false, instance, change: None })
    }

    /// Takes the step within a transaction, and adds the flows that it has changed.
    pub(crate) async fn apply(
        &self,
        on: &mut SqliteConnection,
        changes: &mut Vec<Changed>,
    ) -> Result<Outcome, sqlx::Error> {
        match self {
            Self::WriteDocument(write) => documents::write(on, write, changes).await.map(Outcome::Bool),
            Self::RemoveDocument(id) => documents::remove(on, *id).await.map(Outcome::Bool),
            Self::SweepDocuments { now, most } => documents::sweep(on, *now, *most).await.map(Outcome::Count),
            Self::Spill(spilled) => spilled.write(on).await.map(|()| Outcome::Bool(true)),
            Self::Claim { key, bid, instance, fits, of_flow: None } => claim(on, key, bid, instance, *fits).await,
            Self::Claim { key, bid, instance, fits, of_flow: Some(of) } => {
                if (Flows { on, changes }).is_cancelled(of.id).await? {
                    return Ok(Outcome::Cancelled);
                }
                let outcome = claim(on, key, bid, instance, *fits).await?;
                of.follow(&outcome, Flows { on, changes }).await?;
                Ok(outcome)
            }
            Self::Renew { key, fence, lease_until, round } => {
                let renewed = renew(on, key, *fence, *lease_until).await?;
                if let Some(round) = round.filter(|_| renewed) {
                    Flows { on, changes }.renew(&key.flow, round, *lease_until).await?;
                }
                Ok(Outcome::Bool(renewed))
            }
            Self::Settle { key, fence, outcome, spill, spent, change } => {
                let settled = settle(on, key, *fence, outcome.as_deref(), spill.as_ref(), spent).await?;
                if let Some(change) = change.as_deref().filter(|_| settled) {
                    Flows { on, changes }.apply(change.clone()).await?;
                }
                Ok(Outcome::Bool(settled))
            }
            Self::Release { key, fence, state, unless_awaited, instance, change } => {
                if *unless_awaited && is_awaited_elsewhere(on, key, instance).await? {
                    return Ok(Outcome::Bool(true));
                }
                let released = release(on, key, *fence, *state).await?;
                if let Some(change) = change.as_deref().filter(|_| released) {
                    Flows { on, changes }.apply(change.clone()).await?;
                }
                Ok(Outcome::Bool(false))
            }
            Self::Begin { change, spill } => {
                if let Some(spilled) = spill {
                    spilled.write(on).await?;
                }
                Flows { on, changes }.apply((**change).clone()).await.map(|()| Outcome::Bool(true))
            }
            Self::Cancel { id, end } => Flows { on, changes }.cancel(*id, *end).await.map(Outcome::Ended),
            Self::Delete { which, end } => Flows { on, changes }.delete(which, *end).await.map(Outcome::Count),
            Self::SweepFlows { now, most } => Flows { on, changes }.sweep(*now, *most).await.map(Outcome::Count),
            Self::Look { key, instance } => look(on, key, instance).await.map(Outcome::Bool),
            Self::Sweep => sweep(on).await.map(Outcome::Bool),
            // The writer keeps it.
            Self::Watch(_) => Ok(Outcome::Bool(true)),
        }
    }
}

impl OfFlow {
    /// Changes the record as the outcome of the claim says.
    async fn follow(&self, outcome: &Outcome, mut flows: Flows<'_>) -> Result<(), sqlx::Error> {
        let Some(change) = &self.change else { return Ok(()) };
        match outcome {
            Outcome::Fresh { .. } => flows.apply((**change).clone()).await,
            Outcome::AnsweredOtherwise => flows.refuse(change, FlowStation::RefusedOtherAnswers).await,
            Outcome::Dead => flows.refuse(change, FlowStation::RefusedDead).await,
            _ => Ok(()),
        }
    }
}

async fn claim(
    on: &mut SqliteConnection,
    key: &Key,
    bid: &Bid,
    instance: &[u8],
    fits: bool,
) -> Result<Outcome, sqlx::Error> {
    if fits && let Some(fresh) = take(on, key, bid).await? {
        return Ok(fresh);
    }
    let known = sqlx::query_as::<_, Known>(
        "SELECT state, answers, lease_until, outcome FROM rounds_claims WHERE flow = ? AND what = ?",
    );
    let Some((state, answers, lease_until, outcome)) =
        known.bind(&key.flow).bind(&key.what).fetch_optional(&mut *on).await?
    else {
        return Ok(Outcome::Full);
    };
    let equal = answers.as_ref() == Some(&bid.answers);
    let lapsed = lease_until.is_some_and(|until| until <= bid.keep.now);
    match state {
        state::RUNNING if lapsed && bid.dies => {
            end(on, key).await?;
            Ok(Outcome::Dead)
        }
        state::RUNNING if equal && !lapsed => {
            register(on, key, instance).await?;
            Ok(Outcome::Running)
        }
        state::DONE if equal => Ok(Outcome::Done(outcome)),
        state::RUNNING | state::DONE if !equal => Ok(Outcome::AnsweredOtherwise),
        state::DEAD => Ok(Outcome::Dead),
        // Free, or lapsed: the record exists, so it is not refused for lack of space.
        _ => take(on, key, bid).await?.ok_or(sqlx::Error::RowNotFound),
    }
}

/// Takes the claim if it is free, or if its owner is lost and it may run again.
async fn take(on: &mut SqliteConnection, key: &Key, bid: &Bid) -> Result<Option<Outcome>, sqlx::Error> {
    let skew = clock() - bid.keep.now;
    let taken = sqlx::query_as::<_, (i64, Option<Vec<u8>>)>(
        "INSERT INTO rounds_claims AS claim
             (flow, what, state, fence, answers, lease_until, kept_until, skew, expires)
         VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, max(?5, ?6) + ?7)
         ON CONFLICT (flow, what) DO UPDATE SET
             state = 1, fence = claim.fence + 1, answers = excluded.answers, lease_until = excluded.lease_until,
             kept_until = max(claim.kept_until, excluded.kept_until), skew = excluded.skew,
             expires = max(claim.expires, excluded.expires)
         WHERE claim.state = 0
            OR (claim.state = 1 AND claim.lease_until <= ?8 AND claim.answers = excluded.answers AND NOT ?9)
         RETURNING fence, spilled",
    );
    let taken = taken.bind(&key.flow).bind(&key.what).bind(first_fence()).bind(&bid.answers).bind(bid.lease_until);
    let taken = taken.bind(bid.keep.until).bind(skew).bind(bid.keep.now).bind(bid.dies).fetch_optional(on).await?;
    Ok(taken.map(|(fence, spilled)| Outcome::Fresh { fence, spilled }))
}

/// Ends a claim for good, because its owner is lost and it cannot run again.
async fn end(on: &mut SqliteConnection, key: &Key) -> Result<(), sqlx::Error> {
    let end = sqlx::query(
        "UPDATE rounds_claims SET state = 3, answers = NULL, lease_until = NULL WHERE flow = ? AND what = ?",
    );
    end.bind(&key.flow).bind(&key.what).execute(on).await.map(drop)
}

async fn renew(on: &mut SqliteConnection, key: &Key, fence: i64, lease_until: i64) -> Result<bool, sqlx::Error> {
    let renew = sqlx::query(
        "UPDATE rounds_claims SET lease_until = ?3, expires = max(expires, ?3 + skew)
         WHERE flow = ?1 AND what = ?2 AND state = 1 AND fence = ?4",
    );
    let renewed = renew.bind(&key.flow).bind(&key.what).bind(lease_until).bind(fence).execute(on).await?;
    Ok(renewed.rows_affected() == 1)
}

async fn settle(
    on: &mut SqliteConnection,
    key: &Key,
    fence: i64,
    outcome: Option<&[u8]>,
    spill: Option<&Spilled>,
    spent: &[Key],
) -> Result<bool, sqlx::Error> {
    let settle = sqlx::query_as::<_, (i64, i64)>(
        "UPDATE rounds_claims SET state = 2, outcome = ?3, spilled = NULL, lease_until = NULL
         WHERE flow = ?1 AND what = ?2 AND state = 1 AND fence = ?4 RETURNING kept_until, expires",
    );
    let settle = settle.bind(&key.flow).bind(&key.what).bind(outcome).bind(fence);
    let Some((kept_until, expires)) = settle.fetch_optional(&mut *on).await? else { return Ok(false) };
    if let Some(spilled) = spill {
        spilled.write(on).await?;
    }
    for effect in spent {
        // A running effect is left to its owner.
        let spend = sqlx::query(
            "UPDATE rounds_claims SET kept_until = ?3, expires = min(expires, ?4)
             WHERE flow = ?1 AND what = ?2 AND state <> 1 AND kept_until > ?3",
        );
        spend.bind(&effect.flow).bind(&effect.what).bind(kept_until).bind(expires).execute(&mut *on).await?;
    }
    Ok(true)
}

/// Gives up the claim. False if another run has it.
async fn release(on: &mut SqliteConnection, key: &Key, fence: i64, state: i64) -> Result<bool, sqlx::Error> {
    let release = sqlx::query(
        "UPDATE rounds_claims SET state = ?3, answers = NULL, lease_until = NULL
         WHERE flow = ?1 AND what = ?2 AND state = 1 AND fence = ?4",
    );
    let released = release.bind(&key.flow).bind(&key.what).bind(state).bind(fence).execute(on).await?;
    Ok(released.rows_affected() == 1)
}

/// Whether a leg waits in another process. The calling process has checked its own waiters already.
async fn is_awaited_elsewhere(on: &mut SqliteConnection, key: &Key, instance: &[u8]) -> Result<bool, sqlx::Error> {
    let awaited = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM rounds_waiters WHERE flow = ? AND what = ? AND instance <> ? AND until > ?)",
    );
    awaited.bind(&key.flow).bind(&key.what).bind(instance).bind(clock()).fetch_one(on).await
}

/// Whether the claim runs. If it does, the waiter is registered again.
async fn look(on: &mut SqliteConnection, key: &Key, instance: &[u8]) -> Result<bool, sqlx::Error> {
    let state = sqlx::query_scalar::<_, i64>("SELECT state FROM rounds_claims WHERE flow = ? AND what = ?");
    let state = state.bind(&key.flow).bind(&key.what).fetch_optional(&mut *on).await?;
    let runs = state == Some(state::RUNNING);
    if runs {
        register(on, key, instance).await?;
    }
    Ok(runs)
}

/// Registers a waiter, and writes nothing if that was done within the last second.
async fn register(on: &mut SqliteConnection, key: &Key, instance: &[u8]) -> Result<(), sqlx::Error> {
    let register = sqlx::query(
        "INSERT INTO rounds_waiters AS waiter (flow, what, instance, until) VALUES (?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET until = excluded.until WHERE waiter.until < excluded.until - 1000",
    );
    let until = clock() + COUNTS_MILLIS;
    register.bind(&key.flow).bind(&key.what).bind(instance).bind(until).execute(on).await.map(drop)
}

/// Removes records that have expired, a thousand at most. True if there may be more.
async fn sweep(on: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    const MOST: u64 = 1000;
    let now = clock();
    sqlx::query("DELETE FROM rounds_waiters WHERE until < ?").bind(now).execute(&mut *on).await?;
    let claims = sqlx::query(
        "DELETE FROM rounds_claims WHERE rowid IN (SELECT rowid FROM rounds_claims WHERE expires < ? LIMIT 1000)",
    );
    Ok(claims.bind(now).execute(on).await?.rows_affected() == MOST)
}

impl Spilled {
    async fn write(&self, on: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let Self { key, keep, state } = self;
        let write = sqlx::query(
            "INSERT INTO rounds_claims AS claim (flow, what, state, fence, kept_until, skew, expires, spilled)
             VALUES (?1, ?2, 0, ?3, ?4, ?5, ?4 + ?5, ?6)
             ON CONFLICT (flow, what) DO UPDATE SET
                 kept_until = excluded.kept_until, skew = excluded.skew,
                 expires = max(claim.expires, excluded.expires), spilled = excluded.spilled",
        );
        let write = write.bind(&key.flow).bind(&key.what).bind(first_fence()).bind(keep.until);
        write.bind(clock() - keep.now).bind(state).execute(on).await.map(drop)
    }
}
