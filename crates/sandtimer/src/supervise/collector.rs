//! The thread that moves bytes and writes outcomes.
//!
//! It drains the output of runs into spools (all that `at_once` has not), feeds stdin, and looks at /proc, shortly before a limit
//! ends a run, for what the command waits for. Once the enforcer says that a run is dead, it waits a bounded time for the pipes to
//! end and for what a cell has displayed to be heard (`words`), puts the Outcome together and gives the slot back. It may be late
//! or busy: no deadline depends on it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::queue::{Receiver, Sender, SpareNodes, queue_with};
use sandtimer_os::watchdog::Watchdog;

use super::ending::Ending;
use super::notices;
use super::offer::Offer;
use super::orders::{Command, EnforcerHandle, MOST_TAKEN_BACK};
use super::output::Spool;
use super::reports::Reports;
use super::run::{Cause, Facts, Running};
use super::seen::{measure, note, note_stacks};
use super::waiting::OwnerEvent;
use super::{sentence, words};
use crate::model::{Enforcer, LimitKind, Warning};

/// A message to the collector.
#[derive(Debug)]
pub(crate) enum ToCollector {
    /// The streams of a new run in this row, unless they have been taken back by then.
    Attach(usize, Arc<Offer<Box<Attachment>>>),
    /// There is something to be done for the run in this row.
    See(usize),
    /// Streams of a run that has ended, which something in its live sandbox may write to.
    Late(Box<Attachment>),
    /// A limit is near: find out what the command waits for.
    Look(Arc<Running>),
    /// It is quiet: find out whether it uses anything.
    Measure(Arc<Running>),
    /// Tell the run itself of a limit that is near.
    Warn(Arc<Running>, Warning),
    /// Tell the run's owner of these, and wake the tasks that wait for it.
    Notify(Arc<Running>, Vec<OwnerEvent>),
    /// Have a watchdog started for the enforcer.
    StartWatchdog,
    /// There is no enforcer any more: nothing ends the runs, and they end here.
    EnforcerEnded,
    /// The job's process is dead.
    Reap(Arc<Running>),
    /// Its death was not seen within the bound.
    Overdue {
        run: Arc<Running>,
        facts: Box<Facts>,
    },
    /// The run is dead.
    Dead {
        run: Arc<Running>,
        facts: Box<Facts>,
    },
    /// The same, with all that the enforcer had of it.
    Ended(Box<Ending>),
    /// The enforcer does not need this any more.
    Discard(Discarded),
    /// What was left of its messages when it was dead has been received.
    Heard(Arc<Running>),
    Shutdown,
}

/// What the enforcer has received or owned and the collector frees, because the allocator has locks.
#[derive(Debug)]
#[allow(dead_code)] // only dropped
pub(crate) enum Discarded {
    Offer(Arc<Offer<Box<Ending>>>),
    Ending(Box<Ending>),
    Text(String),
    Watchdog(Arc<Watchdog>),
}

/// Nodes of messages that are kept for the enforcer, and how many of them there are at first.
const MAX_NODES: usize = 4096;
const FIRST_NODES: usize = 512;

/// A stream's spool, shared with those who read it by cursor.
pub(crate) type SharedSpool = Arc<Mutex<Spool>>;

/// The engine's ends of a run's streams.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub run: Arc<Running>,
    /// Read ends with the spools they go to; `None` where the owner reads the stream itself.
    pub outputs: [Option<(Arc<OwnedFd>, SharedSpool)>; 2],
    /// What is still to be written to stdin.
    pub stdin: Option<(OwnedFd, Vec<u8>)>,
    /// The slave of its terminal, which would hang up whenever no process of the run has it open.
    pub terminal: Option<OwnedFd>,
    /// The read end of the progress channel.
    pub reports: Option<OwnedFd>,
    /// The write end of the notice channel.
    pub notices: Option<OwnedFd>,
}

