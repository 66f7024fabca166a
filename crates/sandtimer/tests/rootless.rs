//! What differs for an engine of a user without privileges. Run by root, the tests start themselves
//! again as such a user.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use crate::as_user;
use crate::programs;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use as_user::{USER, as_a_user, as_a_user_in};
use programs::program;
use sandtimer::engine::{CallEvent, CallSpec, Engine, Run, Spec, Stream};
use sandtimer::model::{Ending, KillClass};
use sandtimer::zygote::Profile;
use sandtimer::{Limits, Options};

const PROCESSES: u64 = 24;
/// Forks until a fork fails, prints how often, and waits if its argument says so.
const GREEDY: &str = "\
import os, sys, time
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            time.sleep(100)
        made += 1
except OSError:
    pass
print(made, flush=True)
";

fn limits() -> Limits {
    Limits::new().wall(Duration::from_secs(60)).processes(PROCESSES)
}

/// What a run has printed, once that is a whole line.
fn line(run: &Run) -> String {
    let limit = Instant::now() + Duration::from_secs(30);
    while Instant::now() < limit {
        let chunk = run.output(Stream::Stdout, 0, 100).expect("in memory");
        if chunk.bytes.ends_with(b"\n") {
            return String::from_utf8_lossy(&chunk.bytes).trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it says nothing");
}

#[track_caller]
fn assert_all_were_its_own(printed: &str) {
    let made: u64 = printed.trim().parse().unwrap_or_else(|_| panic!("{printed:?} is no count"));
    // A controller counts init as well.
    assert!((PROCESSES - 3..PROCESSES).contains(&made), "{made} forks under a limit of {PROCESSES}");
}

/// Limits of processes are each run's own, for commands and for calls, whatever else the engine
/// runs.
#[test]
fn processes_are_counted_for_each_run_apart() {
    if as_a_user("processes_are_counted_for_each_run_apart") {
        return;
    }
    let engine = Engine::new().expect("an engine");
    if !engine.host().expect("a host").has_namespaces() {
        // The caller's own processes would be counted too, so there is no such limit; the report
        // lists what is missing.
        return;
    }
    let command =
        |rest: &str| Spec::command(["/usr/bin/python3", "-c", &format!("{GREEDY}{rest}")]).limits(limits());
    let full = [engine.start(command("time.sleep(100)")), engine.start(command("time.sleep(100)"))];
    let full = full.map(|run| run.expect("a run"));
    full.iter().for_each(|run| assert_all_were_its_own(&line(run)));
    let second = engine.run_blocking(command("")).expect("a run");
    assert_all_were_its_own(&second.stdout);
    assert_eq!(second.tree.survivors, Some(0), "{second:?}");

    let profile = Profile {
        interpreter: "/usr/bin/python3".into(),
        prewarm: None,
        preload: Vec::new(),
        paths: None,
        network: false,
        live: false,
        ..Profile::default()
    };
    let calls = engine.calls(profile, 1).expect("a pool");
    for _ in 0..2 {
        let spec = CallSpec { limits: limits(), ..program(GREEDY) };
        let call = calls.call(spec, &mut || false).expect("a call");
        assert_all_were_its_own(&line(call.run()));
        call.run().cancel("seen");
        let outcome = call.run().settled_blocking();
        assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
    }
    for run in &full {
        run.cancel("seen");
        let outcome = run.settled_blocking();
        assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Cancelled, Some(0)), "{outcome:?}");
        let degraded: Vec<_> = outcome.isolation.degraded.iter().map(|each| each.layer.as_str()).collect();
        assert!(!degraded.contains(&"count processes for each run apart"), "{degraded:?}");
    }
}

