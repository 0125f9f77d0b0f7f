//! The ledger on Redis.

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use redis::{FromRedisValue, ScriptInvocation, Value};
use rounds::{
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Retention, Spill,
        documents::Documents,
        kit::{Freeing, Shares, Unconfirmed, Waiter, Waiting, until_changed},
    },
    register::{FlowChange, Register},
    time::{BoxFuture, Timestamp},
};

use crate::{
    connect::{ConnectError, RedisLedgerBuilder},
    connection::{Away, Connection},
    register::given_up,
    scripts,
};

/// How long a waiter counts after its last look: far longer than the longest pause.
const COUNTS: Duration = Duration::from_secs(3);

/// Keeps claims, replies and the other records of a flow in Redis, for all instances of a server.
///
/// Every step is one script and one round trip. Clones share the connection.
///
/// # When Redis is away
///
/// Each call ends within [the timeout](RedisLedgerBuilder::timeout). If it fails, the leg ends with a retryable error,
/// and nothing runs that could not be claimed. The ledger reconnects by itself. A claim whose reply was lost, or whose
/// release failed, is freed in the background as soon as Redis can be reached, within its lease or a minute. [A limit in
/// bytes](RedisLedgerBuilder::freeing_bytes) bounds how many claims wait for that.
///
/// # One caller among many
///
/// If the server tells principals apart, an instance limits [the bytes of one
/// principal](RedisLedgerBuilder::principal_bytes), and [the bytes of all callers without a
/// principal](RedisLedgerBuilder::anonymous_bytes). At its limit a caller gets a retryable error, and other callers are
/// not affected. Each instance counts the rounds and spilled states that it created, and a round as two kibibytes.
/// Counting needs no call to Redis.
///
/// # What Redis sees
///
/// Digests in place of names and answers, times, and sealed bytes. See the guide `rounds::guide::internals`.
#[derive(Clone)]
pub struct RedisLedger {
    pub(crate) connection: Arc<Connection>,
    pub(crate) prefix: Arc<str>,
    /// Identifies the waiters of this process.
    instance: [u8; 16],
    waiting: Waiting,
    freeing: Freeing,
    pub(crate) shares: Arc<Shares>,
}

impl RedisLedger {
    /// Connects with every default, to a server such as `redis://127.0.0.1/`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], as for [`RedisLedgerBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder, to connect with a configuration.
    pub fn builder(url: impl Into<String>) -> RedisLedgerBuilder {
        RedisLedgerBuilder::new(url.into())
    }

    /// Number of claims of all instances: rounds that are running, were answered or have a spilled state, and effects.
    ///
    /// It scans all keys of the database, a thousand at a time, so that it does not block Redis. Use it for a dashboard
    /// and not for every request. Claims that are created or removed during the scan may be counted or not.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Unavailable`] if Redis does not answer or returns an error.
    pub async fn claims(&self) -> Result<usize, LedgerError> {
        let pattern = format!("{}:{{*", literally(&self.prefix));
        // A scan can return the same key twice.
        let mut claims = HashSet::new();
        let mut cursor = 0;
        loop {
            let (next, names) = self.connection.scan(cursor, &pattern).await?;
            claims.extend(names.into_iter().filter(|name| is_claim(name)));
            if next == 0 {
                return Ok(claims.len());
            }
            cursor = next;
        }
    }

    pub(crate) fn on(connection: Connection, prefix: &str, shares: Shares, freeing: Freeing) -> Self {
        Self {
            connection: Arc::new(connection),
            prefix: prefix.into(),
            instance: random(),
            waiting: Waiting::default(),
            freeing,
            shares: Arc::new(shares),
        }
    }

    /// The key of a claim. A cluster hashes only the part in braces, so all keys of a flow are on one node.
    pub(crate) fn key(&self, id: ClaimId) -> String {
        let (prefix, flow) = (&self.prefix, id.flow);
        match id.what {
            ClaimKind::Round(number) => format!("{prefix}:{{{flow}}}:r{number}"),
            ClaimKind::Once(name) => format!("{prefix}:{{{flow}}}:e{name:?}"),
            // A kind that this version does not know gets a key of its own as well.
            other => format!("{prefix}:{{{flow}}}:{other:?}"),
        }
    }

    /// The key of the set in which the waiters of a claim are registered.
    pub(crate) fn waiters_key(&self, id: ClaimId) -> String {
        self.key(id) + ":w"
    }

    pub(crate) async fn call<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Away> {
        self.connection.call(call, call).await
    }

