//! The directory of run records: one server writes it at a time.
//!
//! A run is recorded when it begins and again when it has ended; between the two its output is
//! copied to journals. What has only begun when the directory is opened ended with the server that
//! ran it, and gets an Outcome that reports that.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock, syncfs};
use rustix::io::Errno;
use sandtimer::engine::Stream;
use sandtimer::model::{
    Degradation, Encoding, Ending, Isolation, KillClass, Outcome, Path as RunPath, Proof, RemainingState,
    Reporter, Tier, TreeReport, Usage,
};
use sandtimer::supervise::output::Chunk;

use crate::journal::{Journal, LeftoverJournal};
use crate::record::{Beginning, RunStart, StoredRun, create};
use crate::spares::{PREALLOCATED_EXTENSION, PreallocatedFiles};

/// The error message of a run that ended with its server.
const ENDED_WITH_SERVER: &str = "the run ended with the server, which died while it was running; its processes were killed by the sandbox's own init and watchdog, and the end of its output may be missing";

/// The ending of the name of what is recorded when a run begins.
const BEGUN: &str = "begun";
/// The endings of the names of a run's journals, by stream.
const JOURNALS: [&str; 2] = ["stdout", "stderr"];

/// Why records cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the directory open.
    #[error("the state directory {} is used by another server", .0.display())]
    InUse(PathBuf),
    /// The directory cannot be made, read or written.
    #[error("the state directory {} cannot be used: {source}", path.display())]
    Directory {
        /// The state directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A newer version of Sandtimer wrote the file; it was not changed.
    #[error(
        "{} was written by a newer version of Sandtimer (its layout is version {version}, known is {known}); update, or move \
         it away",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The version of its layout.
        version: i64,
        /// The newest version that this program can read.
        known: i64,
    },
    /// The database cannot be opened, read or written.
    #[error("{} cannot be used: {source}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The error of SQLite, or what is wrong with the file.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// An open directory of records, and what was found in it.
#[derive(Debug)]
pub struct OpenedRunStore {
    /// The open directory.
    pub store: RunStore,
    /// The runs that have ended, in no particular order.
    pub runs: Vec<StoredRun>,
    /// Files that cannot be read as records, and why.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// What is in a directory when it is opened.
#[derive(Debug, Default)]
struct DirectoryContent {
    runs: Vec<StoredRun>,
    unreadable: Vec<(PathBuf, io::Error)>,
    begun: Vec<(PathBuf, RunStart)>,
    journals: Vec<PathBuf>,
}

/// The directory of run records, which one process has open at a time.
///
/// ```
/// use sandtimer::Ending;
/// use sandtimer_records::{RunStart, RunStore};
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let opened = RunStore::open(directory.path(), 1_000)?;
/// opened.store.begin(&RunStart {
///     run_id: "run-1".to_owned(),
///     owner: "uid:1000".to_owned(),
///     command: vec!["sleep".to_owned(), "3600".to_owned()],
///     created_at_ms: 1_000,
///     effective: json!({"wall_ms": null}),
///     context_id: None,
///     sandbox: None,
/// })?;
/// // The server dies before it records the end.
/// drop(opened);
///
/// let opened = RunStore::open(directory.path(), 2_000)?;
/// let end = opened.runs[0].ended();
/// assert_eq!((end.begun.run_id.as_str(), end.ended_at_ms), ("run-1", 2_000));
/// assert_eq!(end.outcome.ending, Ending::InfraError);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunStore {
    directory: PathBuf,
    preallocated: PreallocatedFiles,
    /// Locked for as long as it is open.
    lock: File,
    /// Records that a loss of power could take.
    unsynced: AtomicBool,
    /// Records that may still have the files which they replace. These are removed later, so that
    /// no caller who waits for an end waits for that.
    replaced: Mutex<Vec<PathBuf>>,
}

