//! Calls in children of a real Python zygote.

use crate::programs;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandtimer_os::clock::monotonic_nanoseconds;

use programs::program;
use sandtimer::Limits;
use sandtimer::engine::{CallEvent, CallHandle, CallSpec, Calls, Engine};
use sandtimer::model::{Ending, Path};
use sandtimer::zygote::{AnswerKind, CallAnswer, Profile};

fn engine() -> Engine {
    Engine::new().expect("an engine")
}

fn profile() -> Profile {
    Profile {
        interpreter: "python3".into(),
        prewarm: None,
        preload: Vec::new(),
        paths: None,
        network: false,
        live: false,
        ..Profile::default()
    }
}

fn start(calls: &Calls, spec: CallSpec) -> CallHandle {
    calls.call(spec, &mut || false).expect("a call")
}

fn answer(call: &CallHandle) -> CallAnswer {
    match call.wait().expect("no signal comes here") {
        CallEvent::Answer(answer) => answer,
        other => panic!("{other:?}: {:?}", call.run().wait_blocking()),
    }
}

#[test]
fn a_program_answers_with_its_last_value() {
    let engine = engine();
    let calls = engine.calls(profile(), 2).expect("a pool");
    for _ in 0..5 {
        let call = start(&calls, program("import os\nprint('pid', os.getpid())\n6 * 7"));
        let answer = answer(&call);
        assert_eq!(answer.kind, AnswerKind::Value);
        // K: an integer of one byte.
        assert!(answer.inline.windows(2).any(|window| window == [b'K', 42]), "{answer:?}");
        assert!(call.accept(answer.kind));
        let outcome = call.run().settled_blocking();
        assert_eq!((outcome.ending, outcome.ok), (Ending::Returned, true), "{outcome:?}");
        assert_eq!(outcome.tree.survivors, Some(0));
        // Pid 2 of its own namespace.
        assert_eq!(outcome.stdout, "pid 2\n");
    }
    assert_eq!(calls.stats().calls, 5);
}

#[test]
fn concurrent_takes_have_one_winner() {
    let engine = engine();
    let calls = engine.calls(profile(), 2).expect("a pool");
    for _ in 0..100 {
        let call = start(&calls, program("6 * 7"));
        let kind = answer(&call).kind;
        let together = std::sync::Barrier::new(4);
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        together.wait();
                        call.take(kind)
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
        call.end_answered();
        let outcome = call.run().settled_blocking();
        assert_eq!((outcome.ending, outcome.ok), (Ending::Returned, true), "{outcome:?}");
    }
}

#[test]
fn a_busy_loop_ends_at_its_wall() {
    let engine = engine();
    let calls = engine.calls(profile(), 1).expect("a pool");
    calls.warm(1, &mut || false).expect("a child");
    let mut spec = program("print('begun')\nwhile True: pass");
    spec.limits = Limits::new().wall(Duration::from_millis(200));
    let begun = monotonic_nanoseconds();
    let call = start(&calls, spec);
    assert!(matches!(call.wait().expect("no signal"), CallEvent::Nothing));
    assert!(monotonic_nanoseconds() - begun >= 200_000_000);
    let outcome = call.run().settled_blocking();
    assert_eq!((outcome.ending, outcome.path), (Ending::Timeout, Path::Parked), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("begun\n", Some(0)));
}

#[test]
fn endings_are_distinguished() {
    let engine = engine();
    let calls = engine.calls(profile(), 2).expect("a pool");
    for (source, ending, code, signal) in [
        ("import sys; sys.exit(3)", Ending::Exited, Some(3), None),
        ("import os; os._exit(0)", Ending::Exited, Some(0), None),
        ("import os; os.kill(os.getpid(), 11)", Ending::Signaled, None, Some("SIGSEGV")),
        ("import os; os.abort()", Ending::Signaled, None, Some("SIGABRT")),
    ] {
        let call = start(&calls, program(source));
        assert!(matches!(call.wait().expect("no signal"), CallEvent::Nothing), "{source}");
        let outcome = call.run().settled_blocking();
        assert_eq!(outcome.ending, ending, "{source}: {outcome:?}");
        assert_eq!((outcome.exit_code, outcome.signal.as_deref()), (code, signal), "{source}");
    }
    // What must answer and does not.
    let call = start(&calls, CallSpec { program: false, ..program("import os; os._exit(0)") });
    assert!(matches!(call.wait().expect("no signal"), CallEvent::Nothing));
    assert_eq!(call.run().settled_blocking().ending, Ending::NoResult);
}