    /// Claims, with the record of the flow if the server keeps a register.
    pub(crate) async fn claim_round(
        &self,
        id: ClaimId,
        bid: ClaimRequest,
        register: Option<Option<FlowChange>>,
    ) -> Result<Claimed, LedgerError> {
        let now = bid.keep.now;
        let claimant: [u8; 16] = random();
        let script = if register.is_some() { &scripts::register::CLAIM } else { &scripts::CLAIM };
        let mut call = script.prepare_invoke();
        call.key(self.key(id)).key(self.waiters_key(id));
        call.arg(bid.answers.as_bytes()).arg(millis(now)).arg(kept_until(bid.keep)).arg(millis(now + bid.lease));
        call.arg(orphaned(bid.orphan)).arg(&claimant).arg(&self.instance).arg(COUNTS.as_millis() as u64);
        let counts = matches!(id.what, ClaimKind::Round(_));
        let room = if counts { self.shares.has_room(bid.keep, Shares::ROUND_BYTES) } else { Ok(()) };
        call.arg(u8::from(room.is_ok()));
        match &register {
            Some(Some(change)) => self.add_change(&mut call, change),
            Some(None) => drop(call.arg(self.record_key(id.flow))),
            None => {}
        }
        // Registered before the call: if the owner releases the round right after Redis has reported it as running, it
        // must find a waiter.
        let waiter = self.waiting.enter(id);
        // If the reply is lost, the claim may have been taken without this caller knowing.
        let unconfirmed = Unconfirmed::new(|| self.abandon(id, claimant, bid.lease, register.flatten().map(given_up)));
        let answer = self.call::<Value>(&call).await?;
        unconfirmed.confirm();
        let Some(claimed) = self.claimed(id, answer, waiter)? else {
            return Err(room.err().unwrap_or_else(|| Away::Garbage.into()));
        };
        if counts && matches!(claimed, Claimed::Fresh { .. }) {
            self.shares.add(bid.keep, Shares::ROUND_BYTES);
        }
        Ok(claimed)
    }

    /// Frees a claim whose claimant never learned of it, with the record of the flow if the server keeps a register.
    fn abandon(&self, id: ClaimId, claimant: [u8; 16], lease: Duration, change: Option<FlowChange>) {
        let script = if change.is_some() { &scripts::register::ABANDON } else { &scripts::ABANDON };
        let mut call = script.prepare_invoke();
        call.key(self.key(id)).arg(&claimant);
        if let Some(change) = &change {
            self.add_change(&mut call, change);
        }
        self.free(id, call, change.as_ref(), lease.max(Freeing::WITHIN), |found| found == 1);
    }

    /// Settles a claim, with the record of the flow if the server keeps a register.
    pub(crate) async fn settle_round(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: Option<FlowChange>,
    ) -> Result<bool, LedgerError> {
        let call = |again: bool| {
            let script = if change.is_some() { &scripts::register::SETTLE } else { &scripts::SETTLE };
            let mut call = script.prepare_invoke();
            call.key(self.key(id)).arg(fence).arg(u8::from(again));
            call.arg(u8::from(reply.is_some())).arg(reply.as_deref().unwrap_or_default());
            call.arg(u8::from(spill.is_some()));
            if let Some(Spill { id, keep, state }) = &spill {
                call.key(self.key(*id)).arg(millis(keep.now)).arg(kept_until(*keep)).arg(&state[..]);
            }
            if let Some(change) = &change {
                self.add_change(&mut call, change);
            }
            for effect in &spent {
                call.key(self.key(*effect));
            }
            call
        };
        let added = change.iter().map(|change| change.counted(false)).chain(spill.as_ref().map(Spill::counted));
        let step = async { yes_or_no(self.connection.call(&call(false), &call(true)).await?) };
        let settled = self.shares.count(added, step).await?;
        self.waiting.wake(id);
        Ok(settled)
    }

    /// Gives up a claim, with the record of the flow if the server keeps a register.
    pub(crate) async fn release_round(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<FlowChange>,
    ) -> Result<bool, LedgerError> {
        if unless_awaited && self.waiting.is_awaited(id) {
            return Ok(true);
        }
        let script = if change.is_some() { &scripts::register::RELEASE } else { &scripts::RELEASE };
        let mut call = script.prepare_invoke();
        call.key(self.key(id)).key(self.waiters_key(id));
        call.arg(fence).arg(orphaned(orphan)).arg(u8::from(unless_awaited)).arg(&self.instance);
        if let Some(change) = &change {
            self.add_change(&mut call, change);
        }
        let released = self.call(&call).await;
        if released.is_err() && !unless_awaited {
            self.free(id, call, change.as_ref(), Freeing::WITHIN, |_| true);
        }
        let kept = yes_or_no(released?)?;
        if !kept {
            self.waiting.wake(id);
        }
        Ok(kept)
    }