/// After death, how long the pipes may take to end, which only something outside the sandbox could hold open, and what is left of
/// its words to be heard.
const DRAIN_LIMIT: u64 = 200_000_000;
/// Without an enforcer: how long the death of all runs together is waited for.
const DEATH_LIMIT: u64 = 250_000_000;
/// How often messages are looked for where the epoll fails.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Messages that are taken before output is looked at again.
const MOST_AT_A_TIME: u32 = 64;
const WAKE: u64 = u64::MAX;
const STDIN: u64 = 2;
const REPORTS: u64 = 3;
/// Runs of one live sandbox that are over and whose output processes still hold open. Each costs descriptors of this process.
const MAX_LATE: usize = 64;
/// Streams of runs that are over have no row; they are counted from here.
const LATE: usize = sandtimer_os::wire::ROWS;

/// A run's streams while it lives.
struct Streams {
    run: Arc<Running>,
    outputs: [Option<Arc<OwnedFd>>; 2],
    spools: [Option<SharedSpool>; 2],
    stdin: Option<(OwnedFd, Vec<u8>, usize)>,
    /// Held until the run is dead.
    terminal: Option<OwnedFd>,
    reports: Option<Reports>,
    notices: Option<OwnedFd>,
    dead: Option<Box<Facts>>,
    drain_until: u64,
    /// Until when it is waited for what is left of its words; 0 where nothing is.
    heard_until: u64,
    limit_reported: bool,
    /// Nothing waits for it: its run counts as unkillable, or has ended and left something running in a live sandbox.
    given_up: bool,
}

/// What becomes of a run's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Something in it cannot be killed now.
    Quarantined,
    /// Init alone is alive in it, and nothing is left there of the run.
    Vacant,
    /// Everything in it is dead. With whether it was in quarantine before.
    Free { quarantined: bool },
}

type Recycling = dyn Fn(&Arc<Running>, Fate) + Send + Sync;

/// Has another thread start a watchdog and send it to the enforcer as [`Command::Adopt`].
pub(crate) type StartWatchdog = Box<dyn Fn(EnforcerHandle) + Send>;

/// Disposes of every slot, after the run's Outcome is published.
#[derive(Clone)]
pub(crate) struct Recycle(Arc<Recycling>);

impl Recycle {
    pub fn new(work: impl Fn(&Arc<Running>, Fate) + Send + Sync + 'static) -> Self {
        Recycle(Arc::new(work))
    }

    pub fn tell(&self, run: &Arc<Running>, fate: Fate) {
        (self.0)(run, fate);
    }
}

impl std::fmt::Debug for Recycle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Recycle")
    }
}

/// The collector's state; lives on its thread.
pub(crate) struct Collector {
    epoll: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    messages: Receiver<ToCollector>,
    /// For threads that work for it.
    sender: Sender<ToCollector>,
    streams: HashMap<usize, Streams>,
    /// By row, until there is something to do: most of a short job's are taken back.
    offered: HashMap<usize, Arc<Offer<Box<Attachment>>>>,
    enforcer: Option<EnforcerHandle>,
    has_no_enforcer: bool,
    /// Rows of runs that no enforcer ends any more.
    to_end: Vec<usize>,
    start_watchdog: StartWatchdog,
    recycle: Recycle,
    buffer: Vec<u8>,
    stopping: bool,
    /// How many runs were over before their streams were.
    late: usize,
}

/// Sends messages to the collector.
#[derive(Debug, Clone)]
pub(crate) struct CollectorHandle {
    pub sender: Sender<ToCollector>,
    /// Nodes of messages, for the enforcer.
    pub nodes: SpareNodes<ToCollector>,
    pub wake: Arc<OwnedFd>,
    epoll: Arc<OwnedFd>,
    pub recycle: Recycle,
    /// Streams that were taken back, whose messages are in the queue.
    taken_back: Arc<AtomicU32>,
}

