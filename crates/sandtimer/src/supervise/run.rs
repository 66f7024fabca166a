//! One run as the two threads and its owner share it, and the facts the enforcer gathers about it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;
use rustix::process::Signal;
use sandtimer_os::control::InitControl;
use sandtimer_os::process;
use sandtimer_os::remove::remove_tree;

use super::denials::NetworkDenials;
use super::displays::DisplaySource;
use super::follower::Follower;
use super::kept_inspection::{CommandInspection, Moves};
use super::proc_files::number_of;
use super::run_facts::{Cause, RunFacts};
use super::waiting::RunNotifier;
use crate::isolate::cgroup::{Counters, Slot};
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::StepName;
use crate::isolate::ptys::PtyShare;
use crate::limits::{Effect, EffectiveLimits, ScopeBound};
use crate::model::{Degradation, Isolation, Notice, Path, Progress, PythonThread};
use crate::scope::Deadline;
use crate::time::DeadlineCell;

/// What a run has besides its jail if a zygote made its process: that process is not init's child
/// but the engine's.
#[derive(Debug)]
pub(crate) struct Job {
    pub pid: i32,
    pub pidfd: Arc<OwnedFd>,
    /// The socket that its answer comes from. Shut down with the verdict, which wakes the thread
    /// that waits there.
    pub channel: Arc<OwnedFd>,
    /// When it was given its work, in monotonic nanoseconds.
    pub begun_at: u64,
    /// When all of it must be dead, as sent to init.
    pub until: u64,
    /// A whole program, which need not answer.
    pub program: bool,
    /// 0, or what was taken for its answer: one of the two below.
    pub answered: AtomicU8,
    /// 0, or one more than there were processes when its answer was taken and they were ended, or 1
    /// for a program that exited.
    pub killed: AtomicU64,
    /// How many processes it had left when its answer was taken and they were ended.
    pub leftovers: AtomicU64,
    /// What it is in a live sandbox.
    pub live: Option<LiveJob>,
    /// The jail for reuse if the job leaves no residue; the thread that uses it takes it.
    pub reusable_jail: Mutex<Option<Box<dyn ReusableJail>>>,
    /// Where its sandbox may see another: what files were stamped with when it began, in
    /// nanoseconds since 1970. A late kill must not end that other job.
    pub one_of_many: Option<u64>,
}

/// A sandbox for the next job, once nothing is left in it of the last.
pub(crate) trait ReusableJail: std::fmt::Debug + Send {
    /// Gives the jail back to its pool. Returns false if the pool wants no more; then the caller
    /// ends the jail.
    fn return_to_pool(self: Box<Self>) -> bool;
}

/// What a job is in a live jail: its end keeps the interpreter, or goes back to a checkpoint of it.
#[derive(Debug)]
pub(crate) struct LiveJob {
    /// The checkpoint to go back to, by its process id inside; `None` where there is none.
    pub checkpoint: Option<i32>,
    /// The interpreter was a checkpoint once, and is a child of init, which reports how it ends.
    pub is_inits: bool,
    /// Readable once there is a verdict: the channel is the next job's too.
    pub over: OwnedFd,
    /// What the sandbox had counted when the job began.
    pub before: SlotUsage,
    pub displays: Arc<dyn DisplaySource>,
    /// What came with the answer.
    pub reply: Mutex<Option<CellReply>>,
    /// The checkpoint that has become the interpreter.
    pub resumed: Mutex<Option<OwnedFd>>,
    /// It was interrupted before its wall; the signal may come after its answer.
    pub was_interrupted: AtomicBool,
    /// What is in the sandbox while nothing runs in it.
    pub idle: IdleContents,
    /// The interpreter is a shell: processes that a command has started are ended without it, as
    /// long as it responds.
    pub is_shell: bool,
}

/// What is in a live sandbox while nothing runs in it.
#[derive(Debug)]
pub(crate) enum IdleContents {
    /// This many tasks.
    Tasks(u64),
    /// These processes, whose threads come and go, with what earlier jobs left running and what was
    /// about to die; unknown if the processes cannot be listed.
    Processes(Option<BTreeSet<u32>>),
}

