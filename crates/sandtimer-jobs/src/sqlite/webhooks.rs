//! Webhooks of jobs that have ended: due from the transaction that ends the job, claimed by one
//! worker at a time. What is due when the job's record is removed stays until it is settled.

use std::time::Duration;

use crate::job::{
    Delivery, DeliveryResult, Destination, JobEnd, StoreError, Webhook, WebhookShares, WebhookState,
    webhook_body,
};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::json;

use super::lines::{line_of, results};
use super::values::{ResultKind, broken, execute, integer, natural, state_of, unreadable};

/// Which version of the rules of webhooks applies: a log on a NATS server has commands of earlier
/// versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookRules {
    /// A webhook is removed with its job's record, and paused destinations count among those that
    /// are inspected.
    EndWithRecord,
    /// A webhook that is due outlives the record, and destinations that are paused are not looked
    /// at.
    OutliveRecord,
}

/// Stores a job's webhook.
pub(crate) fn keep(
    tx: &Transaction<'_>,
    seq: i64,
    id: &str,
    owner: &str,
    webhook: &Webhook,
) -> Result<(), StoreError> {
    let target = serde_json::to_string(webhook).map_err(unreadable)?;
    let insert = "INSERT INTO webhooks (job, id, owner, host, target) VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(tx, insert, params![seq, id, owner, webhook.destination_host(), target]).map(drop)
}

/// Makes the delivery of a job's end due, if the webhook names this end.
pub(crate) fn ended(tx: &Transaction<'_>, seq: i64, end: JobEnd, now: i64) -> Result<(), StoreError> {
    let update = format!(
        "UPDATE webhooks SET since_ms = ?2, due_ms = CASE WHEN {CHOSEN} THEN ?2 END, attempts = 0, returns = 0,
        claim = claim + 1, delivered_ms = NULL, error = CASE WHEN NOT {CHOSEN} THEN ?4 END, redelivered_ms = NULL
        WHERE job = ?1"
    );
    let name = end.name();
    let not_chosen = format!(
        "this end, `{name}`, is not among its `events`; `sandtimer jobs redeliver` sends it all the same"
    );
    execute(tx, &update, (seq, now, name, not_chosen)).map(drop)
}

/// Whether a webhook names the end `?3`.
const CHOSEN: &str = "(json_extract(target, '$.events') IS NULL
    OR EXISTS (SELECT 1 FROM json_each(target, '$.events') WHERE value = ?3))";

/// Makes the delivery of a job's end due at once.
pub(crate) fn redeliver(tx: &Transaction<'_>, id: &str, now: i64) -> Result<WebhookState, StoreError> {
    let select = "SELECT seq, state FROM jobs WHERE id = ?1";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, state_of(row.get(1)?)));
    let found = tx.prepare_cached(select).and_then(|mut select| select.query_row([id], read).optional());
    let (seq, of_job) = found.map_err(broken)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))?;
    let refused = |remedy| StoreError::WrongState { id: id.to_owned(), state: of_job, remedy };
    if !of_job.is_over() {
        return Err(refused("its webhook is sent when it has ended"));
    }
    let update =
        "UPDATE webhooks SET redelivered_ms = ?2, due_ms = ?2, attempts = 0, returns = 0, claim = claim + 1,
        delivered_ms = NULL, error = NULL WHERE job = ?1";
    execute(tx, update, (seq, now))?;
    state(tx, seq)?.ok_or_else(|| refused("it has no `webhook`: submit its spec again with one"))
}

/// Notes that an ended job is queued again: nothing is delivered until its next end.
pub(crate) fn reopened(tx: &Transaction<'_>, seq: i64) -> Result<(), StoreError> {
    let update = "UPDATE webhooks SET due_ms = NULL, claim = claim + 1 WHERE job = ?1";
    execute(tx, update, [seq]).map(drop)
}

