//! P3: deadlines are enforced from outside what can block. Each enforcer in turn is killed or
//! stopped.
//!
//! Survivors are looked for in /proc by the payload's marker, whatever Sandtimer says.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::attack::print_notice;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::RunInvocation;
use sandtimer_tests::count;
use sandtimer_tests::deaths::Watch;
use sandtimer_tests::process::{ProcessStat, StartedProcess, descendants, marked};
use sandtimer_tests::wait::{alone, now, pass, until};

const ENGINE_KILLED: Duration = Duration::from_secs(1);
const ENGINE_STOPPED: Duration = Duration::from_millis(300);

/// A run whose payload is up, seen from the host.
struct RunningRun {
    run: RunInvocation,
    engine: StartedProcess,
    observed_at: Duration,
}

impl RunningRun {
    /// Starts `payload` and waits for it.
    fn start(wall: Option<&str>, payload: &str) -> RunningRun {
        let flags = wall.map_or(vec![], |wall| vec!["--wall", wall]);
        let mut run = RunInvocation::new().flags(&flags).hostile(&[payload]);
        run.hard_stop = Duration::from_secs(30);
        let engine = run.start();
        let up = until(Duration::from_secs(10), || !payloads(&run.marker).is_empty());
        assert!(up, "{payload} was not up within 10 s; engine ended: {}", engine.has_ended());
        RunningRun { run, engine, observed_at: now() }
    }

