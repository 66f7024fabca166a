//! The engine's side of a jail's init: the socket for its commands, and the timer of its deadline
//! if they share one.
//!
//! A deadline that is sent wakes init while the job begins. A timer that both hold is set without
//! waking init, which reads it when it fires.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::process;
use crate::wire::{INIT_SLACK_NANOSECONDS, order};

/// Sends commands and deadlines to init.
#[derive(Debug)]
pub struct InitControl {
    socket: OwnedFd,
    timer: Option<OwnedFd>,
}

impl From<OwnedFd> for InitControl {
    fn from(socket: OwnedFd) -> Self {
        InitControl { socket, timer: None }
    }
}

impl AsFd for InitControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl InitControl {
    /// By `socket`, with a timer that init is to be given.
    pub fn with_timer(socket: OwnedFd) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(InitControl { socket, timer: Some(timer) })
    }

    /// The timer that init is to be given.
    pub fn timer(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(AsFd::as_fd)
    }

    /// Has init end the jail a little after `hard` (monotonic nanoseconds; `u64::MAX`: never), if
    /// the engine has not. Never blocks.
    pub fn end_by(&self, hard: u64) -> io::Result<()> {
        match &self.timer {
            Some(timer) => set(timer.as_fd(), hard),
            None => process::send_command(&self.socket, order::DEADLINE, 0, hard),
        }
    }

    /// The same, where init works out the job's own end by itself: of the two the earlier one
    /// holds.
    pub fn end_no_later_than(&self, bound: u64) -> io::Result<()> {
        process::send_command(&self.socket, order::DEADLINE, 1, bound)
    }
}

/// Sets a timer again; what it had counted is gone. timerfd_settime(2).
fn set(timer: BorrowedFd<'_>, hard: u64) -> io::Result<()> {
    // All zeros would disarm it, which only "never" does.
    let at = if hard == u64::MAX { 0 } else { hard.saturating_add(INIT_SLACK_NANOSECONDS) };
    let it_value =
        Timespec { tv_sec: (at / 1_000_000_000).cast_signed(), tv_nsec: (at % 1_000_000_000).cast_signed() };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
    Ok(())
}
