//! The engine when something fails around it: runs that cannot be killed, no descriptors left,
//! jails taken apart by another program. One test at a time, for some of this is the whole
//! process's.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use crate::as_user;
use crate::processes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use processes::{ListedProcess, children_named, living};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use sandtimer::engine::{Engine, Options, Run, Spec, Stream};
use sandtimer::model::{Ending, Layer, LimitKind, Outcome, Proof, Source, Tier};
use sandtimer::{Error, Limits};

/// Runs `work` while no other test of this file runs; fails a test that hangs with a message
/// instead of a timeout.
fn alone(work: impl FnOnce() + Send + 'static) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || {
        work();
        sender.send(())
    });
    match receiver.recv_timeout(Duration::from_secs(120)) {
        Ok(()) => {}
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
    }
}

/// Looks until `condition` holds, no longer than `bound`.
fn until(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + bound;
    let (_hold, gone) = channel::<()>();
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        let _ = gone.recv_timeout(Duration::from_millis(2));
    }
    true
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script])
}

/// A command that waits for ever and can be recognised by its arguments.
fn waiting(marker: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", "while :; do sleep 1000; done", marker])
}

fn marker() -> String {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    format!("st-fault-{:016x}", u64::from_ne_bytes(bytes))
}

/// The processes that carry `marker`, and their sandbox's first one.
fn marked(marker: &str) -> BTreeSet<i32> {
    let all = living();
    let carries = |pid: i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    };
    let own = i32::try_from(std::process::id()).unwrap();
    let mut found = BTreeSet::new();
    for marked in all.iter().filter(|process| carries(process.pid)) {
        found.insert(marked.pid);
        let is_init = all.iter().any(|other| other.pid == marked.parent && other.parent == own);
        found.extend(is_init.then_some(marked.parent));
    }
    found
}

#[track_caller]
fn assert_dead(outcome: &Outcome) {
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
}

#[track_caller]
fn assert_works(engine: &Engine) {
    let outcome = engine.run_blocking(shell("echo fine")).unwrap();
    assert_eq!(outcome.stdout, "fine\n", "{outcome:?}");
    assert_dead(&outcome);
}

/// Where this process's group of a hierarchy is: `freezer` of v1, or v2 for an empty name.
fn group_of(controller: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let point = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let right = match controller {
            "" => fields.get(2) == Some(&"cgroup2"),
            name => {
                fields.get(2) == Some(&"cgroup") && fields.get(3)?.split(',').any(|option| option == name)
            }
        };
        right.then(|| fields[1].to_owned())
    })?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let cgroup = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        (parts.next()?.split(',').any(|name| name == controller)).then(|| parts.next().map(str::to_owned))?
    })?;
    Some(Path::new(&point).join(cgroup.trim_start_matches('/')))
}

