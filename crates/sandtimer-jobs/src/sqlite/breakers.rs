//! Breakers that jobs share, each with a version that a change names.

use sandtimer_agents::resilience::BreakerSnapshot;

use crate::job::{BreakerPage, StoreError, StoredBreaker, breaker_key};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use rusqlite::{OptionalExtension, Transaction};

use super::values::{broken, execute, integer, natural, unreadable};

/// How long a breaker is kept after the moment from which it may be tried again: longer than most
/// calls, whose results it needs.
const RETENTION_MS: i64 = 7 * 24 * 3_600_000;
/// How many are kept; beyond that, the ones that would expire first are removed.
const MAX_BREAKERS: i64 = 10_000;

/// The version of what is kept of a key, and that, its times counted down. What is to be forgotten
/// has its version still: whose clock is ahead of the one by which it is changed finds the same
/// row.
pub(crate) fn load(
    tx: &Transaction<'_>,
    key: &str,
    now: i64,
) -> Result<(u64, Option<BreakerSnapshot>), StoreError> {
    let select = "SELECT version, at_ms, expires_ms, body FROM breakers WHERE key = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found: Option<(i64, i64, i64, String)> = tx
        .prepare_cached(select)
        .and_then(|mut select| select.query_row([key], read).optional())
        .map_err(broken)?;
    let Some((version, at, expires, body)) = found else { return Ok((0, None)) };
    if expires <= now {
        return Ok((natural(version), None));
    }
    Ok((natural(version), Some(counted_down(&body, natural(now - at))?)))
}

/// Returns at most `most` breakers of an owner, or of all owners, by owner and key, after a cursor:
/// the primary key is searched.
pub(crate) fn list(
    tx: &Transaction<'_>,
    owner: Option<&str>,
    cursor: Option<&str>,
    most: usize,
    now: i64,
) -> Result<BreakerPage, StoreError> {
    // All keys of an owner, and no others, lie between these two: a breaker's key begins with its
    // owner and a new line.
    let range = owner.map(|owner| (breaker_key(owner, ""), format!("{owner}\u{b}")));
    let first = cursor.map(key_of).transpose()?;
    let (lower, upper) = match range {
        Some((lower, upper)) => (first.map_or(lower.clone(), |first| first.max(lower)), Some(upper)),
        None => (first.unwrap_or_default(), None),
    };
    let mut select = tx.prepare_cached(select(upper.is_some())).map_err(broken)?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    };
    let limit = integer(most as u64);
    let rows = match &upper {
        Some(upper) => select.query_map((now, lower, limit, upper), read),
        None => select.query_map((now, lower, limit), read),
    };
    let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(broken)?;
    let next = rows.last().filter(|_| rows.len() == most).map(|(key, ..)| cursor_at(key));
    let breakers = rows
        .into_iter()
        .map(|(_, at, body)| counted_down(&body, natural(now - at)).map(StoredBreaker::of))
        .collect::<Result<_, _>>()?;
    Ok(BreakerPage { breakers, next })
}

/// The statement of a part of the list, with an upper bound of its keys or without.
pub(super) fn select(is_bounded: bool) -> &'static str {
    match is_bounded {
        true => {
            "SELECT key, at_ms, body FROM breakers
            WHERE expires_ms > ?1 AND key > ?2 AND key < ?4 ORDER BY key LIMIT ?3"
        }
        false => {
            "SELECT key, at_ms, body FROM breakers WHERE expires_ms > ?1 AND key > ?2 ORDER BY key LIMIT ?3"
        }
    }
}

/// The cursor of what follows a key.
fn cursor_at(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

/// The key that a cursor names.
fn key_of(cursor: &str) -> Result<String, StoreError> {
    let key = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| StoreError::Cursor(cursor.to_owned()))
}

/// What is kept of a breaker, its times less those that have passed.
fn counted_down(body: &str, waited: u64) -> Result<BreakerSnapshot, StoreError> {
    let mut snapshot: BreakerSnapshot = serde_json::from_str(body).map_err(unreadable)?;
    snapshot.retry_after_ms = snapshot.retry_after_ms.map(|left| left.saturating_sub(waited));
    snapshot.probe_ends_ms = snapshot.probe_ends_ms.map(|left| left.saturating_sub(integer(waited)));
    Ok(snapshot)
}

/// Keeps one in place of a version. Whether that was the one there is.
pub(crate) fn swap(
    tx: &Transaction<'_>,
    version: u64,
    snapshot: &BreakerSnapshot,
    now: i64,
) -> Result<bool, StoreError> {
    execute(tx, "DELETE FROM breakers WHERE expires_ms <= ?1 AND key <> ?2", (now, &snapshot.key))?;
    let body = serde_json::to_string(snapshot).map_err(unreadable)?;
    let probe = snapshot.probe_ends_ms.map_or(0, natural);
    let left = snapshot.retry_after_ms.unwrap_or(0).max(probe);
    let expires = match snapshot.held {
        Some(_) => i64::MAX,
        None => now.saturating_add(integer(left)).saturating_add(RETENTION_MS),
    };
    let (key, version) = (&snapshot.key, integer(version));
    let changed = if version == 0 {
        let insert = "INSERT INTO breakers (key, at_ms, body, version, expires_ms) VALUES (?1, ?2, ?3, 1, ?4)
            ON CONFLICT DO NOTHING";
        let most = "DELETE FROM breakers WHERE expires_ms < (SELECT expires_ms FROM breakers ORDER BY expires_ms DESC LIMIT 1 OFFSET ?1)";
        execute(tx, most, [MAX_BREAKERS - 1])?;
        execute(tx, insert, (key, now, body, expires))?
    } else {
        let update = "UPDATE breakers SET at_ms = ?2, body = ?3, version = version + 1, expires_ms = ?4
            WHERE key = ?1 AND version = ?5";
        execute(tx, update, (key, now, body, expires, version))?
    };
    Ok(changed == 1)
}
