//! A private copy of the store's tables, brought about by the log: each command in its turn, one
//! transaction for each.
//!
//! It is never what is durable. It is in a file without a name, which is gone with its process, and
//! it knows how far in the log it is.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::job::StoreError;
use rusqlite::backup::Progress;
use rusqlite::{Connection, MAIN_DB, OptionalExtension, Transaction};

use super::command::{CommandResult, FORMAT, LogEntry, is_rejection};
use crate::sqlite::values::{broken, integer, natural};
use crate::sqlite::{keep_statements, schema};

/// How long the parts of a command are kept for the last one: longer than a sender that lives
/// takes.
const PARTS_MS: i64 = 60_000;

/// Besides the tables of jobs: their position in the log, and commands of which parts are missing.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS place (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL,
    now_ms INTEGER NOT NULL,
    last TEXT NOT NULL
) STRICT;
INSERT OR IGNORE INTO place VALUES (1, 0, 0, '');
CREATE TABLE IF NOT EXISTS parts (
    command TEXT NOT NULL,
    part INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (command, part)
) STRICT, WITHOUT ROWID;
";

/// A message of the log.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub sequence: u64,
    /// When the server took it in.
    pub at_ms: i64,
    /// The version of the log that it was written for.
    pub format: i64,
    /// The command's, and which part of how many this is, from 1.
    pub id: &'a str,
    pub part: (u32, u32),
    pub payload: &'a [u8],
}

/// A copy of the tables.
#[derive(Debug)]
pub(super) struct Replica {
    connection: Connection,
    /// The last message that is in it, and the id of that message's command.
    sequence: u64,
    last: String,
    now: i64,
}

impl Replica {
    /// An empty one, from before the log's first message.
    pub fn empty() -> Result<Self, StoreError> {
        Self::of(temporary()?).map_err(here)
    }

    /// One from a snapshot.
    pub fn from_snapshot(file: &Path) -> Result<Self, StoreError> {
        let mut connection = temporary()?;
        connection.restore(MAIN_DB, file, None::<fn(Progress)>).map_err(broken).map_err(here)?;
        Self::of(connection).map_err(here)
    }

    fn of(mut connection: Connection) -> Result<Self, StoreError> {
        keep_statements(&connection)?;
        schema::migrate(&mut connection)?;
        connection.execute_batch(TABLES).map_err(broken)?;
        let read = |row: &rusqlite::Row<'_>| Ok((natural(row.get(0)?), row.get(1)?, row.get(2)?));
        let position = connection.query_row("SELECT sequence, now_ms, last FROM place", [], read);
        let (sequence, now, last) = position.map_err(broken)?;
        Ok(Replica { connection, sequence, last, now })
    }

    /// The last message that is in it: its place in the log, and its command's id.
    pub fn position(&self) -> (u64, &str) {
        (self.sequence, &self.last)
    }

    /// The log's last moment.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// How large it is.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let value =
            |name: &str| self.connection.pragma_query_value(None, name, |row| row.get(0)).map(natural);
        Ok(value("page_count").map_err(broken)? * value("page_size").map_err(broken)?)
    }

    /// Writes it to a file that is there and empty.
    pub fn save(&self, file: &Path) -> Result<(), StoreError> {
        self.connection.backup(MAIN_DB, file, None::<fn(Progress)>).map_err(broken)
    }

    /// Takes in the next message. What its command did, where it is a command's last part.
    ///
    /// # Errors
    /// When this copy cannot be brought further: nothing of the message is in it.
    pub fn apply(
        &mut self,
        message: &Message<'_>,
    ) -> Result<Option<Result<CommandResult, StoreError>>, StoreError> {
        self.take_in(message).map_err(here)
    }

    fn take_in(
        &mut self,
        message: &Message<'_>,
    ) -> Result<Option<Result<CommandResult, StoreError>>, StoreError> {
        if message.format > FORMAT {
            return Err(StoreError::Newer { found: message.format, known: FORMAT });
        }
        let now = self.now.max(message.at_ms);
        let tx = self.connection.transaction().map_err(broken)?;
        let whole = join(&tx, message, now)?;
        // A message that is not a command may come from any client of the server, and no caller
        // waits for it.
        let entry = whole.and_then(|payload| serde_json::from_slice::<LogEntry>(&payload).ok());
        let done = entry.map(|entry| entry.perform(&tx, now, message.format));
        if matches!(&done, Some(Err(error)) if !is_rejection(error)) {
            return done.transpose().map(|_| None);
        }
        let tx = if matches!(done, Some(Err(_))) {
            // A refused command has no effect, but its place in the log has been passed.
            tx.rollback().map_err(broken)?;
            let tx = self.connection.transaction().map_err(broken)?;
            forget(&tx, message.id)?;
            tx
        } else {
            tx
        };
        let update = "UPDATE place SET sequence = ?1, now_ms = ?2, last = ?3";
        tx.prepare_cached(update)
            .and_then(|mut update| update.execute((integer(message.sequence), now, message.id)))
            .map_err(broken)?;
        tx.commit().map_err(broken)?;
        (self.sequence, self.now) = (message.sequence, now);
        message.id.clone_into(&mut self.last);
        Ok(done)
    }

    /// One transaction for reading.
    pub fn read<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        work(&self.connection.transaction().map_err(broken)?)
    }
}

