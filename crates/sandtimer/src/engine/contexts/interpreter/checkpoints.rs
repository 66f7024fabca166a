//! The checkpoints of an interpreter: asked for, kept, forgotten, gone back to.
//!
//! ```text
//! due ─▶ asked for ─▶ kept: newest (what a cell goes back to) · the one before (undo) · one more, while its death would be in the way
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, poll};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::processors::Processors;
use sandtimer_os::wire::{notice, order};
use sandtimer_os::{process, zygote as os};

use super::super::super::error::Error;
use super::super::super::which_processor::bind_elsewhere;
use super::{LiveInterpreter, renew};
use crate::context::{Frame, Nonce, checkpoint_request};
use crate::supervise::run::SlotUsage;

/// How long an interpreter may take to make a checkpoint: forking takes 20 ms for each GB.
/// Infrastructure: always finite.
const CHECKPOINT_LIMIT: u64 = 10_000_000_000;
/// How long the next cell, or a copy that has no other place, is kept back for a forgotten
/// checkpoint to die.
const DYING_LIMIT: u64 = 250_000_000;
/// How often to check whether it is dead: there is no event.
const DEATH_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
/// The one to go back to, and the one before.
const MAX_CHECKPOINTS: usize = 2;
/// Processes that there may be for a checkpoint to be made before a forgotten one is dead.
const MIN_PROCESSES_FOR_EXTRA_CHECKPOINT: u64 = 16;
/// How long a checkpoint usually takes: an interpreter that takes longer may be writing to streams
/// that no thread reads.
const SHORT_CHECKPOINT_NANOSECONDS: u64 = 2_000_000;

impl LiveInterpreter {
    /// Whether there is a checkpoint, or why not.
    pub fn checkpoint(&self) -> Result<(), String> {
        self.why_none.clone().map_or(Ok(()), Err)
    }

    pub fn can_undo(&self) -> bool {
        self.checkpoints.len() >= MAX_CHECKPOINTS
    }

    pub fn ask_if_due(&mut self) {
        if self.is_due {
            self.ask_for_checkpoint();
        }
    }

    /// Asks the interpreter for a checkpoint of what it is now.
    pub fn ask_for_checkpoint(&mut self) {
        self.ask_for(None);
    }

    /// The same, of one that was bound and is to run on these processors again.
    pub(super) fn ask_for(&mut self, processors: Option<Processors>) {
        self.is_due = false;
        let is_ahead = processors.is_some();
        if !is_ahead {
            self.end_extra_checkpoint();
        }
        if !self.has_room() && !self.is_dead_by(monotonic_nanoseconds() + SHORT_CHECKPOINT_NANOSECONDS) {
            // The dying process still counts against the limit of processes: the copy is requested
            // when a caller needs it.
            self.is_due = true;
            return;
        }
        self.is_disturbed();
        let mut nonce = Nonce::default();
        renew(&mut nonce);
        let request = checkpoint_request(nonce, is_ahead);
        // If the interpreter is dead, the wait for it detects that.
        let _ = os::dispatch(
            self.channel.as_fd(),
            &os::ProcessSetup { processors, ..os::ProcessSetup::default() },
            &request,
            &[],
        );
        self.awaited = Some(nonce);
        // What dies is not to keep what is copied from a processor.
        self.end_extra_checkpoint();
    }

    /// Binds the interpreter to all processors but this thread's: those to give back to it.
    pub fn bind_elsewhere(&self) -> Option<Processors> {
        // Of Python's only. The number of a checkpoint that has become the interpreter is not known
        // here; others are init's too.
        let is_known = !self.is_inits && !self.is_listed();
        let number = self.channel.number().filter(|_| is_known && self.has_room())?;
        bind_elsewhere(number as i32, self.channel.interpreter.as_fd())
    }

    /// Whether the limit of processes allows a surplus checkpoint besides the next copy and the
    /// process that makes it.
    fn has_room(&self) -> bool {
        let limit = self.jail_handle.slot.limits().and_then(|limits| limits.processes);
        limit.is_none_or(|most| most >= MIN_PROCESSES_FOR_EXTRA_CHECKPOINT)
    }

    /// Ends the surplus checkpoint, which is kept until its death delays no caller.
    pub(super) fn end_extra_checkpoint(&mut self) {
        if self.checkpoints.len() > MAX_CHECKPOINTS {
            self.forget(0);
            self.is_one_dying = true;
        }
    }

