//! The durations of runs, in one SQLite file in the directory that has the records of runs.
//!
//! ```text
//! durations.sqlite   durations(id, ended_at_ms, seconds, stopped, question as JSON), newest last; `user_version` is
//!                    the layout's
//! ```
//! A question holds fingerprints, so no command line is kept here. Several processes may read and
//! write at a time (WAL); a write is on the disk after a crash of the process, and perhaps not
//! after a loss of power. A file that is damaged is moved aside and begun again: it holds nothing
//! but experience. A file of a newer version is left alone.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, params};
use sandtimer_agents::estimate::{Estimator, FinishedRun, History, HistoryError};

use crate::directory::MCP_DIRECTORY;
use crate::runs::StoreError;
use crate::write_ahead::write_ahead;

const NAME: &str = "durations.sqlite";
/// The layout that is written here; one step of [`MIGRATIONS`] leads to each.
const VERSION: i64 = MIGRATIONS.len() as i64;
/// What makes the layout of a version from the one before.
const MIGRATIONS: [&str; 1] = ["CREATE TABLE durations (
    id INTEGER PRIMARY KEY,
    ended_at_ms INTEGER NOT NULL,
    seconds REAL NOT NULL,
    stopped INTEGER NOT NULL,
    question TEXT NOT NULL
) STRICT"];
/// How many more there may be before the oldest are removed.
const PURGE_SLACK: i64 = 500;
/// How long a write waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An open file of durations, and whether it replaces a damaged one.
#[derive(Debug)]
pub struct OpenedDurations {
    /// The durations, for reading and writing.
    pub durations: DurationStore,
    /// The new path of a file that was damaged; `None` if none was.
    pub moved_aside: Option<PathBuf>,
}

/// The estimates from known durations, and remarks on the files that they are in.
#[derive(Debug)]
pub struct KnownDurations {
    /// Makes estimates from all runs that were found.
    pub estimator: Estimator,
    /// What the operator should know: files that were damaged or left out. Usually empty.
    pub remarks: Vec<String>,
}

/// The durations of runs, in a file of a state directory.
///
/// ```
/// use sandtimer_agents::estimate::{FinishedRun, History, Question};
/// use sandtimer_records::DurationStore;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let store = DurationStore::open(directory.path(), 0)?.durations;
/// let question = Question::command(&["make", "test"]);
/// let (seconds, ended_at_ms) = (12.0, 1_750_000_000_000);
/// store.append(&FinishedRun { question: question.clone(), seconds, stopped: false, ended_at_ms })?;
///
/// let known = DurationStore::known(directory.path(), 0)?;
/// assert_eq!(known.estimator.predict(&question).runs, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DurationStore {
    connection: Mutex<Connection>,
}

/// Why a file was not opened.
enum DurationsOpenError {
    Damaged,
    Newer(i64),
    Other(rusqlite::Error),
}

impl From<rusqlite::Error> for DurationsOpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => DurationsOpenError::Damaged,
            _ => DurationsOpenError::Other(error),
        }
    }
}

impl DurationStore {
    /// The number of runs that are kept: the newest ones.
    pub const MAX_DURATIONS: usize = 20_000;

    /// Returns estimates from the durations in a state directory, and in that of MCP clients below
    /// it. If there are none, no file is made; the clients' are left out if they cannot be read.
    ///
    /// `now_ms`, in milliseconds since 1970, names a file that is moved aside.
    ///
    /// # Errors
    /// As [`DurationStore::open`], and if the durations of the state directory cannot be read.
    pub fn known(state_directory: &Path, now_ms: u64) -> Result<KnownDurations, StoreError> {
        let mut remarks = Vec::new();
        let mut runs = Self::kept(state_directory, now_ms, &mut remarks)?;
        match Self::kept(&state_directory.join(MCP_DIRECTORY), now_ms, &mut remarks) {
            Ok(of_clients) => runs.extend(of_clients),
            Err(error) => remarks.push(format!("estimates do without the runs of MCP clients: {error}")),
        }
        // Estimates follow what drifts: the newest of all come last.
        runs.sort_by_key(|run| run.ended_at_ms);
        let newest = &runs[runs.len().saturating_sub(Self::MAX_DURATIONS)..];
        Ok(KnownDurations { estimator: Estimator::from_runs(newest), remarks })
    }

    /// The newest in a directory; none where there is no file of them.
    fn kept(
        directory: &Path,
        now_ms: u64,
        remarks: &mut Vec<String>,
    ) -> Result<Vec<FinishedRun>, StoreError> {
        let path = directory.join(NAME);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let OpenedDurations { durations, moved_aside } = Self::open(directory, now_ms)?;
        remarks.extend(moved_aside.map(|path| {
            let path = path.display();
            format!("the durations of runs were damaged and start empty; the old file is {path}")
        }));
        durations.newest(Self::MAX_DURATIONS).map_err(|error| StoreError::Database { path, source: error.0 })
    }