#[test]
fn an_exception_is_described() {
    let engine = engine();
    let calls = engine.calls(profile(), 1).expect("a pool");
    let call = start(&calls, program("def f():\n    raise KeyError('missing')\nf()"));
    let answer = answer(&call);
    assert_eq!(answer.kind, AnswerKind::Raised);
    let text = String::from_utf8_lossy(&answer.inline).into_owned();
    assert!(text.contains("KeyError") && text.contains("line 2, in f"), "{text}");
    assert!(call.accept(answer.kind));
    assert_eq!(call.run().wait_blocking().ending, Ending::Raised);
}

#[test]
fn a_large_part_is_read_from_the_jobs_memory() {
    let engine = engine();
    let calls = engine.calls(profile(), 1).expect("a pool");
    let call = start(&calls, program("bytes(range(256)) * 4096"));
    let answer = answer(&call);
    assert_eq!(answer.parts.len(), 1);
    let mut buffer = vec![0; answer.parts[0].length as usize];
    call.read(answer.parts[0], &mut buffer, &mut || false).expect("the job lives");
    let pattern: Vec<u8> = (0..=255).collect();
    assert!(buffer.windows(256).filter(|window| *window == pattern).count() >= 4000);
    assert!(call.accept(answer.kind));
    call.run().settled_blocking();
    assert!(call.read(answer.parts[0], &mut buffer, &mut || false).is_err(), "a dead job's memory was read");
}

#[test]
fn an_interpreter_that_is_none_is_refused_with_the_reason() {
    let engine = engine();
    for (profile, reason) in [
        (Profile { interpreter: "/bin/true".into(), ..profile() }, "not a Python"),
        (Profile { preload: vec!["no_such_module".to_owned()], ..profile() }, "no_such_module"),
    ] {
        let calls = engine.calls(profile, 1).expect("a pool");
        let error = calls.call(program("1"), &mut || false).expect_err("no zygote").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

fn pass(time: Duration) {
    let (_held, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}

/// A caller that took an answer may decode it for longer than the job's remaining time.
#[test]
fn answer_read_after_its_wall_counts_and_blocks_no_call() {
    let engine = engine();
    let calls = engine.calls(profile(), 2).expect("a pool");
    calls.warm(2, &mut || false).expect("children");
    let mut spec = program("6 * 7");
    spec.limits = Limits::new().wall(Duration::from_millis(500));
    let kept = start(&calls, spec);
    let answer = answer(&kept);
    assert!(kept.take(answer.kind));
    pass(Duration::from_millis(700));

    let mut spec = program("while True: pass");
    spec.limits = Limits::new().wall(Duration::from_millis(200));
    let call = start(&calls, spec);
    assert!(call.verdict_within(Duration::from_secs(10)), "nobody ends it");
    assert_eq!(call.run().settled_blocking().ending, Ending::Timeout);
    let outcome = kept.run().settled_blocking();
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Returned, Some(0)), "{outcome:?}");
}

/// Nothing is left to wake the enforcer but what a call without a wall needs.
#[test]
fn stall_limit_holds_after_a_time_without_calls() {
    let engine = engine();
    let calls = engine.calls(profile(), 1).expect("a pool");
    for _ in 0..2 {
        let mut spec = program("6 * 7");
        spec.limits = Limits::new().wall(Duration::from_millis(600));
        let call = start(&calls, spec);
        let answer = answer(&call);
        assert!(call.accept(answer.kind));
        call.run().settled_blocking();
        drop(call);
        pass(Duration::from_millis(1200));

        let mut spec = program("import time\ntime.sleep(60)");
        spec.limits = Limits::new().stall(Duration::from_millis(300));
        let call = start(&calls, spec);
        assert!(call.verdict_within(Duration::from_secs(10)), "nobody ends it");
        assert_eq!(call.run().settled_blocking().ending, Ending::Stalled);
    }
}

/// The interpreter by its path, as no other test names it: that distinguishes this test's processes
/// from theirs.
fn by_path() -> Profile {
    let path = std::env::var_os("PATH").expect("a PATH");
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join("python3"));
    let found = candidates.find(|file| file.is_file()).expect("a python3");
    Profile { interpreter: found.into(), ..profile() }
}

