//! What an interpreter sends during a cell: what it [displays](super::displays), and its answer.
//!
//! The thread that executes the cell reads it, until there is an answer or a verdict. Nothing of it
//! is trusted: an answer counts only if it seals the run's deadline cell first.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;

use super::super::inner::Inner;
use super::cell::CellEvent;
use super::displays::{CellDisplays, Pieces};
use super::interpreter::LiveInterpreter;
use crate::context::{Frame, ScriptMessage, reply, shown_bytes};
use crate::supervise::at_once::RunHandoff;
use crate::supervise::run::{ANSWERED_RAISED, ANSWERED_VALUE, CellReply, Job, LiveJob, SharedRun};
use crate::zygote::{AnswerKind, CallAnswer, REPORT};

/// What was read of a cell so far.
#[derive(Debug)]
pub(super) struct CellReadState {
    displays: Arc<CellDisplays>,
    replied: Pieces,
    /// An answer whose parts are still to be asked for.
    held: Option<Vec<u8>>,
    has_finished: bool,
}

impl CellReadState {
    pub fn new(displays: Arc<CellDisplays>, limit: u64) -> Self {
        CellReadState { displays, replied: Pieces::new(limit), held: None, has_finished: false }
    }

    /// Emits what was displayed before the Outcome and not emitted yet.
    pub fn close(&self, emit: &mut dyn FnMut(CellEvent)) {
        self.displays.close();
        self.emit(emit);
    }

    fn emit(&self, emit: &mut dyn FnMut(CellEvent)) {
        self.displays.take_unsent().into_iter().for_each(|value| emit(CellEvent::Displayed(value)));
    }
}

/// Reads the messages of one cell.
pub(super) struct CellReader<'a> {
    inner: &'a Inner,
    running: &'a Arc<SharedRun>,
    interpreter: &'a mut LiveInterpreter,
    job: &'a Job,
    live: &'a LiveJob,
    read_state: &'a mut CellReadState,
    handoff: &'a RunHandoff,
}

impl<'a> CellReader<'a> {
    /// Returns a reader of the interpreter's messages; `None` if the run has no live interpreter.
    pub fn new(
        inner: &'a Inner,
        running: &'a Arc<SharedRun>,
        interpreter: &'a mut LiveInterpreter,
        read_state: &'a mut CellReadState,
        handoff: &'a RunHandoff,
    ) -> Option<Self> {
        let job = running.job.as_ref()?;
        let live = job.live.as_ref()?;
        Some(CellReader { inner, running, interpreter, job, live, read_state, handoff })
    }

