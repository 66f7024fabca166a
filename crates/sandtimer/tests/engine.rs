//! The engine through its public API, with real processes.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use sandtimer::engine::{Engine, Options, Require, Spec, Stdin, Stream};
use sandtimer::isolate::plan::IsolationLayer;
use sandtimer::model::{
    Ending, Enforcer, KillClass, LimitKind, Outcome, Path as RunPath, Proof, Source, Tier, Verdict,
    WaitingFor, Warning,
};
use sandtimer::{Error, Limits};

/// Fails a test that hangs, with a message instead of the runner's timeout.
fn bounded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(value) => value,
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
    }
}

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script])
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

fn run(spec: Spec) -> Arc<Outcome> {
    bounded(move || Engine::new().unwrap().start(spec).unwrap().settled_blocking())
}

#[track_caller]
fn assert_dead(outcome: &Outcome) {
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

#[test]
fn a_command_that_ends_by_itself() {
    let outcome = run(shell("echo out; echo err >&2; exit 7"));
    assert_eq!((outcome.ending, outcome.exit_code, outcome.ok), (Ending::Exited, Some(7), false));
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
    assert!(outcome.verdict.is_none());
    assert_dead(&outcome);
}

#[test]
fn a_signal_of_its_own_is_not_ours() {
    let outcome = run(shell("kill -SEGV $$"));
    assert_eq!((outcome.ending, outcome.signal.as_deref()), (Ending::Signaled, Some("SIGSEGV")));
}

#[test]
fn kernel_signal_is_explained() {
    let cases = [
        ("kill -SYS $$", "SIGSYS", "system calls"),
        ("ulimit -S -t 1; while :; do :; done", "SIGXCPU", "ulimit -t"),
        ("ulimit -f 1; exec head -c 100000 /dev/zero > /tmp/large", "SIGXFSZ", "ulimit -f"),
    ];
    for (script, signal, expected) in cases {
        let outcome = run(shell(script).limits(Limits::new().wall(seconds(30.0))));
        assert_eq!((outcome.ending, outcome.signal.as_deref()), (Ending::Signaled, Some(signal)));
        let error = outcome.error.as_ref().unwrap();
        assert_eq!(error["code"], "signaled");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(signal) && message.contains(expected), "{message}");
    }
    assert_eq!(run(shell("kill -SEGV $$")).error, None);
    // A limit of ours explains it better.
    let spec = shell("exec head -c 100000 /dev/zero > /tmp/large").limits(Limits::new().disk(1000));
    let outcome = run(spec);
    assert_eq!((outcome.ending, &outcome.error), (Ending::DiskLimit, &None), "{outcome:?}");
}

#[test]
fn wall_limit_ends_a_busy_loop_and_is_reported() {
    let outcome = run(shell("while :; do :; done").limits(Limits::new().wall(seconds(0.2))));
    let verdict = outcome.verdict.as_ref().unwrap();
    assert_eq!(outcome.ending, Ending::Timeout);
    assert_eq!(
        (verdict.kind, verdict.limit_ms, verdict.source),
        (Some(LimitKind::Wall), Some(200), Source::Call)
    );
    assert_eq!(verdict.enforced_by, Enforcer::Enforcer);
    assert!(verdict.sentence.starts_with("Stopped by the run's wall limit of 200 ms (set by the call)."));
    assert_dead(&outcome);
}