impl CollectorHandle {
    pub fn send(&self, message: ToCollector) {
        // The collector ends only after the engine's last message.
        let _ = self.sender.send(message);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Has it handle a run's streams. It is woken once there is something to do; until it has taken them up, the calling
    /// thread may take them back.
    pub fn attach(&self, attachment: Attachment) -> Arc<Offer<Box<Attachment>>> {
        let row = attachment.run.row;
        let outputs = [0, 1].map(|index| attachment.outputs[index].as_ref().map(|(fd, _)| fd.clone()));
        // Once for each run.
        let _ = attachment.run.outputs.set(outputs.each_ref().map(|fd| fd.as_ref().map(Arc::downgrade)));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mut ready = attachment.stdin.is_some() || attachment.reports.is_some();
        for (index, fd) in outputs.iter().enumerate() {
            // Edge-triggered: an event of a run that the collector does not know yet must not keep it busy.
            ready |= fd
                .as_ref()
                .is_some_and(|fd| epoll::add(&self.epoll, fd, token(row, index as u64), flags).is_err());
        }
        let offer = Offer::new(Box::new(attachment));
        let _ = self.sender.send(ToCollector::Attach(row, offer.clone()));
        // An event from before the message was passed over.
        if ready || process::any_readable(outputs.iter().flatten().map(|fd| fd.as_fd())) {
            self.send(ToCollector::See(row));
        }
        offer
    }

    /// Offers it streams that it does not watch: it takes them up when their run is dead.
    pub fn offer(&self, attachment: Box<Attachment>) -> Arc<Offer<Box<Attachment>>> {
        let row = attachment.run.row;
        let offer = Offer::new(attachment);
        let _ = self.sender.send(ToCollector::Attach(row, offer.clone()));
        offer
    }

    /// Stops watching streams that were taken back.
    pub fn forget(&self, attachment: &Attachment) {
        for (fd, _) in attachment.outputs.iter().flatten() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        if self.taken_back.fetch_add(1, Ordering::Relaxed) % MOST_TAKEN_BACK == MOST_TAKEN_BACK - 1 {
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

fn token(row: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64((row as u64) << 2 | kind)
}

impl Collector {
    pub fn new(recycle: Recycle, start_watchdog: StartWatchdog) -> io::Result<(Self, CollectorHandle)> {
        let nodes = SpareNodes::at_most(MAX_NODES).with_reserve(FIRST_NODES);
        let (sender, messages) = queue_with(nodes.clone());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let collector = Collector {
            epoll: epoll.clone(),
            wake: wake.clone(),
            messages,
            sender: sender.clone(),
            streams: HashMap::new(),
            offered: HashMap::new(),
            enforcer: None,
            has_no_enforcer: false,
            to_end: Vec::new(),
            start_watchdog,
            recycle: recycle.clone(),
            buffer: vec![0; 64 * 1024],
            stopping: false,
            late: 0,
        };
        Ok((collector, CollectorHandle { sender, nodes, wake, epoll, recycle, taken_back: Arc::default() }))
    }

    /// Runs until shut down and without runs. Limits that only the bytes show are sent to `enforcer`.
    pub fn serve(mut self, enforcer: EnforcerHandle) {
        self.enforcer = Some(enforcer);
        let mut events = Vec::with_capacity(256);
        while !(self.stopping && self.streams.values().all(|streams| streams.given_up)) {
            // A panic, whose message is on stderr, concerns one run: all others continue.
            let _ = catch_unwind(AssertUnwindSafe(|| self.work(&mut events)));
        }
    }

    /// Waits for something to do, and does it.
    fn work(&mut self, events: &mut Vec<epoll::Event>) {
        events.clear();
        let timeout = self.next_drain_end();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // What is waited for must come all the same. Only the program itself can have closed the descriptor.
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
                    let mut count = [0u8; 8];
                    let _ = rustix::io::read(&*self.wake, &mut count);
                    self.handle_messages();
                }
                token => self.stream((token >> 2) as usize, token & 3),
            }
        }
        self.end_without_enforcer();
        self.finish_drained();
    }

    fn next_drain_end(&self) -> Option<Timespec> {
        let end =
            self.streams.values().filter(|stream| stream.dead.is_some()).map(Streams::settles_by).min()?;
        let left = end.saturating_sub(monotonic_nanoseconds());
        Some(Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 })
    }

