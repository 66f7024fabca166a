//! Breakers that jobs share, each with a version that a change names.

use rusqlite::{OptionalExtension, Transaction};
use sandtimer::job::StoreError;
use sandtimer::resilience::BreakerSnapshot;

use super::moving::execute;
use super::{broken, integer, natural, unreadable};

/// How long one is kept behind the moment from which it may be tried again.
const KEPT_MS: i64 = 3_600_000;

/// The version of what is kept of a key, and that, its times counted down.
pub(crate) fn load(
    tx: &Transaction<'_>,
    key: &str,
    now: i64,
) -> Result<(u64, Option<BreakerSnapshot>), StoreError> {
    let select = "SELECT version, at_ms, body FROM breakers WHERE key = ?1 AND expires_ms > ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(i64, i64, String)> = tx
        .prepare_cached(select)
        .and_then(|mut select| select.query_row((key, now), read).optional())
        .map_err(broken)?;
    let Some((version, at, body)) = found else { return Ok((0, None)) };
    let mut snapshot: BreakerSnapshot = serde_json::from_str(&body).map_err(unreadable)?;
    let waited = natural(now - at);
    for left in [&mut snapshot.retry_after_ms, &mut snapshot.probe_ends_ms].into_iter().flatten() {
        *left = left.saturating_sub(waited);
    }
    Ok((natural(version), Some(snapshot)))
}

/// Keeps one in place of a version. Whether that was the one there is.
pub(crate) fn swap(
    tx: &Transaction<'_>,
    version: u64,
    snapshot: &BreakerSnapshot,
    now: i64,
) -> Result<bool, StoreError> {
    execute(tx, "DELETE FROM breakers WHERE expires_ms <= ?1", [now])?;
    let body = serde_json::to_string(snapshot).map_err(unreadable)?;
    let left = snapshot.retry_after_ms.max(snapshot.probe_ends_ms).unwrap_or(0);
    let expires = match snapshot.held {
        Some(_) => i64::MAX,
        None => now.saturating_add(integer(left)).saturating_add(KEPT_MS),
    };
    let (key, version) = (&snapshot.key, integer(version));
    let changed = if version == 0 {
        let insert = "INSERT INTO breakers (key, at_ms, body, version, expires_ms) VALUES (?1, ?2, ?3, 1, ?4)
            ON CONFLICT DO NOTHING";
        execute(tx, insert, (key, now, body, expires))?
    } else {
        let update = "UPDATE breakers SET at_ms = ?2, body = ?3, version = version + 1, expires_ms = ?4
            WHERE key = ?1 AND version = ?5";
        execute(tx, update, (key, now, body, expires, version))?
    };
    Ok(changed == 1)
}
