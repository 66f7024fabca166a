//! Gives a run notice of a limit that is near: a line on its notice channel, and a signal to those
//! of its processes that handle it.
//!
//! Only processes that handle the signal get it: it would end others, such as the shell around a
//! script. PIDs are reused, so each process is held by a pidfd that was opened before its parent
//! still listed it. The collector does this, for it reads /proc; a notice that comes too late,
//! because the ending has begun, is not given.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use sandtimer_os::process;

use super::look::ProcDirectory;
use super::proc_files::{children, number_of, read};
use super::run::SharedRun;
use super::sentence::signal_name;
use crate::model::{LimitKind, Notice, Warning};

/// Processes that are inspected.
const MAX_SIGNALLED_PROCESSES: usize = 1024;
/// The number of notices in an Outcome, which has the first ones.
const MAX_NOTICES: usize = 16;

/// Gives the run this notice, by its channel if it has one. Does nothing once its ending has begun.
pub(super) fn give(run: &SharedRun, warning: Warning, channel: Option<&OwnedFd>, now: u64) {
    let (kind, left_ms) = match warning {
        Warning::Wall { left_ms } => (LimitKind::Wall, left_ms),
        Warning::Cpu { left_ms } => (LimitKind::Cpu, left_ms),
        // A run gets no notice of its own silence.
        Warning::Stall { .. } => return,
    };
    if run.cell.is_fired() || (channel.is_none() && run.warn_signal.is_none()) {
        return;
    }
    if let Some(channel) = channel {
        let line = serde_json::json!({"limit": kind, "left_ms": left_ms}).to_string() + "\n";
        // A job that does not read does not need the notice, and is not waited for.
        let _ = rustix::io::write(channel, line.as_bytes());
    }
    let processes = run.warn_signal.map_or(0, |signal| send(run, signal));
    let started = run.started_at.load(Ordering::Acquire);
    let at_ms = now.saturating_sub(started) / 1_000_000;
    let signal = run.warn_signal.map(Signal::as_raw).map(signal_name);
    let mut notices = run.notices.lock().unwrap_or_else(PoisonError::into_inner);
    if notices.len() < MAX_NOTICES {
        notices.push(Notice { kind, at_ms, left_ms, signal, processes });
    }
}

/// A process of the run.
struct OpenedProcess {
    pid: u32,
    pidfd: OwnedFd,
}

/// Sends the signal to every process of the run that handles it; to how many.
fn send(run: &SharedRun, signal: Signal) -> u64 {
    let init = number_of(run.pidfd.as_fd());
    let mut open: Vec<OpenedProcess> = init.map(below).unwrap_or_default();
    if let Some(job) = &run.job
        && let (Some(pid), Ok(pidfd)) = (number_of(job.pidfd.as_fd()), job.pidfd.try_clone())
    {
        open.push(OpenedProcess { pid, pidfd });
    }
    let (mut inspected, mut sent) = (0, 0);
    while let Some(found) = open.pop().filter(|_| inspected < MAX_SIGNALLED_PROCESSES) {
        inspected += 1;
        let (below, handles) = (below(found.pid), handles(run, found.pid, signal));
        // What was read under its number was of it.
        if process::is_dead(found.pidfd.as_fd()) {
            continue;
        }
        open.extend(below);
        if handles && !run.cell.is_fired() && process::signal(found.pidfd.as_fd(), signal).is_ok() {
            sent += 1;
        }
    }
    sent
}

/// The children of a process.
fn below(parent: u32) -> Vec<OpenedProcess> {
    let listed = || -> Vec<u32> {
        let threads = ProcDirectory::of(parent).numbers("task").into_iter();
        threads
            .flat_map(|thread| children(&format!("/proc/{parent}/task/{thread}")))
            .take(MAX_SIGNALLED_PROCESSES)
            .collect()
    };
    let open = |pid: u32| {
        let pidfd = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        Some(OpenedProcess { pid, pidfd })
    };
    let found: Vec<OpenedProcess> = listed().into_iter().filter_map(open).collect();
    let still = listed();
    found.into_iter().filter(|found| still.contains(&found.pid)).collect()
}

fn handles(run: &SharedRun, pid: u32, signal: Signal) -> bool {
    let Some(status) = read(&format!("/proc/{pid}/status")) else { return false };
    // In a live jail a stopped process is a checkpoint, or like one: it would get the signal long
    // after the limit.
    let is_put_by = run.live().is_some() && is_stopped(&status);
    is_caught(&status, signal) && !is_put_by
}

fn is_stopped(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))
        .is_some_and(|state| state.trim().starts_with('T'))
}

/// Whether the signal is in the set of caught ones; see proc_pid_status(5).
fn is_caught(status: &str, signal: Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    caught.is_some_and(|set| set >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_of_caught_signals_is_read() {
        let status = "SigIgn:\t0000000000001000\nSigCgt:\t0000000000000202\nCapInh:\t0\n";
        assert!(is_caught(status, Signal::INT) && is_caught(status, Signal::USR1));
        assert!(!is_caught(status, Signal::USR2) && !is_caught(status, Signal::PIPE));
        assert!(is_stopped("Name:\tx\nState:\tT (stopped)\n") && !is_stopped("State:\tS (sleeping)\n"));
        for nothing in ["", "SigCgt:", "SigCgt: x"] {
            assert!(!is_caught(nothing, Signal::USR1));
        }
    }
}
