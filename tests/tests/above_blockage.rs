//! P3: deadlines are enforced from outside what can block. Each enforcer in turn is killed or stopped.
//!
//! Survivors are looked for in /proc by the payload's marker, whatever Sandtimer says.

use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::Run;
use sandtimer_tests::count;
use sandtimer_tests::process::{Process, Started, descendants, marked};
use sandtimer_tests::wait::{alone, now, until};

/// What a test's own looking may add.
const LOOKING: Duration = Duration::from_millis(150);
const ENGINE_KILLED: Duration = Duration::from_secs(1);
const ENGINE_STOPPED: Duration = Duration::from_millis(300);

/// A run whose payload is up, seen from the host.
struct Up {
    run: Run,
    engine: Started,
    seen: Duration,
}

impl Up {
    /// Starts `payload` and waits for it.
    fn start(wall: Option<&str>, payload: &str) -> Up {
        let flags = wall.map_or(vec![], |wall| vec!["--wall", wall]);
        let mut run = Run::new().flags(&flags).hostile(&[payload]);
        run.hard_stop = Duration::from_secs(30);
        let engine = run.start();
        let up = until(Duration::from_secs(10), || !payloads(&run.marker).is_empty());
        assert!(up, "{payload} was not up within 10 s; engine ended: {}", engine.has_ended());
        Up { run, engine, seen: now() }
    }

    /// The engine's helper of that name.
    fn helper(&self, name: &str) -> Process {
        let mut found = None;
        until(Duration::from_secs(5), || {
            found = descendants(self.engine.pid()).into_iter().find(|process| process.name == name);
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {name} among {:?}", descendants(self.engine.pid())))
    }

    /// Asserts that every process of the run, helpers included, is dead `bound` from now.
    fn all_dead_within(&self, bound: Duration, helpers: &[Process], why: &str) {
        let mut alive = vec![];
        let dead = until(bound, || {
            alive = payloads(&self.run.marker);
            alive.extend(helpers.iter().filter(|helper| !helper.is_dead()).cloned());
            alive.is_empty()
        });
        assert!(dead, "{why}: alive after {bound:?}: {alive:?}");
    }
}

/// The run's processes that execute the payload. The command line carries the marker too, and is not one.
fn payloads(marker: &str) -> Vec<Process> {
    marked(marker).into_iter().filter(|process| process.runs("hostile")).collect()
}

fn each(test: &'static str, turns: usize, mut body: impl FnMut()) {
    let _alone = alone(test, Duration::from_secs(120 + 10 * turns as u64));
    (0..turns).for_each(|_| body());
}

#[test]
fn a_killed_engine_takes_its_runs_along() {
    each("engine killed", count(3, 100), || {
        for payload in ["spin", "ignore-signals", "setsid-shuffle", "stop-self"] {
            let up = Up::start(Some("30s"), payload);
            let helpers = descendants(up.engine.pid());
            up.engine.signal(Signal::KILL);
            up.all_dead_within(ENGINE_KILLED, &helpers, payload);
        }
    });
}

#[test]
fn a_killed_engine_takes_a_run_without_a_limit_along() {
    each("engine killed, no limit", count(3, 100), || {
        let up = Up::start(None, "spin");
        let helpers = descendants(up.engine.pid());
        up.engine.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &helpers, "no limit");
    });
}

#[test]
fn a_stopped_engine_does_not_lengthen_a_run() {
    each("engine stopped", count(3, 100), || {
        let up = Up::start(Some("1s"), "spin");
        up.engine.signal(Signal::STOP);
        let deadline = up.seen + Duration::from_secs(1) + ENGINE_STOPPED + LOOKING;
        up.all_dead_within(deadline.saturating_sub(now()), &[], "stopped engine");
        up.engine.signal(Signal::CONT);
        let finished = up.engine.finish();
        assert_eq!(finished.code(), Some(124), "{}", finished.complaint());
    });
}

#[test]
fn a_stopped_engine_lets_a_run_without_a_limit_go_on() {
    each("engine stopped, no limit", count(1, 10), || {
        let up = Up::start(None, "spin");
        up.engine.signal(Signal::STOP);
        let died = until(Duration::from_millis(2500), || payloads(&up.run.marker).is_empty());
        assert!(!died, "the run was ended though it had no limit");
        up.engine.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &[], "stopped, then killed");
    });
}