    /// The engine's helper of that name.
    fn helper(&self, name: &str) -> ProcessStat {
        let mut found = None;
        until(Duration::from_secs(5), || {
            found = descendants(self.engine.pid()).into_iter().find(|process| process.name == name);
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {name} among {:?}", descendants(self.engine.pid())))
    }

    /// Which of the ranges of 4,096 uids the engine has, by its payload's.
    fn uid_range(&self) -> u32 {
        let payload = payloads(&self.run.marker).remove(0);
        let status = std::fs::read_to_string(format!("/proc/{}/status", payload.pid)).expect("it spins");
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a line of uids");
        let uid: u32 = uids.split_whitespace().next().and_then(|uid| uid.parse().ok()).expect("a uid");
        uid / 4096
    }

    /// Asserts that every process of the run, helpers included, is dead `bound` from now.
    fn all_dead_within(&self, bound: Duration, helpers: &[ProcessStat], why: &str) {
        let end = now() + bound;
        let mut watched = helpers.to_vec();
        loop {
            let checked_at = now();
            let alive = payloads(&self.run.marker);
            if alive.is_empty() && watched.is_empty() {
                return;
            }
            assert!(checked_at < end, "{why}: alive after {bound:?}: {alive:?}");
            watched.extend(alive);
            let late = Watch::begin(&watched, bound + Duration::from_secs(2)).later_than(end);
            assert!(late.is_empty(), "{why}: not dead after {bound:?}, at {end:?}: {late:?}");
            watched.clear();
        }
    }
}

/// The run's processes that execute the payload. The command line carries the marker too, and is
/// not one.
fn payloads(marker: &str) -> Vec<ProcessStat> {
    marked(marker).into_iter().filter(|process| process.runs("hostile")).collect()
}

fn each(test: &'static str, turns: usize, mut body: impl FnMut()) {
    let _alone = alone(test, Duration::from_secs(120 + 10 * turns as u64));
    (0..turns).for_each(|_| body());
}

/// As [`each`], four engines at a time: for what looks at nothing but its own run.
fn each_concurrently(test: &'static str, turns: usize, body: impl Fn() + Sync) {
    const CONCURRENT_ENGINES: usize = 4;
    let _alone = alone(test, Duration::from_secs(120 + 5 * turns as u64));
    std::thread::scope(|scope| {
        for worker in 0..CONCURRENT_ENGINES {
            let turns = (turns + worker) / CONCURRENT_ENGINES;
            let body = &body;
            scope.spawn(move || (0..turns).for_each(|_| body()));
        }
    });
}

/// Waits a random time below `bound`; returns what it was.
fn moment(bound: Duration) -> Duration {
    let moment = bound.mul_f64(RandomState::new().hash_one(0) as f64 / u64::MAX as f64);
    pass(moment);
    moment
}

/// Into the second that the runs of these tests have.
const DURING: Duration = Duration::from_millis(900);

#[test]
fn a_killed_engine_takes_its_runs_along() {
    each_concurrently("engine killed", count(4, 100), || {
        for payload in ["spin", "ignore-signals", "setsid-shuffle", "stop-self"] {
            let up = RunningRun::start(Some("30s"), payload);
            let moment = moment(DURING);
            let helpers = descendants(up.engine.pid());
            up.engine.signal(Signal::KILL);
            up.all_dead_within(ENGINE_KILLED, &helpers, &format!("{payload}, after {moment:?}"));
        }
    });
}

/// From before its helpers are there until after its run has begun: whatever stands by then goes
/// with it.
#[test]
fn an_engine_killed_while_it_starts_leaves_nothing() {
    each("engine killed at the start", count(5, 100), || {
        let before = Census::take();
        let run = RunInvocation::new().hostile(&["spin"]);
        let engine = run.start();
        let moment = moment(Duration::from_millis(20));
        engine.signal(Signal::KILL);
        pass(ENGINE_KILLED);
        let left = Census::take();
        // An empty group is no process: one its watchdog did not know of yet is for the next
        // engine.
        let added = left.added_since(&before).into_iter();
        let left: Vec<_> = added.filter(|entry| !entry.starts_with("cgroup")).collect();
        assert!(left.is_empty(), "killed after {moment:?}, a second later there is: {left:#?}");
        drop(engine);
        let (next, _) = RunInvocation::new().command(&["true"]).outcome().unwrap();
        assert!(next.ok());
        assert_clean(&before, &format!("killed after {moment:?}, and the next engine"));
    });
}

#[test]
fn a_killed_engine_takes_a_run_without_a_limit_along() {
    each_concurrently("engine killed, no limit", count(4, 100), || {
        let up = RunningRun::start(None, "spin");
        moment(DURING);
        let helpers = descendants(up.engine.pid());
        up.engine.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &helpers, "no limit");
    });
}

#[test]
fn a_stopped_engine_does_not_lengthen_a_run() {
    each_concurrently("engine stopped", count(4, 100), || {
        let up = RunningRun::start(Some("1s"), "spin");
        moment(DURING);
        up.engine.signal(Signal::STOP);
        let deadline = up.observed_at + Duration::from_secs(1) + ENGINE_STOPPED;
        up.all_dead_within(deadline.saturating_sub(now()), &[], "stopped engine");
        up.engine.signal(Signal::CONT);
        let finished = up.engine.finish();
        assert_eq!(finished.code(), Some(124), "{}", finished.errors());
    });
}

#[test]
fn stopped_engine_lets_unlimited_run_continue() {
    each("engine stopped, no limit", count(1, 10), || {
        let up = RunningRun::start(None, "spin");
        up.engine.signal(Signal::STOP);
        let died = until(Duration::from_millis(2500), || payloads(&up.run.marker).is_empty());
        assert!(!died, "the run was ended though it had no limit");
        up.engine.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &[], "stopped, then killed");
    });
}

/// Does `signal` to the helper `name`, and checks that the wall limit still holds.
fn without_helper(name: &str, signal: Signal) {
    let up = RunningRun::start(Some("1s"), "ignore-signals");
    let helper = up.helper(name);
    moment(DURING);
    helper.signal(signal);
    let deadline = up.observed_at + Duration::from_secs(1) + ENGINE_STOPPED;
    up.all_dead_within(deadline.saturating_sub(now()), &[], name);
    let ended = until(Duration::from_secs(5), || up.engine.has_ended());
    assert!(ended, "the command line hangs once {name} has got {signal:?}");
    up.all_dead_within(ENGINE_KILLED, &[helper], "the helper itself");
}

#[test]
fn a_killed_watchdog_lengthens_nothing() {
    each_concurrently("watchdog killed", count(4, 100), || without_helper("st-watchdog", Signal::KILL));
}

#[test]
fn a_stopped_watchdog_lengthens_nothing() {
    each_concurrently("watchdog stopped", count(4, 100), || without_helper("st-watchdog", Signal::STOP));
}