#[test]
fn verdict_names_what_was_waited_for() {
    let python = |code: &str| Spec::command(["python3", "-c", code]);
    let piped = |mut spec: Spec| {
        spec.stdin = Stdin::Piped;
        spec
    };
    // Piped stdin to which the caller does not write is open as long as its run.
    let cases = [
        (piped(Spec::command(["cat"])), WaitingFor::Stdin, "waiting for its stdin"),
        (piped(python("input()")), WaitingFor::Stdin, "stdin"),
        (Spec::command(["sleep", "1000"]), WaitingFor::Sleep, "sleeping"),
        (python("import asyncio; asyncio.run(asyncio.sleep(1000))"), WaitingFor::Sleep, "sleeping"),
        (python("import select; select.poll().poll(1000000)"), WaitingFor::Sleep, "sleeping"),
        (shell("sleep 1000; true"), WaitingFor::Child, "a child process"),
        (shell("sleep 1000 & wait; true"), WaitingFor::Child, "a child process"),
        (shell("x=$(sleep 1000); true"), WaitingFor::Child, "a child process"),
        (python("import socket; s = socket.socketpair(); s[0].recv(1)"), WaitingFor::Network, "the network"),
        (shell("while :; do :; done"), WaitingFor::Cpu, "computing"),
        (
            python(
                "import threading, time\n\
                 threading.Thread(target=lambda: time.sleep(1000)).start()\nwhile True: pass",
            ),
            WaitingFor::Cpu,
            "computing",
        ),
        (shell("kill -STOP $$"), WaitingFor::Stopped, "it was stopped"),
    ];
    bounded(move || {
        let engine = Engine::new().unwrap();
        let runs: Vec<_> = cases
            .into_iter()
            .map(|(spec, waiting_for, expected)| {
                let command = format!("{:?}", spec.command);
                let run = engine.start(spec.limits(Limits::new().wall(seconds(2.0)))).unwrap();
                (command, run, waiting_for, expected)
            })
            .collect();
        for (command, run, waiting_for, expected) in runs {
            let outcome = run.settled_blocking();
            let verdict = outcome.verdict.as_ref().unwrap_or_else(|| panic!("{command}: {outcome:?}"));
            assert_eq!(verdict.waiting_for, Some(waiting_for), "{command}: {outcome:?}");
            assert!(verdict.sentence.contains(expected), "{command}: {}", verdict.sentence);
        }
        let stalled = engine
            .run_blocking(Spec::command(["sleep", "1000"]).limits(Limits::new().stall(seconds(0.5))))
            .unwrap();
        assert_eq!(stalled.ending, Ending::Stalled);
        assert_eq!(stalled.verdict.as_ref().unwrap().waiting_for, Some(WaitingFor::Sleep), "{stalled:?}");
        // What it waits for has an age, and a shell's child is named.
        let spec = shell("sleep 1000; true").limits(Limits::new().stall(seconds(1.0)));
        let stalled = engine.run_blocking(spec).unwrap();
        let verdict = stalled.verdict.as_ref().unwrap();
        let child = verdict.child.as_ref().map(|child| (child.name.as_str(), child.waiting_for));
        assert_eq!(
            (verdict.waiting_for, child),
            (Some(WaitingFor::Child), Some(("sleep", Some(WaitingFor::Sleep)))),
            "{stalled:?}"
        );
        assert!(verdict.sentence.contains("a child process (sleep, which was sleeping)"), "{stalled:?}");
        assert!(verdict.wait_channel.as_ref().is_some_and(|name| name.contains("sleep")), "{stalled:?}");
        for age in [verdict.last_cpu_age_ms, verdict.last_io_age_ms] {
            assert!(age.is_some_and(|age| (300..=verdict.elapsed_ms).contains(&age)), "{stalled:?}");
        }
        // Records have other names for some waits; the sentence is more exact.
        let locked = "import fcntl, os; f = open('/tmp/lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)\nif os.fork() == 0: fcntl.lockf(f, fcntl.LOCK_EX)\nos.wait()";
        let piped = "import os, signal; signal.signal(signal.SIGPIPE, signal.SIG_IGN); ends = os.pipe(); os.read(ends[0], 1)";
        for (code, recorded, expected) in [
            (piped, serde_json::json!(["io", null]), "waiting for the other end of a pipe"),
            (locked, serde_json::json!(["child", null]), "which was waiting for a lock"),
        ] {
            let stalled =
                engine.run_blocking(python(code).limits(Limits::new().stall(seconds(1.0)))).unwrap();
            let verdict = serde_json::to_value(stalled.verdict.as_ref().unwrap()).unwrap();
            assert_eq!(
                serde_json::json!([verdict["waiting_for"], verdict["child"]["waiting_for"]]),
                recorded,
                "{verdict}"
            );
            assert!(
                verdict["sentence"].as_str().is_some_and(|sentence| sentence.contains(expected)),
                "{verdict}"
            );
        }
        // A cancel comes unannounced.
        let run = engine.start(Spec::command(["sleep", "1000"])).unwrap();
        run.started_blocking();
        run.cancel("test");
        assert_eq!(run.settled_blocking().verdict.as_ref().unwrap().waiting_for, None);
    });
}

#[test]
fn a_daemon_dies_with_the_run() {
    let outcome = run(shell("setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 & echo started"));
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "started\n"));
    assert!(outcome.tree.killed >= 1, "{:?}", outcome.tree);
    assert_dead(&outcome);
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_delay_the_end() {
    let started = Instant::now();
    let outcome = run(shell("sleep 1000 & exit 3"));
    assert_eq!(outcome.exit_code, Some(3));
    assert!(started.elapsed() < seconds(10.0));
}

#[test]
fn grace_gives_time_to_clean_up_and_no_more() {
    let polite = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done";
    let outcome = run(shell(polite).limits(Limits::new().wall(seconds(0.2)).grace(seconds(10.0))));
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Timeout, "bye\n"));
    assert_eq!(outcome.verdict.as_ref().unwrap().signals[0].signal, "SIGTERM");
    let rude = "trap '' TERM; while :; do :; done";
    let outcome = run(shell(rude).limits(Limits::new().wall(seconds(0.1)).grace(seconds(0.2))));
    let signals: Vec<_> =
        outcome.verdict.as_ref().unwrap().signals.iter().map(|sent| sent.signal.as_str()).collect();
    assert_eq!(signals, ["SIGTERM", "SIGKILL"]);
    assert_dead(&outcome);
}

