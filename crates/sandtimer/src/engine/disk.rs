//! The disk limit on workspaces: looked at from time to time, for a shared directory cannot be given a size.
//!
//! What counts is growth since the run began: a workspace may hold a project many times the limit. RLIMIT_FSIZE stands
//! behind it for single files, and private directories have a size of their own.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, open, openat2, statat};
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::model::LimitKind;
use crate::supervise::orders::{Command, EnforcerHandle};
use crate::supervise::run::Running;

/// The shortest pause between two looks; a look that takes long is followed by ten times as long a pause.
const PAUSE_NANOSECONDS: u64 = 200_000_000;

/// A run and what its workspaces may grow by.
#[derive(Debug)]
struct Watched {
    run: Weak<Running>,
    workspaces: Vec<PathBuf>,
    /// What they held at the first look.
    before: Option<u64>,
    limit: u64,
    enforcer: EnforcerHandle,
}

/// One thread for all such runs; there only while there is one.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    runs: Vec<Watched>,
    looking: bool,
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
        };
        let mut state = lock(&self.state);
        state.runs.push(watched);
        if !state.looking {
            let shared = self.state.clone();
            let work = move || look_again_and_again(&shared);
            let thread =
                std::thread::Builder::new().name("st-disk".to_owned()).stack_size(256 << 10).spawn(work);
            // Without the thread the limit still holds for single files, by RLIMIT_FSIZE.
            state.looking = thread.is_ok();
        }
    }
}

fn look_again_and_again(state: &Mutex<State>) {
    sandtimer_os::thread::block_signals();
    loop {
        let started = monotonic_nanoseconds();
        let mut runs = {
            let mut state = lock(state);
            if state.runs.is_empty() {
                state.looking = false;
                return;
            }
            std::mem::take(&mut state.runs)
        };
        runs.retain_mut(look);
        lock(state).runs.extend(runs);
        let pause = PAUSE_NANOSECONDS.max(monotonic_nanoseconds().saturating_sub(started) * 10);
        let pause =
            Timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        // A bounded pause: nothing announces that a directory has grown.
        let _ = poll(&mut [], Some(&pause));
    }
}

/// Whether the run must be looked at again.
fn look(watched: &mut Watched) -> bool {
    let Some(run) = watched.run.upgrade().filter(|run| !run.waiting.is_over()) else { return false };
    let now = total(&watched.workspaces);
    let within = now.saturating_sub(*watched.before.get_or_insert(now)) <= watched.limit;
    if !within {
        watched.enforcer.send(Command::Limit { row: run.row, id: run.id.clone(), kind: LimitKind::Disk });
    }
    within
}

fn total(workspaces: &[PathBuf]) -> u64 {
    workspaces.iter().map(|path| allocated_bytes(path)).sum()
}

/// Directories inside one another that are looked into. Deeper ones count as more than any limit: nobody hides there.
const DEEPEST: u32 = 128;

/// Bytes that a directory's files occupy. Links are not followed, other file systems not entered, and nothing that the
/// run puts in the way leads out of the directory.
fn allocated_bytes(directory: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    match open(directory, flags, Mode::empty()) {
        Ok(top) => allocated_below(&top, 0),
        Err(_) => 0,
    }
}

fn allocated_below(directory: &OwnedFd, depth: u32) -> u64 {
    if depth == DEEPEST {
        return u64::MAX;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut total = 0u64;
    let Ok(entries) = Dir::read_from(directory) else { return 0 };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(status) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        total = total.saturating_add(u64::try_from(status.st_blocks).unwrap_or(0) * 512);
        if FileType::from_raw_mode(status.st_mode).is_dir()
            && let Ok(below) = openat2(directory, name, flags, Mode::empty(), resolve)
        {
            total = total.saturating_add(allocated_below(&below, depth + 1));
        }
    }
    total
}
