//! The register on Redis: a hash for each flow beside its claims, and sorted sets to find them.

use std::{collections::BTreeMap, future::poll_fn};

use futures_core::Stream as _;
use redis::{FromRedisValue as _, ScriptInvocation, Value, aio::PubSub};
use rounds::{
    FlowId,
    ledger::{ClaimId, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Retention, Spill},
    observe::Method,
    register::{
        Changed, FlowChange, FlowCounts, FlowCursor, FlowEnd, FlowFilter, FlowOwner, FlowPage, FlowRecord, FlowSet,
        FlowStation, FlowStatus, FlowSummary, Register, Timeline, Watch, Watcher,
    },
    time::{BoxFuture, Timestamp},
};

use crate::{
    connect::ConnectError,
    connection::Away,
    ledger::{RedisLedger, kept_until, millis, yes_or_no},
    scripts::register as scripts,
};

/// The fewest and the most records that one call reads for a list.
const READ: (usize, usize) = (100, 1000);

/// The change of a claim whose claimant never learned of it.
pub(crate) fn given_up(mut change: FlowChange) -> FlowChange {
    (change.summary.status, change.summary.owner) = (FlowStatus::Waiting, None);
    change.entry.station = FlowStation::Released;
    change
}

impl RedisLedger {
    pub(crate) fn record_key(&self, flow: FlowId) -> String {
        format!("{}:{{{flow}}}:f", self.prefix)
    }

    pub(crate) fn index(&self) -> String {
        format!("{}:flows", self.prefix)
    }

    /// The channel on which changes are published.
    pub(crate) fn watch_channel(&self) -> String {
        format!("{}:watch", self.index())
    }

    /// Adds a change to the arguments of a script, in the order that `lua/register/shared.lua` gives.
    pub(crate) fn add_change(&self, call: &mut ScriptInvocation<'_>, change: &FlowChange) {
        let FlowSummary { id, method, target, principal, round, open, owner, keys, .. } = &change.summary;
        let summary = &change.summary;
        call.arg(self.record_key(*id)).arg(self.index()).arg(id.to_string());
        call.arg(method.as_str()).arg(target).arg(principal.as_ref().map_or(&[][..], |digest| digest));
        call.arg(millis(summary.created)).arg(millis(summary.changed)).arg(millis(summary.deadline));
        call.arg(letter(summary.status)).arg(round).arg(packed(open));
        call.arg(millis(summary.open_until)).arg(record_until(summary));
        call.arg(owner.as_ref().map_or("", |owner| &owner.instance));
        let lease = owner.as_ref().and_then(|owner| owner.lease_until);
        call.arg(lease.map(|until| millis(until).to_string()).unwrap_or_default());
        call.arg(keys.concat()).arg(&change.entry.to_bytes()[..]);
        match &change.part {
            Some(part) => call.arg(part.number.to_string()).arg(&part.sealed[..]),
            None => call.arg("").arg(""),
        };
    }

    async fn begin_flow(&self, change: FlowChange, spill: Option<Spill>) -> Result<(), LedgerError> {
        let mut call = scripts::BEGIN.prepare_invoke();
        call.arg(u8::from(spill.is_some()));
        if let Some(Spill { id, keep, state }) = &spill {
            call.arg(self.key(*id)).arg(millis(keep.now)).arg(kept_until(*keep)).arg(&state[..]);
        }
        self.add_change(&mut call, &change);
        let added = [change.counted(true)].into_iter().chain(spill.as_ref().map(Spill::counted));
        match self.shares.count(added, async { yes_or_no(self.call(&call).await?) }).await? {
            true => Ok(()),
            false => Err(Away::Garbage.into()),
        }
    }

    /// Takes the steps of a register that no other step takes: its indexes, and telling its watchers.
    pub(crate) async fn rehearse_register(&self, flow: FlowId, now: Timestamp) -> Result<(), ConnectError> {
        self.get_flow(flow, now).await.map_err(ConnectError::step("get"))?;
        self.read_flows(false, None, 1).await.map_err(ConnectError::step("list"))?;
        self.count_flows(None, now).await.map_err(ConnectError::step("count"))?;
        let watchers = self.connection.publish(&format!("{}:watch", self.index()), &[]).await;
        watchers.map(drop).map_err(|away| ConnectError::of("publishing", away))
    }

    async fn get_flow(&self, id: FlowId, now: Timestamp) -> Result<Option<FlowRecord>, LedgerError> {
        let mut call = scripts::GET.prepare_invoke();
        call.key(self.record_key(id));
        let fields: Vec<Vec<u8>> = self.call(&call).await?;
        let (pairs, _) = fields.as_chunks::<2>();
        let mut fields: BTreeMap<_, _> = pairs.iter().map(|[name, value]| (&name[..], value)).collect();
        if fields.is_empty() || fields.get(&b"st"[..]).is_some_and(|status| &status[..] == b"D") {
            return Ok(None);
        }
        let columns = COLUMNS.map(|name| fields.remove(name.as_bytes()).cloned());
        let timeline = Timeline::from_bytes(fields.remove(&b"tl"[..]).map_or(&[], |bytes| &bytes[..]));
        let number = |name: &[u8]| str::from_utf8(name.strip_prefix(b"p")?).ok()?.parse().ok();
        let parts = fields.into_iter().filter_map(|(name, part)| Some((number(name)?, part.clone()))).collect();
        let mut summary = summary(id, columns).ok_or(Away::Garbage)?;
        summary.status = summary.status_at(now);
        Ok(Some(FlowRecord { summary, timeline, parts }))
    }