#[test]
fn processor_time_of_the_whole_tree_is_limited() {
    let outcome =
        run(shell("for i in 1 2; do (while :; do :; done) & done; wait")
            .limits(Limits::new().cpu(seconds(0.3))));
    assert_eq!(outcome.ending, Ending::Timeout);
    assert_eq!(outcome.verdict.as_ref().unwrap().kind, Some(LimitKind::Cpu));
    let used = outcome.usage.user_ms + outcome.usage.system_ms;
    assert!((290..1000).contains(&used), "{used} ms");
}

#[test]
fn waiting_for_a_processor_is_counted() {
    let loops = |count: usize| shell(&format!("{}wait", "(while :; do :; done) & ".repeat(count)));
    let processors = std::thread::available_parallelism().unwrap().get();
    let crowd = Engine::new()
        .unwrap()
        .start(loops(4 * processors).limits(Limits::new().wall(seconds(20.0))))
        .unwrap();
    crowd.started_blocking();
    let outcome = run(loops(1).limits(Limits::new().wall(seconds(1.0))));
    crowd.cancel("the test is over");
    let counted = Path::new("/proc/pressure/cpu").exists() && outcome.isolation.kill == KillClass::K3;
    assert_eq!(
        outcome.usage.run_queue_ms.is_some_and(|waited| waited >= 100),
        counted,
        "{:?}",
        outcome.usage
    );
    if counted {
        let idle = run(Spec::command(["sleep", "0.5"])).usage.run_queue_ms.unwrap();
        assert!(idle < 400, "{idle}");
    }
}

#[test]
fn own_processes_do_not_count_as_waiting() {
    // Four processes on one processor: one of them always waits, and it is for another one of them.
    let source = "import os, time\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n\
                  for _ in range(3): os.fork() or any(iter(int, 1))\n\
                  while True: pass";
    let outcome = run(Spec::command(["python3", "-c", source]).limits(Limits::new().wall(seconds(2.0))));
    let usage = &outcome.usage;
    let Some(waited) = usage.run_queue_ms else {
        assert_ne!(outcome.isolation.kill, KillClass::K3, "{usage:?}");
        return;
    };
    // What one processor gave to them and what others took from them is all the time there was.
    let ran = usage.user_ms + usage.system_ms;
    assert!(ran > 0 && waited + ran <= usage.wall_ms * 12 / 10, "{usage:?}");
}

#[test]
fn quiet_run_stalls_unless_it_works() {
    let outcome = run(shell("echo once; sleep 1000").limits(Limits::new().stall(seconds(0.3))));
    assert_eq!(outcome.ending, Ending::Stalled);
    let busy = "i=0; end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done";
    let outcome = run(shell(busy).limits(Limits::new().stall(seconds(0.5))));
    assert_eq!(outcome.ending, Ending::Exited, "{:?}", outcome.verdict);
}

#[test]
fn quiet_run_that_works_is_warned_once() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let busy = "echo once; end=$(($(date +%s) + 2)); while [ $(date +%s) -lt $end ]; do :; done";
        let run = engine.start(shell(busy).limits(Limits::new().stall(seconds(0.4)))).unwrap();
        let Some(warning @ Warning::Stall { quiet_ms }) = run.warned_blocking() else {
            panic!("no word of its silence: {:?}", run.wait_blocking())
        };
        assert!((400..2000).contains(&quiet_ms), "{warning:?}");
        assert!(warning.to_string().starts_with("busy but quiet for "), "{warning}");
        assert_eq!(run.warned_blocking(), None);
        assert_eq!(run.wait_blocking().ending, Ending::Exited);
        // Silence without work is ended, and silence within the limit is nothing to talk about.
        for script in ["sleep 1000", "while :; do echo x; sleep 0.02; done"] {
            let limits = Limits::new().stall(seconds(0.3)).wall(seconds(1.0));
            let run = engine.start(shell(script).limits(limits)).unwrap();
            assert_eq!(run.warned_blocking(), None, "{script}");
        }
    });
}

/// Init's own timer ends a run, too: paused at any of its instructions, it must hear of a moved
/// wall before it acts on the earlier one.
#[test]
fn runs_paused_at_their_start_keep_their_whole_wall() {
    const WALL: f64 = 0.3;
    bounded(|| {
        let engine = Engine::new().unwrap();
        let runs: Vec<_> = (0..64)
            .map(|_| {
                let spec = shell("sleep 1000").limits(Limits::new().wall(seconds(WALL)));
                let run = engine.start(spec).unwrap();
                run.started_blocking();
                run.pause().unwrap();
                run
            })
            .collect();
        std::thread::sleep(seconds(2.0 * WALL));
        runs.iter().for_each(|run| run.resume().unwrap());
        for run in runs {
            let outcome = run.wait_blocking();
            let verdict = outcome.verdict.as_ref().unwrap();
            let spent = verdict.elapsed_ms.saturating_sub(verdict.spent.paused_ms);
            assert!(spent + 1 >= (1000.0 * WALL) as u64, "{outcome:?}");
        }
    });
}