/// A v1 freezer group of the test's own: what is in it and frozen cannot be killed. Thawed and
/// removed when dropped.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let path = group_of("freezer")?.join(marker());
        std::fs::create_dir(&path).ok()?;
        Some(Freezer(path))
    }

    fn freeze(&self, pids: &BTreeSet<i32>) {
        for pid in pids {
            std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        std::fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
        let state = || std::fs::read_to_string(self.0.join("freezer.state")).unwrap();
        assert!(until(seconds(5.0), || state() == "FROZEN\n"), "{}", state());
    }

    fn thaw(&self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        until(seconds(2.0), || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// A14. What is frozen by v1 takes no signal until it is thawed: as unkillable as a process waiting
/// for a dead disk.
#[test]
fn frozen_run_has_its_verdict_on_time_and_frees_its_slot() {
    alone(|| {
        let Some(freezer) = Freezer::new() else {
            // The v2 freezer lets itself be killed, so nothing here could be made unkillable.
            return skipped("no v1 freezer hierarchy in which a group can be made");
        };
        let engine = Engine::new().unwrap();
        let marker = marker();
        let run = engine.start(waiting(&marker).limits(Limits::new().wall(seconds(1.0)))).unwrap();
        // Its clock starts just before the command is executed, and only then carries its
        // arguments. One look, for the command soon forks, and until that child executes something
        // it looks like the command.
        let mut inside = BTreeSet::new();
        let both = until(seconds(0.9), || {
            inside = marked(&marker);
            inside.len() == 2
        });
        assert!(both, "no init and command: {inside:?}");
        freezer.freeze(&inside);

        let first = run.wait_blocking();
        assert_eq!((first.ending, first.tree.proof), (Ending::Timeout, Proof::Pending), "{first:?}");
        assert_eq!(first.tree.survivors, None);
        let late = first.verdict.as_ref().unwrap().late_ms;
        assert!(late < 250.0, "{late} ms late");
        let given_up = run.settled_blocking();
        assert_eq!((given_up.tree.proof, given_up.tree.survivors), (Proof::Unkillable, None), "{given_up:?}");
        // What the command forked on its way into the freezer may be there as well.
        let now = marked(&marker);
        assert!(now.is_superset(&inside), "{inside:?} are dead, {now:?} live: the test shows nothing");
        assert!(until(seconds(2.0), || engine.quarantined() == 1), "its slot is not in quarantine");
        assert_works(&engine);
        assert_eq!(engine.quarantined(), 1, "the slot came back with somebody in it");

        freezer.thaw();
        assert!(until(seconds(5.0), || engine.quarantined() == 0), "the slot did not come back");
        assert_eq!(marked(&marker), BTreeSet::new(), "a survivor");
        let last = run.settled_blocking();
        assert_eq!((last.ending, last.tree.survivors), (Ending::Timeout, Some(0)), "{last:?}");
        assert_works(&engine);
    });
}

/// The control of the test above: the same run, not frozen.
#[test]
fn the_same_run_unfrozen_dies_at_once() {
    alone(|| {
        let engine = Engine::new().unwrap();
        let marker = marker();
        let run = engine.start(waiting(&marker).limits(Limits::new().wall(seconds(0.3)))).unwrap();
        let outcome = run.wait_blocking();
        assert_eq!(outcome.ending, Ending::Timeout);
        assert_dead(&outcome);
        assert_eq!((engine.quarantined(), marked(&marker)), (0, BTreeSet::new()));
    });
}

/// A14 by v2: another program freezes the run's own group.
#[test]
fn a_run_frozen_in_its_own_group_is_killed_on_time() {
    alone(|| {
        let engine = Engine::new().unwrap();
        let marker = marker();
        let run = engine.start(waiting(&marker).limits(Limits::new().wall(seconds(1.0)))).unwrap();
        run.started_blocking();
        let Some(group) = group_within(children_named("st-init")[0].pid) else {
            return skipped("no v2 group for the run");
        };
        std::fs::write(group.join("cgroup.freeze"), "1").unwrap();
        let frozen = || std::fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
        assert!(until(seconds(0.9), || frozen().contains("frozen 1")), "{}", frozen());
        let outcome = run.wait_blocking();
        assert_eq!(outcome.ending, Ending::Timeout);
        assert_dead(&outcome);
        assert_works(&engine);
    });
}

/// The file with the memory limit of the engine that has this process in a run, and the bytes in
/// it.
fn limit_of_engine(pid: i32) -> Option<(PathBuf, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    [("memory", "memory.limit_in_bytes"), ("", "memory.max")].into_iter().find_map(|(controller, file)| {
        let mut cgroups = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (_, cgroup) = cgroups.find(|(name, _)| *name == controller)?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut owns = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (_, here) = owns.find(|(name, _)| *name == controller)?;
        // As far up as this process's own place is below the mount.
        let top = group_of(controller)?.ancestors().nth(Path::new(here).components().count() - 1)?.to_owned();
        let path = top.join(Path::new(cgroup).parent()?.strip_prefix("/").ok()?).join(file);
        let bytes = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        Some((path, bytes))
    })
}

/// C9: each within its own limit, and together beyond the engine's.
#[test]
fn all_runs_of_an_engine_together_are_bounded() {
    const FILL: &str =
        "held = bytearray(96 << 20); print(len(held), flush=True); import time; time.sleep(60)";
    alone(|| {
        let engine = Engine::new().unwrap();
        if engine.host().expect("a launcher").cgroup_limits.is_err() {
            return skipped("no memory controller");
        }
        let fill = || {
            let limits = Limits::new().memory(256 << 20).wall(seconds(10.0));
            let run = engine.start(Spec::command(["/usr/bin/python3", "-c", FILL]).limits(limits)).unwrap();
            run.started_blocking();
            run
        };
        let holds =
            |run: &Run| until(seconds(9.0), || !run.output(Stream::Stdout, 0, 64).unwrap().bytes.is_empty());
        let end = |run: Run| {
            run.cancel("enough");
            run.settled_blocking().ending
        };
        let (first, second) = (fill(), fill());
        let (file, bytes) =
            limit_of_engine(children_named("st-init")[0].pid).expect("a limit of the engine's group");
        let machine = sandtimer_os::probe::total_memory_bytes();
        let one = engine.ceilings().get(LimitKind::Memory).unwrap();
        assert!(one < bytes && bytes <= machine / 100 * 90 + 4096, "{bytes} of {machine}, {one} for one run");
        // The control: where they fit together each has what it asks for.
        assert!(holds(&first) && holds(&second));
        assert_eq!((end(first), end(second)), (Ending::Cancelled, Ending::Cancelled));
        std::fs::write(&file, (160_u64 << 20).to_string()).unwrap();
        let first = fill();
        assert!(holds(&first));
        let second = fill().settled_blocking();
        first.cancel("enough");
        let outcomes = [second, first.settled_blocking()];
        let killed = outcomes.iter().find(|outcome| outcome.ending == Ending::OutOfMemory);
        let verdict = killed.and_then(|outcome| outcome.verdict.as_ref()).expect("a run was killed");
        assert_eq!((verdict.layer, verdict.scope.as_str()), (Layer::Infrastructure, "engine"), "{verdict:?}");
        assert_eq!((verdict.source, verdict.limit), (Source::Ceiling, Some(160 << 20)), "{verdict:?}");
        assert!(verdict.sentence.contains("Its own limit of 256 MiB"), "{verdict:?}");
        std::fs::write(&file, bytes.to_string()).unwrap();
        assert_works(&engine);
    });
}

/// The v2 group of a process, if it is an engine's.
fn group_within(pid: i32) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let cgroup = text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let top =
        mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?.to_owned();
    cgroup.contains("sandtimer").then(|| Path::new(&top).join(cgroup.trim_start_matches('/')))
}

/// Prints in the test's output that something could not be tried, and why.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Numbers of this process's open descriptors.
fn descriptors() -> BTreeSet<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut open: BTreeSet<u64> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // Without the descriptor of the listing itself.
    open.retain(|number| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok());
    open
}

/// How many descriptors of the kinds that a run is made of are open: pipes, sockets, pidfds, memory
/// files, namespaces of mounts. Rows keep others for the next run.
fn descriptors_of_runs() -> usize {
    let kinds = ["pipe:", "socket:", "anon_inode:[pidfd]", "pidfd:", "/memfd:", "mnt:"];
    let of_a_run = |number: &u64| {
        let target = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        kinds.iter().any(|kind| target.to_string_lossy().starts_with(kind))
    };
    descriptors().iter().filter(|number| of_a_run(number)).count()
}

/// The lowest count for a while: what the last run's end closes may still be open when the end is
/// reported.
fn descriptors_of_runs_at_rest() -> usize {
    let mut fewest = usize::MAX;
    until(seconds(0.3), || {
        fewest = fewest.min(descriptors_of_runs());
        false
    });
    fewest
}

/// Only this many more descriptors are available while this lives.
struct ScarceDescriptors {
    before: Rlimit,
    /// In every number that was free below the highest one taken.
    _fill: Vec<std::fs::File>,
}

impl ScarceDescriptors {
    fn leaving(room: u64) -> Self {
        let highest = *descriptors().last().unwrap();
        let mut fill = vec![];
        loop {
            let file = std::fs::File::open("/dev/null").unwrap();
            if u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap() > highest {
                break;
            }
            fill.push(file);
        }
        let before = getrlimit(Resource::Nofile);
        let fewer = Rlimit { current: Some(highest + 1 + room), maximum: before.maximum };
        setrlimit(Resource::Nofile, fewer).unwrap();
        ScarceDescriptors { before, _fill: fill }
    }
}

impl Drop for ScarceDescriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

/// I10: the caller gets the error and may try again.
#[test]
fn engine_out_of_descriptors_reports_it_and_recovers() {
    alone(|| {
        let engine = Engine::new().unwrap();
        assert_works(&engine);
        let scarce = ScarceDescriptors::leaving(60);
        let mut runs = vec![];
        let refused = loop {
            match engine.start(shell("sleep 1000")) {
                Ok(run) => runs.push(run),
                Err(error) => break error,
            }
            assert!(runs.len() < 60, "every run needs descriptors");
        };
        assert!(!runs.is_empty(), "no room for a single run: {refused}");
        assert!(matches!(refused, Error::System { .. }) && refused.is_retryable(), "{refused:?}");
        assert!(refused.to_string().contains("Too many open files"), "{refused}");
        for run in &runs {
            run.cancel("make room");
        }
        for run in runs {
            let outcome = run.settled_blocking();
            // One whose sandbox was just being built may have failed for the same reason.
            assert!(matches!(outcome.ending, Ending::Cancelled | Ending::InfraError), "{outcome:?}");
            assert_dead(&outcome);
        }
        let again =
            until(seconds(5.0), || engine.run_blocking(shell("true")).is_ok_and(|outcome| outcome.ok));
        assert!(again, "still out of descriptors: {:?}", engine.run_blocking(shell("true")));
        drop(scarce);
        assert_works(&engine);
        assert!(children_named("st-init").is_empty(), "a sandbox was left");
    });
}

/// I14: for each descriptor that a start needs there is a turn in which it is the one that cannot
/// be had.
#[test]
fn a_start_that_fails_at_any_descriptor_leaves_nothing() {
    alone(|| {
        // Whatever the process opens once for all.
        assert_works(&Engine::new().unwrap());
        let without_engine = descriptors();
        let engine = Engine::new().unwrap();
        assert_works(&engine);
        let before = descriptors_of_runs_at_rest();
        let (mut failed, mut worked) = (0, 0);
        for room in 0..48 {
            // What the last run's end has yet to close would be room, too.
            assert!(until(seconds(2.0), || descriptors_of_runs() <= before), "room {room}: not at rest");
            let scarce = ScarceDescriptors::leaving(room);
            match engine.start(shell("exit 3")) {
                Ok(run) => {
                    let outcome = run.settled_blocking();
                    assert!(
                        outcome.exit_code == Some(3) || outcome.ending == Ending::InfraError,
                        "room {room}: {outcome:?}"
                    );
                    assert_dead(&outcome);
                    worked += 1;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "room {room}: {error}");
                    failed += 1;
                }
            }
            drop(scarce);
            assert!(
                until(seconds(2.0), || children_named("st-init").is_empty()),
                "room {room}: a sandbox was left"
            );
            assert_works(&engine);
        }
        assert!(failed > 5 && worked > 0, "{failed} failed, {worked} worked: no step was missed one by one");
        let back = until(seconds(2.0), || descriptors_of_runs() <= before);
        assert!(back, "{} descriptors of runs, {before} before", descriptors_of_runs());
        assert_eq!(engine.quarantined(), 0);
        drop(engine);
        let back = until(seconds(3.0), || descriptors().len() <= without_engine.len());
        assert!(back, "{} descriptors, {} without an engine", descriptors().len(), without_engine.len());
    });
}