    fn handle_messages(&mut self) {
        for count in 0.. {
            if count == MOST_AT_A_TIME {
                // Output comes in between.
                let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
                return;
            }
            let Some(message) = self.messages.try_receive() else { return };
            match message {
                ToCollector::Attach(row, offer) => {
                    self.offered.insert(row, offer);
                    if self.stopping || self.has_no_enforcer {
                        self.see(row);
                    }
                    if self.has_no_enforcer {
                        self.to_end.push(row);
                    }
                }
                ToCollector::See(row) => self.see(row),
                ToCollector::Late(attachment) => self.attach_late(*attachment),
                ToCollector::Look(run) => {
                    run.note_look(note(&run, monotonic_nanoseconds()));
                    note_stacks(run);
                }
                ToCollector::Measure(run) => {
                    measure(&run, monotonic_nanoseconds());
                    run.is_to_be_measured.store(false, Ordering::Relaxed);
                }
                ToCollector::Warn(run, warning) => {
                    self.see(run.row);
                    let channel =
                        streams_of(&mut self.streams, &run).and_then(|streams| streams.notices.as_ref());
                    notices::give(&run, warning, channel, monotonic_nanoseconds());
                }
                ToCollector::Notify(run, events) => run.waiting.note(events),
                ToCollector::StartWatchdog => {
                    if let Some(enforcer) = &self.enforcer {
                        (self.start_watchdog)(enforcer.clone());
                    }
                }
                ToCollector::EnforcerEnded => {
                    self.has_no_enforcer = true;
                    let offered: Vec<usize> = self.offered.keys().copied().collect();
                    offered.into_iter().for_each(|row| self.see(row));
                    self.to_end.extend(self.streams.keys().copied());
                }
                ToCollector::Reap(run) => {
                    if let Some(job) = &run.job {
                        sandtimer_os::process::reap(job.pidfd.as_fd());
                    }
                }
                ToCollector::Overdue { run, facts } => {
                    self.see(run.row);
                    let streams = streams_of(&mut self.streams, &run);
                    let spools = streams.map(|streams| streams.spools.clone()).unwrap_or_default();
                    // Unkillable is a last word too, until the kernel lets it die after all.
                    let last = facts.overdue == Some(true);
                    run.waiting.outcome(sentence::outcome(&run, &facts, &spools), last);
                    if facts.overdue == Some(true) {
                        if let Some(streams) = streams_of(&mut self.streams, &run) {
                            streams.given_up = true;
                        }
                        self.recycle.tell(&run, Fate::Quarantined);
                    }
                }
                ToCollector::Dead { run, facts } => self.dead(&run, facts),
                ToCollector::Ended(mut ending) => {
                    if let Some(ToCollector::Dead { run, facts }) = ending.report() {
                        self.dead(&run, facts);
                    }
                }
                ToCollector::Discard(discarded) => drop(discarded),
                ToCollector::Heard(run) => {
                    if let Some(streams) = streams_of(&mut self.streams, &run) {
                        streams.heard_until = 0;
                    }
                }
                ToCollector::Shutdown => {
                    self.stopping = true;
                    let rows: Vec<usize> = self.offered.keys().copied().collect();
                    rows.into_iter().for_each(|row| self.see(row));
                }
            }
        }
    }

