//! The disk limit on workspaces: looked at from time to time, for a shared directory cannot be given a size.
//!
//! What counts is growth since the run began: a workspace may hold a project many times the limit. The first look is
//! taken beside the run, which may have written much by then on a busy machine: files that were born since the run
//! began are growth there too. RLIMIT_FSIZE stands behind it for single files, and private directories have a size of
//! their own.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, open, openat2, statx,
};
use sandtimer_os::clock::{calendar_nanoseconds, calendar_nanoseconds_of, monotonic_nanoseconds};

use crate::model::LimitKind;
use crate::supervise::apart::Apart;
use crate::supervise::orders::{Command, EnforcerHandle};
use crate::supervise::run::Running;

/// The shortest pause between two looks at a run; a look that takes long is followed by ten times as long a pause.
const PAUSE_NANOSECONDS: u64 = 200_000_000;
/// A run whose last look took longer is looked at on a thread of its own: others are not late for it.
const CHEAP_NANOSECONDS: u64 = 5_000_000;
/// Longer looks at a time. One may take for ever, where the file system of a workspace has died.
static LONG_LOOKS: Apart = Apart::new("st-disk", 32);

/// A run and what its workspaces may grow by.
#[derive(Debug)]
struct Watched {
    run: Weak<Running>,
    workspaces: Vec<PathBuf>,
    /// What they held at the first look.
    before: Option<u64>,
    limit: u64,
    enforcer: EnforcerHandle,
    /// In monotonic nanoseconds.
    next_look: u64,
    /// How long the last look took; unknown before the first.
    cost: Option<u64>,
}

/// One thread for all such runs, and some for those whose looks take long; there only while there is such a run.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A run has come, or was looked at.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    runs: Vec<Watched>,
    /// Runs that are being looked at, which are not in the list.
    away: usize,
    has_thread: bool,
}

impl State {
    /// Takes out the runs whose looks are due.
    fn take_due(&mut self, now: u64) -> Vec<Watched> {
        let due: Vec<Watched> = self.runs.extract_if(.., |watched| watched.next_look <= now).collect();
        self.away += due.len();
        due
    }

