//! The engine's ends of one run's streams, as the collector has them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use rustix::event::epoll;
use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::stdout::UnwrittenOutput;

use super::commands::{EnforcerCommand, EnforcerHandle};
use super::deliveries::{Attachment, token};
use super::output::SharedSpool;
use super::reports::Reports;
use super::run::SharedRun;
use super::run_facts::RunFacts;
use crate::model::LimitKind;

/// Events of a run other than those of its outputs, which are 0 and 1.
pub(super) const STDIN: u64 = 2;
pub(super) const REPORTS: u64 = 3;
/// Reads of an output in a row: no run starves another. Nothing else is done for a run that is
/// dead.
const MAX_READS: u32 = 8;
const MAX_READS_OF_DEAD: u32 = 64;
/// How long after output was read the memory before the pipe is checked, in nanoseconds. What the
/// process writes later than that goes to the pipe at once (`QUIET` of the helper's stdout.rs).
const UNWRITTEN_CHECK_NANOSECONDS: u64 = 50_000_000;

/// What the collector reads into. It is made when there is something to read: an engine whose run
/// writes to the caller's own descriptors needs none.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer(Vec<u8>);

impl ReadBuffer {
    const BYTES: usize = 64 << 10;

    fn bytes(&mut self) -> &mut [u8] {
        if self.0.is_empty() {
            self.0.resize(Self::BYTES, 0);
        }
        &mut self.0
    }
}

/// The streams of a run.
pub(super) struct CollectorStreams {
    pub run: Arc<SharedRun>,
    pub outputs: [Option<Arc<OwnedFd>>; 2],
    pub spools: [Option<SharedSpool>; 2],
    /// The memory to which stdout is written before its pipe, and when it is checked next;
    /// `u64::MAX` for never.
    unwritten: Option<Arc<UnwrittenOutput>>,
    pub unwritten_check_at: u64,
    /// With the bytes that it is fed, and how many of them were written.
    stdin: Option<(OwnedFd, Vec<u8>, usize)>,
    /// Held until the run is dead.
    terminal: Option<OwnedFd>,
    reports: Option<Reports>,
    pub notices: Option<OwnedFd>,
    pub dead: Option<Box<RunFacts>>,
    pub drain_until: u64,
    /// Until when the rest of what its job has displayed is waited for; 0 if nothing is.
    pub displays_until: u64,
    is_limit_reported: bool,
    /// Nothing waits for it: its run counts as unkillable, or has ended and left something running
    /// in a live sandbox.
    pub is_abandoned: bool,
}

/// Stores output of a run that was read. Whether some of its output has been dropped by now.
pub(super) fn store(run: &SharedRun, index: usize, spool: &SharedSpool, bytes: &[u8]) -> bool {
    let now = monotonic_nanoseconds();
    run.note_output(now);
    run.follow(index, bytes, now);
    let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
    spool.write(bytes, now);
    let truncated = spool.truncated();
    drop(spool);
    run.waiting.output.notify();
    truncated
}

impl CollectorStreams {
    /// Takes up the streams of a run that lives, and watches them from now on.
    pub fn of_live_run(attachment: Attachment, epoll: &OwnedFd) -> Self {
        let Attachment { run, outputs, unwritten, stdin, terminal, reports, notices } = attachment;
        let slot_index = run.slot_index;
        let mut streams = CollectorStreams { terminal, notices, unwritten, ..CollectorStreams::empty(run) };
        for (index, output) in outputs.into_iter().enumerate() {
            let Some((fd, spool)) = output else { continue };
            // Earlier events are reported now. A stream that cannot be watched is still read when
            // the run is dead.
            let _ = epoll::modify(epoll, &fd, token(slot_index, index as u64), epoll::EventFlags::IN);
            streams.outputs[index] = Some(fd);
            streams.spools[index] = Some(spool);
        }
        if let Some((fd, bytes)) = stdin {
            let _ = epoll::add(epoll, &fd, token(slot_index, STDIN), epoll::EventFlags::OUT);
            streams.stdin = Some((fd, bytes, 0));
        }
        if let Some(fd) = reports {
            let _ = epoll::add(epoll, &fd, token(slot_index, REPORTS), epoll::EventFlags::IN);
            streams.reports = Some(Reports::new(fd));
        }
        streams
    }

    /// Takes up the outputs of a run that has ended, which are not watched any more.
    pub fn of_ended_run(attachment: Attachment) -> Self {
        let mut streams = CollectorStreams::empty(attachment.run);
        for (index, output) in attachment.outputs.into_iter().enumerate() {
            (streams.outputs[index], streams.spools[index]) = output.unzip();
        }
        streams
    }

    fn empty(run: Arc<SharedRun>) -> Self {
        CollectorStreams {
            run,
            outputs: [None, None],
            spools: [None, None],
            unwritten: None,
            unwritten_check_at: u64::MAX,
            stdin: None,
            terminal: None,
            reports: None,
            notices: None,
            dead: None,
            drain_until: u64::MAX,
            displays_until: 0,
            is_limit_reported: false,
            is_abandoned: false,
        }
    }

    /// Whether its Outcome is still to be made.
    pub fn is_waited_for(&self) -> bool {
        self.dead.is_none() && !self.is_abandoned
    }

    /// Whether every output is at its end.
    pub fn is_drained(&self) -> bool {
        self.outputs.iter().all(Option::is_none)
    }

    /// When its Outcome is made, if it is dead.
    pub fn settles_by(&self) -> u64 {
        self.displays_until.max(if self.is_drained() { 0 } else { self.drain_until })
    }

