//! Values of columns, and the failures of statements, as the store has them.

use rusqlite::{ErrorCode, Transaction};

use crate::job::{JobState, StoreError};

/// What a point of priority is worth, in milliseconds of waiting.
const PRIORITY_STEP_MS: i64 = 60_000;

/// What a result in the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Recorded = 0,
    Earlier = 1,
    Duplicate = 2,
}

/// Executes a statement; returns the number of rows that it changed.
pub(crate) fn execute(
    tx: &Transaction<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<usize, StoreError> {
    tx.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(broken)
}

/// Converts an error of SQLite to one of the store.
pub(crate) fn broken(error: rusqlite::Error) -> StoreError {
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    match error.sqlite_error_code() {
        Some(_) if extended == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => {
            StoreError::Full("there is no room on the disk to open it".to_owned())
        }
        Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        _ => StoreError::Broken(error.to_string()),
    }
}

pub(crate) fn unreadable(error: serde_json::Error) -> StoreError {
    StoreError::Broken(format!("a row cannot be read: {error}"))
}

pub(crate) fn state_number(state: JobState) -> i64 {
    JobState::ALL.iter().position(|known| *known == state).unwrap_or(0) as i64
}

pub(crate) fn state_of(number: i64) -> JobState {
    usize::try_from(number).ok().and_then(|index| JobState::ALL.get(index).copied()).unwrap_or(JobState::Dead)
}

pub(crate) fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The rank of a job in its queue.
pub(crate) fn rank(due_ms: i64, priority: i64) -> i64 {
    due_ms - priority * PRIORITY_STEP_MS
}