impl RunStore {
    /// Opens the records below a state directory, making what is missing with access for this user
    /// only.
    ///
    /// `now_ms`, in milliseconds since 1970, is recorded as the end of runs that ended with an
    /// earlier server.
    ///
    /// # Errors
    /// If another process has it open, or the directory cannot be written.
    pub fn open(state_directory: &Path, now_ms: u64) -> Result<OpenedRunStore, StoreError> {
        let failed = |source| StoreError::Directory { path: state_directory.to_owned(), source };
        let directory = state_directory.join("runs");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state_directory.join("lock"))
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse(state_directory.to_owned())),
            Err(error) => return Err(failed(error.into())),
        }
        let preallocated = PreallocatedFiles::new(directory.clone());
        let unsynced = AtomicBool::new(false);
        let store = RunStore { directory, preallocated, lock, unsynced, replaced: Mutex::default() };
        let DirectoryContent { mut runs, mut unreadable, begun, journals } = store.load().map_err(failed)?;
        let over = |path: &Path| runs.iter().any(|run| run.path.file_stem() == path.file_stem());
        // A run that has ended does not need them; those of the other runs are taken up below.
        journals.iter().filter(|path| over(path)).for_each(|path| drop(fs::remove_file(path)));
        for (path, begun) in begun {
            if runs.iter().all(|run| run.ended().begun.run_id != begun.run_id) {
                let outcome = ended_with_server(&begun.run_id);
                let left = JOURNALS.map(|name| LeftoverJournal::open(&store.path(&begun.run_id, name)));
                let read = &mut |stream: Stream, cursor, most| match &left[stream as usize] {
                    Ok(left) => left.read(cursor, most),
                    // It had no output yet, or its output cannot be read.
                    Err(_) => Ok(nothing()),
                };
                runs.push(store.finish(begun, now_ms, &outcome, read).map_err(failed)?);
            } else if let Err(error) = fs::remove_file(&path) {
                unreadable.push((path, error));
            }
        }
        store.tidy();
        Ok(OpenedRunStore { store, runs, unreadable })
    }

    fn load(&self) -> io::Result<DirectoryContent> {
        let mut found = DirectoryContent::default();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let read = match path.extension().and_then(|extension| extension.to_str()) {
                Some("run") => StoredRun::read(path.clone()).map(|run| found.runs.push(run)),
                Some(BEGUN) => read_begun(&path).map(|record| found.begun.push((path.clone(), record))),
                // Half written when its writer died.
                Some("part") => fs::remove_file(&path),
                Some(PREALLOCATED_EXTENSION) => self.preallocated.add(path.clone()),
                Some(name) if JOURNALS.contains(&name) => {
                    found.journals.push(path.clone());
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(error) = read {
                found.unreadable.push((path, error));
            }
        }
        Ok(found)
    }

    /// The path of the directory, which is `runs` below the state directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, run_id: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{run_id}.{extension}"))
    }

    /// Records that a run has begun. It outlives this process; after a loss of power it may be
    /// missing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, begun: &RunStart) -> io::Result<()> {
        let record = serde_json::to_vec(begun)?;
        let (mut file, prepared_path) = self.preallocated.take()?;
        let written = file.write_all(&record);
        let done = written.and_then(|()| fs::rename(&prepared_path, self.path(&begun.run_id, BEGUN)));
        done.inspect_err(|_| {
            // The next start sweeps it.
            let _ = fs::remove_file(&prepared_path);
        })
    }

    /// Makes a copy of one stream of an active run, of which `limit` bytes are kept; `None` is all.
    ///
    /// # Errors
    /// If it cannot be written, or there is one already.
    pub fn journal(&self, run_id: &str, stream: Stream, limit: Option<u64>) -> io::Result<Journal> {
        Journal::create(&self.path(run_id, JOURNALS[stream as usize]), limit)
    }

    /// Records that a run has ended, and copies its output: `output` reads at most a number of
    /// bytes of a stream from a position, as [`sandtimer::Run::output`] does. When this returns,
    /// the record outlives this process; after the next [`RunStore::sync`] also a loss of power. It
    /// may be called again with a later Outcome; the earlier record stays readable.
    ///
    /// # Errors
    /// If the output cannot be read, or the record cannot be written.
    pub fn finish(
        &self,
        begun: RunStart,
        ended_at_ms: u64,
        outcome: &Outcome,
        output: &mut dyn FnMut(Stream, u64, usize) -> io::Result<Chunk>,
    ) -> io::Result<StoredRun> {
        let path = self.path(&begun.run_id, "run");
        let [from, part] = [BEGUN, "part"].map(|name| self.path(&begun.run_id, name));
        let write = |beginning, from: &Path| {
            let ended = StoredRun::write(beginning, begun, ended_at_ms, outcome, output)?;
            fs::rename(from, &path).map(|()| ended)
        };
        let written = match File::options().write(true).open(&from) {
            Ok(mut file) => {
                let at = file.seek(SeekFrom::End(0))?;
                let written = write(Beginning::after_bytes(file.try_clone()?, at), &from);
                // As it was. What stays all the same the next start sweeps.
                written.inspect_err(|_| drop(file.set_len(at)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = create(&part)?;
                let written = renewed(file, &path).and_then(|beginning| write(beginning, &part));
                written.inspect_err(|_| drop(fs::remove_file(&part)))
            }
            Err(error) => Err(error),
        }?;
        self.replaced().push(path.clone());
        self.unsynced.store(true, Ordering::Release);
        Ok(StoredRun::new(path, written))
    }

    /// Removes what records have replaced.
    fn tidy(&self) {
        let replaced = std::mem::take(&mut *self.replaced());
        replaced.iter().for_each(|path| clear(path));
    }

    fn replaced(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        // Whole whatever happened.
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Preallocates some files, so that [`RunStore::begin`] need not make them. Returns whether
    /// there are enough until some are taken.
    pub fn prepare(&self) -> bool {
        self.preallocated.preallocate()
    }

    /// Removes the files that records have replaced, and waits until all records so far are on the
    /// disk.
    ///
    /// # Errors
    /// If the disk reports an error; the next call tries again.
    pub fn sync(&self) -> io::Result<()> {
        // One call for any number of records: each by itself would keep the disk busy.
        self.sync_by(|file| syncfs(file).map_err(io::Error::from))
    }

    fn sync_by(&self, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        self.tidy();
        if !self.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        // What is not on the disk is so until a later call has succeeded.
        sync(&self.lock).inspect_err(|_| self.unsynced.store(true, Ordering::Release))
    }

    /// Removes the record of a run that has ended.
    ///
    /// # Errors
    /// If its file cannot be removed. It is not an error if the file does not exist.
    pub fn remove(&self, run: &StoredRun) -> io::Result<()> {
        // First, so that the next start does not find that it has only begun.
        clear(&run.path);
        match fs::remove_file(&run.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// In a new file, with the output that an earlier record of the same run has.
fn renewed(file: File, earlier: &Path) -> io::Result<Beginning> {
    use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    match Beginning::copied(file.try_clone()?, earlier) {
        // There is none, or none that could be read.
        Err(error) if matches!(error.kind(), NotFound | InvalidData | UnexpectedEof) => {
            Ok(Beginning::after_bytes(file, 0))
        }
        copied => copied,
    }
}

/// Removes what the record replaces. What stays is removed at the next start.
fn clear(record: &Path) {
    for name in JOURNALS.iter().chain([&BEGUN]) {
        let _ = fs::remove_file(record.with_extension(name));
    }
}

/// Reads the beginning of a file, after which its writer may have been killed.
fn read_begun(path: &Path) -> io::Result<RunStart> {
    let bytes = fs::read(path)?;
    let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter();
    let first = values.next().unwrap_or_else(|| Err(serde::de::Error::custom("it is empty")));
    Ok(first?)
}

fn nothing() -> Chunk {
    Chunk { bytes: Vec::new(), next_cursor: 0, dropped_before: 0 }
}

/// The Outcome of a run whose server died. What was in force and what it used went with the server.
fn ended_with_server(run_id: &str) -> Outcome {
    let error = serde_json::json!({"code": "infra_error", "message": ENDED_WITH_SERVER});
    Outcome {
        stdout_truncated: true,
        stderr_truncated: true,
        tree: TreeReport { killed: 0, survivors: None, proof: Proof::Pending, dead_after_ms: None },
        ..bare_outcome(
            run_id,
            Ending::InfraError,
            error,
            "the server died before it reported what was in force",
        )
    }
}

/// Makes an Outcome without output, usage and isolation, with this ending and `error`. `unknown` is
/// the reason why the isolation is not known, for its report.
pub fn bare_outcome(run_id: &str, ending: Ending, error: serde_json::Value, unknown: &str) -> Outcome {
    Outcome {
        run_id: run_id.to_owned(),
        ending,
        ok: false,
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        stdout_truncated: false,
        stderr_truncated: false,
        encoding: Encoding::Utf8,
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Utf8,
        value: None,
        error: Some(error),
        results: Vec::new(),
        execution_count: None,
        notices: Vec::new(),
        remarks: Vec::new(),
        verdict: None,
        tree: TreeReport {
            killed: 0,
            survivors: Some(0),
            proof: Proof::PidNamespaceRemoved,
            dead_after_ms: None,
        },
        state: RemainingState::Lost,
        usage: Usage::default(),
        isolation: Isolation {
            tier: Tier::T0,
            kill: KillClass::K0,
            deadline_layers: Vec::new(),
            degraded: vec![Degradation { layer: "report".to_owned(), reason: unknown.to_owned() }],
        },
        path: RunPath::Exec,
        reported_by: Reporter::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(run_id: &str) -> RunStart {
        RunStart {
            run_id: run_id.to_owned(),
            owner: "token:a".to_owned(),
            command: vec!["true".to_owned()],
            created_at_ms: 1,
            effective: serde_json::json!({"wall_ms": null}),
            context_id: None,
            sandbox: None,
        }
    }

    /// A stream of which the bytes 4 to 7 were dropped.
    fn gap(stream: Stream, cursor: u64, most: usize) -> io::Result<Chunk> {
        if stream == Stream::Stderr {
            return Ok(nothing());
        }
        let cut = |bytes: &[u8], end: u64, dropped_before| {
            let bytes = bytes[..bytes.len().min(most)].to_vec();
            Ok(Chunk { bytes, next_cursor: end, dropped_before })
        };
        match cursor {
            0..4 => cut(&b"head"[cursor as usize..], 4, 0),
            4..8 => cut(b"tail", 12, 8 - cursor),
            _ => cut(&b"tail"[(cursor.min(12) - 8) as usize..], 12, 0),
        }
    }

    fn outcome() -> Outcome {
        let mut outcome = ended_with_server("a");
        (outcome.ending, outcome.ok) = (Ending::Exited, true);
        (outcome.stdout, outcome.stderr_truncated) = ("headtail".to_owned(), false);
        outcome
    }

    #[test]
    fn a_finished_run_is_read_back_with_its_output_and_its_gaps() {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = RunStore::open(directory.path(), 5).expect("it opens");
        assert!(opened.runs.is_empty());
        opened.store.begin(&begun("a")).expect("begun");
        opened.store.finish(begun("a"), 9, &outcome(), &mut gap).expect("finished");
        drop(opened);

        let opened = RunStore::open(directory.path(), 10).expect("it opens again");
        let [run] = &opened.runs[..] else { panic!("{:?}", opened.runs) };
        assert_eq!((run.ended().ended_at_ms, &run.ended().begun), (9, &begun("a")));
        assert_eq!(run.outcome().expect("readable"), outcome());
        let read = |cursor, most| {
            let chunk = run.output(Stream::Stdout, cursor, most).expect("readable");
            (String::from_utf8(chunk.bytes).expect("text"), chunk.next_cursor, chunk.dropped_before)
        };
        assert_eq!(read(1, 100), ("ead".to_owned(), 4, 0));
        assert_eq!(read(5, 2), ("ta".to_owned(), 10, 3));
        assert_eq!(read(99, 2), (String::new(), 12, 0));
        opened.store.remove(run).expect("removed");
        let left = fs::read_dir(opened.store.directory()).expect("readable").count();
        assert_eq!(left, 0, "what it had replaced goes with it");
        opened.store.remove(run).expect("twice is no error");
        assert!(run.outcome().is_err());
    }

    #[test]
    fn earlier_record_stays_readable_after_rewrite() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RunStore::open(directory.path(), 5).expect("it opens").store;
        store.begin(&begun("a")).expect("begun");
        let first = store.finish(begun("a"), 9, &outcome(), &mut gap).expect("finished");
        let again = store.finish(begun("a"), 9, &outcome(), &mut gap).expect("finished again");
        // The process that it left running has written more since then.
        let more = &mut |stream: Stream, cursor: u64, most: usize| match (stream, cursor) {
            (Stream::Stdout, 12..) => {
                let bytes = b"xy"[(cursor - 12).min(2) as usize..].to_vec();
                Ok(Chunk { bytes, next_cursor: 14, dropped_before: 0 })
            }
            _ => gap(stream, cursor, most),
        };
        let grown = store.finish(begun("a"), 9, &outcome(), more).expect("and again");
        drop(store);
        let found = RunStore::open(directory.path(), 10).expect("it opens again").runs;
        for (run, total, last) in
            [(&first, 12, "tail"), (&again, 12, "tail"), (&grown, 14, "tailxy"), (&found[0], 14, "tailxy")]
        {
            let read = |stream, cursor| run.output(stream, cursor, 100).expect("readable");
            assert_eq!(read(Stream::Stdout, 1).bytes, b"ead");
            assert_eq!(
                (read(Stream::Stdout, 5).bytes, read(Stream::Stdout, 5).next_cursor),
                (last.into(), total)
            );
            assert_eq!(read(Stream::Stderr, 0), nothing());
        }
        assert_eq!(fs::read_dir(directory.path().join("runs")).expect("readable").count(), 1);
    }

    #[test]
    fn large_values_are_read_from_the_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let many = serde_json::json!(vec![0; 1_000]);
        let long = serde_json::json!("x".repeat(100_000));
        for (run_id, value) in [("many", &many), ("long", &long)] {
            let opened = RunStore::open(directory.path(), 7).expect("opened");
            let whole = Outcome {
                value: Some(value.clone()),
                results: vec![serde_json::json!({"application/json": value})],
                error: Some(serde_json::json!({"message": value})),
                ..outcome()
            };
            let stored = opened.store.finish(begun(run_id), 9, &whole, &mut gap).expect("finished");
            drop(opened);
            let opened = RunStore::open(directory.path(), 7).expect("opened again");
            let again = opened.runs.iter().find(|run| run.ended().begun.run_id == run_id).expect("there");
            for run in [&stored, again] {
                let facts = &run.ended().outcome;
                assert_eq!((&facts.value, &facts.error, facts.results.len()), (&None, &None, 0));
                assert_eq!((facts.ending, facts.exit_code), (whole.ending, whole.exit_code));
                assert!(run.outcome_in_memory().is_none() && run.bytes_on_disk() > 1_000);
                assert_eq!(run.outcome().expect("readable"), whole);
                let without = run.outcome_without_output().expect("readable");
                assert_eq!((&without.value, &*without.stdout), (&whole.value, ""));
            }
        }
    }

    #[test]
    fn sync_after_a_failed_sync_is_done_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RunStore::open(directory.path(), 5).expect("it opens").store;
        store.finish(begun("a"), 9, &outcome(), &mut gap).expect("finished");
        store.sync_by(|_| Err(io::ErrorKind::StorageFull.into())).expect_err("the disk is full");
        let calls = std::cell::Cell::new(0);
        let count = |_: &File| {
            calls.set(calls.get() + 1);
            Ok(())
        };
        store.sync_by(count).expect("there is room again");
        assert_eq!(calls.get(), 1, "the record is not on the disk yet");
        store.sync_by(|_| panic!("nothing is new")).expect("nothing to do");
    }

    #[test]
    fn what_had_only_begun_ended_with_the_server() {
        let directory = tempfile::tempdir().expect("a directory");
        RunStore::open(directory.path(), 5).expect("it opens").store.begin(&begun("b")).expect("begun");
        for _ in 0..2 {
            let opened = RunStore::open(directory.path(), 7).expect("it opens");
            let [run] = &opened.runs[..] else { panic!("{:?}", opened.runs) };
            let outcome = run.outcome().expect("readable");
            assert_eq!((outcome.ending, run.ended().ended_at_ms), (Ending::InfraError, 7));
            assert!(
                outcome.error.expect("why")["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("ended with the server"))
            );
        }
    }

    #[test]
    fn output_before_server_death_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RunStore::open(directory.path(), 5).expect("it opens").store;
        store.begin(&begun("b")).expect("begun");
        let mut journal = store.journal("b", Stream::Stdout, Some(8)).expect("made");
        let chunk = Chunk { bytes: b"0123456789".to_vec(), next_cursor: 10, dropped_before: 0 };
        journal.append(&chunk).expect("written");
        drop((journal, store));
        for _ in 0..2 {
            let opened = RunStore::open(directory.path(), 7).expect("it opens");
            let outcome = opened.runs[0].outcome().expect("readable");
            assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::InfraError, "01236789"));
            let files = fs::read_dir(opened.store.directory()).expect("readable").count();
            assert_eq!(files, 1);
        }
    }

    #[test]
    fn unfinished_record_counts_as_started_run() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = RunStore::open(directory.path(), 5).expect("it opens").store;
        store.begin(&begun("b")).expect("begun");
        let file = File::options().append(true).open(store.path("b", BEGUN));
        file.and_then(|mut file| file.write_all(b"head\0{\"half")).expect("written");
        drop(store);
        for _ in 0..2 {
            let opened = RunStore::open(directory.path(), 7).expect("it opens");
            assert!(opened.unreadable.is_empty(), "{:?}", opened.unreadable);
            let outcome = opened.runs[0].outcome().expect("readable");
            assert_eq!((outcome.ending, opened.runs[0].ended().ended_at_ms), (Ending::InfraError, 7));
        }
    }

    #[test]
    fn preallocated_files_are_used_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = |store: &RunStore, ending: &str| {
            let names =
                fs::read_dir(store.directory()).expect("readable").map(|entry| entry.expect("one").path());
            names.filter(|path| path.extension().is_some_and(|found| found == ending)).count()
        };
        let store = RunStore::open(directory.path(), 5).expect("it opens").store;
        store.prepare();
        let made = names(&store, PREALLOCATED_EXTENSION);
        assert!(made > 2);
        for run in ["a", "b"] {
            store.begin(&begun(run)).expect("begun");
        }
        assert_eq!((names(&store, PREALLOCATED_EXTENSION), names(&store, BEGUN)), (made - 2, 2));
        // A file whose writer died before it had its name, and a file that another program left.
        let mut left =
            fs::read_dir(store.directory()).expect("readable").map(|entry| entry.expect("one").path());
        let half = left
            .find(|path| path.extension().is_some_and(|ending| ending == PREALLOCATED_EXTENSION))
            .expect("a spare");
        fs::write(&half, b"{\"half").expect("written");
        fs::write(store.directory().join("other.spare"), b"").expect("written");
        drop(store);

        let opened = RunStore::open(directory.path(), 7).expect("it opens again");
        assert_eq!((opened.runs.len(), opened.unreadable.len()), (2, 0));
        assert_eq!(names(&opened.store, PREALLOCATED_EXTENSION), made - 3);
        // Takes all preallocated files and some that must be made.
        for run in 0..made {
            opened.store.begin(&begun(&format!("run-{run}"))).expect("begun");
        }
        assert_eq!((names(&opened.store, PREALLOCATED_EXTENSION), names(&opened.store, BEGUN)), (0, made));
        for path in
            fs::read_dir(opened.store.directory()).expect("readable").map(|entry| entry.expect("one").path())
        {
            if path.extension().is_some_and(|ending| ending == BEGUN) {
                let record = read_begun(&path).expect("whole");
                assert_eq!(Some(record.run_id.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            }
        }
        fs::remove_dir_all(opened.store.directory()).expect("removed");
        assert!(opened.store.begin(&begun("z")).is_err());
    }

    #[test]
    fn half_a_file_is_no_record_and_a_directory_has_one_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = RunStore::open(directory.path(), 5).expect("it opens");
        opened.store.finish(begun("a"), 9, &outcome(), &mut gap).expect("finished");
        let runs = opened.store.directory().to_owned();
        let whole = fs::read(runs.join("a.run")).expect("readable");
        fs::write(runs.join("a.run"), &whole[..whole.len() - 3]).expect("written");
        fs::write(runs.join("c.part"), b"x").expect("written");
        assert!(matches!(RunStore::open(directory.path(), 6), Err(StoreError::InUse(_))));
        drop(opened);
        let opened = RunStore::open(directory.path(), 6).expect("it opens");
        assert!(opened.runs.is_empty() && !runs.join("c.part").exists());
        assert_eq!(opened.unreadable.len(), 1);
    }
}