/// I14 for the engine itself.
#[test]
fn an_engine_that_fails_at_any_descriptor_leaves_nothing() {
    alone(|| {
        // Whatever the process opens once for all.
        assert_works(&Engine::new().unwrap());
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (before, threads_before) = (descriptors(), threads());
        let mut failed = 0;
        for room in 0..48 {
            let scarce = ScarceDescriptors::leaving(room);
            let made = Engine::new();
            drop(scarce);
            failed += usize::from(made.is_err());
            // What it missed when it was made is asked for again.
            if let Ok(engine) = made {
                let outcome = engine.run_blocking(shell("true"));
                let outcome = outcome.unwrap_or_else(|error| panic!("room {room}: {error}"));
                assert!(outcome.ok, "room {room}: {outcome:?}");
                assert_dead(&outcome);
            }
            let left = || ["st-init", "st-launcher", "st-watchdog"].map(children_named).concat();
            assert!(until(seconds(3.0), || left().is_empty()), "room {room}: {:?} were left", left());
        }
        assert!(failed > 3, "only {failed} failed");
        let back = until(seconds(3.0), || descriptors().len() <= before.len() && threads() <= threads_before);
        assert!(
            back,
            "{} of {} descriptors, {} of {threads_before} threads",
            descriptors().len(),
            before.len(),
            threads()
        );
        assert_works(&Engine::new().unwrap());
    });
}