    /// Parses the script's reply strictly: a reply that is not understood is not a claim. Returns `None` if the share
    /// is full.
    fn claimed(&self, id: ClaimId, answer: Value, waiter: Waiter) -> Result<Option<Claimed>, Away> {
        let mut parts = Vec::<Value>::from_redis_value(answer).map_err(|_| Away::Garbage)?;
        if parts.is_empty() {
            return Err(Away::Garbage);
        }
        let word = String::from_redis_value(parts.remove(0)).map_err(|_| Away::Garbage)?;
        Ok(Some(match (word.as_str(), &mut parts[..]) {
            ("fresh", [fence, spilled]) => {
                // Checked on the raw value: converting to a smaller type first would truncate it.
                let Value::Int(fence) = *fence else { return Err(Away::Garbage) };
                Claimed::Fresh { fence: fence.try_into().map_err(|_| Away::Garbage)?, spilled: bytes(spilled)? }
            }
            ("running", []) => Claimed::Running(Box::pin(self.clone().changed(id, waiter))),
            ("done", [reply]) => Claimed::Done(bytes(reply)?),
            ("other", []) => Claimed::AnsweredOtherwise,
            ("dead", []) => Claimed::Dead,
            ("cancelled", []) => Claimed::Cancelled,
            ("full", []) => return Ok(None),
            _ => return Err(Away::Garbage),
        }))
    }

    /// Resolves when a claim may have stopped running, or when Redis cannot tell.
    async fn changed(self, id: ClaimId, waiter: Waiter) {
        let mut call = scripts::WAIT.prepare_invoke();
        call.key(self.key(id)).key(self.waiters_key(id)).arg(&self.instance).arg(COUNTS.as_millis() as u64);
        until_changed(waiter, async || matches!(self.call(&call).await, Ok(1))).await;
    }

    /// Frees a claim in the background: repeats the call until one has `done` it.
    fn free(
        &self,
        id: ClaimId,
        call: ScriptInvocation<'static>,
        change: Option<&FlowChange>,
        within: Duration,
        done: fn(i64) -> bool,
    ) {
        let (ledger, call) = (self.clone(), Arc::new(call));
        self.freeing.free(change.map_or(0, |change| change.bytes(true)), within, move || {
            let (ledger, call) = (ledger.clone(), call.clone());
            Box::pin(async move {
                let is_free = done(ledger.call(&call).await?);
                if is_free {
                    ledger.waiting.wake(id);
                }
                Ok(is_free)
            })
        });
    }
}

impl fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLedger").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Ledger for RedisLedger {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let Spill { id, keep, state } = &spill;
            let mut call = scripts::SPILL.prepare_invoke();
            call.key(self.key(*id)).arg(millis(keep.now)).arg(kept_until(*keep)).arg(&state[..]);
            match self.shares.count([spill.counted()], async { yes_or_no(self.call(&call).await?) }).await? {
                true => Ok(()),
                false => Err(Away::Garbage.into()),
            }
        })
    }

    fn claim(&self, id: ClaimId, bid: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(self.claim_round(id, bid, None))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let mut call = scripts::RENEW.prepare_invoke();
            call.key(self.key(id)).arg(fence).arg(millis(lease_until));
            if let ClaimKind::Round(round) = id.what {
                call.key(self.record_key(id.flow)).arg(round).arg(self.index()).arg(id.flow.to_string());
            }
            Ok(yes_or_no(self.call(&call).await?)?)
        })
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.settle_round(id, fence, reply, spill, spent, None))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.release_round(id, fence, orphan, unless_awaited, None))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), LedgerError>> {
        // A script, because that is what every step is.
        Box::pin(async move {
            let mut look = scripts::WAIT.prepare_invoke();
            look.key(format!("{}:{{ready}}", self.prefix)).key(format!("{}:{{ready}}:w", self.prefix));
            self.call::<i64>(look.arg(&self.instance).arg(0)).await?;
            Ok(())
        })
    }

    fn register(&self) -> Option<&dyn Register> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

fn bytes(value: &mut Value) -> Result<Option<Vec<u8>>, Away> {
    match std::mem::replace(value, Value::Nil) {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        _ => Err(Away::Garbage),
    }
}

pub(crate) fn yes_or_no(answer: i64) -> Result<bool, Away> {
    match answer {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Away::Garbage),
    }
}

fn orphaned(orphan: OwnerLost) -> &'static str {
    match orphan {
        OwnerLost::Free => "F",
        // A kind that this version does not know is not known to be safe to run again.
        _ => "X",
    }
}

/// Lua numbers are doubles, which are exact far beyond the time of any clock.
pub(crate) fn millis(moment: Timestamp) -> u64 {
    const LARGEST_EXACT: u64 = 1 << 52;
    moment.as_millis().min(LARGEST_EXACT)
}

/// Expiry time of a record, at most a hundred years away: Redis rejects an expiry beyond the range of its clock.
pub(crate) fn kept_until(keep: Retention) -> u64 {
    const LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    millis(keep.until.min(keep.now + LIFETIME))
}

/// Escapes the special characters of a pattern.
fn literally(prefix: &str) -> String {
    prefix.chars().flat_map(|letter| "*?[]^\\".contains(letter).then_some('\\').into_iter().chain([letter])).collect()
}

/// Whether this is the key of a claim, and not of a set of waiters or of another application.
fn is_claim(name: &str) -> bool {
    let Some((_, what)) = name.rsplit_once("}:") else { return false };
    what.starts_with(['r', 'e']) && !what.contains(':')
}

pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}
