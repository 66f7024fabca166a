//! The thread that ends runs on time.
//!
//! It waits on one epoll for its timer, for the first process of every run (socket and pidfd) and
//! for commands. It does no I/O of runs, and waits for no lock and no message of a thread of lower
//! priority: an event that the owner of a run cannot be notified of at once is left to the
//! collector, and so are the wakers of tasks, which are the caller's code. It decides which cause
//! ended a run that it has taken up. Of a run that was offered it notes when something is due, and
//! takes the run up once that time has come or an event of it arrives. (The thread that waits for
//! an answer takes it; a run that is answered before may be taken back by that thread.) Real-time
//! (SCHED_FIFO) where the kernel allows it: otherwise busy sandboxes on the same processors make it
//! late.
//!
//! The allocator's locks are held by threads of lower priority too. In starting, limiting,
//! cancelling and ending a run this thread neither allocates nor frees, nor opens a descriptor for
//! each process that is left: its messages have nodes that were allocated before, the collector
//! frees what this thread has received and does not need any more ([`DiscardedValue`]), and kills
//! one by one what no kill of a whole group reaches. Rare events do allocate: a new watchdog, a
//! notice of a limit, an event whose owner is not notified at once, a failed step of a sandbox, a
//! run that cannot be watched or does not die, and in contexts an answer that the thread which
//! waited for it did not take back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::queue::{NodePool, Receiver, ReservedSender, queue_with};
use sandtimer_os::watchdog::{SharedTable, Watchdog};

use super::commands::{CONTROL, EnforcerCommand, EnforcerHandle, JOB, PIDFD, kill_by, token};
use super::deliveries::{CollectorHandle, DiscardedValue, ToCollector};
use super::ending::RunEnding;
use super::offer::Offer;
use super::rows::SlotMap;
use super::run::WatchdogId;
use super::unsent_slots::UnsentSlots;
use crate::model::LimitKind;

/// Watchdogs are started at most this often.
const WATCHDOG_RESTART_NANOSECONDS: u64 = 1_000_000_000;

/// How soon it is tried again to send the watchdog what its socket had no room for.
const SEND_RETRY_NANOSECONDS: u64 = 10_000_000;

/// Times of runs that have ended stay until they pass, or there are this many.
const MAX_TIMERS: usize = 8 * sandtimer_os::wire::ROWS;

const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const WATCHDOG: u64 = u64::MAX - 2;

/// A run that was offered.
struct PendingRun {
    /// When something of it is due.
    due: u64,
    ending: Arc<Offer<Box<RunEnding>>>,
}

/// The enforcer's state; lives on its thread.
pub(crate) struct Enforcer {
    epoll: Arc<OwnedFd>,
    timer: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Receiver<EnforcerCommand>,
    collector: CollectorHandle,
    to_collector: ReservedSender<ToCollector>,
    table: Arc<SharedTable>,
    watchdog: Option<Arc<Watchdog>>,
    /// Slots that were not sent to it yet.
    unsent: UnsentSlots,
    /// When the last one was adopted.
    watchdog_since: u64,
    /// The watchdog that has received how slots are killed in advance.
    shown: Option<WatchdogId>,
    /// When the next one is to be started.
    watchdog_due: Option<u64>,
    own_handle: EnforcerHandle,
    /// By row.
    runs: SlotMap<Box<RunEnding>>,
    /// By row, until something is due or happens: most of the answered ones are taken back before.
    pending: SlotMap<PendingRun>,
    /// By slot: the collector, which has a run first, may find a limit passed before this thread
    /// receives the run.
    early_limits: SlotMap<(String, LimitKind)>,
    /// When to handle which slot; entries of runs that have ended are skipped.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    sweep_directories: Vec<OwnedFd>,
    lease: OwnedFd,
    armed_for: u64,
    stopping: bool,
}

/// What the enforcer thread is started with.
pub(crate) struct EnforcerParts {
    pub table: Arc<SharedTable>,
    pub collector: CollectorHandle,
    pub sweep_directories: Vec<OwnedFd>,
    /// The lock of the engine's number: a watchdog that still sweeps must keep the next engine from
    /// it.
    pub lease: OwnedFd,
}

