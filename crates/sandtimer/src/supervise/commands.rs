//! What other threads ask of the enforcer, and how runs reach it.
//!
//! A run that begins wakes the enforcer only if it would otherwise wake too late: on few processors
//! that wake-up takes the place of the command itself. Until then the run is in the queue of
//! commands, its descriptors are in the enforcer's epoll, and init and the watchdog's row have its
//! deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::queue::{NodePool, Sender};
use sandtimer_os::watchdog::{SharedTable, Watchdog};

use super::ending::RunEnding;
use super::offer::Offer;
use super::run::{Pauser, SharedRun, WatchdogId};
use crate::isolate::cgroup::Slot;

/// What others ask of the enforcer.
#[derive(Debug)]
pub(crate) enum EnforcerCommand {
    /// A sandbox was started in this row; watch it once something is due or happens, unless it has
    /// been taken back by then.
    Watch {
        slot_index: usize,
        due: Option<u64>,
        /// The watchdog that knows how it is killed.
        shown: Option<WatchdogId>,
        offer: Arc<Offer<Box<RunEnding>>>,
    },
    /// The deadline of a row was moved, or its run is to be taken up now.
    Moved {
        slot_index: usize,
    },
    /// End a run for this reason; with a SIGTERM first if its grace allows.
    Cancel {
        slot_index: usize,
        id: String,
        reason: String,
    },
    /// Stop or continue a run and its clocks.
    Pause {
        slot_index: usize,
        id: String,
        paused: bool,
        by: Pauser,
    },
    /// End a run because a limit that other threads measure is passed.
    Limit {
        slot_index: usize,
        id: String,
        kind: crate::model::LimitKind,
    },
    /// The job answered, and the thread that waited for it took the answer.
    Answered {
        slot_index: usize,
        id: String,
    },
    /// A watchdog was started.
    Adopt(Watchdog),
    /// None could be started.
    NoWatchdog,
    Shutdown,
}

/// What an epoll event of a row is about; the row is the upper part of the token.
pub(super) const CONTROL: u64 = 0;
pub(super) const PIDFD: u64 = 1;
pub(super) const JOB: u64 = 2;

pub(super) fn token(slot_index: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64((slot_index as u64) << 2 | kind)
}

/// The present watchdog. The enforcer takes this lock only when one comes or goes.
#[derive(Debug, Default)]
struct Watchers {
    count: u64,
    watchdog: Option<Arc<Watchdog>>,
}

/// Sends commands to the enforcer.
#[derive(Debug, Clone)]
pub(crate) struct EnforcerHandle {
    commands: Sender<EnforcerCommand>,
    /// Nodes of commands that the enforcer has received.
    received_nodes: NodePool<EnforcerCommand>,
    wake: Arc<OwnedFd>,
    epoll: Arc<OwnedFd>,
    table: Arc<SharedTable>,
    /// When the enforcer wakes by itself, in monotonic nanoseconds.
    pub(super) wakes_at: Arc<AtomicU64>,
    watched: Arc<AtomicBool>,
    /// Which watchdog the enforcer has: the number of [`WatchdogId`], 0 for none.
    shown_to: Arc<AtomicU64>,
    watchers: Arc<Mutex<Watchers>>,
    /// Runs that were taken back, whose commands are in the queue.
    taken_back: Arc<AtomicU32>,
}

/// The number of commands of runs that were taken back for which the enforcer is woken.
pub(super) const MAX_TAKEN_BACK: u32 = 64;

impl EnforcerHandle {
    pub(super) fn new(
        commands: Sender<EnforcerCommand>,
        received_nodes: NodePool<EnforcerCommand>,
        wake: Arc<OwnedFd>,
        epoll: Arc<OwnedFd>,
        table: Arc<SharedTable>,
    ) -> Self {
        EnforcerHandle {
            commands,
            received_nodes,
            wake,
            epoll,
            table,
            wakes_at: Arc::new(AtomicU64::new(u64::MAX)),
            watched: Arc::default(),
            shown_to: Arc::default(),
            watchers: Arc::default(),
            taken_back: Arc::default(),
        }
    }

    /// Whether the enforcer has ended: nothing would end a run any more.
    pub fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// Whether there is a watchdog.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Passes on a watchdog that was started, or that none could be.
    pub fn watchdog(&self, started: io::Result<Watchdog>) {
        self.watched.store(started.is_ok(), Ordering::Relaxed);
        self.send(started.map_or(EnforcerCommand::NoWatchdog, EnforcerCommand::Adopt));
    }

    pub(super) fn adopted(&self, watchdog: Arc<Watchdog>) -> Option<WatchdogId> {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.count += 1;
        watchers.watchdog = Some(watchdog);
        self.shown_to.store(watchers.count, Ordering::Release);
        Some(WatchdogId(watchers.count))
    }

