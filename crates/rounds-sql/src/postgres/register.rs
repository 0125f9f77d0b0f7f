//! The register on Postgres.

use rounds::{
    FlowId,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Spill,
        register::{
            Changed, FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register,
            Watch, Watcher,
        },
    },
    time::{BoxFuture, Timestamp},
};
use sqlx::{
    postgres::{PgListener, PgPoolOptions},
    query_as,
};

use super::{connections::Call, ledger::PostgresLedger};
use crate::{
    claims::{Kept, first_fence, millis, what},
    error::StoreError,
    flows::{self, Columns, FlowRow},
};

/// The columns of a record. The ids of its keys are put one after the other.
const COLUMNS: &str = "SELECT flow, method, target, principal, created, changed, deadline, status, round, open, \
     open_until, kept_until, owner, owner_lease, \
     coalesce((SELECT string_agg(key, ''::bytea ORDER BY place) \
               FROM unnest(keys) WITH ORDINALITY AS kept (key, place)), ''::bytea) AS keys, \
     timeline FROM rounds_flows WHERE NOT deleted";

/// The register is in the same database. Changes are told to the watchers of all instances.
impl Register for PostgresLedger {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let first = first_fence();
            let begin = |_| -> Call<(i32,)> {
                let call = query_as(
                    "SELECT 1 FROM rounds_begin(ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                     $15, $16, $17, $18)::rounds_change, $19, $20, $21, $22, $23)",
                );
                bind_spill(bind_change(call, Some(&change)), spill.as_ref()).bind(first)
            };
            let added = [change.counted(true)].into_iter().chain(spill.as_ref().map(Spill::counted));
            let step = async { self.0.connections.call(begin).await.map(|_| true) };
            self.0.shares.count(added, step).await.map(drop)
        })
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
        Box::pin(async move {
            let rows = self.0.connections.all(|| {
                let mut query = sqlx::QueryBuilder::new(COLUMNS);
                query.push(" AND flow = ").push_bind(id.as_bytes().to_vec());
                query
            });
            let Some(row) = rows.await?.into_iter().next() else { return Ok(None) };
            let mut record = flows::read(row)?;
            record.summary.status = record.summary.status_at(now);
            let parts = self.0.connections.all(|| {
                let mut query = sqlx::QueryBuilder::new("SELECT number, sealed FROM rounds_parts WHERE flow = ");
                query.push_bind(id.as_bytes().to_vec());
                query
            });
            let parts: Vec<(i64, Vec<u8>)> = parts.await?;
            record.parts =
                parts.into_iter().filter_map(|(number, part)| Some((number.try_into().ok()?, part))).collect();
            Ok(Some(record))
        })
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        Box::pin(async move {
            let rows: Vec<FlowRow> = self.0.connections.all(|| flows::list(COLUMNS, &filter)).await?;
            Ok(flows::page(rows, &filter)?)
        })
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        const TARGETS: &str = "SELECT target, count(*) FROM (SELECT target FROM rounds_flows WHERE NOT deleted";
        Box::pin(async move {
            let rows = self.0.connections.all(|| flows::count(TARGETS, status, now, most)).await?;
            Ok(flows::counts(rows, most))
        })
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        Box::pin(async move {
            let cancel = |_| -> Call<(Option<i64>, Option<i64>)> {
                let call = query_as("SELECT before, in_round FROM rounds_cancel($1, $2, $3, $4)");
                bind_end(call.bind(id.as_bytes().to_vec()), end)
            };
            let (Some(before), Some(round)) = self.0.connections.call(cancel).await? else { return Ok(None) };
            let round = round.try_into().map_err(|_| StoreError::Garbage)?;
            self.0.waiting.wake(ClaimId { flow: id, what: ClaimKind::Round(round) });
            Ok(Some(flows::status(before)?))
        })
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        let (one, principals) = match which {
            FlowSet::One(id) => (Some(id.as_bytes().to_vec()), Vec::new()),
            FlowSet::Principal(principals) => (None, principals.into_iter().map(|of| of.to_vec()).collect()),
            // A set that this version does not know.
            _ => (None, Vec::<Vec<u8>>::new()),
        };
        Box::pin(async move {
            let delete = |_| {
                let call = query_as("SELECT rounds_delete($1, $2, $3, $4, $5)");
                bind_end(call.bind(one.clone()).bind(principals.clone()), end)
            };
            self.count(delete).await
        })
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        let (now, most) = (millis(now), i64::try_from(most).unwrap_or(i64::MAX));
        Box::pin(
            async move { self.count(|_| query_as("SELECT rounds_sweep_flows($1, $2)").bind(now).bind(most)).await },
        )
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        Box::pin(async move {
            let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.0.connections.options());
            let listening = async {
                let mut listener = PgListener::connect_with(&pool).await?;
                listener.eager_reconnect(false);
                listener.listen("rounds_flows").await?;
                Ok(listener)
            };
            let listener = self.0.connections.bounded(listening).await?;
            let (watcher, watch) = Watch::new();
            tokio::spawn(tell(listener, watcher));
            Ok(watch)
        })
    }
}