fn temporary_directory() -> PathBuf {
    std::env::temp_dir()
}

/// That this disk is full is not that the server's is.
fn here(error: StoreError) -> StoreError {
    match error {
        StoreError::Full(why) => StoreError::Broken(format!(
            "this program's copy of it cannot grow in {} ({why}); free some space there, or set TMPDIR",
            temporary_directory().display()
        )),
        other => other,
    }
}

/// In a file whose name is taken away at once. A temporary database of SQLite's own would keep
/// every changed page as one to be written, and walk them all at each commit.
fn temporary() -> Result<Connection, StoreError> {
    let file = tempfile::Builder::new().prefix("sandtimer-jobs-").tempfile();
    let failed = |error| {
        StoreError::Broken(format!("no copy can be made in {}: {error}", temporary_directory().display()))
    };
    let connection = Connection::open(file.map_err(failed)?.path()).map_err(broken)?;
    connection.pragma_update_and_check(None, "journal_mode", "memory", |_| Ok(())).map_err(broken)?;
    connection.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(())).map_err(broken)?;
    connection.pragma_update(None, "synchronous", "off").map_err(broken)?;
    // In KiB.
    connection.pragma_update(None, "cache_size", -65_536).map_err(broken)?;
    Ok(connection)
}

/// The whole command, if this is its last part.
fn join<'a>(
    tx: &Transaction<'_>,
    message: &Message<'a>,
    now: i64,
) -> Result<Option<Cow<'a, [u8]>>, StoreError> {
    let (part, of) = message.part;
    tx.prepare_cached("DELETE FROM parts WHERE at_ms < ?1")
        .and_then(|mut delete| delete.execute([now - PARTS_MS]))
        .map_err(broken)?;
    if of <= 1 {
        return Ok(Some(Cow::Borrowed(message.payload)));
    }
    if part < of {
        let insert = "INSERT OR REPLACE INTO parts VALUES (?1, ?2, ?3, ?4)";
        tx.execute(insert, (message.id, part, now, message.payload)).map_err(broken)?;
        return Ok(None);
    }
    let mut whole = Vec::new();
    for earlier in 1..part {
        let select = "SELECT bytes FROM parts WHERE command = ?1 AND part = ?2";
        let found = tx.query_row(select, (message.id, earlier), |row| row.get::<_, Vec<u8>>(0));
        let Some(bytes) = found.optional().map_err(broken)? else { return Ok(None) };
        whole.extend(bytes);
    }
    whole.extend_from_slice(message.payload);
    forget(tx, message.id)?;
    Ok(Some(Cow::Owned(whole)))
}

fn forget(tx: &Transaction<'_>, command: &str) -> Result<(), StoreError> {
    let delete = "DELETE FROM parts WHERE command = ?1";
    tx.prepare_cached(delete).and_then(|mut delete| delete.execute([command])).map(drop).map_err(broken)
}