impl IdleContents {
    /// Whether a process is alive that was not there before the job; true if that is not known.
    pub fn has_more(&self, slot: &Slot) -> bool {
        match self {
            IdleContents::Tasks(idle) => slot.processes_now().is_none_or(|tasks| tasks > *idle),
            IdleContents::Processes(before) => match (before, slot.process_ids()) {
                (Some(before), Some(now)) => !now.is_subset(before),
                _ => true,
            },
        }
    }
}

/// The content of a job's answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellReply {
    pub value: Option<serde_json::Value>,
    pub error: Option<serde_json::Value>,
    pub results: Vec<serde_json::Value>,
    pub execution_count: Option<u64>,
    /// It was ended by the interrupt that comes before the wall.
    pub interrupted: bool,
    /// What a shell's command ended with.
    pub exit_code: Option<u8>,
}

impl CellReply {
    /// Takes the pickled exception out of the error, of which it is no part.
    pub fn take_pickled(&mut self) -> Option<serde_json::Value> {
        self.error.as_mut()?.as_object_mut()?.remove("pickled")
    }
}

/// What a slot has counted so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlotUsage {
    pub counters: Counters,
    pub run_queue_microseconds: Option<u64>,
}

/// Tasks of a job whose processes are listed when it ends.
const MAX_LISTED_TASKS: u64 = 64;
pub(crate) const ANSWERED_VALUE: u8 = 1;
pub(crate) const ANSWERED_RAISED: u8 = 2;

impl Job {
    /// The cause of the run's end where an answer was taken.
    pub fn answer(&self) -> Option<Cause> {
        match self.answered.load(Ordering::Acquire) {
            0 => None,
            kind => Some(Cause::Answer { raised: kind == ANSWERED_RAISED }),
        }
    }

    /// A number, never 0, that distinguishes it from the other jobs of its jail.
    pub fn token(&self) -> u32 {
        // The low half differs unless they began a multiple of four seconds apart, to the
        // nanosecond.
        (self.begun_at as u32).max(1)
    }

    /// It was ended without its sandbox.
    pub fn leaves(&self) -> bool {
        self.one_of_many.is_some() && self.killed.load(Ordering::Acquire) > 0
    }

    /// Takes what becomes of its sandbox.
    pub fn take_reusable_jail(&self) -> Option<Box<dyn ReusableJail>> {
        self.reusable_jail.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Wakes the thread that waits for an answer.
    pub fn hang_up(&self) {
        if let Some(live) = &self.live {
            // Full it is readable as well.
            let _ = rustix::io::write(&live.over, &1u64.to_ne_bytes());
            return;
        }
        // Closed already is as good.
        let _ = rustix::net::shutdown(&*self.channel, rustix::net::Shutdown::Both);
    }
}

/// What has paused a run: it continues when neither does any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pauser {
    /// The run was paused by itself.
    Run = 1,
    /// Its sandbox is paused.
    Sandbox = 2,
}

/// The watchdog that has received how a slot is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchdogId(pub(super) u64);