/// Removes the webhook of a job whose record is removed; a due webhook gets its body, and stays
/// until it is settled.
pub(crate) fn part(tx: &Transaction<'_>, seq: i64, rules: WebhookRules) -> Result<(), StoreError> {
    let select = "SELECT EXISTS (SELECT 1 FROM webhooks WHERE job = ?1 AND due_ms IS NOT NULL)";
    let is_due: bool = tx
        .prepare_cached(select)
        .and_then(|mut select| select.query_row([seq], |row| row.get(0)))
        .map_err(broken)?;
    if !is_due || rules == WebhookRules::EndWithRecord {
        return execute(tx, "DELETE FROM webhooks WHERE job = ?1", [seq]).map(drop);
    }
    let update =
        "UPDATE webhooks SET body = ?2, job = (SELECT min(0, min(job)) - 1 FROM webhooks) WHERE job = ?1";
    execute(tx, update, (seq, body(tx, seq)?)).map(drop)
}

/// What is sent for a job. A result that cannot be read is left out.
fn body(tx: &Transaction<'_>, seq: i64) -> Result<Vec<u8>, StoreError> {
    let result = results(tx, seq, ResultKind::Recorded).ok().and_then(|mut results| results.pop());
    Ok(webhook_body(&line_of(tx, seq)?, result.as_ref()))
}

/// Destinations of an owner that are to be skipped.
const PAUSED: &str =
    "SELECT json_extract(value, '$.owner'), json_extract(value, '$.host') FROM json_each(?2)";

/// Whether something is to be sent that the shares do not leave alone. Reads only.
pub(crate) fn is_due(tx: &Transaction<'_>, shares: &WebhookShares, now: i64) -> Result<bool, StoreError> {
    let select = format!(
        "SELECT EXISTS (SELECT 1 FROM webhooks WHERE due_ms <= ?1 AND (owner, host) NOT IN ({PAUSED}))"
    );
    let paused = json!(shares.paused).to_string();
    let mut select = tx.prepare_cached(&select).map_err(broken)?;
    select.query_row((now, paused), |row| row.get(0)).map_err(broken)
}

/// What is due: the longest due first, or of each owner in turn what is due longest. Of one owner
/// at most a few times the number that is ever handed out are inspected: if all of these lead to
/// hosts that have their share, the others wait as well.
fn due_query(is_in_turn: bool) -> String {
    let columns = "job, id, target, claim, attempts, since_ms, owner, returns, redelivered_ms";
    let due = format!("webhooks WHERE due_ms <= ?1 AND (owner, host) NOT IN ({PAUSED})");
    match is_in_turn {
        false => format!("SELECT {columns} FROM {due} ORDER BY due_ms, job"),
        true => format!(
            "SELECT {columns} FROM (SELECT {columns}, due_ms,
                row_number() OVER (PARTITION BY owner ORDER BY due_ms, job) AS turn FROM {due})
            WHERE turn <= 64 ORDER BY turn, due_ms, job"
        ),
    }
}

/// Claims due deliveries. Each is due again after `claim` unless it is settled.
pub(crate) fn claim(
    tx: &Transaction<'_>,
    most: usize,
    claim: Duration,
    shares: &WebhookShares,
    rules: WebhookRules,
    now: i64,
) -> Result<Vec<Delivery>, StoreError> {
    let until = now.saturating_add(i64::try_from(claim.as_millis()).unwrap_or(i64::MAX));
    let mut shares = shares.clone();
    let mut claimed = Vec::new();
    let paused: &[Destination] = if rules == WebhookRules::OutliveRecord { &shares.paused } else { &[] };
    let paused = json!(paused).to_string();
    let mut select = tx.prepare_cached(&due_query(shares.each > 0)).map_err(broken)?;
    let mut found = select.query((now, paused)).map_err(broken)?;
    while claimed.len() < most
        && let Some(row) = found.next().map_err(broken)?
    {
        let (seq, delivery) = read(row, now)?;
        let destination = delivery.destination();
        if shares.admit(&destination) {
            shares.under_way.push(destination);
            claimed.push((seq, delivery));
        }
    }
    drop(found);
    for (seq, delivery) in &mut claimed {
        let update =
            "UPDATE webhooks SET due_ms = ?2, claim = claim + 1, attempts = attempts + 1 WHERE job = ?1";
        execute(tx, update, (*seq, until))?;
        // Not in the query above, which reads many more than it hands out.
        let mut select = tx.prepare_cached("SELECT body FROM webhooks WHERE job = ?1").map_err(broken)?;
        delivery.body = select.query_row((*seq,), |row| row.get(0)).map_err(broken)?;
    }
    Ok(claimed.into_iter().map(|(_, delivery)| delivery).collect())
}