/// I11: no caller waits for them any more.
#[test]
fn runs_of_a_dropped_engine_are_dead() {
    alone(|| {
        let markers: Vec<String> = (0..100).map(|_| marker()).collect();
        {
            let engine = Engine::new().unwrap();
            for marker in &markers {
                drop(engine.start(waiting(marker)).unwrap());
            }
            let up = || markers.iter().filter(|marker| !marked(marker).is_empty()).count();
            assert!(until(seconds(20.0), || up() == markers.len()), "{} are up", up());
        }
        let alive: Vec<_> = markers.iter().filter(|marker| !marked(marker).is_empty()).collect();
        assert!(alive.is_empty(), "{} outlived the engine", alive.len());
        assert!(children_named("st-init").is_empty(), "a sandbox was left");
    });
}

/// I13: the caller that uses it gets the error that it is gone; the next jail is a new one.
#[test]
fn killed_parked_jail_is_an_error_and_the_next_one_works() {
    alone(|| {
        let engine = Engine::new().unwrap();
        for everything in [false, true] {
            let parked = engine.park(&shell("")).unwrap();
            let inits = children_named("st-init");
            assert_eq!(inits.len(), 1, "one sandbox is parked");
            if everything {
                let children = living().into_iter().filter(|child| child.parent == inits[0].pid);
                children.for_each(|child| child.signal(Signal::KILL));
            } else {
                inits[0].signal(Signal::KILL);
            }
            assert!(until(seconds(5.0), || children_named("st-init").is_empty()), "init lives on");
            match parked.start(shell("echo never")) {
                Err(error) => assert!(error.is_retryable(), "{error}"),
                Ok(run) => {
                    let outcome = run.settled_blocking();
                    assert_eq!(
                        (outcome.ending, outcome.stdout.as_str()),
                        (Ending::InfraError, ""),
                        "{outcome:?}"
                    );
                    assert_dead(&outcome);
                }
            }
            let again =
                engine.park(&shell("")).unwrap().start(shell("echo again")).unwrap().settled_blocking();
            assert_eq!(again.stdout, "again\n", "{again:?}");
            assert_eq!(engine.quarantined(), 0);
        }
    });
}