    /// Reads the interpreter's messages until it answers, or there is a verdict. Returns false if
    /// neither is there by `until`, or reading on could take longer: then the rest must be read
    /// without `until`.
    pub fn read(&mut self, until: Option<u64>, emit: &mut dyn FnMut(CellEvent)) -> bool {
        if let Some(held) = self.read_state.held.take()
            && self.packet(&held, None, emit)
        {
            self.read_state.has_finished = true;
        }
        while !self.read_state.has_finished && self.read_state.held.is_none() {
            match wait_for_packet(self.live, self.job, until) {
                CellWaitResult::Readable => {}
                CellWaitResult::TimedOut => return false,
                CellWaitResult::Finished => {
                    self.read_state.has_finished = true;
                    continue;
                }
            }
            match self.read_state.displays.next() {
                Ok(None) => self.read_state.emit(emit),
                Ok(Some(packet)) if !packet.is_empty() => {
                    self.read_state.has_finished = self.packet(&packet, until, emit);
                }
                // A packet that is too long is no reply to a request of the engine.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::InvalidData
                    ) => {}
                // It has closed its end: what it is now, the enforcer finds out.
                _ if until.is_some() => return false,
                _ => {
                    self.running.waiting.wait_verdict();
                    self.read_state.has_finished = true;
                }
            }
        }
        self.read_state.has_finished
    }

    /// Handles one packet; true once there is an answer.
    fn packet(&mut self, packet: &[u8], until: Option<u64>, emit: &mut dyn FnMut(CellEvent)) -> bool {
        if let Some(report) = packet.strip_prefix(REPORT) {
            self.running.handle_report(report, monotonic_nanoseconds());
            return false;
        }
        let message = match self.interpreter.is_script() {
            true => self.interpreter.parse_message(packet),
            false => match Frame::parse(packet) {
                Frame::Answer => match CallAnswer::parse(packet) {
                    Ok(answer) if until.is_some() && !answer.parts.is_empty() => {
                        self.read_state.held = Some(packet.to_vec());
                        return false;
                    }
                    Ok(answer) => {
                        self.answered(&answer, emit);
                        return true;
                    }
                    Err(_) => None,
                },
                // Nothing that is asked for now.
                Frame::Display { .. }
                | Frame::Checkpoint { .. }
                | Frame::Image { .. }
                | Frame::Started
                | Frame::Failed(_)
                | Frame::Unknown => None,
            },
        };
        match message {
            Some(ScriptMessage::Part(bytes)) => drop(self.read_state.replied.append(bytes, false)),
            Some(ScriptMessage::Answer { bytes, raised }) => {
                if let Some(whole) = self.read_state.replied.append(bytes, true) {
                    self.take_reply(whole_reply(&whole), raised, emit);
                }
                return true;
            }
            // Kept where it was received.
            Some(ScriptMessage::Display { .. }) | None => {}
        }
        false
    }

    /// Takes an answer. From then on no limit ends the run; a limit that fired before has won.
    fn answered(&mut self, answer: &CallAnswer, emit: &mut dyn FnMut(CellEvent)) {
        let limit = self.read_state.replied.limit;
        let reply = match self.interpreter.read(answer, limit, self.live) {
            Ok(Some(code)) if self.live.is_shell => {
                CellReply { exit_code: code.first().copied(), ..Default::default() }
            }
            Ok(Some(data)) => match shown_bytes(&data) {
                length if length > limit => too_large(length, limit),
                _ => reply(&data),
            },
            Ok(None) => too_large(answer.size(), limit),
            // It died on the way, or was ended.
            Err(_) => return,
        };
        self.take_reply(reply, answer.kind != AnswerKind::Value, emit);
    }

    /// Takes what came with an answer; from then on no limit ends the run.
    fn take_reply(&mut self, mut reply: CellReply, raised: bool, emit: &mut dyn FnMut(CellEvent)) {
        let job = self.job;
        if !self.read_state.displays.is_of_a_living_interpreter() {
            // Its number may be another process's by now. What it ended with is what the enforcer
            // reads.
            return;
        }
        self.read_state.displays.close();
        let raised = raised || reply.error.is_some();
        if let Some(serde_json::Value::String(pickled)) = reply.take_pickled() {
            emit(CellEvent::Raised(pickled));
        }
        reply.value = reply.results.last().and_then(|shown| shown.get("application/json")).cloned();
        *self.live.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        job.answered.store(if raised { ANSWERED_RAISED } else { ANSWERED_VALUE }, Ordering::Release);
        if !self.running.cell.seal() {
            // In the grace of a limit; there is nothing left to wait for.
            job.answered.store(0, Ordering::Release);
        }
        let (enforcer, collector) = (&self.inner.enforcer, &self.inner.collector);
        if let Some(rest) = self.handoff.answered(self.running, enforcer, collector) {
            self.interpreter.hold(rest);
        }
    }
}

/// What ends a wait for the interpreter.
enum CellWaitResult {
    Readable,
    /// There is a verdict, after which no message of the interpreter counts.
    Finished,
    TimedOut,
}

fn wait_for_packet(live: &LiveJob, job: &Job, until: Option<u64>) -> CellWaitResult {
    let mut fds = [PollFd::new(&*job.channel, PollFlags::IN), PollFd::new(&live.over, PollFlags::IN)];
    loop {
        let left = until.map(|until| until.saturating_sub(monotonic_nanoseconds()));
        if left == Some(0) {
            // Even if a message was read: an interpreter may send messages for ever.
            return CellWaitResult::TimedOut;
        }
        let left = left.map(|left| Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        });
        match poll(&mut fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => return CellWaitResult::TimedOut,
            Ok(_) if fds[1].revents().is_empty() => return CellWaitResult::Readable,
            _ => return CellWaitResult::Finished,
        }
    }
}

/// Returns the interpreter's reply to its cell.
fn whole_reply(pieces: &Pieces) -> CellReply {
    if pieces.length > pieces.limit { too_large(pieces.length, pieces.limit) } else { reply(&pieces.bytes) }
}

/// The reply in place of an answer that is larger than the result limit.
fn too_large(length: u64, limit: u64) -> CellReply {
    let message = format!("what it shows has {length} bytes, and the result limit is {limit}");
    let error = serde_json::json!({"type": "ResultTooLargeError", "module": "sandtimer", "message": message, "traceback": ""});
    CellReply { error: Some(error), ..Default::default() }
}