    /// Waits until it has made its checkpoint, or its sandbox is paused. `Ok` with a reason: it was
    /// lost, and a checkpoint has taken its place; an error with one: the jail is of no use any
    /// more.
    pub fn ready(&mut self) -> Result<Option<String>, String> {
        self.ready_within(CHECKPOINT_LIMIT)
    }

    /// The same, with at most `limit` nanoseconds for each checkpoint.
    pub fn ready_within(&mut self, limit: u64) -> Result<Option<String>, String> {
        if self.held.is_some()
            && !matches!(
                self.await_checkpoint(monotonic_nanoseconds() + SHORT_CHECKPOINT_NANOSECONDS),
                Ok(true)
            )
        {
            self.let_streams_go();
        }
        let mut lost = None;
        loop {
            let end = monotonic_nanoseconds().saturating_add(limit);
            let reason = match self.await_checkpoint(end) {
                Ok(true) => {
                    self.await_dying(u64::MAX);
                    return Ok(lost);
                }
                // The jail is paused: the next thread that uses it waits for the checkpoint.
                Ok(false) if monotonic_nanoseconds() < end => return Ok(lost),
                Ok(false) => {
                    let limit = Duration::from_nanos(limit);
                    format!("the interpreter did not make a checkpoint within {limit:?}")
                }
                Err(reason) => reason,
            };
            let Some(checkpoint) = self.checkpoints.last().copied().filter(|_| lost.is_none()) else {
                return Err(reason);
            };
            if !self.roll_back(checkpoint) {
                return Err(reason);
            }
            lost = Some(reason);
            self.ask_for_checkpoint();
        }
    }

    /// Whether it has made its checkpoint by then, and nothing about it takes longer.
    pub fn is_ready_by(&mut self, end: u64) -> bool {
        let is_ready = !self.is_listed() && self.await_checkpoint(end) == Ok(true) && self.is_dead_by(end);
        is_ready && !process::is_dead(self.channel.interpreter.as_fd())
    }

    /// Waits for the answer to the last request for a checkpoint; earlier messages are skipped.
    /// Returns false if it is not there by `end`.
    pub(super) fn await_checkpoint(&mut self, end: u64) -> Result<bool, String> {
        self.is_due |= self.may_succeed_now();
        self.ask_if_due();
        if self.is_due && !self.await_dying(end) {
            return Ok(false);
        }
        self.ask_if_due();
        while let Some(nonce) = self.awaited {
            let Some(packet) = self.next_packet(end)? else { return Ok(false) };
            match Frame::parse(&packet) {
                Frame::Checkpoint { nonce: reply_nonce, made } if reply_nonce == nonce => {
                    self.awaited = None;
                    self.keep(made);
                }
                _ => self.note_rejection(&packet),
            }
        }
        match process::is_dead(self.channel.interpreter.as_fd()) {
            true => Err("the interpreter ended while nothing was executed in it".to_owned()),
            false => Ok(true),
        }
    }

    /// Whether a checkpoint was refused, and threads or processes have ended since.
    fn may_succeed_now(&self) -> bool {
        let is_refused = self.why_none.is_some() && self.awaited.is_none() && !self.is_listed();
        is_refused && self.extra() < self.tasks_at_rejection
    }

    pub(super) fn keep(&mut self, made: Result<i32, String>) {
        // Init has sent all interrupts once it answers, and the interpreter drops those that it has
        // when it is asked once more.
        let was_interrupted = std::mem::take(&mut self.was_interrupted);
        match made {
            Ok(pid) => {
                // Before the next cell is sent: init knows it before anything of that cell can
                // signal.
                self.have_init_keep(pid, self.is_shell() || was_interrupted);
                if std::mem::take(&mut self.replaces_last) && !self.checkpoints.is_empty() {
                    self.forget(self.checkpoints.len() - 1);
                }
                self.checkpoints.push(pid);
                self.why_none = None;
                self.is_one_dying = true;
                if was_interrupted {
                    self.ask_for_checkpoint();
                    self.replaces_last = true;
                }
            }
            Err(reason) => {
                // The ones there are would be of a state from before.
                self.forget_all();
                self.replaces_last = false;
                self.why_none = Some(reason);
                self.tasks_at_rejection = self.extra();
                if was_interrupted {
                    self.have_init_keep(0, true);
                    self.ask_for_checkpoint();
                }
            }
        }
    }

