//! Flow records as rows. The columns are the same in both databases.

use rounds::{
    FlowId,
    ledger::register::{
        Changed, FlowCounts, FlowFilter, FlowOwner, FlowPage, FlowRecord, FlowStatus, FlowSummary, Timeline,
    },
    observe::Method,
    time::Timestamp,
};
use sqlx::{Database, Encode, QueryBuilder, Type};

use crate::{claims::millis, error::StoreError};

/// A row: id, method, target, principal, created, changed, deadline, status, round, open, open until, kept until, owner,
/// the owner's lease, keys, timeline.
pub(crate) type FlowRow = (
    Vec<u8>,
    String,
    String,
    Option<Vec<u8>>,
    i64,
    i64,
    i64,
    i64,
    i64,
    String,
    i64,
    i64,
    Option<String>,
    Option<i64>,
    Vec<u8>,
    Vec<u8>,
);

/// The number of a status where it is stored.
pub(crate) fn code(status: FlowStatus) -> i64 {
    FlowStatus::ALL.iter().position(|known| *known == status).map_or(-1, |place| place as i64)
}

pub(crate) fn status(code: i64) -> Result<FlowStatus, StoreError> {
    let known = usize::try_from(code).ok().and_then(|code| FlowStatus::ALL.get(code));
    known.copied().ok_or(StoreError::Garbage)
}

pub(crate) fn flow_id(bytes: &[u8]) -> Result<FlowId, StoreError> {
    Ok(FlowId::from_bytes(bytes.try_into().map_err(|_| StoreError::Garbage)?))
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.unsigned_abs())
}

fn method(name: &str) -> Result<Method, StoreError> {
    let known = [Method::Tool, Method::Prompt, Method::Resource];
    known.into_iter().find(|method| method.as_str() == name).ok_or(StoreError::Garbage)
}

/// The key ids, one after the other.
pub(crate) fn key_bytes(keys: &[[u8; 8]]) -> Vec<u8> {
    keys.concat()
}

/// The keys of open questions, as a JSON array.
pub(crate) fn open_text(open: &[String]) -> String {
    serde_json::Value::from(open.to_vec()).to_string()
}

/// A record without its parts.
pub(crate) fn read(row: FlowRow) -> Result<FlowRecord, StoreError> {
    let (id, of, target, principal, created, changed, deadline, state, round, open, open_until, kept_until, ..) = &row;
    let (.., owner, lease, keys, timeline) = &row;
    let principal = principal.as_deref().map(TryInto::try_into).transpose().map_err(|_| StoreError::Garbage)?;
    let owner = owner.as_ref().map(|instance| FlowOwner { instance: instance.clone(), lease_until: lease.map(time) });
    let summary = FlowSummary {
        id: flow_id(id)?,
        method: method(of)?,
        target: target.clone(),
        principal,
        created: time(*created),
        changed: time(*changed),
        deadline: time(*deadline),
        status: status(*state)?,
        round: u32::try_from(*round).map_err(|_| StoreError::Garbage)?,
        open: serde_json::from_str(open).map_err(|_| StoreError::Garbage)?,
        open_until: time(*open_until),
        kept_until: time(*kept_until),
        owner,
        keys: keys.as_chunks().0.to_vec(),
    };
    Ok(FlowRecord { summary, timeline: Timeline::from_bytes(timeline), parts: Default::default() })
}

/// The columns of a summary that have another form in the store, as a step needs them.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(crate) id: Vec<u8>,
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) principal: Option<Vec<u8>>,
    pub(crate) created: i64,
    pub(crate) changed: i64,
    pub(crate) deadline: i64,
    pub(crate) status: i64,
    pub(crate) round: i64,
    pub(crate) open: String,
    pub(crate) open_until: i64,
    pub(crate) kept_until: i64,
    pub(crate) owner: Option<String>,
    pub(crate) lease: Option<i64>,
}

impl Columns {
    pub(crate) fn of(summary: &FlowSummary) -> Self {
        Self {
            id: summary.id.as_bytes().to_vec(),
            method: summary.method.as_str(),
            target: summary.target.clone(),
            principal: summary.principal.map(|principal| principal.to_vec()),
            created: millis(summary.created),
            changed: millis(summary.changed),
            deadline: millis(summary.deadline),
            status: code(summary.status),
            round: summary.round.into(),
            open: open_text(&summary.open),
            open_until: millis(summary.open_until),
            kept_until: millis(summary.kept_until),
            owner: summary.owner.as_ref().map(|owner| owner.instance.clone()),
            lease: summary.owner.as_ref().and_then(|owner| owner.lease_until).map(millis),
        }
    }
}