#[test]
fn a_warning_comes_before_the_wall_and_moves_with_it() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let spec = |wall| shell("sleep 1000").limits(Limits::new().wall(seconds(wall))).warn(seconds(0.4));
        let left = |run: &sandtimer::Run| match run.warned_blocking() {
            Some(Warning::Wall { left_ms }) => left_ms,
            other => panic!("no word of the wall: {other:?}; {:?}", run.wait_blocking()),
        };
        let run = engine.start(spec(0.8)).unwrap();
        assert!((1..=400).contains(&left(&run)));
        run.extend(seconds(0.8)).unwrap();
        assert!((1..=400).contains(&left(&run)), "once more, for the new end");
        let outcome = run.wait_blocking();
        assert_eq!(outcome.ending, Ending::Timeout);
        assert!(outcome.usage.wall_ms >= 1600, "{outcome:?}");
        assert_eq!(run.warned_blocking(), None);
        // The clock is stopped: neither wall nor warning fire, and after it the rest of both
        // passes.
        let run = engine.start(spec(0.6)).unwrap();
        run.started_blocking();
        run.pause().unwrap();
        let paused = Instant::now();
        let (_hold, gone) = channel::<()>();
        let _ = gone.recv_timeout(seconds(1.0));
        run.resume().unwrap();
        left(&run);
        assert!(paused.elapsed() >= seconds(1.0));
        run.cancel("heard");
        // The caller did not request a warning.
        let run = engine.start(shell("sleep 1000").limits(Limits::new().wall(seconds(0.1)))).unwrap();
        assert_eq!(run.warned_blocking(), None);
        // A lead longer than the wall is the whole wall.
        let run = engine.start(spec(0.3)).unwrap();
        assert!(left(&run) <= 300);
    });
}

#[test]
fn output_past_the_limit_is_dropped_and_the_run_goes_on() {
    let spec =
        shell("head -c 3000000 /dev/zero | tr '\\0' a; echo end").limits(Limits::new().output(100_000));
    let outcome = run(spec);
    assert_eq!((outcome.ending, outcome.stdout_truncated), (Ending::Exited, true));
    assert_eq!(outcome.stdout.len(), 100_000);
    assert!(outcome.stdout.ends_with("aend\n"));
}

#[test]
fn output_past_the_limit_ends_the_run_when_asked() {
    let mut spec = shell("yes").limits(Limits::new().output(100_000).wall(seconds(20.0)));
    spec.end_on_output_limit = true;
    assert_eq!(run(spec).ending, Ending::OutputLimit);
}

#[test]
fn memory_limit_is_distinguished_from_a_crash() {
    let engine = Engine::new().unwrap();
    if engine.host().expect("a launcher").cgroup_limits.is_err() {
        return; // sampled there and not held by a controller: `rootless.rs` tries it
    }
    let eat = "import sys\nx = []\nwhile True: x.append(bytearray(1 << 20))";
    let spec =
        Spec::command(["python3", "-c", eat]).limits(Limits::new().memory(64 << 20).wall(seconds(30.0)));
    let outcome = bounded(move || engine.start(spec).unwrap().settled_blocking());
    assert_eq!(outcome.ending, Ending::OutOfMemory, "{outcome:?}");
    assert_dead(&outcome);
}

#[test]
fn stdin_environment_and_directory_arrive() {
    let outcome = run(shell("cat; echo $GREETING; pwd").env("GREETING", "hello").stdin_bytes("fed\n"));
    let cwd = std::env::current_dir().unwrap();
    assert_eq!(outcome.stdout, format!("fed\nhello\n{}\n", cwd.display()));
    let mut spec = shell("wc -c");
    spec.stdin = Stdin::Bytes(vec![b'x'; 1_000_000]);
    assert_eq!(run(spec).stdout.trim(), "1000000");
}

#[test]
fn the_callers_environment_stays_out() {
    let outcome = run(Spec::command(["env"]));
    assert!(!outcome.stdout.contains("CARGO_MANIFEST_DIR"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("HOME=/tmp"));
}

#[test]
fn a_workspace_keeps_its_owner_and_the_rest_is_read_only() {
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("private"), "secret").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(workspace.path().join("private"), mode).unwrap();
    let script =
        format!("cat {0}/private && echo new > {0}/made && touch /usr/x", workspace.path().display());
    let outcome = run(shell(&script).workspace(workspace.path()));
    assert!(outcome.stdout.starts_with("secret"), "{outcome:?}");
    assert!(
        outcome.stderr.contains("Read-only") || outcome.stderr.contains("Permission denied"),
        "{}",
        outcome.stderr
    );
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
    assert_eq!(owner(&workspace.path().join("made")), owner(workspace.path()));
}

