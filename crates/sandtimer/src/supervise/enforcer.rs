//! The thread that ends runs on time.
//!
//! It waits on one epoll for its timer, for every run's init (socket and pidfd) and for messages; it does no I/O of
//! runs, waits for no lock and no message of a thread of lower priority (what the owner of a run is told and cannot be told at once
//! is left to the collector, and so are the wakers of tasks, which are the caller's code), and decides which cause ended a run that it has looked at: of one
//! that was brought it notes when something is due, and takes it up once that time has come or something is heard of it. (An
//! answer is taken by whoever waited for it; a run that is answered before may be taken back, and ended elsewhere.) Real-time
//! (SCHED_FIFO) where the kernel allows it: otherwise busy sandboxes on the same processors make it late.

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
use sandtimer_os::queue::{Receiver, Sender, queue};
use sandtimer_os::watchdog::{SharedTable, Watchdog};

use super::collector::ToCollector;
use super::ending::Ending;
use super::offer::Offer;
use super::orders::{CONTROL, Command, EnforcerHandle, JOB, PIDFD, Shown, kill_by, token};
use super::run::Running;

/// Watchdogs are started at most this often.
const WATCHDOG_AGAIN: u64 = 1_000_000_000;

/// How soon the watchdog is told again of what its socket had no room for.
const SHOW_AGAIN: u64 = 10_000_000;

/// Times of runs that are over stay until they pass, or there are this many.
const MOST_TIMERS: usize = 8 * sandtimer_os::wire::ROWS;

const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const WATCHDOG: u64 = u64::MAX - 2;

/// A run that was brought.
struct Offered {
    /// When something of it is due.
    due: u64,
    ending: Arc<Offer<Box<Ending>>>,
}

/// The enforcer's state; lives on its thread.
pub(crate) struct Enforcer {
    epoll: Arc<OwnedFd>,
    timer: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    collector: Sender<ToCollector>,
    collector_wake: Arc<OwnedFd>,
    table: Arc<SharedTable>,
    watchdog: Option<Arc<Watchdog>>,
    /// Rows that it has not been told of, because its socket was full.
    unshown: Vec<usize>,
    /// When the last one was adopted.
    watchdog_since: u64,
    /// What it was told of runs beforehand.
    shown: Option<Shown>,
    /// When the next one is to be started.
    watchdog_due: Option<u64>,
    own_handle: EnforcerHandle,
    /// By row.
    runs: Vec<Option<Box<Ending>>>,
    /// By row, until something is due or happens: most of the answered ones are taken back before.
    offered: Vec<Option<Offered>>,
    /// When to look at which row; entries of runs that are gone are passed over.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    sweep_directories: Vec<OwnedFd>,
    lease: OwnedFd,
    armed_for: u64,
    stopping: bool,
}

/// What the enforcer thread is started with.
pub(crate) struct EnforcerParts {
    pub table: Arc<SharedTable>,
    pub collector: Sender<ToCollector>,
    pub collector_wake: Arc<OwnedFd>,
    pub sweep_directories: Vec<OwnedFd>,
    /// The lock of the engine's number: a watchdog that still sweeps must keep the next engine from it.
    pub lease: OwnedFd,
}

