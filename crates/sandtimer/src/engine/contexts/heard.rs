//! What the interpreter says while a cell of its is on: what it [displays](super::words), and its answer.
//!
//! Heard by whoever executes, until there is an answer or a verdict. Nothing of it is trusted: an answer counts only if it seals
//! the run's deadline cell first.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;

use super::super::Inner;
use super::Told;
use super::standing::Standing;
use super::words::{CellWords, Pieces};
use crate::context::{Frame, Said, reply, shown_bytes};
use crate::supervise::at_once::Brought;
use crate::supervise::run::{ANSWERED_RAISED, ANSWERED_VALUE, Job, Live, Reply, Running};
use crate::zygote::{Answer, Kind, REPORT};

/// What was heard of a cell so far.
#[derive(Debug)]
pub(super) struct Heard {
    words: Arc<CellWords>,
    replied: Pieces,
    /// An answer whose parts are still to be asked for.
    held: Option<Vec<u8>>,
    is_over: bool,
}

impl Heard {
    pub fn new(words: Arc<CellWords>, limit: u64) -> Self {
        Heard { words, replied: Pieces::new(limit), held: None, is_over: false }
    }

    /// The Outcome is out: tells what was displayed before it, and nobody else has heard.
    pub fn close(&self, tell: &mut dyn FnMut(Told)) {
        self.words.close();
        self.tell(tell);
    }

    fn tell(&self, tell: &mut dyn FnMut(Told)) {
        self.words.take_untold().into_iter().for_each(|value| tell(Told::Displayed(value)));
    }
}

/// Hears what the interpreter says until it answers, or there is a verdict. False where neither is there by `until`, or that
/// would take longer: then the rest is to be heard without an end.
pub(super) fn hear(
    inner: &Inner,
    running: &Arc<Running>,
    standing: &mut Standing,
    (heard, brought): (&mut Heard, &Brought),
    until: Option<u64>,
    tell: &mut dyn FnMut(Told),
) -> bool {
    let Some(job) = &running.job else { return true };
    let Some(live) = &job.live else { return true };
    let held = heard.held.take();
    let mut hearing = Hearing { inner, running, standing, live, heard, brought };
    if let Some(held) = held
        && hearing.packet(&held, None, tell)
    {
        hearing.heard.is_over = true;
    }
    while !hearing.heard.is_over && hearing.heard.held.is_none() {
        match wait_for_word(live, job, until) {
            Word::Said => {}
            Word::Late => return false,
            Word::Over => {
                hearing.heard.is_over = true;
                continue;
            }
        }
        match hearing.heard.words.next() {
            Ok(None) => hearing.heard.tell(tell),
            Ok(Some(packet)) if !packet.is_empty() => {
                hearing.heard.is_over = hearing.packet(&packet, until, tell);
            }
            // One that is too long says nothing that anybody asked for.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::InvalidData
                ) => {}
            // It has closed its end: what it is now, the enforcer finds out.
            _ if until.is_some() => return false,
            _ => {
                running.waiting.wait_verdict();
                hearing.heard.is_over = true;
            }
        }
    }
    hearing.heard.is_over
}

/// One cell's words so far.
struct Hearing<'a> {
    inner: &'a Inner,
    running: &'a Arc<Running>,
    standing: &'a mut Standing,
    live: &'a Live,
    heard: &'a mut Heard,
    brought: &'a Brought,
}

