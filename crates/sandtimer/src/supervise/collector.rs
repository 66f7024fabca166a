//! The thread that moves bytes and writes Outcomes.
//!
//! It drains the output of runs into spools (all that `at_once` has not drained), feeds stdin, and
//! inspects in /proc, shortly before a limit ends a run, what the command waits for. When a run is
//! dead, as the enforcer reports, it waits a bounded time for the pipes to end and for the
//! remaining displays of a cell (`late_displays`), makes the Outcome and disposes of the slot. It
//! may be late or busy: no deadline depends on it.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::queue::Receiver;

use super::commands::EnforcerHandle;
use super::deliveries::{
    Attachment, CollectorHandle, ReleaseHook, SlotDisposition, StartWatchdog, ToCollector, WAKE,
};
use super::offer::Offer;
use super::run::SharedRun;
use super::run_facts::{Cause, RunFacts};
use super::run_inspection::{measure, note, note_stacks};
use super::streams::{CollectorStreams, REPORTS, ReadBuffer, STDIN};
use super::{late_displays, notices, sentence};
use crate::model::{Enforcer, Warning};

/// After death, how long the pipes may take to end, which only something outside the sandbox could
/// hold open, and how long receiving the rest of what the job has displayed may take.
const DRAIN_LIMIT: u64 = 200_000_000;
/// Without an enforcer: how long the death of all runs together is waited for.
const DEATH_LIMIT: u64 = 250_000_000;
/// How often messages are received where the epoll fails.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Messages that are handled before output is read again.
const MAX_MESSAGES_AT_A_TIME: u32 = 64;
/// Ended runs of one live sandbox whose output processes still hold open. Each costs descriptors of
/// this process.
const MAX_LATE: usize = 64;
/// Streams of ended runs have no row; they are counted from here.
const FIRST_LATE_KEY: usize = sandtimer_os::wire::ROWS;

/// The collector's state; lives on its thread.
pub(crate) struct Collector {
    messages: Receiver<ToCollector>,
    /// Also for threads that work for the collector.
    own_handle: CollectorHandle,
    streams: HashMap<usize, CollectorStreams>,
    /// By row, until there is something to do: most of a short job's are taken back.
    pending: HashMap<usize, Arc<Offer<Box<Attachment>>>>,
    enforcer: Option<EnforcerHandle>,
    has_no_enforcer: bool,
    /// Rows of runs that no enforcer ends any more.
    to_end: Vec<usize>,
    start_watchdog: StartWatchdog,
    buffer: ReadBuffer,
    is_stopping: bool,
    /// How many runs have ended before their streams.
    late: usize,
}

impl Collector {
    /// `first_nodes`: how many nodes of messages are allocated for the enforcer in advance.
    pub fn new(
        release: ReleaseHook,
        start_watchdog: StartWatchdog,
        first_nodes: usize,
    ) -> io::Result<(Self, CollectorHandle)> {
        let (own_handle, messages) = CollectorHandle::new(release, first_nodes)?;
        let collector = Collector {
            messages,
            own_handle: own_handle.clone(),
            streams: HashMap::new(),
            pending: HashMap::new(),
            enforcer: None,
            has_no_enforcer: false,
            to_end: Vec::new(),
            start_watchdog,
            buffer: ReadBuffer::default(),
            is_stopping: false,
            late: 0,
        };
        Ok((collector, own_handle))
    }

    /// Runs until shut down and without runs. Limits that only the bytes show are sent to
    /// `enforcer`.
    pub fn serve(mut self, enforcer: EnforcerHandle) {
        self.enforcer = Some(enforcer);
        let mut events = Vec::with_capacity(256);
        while !(self.is_stopping && self.streams.values().all(|streams| streams.is_abandoned)) {
            // A panic, whose message is on stderr, concerns one run: all others continue.
            let _ = catch_unwind(AssertUnwindSafe(|| self.work(&mut events)));
        }
    }

    /// Waits for something to do, and does it.
    fn work(&mut self, events: &mut Vec<epoll::Event>) {
        events.clear();
        let timeout = self.next_drain_end();
        match epoll::wait(&self.own_handle.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // What is waited for must come all the same. Only the program itself can have closed
            // the descriptor.
            Err(_) => std::thread::park_timeout(POLL_INTERVAL),
        }
        // First the messages: an event may be of a run that one of them brings.
        self.handle_messages();
        if let Some(enforcer) = &self.enforcer {
            enforcer.free_received_nodes();
        }
        for event in &*events {
            match event.data.u64() {
                WAKE => {
                    self.own_handle.clear_wake();
                    self.handle_messages();
                }
                token => self.handle_stream((token >> 2) as usize, token & 3),
            }
        }
        self.end_without_enforcer();
        self.take_memory_output();
        self.finish_drained();
    }