impl PostgresLedger {
    pub(super) async fn count(&self, call: impl Fn(bool) -> Call<(i64,)>) -> Result<u64, LedgerError> {
        let (count,) = self.0.connections.call(call).await?;
        Ok(count.unsigned_abs())
    }
}

/// Passes changes on until the reader is gone or has fallen behind, or the connection is lost.
async fn tell(mut listener: PgListener, watcher: Watcher) {
    loop {
        let notified = tokio::select! {
            notified = listener.try_recv() => notified,
            () = watcher.gone() => return,
        };
        let Ok(Some(notified)) = notified else { return };
        if !parse(notified.payload()).is_some_and(|changed| watcher.tell(changed)) {
            return;
        }
    }
}

/// A change, as `rounds_tell` writes it.
fn parse(payload: &str) -> Option<Changed> {
    let (id, status) = payload.split_once(' ')?;
    let mut bytes = [0; 16];
    for (byte, place) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(id.get(place..place + 2)?, 16).ok()?;
    }
    Some(Changed { id: FlowId::from_bytes(bytes), status: flows::status(status.parse().ok()?).ok()? })
}

/// Binds the eighteen fields of a change, all of which are null without one.
pub(super) fn bind_change<T>(call: Call<T>, change: Option<&FlowChange>) -> Call<T> {
    let columns = change.map(|change| Columns::of(&change.summary));
    macro_rules! field {
        ($name:ident) => {
            columns.as_ref().map(|columns| columns.$name.clone())
        };
    }
    let call = call.bind(field!(id)).bind(field!(method)).bind(field!(target)).bind(field!(principal).flatten());
    let call = call.bind(field!(created)).bind(field!(changed)).bind(field!(deadline)).bind(field!(status));
    let call = call.bind(field!(round)).bind(field!(open)).bind(field!(open_until)).bind(field!(kept_until));
    let call = call.bind(field!(owner).flatten()).bind(field!(lease).flatten());
    let keys = change.map(|change| change.summary.keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    let call = call.bind(keys).bind(change.map(|change| change.entry.to_bytes().to_vec()));
    let part = change.and_then(|change| change.part.as_ref());
    call.bind(part.map(|part| i64::from(part.number))).bind(part.map(|part| part.sealed.clone()))
}

/// Binds the four fields of a spilled state, all of which are null without one.
pub(super) fn bind_spill<T>(call: Call<T>, spill: Option<&Spill>) -> Call<T> {
    let keep = spill.map(|spill| Kept::of(spill.keep));
    let call = call.bind(spill.map(|spill| what(spill.id))).bind(keep.map(|keep| keep.now));
    call.bind(keep.map(|keep| keep.until)).bind(spill.map(|spill| spill.state.clone()))
}

fn bind_end<T>(call: Call<T>, end: FlowEnd) -> Call<T> {
    let millis_of = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(1 << 52);
    call.bind(millis(end.now)).bind(millis_of(end.retention)).bind(millis_of(end.slack))
}