/// The zygote of a profile: a child of this process that runs its interpreter, as its own children
/// do, but it is in no pid namespace of a sandbox.
fn zygote_of(profile: &Profile) -> OwnedFd {
    let own = format!("PPid:\t{}\n", std::process::id());
    let is_it = |pid: &i32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (status, arguments) = (read("status"), read("cmdline"));
        let status = String::from_utf8_lossy(&status);
        let spaces = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        status.contains(&own)
            && spaces.is_some_and(|pids| pids.split_whitespace().count() == 1)
            && arguments.split(|byte| *byte == 0).next() == Some(profile.interpreter.as_encoded_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("the processes").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<i32> = pids.filter(is_it).collect();
    assert_eq!(found.len(), 1, "zygotes: {found:?}");
    let pid = Pid::from_raw(found[0]).expect("a process's number");
    pidfd_open(pid, PidfdFlags::empty()).expect("a child that nobody reaps meanwhile")
}

/// Requests this many children, and asserts that they do not come.
fn wait_in_vain(calls: &Calls, count: usize) {
    let mut samples = 0;
    let mut a_while = || {
        samples += 1;
        samples > 10
    };
    calls.warm(count, &mut a_while).expect("given up");
    assert!(calls.stats().ready < count, "a stopped zygote gives children");
}

/// A zygote that hangs on a request for a child delays the close of its pool for less than an
/// answer may take.
#[test]
fn pool_with_a_hung_zygote_is_closed_soon() {
    let engine = engine();
    let profile = by_path();
    let calls = engine.calls(profile.clone(), 1).expect("a pool");
    calls.warm(1, &mut || false).expect("a child");
    let zygote = zygote_of(&profile);
    pidfd_send_signal(&zygote, Signal::STOP).expect("a process of our own");
    wait_in_vain(&calls, 2);
    // The control: nothing else is wrong with it.
    pidfd_send_signal(&zygote, Signal::CONT).expect("a process of our own");
    calls.warm(2, &mut || false).expect("children");
    assert_eq!(calls.stats().zygotes, 1);

    pidfd_send_signal(&zygote, Signal::STOP).expect("a process of our own");
    wait_in_vain(&calls, 3);
    let begun = monotonic_nanoseconds();
    drop(calls);
    let taken = Duration::from_nanos(monotonic_nanoseconds() - begun);
    assert!(taken < Duration::from_secs(3), "closing took {taken:?}");
    assert!(sandtimer_os::process::is_dead(zygote.as_fd()));
}

/// While all pre-warmer threads wait for a stopped zygote, answered jobs are dead and their ends
/// known.
#[test]
fn answered_calls_end_while_all_threads_are_busy() {
    let engine = engine();
    let profile = by_path();
    let calls = engine.calls(profile.clone(), 4).expect("a pool");
    calls.warm(4, &mut || false).expect("children");
    let zygote = zygote_of(&profile);
    pidfd_send_signal(&zygote, Signal::STOP).expect("a process of our own");
    let begun: Vec<CallHandle> = (0..4).map(|_| start(&calls, program("6 * 7"))).collect();
    wait_in_vain(&calls, 16);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for call in begun {
            let answer = answer(&call);
            assert!(call.accept(answer.kind));
            // Through its run, which does not hasten the end of answered jobs.
            sender.send(call.run().settled_blocking()).expect("somebody waits");
        }
    });
    for _ in 0..4 {
        let outcome = receiver.recv_timeout(Duration::from_secs(5)).expect("the end of an answered call");
        assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Returned, Some(0)), "{outcome:?}");
        assert!(outcome.tree.dead_after_ms.is_some_and(|after| after < 1000), "{outcome:?}");
    }
    pidfd_send_signal(&zygote, Signal::CONT).expect("a process of our own");
}
