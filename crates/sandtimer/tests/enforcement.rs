//! The threads and processes that end runs, where something is in their way. One test in each
//! process: they change what the whole process may use.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // how late something is, and what is not looked for

use crate::processes;

use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use processes::{ListedProcess, children_named};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, prlimit, setrlimit,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sandtimer::engine::{Engine, Run, Spec};
use sandtimer::limits::Limits;
use sandtimer::model::{Ending, LimitKind};

fn is_full() -> bool {
    std::env::var_os("SANDTIMER_FULL").is_some()
}

/// How long deadlines are measured: ten minutes with SANDTIMER_FULL=1, or the number of seconds in
/// SANDTIMER_FULL_SECONDS.
fn measured_time() -> Duration {
    let chosen = std::env::var("SANDTIMER_FULL_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(chosen.unwrap_or(if is_full() { 600 } else { 8 }))
}

/// How many deadlines were how late.
fn print_histogram(late_ms: &[f64]) {
    const BOUNDS_MS: [f64; 12] = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 300.0, f64::INFINITY];
    println!("     late by up to   deadlines");
    let mut counted = 0;
    for bound in BOUNDS_MS {
        let below = late_ms.partition_point(|late| *late <= bound);
        println!("{bound:>15} ms {:>11}", below - counted);
        counted = below;
    }
}

/// Binds this process, and what it starts from now on, to one of its processors.
fn use_one_processor() {
    let all = sched_getaffinity(None).expect("the own processors");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|number| all.is_set(*number)).expect("a processor"));
    sched_setaffinity(None, &one).expect("one processor");
}

