//! Pseudo-terminals that runs make for programs of their own, and how many of them.
#![allow(clippy::disallowed_methods)] // a test starts as another user, and what a run says is polled

use crate::as_user;

use std::fs;
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{CellSpec, ContextSpec, Engine, Run, Spec, Stream};
use sandtimer::zygote::Profile;
use sandtimer::{Limits, Outcome};

/// What a sandbox without a terminal may open, and how many sandboxes of one owner may
/// (`isolate/ptys.rs`).
const OF_SANDBOX: usize = 4;
const OF_OWNER: usize = 128;

/// Opens terminals until there is none, prints how many, and holds them.
const HOLD: &str = "
import os, pty, sys, time
held = []
try:
    while len(held) < 100: held.append(pty.openpty())
except OSError: pass
print(len(held), flush=True)
time.sleep(float(sys.argv[1]))
";

fn spec(command: &[&str]) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(120));
    Spec { private_workspace: true, ..Spec::command(command).limits(limits) }
}

fn run(engine: &Engine, command: &[&str]) -> std::sync::Arc<Outcome> {
    engine.run_blocking(spec(command)).expect("a run")
}

fn has_namespaces(engine: &Engine) -> bool {
    engine.host().expect("a host").has_namespaces()
}

fn check_programs() {
    let engine = Engine::new().expect("an engine");
    if !has_namespaces(&engine) {
        return;
    }
    for _ in 0..2 {
        let outcome = run(&engine, &["script", "-qec", "tty; stty size; echo hello > /dev/tty", "/dev/null"]);
        assert_eq!(outcome.stdout, "/dev/pts/0\r\n0 0\r\nhello\r\n", "{outcome:?}");
        let outcome = run(&engine, &["/usr/bin/python3", "-c", HOLD, "0"]);
        assert_eq!(outcome.stdout, format!("{OF_SANDBOX}\n"), "{outcome:?}");
    }
    // The run itself has none.
    let outcome = run(&engine, &["sh", "-c", "tty; (: < /dev/tty) 2>/dev/null || echo none"]);
    assert_eq!(outcome.stdout, "not a tty\nnone\n", "{outcome:?}");
}

#[test]
fn run_without_terminal_makes_terminals_of_its_own() {
    check_programs();
}

#[test]
fn users_run_makes_terminals_of_its_own() {
    if !as_a_user("users_run_makes_terminals_of_its_own") {
        check_programs();
    }
}

#[test]
fn contexts_and_sessions_make_terminals_of_their_own() {
    let engine = Engine::new().expect("an engine");
    if !has_namespaces(&engine) {
        return;
    }
    let execute = |context: &sandtimer::engine::Context, source: &str| {
        let limits = Limits::new().wall(Duration::from_secs(60));
        let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
        context.execute(cell, &mut |_| {}).expect("a run")
    };
    let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    let contexts = engine.contexts(profile, 1).expect("a pool");
    let context = contexts.open(ContextSpec::default(), &mut || false).expect("a context");
    let outcome = execute(&context, "import os, pty\nfds = pty.openpty()\nprint(os.ttyname(fds[1]))");
    assert_eq!(outcome.stdout, "/dev/pts/0\n", "{outcome:?}");
    let session = engine.session(ContextSpec::default()).expect("a session");
    let outcome = execute(&session, "script -qec tty /dev/null");
    assert_eq!(outcome.stdout, "/dev/pts/0\r\n", "{outcome:?}");
}

/// How many terminals a run reports.
fn held(run: &Run) -> usize {
    loop {
        let output = run.output(Stream::Stdout, 0, 100).expect("in memory").bytes;
        if let Some(line) = String::from_utf8_lossy(&output).strip_suffix('\n') {
            return line.parse().expect("a number");
        }
        assert!(!run.has_finished(), "{:?}", run.settled_blocking());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All terminals of the machine that are open.
fn open_terminals() -> usize {
    let count = fs::read_to_string("/proc/sys/kernel/pty/nr").expect("readable");
    count.trim().parse().expect("a number")
}

/// The largest set of runs that one owner can have, each with all it can open, leaves the others
/// theirs.
#[test]
fn runs_of_one_owner_leave_terminals_to_others() {
    let engine = Engine::new().expect("an engine");
    if !has_namespaces(&engine)
        || fs::read_to_string("/proc/sys/kernel/pty/max").expect("readable") != "4096\n"
    {
        return;
    }
    let start = |owner: &str| {
        let spec = Spec { owner: Some(owner.into()), ..spec(&["/usr/bin/python3", "-c", HOLD, "100"]) };
        engine.start(spec).expect("it starts")
    };
    let runs: Vec<Run> = (0..OF_OWNER + 2).map(|_| start("one")).collect();
    let counts: Vec<usize> = runs.iter().map(held).collect();
    assert_eq!(counts.iter().filter(|count| **count == OF_SANDBOX).count(), OF_OWNER, "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), OF_OWNER * OF_SANDBOX, "the rest has none");
    // The control: they are the machine's.
    assert!(open_terminals() >= OF_OWNER * OF_SANDBOX, "{}", open_terminals());
    let other = start("other");
    assert_eq!(held(&other), OF_SANDBOX);
    other.cancel("the test has finished");
    runs.iter().for_each(|run| run.cancel("the test has finished"));
    let outcomes: Vec<_> = runs.iter().map(|run| run.settled_blocking()).collect();
    let is_reported = |outcome: &&std::sync::Arc<Outcome>| {
        outcome.isolation.degraded.iter().any(|degraded| degraded.layer == "pseudo-terminals")
    };
    assert_eq!(outcomes.iter().filter(is_reported).count(), 2, "the Outcomes of those without say so");
    drop(runs);
    // What they held is free again.
    let again = start("one");
    assert_eq!(held(&again), OF_SANDBOX);
    again.cancel("the test has finished");
    again.settled_blocking();
}