    /// Sends init the PID of a checkpoint, or 0 for none, and waits for its reply if `answer` is
    /// set.
    fn have_init_keep(&mut self, pid: i32, answer: bool) {
        let _ = process::send_command(&*self.jail_handle.control, order::KEEP, pid, u64::from(answer));
        if answer {
            self.wait_for_notice(notice::KEPT);
        }
    }

    /// Whether what is active is known by the list of processes: shells leave jobs running, and
    /// scripts have threads.
    pub(super) fn is_listed(&self) -> bool {
        self.is_shell() || self.is_script()
    }

    /// Waits until the checkpoint that was forgotten is dead: of the next cell it would be taken
    /// for a survivor. What does not die, an earlier cell has left. False where neither is known by
    /// `end`.
    pub(super) fn await_dying(&mut self, end: u64) -> bool {
        let most = end.min(monotonic_nanoseconds().saturating_add(DYING_LIMIT));
        if self.is_one_dying && !self.is_dead_by(most) {
            if most == end {
                return false;
            }
            self.left_over = self.extra();
            self.is_one_dying = false;
        }
        true
    }

    /// Whether nothing is left by then of a checkpoint that was forgotten.
    pub(super) fn is_dead_by(&mut self, end: u64) -> bool {
        if !self.is_one_dying || self.is_listed() {
            self.is_one_dying = false;
            return true;
        }
        loop {
            let extra = self.extra();
            if extra <= self.left_over {
                self.left_over = extra;
                self.is_one_dying = false;
                return true;
            }
            if monotonic_nanoseconds() >= end {
                return false;
            }
            // Only time passes here: callers that need the interpreter check for its end
            // themselves.
            let _ = poll(&mut [], Some(&DEATH_CHECK_INTERVAL));
        }
    }

    /// Tasks besides init, the interpreter and its checkpoints.
    pub(super) fn extra(&self) -> u64 {
        let idle = 2 + self.checkpoints.len() as u64;
        self.jail_handle.slot.processes_now().unwrap_or(0).saturating_sub(idle)
    }

    /// Ends the checkpoints that nothing goes back to any more.
    pub fn end_surplus(&mut self) {
        self.end_extra_checkpoint();
        self.await_dying(u64::MAX);
    }

    /// Reads the counters of the jail, if nothing runs in it. To be called while no caller waits.
    pub fn count(&mut self) {
        let is_at_rest = self.awaited.is_none()
            && !self.is_due
            && !self.is_one_dying
            && !self.is_listed()
            // Threads run between cells.
            && self.why_none.is_none()
            && self.extra() == 0;
        self.at_rest = is_at_rest.then(|| SlotUsage::of(&self.jail_handle.slot));
    }

    /// Ends all checkpoints.
    pub fn forget_all(&mut self) {
        while !self.checkpoints.is_empty() {
            self.forget(0);
        }
    }

    /// Notes activity in the jail that no run is charged for.
    pub fn is_disturbed(&mut self) {
        self.at_rest = None;
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.is_disturbed();
        let pid = self.checkpoints.remove(index);
        let _ = process::send_command(&*self.jail_handle.control, order::FORGET, pid, 0);
    }

    pub(super) fn become_checkpoint(&mut self, checkpoint: i32, process: Option<OwnedFd>) {
        self.checkpoints.retain(|pid| *pid != checkpoint);
        self.images.went_back();
        self.is_inits = true;
        if let Some(process) = process {
            self.channel.is_now_of(process);
        }
    }

    /// Goes back to the state before the last checkpoint.
    pub fn undo(&mut self) -> Result<(), Error> {
        self.end_surplus();
        self.forget(1);
        let checkpoint = self.checkpoints[0];
        let reason = || std::io::Error::other("the interpreter's earlier state was lost");
        let undone = self.roll_back(checkpoint);
        undone.then_some(()).ok_or_else(|| Error::System { doing: "cannot undo", source: reason() })
    }

    /// Has a checkpoint take the interpreter's place, where no run is on.
    pub(super) fn roll_back(&mut self, checkpoint: i32) -> bool {
        if process::send_command(&*self.jail_handle.control, order::ROLL_BACK, checkpoint, 0).is_err() {
            return false;
        }
        let Some((notice, process)) = self.wait_for_notice(notice::ROLLED_BACK) else { return false };
        process::reap(self.channel.interpreter.as_fd());
        let back = notice.a == 0 && process.is_some();
        if back {
            self.become_checkpoint(checkpoint, process);
        }
        back
    }
}