    /// Begins to make the Outcome of a dead run.
    fn dead(&mut self, run: &Arc<Running>, facts: Box<Facts>) {
        self.see(run.row);
        let now = monotonic_nanoseconds();
        if let Some(streams) = streams_of(&mut self.streams, run) {
            // In a live sandbox they stay open. What the run itself has written is there.
            streams.drain_until = if facts.stands { now } else { now + DRAIN_LIMIT };
            let (sender, wake) = (self.sender.clone(), self.wake.clone());
            let heard = move |run| {
                let _ = sender.send(ToCollector::Heard(run));
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            };
            if words::hear_rest(run, heard) {
                streams.heard_until = now + DRAIN_LIMIT;
            }
            streams.dead = Some(facts);
            // Nothing reads it any more.
            streams.close_stdin(&self.epoll);
            streams.terminal = None;
            streams.hear_reports(&mut self.buffer, &self.epoll);
            streams.close_reports(&self.epoll);
            for output in 0..2 {
                self.stream(run.row, output);
            }
        }
    }

    /// Takes up the streams in a row that were only offered so far.
    fn see(&mut self, row: usize) {
        if let Some(attachment) = self.offered.remove(&row).and_then(|offer| offer.take()) {
            self.attach(*attachment);
        }
    }

    fn attach(&mut self, attachment: Attachment) {
        let Attachment { run, outputs, stdin, terminal, reports, notices } = attachment;
        let row = run.row;
        let mut streams = Streams { terminal, notices, ..Streams::of(run) };
        for (index, output) in outputs.into_iter().enumerate() {
            let Some((fd, spool)) = output else { continue };
            // What came before now is seen now. A stream that cannot be watched is still read when the run is dead.
            let _ = epoll::modify(&self.epoll, &fd, token(row, index as u64), epoll::EventFlags::IN);
            streams.outputs[index] = Some(fd);
            streams.spools[index] = Some(spool);
        }
        if let Some((fd, bytes)) = stdin {
            let _ = epoll::add(&self.epoll, &fd, token(row, STDIN), epoll::EventFlags::OUT);
            streams.stdin = Some((fd, bytes, 0));
        }
        if let Some(fd) = reports {
            let _ = epoll::add(&self.epoll, &fd, token(row, REPORTS), epoll::EventFlags::IN);
            streams.reports = Some(Reports::new(fd));
        }
        self.streams.insert(row, streams);
    }

    /// Ends the runs that have no enforcer any more. The watchdog has killed them or is about to; no other thread reports that. Their
    /// deaths have one bound together: with many runs, other work of this thread would wait for many of them.
    fn end_without_enforcer(&mut self) {
        let rows = std::mem::take(&mut self.to_end);
        let runs: Vec<Arc<Running>> = rows.into_iter().filter_map(|row| self.to_be_ended(row)).collect();
        for run in &runs {
            run.cell.seal();
            if !run.slot.kill_all() {
                let _ = process::kill(run.pidfd.as_fd());
            }
        }
        let killed_at = monotonic_nanoseconds();
        for run in runs {
            let left = (killed_at + DEATH_LIMIT).saturating_sub(monotonic_nanoseconds());
            let is_dead = process::wait_readable(run.pidfd.as_fd(), left / 1_000_000);
            self.end_killed(&run, killed_at, is_dead);
        }
    }

    /// The run in a row, if its Outcome is still to be made. Where its answer was taken, the thread that has taken it ends the run.
    fn to_be_ended(&self, row: usize) -> Option<Arc<Running>> {
        let streams = self.streams.get(&row).filter(|streams| streams.is_waited_for())?;
        (!streams.run.waiting.is_over()).then(|| streams.run.clone())
    }

