//! Starts the enforcer, the collector and the recycler, has a watchdog started unless there is one,
//! and knows whether they are armed.
//!
//! Nothing here waits for a process: whether there is a watchdog, and the enforcer's priority, are
//! received when a first run is about to start, or the caller asks, and waited for no longer than
//! [`ARMING_LIMIT`].

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sandtimer_os::watchdog::{SharedTable, Watchdog};
use sandtimer_os::{process, thread};

use super::error::Error;
use super::launchers::{Launchers, Starter};
use super::pool::Pool;
use crate::isolate::lease::Lease;
use crate::supervise::collector::Collector;
use crate::supervise::commands::EnforcerHandle;
use crate::supervise::deliveries::{
    CollectorHandle, FIRST_NODES, FIRST_NODES_OF_ONE_SHOT, ReleaseHook, SlotDisposition,
};
use crate::supervise::enforcer::{Enforcer, EnforcerParts};
use crate::supervise::run::{Job, ReusableJail, SharedRun};

/// What is armed to end runs, and whether the enforcer is real-time.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EnforcementStatus {
    /// Whether the enforcer has a real-time priority; else why not.
    pub real_time: Result<(), String>,
    /// Whether the watchdog process is running; else why not.
    pub watchdog: Result<(), String>,
}

/// How long a first run waits for what is to be armed. Infrastructure: always finite.
const ARMING_LIMIT: Duration = Duration::from_secs(5);

/// What is being armed while the engine is already running.
#[derive(Debug)]
pub(super) struct Arming {
    armed: OnceLock<EnforcementStatus>,
    real_time: Mutex<Receiver<Result<(), String>>>,
    watchdog: Mutex<Receiver<Result<(), String>>>,
}

impl Arming {
    pub(super) fn wait(&self) -> &EnforcementStatus {
        let receive = |from: &Mutex<Receiver<Result<(), String>>>| {
            let received = from.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(ARMING_LIMIT);
            received.unwrap_or_else(|error| Err(format!("its start was not reported: {error}")))
        };
        self.armed.get_or_init(|| EnforcementStatus {
            real_time: receive(&self.real_time),
            watchdog: receive(&self.watchdog),
        })
    }
}

/// The working threads.
pub(super) struct Threads {
    pub enforcer: EnforcerHandle,
    pub collector: CollectorHandle,
    pub arming: Arming,
    /// Those that are joined at the end, without a bound.
    pub handles: Vec<JoinHandle<()>>,
    pub recycler: Option<Recycler>,
}

/// The thread that takes apart what runs leave: a file system in memory with gigabytes, a directory
/// with a million files. That takes seconds.
#[derive(Debug)]
pub(super) struct Recycler {
    /// Absent where the collector takes runs apart itself.
    runs: Option<Sender<RecycledRun>>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// A run that has ended, and whether it was in quarantine; `None` at the end of the engine.
type RecycledRun = Option<(Arc<SharedRun>, bool)>;

/// How long the end of an engine waits until everything is taken apart, however many runs have left
/// something. Infrastructure: always finite. What is left then is removed by the next engine.
pub(super) const RECYCLING_LIMIT: Duration = Duration::from_secs(10);

impl Recycler {
    fn start(pool: Arc<Pool>) -> Result<Self, Error> {
        let (runs, received) = channel::<RecycledRun>();
        let (is_running, ended) = channel();
        let work = move || {
            let _is_running: Sender<()> = is_running;
            // Dropped before: the thread that waits for this one drops the pool last, and with it
            // its control groups.
            let (pool, received) = (pool, received);
            thread::block_signals();
            while let Ok(Some((run, is_quarantined))) = received.recv() {
                // A panic, whose message is on stderr, costs its slot and no other run's.
                let _ = catch_unwind(AssertUnwindSafe(|| release_run(&pool, &run, is_quarantined)));
            }
        };
        let thread = std::thread::Builder::new().name("st-recycler".to_owned()).stack_size(256 << 10);
        drop(thread.spawn(work).map_err(Error::system("cannot start a thread"))?);
        Ok(Recycler { runs: Some(runs), ended })
    }

    /// For an engine of a single run: the collector's thread releases what the run leaves, because
    /// no other run waits for it. Returns also what that thread has to drop at its end.
    fn of_collector() -> (Self, Sender<()>) {
        let (is_running, ended) = channel();
        (Recycler { runs: None, ended }, is_running)
    }