/// Does `signal` to the helper `name`, and checks that the wall limit still holds.
fn without_helper(name: &str, signal: Signal) {
    let up = Up::start(Some("1s"), "ignore-signals");
    let helper = up.helper(name);
    helper.signal(signal);
    let deadline = up.seen + Duration::from_secs(1) + ENGINE_STOPPED + LOOKING;
    up.all_dead_within(deadline.saturating_sub(now()), &[], name);
    let ended = until(Duration::from_secs(5), || up.engine.has_ended());
    assert!(ended, "the command line hangs once {name} has got {signal:?}");
    up.all_dead_within(ENGINE_KILLED, &[helper], "the helper itself");
}

#[test]
fn a_killed_watchdog_lengthens_nothing() {
    each("watchdog killed", count(3, 100), || without_helper("st-watchdog", Signal::KILL));
}

#[test]
fn a_stopped_watchdog_lengthens_nothing() {
    each("watchdog stopped", count(3, 100), || without_helper("st-watchdog", Signal::STOP));
}

#[test]
fn a_killed_launcher_lengthens_nothing() {
    each("launcher killed", count(3, 100), || without_helper("st-launcher", Signal::KILL));
}

#[test]
fn a_stopped_launcher_lengthens_nothing() {
    each("launcher stopped", count(3, 100), || without_helper("st-launcher", Signal::STOP));
}

#[test]
fn a_stopped_init_lengthens_nothing() {
    each("init stopped", count(3, 100), || without_helper("st-init", Signal::STOP));
}

#[test]
fn a_killed_init_takes_its_run_along() {
    each("init killed", count(3, 100), || {
        let up = Up::start(Some("30s"), "spin");
        let init = up.helper("st-init");
        init.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &[init], "init killed");
        assert!(
            until(Duration::from_secs(5), || up.engine.has_ended()),
            "the command line hangs without its init"
        );
    });
}

/// Two at once that share a failure would be one: with the watchdog gone, a stopped engine still is no escape.
#[test]
fn a_stopped_engine_without_its_watchdog_does_not_lengthen_a_run() {
    each("engine stopped, watchdog killed", count(3, 100), || {
        let up = Up::start(Some("1s"), "spin");
        let watchdog = up.helper("st-watchdog");
        up.engine.signal(Signal::STOP);
        watchdog.signal(Signal::KILL);
        let deadline = up.seen + Duration::from_secs(1) + ENGINE_STOPPED + LOOKING;
        up.all_dead_within(deadline.saturating_sub(now()), &[], "stopped engine, no watchdog");
    });
}

/// With the watchdog gone as well, nobody removes the groups: the next engine does.
#[test]
fn what_a_dead_engine_left_behind_the_next_one_sweeps() {
    each("sweep", count(2, 20), || {
        let before = Census::take();
        let up = Up::start(None, "spin");
        let helpers = descendants(up.engine.pid());
        let watchdog = up.helper("st-watchdog");
        watchdog.signal(Signal::STOP);
        up.engine.signal(Signal::KILL);
        watchdog.signal(Signal::KILL);
        up.all_dead_within(ENGINE_KILLED, &helpers, "engine and watchdog killed");
        let left = Census::take();
        let left: Vec<_> =
            left.added_since(&before).into_iter().filter(|entry| entry.contains("cgroup")).collect();
        assert!(!left.is_empty(), "nothing was left: the test would show nothing");
        let (next, _) = Run::new().command(&["true"]).outcome().unwrap();
        assert!(next.ok());
        assert_clean(&before, "the next engine");
    });
}