/// Runs a test as a user that has a v2 control group. Also returns true if there is no such
/// hierarchy.
fn as_a_user_with_a_group(test: &str) -> bool {
    if !rustix::process::getuid().is_root() {
        return false;
    }
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let Some(mount) = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists()) else {
        let _ = writeln!(std::io::stderr(), "skipped: there is no v2 hierarchy");
        return true;
    };
    let own = mount.join(format!("st-test-{}", std::process::id()));
    let below = own.join("below");
    for group in [&own, &below] {
        std::fs::create_dir(group).expect("a group");
        for given in [group.clone(), group.join("cgroup.procs"), group.join("cgroup.subtree_control")] {
            std::os::unix::fs::chown(given, Some(USER), Some(USER)).expect("own group");
        }
    }
    let ended = std::panic::catch_unwind(|| as_a_user_in(test, Some(&below)));
    // What the engine made there goes with it; a group that is left is empty, and the next start of
    // the machine removes it.
    let _ = [&below, &own].map(std::fs::remove_dir);
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// If job and init have one uid the job owns all of its root, and init cannot detect what it has
/// changed there.
#[test]
fn jail_of_an_unprivileged_user_serves_one_call() {
    if as_a_user_with_a_group("jail_of_an_unprivileged_user_serves_one_call") {
        return;
    }
    let engine = Engine::new().expect("an engine");
    if !engine.host().expect("a host").has_namespaces() {
        return;
    }
    let calls =
        engine.calls(Profile { interpreter: "python3".into(), ..Profile::default() }, 1).expect("a pool");
    for _ in 0..40 {
        let call = calls.call(program("1"), &mut || false).expect("a call");
        let CallEvent::Answer(answer) = call.wait().expect("no signal comes here") else {
            panic!("no answer")
        };
        assert!(call.accept(answer.kind));
        let outcome = call.run().settled_blocking();
        assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
        assert_eq!(outcome.isolation.kill, KillClass::K3, "control: with its group it could be ended alone");
    }
    assert_eq!(calls.stats().reused, 0);
}

/// Without a pid namespace /proc shows the host: what other processes use is not the run's.
#[test]
fn samples_without_namespaces_are_of_the_run() {
    if as_a_user("samples_without_namespaces_are_of_the_run") {
        return;
    }
    let engine = Engine::with_options(Options { no_namespaces: true, ..Options::default() });
    let engine = engine.expect("an engine");
    let mut other = std::process::Command::new("python3")
        .args(["-c", "held = b'x' * (400 << 20)\nwhile True: pass"])
        .spawn()
        .expect("python3");
    std::thread::sleep(Duration::from_secs(2));
    let limits = || Limits::new().wall(Duration::from_secs(20)).cpu(Duration::from_secs(1)).memory(256 << 20);
    let run = |command: &[&str]| {
        engine.run_blocking(Spec::command(command.iter().copied()).limits(limits())).expect("a run")
    };
    let idle = run(&["sleep", "1"]);
    let busy = run(&["sh", "-c", "(while :; do :; done) & wait"]);
    other.kill().expect("killed");
    other.wait().expect("its end");
    assert_eq!(idle.ending, Ending::Exited, "{idle:?}");
    assert!(idle.usage.processes_peak <= 2 && idle.usage.user_ms < 500, "{idle:?}");
    // The control: its own time counts, that of a child as well.
    assert_eq!(busy.ending, Ending::Timeout, "{busy:?}");
    assert!((900..3_000).contains(&busy.usage.user_ms), "{busy:?}");
}

/// The usage of a run that its wall-clock limit kills, and the number of its processes, without a
/// group that counts them.
#[test]
fn killed_run_has_its_usage() {
    if as_a_user("killed_run_has_its_usage") {
        return;
    }
    let engine = Engine::new().expect("an engine");
    let code = "import os, time\nif os.fork() == 0:\n    time.sleep(100)\nwhile True: pass";
    let limits = Limits::new().wall(Duration::from_secs(2));
    let spec = Spec::command(["/usr/bin/python3", "-c", code]).limits(limits);
    let outcome = engine.run_blocking(spec).expect("a run");
    assert_eq!(outcome.ending, Ending::Timeout);
    assert!(outcome.usage.user_ms + outcome.usage.system_ms > 0, "{:?}", outcome.usage);
    assert!(outcome.usage.memory_peak_bytes > 0, "{:?}", outcome.usage);
    assert_eq!((outcome.tree.killed, outcome.usage.processes_peak), (2, 2), "{:?}", outcome.tree);
}