impl Hearing<'_> {
    /// Hears one packet; true once there is an answer.
    fn packet(&mut self, packet: &[u8], until: Option<u64>, tell: &mut dyn FnMut(Told)) -> bool {
        if let Some(report) = packet.strip_prefix(REPORT) {
            self.running.hear_report(report, monotonic_nanoseconds());
            return false;
        }
        let said = match self.standing.is_script() {
            true => self.standing.said(packet),
            false => match Frame::parse(packet) {
                Frame::Answer => match Answer::parse(packet) {
                    Ok(answer) if until.is_some() && !answer.parts.is_empty() => {
                        self.heard.held = Some(packet.to_vec());
                        return false;
                    }
                    Ok(answer) => {
                        self.answered(&answer, tell);
                        return true;
                    }
                    Err(_) => None,
                },
                // Nothing that is asked for now.
                Frame::Display { .. }
                | Frame::Checkpoint { .. }
                | Frame::Image { .. }
                | Frame::Begun
                | Frame::Failed(_)
                | Frame::Unknown => None,
            },
        };
        match said {
            Some(Said::Part(bytes)) => drop(self.heard.replied.hear(bytes, false)),
            Some(Said::Answer { bytes, raised }) => {
                if let Some(whole) = self.heard.replied.hear(bytes, true) {
                    self.take_reply(whole_reply(&whole), raised, tell);
                }
                return true;
            }
            // Kept where it was received.
            Some(Said::Display { .. }) | None => {}
        }
        false
    }

    /// Takes an answer. From then on no limit ends the run; one that did before has won.
    fn answered(&mut self, answer: &Answer, tell: &mut dyn FnMut(Told)) {
        let limit = self.heard.replied.limit;
        let said = match self.standing.read(answer, limit, self.live) {
            Ok(Some(code)) if self.live.is_shell => {
                Reply { exit_code: code.first().copied(), ..Default::default() }
            }
            Ok(Some(data)) => match shown_bytes(&data) {
                length if length > limit => too_large(length, limit),
                _ => reply(&data),
            },
            Ok(None) => too_large(answer.size(), limit),
            // It died on the way, or was ended.
            Err(_) => return,
        };
        self.take_reply(said, answer.kind != Kind::Value, tell);
    }

    /// Takes what came with an answer; from then on no limit ends the run.
    fn take_reply(&mut self, mut said: Reply, raised: bool, tell: &mut dyn FnMut(Told)) {
        let Some(job) = &self.running.job else { return };
        if !self.heard.words.is_of_a_living_interpreter() {
            // Its number may be another process's by now. What it ended with is what the enforcer reads.
            return;
        }
        self.heard.words.close();
        let raised = raised || said.error.is_some();
        if let Some(serde_json::Value::String(pickled)) = said.take_pickled() {
            tell(Told::Raised(pickled));
        }
        said.value = said.results.last().and_then(|shown| shown.get("application/json")).cloned();
        *self.live.reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        job.answered.store(if raised { ANSWERED_RAISED } else { ANSWERED_VALUE }, Ordering::Release);
        if !self.running.cell.seal() {
            // In the grace of a limit; there is nothing left to wait for.
            job.answered.store(0, Ordering::Release);
        }
        let (enforcer, collector) = (&self.inner.enforcer, &self.inner.collector);
        if let Some(rest) = self.brought.answered(self.running, enforcer, collector) {
            self.standing.hold(rest);
        }
    }
}

/// What ends a wait for the interpreter.
enum Word {
    Said,
    /// There is a verdict, behind which nothing that it says counts.
    Over,
    Late,
}

fn wait_for_word(live: &Live, job: &Job, until: Option<u64>) -> Word {
    let mut fds = [PollFd::new(&*job.channel, PollFlags::IN), PollFd::new(&live.over, PollFlags::IN)];
    loop {
        let left = until.map(|until| until.saturating_sub(monotonic_nanoseconds()));
        if left == Some(0) {
            // Also where something was said: an interpreter may have something to say for ever.
            return Word::Late;
        }
        let left = left.map(|left| Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        });
        match poll(&mut fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => return Word::Late,
            Ok(_) if fds[1].revents().is_empty() => return Word::Said,
            _ => return Word::Over,
        }
    }
}

/// The interpreter's words on its cell.
fn whole_reply(said: &Pieces) -> Reply {
    if said.length > said.limit { too_large(said.length, said.limit) } else { reply(&said.bytes) }
}

/// What is said in place of an answer that nobody wants.
fn too_large(length: u64, limit: u64) -> Reply {
    let message = format!("what it shows has {length} bytes, and the result limit is {limit}");
    let error = serde_json::json!({"type": "ResultTooLargeError", "module": "sandtimer", "message": message, "traceback": ""});
    Reply { error: Some(error), ..Default::default() }
}