#[test]
fn a_workspace_gets_no_file_with_set_id_bits() {
    let workspace = tempfile::tempdir().unwrap();
    let at = workspace.path().display();
    let script = format!(
        "cp /bin/sh {at}/s; chmod 4755 {at}/s; chmod 2755 {at}/s; mkdir {at}/d; chmod 2777 {at}/d; true"
    );
    let outcome = run(shell(&script).workspace(workspace.path()));
    assert!(outcome.stderr.contains("not permitted"), "{outcome:?}");
    for entry in std::fs::read_dir(workspace.path()).unwrap().flatten() {
        let mode = std::os::unix::fs::MetadataExt::mode(&entry.metadata().unwrap());
        assert_eq!(mode & 0o6000, 0, "{} has mode {mode:o}", entry.path().display());
    }
    // An open(2) that makes a file has a mode of its own.
    let made = format!("import os; os.open('{at}/o', os.O_CREAT | os.O_WRONLY, 0o4755)");
    let outcome = run(Spec::command(["python3", "-c", &made]).workspace(workspace.path()));
    assert!(outcome.stderr.contains("PermissionError"), "{outcome:?}");
}

#[test]
fn a_disk_limit_holds_however_deep_the_files_lie() {
    let workspace = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    let script = format!(
        "cd {}; for i in $(seq 30); do mkdir {name}; cd {name}; done; \
         for i in $(seq 40); do head -c 1000000 /dev/zero > $i; sleep 0.1; done",
        workspace.path().display()
    );
    let limits = Limits::new().disk(5 << 20).wall(seconds(30.0));
    assert_eq!(run(shell(&script).workspace(workspace.path()).limits(limits)).ending, Ending::DiskLimit);
}

#[test]
fn growth_before_the_first_disk_sample_counts() {
    let (of_one, of_other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    bounded(move || {
        let engine = Engine::new().unwrap();
        let limits = Limits::new().disk(20 << 20).wall(seconds(10.0));
        // Another run is already sampled, and is between two samples.
        let other = shell("sleep 1000").workspace(of_other.path()).limits(limits.clone());
        let other = engine.start(other).unwrap();
        other.started_blocking();
        let before = vec![1; 30 << 20];
        std::fs::write(of_one.path().join("there"), before).unwrap();
        let line = |count: u32| {
            let at = of_one.path().display();
            format!(
                "cd {at}; for i in $(seq {count}); do head -c 1000000 /dev/zero >$i; done; sleep 0.5; sleep $0"
            )
        };
        let one = |count, pause| {
            let spec = Spec::command(["/bin/sh", "-c", &line(count), pause]);
            engine.run_blocking(spec.workspace(of_one.path()).limits(limits.clone())).unwrap().ending
        };
        assert_eq!(one(10, "0"), Ending::Exited);
        assert_eq!(one(40, "1000"), Ending::DiskLimit);
        other.cancel("enough");
        other.settled_blocking();
    });
}

#[test]
fn process_limit_is_distinguished_from_a_failure() {
    let script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait";
    let outcome = run(shell(script).limits(Limits::new().processes(5).wall(seconds(20.0))));
    if outcome.isolation.tier == Tier::T3 {
        assert_eq!(outcome.ending, Ending::ProcessLimit, "{outcome:?}");
    }
    assert_dead(&outcome);
}

#[test]
fn cancel_ends_and_is_not_a_timeout() {
    let outcome = bounded(|| {
        let engine = Engine::new().unwrap();
        let run = engine.start(shell("sleep 1000")).unwrap();
        run.started_blocking();
        run.cancel("no longer wanted");
        run.settled_blocking()
    });
    assert_eq!(outcome.ending, Ending::Cancelled);
    assert!(outcome.verdict.as_ref().unwrap().sentence.contains("no longer wanted"));
    assert_dead(&outcome);
}

#[test]
fn extending_in_time_moves_the_end_and_too_late_is_an_error() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let run =
            engine.start(shell("sleep 0.6; echo made it").limits(Limits::new().wall(seconds(0.3)))).unwrap();
        run.started_blocking();
        run.extend(seconds(30.0)).unwrap();
        assert_eq!(run.wait_blocking().stdout, "made it\n");
        let run = engine.start(shell("sleep 1000").limits(Limits::new().wall(seconds(0.1)))).unwrap();
        assert_eq!(run.wait_blocking().ending, Ending::Timeout);
        assert!(run.extend(seconds(30.0)).is_err());
        // Before the command has started it counts just the same.
        let run =
            engine.start(shell("sleep 0.6; echo early").limits(Limits::new().wall(seconds(0.3)))).unwrap();
        run.extend(seconds(30.0)).unwrap();
        assert_eq!(run.wait_blocking().stdout, "early\n");
    });
}