impl Enforcer {
    pub fn new(parts: EnforcerParts) -> io::Result<(Self, EnforcerHandle)> {
        // Freed by the collector alone.
        let received_nodes = NodePool::with_max(usize::MAX);
        let (sender, commands) = queue_with(received_nodes.clone());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        let own_handle =
            EnforcerHandle::new(sender, received_nodes, wake.clone(), epoll.clone(), parts.table.clone());
        let enforcer = Enforcer {
            epoll,
            timer,
            wake,
            commands,
            to_collector: parts.collector.reserved_sender(),
            collector: parts.collector,
            table: parts.table,
            watchdog: None,
            unsent: UnsentSlots::new(),
            watchdog_since: 0,
            shown: None,
            watchdog_due: None,
            own_handle: own_handle.clone(),
            runs: SlotMap::new(),
            pending: SlotMap::new(),
            early_limits: SlotMap::new(),
            timers: BinaryHeap::with_capacity(MAX_TIMERS + 1),
            sweep_directories: parts.sweep_directories,
            lease: parts.lease,
            armed_for: u64::MAX,
            stopping: false,
        };
        Ok((enforcer, own_handle))
    }

    /// Runs until shut down and without runs.
    pub fn serve(mut self) {
        let mut end = UnexpectedEnd::of(&self);
        let mut events = Vec::with_capacity(256);
        while !(self.stopping && self.runs.values().all(|ending| ending.is_unkillable())) {
            events.clear();
            self.arm_timer();
            // A thread that offers a run reads the time just written, and wakes this thread or not.
            // Earlier commands are received here.
            fence(Ordering::SeqCst);
            if self.handle_commands() {
                continue;
            }
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Nothing can be watched any more.
                Err(_) => return,
            }
            // First the commands: an event may be of a run that one of them offers.
            self.handle_commands();
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        let mut count = [0u8; 8];
                        let _ = rustix::io::read(&*self.wake, &mut count);
                        self.handle_commands();
                    }
                    TIMER => {
                        let mut expirations = [0u8; 8];
                        // Only clears the readiness; a spurious wake-up is harmless.
                        let _ = rustix::io::read(&self.timer, &mut expirations);
                        // The next time is written in any case.
                        self.armed_for = 0;
                    }
                    WATCHDOG => self.replace_watchdog(),
                    other => self.event((other >> 2) as usize, other & 3),
                }
            }
            self.handle_due();
        }
        end.is_expected = true;
        if let Some(watchdog) = self.watchdog.take()
            && self.runs.values().next().is_none()
        {
            watchdog.dismiss();
        }
    }

    fn arm_timer(&mut self) {
        while self.timers.peek().is_some_and(|Reverse((at, slot_index))| !self.is_awaited(*at, *slot_index)) {
            self.timers.pop();
        }
        let next = self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let next = next.min(self.watchdog_due.unwrap_or(u64::MAX));
        let next = if self.unsent.is_empty() {
            next
        } else {
            next.min(monotonic_nanoseconds() + SEND_RETRY_NANOSECONDS)
        };
        // An earlier time than is needed stays: it costs one turn, and a run that is offered until
        // then need not wake this thread.
        if self.armed_for != 0 && self.armed_for <= next {
            return;
        }
        self.armed_for = next;
        self.own_handle.wakes_at.store(next, Ordering::SeqCst);
        let value = if next == u64::MAX { 0 } else { next.max(1) };
        let time =
            Timespec { tv_sec: (value / 1_000_000_000) as i64, tv_nsec: (value % 1_000_000_000) as i64 };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: zero, it_value: time };
        // Fails only for values out of range, which these never are.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer);
    }

    /// Handles what other threads have asked for. Whether there was anything.
    fn handle_commands(&mut self) -> bool {
        let mut any = false;
        while let Some(command) = self.commands.try_receive() {
            any = true;
            match command {
                EnforcerCommand::Watch { slot_index, due, shown, offer } => {
                    let pending = PendingRun { due: due.unwrap_or(u64::MAX), ending: offer };
                    if let Some(last) = self.pending.replace(slot_index, pending) {
                        self.discard(DiscardedValue::Offer(last.ending));
                    }
                    if let Some(due) = due {
                        self.schedule(due, slot_index);
                    }
                    if self.stopping || shown != self.shown {
                        self.take_up(slot_index);
                    }
                    if let Some((id, kind)) = self.early_limits.take(slot_index) {
                        self.limit(slot_index, id, kind);
                    }
                }
                // Init and the watchdog get the new deadline in the step that follows every change.
                EnforcerCommand::Moved { slot_index } => self.with(slot_index, None, |_| {}),
                EnforcerCommand::Cancel { slot_index, id, mut reason } => {
                    self.with(slot_index, Some(&id), |ending| {
                        ending.cancel(&mut reason, monotonic_nanoseconds())
                    });
                    self.discard(DiscardedValue::OwnedString(id));
                    self.discard(DiscardedValue::OwnedString(reason));
                }
                EnforcerCommand::Pause { slot_index, id, paused, by } => {
                    self.with(slot_index, Some(&id), |ending| {
                        ending.pause(paused, by, monotonic_nanoseconds())
                    });
                    self.discard(DiscardedValue::OwnedString(id));
                }
                EnforcerCommand::Limit { slot_index, id, kind } => self.limit(slot_index, id, kind),
                EnforcerCommand::Answered { slot_index, id } => {
                    self.with(slot_index, Some(&id), |ending| ending.answered(monotonic_nanoseconds()));
                    self.discard(DiscardedValue::OwnedString(id));
                }
                EnforcerCommand::Adopt(watchdog) => self.adopt(watchdog),
                EnforcerCommand::NoWatchdog => {
                    self.watchdog_due = Some(monotonic_nanoseconds() + WATCHDOG_RESTART_NANOSECONDS);
                }
                EnforcerCommand::Shutdown => {
                    self.stopping = true;
                    let slot_end = self.runs.slot_indexes().end.max(self.pending.slot_indexes().end);
                    for slot_index in 0..slot_end {
                        let cancel = |ending: &mut RunEnding| {
                            let mut reason = "the engine is shutting down".to_owned();
                            ending.cancel(&mut reason, monotonic_nanoseconds());
                        };
                        self.with(slot_index, None, cancel);
                    }
                }
            }
        }
        any
    }

    /// Does something to the run in `row` (if it is still `id`'s), and what follows from that.
    fn with(&mut self, slot_index: usize, id: Option<&str>, act: impl FnOnce(&mut RunEnding)) {
        self.take_up(slot_index);
        let Some(ending) = self.runs.get_mut(slot_index) else { return };
        if id.is_some_and(|id| id != ending.run.id) {
            return;
        }
        act(ending);
        self.follow(slot_index);
    }

    /// Ends a run at a limit that another thread has found passed; at once, or when it is known
    /// here.
    fn limit(&mut self, slot_index: usize, id: String, kind: LimitKind) {
        self.take_up(slot_index);
        if self.runs.get(slot_index).is_some_and(|ending| ending.run.id == id) {
            self.with(slot_index, Some(&id), |ending| ending.limit(kind, monotonic_nanoseconds()));
            self.discard(DiscardedValue::OwnedString(id));
        } else if let Some((replaced, _)) = self.early_limits.replace(slot_index, (id, kind)) {
            self.discard(DiscardedValue::OwnedString(replaced));
        }
    }

    /// Takes up the run in a row that was only offered so far.
    fn take_up(&mut self, slot_index: usize) {
        let Some(pending) = self.pending.take(slot_index) else { return };
        let ending = pending.ending.take();
        self.discard(DiscardedValue::Offer(pending.ending));
        if let Some(ending) = ending {
            self.watch(ending);
        }
    }

    fn watch(&mut self, mut ending: Box<RunEnding>) {
        let run = &ending.run;
        let slot_index = run.slot_index;
        // They were added edge-triggered, by another thread, which may have removed them again.
        // Earlier events are reported now.
        let level = |fd: BorrowedFd<'_>, kind| {
            let (token, flags) = (token(slot_index, kind), epoll::EventFlags::IN);
            epoll::modify(&self.epoll, fd, token, flags)
                .or_else(|_| epoll::add(&self.epoll, fd, token, flags))
        };
        let added = level(run.control.as_fd(), CONTROL)
            .and_then(|()| level(run.pidfd.as_fd(), PIDFD))
            .and_then(|()| run.job.as_ref().map_or(Ok(()), |job| level(job.pidfd.as_fd(), JOB)));
        if run.shown != self.shown {
            // Sent together with all other slots that it does not have yet.
            self.unsent.insert(slot_index);
        }
        if let Err(error) = added {
            ending.infrastructure(format!("the run cannot be watched: {error}"), monotonic_nanoseconds());
        }
        if let Some(last) = self.runs.replace(slot_index, ending) {
            self.discard(DiscardedValue::Ending(last));
        }
        self.send_unsent();
        self.follow(slot_index);
    }

    fn event(&mut self, slot_index: usize, kind: u64) {
        self.take_up(slot_index);
        let Some(ending) = self.runs.get_mut(slot_index) else { return };
        ending.read_notices(monotonic_nanoseconds());
        // The event may be of the row's last run.
        let is_dead = |pidfd: &OwnedFd| process::is_dead(pidfd.as_fd());
        if kind == PIDFD {
            if is_dead(&ending.run.pidfd) {
                // It stays readable; what follows is a matter of time.
                let _ = epoll::delete(&self.epoll, &ending.run.pidfd);
            }
            ending.died(&self.table, monotonic_nanoseconds());
        } else if kind == JOB {
            if let Some(job) = &ending.run.job
                && is_dead(&job.pidfd)
            {
                let _ = epoll::delete(&self.epoll, &job.pidfd);
            }
            ending.job_ended(monotonic_nanoseconds());
        } else if ending.control_closed {
            // The socket is at its end and always readable: the pidfd reports the death.
            let _ = epoll::delete(&self.epoll, &ending.run.control);
        }
        self.follow(slot_index);
    }

    /// Handles everything whose time has come.
    fn handle_due(&mut self) {
        if self.watchdog_due.is_some_and(|at| at <= monotonic_nanoseconds()) {
            self.watchdog_due = None;
            if !self.stopping {
                self.send_to_collector(ToCollector::StartWatchdog);
            }
        }
        self.send_unsent();
        loop {
            let now = monotonic_nanoseconds();
            match self.timers.peek() {
                Some(Reverse((at, slot_index))) if *at <= now => {
                    let (at, slot_index) = (*at, *slot_index);
                    self.timers.pop();
                    if self.pending.get(slot_index).is_some_and(|pending| pending.due == at) {
                        self.take_up(slot_index);
                    }
                    // Any other entry is of a time that was changed since.
                    if let Some(ending) = self.runs.get_mut(slot_index)
                        && ending.scheduled == Some(at)
                    {
                        // What was done or has died while this thread could not run comes first.
                        ending.read_notices(now);
                        if self.table.fired(slot_index) {
                            ending.ended_by_watchdog(now);
                        }
                        if ending.is_dying() {
                            ending.died(&self.table, now);
                        }
                        ending.time(now);
                        self.follow(slot_index);
                    }
                }
                _ => return,
            }
        }
    }

    /// Does what follows every change of a run: its next time, the watchdog's row, and messages to
    /// the collector.
    fn follow(&mut self, slot_index: usize) {
        let Some(ending) = self.runs.get_mut(slot_index) else { return };
        if ending.is_dead() && self.table.disarm(slot_index) {
            ending.killed_by_watchdog();
        }
        if let Some(hard) = ending.unannounced_deadline()
            && self.table.arm(slot_index, hard)
            && let Some(watchdog) = &self.watchdog
        {
            // A watchdog that does not read is replaced when it is dead; until then init has the
            // same deadline.
            let _ = watchdog.wake();
        }
        let messages = [
            ending.owner_events(),
            ending.inspection(),
            ending.measurement(),
            ending.notice(),
            ending.reap(),
            ending.kill_each(),
        ];
        if ending.is_dead() {
            messages.into_iter().flatten().for_each(|message| self.send_to_collector(message));
            self.finish(slot_index);
            return;
        }
        let report = ending.report();
        let next = ending.next_time().filter(|at| ending.scheduled != Some(*at));
        if let Some(at) = next {
            ending.scheduled = Some(at);
            self.schedule(at, slot_index);
        }
        for message in messages.into_iter().flatten().chain(report) {
            self.send_to_collector(message);
        }
    }

    /// Passes a dead run to the collector.
    fn finish(&mut self, slot_index: usize) {
        let Some(ending) = self.runs.take(slot_index) else { return };
        let run = &ending.run;
        // Closed, they leave the set by themselves; but the owner may keep the run, and with it the
        // files.
        let _ = epoll::delete(&self.epoll, &run.control);
        let _ = epoll::delete(&self.epoll, &run.pidfd);
        if let Some(job) = &run.job {
            let _ = epoll::delete(&self.epoll, &job.pidfd);
        }
        if run.slot.kill_file().is_none()
            && let Some(watchdog) = &self.watchdog
        {
            let _ = watchdog.forget(slot_index);
        }
        // Last: the row may be another run's from now on.
        self.send_to_collector(ToCollector::Ended(ending));
    }

    fn schedule(&mut self, at: u64, slot_index: usize) {
        if self.timers.len() >= MAX_TIMERS {
            let mut timers = std::mem::take(&mut self.timers);
            timers.retain(|Reverse((at, slot_index))| self.is_awaited(*at, *slot_index));
            self.timers = timers;
        }
        self.timers.push(Reverse((at, slot_index)));
    }

    /// Whether something of a run is due then.
    fn is_awaited(&self, at: u64, slot_index: usize) -> bool {
        let pending = self.pending.get(slot_index);
        pending.is_some_and(|pending| pending.due == at && !pending.ending.is_taken())
            || self.runs.get(slot_index).is_some_and(|ending| ending.scheduled == Some(at))
    }

    fn send_to_collector(&mut self, message: ToCollector) {
        // The collector outlives the enforcer.
        let _ = self.to_collector.send(message);
        self.collector.wake();
    }

    /// Has the collector free something, when it is woken next.
    fn discard(&mut self, discarded: DiscardedValue) {
        let _ = self.to_collector.send(ToCollector::Discard(discarded));
    }

    /// Sends the watchdog how the slots are killed that it does not have yet, until its socket is
    /// full.
    fn send_unsent(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let Some(watchdog) = &self.watchdog else {
            self.unsent.clear();
            return;
        };
        let runs = &self.runs;
        self.unsent.send(|slot_index| {
            let Some(run) = runs.get(slot_index).map(|ending| &ending.run) else { return Ok(()) };
            // Where it is dead, its pidfd wakes this thread.
            kill_by(watchdog, &run.slot, run.pidfd.as_fd(), run.sweeps_itself)
        });
        if self.unsent.is_empty() {
            // While the socket was full a wake-up may have failed.
            let _ = watchdog.wake();
        }
    }

    fn adopt(&mut self, watchdog: Watchdog) {
        for directory in &self.sweep_directories {
            let _ = watchdog.sweep_directory(directory.as_fd());
        }
        let _ = watchdog.hold(self.lease.as_fd());
        let _ = watchdog.show_engine();
        let data = epoll::EventData::new_u64(WATCHDOG);
        let _ = epoll::add(&self.epoll, watchdog.pidfd(), data, epoll::EventFlags::IN);
        let watchdog = Arc::new(watchdog);
        self.watchdog = Some(watchdog.clone());
        self.watchdog_since = monotonic_nanoseconds();
        self.shown = self.own_handle.adopted(watchdog);
        self.pending.slot_indexes().for_each(|slot_index| self.take_up(slot_index));
        // Its socket holds some hundred messages until it has had the time to read them.
        for slot_index in self.runs.slot_indexes() {
            if self.runs.get(slot_index).is_some() {
                self.unsent.insert(slot_index);
            }
        }
        self.send_unsent();
        if let Some(watchdog) = &self.watchdog {
            let _ = watchdog.wake();
        }
    }

    /// Has a new watchdog started, which takes over the table of the one that has died. At most one
    /// in a while: the cause of its death may be there still.
    fn replace_watchdog(&mut self) {
        self.shown = None;
        self.unsent.clear();
        if let Some(dead) = self.own_handle.without_watchdog() {
            self.discard(DiscardedValue::Watchdog(dead));
        }
        if let Some(dead) = self.watchdog.take() {
            let _ = epoll::delete(&self.epoll, dead.pidfd());
            self.discard(DiscardedValue::Watchdog(dead));
        }
        self.watchdog_due = Some(self.watchdog_since + WATCHDOG_RESTART_NANOSECONDS);
    }
}

/// What is done if the enforcer ends in the middle of its work, by a panic or because its epoll
/// fails: the watchdog, whose socket closes then, kills every run, and the collector ends what is
/// waited for.
struct UnexpectedEnd {
    handle: EnforcerHandle,
    collector: CollectorHandle,
    is_expected: bool,
}

impl UnexpectedEnd {
    fn of(enforcer: &Enforcer) -> Self {
        let (handle, collector) = (enforcer.own_handle.clone(), enforcer.collector.clone());
        UnexpectedEnd { handle, collector, is_expected: false }
    }
}

impl Drop for UnexpectedEnd {
    fn drop(&mut self) {
        if !self.is_expected {
            drop(self.handle.without_watchdog());
            self.collector.send(ToCollector::EnforcerEnded);
        }
    }
}
