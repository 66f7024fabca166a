//! What other threads send the collector, and the handle by which they send it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, epoll, eventfd};
use sandtimer_os::process;
use sandtimer_os::queue::{NodePool, Receiver, ReservedSender, Sender, queue_with};
use sandtimer_os::stdout::UnwrittenOutput;
use sandtimer_os::watchdog::Watchdog;

use super::commands::{EnforcerHandle, MAX_TAKEN_BACK};
use super::ending::{ReportedState, RunEnding};
use super::offer::Offer;
use super::output::SharedSpool;
use super::run::SharedRun;
use super::run_facts::RunFacts;
use super::waiting::OwnerEvent;
use crate::model::Warning;

/// A message to the collector.
#[derive(Debug)]
pub(crate) enum ToCollector {
    /// The streams of a new run in this row, unless they have been taken back by then.
    Attach(usize, Arc<Offer<Box<Attachment>>>),
    /// There is something to do for the run in this row: its streams are taken up.
    TakeUp(usize),
    /// Streams of a run that has ended, to which something in its live sandbox may write.
    Late(Box<Attachment>),
    /// A limit is near: inspect what the command waits for.
    Inspect(Arc<SharedRun>),
    /// The run is quiet: measure whether it uses anything.
    Measure(Arc<SharedRun>),
    /// Notify the run itself of a limit that is near.
    Warn(Arc<SharedRun>, Warning),
    /// Notify the run's owner of these events, and wake the tasks that wait for it.
    Notify(Arc<SharedRun>, Vec<OwnerEvent>),
    /// Have a watchdog started for the enforcer.
    StartWatchdog,
    /// The enforcer's thread has ended: nothing else ends the runs that are left.
    EnforcerEnded,
    /// The job's process is dead.
    Reap(Arc<SharedRun>),
    /// Kill what is left in the run's group one by one.
    KillEach(Arc<SharedRun>),
    /// The run's death was not confirmed within the bound.
    Overdue {
        run: Arc<SharedRun>,
        facts: Box<RunFacts>,
    },
    /// The run is dead.
    Dead {
        run: Arc<SharedRun>,
        facts: Box<RunFacts>,
    },
    /// The same, with all that the enforcer had of it.
    Ended(Box<RunEnding>),
    /// The enforcer does not need this any more.
    Discard(DiscardedValue),
    /// All that the job of a dead run has displayed has been received.
    DisplaysReceived(Arc<SharedRun>),
    Shutdown,
}

/// What the enforcer has received or owned and the collector frees, because the allocator has
/// locks.
#[derive(Debug)]
#[expect(dead_code, reason = "what it holds is moved to the collector's thread to be dropped there")]
pub(crate) enum DiscardedValue {
    Offer(Arc<Offer<Box<RunEnding>>>),
    Ending(Box<RunEnding>),
    OwnedString(String),
    Watchdog(Arc<Watchdog>),
}

/// The engine's ends of a run's streams.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub run: Arc<SharedRun>,
    /// Read ends with the spools they go to; `None` where the owner reads the stream itself.
    pub outputs: [Option<(Arc<OwnedFd>, SharedSpool)>; 2],
    /// What stdout is written to before it is in its pipe.
    pub unwritten: Option<Arc<UnwrittenOutput>>,
    /// What is still to be written to stdin.
    pub stdin: Option<(OwnedFd, Vec<u8>)>,
    /// The slave of its terminal, which would hang up whenever no process of the run has it open.
    pub terminal: Option<OwnedFd>,
    /// The read end of the progress channel.
    pub reports: Option<OwnedFd>,
    /// The write end of the notice channel.
    pub notices: Option<OwnedFd>,
}

/// What becomes of a run's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotDisposition {
    /// Something in it cannot be killed now.
    Quarantined,
    /// Init alone is alive in it, and nothing of the run is left there.
    Vacant,
    /// Everything in it is dead. With whether it was in quarantine before.
    Free { was_quarantined: bool },
}

type DisposeOfSlot = dyn Fn(&Arc<SharedRun>, SlotDisposition) + Send + Sync;

/// Disposes of every slot, after the run's Outcome is published.
#[derive(Clone)]
pub(crate) struct ReleaseHook(Arc<DisposeOfSlot>);

impl ReleaseHook {
    pub fn new(work: impl Fn(&Arc<SharedRun>, SlotDisposition) + Send + Sync + 'static) -> Self {
        ReleaseHook(Arc::new(work))
    }

    pub fn call(&self, run: &Arc<SharedRun>, disposition: SlotDisposition) {
        (self.0)(run, disposition);
    }
}

impl std::fmt::Debug for ReleaseHook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ReleaseHook")
    }
}

/// Has another thread start a watchdog and send it to the enforcer as
/// [`EnforcerCommand::Adopt`](super::commands::EnforcerCommand::Adopt).
pub(crate) type StartWatchdog = Box<dyn Fn(EnforcerHandle) + Send>;