    /// Takes what processes have written to memory and not to their pipes, where that is due.
    fn take_memory_output(&mut self) {
        if self.streams.values().all(|streams| streams.unwritten_check_at == u64::MAX) {
            return;
        }
        let now = monotonic_nanoseconds();
        let is_due =
            |streams: &&mut CollectorStreams| streams.unwritten_check_at <= now && streams.dead.is_none();
        for streams in self.streams.values_mut().filter(is_due) {
            streams.take_unwritten(self.enforcer.as_ref());
        }
    }

    fn next_drain_end(&self) -> Option<Timespec> {
        let due = |stream: &CollectorStreams| match stream.dead.is_some() {
            true => stream.settles_by(),
            false => stream.unwritten_check_at,
        };
        let end = self.streams.values().map(due).filter(|due| *due < u64::MAX).min()?;
        let left = end.saturating_sub(monotonic_nanoseconds());
        Some(Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 })
    }

    fn handle_messages(&mut self) {
        for count in 0.. {
            if count == MAX_MESSAGES_AT_A_TIME {
                // Output comes in between.
                self.own_handle.wake();
                return;
            }
            let Some(message) = self.messages.try_receive() else { return };
            self.handle_message(message);
        }
    }

    fn handle_message(&mut self, message: ToCollector) {
        match message {
            ToCollector::Attach(slot_index, offer) => self.attach(slot_index, offer),
            ToCollector::TakeUp(slot_index) => self.take_up(slot_index),
            ToCollector::Late(attachment) => self.keep_late(CollectorStreams::of_ended_run(*attachment)),
            ToCollector::Inspect(run) => {
                run.note_inspection(note(&run, monotonic_nanoseconds()));
                note_stacks(run);
            }
            ToCollector::Measure(run) => {
                measure(&run, monotonic_nanoseconds());
                run.is_to_be_measured.store(false, Ordering::Relaxed);
            }
            ToCollector::Warn(run, warning) => self.warn(&run, warning),
            ToCollector::Notify(run, events) => run.waiting.note(events),
            ToCollector::StartWatchdog => {
                if let Some(enforcer) = &self.enforcer {
                    (self.start_watchdog)(enforcer.clone());
                }
            }
            ToCollector::EnforcerEnded => {
                self.has_no_enforcer = true;
                self.take_up_all();
                self.to_end.extend(self.streams.keys().copied());
            }
            ToCollector::Reap(run) => {
                if let Some(job) = &run.job {
                    process::reap(job.pidfd.as_fd());
                }
            }
            ToCollector::KillEach(run) => {
                // Cleared before the kill: a request that arrives during this pass causes another
                // one.
                run.is_killed_one_by_one.store(false, Ordering::Relaxed);
                run.slot.kill_each();
            }
            ToCollector::Overdue { run, facts } => self.overdue(&run, &facts),
            ToCollector::Dead { run, facts } => self.dead(&run, facts),
            ToCollector::Ended(mut ending) => {
                if let Some(ToCollector::Dead { run, facts }) = ending.report() {
                    self.dead(&run, facts);
                }
            }
            ToCollector::Discard(discarded) => drop(discarded),
            ToCollector::DisplaysReceived(run) => {
                if let Some(streams) = streams_of(&mut self.streams, &run) {
                    streams.displays_until = 0;
                }
            }
            ToCollector::Shutdown => {
                self.is_stopping = true;
                self.take_up_all();
            }
        }
    }

    fn attach(&mut self, slot_index: usize, offer: Arc<Offer<Box<Attachment>>>) {
        self.pending.insert(slot_index, offer);
        if self.is_stopping || self.has_no_enforcer {
            self.take_up(slot_index);
        }
        if self.has_no_enforcer {
            self.to_end.push(slot_index);
        }
    }

    /// Takes up the streams in a row that were only offered so far.
    fn take_up(&mut self, slot_index: usize) {
        if let Some(attachment) = self.pending.remove(&slot_index).and_then(|offer| offer.take()) {
            let streams = CollectorStreams::of_live_run(*attachment, &self.own_handle.epoll);
            self.streams.insert(streams.run.slot_index, streams);
        }
    }

    fn take_up_all(&mut self) {
        let slot_indexes: Vec<usize> = self.pending.keys().copied().collect();
        slot_indexes.into_iter().for_each(|slot_index| self.take_up(slot_index));
    }

    fn warn(&mut self, run: &Arc<SharedRun>, warning: Warning) {
        self.take_up(run.slot_index);
        let channel = streams_of(&mut self.streams, run).and_then(|streams| streams.notices.as_ref());
        notices::give(run, warning, channel, monotonic_nanoseconds());
    }

    /// Publishes the Outcome of a run whose death is not proven in time; it is not the last one
    /// unless the run counts as unkillable.
    fn overdue(&mut self, run: &Arc<SharedRun>, facts: &RunFacts) {
        self.take_up(run.slot_index);
        for output in 0..2 {
            self.handle_stream(run.slot_index, output);
        }
        if let Some(streams) = streams_of(&mut self.streams, run) {
            streams.take_unwritten(self.enforcer.as_ref());
        }
        if facts.overdue == Some(true) {
            self.publish_unkillable(run, facts);
            return;
        }
        let streams = streams_of(&mut self.streams, run);
        let spools = streams.map(|streams| streams.spools.clone()).unwrap_or_default();
        run.waiting.outcome(sentence::outcome(run, facts, &spools), false);
    }

    /// Publishes the Outcome of a run that counts as unkillable, and puts its slot into quarantine.
    /// If the kernel lets the run die after all, another Outcome follows.
    fn publish_unkillable(&mut self, run: &Arc<SharedRun>, facts: &RunFacts) {
        let streams = streams_of(&mut self.streams, run);
        let spools = streams.map(|streams| {
            streams.is_abandoned = true;
            streams.spools.clone()
        });
        run.waiting.outcome(sentence::outcome(run, facts, &spools.unwrap_or_default()), true);
        self.own_handle.release.call(run, SlotDisposition::Quarantined);
    }

    /// Begins to make the Outcome of a dead run.
    fn dead(&mut self, run: &Arc<SharedRun>, facts: Box<RunFacts>) {
        self.take_up(run.slot_index);
        let now = monotonic_nanoseconds();
        let Some(streams) = streams_of(&mut self.streams, run) else { return };
        // In a live sandbox they stay open. What the run itself has written is there.
        streams.drain_until = if facts.stands { now } else { now + DRAIN_LIMIT };
        let handle = self.own_handle.clone();
        if late_displays::receive_rest(run, move |run| handle.send(ToCollector::DisplaysReceived(run))) {
            streams.displays_until = now + DRAIN_LIMIT;
        }
        streams.dead = Some(facts);
        streams.close_inputs(&mut self.buffer, &self.own_handle.epoll);
        for output in 0..2 {
            self.handle_stream(run.slot_index, output);
        }
    }

    /// Ends the runs that have no enforcer any more. The watchdog has killed them or is about to;
    /// no other thread reports that. Their deaths have one bound together: with many runs, other
    /// work of this thread would wait for many of them.
    fn end_without_enforcer(&mut self) {
        for run in self.to_end.iter().filter_map(|slot_index| self.to_be_ended(*slot_index)) {
            run.cell.seal();
            if !run.slot.kill_all() {
                run.end_init();
            }
        }
        let killed_at = monotonic_nanoseconds();
        // Each row leaves the list by itself: whatever becomes of its run, the others are ended.
        while let Some(slot_index) = self.to_end.pop() {
            let Some(run) = self.to_be_ended(slot_index) else { continue };
            let left = (killed_at + DEATH_LIMIT).saturating_sub(monotonic_nanoseconds());
            let is_dead = process::wait_readable(run.pidfd.as_fd(), left / 1_000_000);
            let ended = catch_unwind(AssertUnwindSafe(|| self.end_killed(&run, killed_at, is_dead)));
            if ended.is_err()
                && let Some(streams) = streams_of(&mut self.streams, &run)
            {
                // There is no Outcome, which stderr reports; the end of the engine does not wait
                // for one.
                streams.is_abandoned = true;
            }
        }
    }

    /// The run in a row, if its Outcome is still to be made. Where its answer was taken, the thread
    /// that has taken it ends the run.
    fn to_be_ended(&self, slot_index: usize) -> Option<Arc<SharedRun>> {
        let streams = self.streams.get(&slot_index).filter(|streams| streams.is_waited_for())?;
        (!streams.run.waiting.has_finished()).then(|| streams.run.clone())
    }

    /// Makes the Outcome of a run that was killed without an enforcer.
    fn end_killed(&mut self, run: &Arc<SharedRun>, killed_at: u64, is_dead: bool) {
        let reason = "the engine's enforcer failed (the log on stderr has the reason), and every run was killed with it";
        let started_at = Some(run.started_at.load(Ordering::Acquire)).filter(|at| *at > 0);
        let now = monotonic_nanoseconds();
        let facts = Box::new(RunFacts {
            started_at,
            cause: Some(Cause::Infrastructure(reason.to_owned())),
            enforced_by: Some(Enforcer::Watchdog),
            verdict_at: killed_at,
            due_at: killed_at,
            killed_at: Some(killed_at),
            dead_at: is_dead.then_some(now),
            overdue: (!is_dead).then_some(true),
            ..RunFacts::default()
        });
        if !is_dead {
            self.publish_unkillable(run, &facts);
        } else if let Some(streams) = streams_of(&mut self.streams, run) {
            (streams.dead, streams.drain_until) = (Some(facts), now);
        }
    }

    /// Something can be read from or written to a stream. Bounded work each time, so that no run
    /// starves another.
    fn handle_stream(&mut self, slot_index: usize, kind: u64) {
        self.take_up(slot_index);
        let Some(streams) = self.streams.get_mut(&slot_index) else { return };
        let epoll = &self.own_handle.epoll;
        match kind {
            STDIN => streams.feed(epoll),
            REPORTS => streams.read_reports(&mut self.buffer, epoll),
            output => {
                streams.read_output(output as usize, &mut self.buffer, epoll, self.enforcer.as_ref());
                if slot_index > FIRST_LATE_KEY && streams.is_drained() {
                    self.streams.remove(&slot_index);
                }
            }
        }
    }

    fn finish_drained(&mut self) {
        if self.streams.values().all(|streams| streams.dead.is_none()) {
            return;
        }
        let now = monotonic_nanoseconds();
        let done: Vec<usize> = self
            .streams
            .iter()
            .filter(|(_, streams)| streams.dead.is_some() && now >= streams.settles_by())
            .map(|(slot_index, _)| *slot_index)
            .collect();
        for slot_index in done {
            let Some(mut streams) = self.streams.remove(&slot_index) else { continue };
            streams.take_unwritten(None);
            streams.forget_unwritten();
            let Some(facts) = streams.dead.take() else { continue };
            if !facts.stands {
                streams.close_outputs(&self.own_handle.epoll);
            }
            let outcome = sentence::outcome(&streams.run, &facts, &streams.spools);
            streams.run.waiting.outcome(outcome, true);
            let was_quarantined = facts.overdue == Some(true);
            let disposition = match facts.vacant {
                true => SlotDisposition::Vacant,
                false => SlotDisposition::Free { was_quarantined },
            };
            self.own_handle.release.call(&streams.run, disposition);
            if facts.stands {
                self.keep_late(streams);
            }
        }
    }

    /// Continues to read what a run's own processes write after its end, so that they do not block.
    fn keep_late(&mut self, mut streams: CollectorStreams) {
        if streams.is_drained() {
            return;
        }
        self.late += 1;
        let key = FIRST_LATE_KEY + self.late;
        streams.watch_outputs(key, &self.own_handle.epoll);
        streams.is_abandoned = true;
        let slot_index = streams.run.slot_index;
        self.streams.insert(key, streams);
        let late = self
            .streams
            .iter()
            .filter(|(key, late)| **key > FIRST_LATE_KEY && late.run.slot_index == slot_index);
        let keys: Vec<usize> = late.map(|(key, _)| *key).collect();
        if keys.len() > MAX_LATE
            && let Some(mut oldest) = keys.into_iter().min().and_then(|key| self.streams.remove(&key))
        {
            // A process that still writes there gets SIGPIPE.
            oldest.close_outputs(&self.own_handle.epoll);
        }
    }
}

/// The streams of this run: by now its row may be another's.
fn streams_of<'a>(
    streams: &'a mut HashMap<usize, CollectorStreams>,
    run: &Arc<SharedRun>,
) -> Option<&'a mut CollectorStreams> {
    streams.get_mut(&run.slot_index).filter(|streams| Arc::ptr_eq(&streams.run, run))
}
