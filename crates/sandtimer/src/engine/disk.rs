//! The disk limit on workspaces, which are read from time to time: a shared directory cannot be
//! given a size.
//!
//! What counts is growth since the run began: a workspace may hold a project many times the limit.
//! The first count is made while the run is running, which may have written much by then on a busy
//! machine: files that were born since the run began are growth there too. RLIMIT_FSIZE bounds
//! single files besides, and private directories have a size of their own.
//!
//! ```text
//! waiting ─▶ due ─▶ the reader on duty counts for 5 ms ─┬─ all counted ─▶ waiting
//!                                                       └─ more ─▶ a thread of its own, or 5 ms more at the next turn
//! ```
//! A thread that reads a file system which does not answer cannot be ended. The scheduler, which
//! reads none, puts another reader on duty as soon as one makes no progress, and reports in the
//! run's Outcome what was not read in time.

mod usage;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sandtimer_os::clock::{calendar_nanoseconds_of, monotonic_nanoseconds};

use self::usage::DiskCount;
use crate::model::LimitKind;
use crate::supervise::bounded_threads::BoundedThreads;
use crate::supervise::commands::{EnforcerCommand, EnforcerHandle};
use crate::supervise::run::SharedRun;

/// The shortest pause between two counts; a long count is followed by a pause ten times as long.
const PAUSE_NANOSECONDS: u64 = 200_000_000;
/// The longest one: a file system that did not answer for long may answer at once from then on.
const MAX_PAUSE_NANOSECONDS: u64 = 60_000_000_000;
/// How long the reader on duty counts for a run at a time.
const TURN_NANOSECONDS: u64 = 5_000_000;
/// The same on a thread of its own, which then finds out whether the run has ended.
const LONG_TURN_NANOSECONDS: u64 = 200_000_000;
/// Without progress for this long, a reader is replaced.
const DUTY_TIMEOUT_NANOSECONDS: u64 = 100_000_000;
/// Without progress for this long, or due for this long, a workspace counts as not watched.
const UNWATCHED_AFTER_NANOSECONDS: u64 = 2_000_000_000;
/// A count that waits for its next turn has at most so many directories open.
const MAX_PAUSED_DEPTH: usize = 16;
/// Readers of an engine, one of which is active: the others wait for file systems that do not
/// answer.
const MAX_READERS: usize = 32;
/// Long counts of an engine at a time.
const MAX_LONG_COUNTS: usize = 32;

/// A run and what its workspaces may grow by.
#[derive(Debug)]
struct WatchedWorkspaces {
    run: Weak<SharedRun>,
    workspaces: Vec<PathBuf>,
    /// What they held at the first count.
    before: Option<u64>,
    limit: u64,
    enforcer: EnforcerHandle,
    /// When it is due, in monotonic nanoseconds.
    next_turn: u64,
    /// A count that has begun, and how long it has taken so far.
    count: Option<DiskCount>,
    spent: u64,
    is_reported: bool,
}

impl WatchedWorkspaces {
    /// Reports in its Outcome, once, that its disk limit is not enforced on workspaces as it should
    /// be.
    fn report(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_reported, true)
            && let Some(run) = self.run.upgrade()
        {
            report(&run, reason);
        }
    }

    /// Forgets what was counted since the last whole count.
    fn begin_again(&mut self) {
        (self.count, self.spent) = (None, 0);
    }

    /// Counts for `turn` nanoseconds at the most.
    fn take_turn(&mut self, turn: u64, progress: &AtomicU64) -> TurnEnd {
        let Some(run) = self.run.upgrade().filter(|run| !run.waiting.has_finished()) else {
            return TurnEnd::Over;
        };
        let since = calendar_nanoseconds_of(run.spawned_at);
        let count = self.count.get_or_insert_with(|| DiskCount::new(&self.workspaces, since));
        let began = monotonic_nanoseconds();
        let is_whole = count.advance(began.saturating_add(turn), progress);
        let now = monotonic_nanoseconds();
        self.spent += now - began;
        let growth = self.before.map_or(count.born, |before| count.total.saturating_sub(before));
        if growth > self.limit {
            let (slot_index, id) = (run.slot_index, run.id.clone());
            self.enforcer.send(EnforcerCommand::Limit { slot_index, id, kind: LimitKind::Disk });
            return TurnEnd::Over;
        }
        if !is_whole {
            self.next_turn = now + PAUSE_NANOSECONDS;
            return TurnEnd::More;
        }
        self.before.get_or_insert(count.total.saturating_sub(count.born));
        let pause = self.spent.saturating_mul(10).clamp(PAUSE_NANOSECONDS, MAX_PAUSE_NANOSECONDS);
        self.next_turn = now.saturating_add(pause);
        self.begin_again();
        TurnEnd::Counted
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// The run has ended, or is to end.
    Over,
    More,
    Counted,
}