    /// Makes the Outcome of a run that was killed without an enforcer.
    fn end_killed(&mut self, run: &Arc<Running>, killed_at: u64, is_dead: bool) {
        let Some(streams) = streams_of(&mut self.streams, run) else { return };
        let reason = "the engine's enforcer failed, as stderr says, and every run was killed with it";
        let started_at = Some(run.started_at.load(Ordering::Acquire)).filter(|at| *at > 0);
        let now = monotonic_nanoseconds();
        let facts = Box::new(Facts {
            started_at,
            cause: Some(Cause::Infrastructure(reason.to_owned())),
            enforced_by: Some(Enforcer::Watchdog),
            verdict_at: killed_at,
            due_at: killed_at,
            killed_at: Some(killed_at),
            dead_at: is_dead.then_some(now),
            overdue: (!is_dead).then_some(true),
            ..Facts::default()
        });
        if is_dead {
            (streams.dead, streams.drain_until) = (Some(facts), now);
            return;
        }
        streams.given_up = true;
        run.waiting.outcome(sentence::outcome(run, &facts, &streams.spools), true);
        self.recycle.tell(run, Fate::Quarantined);
    }

    /// Takes up the output of a run that has ended, which is not watched any more.
    fn attach_late(&mut self, attachment: Attachment) {
        let mut streams = Streams::of(attachment.run);
        for (index, output) in attachment.outputs.into_iter().enumerate() {
            (streams.outputs[index], streams.spools[index]) = output.unzip();
        }
        self.keep_late(streams);
    }

    /// Something can be read from or written to a stream. Bounded work each time, so that no run starves another.
    fn stream(&mut self, row: usize, kind: u64) {
        self.see(row);
        let Some(streams) = self.streams.get_mut(&row) else { return };
        if kind == STDIN {
            streams.feed(&self.epoll);
            return;
        }
        if kind == REPORTS {
            streams.hear_reports(&mut self.buffer, &self.epoll);
            return;
        }
        let rounds = if streams.dead.is_some() { 64 } else { 8 };
        for _ in 0..rounds {
            let Some(fd) = &streams.outputs[kind as usize] else { return };
            match rustix::io::read(fd, &mut self.buffer[..]) {
                Ok(0) => {
                    streams.close_output(kind as usize, &self.epoll);
                    if row > LATE && streams.outputs.iter().all(Option::is_none) {
                        self.streams.remove(&row);
                    }
                    return;
                }
                Ok(length) => streams.store(kind as usize, &self.buffer[..length], self.enforcer.as_ref()),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    streams.close_output(kind as usize, &self.epoll);
                    return;
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
            .map(|(row, _)| *row)
            .collect();
        for row in done {
            let Some(mut streams) = self.streams.remove(&row) else { continue };
            let facts = streams.dead.take();
            let kept = facts.as_ref().is_some_and(|facts| facts.stands);
            for output in 0..2 {
                if !kept {
                    streams.close_output(output, &self.epoll);
                }
            }
            if let Some(facts) = facts {
                let outcome = sentence::outcome(&streams.run, &facts, &streams.spools);
                streams.run.waiting.outcome(outcome, true);
                let quarantined = facts.overdue == Some(true);
                let fate = if facts.vacant { Fate::Vacant } else { Fate::Free { quarantined } };
                self.recycle.tell(&streams.run, fate);
            }
            if kept {
                self.keep_late(streams);
            }
        }
    }

    /// Continues to read what a run's own processes write after its end, so that they do not block.
    fn keep_late(&mut self, mut streams: Streams) {
        if streams.outputs.iter().all(Option::is_none) {
            return;
        }
        self.late += 1;
        let key = LATE + self.late;
        for (index, fd) in streams.outputs.iter().enumerate() {
            if let Some(fd) = fd {
                let (token, flags) = (token(key, index as u64), epoll::EventFlags::IN);
                // Of a run that was ended elsewhere they are not watched any more.
                let _ = epoll::modify(&self.epoll, fd, token, flags)
                    .or_else(|_| epoll::add(&self.epoll, fd, token, flags));
            }
        }
        streams.given_up = true;
        let row = streams.run.row;
        self.streams.insert(key, streams);
        let late = self.streams.iter().filter(|(key, late)| **key > LATE && late.run.row == row);
        let keys: Vec<usize> = late.map(|(key, _)| *key).collect();
        if keys.len() > MAX_LATE
            && let Some(oldest) = keys.into_iter().min()
        {
            // A process that still writes there gets SIGPIPE.
            self.streams.remove(&oldest);
        }
    }
}

/// Output of a run was read; whether some of it was dropped by now.
pub(super) fn store(run: &Running, index: usize, spool: &SharedSpool, bytes: &[u8]) -> bool {
    let now = monotonic_nanoseconds();
    run.note_output(now);
    run.follow(index, bytes, now);
    let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
    spool.write(bytes, now);
    let truncated = spool.truncated();
    drop(spool);
    run.waiting.output.ring();
    truncated
}

/// The streams of this run: by now its row may be another's.
fn streams_of<'a>(streams: &'a mut HashMap<usize, Streams>, run: &Arc<Running>) -> Option<&'a mut Streams> {
    streams.get_mut(&run.row).filter(|streams| Arc::ptr_eq(&streams.run, run))
}

