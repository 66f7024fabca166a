//! Leases are kept, and inspected.

use std::time::Duration;

use crate::job::{JobLease, Renewal, StoreError};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::values::{broken, execute, integer};

/// What is wanted of a lease.
pub(crate) fn read_renewal(tx: &Transaction<'_>, held: &JobLease) -> Result<Renewal, StoreError> {
    let select = "SELECT cancel FROM jobs WHERE id = ?1 AND epoch = ?2 AND state = 2";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| row.get::<_, Option<String>>(0);
    Ok(match select.query_row((&held.id, integer(held.epoch)), read).optional().map_err(broken)? {
        None => Renewal::Lost,
        Some(None) => Renewal::Kept,
        Some(Some(reason)) => Renewal::Cancel(reason),
    })
}

/// Keeps a lease for that long from now.
pub(crate) fn renew(
    tx: &Transaction<'_>,
    held: &JobLease,
    lease: Duration,
    now: i64,
) -> Result<Renewal, StoreError> {
    let update = "UPDATE jobs SET lease_ms = ?3 WHERE id = ?1 AND epoch = ?2 AND state = 2";
    execute(tx, update, params![held.id, integer(held.epoch), end_of(lease, now)])?;
    read_renewal(tx, held)
}

pub(super) fn end_of(lease: Duration, now: i64) -> i64 {
    now.saturating_add(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
}