fn report(run: &SharedRun, reason: &str) {
    run.note_degraded("disk limit of workspaces", reason);
}

/// Watches the workspaces of all runs that have a disk limit. Its threads are there only while
/// there is such a run.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    shared: Arc<DiskWatchShared>,
}

#[derive(Debug)]
struct DiskWatchShared {
    state: Mutex<WatchState>,
    changed: Condvar,
    readers: Arc<BoundedThreads>,
    long_counts: Arc<BoundedThreads>,
}

impl Default for DiskWatchShared {
    fn default() -> Self {
        DiskWatchShared {
            state: Mutex::default(),
            changed: Condvar::new(),
            readers: Arc::new(BoundedThreads::new("st-disk-read", MAX_READERS)),
            long_counts: Arc::new(BoundedThreads::new("st-disk-long", MAX_LONG_COUNTS)),
        }
    }
}

#[derive(Debug, Default)]
struct WatchState {
    waiting: Vec<WatchedWorkspaces>,
    due: VecDeque<WatchedWorkspaces>,
    turns: Vec<CountTurn>,
    /// The number of the scheduler, if there is one.
    scheduler: Option<u64>,
    /// The number of the reader on duty, if there is one.
    reader: Option<u64>,
    next_number: u64,
}

/// A turn that is being taken. Its run is in no list until it ends.
#[derive(Debug)]
struct CountTurn {
    number: u64,
    run: Weak<SharedRun>,
    /// The reader that takes it; none on a thread of its own.
    reader: Option<u64>,
    progress: Arc<AtomicU64>,
    /// The last sampled progress, and since when it has that value.
    last_progress: (u64, u64),
    is_reported: bool,
}

fn lock(state: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    // Poisoning is harmless: each update leaves the lists whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskWatch {
    /// Watches the workspaces of a run that has both workspaces and a disk limit, until it has
    /// ended.
    pub(super) fn watch(&self, run: &Arc<SharedRun>, workspaces: &[PathBuf], enforcer: &EnforcerHandle) {
        let Some(limit) = run.effective.get(LimitKind::Disk).map(|effect| effect.value) else { return };
        if workspaces.is_empty() {
            return;
        }
        let watched = WatchedWorkspaces {
            run: Arc::downgrade(run),
            workspaces: workspaces.to_vec(),
            before: None,
            limit,
            enforcer: enforcer.clone(),
            next_turn: monotonic_nanoseconds(),
            count: None,
            spent: 0,
            is_reported: false,
        };
        let mut state = lock(&self.shared.state);
        state.waiting.push(watched);
        self.shared.schedule(&mut state);
    }
}

impl DiskWatchShared {
    /// Has the scheduler see a change; starts it if there is none.
    fn schedule(self: &Arc<Self>, state: &mut WatchState) {
        self.changed.notify_all();
        if state.scheduler.is_some() {
            return;
        }
        let number = state.number();
        let shared = self.clone();
        let work = move || shared.schedule_turns(number);
        let thread = std::thread::Builder::new().name("st-disk".to_owned()).stack_size(256 << 10).spawn(work);
        match thread {
            Ok(_) => state.scheduler = Some(number),
            // The next such run tries again.
            Err(_) => state.report_unwatched(),
        }
    }

