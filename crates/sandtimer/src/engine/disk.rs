//! The disk limit on workspaces: looked at from time to time, for a shared directory cannot be given a size.
//!
//! What counts is growth since the run began: a workspace may hold a project many times the limit. RLIMIT_FSIZE stands
//! behind it for single files, and private directories have a size of their own.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{Timespec, poll};
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::model::LimitKind;
use crate::supervise::enforcer::{Command, EnforcerHandle};
use crate::supervise::run::Running;

/// The shortest pause between two looks; a look that takes long is followed by ten times as long a pause.
const PAUSE_NANOSECONDS: u64 = 200_000_000;

/// A run and what its workspaces may grow by.
#[derive(Debug)]
struct Watched {
    run: Weak<Running>,
    workspaces: Vec<PathBuf>,
    before: u64,
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
            before: total(workspaces),
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
        let runs = {
            let mut state = lock(state);
            if state.runs.is_empty() {
                state.looking = false;
                return;
            }
            std::mem::take(&mut state.runs)
        };
        let left: Vec<Watched> = runs.into_iter().filter(look).collect();
        lock(state).runs.extend(left);
        let pause = PAUSE_NANOSECONDS.max(monotonic_nanoseconds().saturating_sub(started) * 10);
        let pause =
            Timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        // A bounded pause: nothing announces that a directory has grown.
        let _ = poll(&mut [], Some(&pause));
    }
}

/// Whether the run must be looked at again.
fn look(watched: &Watched) -> bool {
    let Some(run) = watched.run.upgrade().filter(|run| !run.waiting.is_over()) else { return false };
    let within = total(&watched.workspaces).saturating_sub(watched.before) <= watched.limit;
    if !within {
        watched.enforcer.send(Command::Limit { row: run.row, id: run.id.clone(), kind: LimitKind::Disk });
    }
    within
}

fn total(workspaces: &[PathBuf]) -> u64 {
    workspaces.iter().map(|path| allocated_bytes(path)).sum()
}

/// Bytes that a directory's files occupy. Links are not followed, other file systems not entered.
fn allocated_bytes(directory: &Path) -> u64 {
    let Ok(top) = directory.symlink_metadata() else { return 0 };
    let mut total = 0;
    let mut left = vec![directory.to_path_buf()];
    while let Some(here) = left.pop() {
        let Ok(entries) = here.read_dir() else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            total += metadata.blocks() * 512;
            if metadata.is_dir() && metadata.dev() == top.dev() {
                left.push(entry.path());
            }
        }
    }
    total
}