/// The rest of a statement that lists records: conditions, order and limit. Its text has constants only.
pub(crate) fn list<'q, DB>(select: &'static str, filter: &FlowFilter) -> QueryBuilder<DB>
where
    DB: Database,
    i64: Encode<'q, DB> + Type<DB>,
    String: Encode<'q, DB> + Type<DB>,
    Vec<u8>: Encode<'q, DB> + Type<DB>,
{
    let mut query = QueryBuilder::new(select);
    let now = millis(filter.now);
    match filter.status {
        Some(status) if status.is_open() => {
            query.push(" AND status = ").push_bind(code(status));
            // Said again, because the index is for these.
            query.push(" AND status IN (0, 1) AND open_until > ").push_bind(now);
        }
        Some(FlowStatus::Expired) => {
            query.push(" AND (status = 5 OR status IN (0, 1) AND open_until <= ").push_bind(now).push(")");
        }
        Some(status) => {
            query.push(" AND status = ").push_bind(code(status));
        }
        None => {}
    }
    if let Some(target) = &filter.target {
        query.push(" AND target = ").push_bind(target.clone());
    }
    if let Some(principals) = &filter.principal {
        query.push(" AND principal IN (");
        let mut separated = query.separated(", ");
        for principal in principals {
            separated.push_bind(principal.to_vec());
        }
        // None of them is the principal of any flow.
        separated.push("NULL").push_unseparated(")");
    }
    if let Some(before) = filter.created_before {
        query.push(" AND created < ").push_bind(millis(before));
    }
    if let Some(after) = filter.after {
        query.push(" AND (created, flow) > (").push_bind(millis(after.created));
        query.push(", ").push_bind(after.id.as_bytes().to_vec()).push(")");
    }
    let most = i64::try_from(filter.most.saturating_add(1)).unwrap_or(i64::MAX);
    query.push(" ORDER BY created, flow LIMIT ").push_bind(most);
    query
}

/// A statement that counts records by their targets. The index for it has every column in it.
pub(crate) fn count<'q, DB>(
    select: &'static str,
    status: Option<FlowStatus>,
    now: Timestamp,
    most: usize,
) -> QueryBuilder<DB>
where
    DB: Database,
    i64: Encode<'q, DB> + Type<DB>,
{
    let mut query = QueryBuilder::new(select);
    let now = millis(now);
    match status {
        Some(status) if status.is_open() => {
            query.push(" AND status = ").push_bind(code(status)).push(" AND open_until > ").push_bind(now);
        }
        Some(FlowStatus::Expired) => {
            query.push(" AND (status = 5 OR status IN (0, 1) AND open_until <= ").push_bind(now).push(")");
        }
        Some(status) => {
            query.push(" AND status = ").push_bind(code(status));
        }
        None => {}
    }
    query.push(" LIMIT ").push_bind(i64::try_from(most).unwrap_or(i64::MAX)).push(") AS counted GROUP BY target");
    query
}

/// The counts in the rows of such a statement.
pub(crate) fn counts(rows: Vec<(String, i64)>, most: usize) -> FlowCounts {
    let by_target = rows.into_iter().map(|(target, count)| (target, count.unsigned_abs())).collect();
    let counts = FlowCounts { by_target, is_whole: false };
    FlowCounts { is_whole: counts.total() < most as u64, ..counts }
}

/// A page of the rows, of which there may be one more than fits.
pub(crate) fn page(rows: Vec<FlowRow>, filter: &FlowFilter) -> Result<FlowPage, StoreError> {
    let is_last = rows.len() <= filter.most;
    let flows = rows.into_iter().take(filter.most).map(|row| {
        let mut summary = read(row)?.summary;
        summary.status = summary.status_at(filter.now);
        Ok(summary)
    });
    let flows: Vec<_> = flows.collect::<Result<_, StoreError>>()?;
    let next = flows.last().filter(|_| !is_last).map(FlowSummary::cursor);
    Ok(FlowPage { flows, next })
}

pub(crate) fn changed(summary: &FlowSummary) -> Changed {
    Changed { id: summary.id, status: summary.status }
}