    fn schedule_turns(self: Arc<Self>, number: u64) {
        sandtimer_os::thread::block_signals();
        let _duty = SchedulerDuty { shared: &self, number };
        let mut state = lock(&self.state);
        loop {
            let now = monotonic_nanoseconds();
            state.move_due(now);
            state.check_progress(now);
            if !state.due.is_empty() {
                self.have_read(&mut state);
            }
            state.report_overdue(now);
            let is_idle = state.waiting.is_empty() && state.due.is_empty();
            if is_idle && state.turns.iter().all(|turn| turn.is_reported) {
                state.scheduler = None;
                self.changed.notify_all();
                return;
            }
            // A bounded pause: nothing announces that a directory has grown, or that a file system
            // does not answer.
            let pause = Duration::from_nanos(state.pause(now));
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has the reader on duty, or a new one, read what is due.
    fn have_read(self: &Arc<Self>, state: &mut WatchState) {
        self.changed.notify_all();
        if state.reader.is_some() {
            return;
        }
        let number = state.number();
        let shared = self.clone();
        // Without one, the next pause tries again.
        if self.readers.try_spawn_shared(move || shared.read_due(number)) {
            state.reader = Some(number);
        }
    }

    /// Takes turns for the runs that are due, one after the other, as long as this reader is on
    /// duty.
    fn read_due(self: Arc<Self>, number: u64) {
        sandtimer_os::thread::block_signals();
        let _duty = ReaderDuty { shared: &self, number };
        loop {
            let mut state = lock(&self.state);
            let watched = loop {
                if state.reader != Some(number) {
                    return;
                }
                if let Some(watched) = state.due.pop_front() {
                    break watched;
                }
                if state.scheduler.is_none() {
                    state.reader = None;
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            let mut turn = self.begin_turn(&mut state, watched, number);
            drop(state);
            if turn.take(TURN_NANOSECONDS) == TurnEnd::More {
                self.count_at_length(turn);
            }
        }
    }

    fn begin_turn(
        self: &Arc<Self>,
        state: &mut WatchState,
        watched: WatchedWorkspaces,
        reader: u64,
    ) -> TurnInProgress {
        let (number, progress) = (state.number(), Arc::new(AtomicU64::new(0)));
        state.turns.push(CountTurn {
            number,
            run: watched.run.clone(),
            reader: Some(reader),
            progress: progress.clone(),
            last_progress: (0, monotonic_nanoseconds()),
            is_reported: watched.is_reported,
        });
        TurnInProgress { shared: self.clone(), watched: Some(watched), number, progress }
    }

    /// Has the rest counted on a thread of its own. Without one it is continued at the next turn.
    fn count_at_length(&self, mut turn: TurnInProgress) {
        if let Some(entry) = lock(&self.state).turns.iter_mut().find(|entry| entry.number == turn.number) {
            entry.reader = None;
        }
        self.long_counts.try_spawn_shared(move || {
            sandtimer_os::thread::block_signals();
            while turn.take(LONG_TURN_NANOSECONDS) == TurnEnd::More {}
        });
    }
}

/// What only one scheduler is to do. Dropped in a panic, it leaves that to the next one.
struct SchedulerDuty<'a> {
    shared: &'a DiskWatchShared,
    number: u64,
}

impl Drop for SchedulerDuty<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if state.scheduler == Some(self.number) {
            state.scheduler = None;
            state.report_unwatched();
            self.shared.changed.notify_all();
        }
    }
}

/// What only one reader is to do. Dropped in a panic, it leaves that to the next one.
struct ReaderDuty<'a> {
    shared: &'a DiskWatchShared,
    number: u64,
}

impl Drop for ReaderDuty<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if state.reader == Some(self.number) {
            state.reader = None;
            self.shared.changed.notify_all();
        }
    }
}

impl WatchState {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn move_due(&mut self, now: u64) {
        let due: Vec<WatchedWorkspaces> =
            self.waiting.extract_if(.., |watched| watched.next_turn <= now).collect();
        self.due.extend(due);
    }

    /// Takes a reader that makes no progress off duty, and reports what has not been read for long.
    fn check_progress(&mut self, now: u64) {
        for turn in &mut self.turns {
            let progress = turn.progress.load(Ordering::Relaxed);
            if progress != turn.last_progress.0 {
                turn.last_progress = (progress, now);
            }
            let stuck = now.saturating_sub(turn.last_progress.1);
            if stuck >= DUTY_TIMEOUT_NANOSECONDS && turn.reader.is_some() && turn.reader == self.reader {
                self.reader = None;
            }
            if stuck >= UNWATCHED_AFTER_NANOSECONDS && !turn.is_reported {
                turn.is_reported = true;
                if let Some(run) = turn.run.upgrade() {
                    report(&run, "the file system of a workspace did not answer for 2 s");
                }
            }
        }
    }

