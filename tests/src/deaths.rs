//! When processes die, told by a real-time thread that waits on their pidfds: a look at /proc from
//! a test that shares its processors with what it tests comes too late to say.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::ProcessStat;
use crate::wait::{now, readable};

/// Processes whose deaths are awaited.
#[derive(Debug)]
pub struct Watch {
    deaths: Receiver<(ProcessStat, Option<Duration>)>,
    count: usize,
}

impl Watch {
    /// Watches until each is dead, at most for `bound`.
    ///
    /// # Panics
    /// When the system refuses a thread.
    #[must_use]
    pub fn begin(processes: &[ProcessStat], bound: Duration) -> Self {
        let open = |process: &ProcessStat| {
            let pid = Pid::from_raw(process.pid as i32)?;
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            // Checked after it was opened: the pid may be another process's by now.
            (!process.is_dead()).then_some((process.clone(), pidfd))
        };
        let watched: Vec<(ProcessStat, OwnedFd)> = processes.iter().filter_map(open).collect();
        let (count, (send, deaths)) = (watched.len(), channel());
        let end = now() + bound;
        for (process, pidfd) in watched {
            let send = send.clone();
            std::thread::spawn(move || {
                make_real_time();
                let died = readable(pidfd.as_fd(), end.saturating_sub(now())).then(now);
                // Nobody asks any more where a test has failed already.
                let _ = send.send((process, died));
            });
        }
        Watch { deaths, count }
    }

    /// Waits for all of them; returns those that were not dead at `end`, with when they were.
    ///
    /// # Panics
    /// When a watching thread is gone.
    #[must_use]
    pub fn later_than(self, end: Duration) -> Vec<(ProcessStat, Option<Duration>)> {
        let deaths = (0..self.count).map(|_| self.deaths.recv().expect("every watching thread answers"));
        deaths.filter(|(_, died)| died.is_none_or(|died| died > end)).collect()
    }
}

/// Where it is not allowed the times are those of an ordinary thread: never too early.
fn make_real_time() {
    let parameters = libc::sched_param { sched_priority: 2 };
    // SAFETY: a valid pointer; 0 names the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
}
