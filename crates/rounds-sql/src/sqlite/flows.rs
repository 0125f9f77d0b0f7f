//! Flow records, as statements within the transaction of a step.

use rounds::{
    FlowId,
    ledger::register::{
        Changed, FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStation, FlowStatus,
        FlowSummary, TimelineEntry,
    },
    time::Timestamp,
};
use sqlx::SqliteConnection;

use crate::{
    claims::millis,
    error::StoreError,
    flows::{self, Columns, FlowRow},
};

/// How long after a flow has expired the store says so itself, so that lists of open flows need not pass over it.
const MARKED_AFTER_MILLIS: i64 = 60 * 60 * 1000;

/// A transaction that changes flow records, and what it has changed so far.
pub(super) struct Flows<'c> {
    pub(super) on: &'c mut SqliteConnection,
    pub(super) changes: &'c mut Vec<Changed>,
}

type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

impl Flows<'_> {
    pub(super) async fn is_cancelled(&mut self, id: FlowId) -> Result<bool> {
        let status = sqlx::query_scalar::<_, i64>("SELECT status FROM rounds_flows WHERE flow = ?");
        let status = status.bind(&id.as_bytes()[..]).fetch_optional(&mut *self.on).await?;
        Ok(status == Some(flows::code(FlowStatus::Cancelled)))
    }

    pub(super) async fn apply(&mut self, mut change: FlowChange) -> Result<()> {
        let (id, part) = (change.summary.id, change.part.take());
        let record = match find(self.on, id).await? {
            Some(mut record) => {
                record.apply(change);
                record
            }
            None => FlowRecord::new(change),
        };
        if let Some(part) = part {
            let write = sqlx::query(
                "INSERT INTO rounds_parts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET sealed = excluded.sealed",
            );
            write.bind(&id.as_bytes()[..]).bind(part.number).bind(part.sealed).execute(&mut *self.on).await?;
        }
        self.write(&record).await
    }

    /// Enters that a leg was refused. A record whose round is lost for good has failed.
    pub(super) async fn refuse(&mut self, change: &FlowChange, station: FlowStation) -> Result<()> {
        let entry = TimelineEntry { station, ..change.entry };
        let Some(mut record) = find(self.on, change.summary.id).await? else { return Ok(()) };
        let FlowSummary { status, round, .. } = record.summary;
        if station == FlowStation::RefusedDead && status == FlowStatus::Working && round == entry.leg {
            record.end(FlowStatus::Failed, TimelineEntry { station: FlowStation::Failed, ..entry });
            return self.write(&record).await;
        }
        if record.timeline.refuse(entry) {
            let write = sqlx::query("UPDATE rounds_flows SET timeline = ? WHERE flow = ?");
            let write = write.bind(record.timeline.to_bytes()).bind(&record.summary.id.as_bytes()[..]);
            write.execute(&mut *self.on).await?;
        }
        Ok(())
    }

    /// The owner of this round has renewed its lease.
    pub(super) async fn renew(&mut self, flow: &[u8], round: u32, until: i64) -> Result<()> {
        let renew = sqlx::query(
            "UPDATE rounds_flows
             SET open_until = max(open_until, ?3), owner_lease = CASE WHEN owner IS NULL THEN NULL ELSE ?3 END
             WHERE flow = ?1 AND round = ?2 AND status = 0",
        );
        renew.bind(flow).bind(round).bind(until).execute(&mut *self.on).await.map(drop)
    }

    /// Cancels a flow, and kills its round. Returns the status before and the round.
    pub(super) async fn cancel(&mut self, id: FlowId, end: FlowEnd) -> Result<Option<(FlowStatus, u32)>> {
        let Some(mut record) = find(self.on, id).await? else { return Ok(None) };
        let (before, round) = (record.cancel(end), record.summary.round);
        if before.is_open() {
            self.write(&record).await?;
            let kill = sqlx::query(
                "UPDATE rounds_claims SET state = 3, answers = NULL, lease_until = NULL
                 WHERE flow = ? AND what = ? AND state <> 2",
            );
            let what = [&b"r"[..], &round.to_be_bytes()].concat();
            kill.bind(&id.as_bytes()[..]).bind(what).execute(&mut *self.on).await?;
        }
        Ok(Some((before, round)))
    }

    /// Deletes records, and returns how many there were.
    pub(super) async fn delete(&mut self, which: &FlowSet, end: FlowEnd) -> Result<u64> {
        let ids = self.ids(which).await?;
        let mut deleted = 0;
        for id in ids {
            let Some(_) = self.cancel(id, end).await? else { continue };
            let Some(record) = find(self.on, id).await? else { continue };
            deleted += 1;
            let tokens_until = end.tokens_until(record.summary.open_until);
            remove_parts(self.on, id).await?;
            let bytes = &id.as_bytes()[..];
            if record.summary.status != FlowStatus::Cancelled || tokens_until <= end.now {
                sqlx::query("DELETE FROM rounds_flows WHERE flow = ?").bind(bytes).execute(&mut *self.on).await?;
                continue;
            }
            // Its tokens are refused for as long as they could be used.
            let forget = sqlx::query(
                "UPDATE rounds_flows SET target = '', principal = NULL, open = '[]', keys = x'', timeline = x'',
                     kept_until = ?2, deleted = 1 WHERE flow = ?1",
            );
            forget.bind(bytes).bind(millis(tokens_until)).execute(&mut *self.on).await?;
        }
        Ok(deleted)
    }

    async fn ids(&mut self, which: &FlowSet) -> Result<Vec<FlowId>> {
        let principals = match which {
            FlowSet::One(id) => return Ok(vec![*id]),
            FlowSet::Principal(principals) => principals,
            // A set that this version does not know.
            _ => return Ok(Vec::new()),
        };
        let mut ids = Vec::new();
        for principal in principals {
            let theirs = sqlx::query_scalar::<_, Vec<u8>>("SELECT flow FROM rounds_flows WHERE principal = ?");
            let theirs = theirs.bind(&principal[..]).fetch_all(&mut *self.on).await?;
            ids.extend(theirs.iter().filter_map(|id| flows::flow_id(id).ok()));
        }
        Ok(ids)
    }

    /// Removes records whose time is over, at most so many, and returns how many.
    pub(super) async fn sweep(&mut self, now: Timestamp, most: usize) -> Result<u64> {
        let now = millis(now);
        let mark =
            sqlx::query("UPDATE rounds_flows SET status = 5, open = '[]' WHERE status IN (0, 1) AND open_until < ?");
        mark.bind(now - MARKED_AFTER_MILLIS).execute(&mut *self.on).await?;
        // Its owner has renewed its lease for longer than a record is kept.
        let keep = sqlx::query(
            "UPDATE rounds_flows SET kept_until = open_until
             WHERE kept_until <= ?1 AND status IN (0, 1) AND open_until > ?1",
        );
        keep.bind(now).execute(&mut *self.on).await?;
        let due = sqlx::query_scalar::<_, Vec<u8>>("SELECT flow FROM rounds_flows WHERE kept_until <= ? LIMIT ?");
        let due = due.bind(now).bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(&mut *self.on).await?;
        for flow in &due {
            sqlx::query("DELETE FROM rounds_parts WHERE flow = ?").bind(flow).execute(&mut *self.on).await?;
            sqlx::query("DELETE FROM rounds_flows WHERE flow = ?").bind(flow).execute(&mut *self.on).await?;
        }
        Ok(due.len() as u64)
    }

    async fn write(&mut self, record: &FlowRecord) -> Result<()> {
        let Columns { id, method, target, principal, created, changed, deadline, status, round, .. } =
            Columns::of(&record.summary);
        let Columns { open, open_until, kept_until, owner, lease, .. } = Columns::of(&record.summary);
        let write = sqlx::query(
            "INSERT INTO rounds_flows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
             ON CONFLICT (flow) DO UPDATE SET
                 changed = excluded.changed, deadline = excluded.deadline, status = excluded.status,
                 round = excluded.round, open = excluded.open, open_until = excluded.open_until,
                 kept_until = excluded.kept_until, owner = excluded.owner, owner_lease = excluded.owner_lease,
                 keys = excluded.keys, timeline = excluded.timeline",
        );
        let write = write.bind(id).bind(method).bind(target).bind(principal).bind(created).bind(changed).bind(deadline);
        let write = write.bind(status).bind(round).bind(open).bind(open_until).bind(kept_until).bind(owner).bind(lease);
        let write = write.bind(flows::key_bytes(&record.summary.keys)).bind(record.timeline.to_bytes());
        write.execute(&mut *self.on).await?;
        self.changes.push(flows::changed(&record.summary));
        Ok(())
    }
}