#[test]
fn a_ceiling_of_the_wall_counts_from_the_start_of_the_command() {
    bounded(|| {
        let options = Options { maxima: Limits::new().wall(seconds(0.3)), ..Options::default() };
        let engine = Engine::with_options(options).unwrap();
        let limited = engine.run_blocking(shell("sleep 1000")).unwrap();
        let verdict = limited.verdict.as_ref().unwrap();
        assert_eq!((verdict.source, verdict.limit_ms), (Source::Ceiling, Some(300)));
        // However late it came: when it was due.
        let due = |verdict: &Verdict| verdict.elapsed_ms as f64 - verdict.late_ms;
        assert!(due(verdict) > 299.0, "{verdict:?}");
        // The grace lies within it.
        let spec = shell("trap '' TERM; sleep 1000; sleep 1000").limits(Limits::new().grace(seconds(0.1)));
        let run = engine.start(spec).unwrap();
        let verdict = run.wait_blocking().verdict.clone().unwrap();
        assert!((299.0..=300.0).contains(&due(&verdict)), "{verdict:?}");
        assert_eq!(verdict.signals[0].signal, "SIGTERM", "{verdict:?}");
        assert!(verdict.signals[0].at_ms >= 200, "{verdict:?}");
    });
}

#[test]
fn a_deadline_around_a_run_stays_where_it_is() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let outer = engine.start(shell("sleep 1000").limits(Limits::new().wall(seconds(3.0)))).unwrap();
        outer.started_blocking();
        let mut spec = shell("sleep 1000").limits(Limits::new().wall(seconds(60.0)).grace(seconds(0.5)));
        spec.parent = Some(outer.scope());
        let inner = engine.start(spec).unwrap();
        inner.started_blocking();
        assert!(inner.deadline().unwrap() <= outer.deadline().unwrap());
        let verdict = inner.wait_blocking().verdict.clone().unwrap();
        assert_eq!((verdict.kind, verdict.source), (Some(LimitKind::Wall), Source::Ancestor));
        assert_eq!(verdict.signals[0].signal, "SIGTERM", "the grace is before the outer end: {verdict:?}");
    });
}

#[test]
fn a_pause_stops_the_clock() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let run =
            engine.start(shell("sleep 0.1; echo done").limits(Limits::new().wall(seconds(2.0)))).unwrap();
        run.started_blocking();
        run.pause().unwrap();
        let (_hold, gone) = channel::<()>();
        let _ = gone.recv_timeout(seconds(2.5));
        run.resume().unwrap();
        let outcome = run.wait_blocking();
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "done\n"), "{outcome:?}");
    });
}

#[test]
fn output_is_readable_by_cursor_while_running() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let run = engine.start(shell("echo first; sleep 1000")).unwrap();
        let until = Instant::now() + seconds(20.0);
        let mut chunk = run.output(Stream::Stdout, 0, 100).unwrap();
        while chunk.bytes.is_empty() && Instant::now() < until {
            std::thread::yield_now();
            chunk = run.output(Stream::Stdout, 0, 100).unwrap();
        }
        assert_eq!((chunk.bytes.as_slice(), chunk.next_cursor), (&b"first\n"[..], 6));
        run.cancel("seen");
        run.settled_blocking();
    });
}

#[test]
fn a_parked_sandbox_runs_a_command_and_only_one_like_its_own() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let parked = engine.park(&shell("")).unwrap();
        let limits = Limits::new().wall(seconds(0.2));
        let outcome =
            parked.start(shell("echo parked; sleep 1000").limits(limits)).unwrap().settled_blocking();
        assert_eq!((outcome.ending, outcome.path), (Ending::Timeout, RunPath::Parked));
        assert_eq!(
            (outcome.stdout.as_str(), outcome.verdict.as_ref().unwrap().limit_ms),
            ("parked\n", Some(200))
        );
        assert_dead(&outcome);
        let parked = engine.park(&shell("")).unwrap();
        assert!(parked.start(shell("").network(true)).is_err());
    });
}

#[test]
fn many_runs_at_a_time_keep_apart() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let runs: Vec<_> = (0..50)
            .map(|n| engine.start(shell(&format!("echo {n}; sleep 0.2; echo {n}"))).unwrap())
            .collect();
        for (n, run) in runs.iter().enumerate() {
            assert_eq!(run.wait_blocking().stdout, format!("{n}\n{n}\n"));
        }
    });
}

#[test]
fn a_slot_is_as_good_as_new_after_a_kill() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        for _ in 0..4 {
            let killed =
                engine.run_blocking(shell("sleep 1000").limits(Limits::new().wall(seconds(0.05)))).unwrap();
            assert_eq!(killed.ending, Ending::Timeout);
            let after = engine.run_blocking(Spec::command(["true"])).unwrap();
            assert!(after.ok, "{after:?}");
            assert_eq!(after.usage.processes_peak, 1);
        }
    });
}