    /// Reports that there is no scheduler.
    fn report_unwatched(&mut self) {
        let unwatched = self.waiting.iter_mut().chain(&mut self.due);
        unwatched.for_each(|watched| watched.report("there was no thread to watch them"));
    }

    fn report_overdue(&mut self, now: u64) {
        for watched in &mut self.due {
            if now.saturating_sub(watched.next_turn) >= UNWATCHED_AFTER_NANOSECONDS {
                watched
                    .report("no thread could read them for 2 s: too many other file systems did not answer");
            }
        }
    }

    /// How long until something is due, in nanoseconds.
    fn pause(&self, now: u64) -> u64 {
        let next = self.waiting.iter().map(|watched| watched.next_turn).min();
        let pause = next.map_or(PAUSE_NANOSECONDS, |next| next.saturating_sub(now)).min(PAUSE_NANOSECONDS);
        if self.due.is_empty() { pause } else { pause.min(DUTY_TIMEOUT_NANOSECONDS) }
    }
}

/// A turn that is to be taken. Dropped, it puts the run back into the list.
struct TurnInProgress {
    shared: Arc<DiskWatchShared>,
    watched: Option<WatchedWorkspaces>,
    number: u64,
    progress: Arc<AtomicU64>,
}

impl TurnInProgress {
    fn take(&mut self, turn: u64) -> TurnEnd {
        let end = match &mut self.watched {
            Some(watched) => watched.take_turn(turn, &self.progress),
            None => TurnEnd::Over,
        };
        if end == TurnEnd::Over {
            self.watched = None;
        }
        end
    }
}

