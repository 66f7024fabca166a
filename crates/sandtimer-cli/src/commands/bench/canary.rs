//! A plain timer thread of the enforcer's own priority, woken at the runs' deadlines: what the
//! machine itself makes late.
//!
//! It does nothing but note when it was woken. Where it is late too, the processor was taken away
//! from both.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::thread::{block_signals, make_real_time};

/// How one deadline went: its number, and nanoseconds late; `None` if it had passed when the canary
/// received it.
pub(super) type WakeUp = (usize, Option<u64>);

/// Where deadlines are handed in; one for each thread that does.
#[derive(Debug, Clone)]
pub(super) struct CanaryHandle {
    deadlines: Sender<(u64, usize)>,
    wake: Arc<OwnedFd>,
}

impl CanaryHandle {
    /// Wakes the canary at `deadline`, monotonic nanoseconds.
    pub(super) fn wake_at(&self, deadline: u64, number: usize) {
        // The canary lives until the last perch is gone.
        let _ = self.deadlines.send((deadline, number));
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// The thread, and what it noted.
#[derive(Debug)]
pub(super) struct Canary {
    thread: JoinHandle<Vec<WakeUp>>,
    wake: Arc<OwnedFd>,
    pub(super) real_time: bool,
}

impl Canary {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<(Self, CanaryHandle)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (deadlines, received) = channel();
        let (real_time_sender, real_time) = channel();
        let theirs = wake.clone();
        let thread = std::thread::Builder::new().name("canary".to_owned()).spawn(move || {
            block_signals();
            // The receiver waits for exactly this message.
            let _ = real_time_sender.send(make_real_time().is_ok());
            run_canary(&timer, &theirs, &received)
        })?;
        let real_time = real_time.recv().unwrap_or(false);
        Ok((Canary { thread, wake: wake.clone(), real_time }, CanaryHandle { deadlines, wake }))
    }

    /// What it noted, once every perch is gone.
    pub(super) fn finish(self) -> Vec<WakeUp> {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        self.thread.join().unwrap_or_default()
    }
}

fn run_canary(timer: &OwnedFd, wake: &OwnedFd, received: &Receiver<(u64, usize)>) -> Vec<WakeUp> {
    let mut waiting: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut noted = Vec::new();
    loop {
        let mut buffer = [0u8; 8];
        // Both only clear the readiness; a spurious wake-up costs one look.
        let _ = rustix::io::read(timer, &mut buffer);
        let now = monotonic_nanoseconds();
        while let Some(Reverse((deadline, number))) =
            waiting.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            noted.push((number, Some(now - deadline)));
            waiting.pop();
        }
        let _ = rustix::io::read(wake, &mut buffer);
        loop {
            match received.try_recv() {
                Ok((deadline, number)) if deadline <= monotonic_nanoseconds() => noted.push((number, None)),
                Ok(entry) => waiting.push(Reverse(entry)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if waiting.is_empty() => return noted,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        arm(timer, waiting.peek().map(|Reverse((at, _))| *at));
        let mut fds =
            [PollFd::from_borrowed_fd(timer.as_fd(), PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        // Interrupted or not, the next read shows what has come.
        let _ = poll(&mut fds, None);
    }
}

fn arm(timer: &OwnedFd, at: Option<u64>) {
    let at = at.unwrap_or(0);
    let time = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
    let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Fails only for values out of range, which these never are.
    let _ = timerfd_settime(
        timer,
        TimerfdTimerFlags::ABSTIME,
        &Itimerspec { it_interval: interval, it_value: time },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_is_answered_once() {
        let (canary, canary_handle) = Canary::start().expect("a thread and two descriptors");
        let now = monotonic_nanoseconds();
        canary_handle.wake_at(now + 200_000_000, 1);
        canary_handle.wake_at(now + 100_000_000, 0);
        canary_handle.wake_at(now, 2);
        drop(canary_handle);
        let mut noted = canary.finish();
        noted.sort_by_key(|(number, _)| *number);
        assert_eq!(noted.len(), 3);
        assert!(noted[0].1.is_some() && noted[1].1.is_some());
        assert_eq!(noted[2], (2, None));
    }
}