#[test]
fn what_cannot_be_started_is_an_error_and_leaves_nothing() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        assert!(matches!(engine.run_blocking(Spec::default()), Err(Error::NoCommand)));
        let missing = engine.run_blocking(Spec::command(["no-such-program"])).unwrap_err();
        assert_eq!(missing.exit_code(), 127);
        let directory = engine.run_blocking(Spec::command(["/usr"])).unwrap_err();
        assert_eq!(directory.exit_code(), 126);
        for limits in [Limits::new().memory(4096), Limits::new().open_files(3)] {
            let refused = engine.run_blocking(Spec::command(["true"]).limits(limits)).unwrap_err();
            assert!(matches!(refused, Error::Limit(_)), "{refused}");
            assert!(
                refused.to_string().contains("less than any command needs (from the call); use `"),
                "{refused}"
            );
        }
        // The least that is let through is enough.
        let least = Limits::new().memory(1 << 20).open_files(32).processes(1).output(1).disk(1);
        let outcome = engine.run_blocking(Spec::command(["true"]).limits(least)).unwrap();
        assert_eq!(outcome.exit_code, Some(0), "{outcome:?}");
    });
}

#[test]
fn without_namespaces_the_tree_is_swept_and_reported() {
    bounded(|| {
        // A directory of an engine number that is never used, so its engine cannot be alive.
        let uid = rustix::process::getuid().as_raw();
        let left = std::env::temp_dir().join(format!("sandtimer-run-{uid}-255-abc"));
        std::fs::create_dir_all(left.join("below")).unwrap();
        let options = Options { no_namespaces: true, ..Options::default() };
        let engine = Engine::with_options(options).unwrap();
        // The caller's own may be where only he enters.
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_owned();
        let shell = |script| Spec {
            working_directory: Some(at.clone()),
            workspaces: vec![at.clone()],
            ..shell(script)
        };
        let outcome = engine
            .run_blocking(shell("setsid sleep 1000 & echo ok; echo x > $HOME/file && cat $HOME/file"))
            .unwrap();
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "ok\nx\n"), "{outcome:?}");
        assert_eq!(outcome.isolation.tier, Tier::T1);
        assert!(!left.exists(), "what a dead engine left was not removed");
        assert_dead(&outcome);
        let limits = Limits::new().wall(seconds(0.2));
        let outcome = engine
            .start(shell("(trap '' TERM; sleep 1000) & sleep 1000").limits(limits))
            .unwrap()
            .settled_blocking();
        assert_eq!(outcome.ending, Ending::Timeout);
        assert_dead(&outcome);
        let outcome =
            engine.run_blocking(shell("cat /etc/shadow; ls /root; touch /tmp/sandtimer-escape")).unwrap();
        assert_ne!(outcome.exit_code, Some(0), "{outcome:?}");
        assert!(!Path::new("/tmp/sandtimer-escape").exists());
        let mut spec = shell("true");
        spec.require = Require { tier: Some(Tier::T3), kill: None };
        let refused = engine.run_blocking(spec).unwrap_err().to_string();
        assert!(refused.contains("tier T3 is required and this host gives T1"), "{refused}");
    });
}

/// What reaches the processes and files of the host's users where there are no namespaces, and what
/// of it a program needs for itself. Prints each that failed, and why.
const REACH: &str = r#"
import ctypes, os
os.chdir(os.environ["HOME"])
open("mine", "w").close()
call = ctypes.CDLL(None, use_errno=True).syscall
own, all = os.getpid(), 0
calls = {
    "own priority": (141, 0, 0, 1), "own group": (141, 1, 0, 1), "all of a user": (141, 2, 0, 2), "by number": (141, 0, own, 2),
    "own input and output": (251, 1, 0, 0x6000), "input and output of a user": (251, 3, os.getuid(), 0x6000),
    "parameters by number": (142, own, ctypes.byref(ctypes.c_int(0))), "own parameters": (142, 0, ctypes.byref(ctypes.c_int(0))),
    "attribute": (188, b"mine", b"user.mark", b"x", 1, 0),
}
for name, arguments in calls.items():
    ctypes.set_errno(0)
    if call(*arguments) < 0:
        print(name, os.strerror(ctypes.get_errno()), sep=": ")
"#;

#[test]
fn without_namespaces_priorities_and_attributes_are_its_own() {
    bounded(|| {
        let options = Options { no_namespaces: true, ..Options::default() };
        let engine = Engine::with_options(options).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_owned();
        let reach = |without: &[IsolationLayer]| {
            let mut spec = Spec::command(["/usr/bin/python3", "-c", REACH]);
            (spec.working_directory, spec.workspaces) = (Some(at.clone()), vec![at.clone()]);
            spec.without = without.to_vec();
            engine.run_blocking(spec).unwrap()
        };
        let outcome = reach(&[]);
        assert_eq!(outcome.isolation.tier, Tier::T1);
        let refused = "all of a user: Operation not permitted\nby number: Operation not permitted\n\
                       input and output of a user: Operation not permitted\n\
                       parameters by number: Operation not permitted\nattribute: Operation not supported\n";
        assert_eq!(outcome.stdout, refused, "{outcome:?}");
        // The control: without the filter all of it works.
        let outcome = reach(&[IsolationLayer::Seccomp]);
        assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (Some(0), ""), "{outcome:?}");
    });
}