    /// Waits until everything is taken apart, no longer than `limit`. Nothing is recycled after
    /// this.
    pub(super) fn finish(self, limit: Duration) {
        let _ = self.runs.map(|runs| runs.send(None));
        // Nothing is ever sent: it returns when the thread has ended, or the time has come.
        let _ = self.ended.recv_timeout(limit);
    }
}

/// Takes apart what a run had, and returns its slot to the pool.
fn release_run(pool: &Pool, run: &SharedRun, is_quarantined: bool) {
    if is_quarantined {
        pool.release();
    }
    if run.live().is_some() {
        // The sandbox is the context's.
        return;
    }
    run.drop_namespaces();
    drop(run.job.as_ref().and_then(Job::take_reusable_jail));
    if let Some(directory) = &run.private_directory {
        directory.remove();
    }
    pool.give_back(run.slot_index, run.slot.limits());
}

impl Threads {
    /// Starts them; in an engine of a single run (`is_one_shot`) the collector is the recycler.
    ///
    /// # Errors
    /// When the system refuses threads or descriptors.
    pub(super) fn start(
        pool: &Arc<Pool>,
        launchers: &Launchers,
        lease: &Lease,
        is_one_shot: bool,
        watchdog: Option<Watchdog>,
    ) -> Result<Self, Error> {
        let (recycler, is_collecting) = match is_one_shot {
            true => {
                let (recycler, is_collecting) = Recycler::of_collector();
                (recycler, Some(is_collecting))
            }
            false => (Recycler::start(pool.clone())?, None),
        };
        let (slot_pool, ended) = (pool.clone(), recycler.runs.clone());
        let release = move |run: &Arc<SharedRun>, disposition: SlotDisposition| match disposition {
            SlotDisposition::Quarantined => slot_pool.quarantine(),
            SlotDisposition::Vacant => {
                run.drop_namespaces();
                if !run
                    .job
                    .as_ref()
                    .and_then(Job::take_reusable_jail)
                    .is_some_and(ReusableJail::return_to_pool)
                {
                    if !run.slot.kill_all() {
                        // The rest dies with init, which may be dead already.
                        let _ = process::kill(run.pidfd.as_fd());
                    }
                    process::wait_readable(run.pidfd.as_fd(), 1000);
                    process::reap(run.pidfd.as_fd());
                    slot_pool.give_back(run.slot_index, run.slot.limits());
                }
            }
            // The sandbox is a context's: there is nothing to take apart.
            SlotDisposition::Free { was_quarantined: false } if run.live().is_some() => {}
            // The thread runs for as long as the collector.
            SlotDisposition::Free { was_quarantined } => match &ended {
                Some(ended) => drop(ended.send(Some((run.clone(), was_quarantined)))),
                None => release_run(&slot_pool, run, was_quarantined),
            },
        };
        let table = SharedTable::new().map_err(Error::system("cannot map the watchdog's table"))?;
        let table = Arc::new(table);
        let (starter, shared) = (launchers.starter(), table.clone());
        let another_watchdog = Box::new(move |enforcer| start_watchdog(&starter, &shared, enforcer, None));
        let first_nodes = if is_one_shot { FIRST_NODES_OF_ONE_SHOT } else { FIRST_NODES };
        let (collecting, collector) =
            Collector::new(ReleaseHook::new(release), another_watchdog, first_nodes)
                .map_err(Error::system("cannot make the collector"))?;
        let directories: std::io::Result<Vec<OwnedFd>> =
            pool.cgroups().slot_directories().map(|directory| directory.try_clone_to_owned()).collect();
        let parts = EnforcerParts {
            table: table.clone(),
            collector: collector.clone(),
            lease: lease.lock().map_err(Error::system("cannot keep the engine number"))?,
            sweep_directories: directories.map_err(Error::system("cannot keep the cgroup directories"))?,
        };
        let (enforcing, enforcer) =
            Enforcer::new(parts).map_err(Error::system("cannot make the enforcer"))?;
        let (report, armed) = sync_channel(1);
        match watchdog.filter(|watchdog| watchdog.watch(&table).is_ok()) {
            Some(watchdog) => {
                enforcer.watchdog(Ok(watchdog));
                let _ = report.send(Ok(()));
            }
            None => start_watchdog(&launchers.starter(), &table, enforcer.clone(), Some(report)),
        }
        let (report, real_time) = sync_channel(1);
        let enforce = move || {
            thread::block_signals();
            // Fails only if the engine is gone.
            let _ = report.send(thread::make_real_time().map_err(|error| error.to_string()));
            enforcing.serve();
        };
        let for_collector = enforcer.clone();
        let collect = move || {
            let _is_collecting: Option<Sender<()>> = is_collecting;
            thread::block_signals();
            collecting.serve(for_collector);
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(256 << 10)
                .spawn(work)
                .map_err(Error::system("cannot start a thread"))
        };
        let mut handles = vec![spawn("st-enforcer", Box::new(enforce))?];
        let collector_thread = spawn("st-collector", Box::new(collect))?;
        if !is_one_shot {
            handles.push(collector_thread);
        }
        let arming =
            Arming { armed: OnceLock::new(), real_time: Mutex::new(real_time), watchdog: Mutex::new(armed) };
        Ok(Threads { enforcer, collector, arming, handles, recycler: Some(recycler) })
    }
}

/// Has a watchdog started for `enforcer`, and reports whether it could be. Not by the enforcer
/// itself: starting a process waits for its exec, which has no priority.
fn start_watchdog(
    starter: &Starter,
    table: &Arc<SharedTable>,
    enforcer: EnforcerHandle,
    report: Option<SyncSender<Result<(), String>>>,
) {
    starter.start_watchdog(table.clone(), move |started| {
        let state = started.as_ref().map(|_| ()).map_err(ToString::to_string);
        enforcer.watchdog(started);
        // It waits in the channel until it is asked for.
        let _ = report.map(|report| report.send(state));
    });
}

#[cfg(test)]
mod tests {
    use sandtimer_os::clock::monotonic_nanoseconds;

    use super::*;

    #[test]
    fn recycler_that_hangs_is_not_waited_for_longer_than_its_limit() {
        let (runs, _received) = channel();
        let (is_running, ended) = channel::<()>();
        let began = monotonic_nanoseconds();
        Recycler { runs: Some(runs), ended }.finish(Duration::from_millis(100));
        let waited = monotonic_nanoseconds() - began;
        assert!((100_000_000..10_000_000_000).contains(&waited), "{waited} ns");
        drop(is_running);
    }

    #[test]
    fn recycler_that_has_ended_is_not_waited_for() {
        let (runs, received) = channel();
        let (is_running, ended) = channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let _is_running = is_running;
                while let Ok(Some(_)) = received.recv() {}
            });
            let began = monotonic_nanoseconds();
            Recycler { runs: Some(runs), ended }.finish(Duration::from_secs(100));
            assert!(monotonic_nanoseconds() - began < 50_000_000_000);
        });
    }
}