    /// Opens the file in a state directory, making what is missing with access for this user only.
    ///
    /// A file that is damaged is moved aside and begun again; `now_ms`, in milliseconds since 1970,
    /// is in its new name.
    ///
    /// # Errors
    /// If a newer version of Sandtimer wrote it, or the directory cannot be written.
    pub fn open(state_directory: &Path, now_ms: u64) -> Result<OpenedDurations, StoreError> {
        let failed = |source| StoreError::Directory { path: state_directory.to_owned(), source };
        fs::DirBuilder::new().recursive(true).create(state_directory).map_err(failed)?;
        let path = state_directory.join(NAME);
        // SQLite gives its other files the mode of this one.
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(failed)?;
        drop(made);
        let (connection, moved_aside) = match connect(&path) {
            Ok(connection) => (connection, None),
            Err(DurationsOpenError::Damaged) => {
                let aside = move_aside(&path, now_ms).map_err(failed)?;
                (connect(&path).map_err(|failure| refused(&path, failure))?, Some(aside))
            }
            Err(failure) => return Err(refused(&path, failure)),
        };
        Ok(OpenedDurations { durations: DurationStore { connection: Mutex::new(connection) }, moved_aside })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Each use is one transaction, which a panic rolls back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(path: &Path, failure: DurationsOpenError) -> StoreError {
    let path = path.to_owned();
    match failure {
        DurationsOpenError::Newer(version) => StoreError::Newer { path, version, known: VERSION },
        DurationsOpenError::Damaged => StoreError::Database { path, source: "the file is damaged".into() },
        DurationsOpenError::Other(error) => StoreError::Database { path, source: error.into() },
    }
}

fn connect(path: &Path) -> Result<Connection, DurationsOpenError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    write_ahead(&connection, BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        return Err(DurationsOpenError::Damaged);
    }
    migrate(&mut connection)?;
    Ok(connection)
}

/// Brings the layout up to this version, where another process may be doing the same.
fn migrate(connection: &mut Connection) -> Result<(), DurationsOpenError> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if !(0..=VERSION).contains(&version) {
        return Err(DurationsOpenError::Newer(version));
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// Moves a file and SQLite's files that belong to it out of the way.
fn move_aside(path: &Path, now_ms: u64) -> io::Result<PathBuf> {
    let with_suffix = |path: &Path, ending: &str| PathBuf::from(format!("{}{ending}", path.display()));
    let aside = with_suffix(path, &format!(".damaged-{now_ms}"));
    fs::rename(path, &aside)?;
    for ending in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, ending), with_suffix(&aside, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

fn unusable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HistoryError {
    HistoryError(error.into())
}

impl History for DurationStore {
    fn append(&self, run: &FinishedRun) -> Result<(), HistoryError> {
        let question = serde_json::to_string(&run.question).map_err(unusable)?;
        let ended_at = i64::try_from(run.ended_at_ms).unwrap_or(i64::MAX);
        let connection = self.lock();
        connection
            .execute(
                "INSERT INTO durations (ended_at_ms, seconds, stopped, question) VALUES (?, ?, ?, ?)",
                params![ended_at, run.seconds, run.stopped, question],
            )
            .map_err(unusable)?;
        let last = connection.last_insert_rowid();
        if last % PURGE_SLACK == 0 {
            let oldest = last - DurationStore::MAX_DURATIONS as i64;
            connection.execute("DELETE FROM durations WHERE id <= ?", [oldest]).map_err(unusable)?;
        }
        Ok(())
    }

    fn newest(&self, most: usize) -> Result<Vec<FinishedRun>, HistoryError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT ended_at_ms, seconds, stopped, question FROM durations ORDER BY id DESC LIMIT ?")
            .map_err(unusable)?;
        let rows = statement.query_map([most], |row| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get::<_, String>(3)?))
        });
        let mut runs = Vec::new();
        for row in rows.map_err(unusable)? {
            let (ended_at, seconds, stopped, question) = row.map_err(unusable)?;
            // A type that this version does not know is no experience here.
            let Ok(question) = serde_json::from_str(&question) else { continue };
            runs.push(FinishedRun {
                question,
                seconds,
                stopped,
                ended_at_ms: u64::try_from(ended_at).unwrap_or(0),
            });
        }
        runs.reverse();
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandtimer_agents::estimate::{Question, Rung};

    use super::*;

    fn run(seconds: f64) -> FinishedRun {
        FinishedRun { question: Question::command(&["make"]), seconds, stopped: false, ended_at_ms: 7 }
    }