impl Streams {
    /// Whether its Outcome is still to be made.
    fn is_waited_for(&self) -> bool {
        self.dead.is_none() && !self.given_up
    }

    /// When its Outcome is made, if it is dead.
    fn settles_by(&self) -> u64 {
        let is_drained = self.outputs.iter().all(Option::is_none);
        self.heard_until.max(if is_drained { 0 } else { self.drain_until })
    }

    /// Of a run that has none yet.
    fn of(run: Arc<Running>) -> Self {
        Streams {
            run,
            outputs: [None, None],
            spools: [None, None],
            stdin: None,
            terminal: None,
            reports: None,
            notices: None,
            dead: None,
            drain_until: u64::MAX,
            heard_until: 0,
            limit_reported: false,
            given_up: false,
        }
    }

    fn store(&mut self, index: usize, bytes: &[u8], enforcer: Option<&EnforcerHandle>) {
        let Some(spool) = &self.spools[index] else { return };
        let truncated = store(&self.run, index, spool, bytes);
        if self.run.on_output_limit_end && !self.limit_reported && truncated {
            self.limit_reported = true;
            if let Some(enforcer) = enforcer {
                let (row, id) = (self.run.row, self.run.id.clone());
                enforcer.send(Command::Limit { row, id, kind: LimitKind::Output });
            }
        }
    }

    /// A copy of the descriptor may live on in a process that the host program forked, and with it the entry in the epoll.
    fn close_output(&mut self, index: usize, epoll: &OwnedFd) {
        if let Some(fd) = self.outputs[index].take() {
            let _ = epoll::delete(epoll, &fd);
        }
    }

    fn close_stdin(&mut self, epoll: &OwnedFd) {
        if let Some((fd, ..)) = self.stdin.take() {
            let _ = epoll::delete(epoll, &fd);
        }
    }

    /// Reads what was reported; closes the channel once no process can report any more.
    fn hear_reports(&mut self, buffer: &mut [u8], epoll: &OwnedFd) {
        let Some(reports) = &mut self.reports else { return };
        let run = &self.run;
        let now = monotonic_nanoseconds();
        if !reports.hear(buffer, |line| run.hear_report(line, now)) {
            self.close_reports(epoll);
        }
    }

    fn close_reports(&mut self, epoll: &OwnedFd) {
        if let Some(reports) = self.reports.take() {
            let _ = epoll::delete(epoll, reports.channel());
        }
    }

    fn feed(&mut self, epoll: &OwnedFd) {
        let Some((fd, bytes, at)) = &mut self.stdin else { return };
        match rustix::io::write(fd.as_fd(), &bytes[*at..]) {
            Ok(written) => *at += written,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            // The run has closed it.
            Err(_) => *at = bytes.len(),
        }
        if *at == bytes.len() {
            self.close_stdin(epoll);
        }
    }
}