    async fn list_flows(&self, filter: FlowFilter) -> Result<FlowPage, LedgerError> {
        let (mut flows, mut after) = (Vec::new(), filter.after);
        let is_open = matches!(filter.status, Some(FlowStatus::Working | FlowStatus::Waiting | FlowStatus::Expired));
        let most = filter.most.saturating_add(1);
        loop {
            let (read, is_last) = self.read_flows(is_open, after, most.clamp(READ.0, READ.1)).await?;
            after = read.last().map(FlowSummary::cursor).or(after);
            for mut flow in read.into_iter().filter(|flow| filter.admits(flow)) {
                flow.status = flow.status_at(filter.now);
                flows.push(flow);
            }
            if flows.len() >= most || is_last {
                break;
            }
        }
        let is_more = flows.len() > filter.most;
        flows.truncate(filter.most);
        let next = flows.last().filter(|_| is_more).map(FlowSummary::cursor);
        Ok(FlowPage { flows, next })
    }

    /// Reads records by their creation, and whether these are the last ones.
    async fn read_flows(
        &self,
        is_open: bool,
        after: Option<FlowCursor>,
        most: usize,
    ) -> Result<(Vec<FlowSummary>, bool), LedgerError> {
        let index = self.index();
        let mut call = scripts::LIST.prepare_invoke();
        call.arg(format!("{index}:{}", if is_open { "open" } else { "all" })).arg(index).arg(&*self.prefix).arg(most);
        match after {
            Some(FlowCursor { created, id }) => call.arg(millis(created).to_string()).arg(id.to_string()),
            None => call.arg("").arg(""),
        };
        let rows: Vec<Value> = self.call(&call).await?;
        let (is_last, rows) = rows.split_first().ok_or(Away::Garbage)?;
        let (rows, _) = rows.as_chunks::<2>();
        let read = rows.iter().map(|[id, columns]| row(id, columns).ok_or(Away::Garbage));
        Ok((read.collect::<Result<_, _>>()?, *is_last == Value::Int(1)))
    }

    /// The arguments of a cancellation or a deletion.
    fn add_end(&self, call: &mut ScriptInvocation<'_>, id: FlowId, end: FlowEnd) {
        call.arg(self.record_key(id)).arg(self.index()).arg(id.to_string());
        call.arg(format!("{}:{{{id}}}", self.prefix)).arg(millis(end.now));
        call.arg(end.retention.as_millis() as u64).arg(end.slack.as_millis() as u64);
        call.arg(&end.now.as_millis().to_be_bytes()[..]);
    }

    async fn count_flows(&self, status: Option<FlowStatus>, now: Timestamp) -> Result<FlowCounts, LedgerError> {
        let which = match status {
            None => "",
            Some(FlowStatus::Expired) => "E",
            Some(status) => letter(status),
        };
        let mut call = scripts::COUNT.prepare_invoke();
        call.arg(self.index()).arg(millis(now)).arg(which);
        let counts: Vec<(Vec<u8>, u64)> = self.call(&call).await?;
        let by_target = counts.into_iter().map(|(target, count)| Ok((String::from_utf8(target)?, count)));
        let by_target = by_target.collect::<Result<_, std::string::FromUtf8Error>>().map_err(|_| Away::Garbage)?;
        Ok(FlowCounts { by_target, is_whole: true })
    }

    async fn cancel_flow(&self, id: FlowId, end: FlowEnd) -> Result<Option<FlowStatus>, LedgerError> {
        let mut call = scripts::CANCEL.prepare_invoke();
        self.add_end(&mut call, id, end);
        let before: String = self.call(&call).await?;
        match &*before {
            "" => Ok(None),
            "E" => Ok(Some(FlowStatus::Expired)),
            letter => Ok(Some(status(letter.as_bytes()).ok_or(Away::Garbage)?)),
        }
    }

    async fn delete_flows(&self, which: FlowSet, end: FlowEnd) -> Result<u64, LedgerError> {
        let mut deleted = 0;
        for id in self.ids_of(which, end.now).await? {
            let mut call = scripts::DELETE.prepare_invoke();
            self.add_end(&mut call, id, end);
            deleted += u64::from(yes_or_no(self.call(&call).await?)?);
        }
        Ok(deleted)
    }

    async fn ids_of(&self, which: FlowSet, now: Timestamp) -> Result<Vec<FlowId>, LedgerError> {
        let principal = match which {
            FlowSet::One(id) => return Ok(vec![id]),
            FlowSet::Principal(digests) => digests,
            _ => return Ok(vec![]),
        };
        let filter = FlowFilter { principal: Some(principal), most: usize::MAX >> 1, ..FlowFilter::new(now) };
        Ok(self.list_flows(filter).await?.flows.into_iter().map(|flow| flow.id).collect())
    }