/// Nodes of messages that are kept for the enforcer, and how many of them there are at first.
const MAX_NODES: usize = 4096;
pub(crate) const FIRST_NODES: usize = 512;
/// The same for an engine of a single run.
pub(crate) const FIRST_NODES_OF_ONE_SHOT: usize = 64;
/// The event of the eventfd that wakes the collector.
pub(super) const WAKE: u64 = u64::MAX;

/// The event of a stream; `kind` is below 4.
pub(super) fn token(slot_index: usize, kind: u64) -> epoll::EventData {
    epoll::EventData::new_u64((slot_index as u64) << 2 | kind)
}

/// Sends messages to the collector.
#[derive(Debug, Clone)]
pub(crate) struct CollectorHandle {
    sender: Sender<ToCollector>,
    /// Nodes of messages, for the enforcer.
    nodes: NodePool<ToCollector>,
    wake: Arc<OwnedFd>,
    /// The set of descriptors that the collector waits for.
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) release: ReleaseHook,
    /// Streams that were taken back, whose messages are in the queue.
    taken_back: Arc<AtomicU32>,
}

impl CollectorHandle {
    /// Makes the collector's queue, with this many nodes at first, and what wakes it.
    pub(super) fn new(release: ReleaseHook, first_nodes: usize) -> io::Result<(Self, Receiver<ToCollector>)> {
        let nodes = NodePool::with_max(MAX_NODES).with_reserve(first_nodes);
        let (sender, messages) = queue_with(nodes.clone());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok((CollectorHandle { sender, nodes, wake, epoll, release, taken_back: Arc::default() }, messages))
    }

    pub fn send(&self, message: ToCollector) {
        self.queue(message);
        self.wake();
    }

    /// Sends a message that the collector handles when it wakes.
    fn queue(&self, message: ToCollector) {
        // The collector ends only after the engine's last message.
        let _ = self.sender.send(message);
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Clears what [`CollectorHandle::wake`] has set.
    pub(super) fn clear_wake(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
    }

    /// A sender that allocates nothing as long as nodes are left, and does not wake the collector.
    pub(super) fn reserved_sender(&self) -> ReservedSender<ToCollector> {
        self.sender.clone().with_nodes(self.nodes.clone())
    }

    /// Has the collector handle a run's streams. It is woken once there is something to do; until
    /// it has taken them up, the calling thread may take them back.
    pub fn attach(&self, attachment: Attachment) -> Arc<Offer<Box<Attachment>>> {
        let slot_index = attachment.run.slot_index;
        let outputs = [0, 1].map(|index| attachment.outputs[index].as_ref().map(|(fd, _)| fd.clone()));
        // Once for each run.
        let _ = attachment.run.outputs.set(outputs.each_ref().map(|fd| fd.as_ref().map(Arc::downgrade)));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mut is_ready = attachment.stdin.is_some() || attachment.reports.is_some();
        for (index, fd) in outputs.iter().enumerate() {
            // Edge-triggered: an event of a run that the collector does not know yet must not keep
            // it busy.
            is_ready |= fd.as_ref().is_some_and(|fd| {
                epoll::add(&self.epoll, fd, token(slot_index, index as u64), flags).is_err()
            });
        }
        let offer = self.offer(Box::new(attachment));
        // An event from before the message was passed over.
        if is_ready || process::any_readable(outputs.iter().flatten().map(|fd| fd.as_fd())) {
            self.send(ToCollector::TakeUp(slot_index));
        }
        offer
    }

    /// Offers streams that the collector does not watch: it takes them up when their run is dead.
    pub fn offer(&self, attachment: Box<Attachment>) -> Arc<Offer<Box<Attachment>>> {
        let slot_index = attachment.run.slot_index;
        let offer = Offer::new(attachment);
        self.queue(ToCollector::Attach(slot_index, offer.clone()));
        offer
    }

    /// Stops watching streams that were taken back.
    pub fn forget(&self, attachment: &Attachment) {
        for (fd, _) in attachment.outputs.iter().flatten() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        if self.taken_back.fetch_add(1, Ordering::Relaxed) % MAX_TAKEN_BACK == MAX_TAKEN_BACK - 1 {
            self.wake();
        }
    }
}

impl RunEnding {
    /// Returns the message by which the collector notifies the owner of the remaining events and
    /// wakes tasks.
    pub fn owner_events(&mut self) -> Option<ToCollector> {
        let events = self.unsent_owner_events()?;
        Some(ToCollector::Notify(self.run.clone(), events))
    }

    /// What the collector does not know yet.
    pub fn report(&mut self) -> Option<ToCollector> {
        let (reported, facts) = self.take_report()?;
        let run = self.run.clone();
        Some(match reported {
            ReportedState::Dead => ToCollector::Dead { run, facts },
            _ => ToCollector::Overdue { run, facts },
        })
    }
}