/// Four threads start, extend and await runs on the enforcer's own processor, in the middle of
/// whatever they do when a time of some run comes. Its deadlines are on time all the same: it waits
/// for none of them.
#[test]
fn enforcer_is_on_time_on_one_processor_with_senders() {
    /// A thread that the enforcer spins for runs again after 0.95 s.
    const MAX_LATE: Duration = Duration::from_millis(300);
    use_one_processor();
    let engine = Engine::new().expect("an engine");
    if let Err(reason) = &engine.armed().real_time {
        println!("not shown: the enforcer is not real-time here: {reason}");
        return;
    }
    // Each is sampled some hundred times a second: the enforcer runs in the middle of all that the
    // threads do.
    let sampled = || Spec::command(["sleep", "1000"]).limits(Limits::new().cpu(Duration::from_millis(40)));
    let runs: Vec<Run> = (0..16).map(|_| engine.start(sampled()).expect("it starts")).collect();
    let end = Instant::now() + measured_time();
    let measure = || {
        let mut late_ms = Vec::new();
        while Instant::now() < end {
            let spec = Spec::command(["sleep", "1000"]).limits(Limits::new().wall(Duration::from_millis(60)));
            let run = engine.start(spec).expect("it starts");
            run.started_blocking();
            let extends_until = Instant::now() + Duration::from_millis(40);
            while Instant::now() < extends_until {
                let _ = run.extend(Duration::from_micros(10));
            }
            let outcome = run.wait_blocking();
            let verdict = outcome.verdict.as_ref().expect("its wall ended it");
            assert_eq!(
                (outcome.ending, verdict.kind),
                (Ending::Timeout, Some(LimitKind::Wall)),
                "{outcome:?}"
            );
            late_ms.push(verdict.late_ms);
        }
        late_ms
    };
    let mut late_ms: Vec<f64> = std::thread::scope(|threads| {
        let measuring: Vec<_> = (0..4).map(|_| threads.spawn(measure)).collect();
        measuring.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    drop(runs);
    late_ms.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| late_ms[((late_ms.len() - 1) as f64 * part) as usize];
    let worst: Vec<f64> = late_ms.iter().rev().take(10).copied().collect();
    print_histogram(&late_ms);
    println!(
        "count {}, late by ms: p50 {:.3} p99 {:.3} p99.9 {:.3} worst {worst:.3?}",
        late_ms.len(),
        at(0.5),
        at(0.99),
        at(0.999)
    );
    assert!(worst[0] < MAX_LATE.as_secs_f64() * 1e3, "late by {worst:?} ms");
}

/// The process of this one's watchdog.
fn watchdog() -> Pid {
    Pid::from_raw(children_named("st-watchdog")[0].pid).expect("a PID")
}

/// The descriptors that a watchdog kills runs by; `None` where they cannot be listed.
fn kill_handles_of(watchdog: Pid) -> Option<usize> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", watchdog.as_raw_nonzero())).ok()?;
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_kill_handle = |target: &std::path::PathBuf| {
        let name = target.to_string_lossy();
        name.ends_with("/cgroup.kill") || name.contains("pidfd")
    };
    Some(targets.filter(is_kill_handle).count())
}

/// Its socket is full by then: the messages about runs are sent once it reads again.
#[test]
fn stopped_watchdog_receives_every_run_later() {
    /// Each moves a deadline, of which a watchdog that waits for none is notified; its socket holds
    /// some hundred messages.
    const EXTENSIONS: usize = 3000;
    let engine = Engine::new().expect("an engine");
    assert!(engine.armed().watchdog.is_ok(), "{:?}", engine.armed());
    let watchdog = watchdog();
    if kill_handles_of(watchdog).is_none() {
        return println!("not shown: the watchdog's descriptors can be listed by root only");
    }
    let pidfd = pidfd_open(watchdog, PidfdFlags::empty()).expect("it is alive");
    let spec = || Spec::command(["sleep", "1000"]).limits(Limits::new().wall(Duration::from_secs(300)));
    pidfd_send_signal(&pidfd, Signal::STOP).expect("sent");
    let is_stopped =
        || ListedProcess::of(watchdog.as_raw_nonzero().get()).is_some_and(|process| process.is_stopped);
    while !is_stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It may read the messages about the engine itself later.
    let kill_handles = kill_handles_of(watchdog).unwrap_or(0);
    let mut runs = vec![engine.start(spec()).expect("it starts")];
    runs[0].started_blocking();
    for _ in 0..EXTENSIONS {
        runs[0].extend(Duration::from_millis(1)).expect("it is running");
        std::thread::sleep(Duration::from_micros(50));
    }
    runs.extend((0..MORE_RUNS).map(|_| engine.start(spec()).expect("it starts")));
    runs.iter().for_each(Run::started_blocking);
    assert_eq!(kill_handles_of(watchdog), Some(kill_handles), "it is not stopped");
    pidfd_send_signal(&pidfd, Signal::CONT).expect("sent");
    let end = Instant::now() + Duration::from_secs(20);
    while kill_handles_of(watchdog).is_some_and(|now| now < kill_handles + runs.len()) {
        let now = kill_handles_of(watchdog);
        assert!(
            Instant::now() < end,
            "it knows of {now:?} runs, of {kill_handles} before, of {}",
            runs.len()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = runs.iter().filter(|run| run.has_finished()).count();
    assert_eq!(ended, 0, "the watchdog has killed runs");
    for run in runs {
        run.cancel("the test has finished");
        assert_eq!(run.settled_blocking().ending, Ending::Cancelled);
    }
}

/// Starts this many runs, and asserts that none of them ends by itself.
fn assert_all_run(engine: &Engine, count: usize) {
    let spec = || Spec::command(["sleep", "1000"]).limits(Limits::new().wall(Duration::from_secs(300)));
    let runs: Vec<Run> = (0..count).map(|_| engine.start(spec()).expect("it starts")).collect();
    runs.iter().for_each(Run::started_blocking);
    // What the watchdog has read by then has had its effect.
    std::thread::sleep(Duration::from_millis(500));
    let ended: Vec<_> = runs.iter().filter(|run| run.has_finished()).map(Run::wait_blocking).collect();
    assert!(ended.is_empty(), "{} of {count} have ended: {:?}", ended.len(), ended[0]);
    for run in runs {
        run.cancel("the test is over");
        assert_eq!(run.settled_blocking().ending, Ending::Cancelled);
    }
}

/// Fewer than there are runs, each of which costs the watchdog a descriptor.
const FEW_DESCRIPTORS: u64 = 48;
const MORE_RUNS: usize = 70;

#[test]
fn watchdog_started_under_a_low_limit_kills_no_run() {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW_DESCRIPTORS), ..before }).expect("a lower limit");
    let engine = Engine::new().expect("an engine");
    assert!(engine.armed().watchdog.is_ok(), "{:?}", engine.armed());
    // As an operator does after a report of too few descriptors.
    setrlimit(Resource::Nofile, before).expect("the limit from before");
    assert_all_run(&engine, MORE_RUNS);
}