/// I13: an administrator moved what is in a sandbox elsewhere and removed its v2 group.
fn remove_group(inits: &[ListedProcess]) -> bool {
    let init = inits[0].pid;
    let (Some(top), Some(group)) = (group_of(""), group_within(init)) else { return false };
    assert_ne!(group, top, "the sandbox has no group of its own");
    for inside in living().iter().filter(|process| process.pid == init || process.parent == init) {
        std::fs::write(top.join("cgroup.procs"), inside.pid.to_string()).unwrap();
    }
    assert!(until(seconds(2.0), || std::fs::remove_dir(&group).is_ok()), "{} is busy", group.display());
    true
}

#[test]
fn parked_jail_without_cgroup_fails_and_the_next_one_works() {
    alone(|| {
        let engine = Engine::new().unwrap();
        let parked = engine.park(&shell("")).unwrap();
        if !remove_group(&children_named("st-init")) {
            return skipped("no v2 group for the sandbox");
        }
        let error = parked.start(shell("echo never")).map(|run| run.settled_blocking()).unwrap_err();
        assert!(error.to_string().contains("control group was removed") && error.is_retryable(), "{error}");
        assert!(until(seconds(2.0), || children_named("st-init").is_empty()), "init lives on");
        let again = engine.park(&shell("")).unwrap().start(shell("echo again")).unwrap().settled_blocking();
        assert_eq!(again.stdout, "again\n", "{again:?}");
    });
}

#[test]
fn run_without_cgroup_ends_on_time_with_another_proof() {
    alone(|| {
        let engine = Engine::new().unwrap();
        let marker = marker();
        let run = engine.start(waiting(&marker).limits(Limits::new().wall(seconds(1.0)))).unwrap();
        run.started_blocking();
        if !remove_group(&children_named("st-init")) {
            return skipped("no v2 group for the run");
        }
        let outcome = run.settled_blocking();
        assert_eq!((outcome.ending, outcome.tree.proof), (Ending::Timeout, Proof::PidNamespaceRemoved));
        assert_dead(&outcome);
        assert_eq!((marked(&marker), engine.quarantined()), (BTreeSet::new(), 0));
        assert_works(&engine);
    });
}

/// Without a pid namespace only init finds what a run has started: it is asked again, and not
/// killed.
#[test]
fn init_that_is_stopped_during_its_sweep_finishes_it() {
    alone(|| {
        if !as_user::as_a_user("init_that_is_stopped_during_its_sweep_finishes_it") {
            stopped_init_finishes_its_sweep();
        }
    });
}

fn stopped_init_finishes_its_sweep() {
    let options = Options { no_namespaces: true, ..Options::default() };
    let engine = Engine::with_options(options).unwrap();
    let marker = marker();
    let own = i32::try_from(std::process::id()).unwrap();
    let mut spec = waiting(&marker);
    spec.limits = Limits::new().grace(Duration::ZERO);
    let run = engine.start(spec).unwrap();
    assert!(until(seconds(20.0), || marked(&marker).len() == 2), "it started");
    let init =
        living().into_iter().find(|process| process.parent == own && marked(&marker).contains(&process.pid));
    init.expect("its first process").signal(Signal::STOP);
    run.cancel("a test");
    let outcome = run.settled_blocking();
    let left = marked(&marker);
    assert!(left.is_empty(), "{left:?} of {outcome:?}");
    assert_dead(&outcome);
    assert_eq!(
        (outcome.isolation.tier, outcome.tree.proof),
        (Tier::T1, Proof::SubreaperSweep),
        "{outcome:?}"
    );
}