const COLUMNS: &str = "SELECT flow, method, target, principal, created, changed, deadline, status, round, open, \
     open_until, kept_until, owner, owner_lease, keys, timeline FROM rounds_flows WHERE deleted = 0";

/// A record without its parts. None if there is none, or it was deleted.
async fn find(on: &mut SqliteConnection, id: FlowId) -> Result<Option<FlowRecord>> {
    let row = sqlx::query_as::<_, FlowRow>(
        "SELECT flow, method, target, principal, created, changed, deadline, status, round, open, open_until,
             kept_until, owner, owner_lease, keys, timeline
         FROM rounds_flows WHERE flow = ? AND deleted = 0",
    );
    let row = row.bind(&id.as_bytes()[..]).fetch_optional(on).await?;
    row.map(flows::read).transpose().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

async fn remove_parts(on: &mut SqliteConnection, id: FlowId) -> Result<()> {
    sqlx::query("DELETE FROM rounds_parts WHERE flow = ?").bind(&id.as_bytes()[..]).execute(on).await.map(drop)
}

/// One record in full.
pub(super) async fn get(
    on: &mut SqliteConnection,
    id: FlowId,
    now: Timestamp,
) -> Result<Option<FlowRecord>, StoreError> {
    let Some(mut record) = find(on, id).await.map_err(StoreError::of)? else { return Ok(None) };
    record.summary.status = record.summary.status_at(now);
    let parts = sqlx::query_as::<_, (u32, Vec<u8>)>("SELECT number, sealed FROM rounds_parts WHERE flow = ?");
    let parts = parts.bind(&id.as_bytes()[..]).fetch_all(on).await.map_err(StoreError::of)?;
    record.parts = parts.into_iter().collect();
    Ok(Some(record))
}

pub(super) async fn list(on: &mut SqliteConnection, filter: &FlowFilter) -> Result<FlowPage, StoreError> {
    let mut list = flows::list::<sqlx::Sqlite>(COLUMNS, filter);
    let rows = list.build_query_as::<FlowRow>().fetch_all(on).await.map_err(StoreError::of)?;
    flows::page(rows, filter)
}

pub(super) async fn count(
    on: &mut SqliteConnection,
    status: Option<FlowStatus>,
    now: Timestamp,
    most: usize,
) -> Result<FlowCounts, StoreError> {
    const TARGETS: &str = "SELECT target, count(*) FROM (SELECT target FROM rounds_flows WHERE deleted = 0";
    let mut count = flows::count::<sqlx::Sqlite>(TARGETS, status, now, most);
    let rows = count.build_query_as::<(String, i64)>().fetch_all(on).await.map_err(StoreError::of)?;
    Ok(flows::counts(rows, most))
}
