//! Listings, records and logs.

use std::collections::BTreeMap;

use crate::job::{
    Filter, JobLease, JobLine, JobLog, JobRecord, JobState, LogTime, Page, QueueFacts, Renewal, StoreError,
};
use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension, Row, Transaction, params_from_iter};

use super::lines::{LINE, line, results};
use super::renewing::read_renewal;
use super::values::{ResultKind, broken, integer, natural, state_number, state_of, unreadable};
use super::{blockers, webhooks};

/// A filter as a condition and its values.
pub(crate) fn wanted(filter: &Filter) -> (String, Vec<Sql>) {
    let (mut conditions, mut values) = (vec!["1".to_owned()], Vec::new());
    let mut add = |column: &str, value: Option<Sql>| {
        if let Some(value) = value {
            values.push(value);
            conditions.push(format!("{column} = ?{}", values.len()));
        }
    };
    add("owner", filter.owner.clone().map(Sql::Text));
    add("queue", filter.queue.clone().map(Sql::Text));
    add("state", filter.state.map(|state| Sql::Integer(state_number(state))));
    add("ok", filter.ok.map(Sql::from));
    add("(cancel IS NOT NULL)", filter.cancel.map(Sql::from));
    (conditions.join(" AND "), values)
}

/// A part of the jobs there are.
pub(crate) fn list(
    tx: &Transaction<'_>,
    filter: &Filter,
    cursor: Option<&str>,
    most: usize,
) -> Result<Page, StoreError> {
    let (which, mut values) = wanted(filter);
    let number = |cursor: &str| cursor.parse::<i64>().map_err(|_| StoreError::Cursor(cursor.to_owned()));
    let below = cursor.map(number).transpose()?.unwrap_or(i64::MAX);
    values.push(Sql::Integer(below));
    values.push(Sql::Integer(integer(most as u64)));
    let count = values.len();
    let sql = format!(
        "SELECT {LINE} FROM jobs WHERE {which} AND seq < ?{} ORDER BY seq DESC LIMIT ?{count}",
        count - 1
    );
    let mut select = tx.prepare_cached(&sql).map_err(broken)?;
    let found = select.query_map(params_from_iter(values), line).map_err(broken)?;
    let found: Vec<(JobLine, i64)> = found.collect::<Result<_, _>>().map_err(broken)?;
    let next = found.last().filter(|_| found.len() == most).map(|(_, seq)| seq.to_string());
    Ok(Page { jobs: found.into_iter().map(|(line, _)| line).collect(), next })
}

/// How many jobs match.
pub(crate) fn count(tx: &Transaction<'_>, filter: &Filter) -> Result<u64, StoreError> {
    let (which, values) = wanted(filter);
    let sql = format!("SELECT count(*) FROM jobs WHERE {which}");
    let mut select = tx.prepare_cached(&sql).map_err(broken)?;
    select.query_row(params_from_iter(values), |row| row.get(0)).map(natural).map_err(broken)
}

/// The jobs whose ids begin with a text, in the order of their ids.
pub(crate) fn find(tx: &Transaction<'_>, prefix: &str, most: usize) -> Result<Vec<JobLine>, StoreError> {
    // Bounded on both sides, so that only the index of ids is read, and only where it matches.
    let select =
        format!("SELECT {LINE} FROM jobs WHERE id >= ?1 AND id < ?1 || char(1114111) ORDER BY id LIMIT ?2");
    let mut select = tx.prepare_cached(&select).map_err(broken)?;
    let found = select.query_map((prefix, integer(most as u64)), line).map_err(broken)?;
    found.map(|found| found.map(|(line, _)| line).map_err(broken)).collect()
}

/// Everything about a job.
pub(crate) fn get(tx: &Transaction<'_>, id: &str, now: i64) -> Result<Option<JobRecord>, StoreError> {
    let found = tx.query_row(&format!("SELECT {LINE} FROM jobs WHERE id = ?1"), [id], line);
    let Some((line, seq)) = found.optional().map_err(broken)? else { return Ok(None) };
    let rest = "SELECT body, owner FROM specs JOIN jobs ON job = seq WHERE seq = ?1";
    let (spec, owner): (String, String) =
        tx.query_row(rest, [seq], |row| Ok((row.get(0)?, row.get(1)?))).map_err(broken)?;
    Ok(Some(JobRecord {
        line,
        owner,
        spec: serde_json::from_str(&spec).map_err(unreadable)?,
        result: results(tx, seq, ResultKind::Recorded)?.pop(),
        earlier: results(tx, seq, ResultKind::Earlier)?,
        duplicates: results(tx, seq, ResultKind::Duplicate)?,
        webhook: webhooks::state(tx, seq)?,
        blocked_by: blockers::of(tx, seq, now)?,
        now_ms: natural(now),
    }))
}