#[test]
fn a_killed_launcher_lengthens_nothing() {
    each_concurrently("launcher killed", count(4, 100), || without_helper("st-launcher", Signal::KILL));
}

#[test]
fn a_stopped_launcher_lengthens_nothing() {
    each_concurrently("launcher stopped", count(4, 100), || without_helper("st-launcher", Signal::STOP));
}

#[test]
fn a_stopped_init_lengthens_nothing() {
    each_concurrently("init stopped", count(4, 100), || without_helper("st-init", Signal::STOP));
}

#[test]
fn a_killed_init_takes_its_run_along() {
    each_concurrently("init killed", count(4, 100), || {
        let up = RunningRun::start(Some("30s"), "spin");
        let init = up.helper("st-init");
        moment(DURING);
        init.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &[init], "init killed");
        assert!(
            until(Duration::from_secs(5), || up.engine.has_ended()),
            "the command line hangs without its init"
        );
    });
}

/// Two at once that share a failure would be one: with the watchdog gone, a stopped engine still is
/// no escape.
#[test]
fn stopped_engine_without_watchdog_does_not_lengthen_run() {
    each_concurrently("engine stopped, watchdog killed", count(4, 100), || {
        let up = RunningRun::start(Some("1s"), "spin");
        let watchdog = up.helper("st-watchdog");
        moment(DURING);
        up.engine.signal(Signal::STOP);
        watchdog.signal(Signal::KILL);
        let deadline = up.observed_at + Duration::from_secs(1) + ENGINE_STOPPED;
        up.all_dead_within(deadline.saturating_sub(now()), &[], "stopped engine, no watchdog");
    });
}

/// What its watchdog still cleans up, the next engine does not touch, and the other way round.
#[test]
fn an_engine_started_as_another_dies_is_not_disturbed() {
    if !rustix::process::geteuid().is_root() {
        return print_notice("not tried: without root an engine has no uids that tell it from another", &[]);
    }
    each("started as another dies", count(5, 100), || {
        let up = RunningRun::start(None, "spin");
        let (watchdog, dying) = (up.helper("st-watchdog"), up.uid_range());
        // However long the cleaning up takes.
        watchdog.signal(Signal::STOP);
        up.engine.signal(Signal::KILL);
        let killed = until(Duration::from_secs(5), || up.engine.has_ended());
        let other = RunningRun::start(None, "spin");
        let taken = other.uid_range();
        watchdog.signal(Signal::CONT);
        for _ in 0..3 {
            let (next, _) = RunInvocation::new().command(&["true"]).outcome().unwrap();
            assert!(next.ok(), "{}", next.0);
        }
        assert!(killed, "an engine goes on 5 s after SIGKILL");
        assert_ne!(taken, dying, "an engine has the uids of one that is still cleaned up after");
        up.all_dead_within(ENGINE_KILLED, &[watchdog], "a watchdog that goes on");
        assert!(!payloads(&other.run.marker).is_empty(), "another engine's watchdog ended a run");
    });
}

/// With the watchdog gone as well, nobody removes the groups: the next engine does.
#[test]
fn next_engine_sweeps_residue_of_dead_engine() {
    each("sweep", count(2, 20), || {
        let before = Census::take();
        let up = RunningRun::start(None, "spin");
        let helpers = descendants(up.engine.pid());
        let watchdog = up.helper("st-watchdog");
        watchdog.signal(Signal::STOP);
        up.engine.signal(Signal::KILL);
        watchdog.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &helpers, "engine and watchdog killed");
        // Its helpers go with the thread that started them; the lock of its number with its last.
        let ended = until(ENGINE_KILLED, || up.engine.has_ended());
        assert!(ended, "an engine goes on {ENGINE_KILLED:?} after SIGKILL");
        let left = Census::take();
        let left: Vec<_> =
            left.added_since(&before).into_iter().filter(|entry| entry.contains("cgroup")).collect();
        assert!(!left.is_empty(), "nothing was left: the test would show nothing");
        let (next, _) = RunInvocation::new().command(&["true"]).outcome().unwrap();
        assert!(next.ok());
        assert_clean(&before, "the next engine");
    });
}
