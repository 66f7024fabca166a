//! The end of a job whose answer came before another thread had taken up its run: the thread that
//! took the answer ends the run.
//!
//! ```text
//! brought ─┬─ the enforcer takes it up: something is due, or init or the job has sent something ─▶ its own, as every run
//!          └─ answered before that ─▶ taken back ─▶ Outcome          (the same steps, on the thread that took the answer)
//! ```
//! On few processors each thread that wakes takes the place of the job or of its caller; a short
//! cell of a context would wait for two more than it needs. Every deadline is armed with the
//! enforcer, init and the watchdog all the same. The two parts of a run, its end and its streams,
//! are taken back each by itself: output, for one, wakes the collector.

use std::sync::Arc;

use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;

use super::commands::{EnforcerCommand, EnforcerHandle};
use super::deliveries::{Attachment, CollectorHandle, ToCollector};
use super::ending::RunEnding;
use super::offer::Offer;
use super::run::SharedRun;
use super::run_facts::RunFacts;
use super::sentence;
use super::streams::store;

/// Bytes that are read of a stream at a time, and how often; the collector reads the rest.
const PIECE_BYTES: usize = 8 << 10;
const MAX_PIECES: usize = 8;

/// A run that was handed to both threads, as far as they have not taken it.
#[derive(Debug, Clone)]
pub(crate) struct RunHandoff {
    pub ending: Arc<Offer<Box<RunEnding>>>,
    pub streams: Arc<Offer<Box<Attachment>>>,
}

impl RunHandoff {
    /// Ends a run in a live sandbox whose job's answer was taken, or has the threads do so that
    /// have taken it up. Returns what was left of its streams if it was ended here.
    pub fn answered(
        &self,
        running: &Arc<SharedRun>,
        enforcer: &EnforcerHandle,
        collector: &CollectorHandle,
    ) -> Option<Box<Attachment>> {
        let answered =
            || EnforcerCommand::Answered { slot_index: running.slot_index, id: running.id.clone() };
        let Some(mut ending) = self.ending.take() else {
            enforcer.send(answered());
            return None;
        };
        // Without a group the watchdog must be sent each end.
        let by_group = running.slot.kill_file().is_some();
        if by_group {
            ending.answered(monotonic_nanoseconds());
        }
        let Some(ToCollector::Dead { run, facts }) = ending.report().filter(|_| ending.is_dead()) else {
            enforcer.give(ending);
            enforcer.send(answered());
            return None;
        };
        ending.notify_owner_of_rest();
        enforcer.forget(&ending);
        let streams = self.streams.take();
        let ended = settle(streams, run, facts, collector)?;
        collector.forget(&ended);
        Some(ended)
    }
}

/// Makes the Outcome of a run that has ended, unless the collector has a part in it: it has looked
/// at the streams, or has to. What was left of them where it was made here.
pub(super) fn settle(
    streams: Option<Box<Attachment>>,
    run: Arc<SharedRun>,
    facts: Box<RunFacts>,
    collector: &CollectorHandle,
) -> Option<Box<Attachment>> {
    // Of a sandbox that was left, no process has a stream any more.
    let is_drained =
        |left: DrainState| left == DrainState::Closed || left == DrainState::Nothing && !facts.vacant;
    let is_kept = facts.is_interpreter_kept();
    let is_all = |attachment: &Attachment| {
        !facts.is_continuing && drain(attachment, is_kept).iter().all(|left| is_drained(*left))
    };
    match streams {
        Some(mut attachment) if is_all(&attachment) => {
            let spools =
                [0, 1].map(|index: usize| attachment.outputs[index].as_ref().map(|(_, spool)| spool.clone()));
            // The memory is the next run's.
            attachment.unwritten = None;
            run.waiting.outcome(sentence::outcome(&run, &facts, &spools), true);
            return Some(attachment);
        }
        // It reads what is left once it knows that the run is dead.
        Some(attachment) => drop(collector.offer(attachment)),
        None => {}
    }
    collector.send(ToCollector::Dead { run, facts });
    None
}

/// Reads what a run has written, if there is nothing else to do for it. `is_kept`: its interpreter
/// lives.
fn drain(attachment: &Attachment, is_kept: bool) -> [DrainState; 2] {
    let is_plain =
        attachment.stdin.is_none() && attachment.reports.is_none() && attachment.terminal.is_none();
    if is_plain { read(attachment, is_kept) } else { [DrainState::More; 2] }
}

/// Reads what a run has written after its end. Whether no process has a stream of it any more.
pub(crate) fn is_fully_drained(attachment: &Attachment) -> bool {
    read(attachment, true).iter().all(|left| *left == DrainState::Closed)
}

/// What is left of a stream when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainState {
    Closed,
    Nothing,
    More,
}

fn read(attachment: &Attachment, is_kept: bool) -> [DrainState; 2] {
    let mut buffer = [0u8; PIECE_BYTES];
    let left = [0, 1].map(|index: usize| {
        let Some((fd, spool)) = &attachment.outputs[index] else { return DrainState::Closed };
        for _ in 0..MAX_PIECES {
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => return DrainState::Closed,
                Ok(length) => {
                    store(&attachment.run, index, spool, &buffer[..length]);
                }
                Err(Errno::AGAIN) => return DrainState::Nothing,
                // The collector reads again.
                Err(_) => return DrainState::More,
            }
        }
        DrainState::More
    });
    match left[0] {
        DrainState::More => left,
        _ => [store_unwritten(attachment, is_kept).unwrap_or(left[0]), left[1]],
    }
}

/// Stores what a process has not written to its pipe, which was read.
fn store_unwritten(attachment: &Attachment, is_kept: bool) -> Option<DrainState> {
    let (unwritten, (_, spool)) = attachment.unwritten.as_ref().zip(attachment.outputs[0].as_ref())?;
    match if is_kept { unwritten.take(|| true) } else { unwritten.rest() } {
        Ok(bytes) if bytes.is_empty() => {}
        Ok(bytes) => drop(store(&attachment.run, 0, spool, &bytes)),
        // The collector tries again.
        Err(_) => return Some(DrainState::More),
    }
    None
}
