//! How the databases of a state directory are opened by several processes at a time.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use sandtimer_os::clock::monotonic_nanoseconds;

/// Between two tries where SQLite does not wait by itself.
const AGAIN: Duration = Duration::from_millis(5);

/// Switches a database to write-ahead logging, and waits up to `patience` for other processes.
/// While another process creates the database or does the same, SQLite refuses at once, whatever
/// the busy timeout of the connection is: it takes that for a deadlock.
///
/// # Errors
/// If other processes use it for longer than `patience`, or it is not a database.
pub fn write_ahead(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let until = monotonic_nanoseconds() + patience.as_nanos() as u64;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
            Err(error)
                if matches!(
                    error.sqlite_error_code(),
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
                ) && monotonic_nanoseconds() < until =>
            {
                std::thread::park_timeout(AGAIN);
            }
            done => return done,
        }
    }
}