    /// Watches the outputs from now on under another row.
    pub fn watch_outputs(&self, slot_index: usize, epoll: &OwnedFd) {
        for (index, fd) in self.outputs.iter().enumerate() {
            let Some(fd) = fd else { continue };
            let (token, flags) = (token(slot_index, index as u64), epoll::EventFlags::IN);
            // Those of a run that another thread has ended are not watched any more.
            let _ = epoll::modify(epoll, fd, token, flags).or_else(|_| epoll::add(epoll, fd, token, flags));
        }
    }

    /// Reads what is there of an output, in bounded steps. Closes it at its end and on errors that
    /// last.
    pub fn read_output(
        &mut self,
        index: usize,
        buffer: &mut ReadBuffer,
        epoll: &OwnedFd,
        enforcer: Option<&EnforcerHandle>,
    ) {
        let max_reads = if self.dead.is_some() { MAX_READS_OF_DEAD } else { MAX_READS };
        for _ in 0..max_reads {
            let Some(fd) = &self.outputs[index] else { return };
            let buffer = buffer.bytes();
            match rustix::io::read(fd, &mut *buffer) {
                Ok(length) if length > 0 => {
                    self.store(index, &buffer[..length], enforcer);
                    self.schedule_unwritten_check(index);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => self.close_output(index, epoll),
            }
        }
    }

    /// Where stdout was written to the pipe, more of it may have been written to memory since.
    fn schedule_unwritten_check(&mut self, index: usize) {
        if index == 0 && self.unwritten.is_some() && self.unwritten_check_at == u64::MAX {
            self.unwritten_check_at = monotonic_nanoseconds() + UNWRITTEN_CHECK_NANOSECONDS;
        }
    }

    /// Takes what of stdout waits in memory, once the pipe is read; all of it where its process is
    /// dead.
    pub fn take_unwritten(&mut self, enforcer: Option<&EnforcerHandle>) {
        self.unwritten_check_at = u64::MAX;
        let (Some(unwritten), Some(_)) = (&self.unwritten, &self.spools[0]) else { return };
        let taken = match &self.dead {
            // Its threads may write there now.
            Some(facts) if facts.is_interpreter_kept() => unwritten.take(|| true),
            Some(_) => unwritten.rest(),
            None => {
                let pipe = self.outputs[0].as_ref();
                // A pipe that is closed was read to its end.
                unwritten
                    .take(|| pipe.is_none_or(|fd| rustix::io::ioctl_fionread(fd).is_ok_and(|left| left == 0)))
            }
        };
        match taken {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => {
                self.store(0, &bytes, enforcer);
                self.schedule_unwritten_check(0);
            }
            // There is no memory, or no descriptor, for a moment.
            Err(_) => self.schedule_unwritten_check(0),
        }
    }

    fn store(&mut self, index: usize, bytes: &[u8], enforcer: Option<&EnforcerHandle>) {
        let Some(spool) = &self.spools[index] else { return };
        let truncated = store(&self.run, index, spool, bytes);
        if self.run.on_output_limit_end && !self.is_limit_reported && truncated {
            self.is_limit_reported = true;
            if let Some(enforcer) = enforcer {
                let (slot_index, id) = (self.run.slot_index, self.run.id.clone());
                enforcer.send(EnforcerCommand::Limit { slot_index, id, kind: LimitKind::Output });
            }
        }
    }

    /// The memory is another run's from now on.
    pub fn forget_unwritten(&mut self) {
        self.unwritten = None;
    }

    /// Closes what is left of the outputs.
    pub fn close_outputs(&mut self, epoll: &OwnedFd) {
        (0..self.outputs.len()).for_each(|index| self.close_output(index, epoll));
    }

    /// A copy of the descriptor may live on in a process that the host program forked, and with it
    /// the entry in the epoll.
    fn close_output(&mut self, index: usize, epoll: &OwnedFd) {
        if let Some(fd) = self.outputs[index].take() {
            let _ = epoll::delete(epoll, &fd);
        }
    }

    /// Closes what a dead run does not need any more; what it has reported is read before.
    pub fn close_inputs(&mut self, buffer: &mut ReadBuffer, epoll: &OwnedFd) {
        self.close_stdin(epoll);
        self.terminal = None;
        self.read_reports(buffer, epoll);
        self.close_reports(epoll);
    }

    fn close_stdin(&mut self, epoll: &OwnedFd) {
        if let Some((fd, ..)) = self.stdin.take() {
            let _ = epoll::delete(epoll, &fd);
        }
    }

    /// Reads what was reported; closes the channel once no process can report any more.
    pub fn read_reports(&mut self, buffer: &mut ReadBuffer, epoll: &OwnedFd) {
        let Some(reports) = &mut self.reports else { return };
        let run = &self.run;
        let now = monotonic_nanoseconds();
        if !reports.read_lines(buffer.bytes(), |line| run.handle_report(line, now)) {
            self.close_reports(epoll);
        }
    }

    fn close_reports(&mut self, epoll: &OwnedFd) {
        if let Some(reports) = self.reports.take() {
            let _ = epoll::delete(epoll, reports.channel());
        }
    }

    /// Writes to stdin, as much as fits.
    pub fn feed(&mut self, epoll: &OwnedFd) {
        let Some((fd, bytes, at)) = &mut self.stdin else { return };
        match rustix::io::write(fd.as_fd(), &bytes[*at..]) {
            Ok(written) => *at += written,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The run has closed it.
            Err(_) => *at = bytes.len(),
        }
        if *at == bytes.len() {
            self.close_stdin(epoll);
        }
    }
}