/// A directory on the host that goes with the run.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// Makes it with mode 0700, for `owner` (uid and gid) where that is another than this
    /// process's.
    pub fn make(path: PathBuf, owner: Option<u32>) -> io::Result<Self> {
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let directory = PrivateDirectory(path);
        if owner.is_some() {
            std::os::unix::fs::chown(&directory.0, owner, owner)?;
        }
        Ok(directory)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// Removes it and all below. What cannot be removed is in a directory that only its owner can
    /// enter.
    pub fn remove(&self) {
        let _ = remove_tree(&self.0);
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A wall limit that was moved.
#[derive(Debug, Clone)]
pub(crate) struct WallExtension {
    /// The limit that holds now, and whose it is.
    pub effect: Effect,
    /// The sum of all extensions, in nanoseconds; 0 if only pauses moved it.
    pub by: u64,
}

impl SharedRun {
    /// Has verdicts quote this wall limit, which is `by` nanoseconds longer than before. To be
    /// called while the scopes are locked, so that what fires then has this limit.
    pub fn note_wall(&self, deadline: &Deadline, by: u64) {
        let mut extended = self.extended.lock().unwrap_or_else(PoisonError::into_inner);
        let before = extended.as_ref().map_or(0, |extended| extended.by);
        let value = u64::try_from(deadline.limit.as_nanos()).unwrap_or(u64::MAX);
        let effect = Effect { value, ..deadline.effect.clone() };
        *extended = Some(WallExtension { effect, by: before.saturating_add(by) });
    }
}

/// A run, shared between its owner, the enforcer and the collector.
#[derive(Debug)]
pub(crate) struct SharedRun {
    pub id: String,
    pub slot_index: usize,
    pub control: Arc<InitControl>,
    pub pidfd: Arc<OwnedFd>,
    pub job: Option<Job>,
    pub slot: Arc<Slot>,
    pub cell: Arc<DeadlineCell>,
    pub effective: EffectiveLimits,
    /// What all runs of its sandbox may use together.
    pub sandbox_bound: Option<Arc<ScopeBound>>,
    pub scope: String,
    /// The run's own wall limit under its ceiling in nanoseconds, counted from the start of the
    /// command.
    pub wall: Option<u64>,
    /// The limit of the outer scope that bounds the wall, where one does, in nanoseconds from that
    /// scope's start.
    pub outer_wall: Option<u64>,
    pub grace: u64,
    /// The chosen grace under its ceiling, before the limits around the run.
    pub requested_grace: Duration,
    /// The wall limit as it was last extended.
    pub extended: Mutex<Option<WallExtension>>,
    /// How long before the wall its owner is to be warned, in nanoseconds.
    pub warn: Option<u64>,
    /// The signal that warns the run itself.
    pub warn_signal: Option<Signal>,
    /// The notices that it was given; used by the collector alone.
    pub notices: Mutex<Vec<Notice>>,
    /// Monotonic nanoseconds: submitted, and sandbox requested.
    pub submitted_at: u64,
    pub spawned_at: u64,
    /// When the command started, in monotonic nanoseconds; 0 before.
    pub started_at: AtomicU64,
    /// When the last output was read; 0 for never.
    pub last_output: AtomicU64,
    /// The read ends that the collector reads.
    pub outputs: OnceLock<[Option<Weak<OwnedFd>>; 2]>,
    /// The last inspection of the command; used by the collector alone.
    pub last_inspection: Mutex<Option<CommandInspection>>,
    /// Since when inspections have found no activity. The enforcer does not touch it.
    pub moves: Mutex<Moves>,
    /// The collector was asked for a measurement, and has not taken it.
    pub is_to_be_measured: AtomicBool,
    /// The collector was asked to kill what is left one by one, and has not begun.
    pub is_killed_one_by_one: AtomicBool,
    /// Its Python stacks as they were last read, and when.
    pub stacks: Mutex<(u64, Vec<PythonThread>)>,
    pub isolation: Isolation,
    /// What has turned out not to be enforced since the start; not the enforcer's.
    pub late_degraded: Mutex<Vec<Degradation>>,
    pub step_names: Vec<StepName>,
    pub optional_steps: Vec<(u64, &'static str)>,
    pub path: Path,
    /// Whether something in it can listen on a port: in its own network namespace, or the host's.
    pub network: bool,
    /// It has neither the host's network nor an allow-list.
    pub lacks_network: bool,
    /// What the network of its sandbox is refused.
    pub denials: Option<Arc<NetworkDenials>>,
    /// What of the host is not shown, for the caller.
    pub missing: Vec<String>,
    /// The same for what few callers miss: installations, entries of PATH.
    pub hidden: Vec<String>,
    pub sweeps_itself: bool,
    /// The watchdog that has received in advance how this run is killed.
    pub shown: Option<WatchdogId>,
    pub on_output_limit_end: bool,
    /// Reads its progress out of its captured output.
    pub follower: Option<Arc<dyn Follower>>,
    /// Only getting further is activity; output and computing are not.
    pub stall_by_progress: bool,
    /// The run's own temporary directory on the host, where there is no mount namespace to hide it
    /// in.
    pub private_directory: Option<PrivateDirectory>,
    /// Its mount and network namespaces, held until the outcome is out: taking the mounts apart
    /// waits for RCU.
    pub namespaces: Mutex<HeldNamespaces>,
    /// Outlives the run for callers that hold nothing else of it.
    pub waiting: Arc<RunNotifier>,
}

/// What is held for a sandbox until the outcome of its run is out.
#[derive(Debug, Default)]
pub struct HeldNamespaces {
    pub mounts: Option<OwnedFd>,
    pub _network: Option<Arc<LentNetwork>>,
    pub _ptys: Option<Arc<PtyShare>>,
    /// The sandbox that the run is in.
    pub _sandbox: Option<Box<dyn std::any::Any + Send>>,
}

/// Whether another program has removed the v2 group of a slot, and so moved its processes
/// elsewhere: from then on the group ends nothing and proves nothing.
pub(crate) fn group_is_gone(slot: &Slot) -> bool {
    slot.unified().is_some_and(|group| {
        matches!(statat(group, "cgroup.events", AtFlags::empty()), Err(Errno::NOENT | Errno::NODEV))
    })
}

impl SlotUsage {
    /// Of everything in a slot.
    pub fn of(slot: &Slot) -> Self {
        SlotUsage { counters: slot.used(), run_queue_microseconds: slot.run_queue_microseconds() }
    }

    fn since(self, before: &SlotUsage) -> Self {
        let run_queue = self.run_queue_microseconds.zip(before.run_queue_microseconds);
        SlotUsage {
            counters: self.counters.since(&before.counters),
            run_queue_microseconds: run_queue.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

impl SharedRun {
    /// Ends the jail by its init. Without a pid namespace init ends the rest first, continued if it
    /// was stopped, and is never killed: what it had not ended would become a child of the host's
    /// first process, and could not be found any more.
    pub fn end_init(&self) {
        let init = self.pidfd.as_fd();
        if self.sweeps_itself {
            let _ = process::signal(init, Signal::CONT);
            let _ = process::signal(init, Signal::TERM);
        } else {
            let _ = process::kill(init);
        }
    }

    /// Ends all processes of a job whose answer was taken. Returns false if only the enforcer can.
    pub fn kill_answered(&self) -> bool {
        let (Some(job), Some(_)) = (&self.job, self.slot.kill_file()) else { return false };
        if job.live.is_some() {
            return false;
        }
        if job.killed.load(Ordering::Acquire) > 0 {
            return true;
        }
        let count = self.slot.processes_now().map_or(1, |count| count.saturating_sub(1));
        job.leftovers.store(self.leftovers(count), Ordering::Relaxed);
        let killed = if job.one_of_many.is_some() {
            // By a descriptor of the one process: it may be dead by now, and its sandbox the next
            // job's.
            count == 1 && process::kill(job.pidfd.as_fd()).is_ok()
        } else {
            self.slot.kill_all()
        };
        if killed {
            job.killed.store(count + 1, Ordering::Release);
        }
        killed
    }

    /// How many processes are in its sandbox besides init and the job itself, which may be dead.
    /// `tasks` is the number of tasks without init. Threads are tasks, too, and are counted if
    /// there are more tasks than are listed.
    pub fn leftovers(&self, tasks: u64) -> u64 {
        let Some(job) = self.job.as_ref().filter(|_| tasks > 0) else { return 0 };
        if tasks == 1 && !process::is_dead(job.pidfd.as_fd()) {
            return 0;
        }
        // The enforcer has no time for a long list.
        if tasks > MAX_LISTED_TASKS {
            return tasks;
        }
        let own = [number_of(self.pidfd.as_fd()), number_of(job.pidfd.as_fd())];
        let is_left = |pid: &u32| !own.contains(&Some(*pid));
        self.slot
            .process_ids()
            .map_or(0, |processes| processes.iter().filter(|pid| is_left(pid)).count() as u64)
    }

    /// What it is in a live sandbox, if it is in one.
    pub fn live(&self) -> Option<&LiveJob> {
        self.job.as_ref()?.live.as_ref()
    }

    /// When the watchdog's time for it comes, if all of it must be dead at `hard`. Of a live
    /// sandbox init ends the job alone, and the watchdog everything: it leaves init the time to.
    pub fn watched_until(&self, hard: u64) -> u64 {
        const INIT_GRACE_PERIOD_NANOSECONDS: u64 = 2_000_000_000;
        if self.live().is_some() { hard.saturating_add(INIT_GRACE_PERIOD_NANOSECONDS) } else { hard }
    }

    /// What the run has used so far.
    pub fn used(&self) -> SlotUsage {
        let now = SlotUsage::of(&self.slot);
        self.live().map_or(now, |live| now.since(&live.before))
    }

    /// Processor time of the run so far in microseconds: one small read, for the enforcer.
    pub fn cpu_microseconds(&self) -> u64 {
        let before = self.live().map_or(0, |live| live.before.counters.cpu_microseconds);
        self.slot.cpu_microseconds().saturating_sub(before)
    }

    /// Out-of-memory kills in the run so far.
    pub fn out_of_memory_kills(&self) -> u64 {
        let before = self.live().map_or(0, |live| live.before.counters.out_of_memory_kills);
        self.slot.out_of_memory_kills().saturating_sub(before)
    }

    /// Notes that output was read.
    pub fn note_output(&self, now: u64) {
        self.last_output.store(now, Ordering::Relaxed);
    }

    /// Whether it has written output that the collector has not read. poll(2) waits for nothing
    /// that the run's processes hold.
    pub fn has_unread_output(&self) -> bool {
        let outputs = self.outputs.get().into_iter().flatten().flatten();
        outputs.filter_map(Weak::upgrade).any(|fd| process::any_readable(std::iter::once(fd.as_fd())))
    }

    /// Nanoseconds since its latest output, or since its start where there was none.
    pub fn quiet_for(&self, now: u64) -> u64 {
        match (self.last_output.load(Ordering::Relaxed), self.started_at.load(Ordering::Acquire)) {
            (0, 0) => 0,
            (last, started) => now.saturating_sub(last.max(started)),
        }
    }

    /// Captured output was read.
    pub fn follow(&self, stream: usize, bytes: &[u8], now: u64) {
        if let Some(follower) = &self.follower {
            follower.output(stream, bytes, self.started_at.load(Ordering::Acquire), now);
        }
    }

    /// It has reported this line.
    pub fn handle_report(&self, line: &[u8], now: u64) {
        if let Some(follower) = &self.follower {
            follower.report(line, self.started_at.load(Ordering::Acquire), now);
        }
    }

    /// How far it is, as far as its output shows that, and how likely it is done by `deadline`.
    pub fn progress(&self, deadline: Option<u64>, now: u64) -> Option<Progress> {
        self.follower.as_ref()?.progress(deadline, now)
    }

    /// When it was last active as the stall limit has it, processor time apart; 0 for never.
    pub fn active_at(&self) -> u64 {
        match &self.follower {
            Some(follower) if self.stall_by_progress => follower.advanced_at(),
            _ => self.last_output.load(Ordering::Relaxed),
        }
    }

    /// Keeps an inspection of the command.
    pub fn note_inspection(&self, inspection: Option<CommandInspection>) {
        *self.last_inspection.lock().unwrap_or_else(PoisonError::into_inner) = inspection;
    }

    /// Remembers its Python stacks.
    pub fn note_stacks(&self, at: u64, stacks: Vec<PythonThread>) {
        *self.stacks.lock().unwrap_or_else(PoisonError::into_inner) = (at, stacks);
    }

    /// Keeps the run's mount namespace.
    pub fn keep_namespace(&self, namespace: OwnedFd) {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).mounts = Some(namespace);
    }

    /// Lets the run's mount and network namespaces go; this may take a while.
    pub fn drop_namespaces(&self) {
        let namespaces = std::mem::take(&mut *self.namespaces.lock().unwrap_or_else(PoisonError::into_inner));
        drop(namespaces);
    }

    /// Remembers that a layer is not enforced as planned.
    pub fn note_degraded(&self, layer: &str, reason: &str) {
        let degraded = Degradation { layer: layer.to_owned(), reason: reason.to_owned() };
        self.late_degraded.lock().unwrap_or_else(PoisonError::into_inner).push(degraded);
    }

    /// The isolation as applied: the plan's, less what failed on the way or since.
    pub fn applied(&self, facts: &RunFacts) -> Isolation {
        let mut isolation = self.isolation.clone();
        for failed in facts.failed_steps.iter().filter(|step| !step.required) {
            let name = self.optional_steps.iter().find(|(number, _)| *number == failed.number);
            let error = std::io::Error::from_raw_os_error(failed.errno);
            let layer = name.map_or("step", |(_, name)| name).to_owned();
            isolation.degraded.push(Degradation { layer, reason: error.to_string() });
        }
        let late = self.late_degraded.lock().unwrap_or_else(PoisonError::into_inner);
        isolation.degraded.extend(late.iter().cloned());
        drop(late);
        isolation
    }
}