#[test]
fn as_root_on_this_host_everything_is_in_force() {
    let outcome = run(shell("id -u"));
    if !is_root() || outcome.isolation.tier != Tier::T3 {
        return; // what is missing is in the report, and the doctor's to explain
    }
    assert_eq!(outcome.isolation.kill, KillClass::K3);
    assert!(outcome.isolation.degraded.is_empty(), "{:?}", outcome.isolation.degraded);
    assert_eq!(outcome.tree.proof, Proof::CgroupEmpty);
    assert!(outcome.stdout.trim().parse::<u32>().unwrap() >= 0x7000_0000);
}

#[test]
fn what_only_a_time_of_many_runs_needed_is_given_back() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let held = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        engine.start(shell("true")).unwrap().settled_blocking();
        let before = held();
        let runs: Vec<_> = (0..30).map(|_| engine.start(shell("sleep 1000")).unwrap()).collect();
        let during = held() - before;
        for run in &runs {
            run.cancel("enough");
        }
        for run in &runs {
            assert_eq!(run.settled_blocking().ending, Ending::Cancelled);
        }
        drop(runs);
        // A slot is renewed, or removed, after the Outcome.
        let end = std::time::Instant::now() + seconds(10.0);
        let after = || held().saturating_sub(before);
        while after() > during / 2 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(after() <= during / 2, "{} descriptors are held of {during}", after());
        // And they can all be used again.
        let runs: Vec<_> = (0..30).map(|_| engine.start(shell("exit 7")).unwrap()).collect();
        for run in &runs {
            assert_eq!(run.settled_blocking().exit_code, Some(7));
        }
    });
}

#[test]
fn a_command_reports_its_progress_by_a_descriptor_of_its_own() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let script = r#"echo $SANDTIMER_PROGRESS_FD; echo '[1/99] a'; echo '[2/99] b'; echo nonsense >&3
            echo '{"done": 8, "total": 15, "unit": "epoch"}' >&3; echo '[3/99] c'; sleep 1000"#;
        let mut spec = shell(script).limits(Limits::new().wall(seconds(3.0)));
        spec.progress_channel = true;
        let outcome = engine.start(spec).unwrap().settled_blocking();
        let verdict = outcome.verdict.clone().unwrap();
        let progress = verdict.progress.expect("it was reported");
        assert_eq!((progress.done, progress.total), (8.0, Some(15.0)), "{}", outcome.stdout);
        assert!(outcome.stdout.starts_with("3\n"), "{}", outcome.stdout);
        assert!(verdict.sentence.contains("it was at 8 of 15"), "{}", verdict.sentence);
        // Without it there is no such descriptor.
        let outcome = engine.start(shell("ls /proc/self/fd; echo ${SANDTIMER_PROGRESS_FD-none}")).unwrap();
        let outcome = outcome.settled_blocking();
        assert_eq!(outcome.stdout, "0\n1\n2\n3\nnone\n");
    });
}

#[test]
fn reports_are_read_while_the_command_is_quiet() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let mut spec =
            shell("for i in 1 2 3; do echo '{\"done\":'$i',\"total\":15}'; sleep 0.2; done >&3; sleep 1000");
        (spec.progress_channel, spec.stdout) = (true, sandtimer::Output::Null);
        let run = engine.start(spec.limits(Limits::new().wall(seconds(60.0)))).unwrap();
        let (_hold, gone) = channel::<()>();
        let done = || run.progress().map(|progress| progress.done);
        while done() != Some(3.0) {
            let _ = gone.recv_timeout(seconds(0.01));
        }
        // Two intervals of 0.2 s and more are known of, and twelve are left.
        assert!(run.progress().unwrap().eta_ms > Some(1000), "{:?}", run.progress());
        run.cancel("enough");
    });
}

#[test]
fn a_flood_of_reports_ends_with_its_run() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let mut spec = shell("while :; do echo '{\"done\": 1, \"total\": 15}'; done >&3");
        spec.progress_channel = true;
        let outcome = engine.start(spec.limits(Limits::new().wall(seconds(1.0)))).unwrap().settled_blocking();
        assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
        assert_dead(&outcome);
    });
}

#[test]
fn stall_limit_by_progress_needs_a_reader() {
    let engine = Engine::new().unwrap();
    let mut spec = shell("true");
    (spec.stdout, spec.stderr) = (sandtimer::Output::Null, sandtimer::Output::Piped);
    spec.stall_by_progress = true;
    assert!(matches!(engine.start(spec), Err(Error::NothingToFollow)));
}