    /// When the next look is due.
    fn next_look(&self) -> Option<u64> {
        self.runs.iter().map(|watched| watched.next_look).min()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The list stays whole whatever happens to the thread that held it.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskWatch {
    /// Watches the workspaces of a run that has both workspaces and a disk limit, until it is gone.
    pub(super) fn watch(&self, run: &Arc<Running>, workspaces: &[PathBuf], enforcer: &EnforcerHandle) {
        let Some(limit) = run.effective.get(LimitKind::Disk).map(|effect| effect.value) else { return };
        if workspaces.is_empty() {
            return;
        }
        let watched = Watched {
            run: Arc::downgrade(run),
            before: None,
            workspaces: workspaces.to_vec(),
            limit,
            enforcer: enforcer.clone(),
            next_look: 0,
            cost: None,
        };
        let mut state = lock(&self.shared.state);
        state.runs.push(watched);
        self.shared.changed.notify_one();
        if !state.has_thread {
            let shared = self.shared.clone();
            let work = move || look_again_and_again(&shared);
            let thread =
                std::thread::Builder::new().name("st-disk".to_owned()).stack_size(256 << 10).spawn(work);
            // Without the thread the limit still holds for single files, by RLIMIT_FSIZE; the next such run tries again.
            state.has_thread = thread.is_ok();
        }
    }
}

fn look_again_and_again(shared: &Arc<Shared>) {
    sandtimer_os::thread::block_signals();
    let mut state = lock(&shared.state);
    loop {
        let now = monotonic_nanoseconds();
        let due = state.take_due(now);
        if due.is_empty() {
            if state.runs.is_empty() && state.away == 0 {
                state.has_thread = false;
                return;
            }
            // A bounded pause: nothing announces that a directory has grown.
            let pause = state.next_look().map_or(PAUSE_NANOSECONDS, |next| next - now);
            let pause = Duration::from_nanos(pause);
            state = shared.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        drop(state);
        for watched in due {
            let is_cheap = watched.cost.is_some_and(|cost| cost <= CHEAP_NANOSECONDS);
            let look = PendingLook { shared: shared.clone(), watched: Some(watched) };
            if is_cheap {
                look.take();
            } else {
                // Without a thread the look comes a pause later.
                LONG_LOOKS.have(move || {
                    sandtimer_os::thread::block_signals();
                    look.take();
                });
            }
        }
        state = lock(&shared.state);
    }
}

/// A look that is to be taken. Dropped, it puts the run back into the list, also where there was no thread for it.
struct PendingLook {
    shared: Arc<Shared>,
    watched: Option<Watched>,
}

impl PendingLook {
    fn take(mut self) {
        let Some(watched) = &mut self.watched else { return };
        let began = monotonic_nanoseconds();
        let is_within = look(watched);
        watched.cost = Some(monotonic_nanoseconds() - began);
        if !is_within {
            self.watched = None;
        }
    }
}

impl Drop for PendingLook {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.away -= 1;
        if let Some(mut watched) = self.watched.take() {
            let pause = PAUSE_NANOSECONDS.max(watched.cost.unwrap_or(0).saturating_mul(10));
            watched.next_look = monotonic_nanoseconds().saturating_add(pause);
            state.runs.push(watched);
        }
        drop(state);
        self.shared.changed.notify_one();
    }
}

/// Whether the run must be looked at again.
fn look(watched: &mut Watched) -> bool {
    let Some(run) = watched.run.upgrade().filter(|run| !run.waiting.is_over()) else { return false };
    let mut found = Usage { total: 0, born: 0, since: calendar_nanoseconds_of(run.spawned_at) };
    for workspace in &watched.workspaces {
        found.add_directory(workspace);
    }
    let before = *watched.before.get_or_insert(found.total.saturating_sub(found.born));
    let within = found.total.saturating_sub(before) <= watched.limit;
    if !within {
        watched.enforcer.send(Command::Limit { row: run.row, id: run.id.clone(), kind: LimitKind::Disk });
    }
    within
}

/// Directories inside one another that are looked into. Deeper ones count as more than any limit: nobody hides there.
const DEEPEST: u32 = 128;

/// Bytes that files occupy.
#[derive(Debug)]
struct Usage {
    total: u64,
    /// Of these, the ones of files that were made since then. None where the file system does not keep it.
    born: u64,
    /// In nanoseconds of the calendar's clock.
    since: u64,
}

impl Usage {
    /// Adds what is in a directory. Links are not followed, other file systems not entered, and nothing that the run
    /// puts in the way leads out of the directory.
    fn add_directory(&mut self, directory: &Path) {
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        if let Ok(top) = open(directory, flags, Mode::empty()) {
            self.add_below(&top, 0);
        }
    }

    fn add_below(&mut self, directory: &OwnedFd, depth: u32) {
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let wanted = StatxFlags::TYPE | StatxFlags::BLOCKS | StatxFlags::BTIME;
        let Ok(entries) = Dir::read_from(directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(status) = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted) else { continue };
            let is_directory = FileType::from_raw_mode(status.stx_mode.into()).is_dir();
            let bytes = match is_directory && depth == DEEPEST {
                true => u64::MAX,
                false => status.stx_blocks.saturating_mul(512),
            };
            self.total = self.total.saturating_add(bytes);
            // Not those from before the clock was set back.
            if born_at(&status).is_some_and(|born| born >= self.since && born <= calendar_nanoseconds()) {
                self.born = self.born.saturating_add(bytes);
            }
            if is_directory
                && depth < DEEPEST
                && let Ok(below) = openat2(directory, name, flags, Mode::empty(), resolve)
            {
                self.add_below(&below, depth + 1);
            }
        }
    }
}

/// When a file was made, in nanoseconds of the calendar's clock.
fn born_at(status: &Statx) -> Option<u64> {
    StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME).then_some(())?;
    let seconds = u64::try_from(status.stx_btime.tv_sec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(status.stx_btime.tv_nsec.into())
}
