//! Ends of jobs that somebody is to be told of: due from the transaction that ends the job, claimed by one worker at a time.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sandtimer::job::{Delivered, Delivery, StoreError, Webhook, WebhookShares, WebhookState};

use super::moving::execute;
use super::{broken, integer, natural, unreadable};

/// Keeps whom to tell.
pub(crate) fn keep(tx: &Transaction<'_>, seq: i64, webhook: &Webhook) -> Result<(), StoreError> {
    let target = serde_json::to_string(webhook).map_err(unreadable)?;
    execute(tx, "INSERT INTO webhooks (job, target) VALUES (?1, ?2)", params![seq, target]).map(drop)
}

/// The job is over: from now on its end is to be told.
pub(crate) fn ended(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let update = "UPDATE webhooks SET since_ms = ?2, due_ms = ?2, attempts = 0, claim = claim + 1, delivered_ms = NULL,
        error = NULL WHERE job = ?1";
    execute(tx, update, (seq, now)).map(drop)
}

/// The job is not over any more: nothing is to be told until it is again.
pub(crate) fn reopened(tx: &Transaction<'_>, seq: i64) -> Result<(), StoreError> {
    let update = "UPDATE webhooks SET due_ms = NULL, claim = claim + 1 WHERE job = ?1";
    execute(tx, update, [seq]).map(drop)
}

/// Whether something is to be told. Reads only.
pub(crate) fn is_due(tx: &Transaction<'_>, now: i64) -> Result<bool, StoreError> {
    let look = "SELECT EXISTS (SELECT 1 FROM webhooks WHERE due_ms <= ?1)";
    tx.prepare_cached(look).and_then(|mut look| look.query_row([now], |row| row.get(0))).map_err(broken)
}

/// What is due, of each owner in turn what is due longest. Of an owner's no more are looked at than a few times what is ever
/// handed out: where all of these lead to hosts that have their share, the others wait as well.
const IN_TURN: &str = "SELECT seq, id, target, claim, attempts, since_ms, owner FROM (
        SELECT seq, id, target, claim, webhooks.attempts AS attempts, since_ms, owner, webhooks.due_ms AS due,
            row_number() OVER (PARTITION BY owner ORDER BY webhooks.due_ms, seq) AS turn
        FROM webhooks JOIN jobs ON job = seq WHERE webhooks.due_ms <= ?1)
    WHERE turn <= 64 ORDER BY turn, due, seq";
/// What is due, the longest due first.
const IN_ORDER: &str =
    "SELECT seq, id, target, claim, webhooks.attempts, since_ms, owner FROM webhooks JOIN jobs ON job = seq
    WHERE webhooks.due_ms <= ?1 ORDER BY webhooks.due_ms, seq";

/// Hands out what is due. It is due again after `claim` if nothing is heard of it.
pub(crate) fn claim(
    tx: &Transaction<'_>,
    most: usize,
    claim: Duration,
    shares: &WebhookShares,
    now: i64,
) -> Result<Vec<Delivery>, StoreError> {
    let until = now.saturating_add(i64::try_from(claim.as_millis()).unwrap_or(i64::MAX));
    let mut shares = shares.clone();
    let mut claimed = Vec::new();
    let mut select = tx.prepare_cached(if shares.each == 0 { IN_ORDER } else { IN_TURN }).map_err(broken)?;
    let mut found = select.query([now]).map_err(broken)?;
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
    for (seq, _) in &claimed {
        let update =
            "UPDATE webhooks SET due_ms = ?2, claim = claim + 1, attempts = attempts + 1 WHERE job = ?1";
        execute(tx, update, (*seq, until))?;
    }
    Ok(claimed.into_iter().map(|(_, delivery)| delivery).collect())
}

/// A row of either query, as it is once it is claimed.
fn read(row: &Row<'_>, now: i64) -> Result<(i64, Delivery), StoreError> {
    let parts = || -> rusqlite::Result<_> {
        Ok((
            (row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, String>(2)?),
            (row.get::<_, i64>(3)?, row.get::<_, u32>(4)?, row.get::<_, i64>(5)?, row.get(6)?),
        ))
    };
    let ((seq, id, target), (claim, attempts, since, owner)) = parts().map_err(broken)?;
    let delivery = Delivery {
        id,
        owner,
        claim: natural(claim + 1),
        webhook: serde_json::from_str(&target).map_err(unreadable)?,
        attempts: attempts + 1,
        age: Duration::from_millis(natural(now - since)),
    };
    Ok((seq, delivery))
}

/// Writes down what came of a claim, unless it has run out.
pub(crate) fn settle(
    tx: &Transaction<'_>,
    delivery: &Delivery,
    came: &Delivered,
    now: i64,
) -> Result<(), StoreError> {
    let (due, delivered, error) = match came {
        Delivered::Taken => (None, Some(now), None),
        Delivered::Again { after, error } => {
            (Some(now.saturating_add(integer(after.as_millis() as u64))), None, Some(error))
        }
        Delivered::Never { error } => (None, None, Some(error)),
    };
    let update = "UPDATE webhooks SET due_ms = ?3, delivered_ms = ?4, error = ?5
        WHERE claim = ?2 AND job = (SELECT seq FROM jobs WHERE id = ?1)";
    execute(tx, update, params![delivery.id, integer(delivery.claim), due, delivered, error]).map(drop)
}

/// What became of it.
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