    async fn watch_flows(&self) -> Result<Watch, LedgerError> {
        let subscription = self.connection.subscribe(&self.watch_channel()).await?;
        let (watcher, watch) = Watch::new();
        tokio::spawn(pass_on(subscription, watcher));
        Ok(watch)
    }
}

/// Passes changes on until the reader is gone or the connection breaks.
async fn pass_on(mut subscription: PubSub, watcher: Watcher) {
    let mut messages = subscription.on_message();
    loop {
        let message = tokio::select! {
            message = poll_fn(|cx| Pin::new(&mut messages).poll_next(cx)) => message,
            () = watcher.gone() => return,
        };
        let Some(message) = message else { return };
        let Some(changed) = changed(message.get_payload_bytes()) else { continue };
        if !watcher.tell(changed) {
            return;
        }
    }
}

fn changed(message: &[u8]) -> Option<Changed> {
    let (letter, id) = message.split_at_checked(1)?;
    Some(Changed { id: str::from_utf8(id).ok()?.parse().ok()?, status: status(letter)? })
}

fn record_until(summary: &FlowSummary) -> u64 {
    let keep = Retention { now: summary.changed, until: summary.kept_until, share: Default::default() };
    kept_until(keep)
}

pub(crate) fn letter(status: FlowStatus) -> &'static str {
    match status {
        FlowStatus::Working => "W",
        FlowStatus::Waiting => "Q",
        FlowStatus::Completed => "C",
        FlowStatus::Cancelled => "X",
        // A status that this version does not know is not known to be open.
        _ => "F",
    }
}

fn status(letter: &[u8]) -> Option<FlowStatus> {
    Some(match letter {
        b"W" => FlowStatus::Working,
        b"Q" => FlowStatus::Waiting,
        b"C" => FlowStatus::Completed,
        b"F" => FlowStatus::Failed,
        b"X" => FlowStatus::Cancelled,
        _ => return None,
    })
}

/// The plain columns of a record, in the order in which `lua/register/list.lua` returns them.
const COLUMNS: [&str; 14] = ["st", "me", "ta", "pr", "cr", "ch", "dl", "rd", "op", "ou", "ku", "ow", "ol", "ks"];

fn row(id: &Value, columns: &Value) -> Option<FlowSummary> {
    let id = String::from_redis_value(id.clone()).ok()?.parse().ok()?;
    let columns: Vec<Option<Vec<u8>>> = Vec::from_redis_value(columns.clone()).ok()?;
    summary(id, columns.try_into().ok()?)
}

/// Reads the columns strictly: a record that is not understood is not shown.
fn summary(id: FlowId, columns: [Option<Vec<u8>>; 14]) -> Option<FlowSummary> {
    let [st, me, ta, pr, cr, ch, dl, rd, op, ou, ku, ow, ol, ks] = columns;
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes?).ok();
    let time = |bytes: Option<Vec<u8>>| Some(Timestamp::from_millis(text(bytes)?.parse().ok()?));
    let method = match &*text(me)? {
        "tools/call" => Method::Tool,
        "prompts/get" => Method::Prompt,
        "resources/read" => Method::Resource,
        _ => return None,
    };
    let (instance, principal) = (text(ow)?, pr?);
    Some(FlowSummary {
        id,
        method,
        target: text(ta)?,
        principal: (!principal.is_empty()).then(|| principal.try_into().ok()).flatten(),
        created: time(cr)?,
        changed: time(ch)?,
        deadline: time(dl)?,
        status: status(&st?)?,
        round: text(rd)?.parse().ok()?,
        open: unpacked(&op?)?,
        open_until: time(ou)?,
        kept_until: time(ku)?,
        owner: (!instance.is_empty()).then(|| FlowOwner { instance, lease_until: time(ol) }),
        keys: ks?.as_chunks().0.to_vec(),
    })
}

/// Texts one after the other, each behind its length.
fn packed(texts: &[String]) -> Vec<u8> {
    let pack = |text: &String| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    texts.iter().flat_map(pack).collect()
}

fn unpacked(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        bytes = rest;
    }
    Some(texts)
}

impl Register for RedisLedger {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(self.begin_flow(change, spill))
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(self.claim_round(id, request, Some(change)))
    }

    fn settle_with(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.settle_round(id, fence, reply, spill, spent, Some(change)))
    }

    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.release_round(id, fence, orphan, unless_awaited, Some(change)))
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        Box::pin(self.get_flow(id, now))
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        Box::pin(self.list_flows(filter))
    }

    /// The cost grows with the number of targets and not with the number of records, so that all are counted.
    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        _most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        Box::pin(self.count_flows(status, now))
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        Box::pin(self.cancel_flow(id, end))
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(self.delete_flows(which, end))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(async move {
            let mut call = scripts::SWEEP.prepare_invoke();
            call.arg(self.index()).arg(&*self.prefix).arg(millis(now)).arg(most);
            Ok(self.call(&call).await?)
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        Box::pin(self.watch_flows())
    }
}