    fn open(directory: &Path) -> OpenedDurations {
        DurationStore::open(directory, 5).expect("it opens")
    }

    fn seconds(store: &DurationStore, most: usize) -> Vec<f64> {
        store.newest(most).expect("readable").iter().map(|run| run.seconds).collect()
    }

    #[test]
    fn written_durations_are_visible_to_other_stores() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = open(directory.path()).durations;
        let second = open(directory.path()).durations;
        for value in [1.0, 2.0, 3.0] {
            first.append(&run(value)).expect("written");
        }
        second.append(&FinishedRun { stopped: true, ..run(4.0) }).expect("written");
        assert_eq!(seconds(&first, 3), [2.0, 3.0, 4.0]);
        assert_eq!(first.newest(1).expect("readable"), [FinishedRun { stopped: true, ..run(4.0) }]);
        drop((first, second));
        let again = open(directory.path());
        assert_eq!((seconds(&again.durations, 9), again.moved_aside), (vec![1.0, 2.0, 3.0, 4.0], None));
        let mode = fs::metadata(directory.path().join(NAME)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[test]
    fn durations_of_two_servers_are_merged_by_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let asked = Question::command(&["make"]);
        let known = || DurationStore::known(directory.path(), 5).expect("readable").estimator;
        assert_eq!(known().predict(&asked).basis, Rung::Unknown);
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is made");
        let (own, agents) = (open(directory.path()), open(&directory.path().join(MCP_DIRECTORY)));
        for minute in 0..20 {
            // Its duration has doubled, and either server has recorded half of the runs.
            let run = FinishedRun { ended_at_ms: minute, ..run(if minute < 10 { 10.0 } else { 20.0 }) };
            let store = if minute % 2 == 0 { &own } else { &agents };
            store.durations.append(&run).expect("written");
        }
        let both = known().predict(&asked);
        let chronological: Vec<FinishedRun> = (0..20)
            .map(|minute| FinishedRun { ended_at_ms: minute, ..run(if minute < 10 { 10.0 } else { 20.0 }) })
            .collect();
        assert_eq!(both, Estimator::from_runs(&chronological).predict(&asked));
        assert_eq!(both.runs, 20);
    }

    #[test]
    fn several_may_open_one_and_write_to_it_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let store = open(directory.path()).durations;
                    (0..20).for_each(|_| store.append(&run(1.0)).expect("written"));
                });
            }
        });
        assert_eq!(seconds(&open(directory.path()).durations, 1000).len(), 160);
    }

    #[test]
    fn a_file_of_a_newer_version_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        open(directory.path()).durations.append(&run(1.0)).expect("written");
        let path = directory.path().join(NAME);
        let other = Connection::open(&path).expect("it opens");
        other.pragma_update(None, "user_version", VERSION + 1).expect("set");
        drop(other);
        let before = fs::read(&path).expect("there");
        let refused = DurationStore::open(directory.path(), 5).expect_err("newer").to_string();
        assert!(refused.contains("version 2") && refused.contains("durations.sqlite"), "{refused}");
        assert_eq!(fs::read(&path).expect("there"), before);
    }

    #[test]
    fn damaged_file_is_moved_aside_and_recreated() {
        let whole = {
            let directory = tempfile::tempdir().expect("a directory");
            let store = open(directory.path()).durations;
            (0..300).for_each(|value| store.append(&run(f64::from(value))).expect("written"));
            drop(store);
            fs::read(directory.path().join(NAME)).expect("there")
        };
        let mut overwritten = whole.clone();
        overwritten[4096..8192].fill(0xa5);
        for damaged in
            [&whole[..whole.len() / 2], &whole[..100], b"not a database, but of some length", &overwritten]
        {
            let directory = tempfile::tempdir().expect("a directory");
            fs::write(directory.path().join(NAME), damaged).expect("written");
            let opened = open(directory.path());
            let aside = opened.moved_aside.expect("moved aside");
            assert_eq!(fs::read(aside).expect("there"), damaged);
            assert_eq!(seconds(&opened.durations, 9), [0.0; 0]);
            opened.durations.append(&run(1.0)).expect("written");
            assert_eq!(seconds(&opened.durations, 9), [1.0]);
        }
    }

    #[test]
    fn only_the_newest_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path()).durations;
        store.lock().execute_batch("BEGIN").expect("begun");
        (0..DurationStore::MAX_DURATIONS + 1000).for_each(|_| store.append(&run(1.0)).expect("written"));
        store.lock().execute_batch("COMMIT").expect("done");
        let kept = store.newest(usize::MAX).expect("readable").len();
        assert!(
            (DurationStore::MAX_DURATIONS..DurationStore::MAX_DURATIONS + PURGE_SLACK as usize)
                .contains(&kept),
            "{kept}"
        );
    }
}