impl Drop for TurnInProgress {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        let ended = state.turns.iter().position(|turn| turn.number == self.number);
        let ended = ended.map(|index| state.turns.swap_remove(index));
        if let Some(mut watched) = self.watched.take() {
            watched.is_reported |= ended.is_some_and(|turn| turn.is_reported);
            if watched.count.as_ref().is_some_and(|count| count.depth() > MAX_PAUSED_DEPTH) {
                // It begins again; its descriptors are needed elsewhere.
                watched.begin_again();
                watched.report("too many other workspaces were being read at length");
            }
            if std::thread::panicking() {
                // Not at once: the cause may be there still.
                watched.begin_again();
                watched.next_turn = monotonic_nanoseconds().saturating_add(MAX_PAUSE_NANOSECONDS);
                watched.report("reading them failed (the log on stderr has the reason)");
            }
            state.waiting.push(watched);
            if state.scheduler.is_none() {
                self.shared.schedule(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use super::usage::tests::{PANICS, SLOW, answer, hang};
    use crate::engine::{Engine, Run, Spec};
    use crate::limits::Limits;
    use crate::model::{Ending, Outcome};

    const LIMIT: u64 = 8 << 20;

    /// Starts a run that writes this many megabytes to its workspace once there is a file `go`, and
    /// then stays.
    fn start(engine: &Engine, workspace: &Path, megabytes: u32) -> Run {
        let line = format!(
            "until [ -e go ]; do sleep 0.05; done; for n in $(seq {megabytes}); do head -c 1048576 /dev/zero >$n; done; sleep 600"
        );
        let limits = Limits::new().disk(LIMIT).wall(Duration::from_secs(120));
        let spec = Spec {
            workspaces: vec![workspace.to_owned()],
            working_directory: Some(workspace.to_owned()),
            ..Spec::command(["sh", "-c", &line]).limits(limits)
        };
        let run = engine.start(spec).expect("it starts");
        run.started_blocking();
        run
    }

    fn end(run: &Run) -> Arc<Outcome> {
        run.cancel("the test has finished");
        run.settled_blocking()
    }

    fn is_reported(outcome: &Outcome) -> bool {
        outcome.isolation.degraded.iter().any(|degraded| degraded.layer == "disk limit of workspaces")
    }

    fn wait(duration: Duration) {
        std::thread::park_timeout(duration);
    }

    fn ends_within(run: &Run, seconds: u32) -> bool {
        (0..seconds * 20).any(|_| {
            wait(Duration::from_millis(50));
            run.has_finished()
        })
    }

    /// A directory that every run may write.
    fn make(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        std::fs::create_dir(&path).expect("made");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("changed");
        path
    }

    /// One count of the many files takes 20 s.
    #[test]
    fn many_files_do_not_suspend_the_limit_of_another_run() {
        let engine = Engine::new().expect("an engine");
        let parent = tempfile::tempdir().expect("a directory");
        let (many, other) = (make(parent.path(), "many"), make(parent.path(), "other"));
        for number in 0..20_000 {
            std::fs::write(many.join(format!("{SLOW}{number}")), "").expect("written");
        }
        let large = start(&engine, &many, 0);
        // Its first count is under way.
        wait(Duration::from_millis(500));
        let watched = start(&engine, &other, 64);
        std::fs::write(other.join("go"), "").expect("written");
        assert!(ends_within(&watched, 8), "its limit is not enforced");
        let outcome = watched.settled_blocking();
        assert_eq!(outcome.ending, Ending::DiskLimit, "{outcome:?}");
        let outcome = end(&large);
        assert!(outcome.ending == Ending::Cancelled && !is_reported(&outcome), "{outcome:?}");
    }

    #[test]
    fn hung_file_systems_are_reported_and_others_are_watched() {
        let engine = Engine::new().expect("an engine");
        let parent = tempfile::tempdir().expect("a directory");
        let make = |name: &str| make(parent.path(), name);
        let directories: Vec<PathBuf> = (0..6).map(|n| make(&format!("hung{n}"))).collect();
        directories.iter().for_each(|directory| hang(directory));
        let hung: Vec<Run> = directories.iter().map(|directory| start(&engine, directory, 0)).collect();
        let other = make("other");
        let watched = start(&engine, &other, 64);
        let quiet_directory = make("quiet");
        let quiet = start(&engine, &quiet_directory, 1);
        std::fs::write(other.join("go"), "").expect("written");
        std::fs::write(quiet_directory.join("go"), "").expect("written");
        assert!(ends_within(&watched, 30), "its limit is not enforced");
        let outcome = watched.settled_blocking();
        assert_eq!(outcome.ending, Ending::DiskLimit, "{outcome:?}");
        wait(Duration::from_secs(4));
        let outcome = end(&quiet);
        assert!(outcome.ending == Ending::Cancelled && !is_reported(&outcome), "{outcome:?}");
        for run in &hung[1..] {
            let outcome = end(run);
            assert!(is_reported(&outcome), "{outcome:?}");
        }
        // Once its file system answers, its limit holds again.
        std::fs::write(directories[0].join("large"), vec![1; 2 * LIMIT as usize]).expect("written");
        directories.iter().for_each(|directory| answer(directory));
        let outcome = hung[0].settled_blocking();
        assert!(outcome.ending == Ending::DiskLimit && is_reported(&outcome), "{outcome:?}");
    }

    /// More than there are readers: what cannot be read is reported, a run that starts then
    /// included.
    #[test]
    fn runs_without_a_reader_are_reported() {
        let engine = Engine::new().expect("an engine");
        let parent = tempfile::tempdir().expect("a directory");
        hang(parent.path());
        let runs: Vec<Run> = (0..34).map(|_| start(&engine, parent.path(), 0)).collect();
        wait(Duration::from_secs(10));
        let late = start(&engine, parent.path(), 0);
        wait(Duration::from_secs(4));
        for run in runs.iter().chain([&late]) {
            let outcome = end(run);
            assert!(is_reported(&outcome), "{outcome:?}");
        }
        answer(parent.path());
    }

    #[test]
    fn reader_that_panics_is_replaced() {
        let engine = Engine::new().expect("an engine");
        let parent = tempfile::tempdir().expect("a directory");
        let (broken, other) = (make(parent.path(), "broken"), make(parent.path(), "other"));
        std::fs::write(broken.join(PANICS), "").expect("written");
        let unread = start(&engine, &broken, 0);
        wait(Duration::from_millis(500));
        let watched = start(&engine, &other, 64);
        std::fs::write(other.join("go"), "").expect("written");
        assert!(ends_within(&watched, 8), "its limit is not enforced");
        let outcome = watched.settled_blocking();
        assert!(outcome.ending == Ending::DiskLimit && !is_reported(&outcome), "{outcome:?}");
        let outcome = end(&unread);
        assert!(is_reported(&outcome), "{outcome:?}");
    }
}