/// How many jobs have ended in each way.
pub(crate) fn outcomes(tx: &Transaction<'_>) -> Result<Vec<(String, u64)>, StoreError> {
    let mut select =
        tx.prepare_cached("SELECT status, count FROM outcomes ORDER BY status").map_err(broken)?;
    let found = select.query_map([], |row| Ok((row.get(0)?, natural(row.get(1)?)))).map_err(broken)?;
    found.collect::<Result<_, _>>().map_err(broken)
}

/// Every queue that has jobs or is paused: one walk over the jobs that are not over, and the dead.
pub(crate) fn queues(tx: &Transaction<'_>, now: i64) -> Result<Vec<QueueFacts>, StoreError> {
    let mut facts = BTreeMap::new();
    let mut select = tx.prepare_cached("SELECT queue, paused FROM queues").map_err(broken)?;
    let mut rows = select.query([]).map_err(broken)?;
    while let Some(row) = rows.next().map_err(broken)? {
        let (queue, paused): (String, bool) = (row.get(0).map_err(broken)?, row.get(1).map_err(broken)?);
        facts.insert(queue.clone(), empty(queue, paused));
    }
    let counts = "SELECT queue, state, count(*), min(due_ms) FROM jobs WHERE state IN (0, 1, 2, 4) GROUP BY queue, state";
    let mut select = tx.prepare_cached(counts).map_err(broken)?;
    let read = |row: &Row<'_>| {
        Ok((row.get::<_, String>(0)?, state_of(row.get(1)?), natural(row.get(2)?), row.get::<_, i64>(3)?))
    };
    for found in select.query_map([], read).map_err(broken)? {
        let (queue, state, count, oldest) = found.map_err(broken)?;
        let facts = facts.entry(queue.clone()).or_insert_with(|| empty(queue, false));
        match state {
            JobState::Scheduled => facts.scheduled = count,
            JobState::Queued => (facts.queued, facts.oldest_ms) = (count, Some(natural(now - oldest))),
            JobState::Leased => facts.leased = count,
            _ => facts.dead = count,
        }
    }
    let shown =
        |facts: &QueueFacts| facts.paused || facts.scheduled + facts.queued + facts.leased + facts.dead > 0;
    Ok(facts.into_values().filter(shown).collect())
}

fn empty(queue: String, paused: bool) -> QueueFacts {
    QueueFacts { queue, paused, scheduled: 0, queued: 0, leased: 0, dead: 0, oldest_ms: None }
}

/// Adds to the log of a leased job, at this moment; `None` for commands of earlier versions, which
/// stored none.
pub(crate) fn append_log(
    tx: &Transaction<'_>,
    held: &JobLease,
    bytes: &[u8],
    at: Option<i64>,
) -> Result<(), StoreError> {
    if read_renewal(tx, held)? == Renewal::Lost {
        return Err(StoreError::Lost(held.id.clone()));
    }
    let insert =
        "INSERT INTO log (job, start, bytes, at_ms) SELECT seq, coalesce((SELECT start + length(bytes) FROM log
        WHERE job = seq ORDER BY start DESC LIMIT 1), 0), ?2, ?3 FROM jobs WHERE id = ?1";
    tx.prepare_cached(insert)
        .and_then(|mut insert| insert.execute((&held.id, bytes, at)))
        .map(drop)
        .map_err(broken)
}

/// Reads a job's log.
pub(crate) fn read_log(
    tx: &Transaction<'_>,
    id: &str,
    cursor: u64,
    most: usize,
) -> Result<JobLog, StoreError> {
    let select = "SELECT start, bytes, at_ms FROM log JOIN jobs ON job = seq
        WHERE id = ?1 AND start + length(bytes) > ?2 ORDER BY start";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let mut rows = select.query((id, integer(cursor))).map_err(broken)?;
    let (mut bytes, mut times) = (Vec::new(), Vec::<LogTime>::new());
    while let Some(row) = rows.next().map_err(broken)?.filter(|_| bytes.len() < most) {
        let at_ms = row.get::<_, Option<i64>>(2).map_err(broken)?.map(natural);
        if times.last().is_none_or(|last| last.at_ms != at_ms) {
            times.push(LogTime { start: cursor + bytes.len() as u64, at_ms });
        }
        let start = natural(row.get::<_, i64>(0).map_err(broken)?);
        let piece = row.get_ref(1).and_then(|piece| Ok(piece.as_blob()?)).map_err(broken)?;
        let skipped = usize::try_from(cursor.saturating_sub(start)).unwrap_or(usize::MAX).min(piece.len());
        bytes.extend_from_slice(&piece[skipped..][..(piece.len() - skipped).min(most - bytes.len())]);
    }
    let next_cursor = cursor + bytes.len() as u64;
    Ok(JobLog { bytes, next_cursor, times })
}