/// A row of either query, as it is once it is claimed.
fn read(row: &Row<'_>, now: i64) -> Result<(i64, Delivery), StoreError> {
    let parts = || -> rusqlite::Result<_> {
        Ok((
            (row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, String>(2)?),
            (row.get::<_, i64>(3)?, row.get::<_, u32>(4)?, row.get::<_, i64>(5)?, row.get(6)?),
            (row.get(7)?, row.get::<_, Option<i64>>(8)?),
        ))
    };
    let ((seq, id, target), (claim, attempts, since, owner), (returns, redelivered)) =
        parts().map_err(broken)?;
    let delivery = Delivery {
        id,
        owner,
        claim: natural(claim + 1),
        webhook: serde_json::from_str(&target).map_err(unreadable)?,
        attempts: attempts + 1,
        returns,
        body: None,
        age: Duration::from_millis(natural(now - redelivered.unwrap_or(since))),
        ended_ms: natural(since),
    };
    Ok((seq, delivery))
}

/// Records the result of a claim, unless the claim has expired.
pub(crate) fn settle(
    tx: &Transaction<'_>,
    delivery: &Delivery,
    came: &DeliveryResult,
    now: i64,
) -> Result<(), StoreError> {
    let later = |after: &Duration| Some(now.saturating_add(integer(after.as_millis() as u64)));
    let (due, delivered, error, is_returned) = match came {
        DeliveryResult::Taken => (None, Some(now), None, false),
        DeliveryResult::Again { after, error } => (later(after), None, Some(error), false),
        DeliveryResult::Returned { after, error } => (later(after), None, Some(error), true),
        DeliveryResult::Never { error } => (None, None, Some(error), false),
    };
    // What an attempt found is worth more than that another worker may not send it.
    let update = "UPDATE webhooks SET due_ms = ?3, delivered_ms = ?4, error = CASE WHEN ?6 THEN coalesce(error, ?5) ELSE ?5 END,
        attempts = attempts - ?6, returns = returns + ?6 WHERE id = ?1 AND claim = ?2";
    let id = &delivery.id;
    execute(tx, update, params![id, integer(delivery.claim), due, delivered, error, is_returned])?;
    let settled = "DELETE FROM webhooks WHERE id = ?1 AND body IS NOT NULL AND due_ms IS NULL";
    execute(tx, settled, [id]).map(drop)
}

/// The state of the delivery.
pub(crate) fn state(tx: &Transaction<'_>, seq: i64) -> Result<Option<WebhookState>, StoreError> {
    let select = "SELECT target, attempts, delivered_ms, error, due_ms FROM webhooks WHERE job = ?1";
    let moment = |row: &Row<'_>, index| row.get::<_, Option<i64>>(index).map(|moment| moment.map(natural));
    let read = |row: &Row<'_>| {
        let state = WebhookState {
            url: String::new(),
            attempts: row.get(1)?,
            delivered_ms: moment(row, 2)?,
            error: row.get(3)?,
            due_ms: moment(row, 4)?,
        };
        Ok((row.get::<_, String>(0)?, state))
    };
    let found = tx.prepare_cached(select).and_then(|mut select| select.query_row([seq], read).optional());
    let Some((target, state)) = found.map_err(broken)? else { return Ok(None) };
    let webhook: Webhook = serde_json::from_str(&target).map_err(unreadable)?;
    Ok(Some(WebhookState { url: webhook.url, ..state }))
}