#[test]
fn watchdog_without_a_descriptor_kills_no_run() {
    let engine = Engine::new().expect("an engine");
    assert!(engine.armed().watchdog.is_ok(), "{:?}", engine.armed());
    let few = Rlimit { current: Some(FEW_DESCRIPTORS), maximum: Some(FEW_DESCRIPTORS) };
    prlimit(Some(watchdog()), Resource::Nofile, few).expect("it is of the same user");
    assert_all_run(&engine, MORE_RUNS);
}

/// The waker of a task blocks the thread that reads output, as a slow disk does. Output that a run
/// writes during that time counts as output.
#[test]
fn run_with_output_read_late_is_not_stalled() {
    const READ_DELAY: Duration = Duration::from_secs(3);
    struct SlowWaker(AtomicBool);
    impl Wake for SlowWaker {
        fn wake(self: Arc<Self>) {
            if !self.0.swap(true, Ordering::SeqCst) {
                std::thread::sleep(READ_DELAY);
            }
        }
    }
    let engine = Engine::new().expect("an engine");
    let stall = Duration::from_secs(1);
    let writes = "i=0; while [ $i -lt 60 ]; do echo $i; sleep 0.1; i=$((i+1)); done";
    let writing = Spec::command(["sh", "-c", writes]).limits(Limits::new().stall(stall));
    let writing = engine.start(writing).expect("it starts");
    writing.started_blocking();
    let other = engine.start(Spec::command(["sh", "-c", "sleep 0.3; echo; sleep 1000"])).expect("it starts");
    let slow = Arc::new(SlowWaker(AtomicBool::new(false)));
    let waker = Waker::from(slow.clone());
    let mut grown = pin!(other.grown([0, 0]));
    assert!(grown.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let outcome = writing.settled_blocking();
    assert!(slow.0.load(Ordering::SeqCst), "the collector was not kept");
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    // The same limit on a run that writes nothing.
    let silent = Spec::command(["sleep", "1000"]).limits(Limits::new().stall(stall));
    assert_eq!(engine.run_blocking(silent).expect("a run").ending, Ending::Stalled);
}

/// What a host program does that closes descriptors which it did not open: the enforcer and the
/// collector wait on nothing any more.
fn break_epolls() {
    let null = std::fs::File::open("/dev/null").expect("there");
    for entry in std::fs::read_dir("/proc/self/fd").expect("the own descriptors") {
        let path = entry.expect("an entry").path();
        if std::fs::read_link(&path).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]") {
            let number = path.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
            // SAFETY: the number of a descriptor that is open, whose owner keeps it: it is
            // replaced, and not closed here.
            let mut epoll = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            rustix::io::dup2(&null, &mut epoll).expect("replaced");
        }
    }
}

#[test]
fn enforcer_that_fails_ends_every_run_and_refuses_more() {
    let engine = Engine::new().expect("an engine");
    let spec = || Spec::command(["sleep", "1000"]).limits(Limits::new().wall(Duration::from_secs(600)));
    let runs: Vec<Run> = (0..3).map(|_| engine.start(spec()).expect("it starts")).collect();
    runs.iter().for_each(Run::started_blocking);
    break_epolls();
    // Both threads return from the wait that they are in, and find out at the next.
    runs[0].cancel("so that the enforcer wakes");
    let began = Instant::now();
    while !runs.iter().all(Run::has_finished) {
        assert!(began.elapsed() < Duration::from_secs(30), "the owners of runs wait for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    for run in &runs[1..] {
        let outcome = run.settled_blocking();
        assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::InfraError, Some(0)), "{outcome:?}");
    }
    let rejection = engine.start(spec()).expect_err("nothing would end it").to_string();
    assert!(rejection.contains("enforcer has failed"), "{rejection}");
}

/// The collector may read that output before the enforcer receives the run.
#[test]
fn output_limit_that_is_passed_at_once_ends_the_run() {
    let engine = Engine::new().expect("an engine");
    let spec = || {
        let limits = Limits::new().wall(Duration::from_secs(60)).output(100);
        let command = ["/bin/sh", "-c", "echo $0$0$0; exec sleep 1000", &"x".repeat(100)];
        Spec { end_on_output_limit: true, ..Spec::command(command).limits(limits) }
    };
    for _ in 0..25 {
        let runs: Vec<Run> = (0..8).map(|_| engine.start(spec()).expect("it starts")).collect();
        for run in runs {
            assert_eq!(run.settled_blocking().ending, Ending::OutputLimit);
        }
    }
}