impl Enforcer {
    pub fn new(parts: EnforcerParts) -> io::Result<(Self, EnforcerHandle)> {
        let (sender, commands) = queue();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        let own_handle = EnforcerHandle::new(sender, wake.clone(), epoll.clone(), parts.table.clone());
        let enforcer = Enforcer {
            epoll,
            timer,
            wake,
            commands,
            collector: parts.collector,
            collector_wake: parts.collector_wake,
            table: parts.table,
            watchdog: None,
            unshown: Vec::new(),
            watchdog_since: 0,
            shown: None,
            watchdog_due: None,
            own_handle: own_handle.clone(),
            runs: std::iter::repeat_with(|| None).take(sandtimer_os::wire::ROWS).collect(),
            offered: std::iter::repeat_with(|| None).take(sandtimer_os::wire::ROWS).collect(),
            timers: BinaryHeap::new(),
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
        while !(self.stopping && self.runs.iter().flatten().all(|ending| ending.is_given_up())) {
            events.clear();
            self.arm_timer();
            // Whoever brings a run reads the time just written, and wakes this thread or not. What came before is seen here.
            fence(Ordering::SeqCst);
            if self.obey() {
                continue;
            }
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Nothing can be watched any more.
                Err(_) => return,
            }
            // First the commands: an event may be of a run that one of them brings.
            self.obey();
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        let mut count = [0u8; 8];
                        let _ = rustix::io::read(&*self.wake, &mut count);
                        self.obey();
                    }
                    TIMER => {
                        let mut expirations = [0u8; 8];
                        // Only clears the readiness; a spurious wake-up costs one look.
                        let _ = rustix::io::read(&self.timer, &mut expirations);
                        // Neither this nor that it is for nothing: what follows is written in any case.
                        self.armed_for = 0;
                    }
                    WATCHDOG => self.replace_watchdog(),
                    other => self.event((other >> 2) as usize, other & 3),
                }
            }
            self.look();
        }
        end.is_expected = true;
        if let Some(watchdog) = self.watchdog.take()
            && self.runs.iter().all(Option::is_none)
        {
            watchdog.dismiss();
        }
    }

    fn arm_timer(&mut self) {
        while self.timers.peek().is_some_and(|Reverse((at, row))| !self.is_awaited(*at, *row)) {
            self.timers.pop();
        }
        let next = self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let next = next.min(self.watchdog_due.unwrap_or(u64::MAX));
        let next =
            if self.unshown.is_empty() { next } else { next.min(monotonic_nanoseconds() + SHOW_AGAIN) };
        // An earlier time than is needed stays: it costs one look, and whoever brings a run until then need not wake this thread.
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

    /// Whether there was anything to obey.
    fn obey(&mut self) -> bool {
        let mut any = false;
        while let Some(command) = self.commands.try_receive() {
            any = true;
            match command {
                Command::Watch { row, due, shown, offer } => {
                    self.offered[row] = Some(Offered { due: due.unwrap_or(u64::MAX), ending: offer });
                    if let Some(due) = due {
                        self.schedule(due, row);
                    }
                    if self.stopping || shown != self.shown {
                        self.see(row);
                    }
                }
                // Init and the watchdog hear of it with what follows every change.
                Command::Moved { row } => self.with(row, None, |_| {}),
                Command::Cancel { row, id, reason } => {
                    self.with(row, Some(&id), |ending| ending.cancel(reason, monotonic_nanoseconds()));
                }
                Command::Pause { row, id, paused } => {
                    self.with(row, Some(&id), |ending| ending.pause(paused, monotonic_nanoseconds()));
                }
                Command::Limit { row, id, kind } => {
                    self.with(row, Some(&id), |ending| ending.limit(kind, monotonic_nanoseconds()));
                }
                Command::Answered { row, id } => {
                    self.with(row, Some(&id), |ending| ending.answered(monotonic_nanoseconds()));
                }
                Command::Adopt(watchdog) => self.adopt(watchdog),
                Command::NoWatchdog => {
                    self.watchdog_due = Some(monotonic_nanoseconds() + WATCHDOG_AGAIN);
                }
                Command::Shutdown => {
                    self.stopping = true;
                    for row in 0..self.runs.len() {
                        self.see(row);
                        let cancel = |ending: &mut Ending| {
                            ending.cancel("the engine is shutting down".to_owned(), monotonic_nanoseconds());
                        };
                        self.with(row, None, cancel);
                    }
                }
            }
        }
        any
    }

    /// Does something to the run in `row` (if it is still `id`'s), then sees what has to be done next.
    fn with(&mut self, row: usize, id: Option<&str>, act: impl FnOnce(&mut Ending)) {
        self.see(row);
        let Some(ending) = self.runs.get_mut(row).and_then(Option::as_deref_mut) else { return };
        if id.is_some_and(|id| id != ending.run.id) {
            return;
        }
        act(ending);
        self.follow(row);
    }

    /// Takes up the run in a row that was only offered so far.
    fn see(&mut self, row: usize) {
        let offered = self.offered.get_mut(row).and_then(Option::take);
        if let Some(ending) = offered.and_then(|offered| offered.ending.take()) {
            self.watch(ending);
        }
    }

    fn watch(&mut self, mut ending: Box<Ending>) {
        let run = ending.run.clone();
        let row = run.row;
        // They were added edge-triggered, by another thread, who may have taken them out again. What came before now is seen now.
        let level = |fd: BorrowedFd<'_>, kind| {
            let (token, flags) = (token(row, kind), epoll::EventFlags::IN);
            epoll::modify(&self.epoll, fd, token, flags)
                .or_else(|_| epoll::add(&self.epoll, fd, token, flags))
        };
        let added = level(run.control.as_fd(), CONTROL)
            .and_then(|()| level(run.pidfd.as_fd(), PIDFD))
            .and_then(|()| run.job.as_ref().map_or(Ok(()), |job| level(job.pidfd.as_fd(), JOB)));
        if run.shown != self.shown {
            self.tell_watchdog(&run);
        }
        if let Err(error) = added {
            ending.infrastructure(format!("the run cannot be watched: {error}"), monotonic_nanoseconds());
        }
        self.runs[row] = Some(ending);
        self.follow(row);
    }

    fn event(&mut self, row: usize, kind: u64) {
        self.see(row);
        let Some(ending) = self.runs.get_mut(row).and_then(Option::as_mut) else { return };
        ending.hear(monotonic_nanoseconds());
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
            // At its end and always readable: the pidfd tells the rest.
            let _ = epoll::delete(&self.epoll, &ending.run.control);
        }
        self.follow(row);
    }

    /// Looks at everything whose time has come.
    fn look(&mut self) {
        if self.watchdog_due.is_some_and(|at| at <= monotonic_nanoseconds()) {
            self.watchdog_due = None;
            if !self.stopping {
                self.tell_collector(ToCollector::StartWatchdog);
            }
        }
        self.show_rest();
        loop {
            let now = monotonic_nanoseconds();
            match self.timers.peek() {
                Some(Reverse((at, row))) if *at <= now => {
                    let (at, row) = (*at, *row);
                    self.timers.pop();
                    if self.offered[row].as_ref().is_some_and(|offered| offered.due == at) {
                        self.see(row);
                    }
                    // Any other entry is of a time that was changed since.
                    if let Some(ending) = self.runs[row].as_mut()
                        && ending.scheduled == Some(at)
                    {
                        // What was done or has died while this thread could not run comes first.
                        ending.hear(now);
                        if self.table.fired(row) {
                            ending.ended_by_watchdog(now);
                        }
                        if ending.is_dying() {
                            ending.died(&self.table, now);
                        }
                        ending.time(now);
                        self.follow(row);
                    }
                }
                _ => return,
            }
        }
    }

    /// After every change of a run: its next time, the watchdog's row, and what the collector must hear.
    fn follow(&mut self, row: usize) {
        let Some(ending) = self.runs[row].as_mut() else { return };
        if ending.is_dead() && self.table.disarm(row) {
            ending.killed_by_watchdog();
        }
        if let Some(hard) = ending.unannounced_deadline()
            && self.table.arm(row, hard)
            && let Some(watchdog) = &self.watchdog
        {
            // A watchdog that does not listen is replaced when it is dead; init stands behind it meanwhile.
            let _ = watchdog.wake();
        }
        let messages = [
            ending.owner_events(),
            ending.look(),
            ending.measurement(),
            ending.notice(),
            ending.reap(),
            ending.report(),
        ];
        let run = ending.is_dead().then(|| ending.run.clone());
        let next = ending.next_time().filter(|at| ending.scheduled != Some(*at));
        if let Some(run) = &run {
            // Before anybody hears of it: the row may be another run's at once.
            self.runs[row] = None;
            // Gone from the set by themselves once closed; but the owner may keep the run, and with it the files.
            let _ = epoll::delete(&self.epoll, &run.control);
            let _ = epoll::delete(&self.epoll, &run.pidfd);
            if let Some(job) = &run.job {
                let _ = epoll::delete(&self.epoll, &job.pidfd);
            }
            if run.slot.kill_file().is_none()
                && let Some(watchdog) = &self.watchdog
            {
                let _ = watchdog.forget(row);
            }
        }
        for message in messages.into_iter().flatten() {
            self.tell_collector(message);
        }
        if let (Some(at), Some(ending)) = (next, self.runs[row].as_mut()) {
            ending.scheduled = Some(at);
            self.schedule(at, row);
        }
    }

    fn schedule(&mut self, at: u64, row: usize) {
        if self.timers.len() >= MOST_TIMERS {
            let mut timers = std::mem::take(&mut self.timers);
            timers.retain(|Reverse((at, row))| self.is_awaited(*at, *row));
            self.timers = timers;
        }
        self.timers.push(Reverse((at, row)));
    }

    /// Whether a run is to be looked at then.
    fn is_awaited(&self, at: u64, row: usize) -> bool {
        let offered = self.offered[row].as_ref();
        offered.is_some_and(|offered| offered.due == at && !offered.ending.is_taken())
            || self.runs[row].as_ref().is_some_and(|ending| ending.scheduled == Some(at))
    }

    fn tell_collector(&self, message: ToCollector) {
        // The collector outlives the enforcer.
        let _ = self.collector.send(message);
        let _ = rustix::io::write(&*self.collector_wake, &1u64.to_ne_bytes());
    }

    fn tell_watchdog(&mut self, run: &Running) {
        let Some(watchdog) = &self.watchdog else { return };
        let told = kill_by(watchdog, &run.slot, run.pidfd.as_fd(), run.sweeps_itself);
        // Any other failure means that it is dead, which wakes this thread by its pidfd.
        if told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.unshown.push(run.row);
        }
    }

    /// Tells the watchdog of the rows that its socket had no room for.
    fn show_rest(&mut self) {
        for row in std::mem::take(&mut self.unshown) {
            let run = self.runs[row].as_ref().map(|ending| ending.run.clone());
            run.iter().for_each(|run| self.tell_watchdog(run));
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
        (0..self.offered.len()).for_each(|row| self.see(row));
        // Its socket holds some hundred messages, and those that it has not read it may not have had the time for.
        self.unshown = (0..self.runs.len()).filter(|row| self.runs[*row].is_some()).collect();
        self.show_rest();
        if let Some(watchdog) = &self.watchdog {
            let _ = watchdog.wake();
        }
    }

    /// The watchdog died: a new one takes over the same table when it has been started. One that dies again and again is
    /// not started again and again.
    fn replace_watchdog(&mut self) {
        self.shown = None;
        self.unshown.clear();
        self.own_handle.bereft();
        if let Some(dead) = self.watchdog.take() {
            let _ = epoll::delete(&self.epoll, dead.pidfd());
        }
        self.watchdog_due = Some(self.watchdog_since + WATCHDOG_AGAIN);
    }
}

/// What is done where the enforcer ends in the middle of its work, by a panic or because its epoll fails: the watchdog, whose
/// socket closes then, kills every run, and the collector ends what is waited for.
struct UnexpectedEnd {
    handle: EnforcerHandle,
    collector: Sender<ToCollector>,
    collector_wake: Arc<OwnedFd>,
    is_expected: bool,
}

impl UnexpectedEnd {
    fn of(enforcer: &Enforcer) -> Self {
        UnexpectedEnd {
            handle: enforcer.own_handle.clone(),
            collector: enforcer.collector.clone(),
            collector_wake: enforcer.collector_wake.clone(),
            is_expected: false,
        }
    }
}

impl Drop for UnexpectedEnd {
    fn drop(&mut self) {
        if !self.is_expected {
            self.handle.bereft();
            let _ = self.collector.send(ToCollector::EnforcerEnded);
            let _ = rustix::io::write(&*self.collector_wake, &1u64.to_ne_bytes());
        }
    }
}