    /// Notes that the watchdog is gone; returns it. Dropping it waits for its end.
    pub(super) fn without_watchdog(&self) -> Option<Arc<Watchdog>> {
        self.watched.store(false, Ordering::Relaxed);
        self.shown_to.store(0, Ordering::Release);
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).watchdog.take()
    }

    /// Frees what the enforcer does not free itself.
    pub(super) fn free_received_nodes(&self) {
        self.received_nodes.free();
    }

    /// Sends the watchdog how a slot is killed, before there is a run in it.
    pub fn show(&self, slot: &Slot, init_pidfd: BorrowedFd<'_>, sweeps_itself: bool) -> Option<WatchdogId> {
        let watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = kill_by(watchers.watchdog.as_ref()?, slot, init_pidfd, sweeps_itself);
        sent.ok().map(|()| WatchdogId(watchers.count))
    }

    pub fn send(&self, command: EnforcerCommand) {
        self.queue(command);
        self.wake();
    }

    /// Sends a command that the enforcer handles when it wakes.
    pub fn queue(&self, command: EnforcerCommand) {
        // If the enforcer has failed, the collector ends all runs.
        let _ = self.commands.send(command);
    }

    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Has it watch a run from now on. Until it has taken the run up, the calling thread may take
    /// it back.
    pub fn watch(&self, run: Arc<SharedRun>) -> Arc<Offer<Box<RunEnding>>> {
        let slot_index = run.slot_index;
        let added = self.add(&run);
        let mut ending = Box::new(RunEnding::new(run.clone(), monotonic_nanoseconds()));
        // Init has a job's end already, and the watchdog has it now.
        let shown_to = self.shown_to.load(Ordering::Acquire);
        let armed = run.shown.is_some_and(|shown| shown.0 == shown_to)
            && ending.begun_until().is_some_and(|hard| {
                let late = self.table.arm(run.slot_index, run.watched_until(hard));
                let is_announced = run.job.as_ref().is_some_and(|job| job.until == hard);
                if is_announced && !late {
                    ending.note_announced(hard);
                }
                is_announced && !late
            });
        let due = ending.next_time();
        let (offer, in_time) = self.offer(ending, due);
        // An event from before the command was passed over.
        if !(armed && added && in_time) || process::any_readable(descriptors(&run).map(|(_, fd)| fd)) {
            self.request_take_up(slot_index);
        }
        offer
    }

    /// Adds what is watched of a run. What could not be added, the enforcer finds out when it takes
    /// the run up.
    fn add(&self, run: &SharedRun) -> bool {
        // Edge-triggered: an event of a run that the enforcer does not know yet must not keep it
        // busy.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let add = |(kind, fd)| epoll::add(&self.epoll, fd, token(run.slot_index, kind), flags).is_ok();
        descriptors(run).fold(true, |all, descriptor| add(descriptor) & all)
    }

    /// Offers it a run, and returns whether it wakes by itself early enough for what is due then.
    fn offer(&self, ending: Box<RunEnding>, due: Option<u64>) -> (Arc<Offer<Box<RunEnding>>>, bool) {
        let (slot_index, shown) = (ending.run.slot_index, ending.run.shown);
        let offer = Offer::new(ending);
        self.queue(EnforcerCommand::Watch { slot_index, due, shown, offer: offer.clone() });
        fence(Ordering::SeqCst);
        (offer, due.is_none_or(|due| self.wakes_at.load(Ordering::SeqCst) <= due))
    }

    /// Has it take up a run then, unless that is taken back before.
    pub fn give_at(&self, due: u64, ending: Box<RunEnding>) -> Arc<Offer<Box<RunEnding>>> {
        let (offer, in_time) = self.offer(ending, Some(due));
        if !in_time {
            self.wake();
        }
        offer
    }

    /// Has it take up a run now.
    pub fn give(&self, ending: Box<RunEnding>) {
        let slot_index = ending.run.slot_index;
        self.offer(ending, None);
        self.request_take_up(slot_index);
    }

    /// Has it take up the run in a row that it was offered.
    pub fn request_take_up(&self, slot_index: usize) {
        self.send(EnforcerCommand::Moved { slot_index });
    }

    /// Forgets a run that was taken back and has ended, as the enforcer does for all others.
    pub fn forget(&self, ending: &RunEnding) {
        // A live sandbox is not used for another run: its interpreter's end shows whether the
        // watchdog has killed it.
        self.table.disarm(ending.run.slot_index);
        self.overlook(&ending.run);
    }

    /// As [`EnforcerHandle::forget`], for a run whose sandbox is to be used again.
    pub fn forget_vacated(&self, ending: &RunEnding) {
        if self.table.disarm(ending.run.slot_index) {
            ending.killed_by_watchdog();
        }
    }

    /// Stops watching a run that was taken back.
    pub fn overlook(&self, run: &SharedRun) {
        // The sandbox is still there, and with it the descriptors.
        for (_, fd) in descriptors(run) {
            let _ = epoll::delete(&self.epoll, fd);
        }
        if self.taken_back.fetch_add(1, Ordering::Relaxed) % MAX_TAKEN_BACK == MAX_TAKEN_BACK - 1 {
            self.wake();
        }
    }
}

/// What is watched of a run.
fn descriptors(run: &SharedRun) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
    let job = run.job.as_ref().map(|job| (JOB, job.pidfd.as_fd()));
    [(CONTROL, run.control.as_fd()), (PIDFD, run.pidfd.as_fd())].into_iter().chain(job)
}

/// Sends a watchdog the means to kill what is in a slot.
pub(super) fn kill_by(
    watchdog: &Watchdog,
    slot: &Slot,
    init_pidfd: BorrowedFd<'_>,
    sweeps_itself: bool,
) -> io::Result<()> {
    match slot.kill_file() {
        Some(file) => watchdog.kill_by_cgroup(slot.index, file),
        None if sweeps_itself => watchdog.kill_by_sweeper(slot.index, init_pidfd),
        None => watchdog.kill_by_pidfd(slot.index, init_pidfd),
    }
}
