//! Where Python is, read from outside: every version of it that this machine has, contexts, calls,
//! and one that lies.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use crate::programs;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use programs::program;
use sandtimer::engine::{CallSpec, CellSpec, ContextSpec, Engine, Run, Spec};
use sandtimer::model::{Ending, PythonThread, Verdict};
use sandtimer::zygote::Profile;
use sandtimer::{Limits, supervise::RunInspection};

const HARD_STOP: Duration = Duration::from_secs(30);

/// Two threads: one sleeps two functions deep, one waits in a method.
const QUIET: &str = "import threading, time
def größe():
    x = [1 for _ in range(3)]
    time.sleep(
        1000)
def 名前():
    größe()
class Worker:
    def work(self):
        event.wait()
event = threading.Event()
threading.Thread(target=Worker().work, daemon=True).start()
名前()
";

/// The interpreters whose stacks can be read: python3, and others where several versions are
/// usually installed side by side.
fn interpreters() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let readable = ["3.9.", "3.10.", "3.11.", "3.12.", "3.13."];
    let versions = versions.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| readable.iter().any(|version| name.starts_with(version)))
    });
    let found = versions.map(|entry| entry.path().join("bin/python3")).filter(|path| path.exists());
    std::iter::once("python3".into()).chain(found).collect()
}

fn wait_until(run: &Run, holds: impl Fn(&RunInspection) -> bool) -> RunInspection {
    let end = Instant::now() + HARD_STOP;
    loop {
        let snapshot = run.inspect();
        if holds(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < end && !run.has_finished(), "{snapshot:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(thread: &PythonThread) -> Vec<(&str, Option<u32>)> {
    thread.frames.iter().map(|frame| (frame.function.as_str(), frame.line)).collect()
}

#[test]
fn every_thread_of_every_version_is_listed_with_lines() {
    let engine = Engine::new().unwrap();
    for interpreter in interpreters() {
        let run =
            engine.start(Spec::command([interpreter.as_os_str(), "-c".as_ref(), QUIET.as_ref()])).unwrap();
        let has = |thread: &PythonThread, name: &str| {
            thread.frames.iter().any(|frame| frame.function.ends_with(name))
        };
        // The second thread is known before it comes to where it waits.
        let quiet =
            |snapshot: &RunInspection| match snapshot.processes.first().map(|process| &process.python[..]) {
                Some([main, worker]) => {
                    names(main).first().is_some_and(|(name, _)| *name == "größe") && has(worker, "wait")
                }
                _ => false,
            };
        let snapshot = wait_until(&run, quiet);
        let [main, worker] = &snapshot.processes[0].python[..] else { panic!("{snapshot:?}") };
        let frame_names = names(main);
        assert_eq!(
            frame_names[1..],
            [("名前", Some(7)), ("<module>", Some(13))],
            "{interpreter:?}: {main:?}"
        );
        // A call over several lines is at its first one, or at that of its argument.
        assert!(matches!(frame_names[0], ("größe", Some(4 | 5))), "{interpreter:?}: {main:?}");
        assert!(main.frames.iter().all(|frame| frame.file == "<string>") && !main.truncated, "{main:?}");
        let work = names(worker).into_iter().find(|(name, _)| name.ends_with("work"));
        assert_eq!(work.and_then(|(_, line)| line), Some(10), "{interpreter:?}: {worker:?}");
        assert!(
            worker.frames[0].file.ends_with("threading.py") && worker.frames[0].line.is_some(),
            "{worker:?}"
        );
        assert!(snapshot.sentence().contains("Python is in `größe` at <string>:"), "{}", snapshot.sentence());
        run.cancel("seen");
    }
}

#[test]
fn loop_is_located_at_its_line() {
    let engine = Engine::new().unwrap();
    let code = "def turn():\n    n = 0\n    while True:\n        n += 1\nturn()";
    let run = engine.start(Spec::command(["python3", "-c", code])).unwrap();
    let turning = |snapshot: &RunInspection| {
        let main = snapshot.processes.first().and_then(|process| process.python.first());
        main.is_some_and(|main| matches!(names(main)[..], [("turn", Some(3 | 4)), ("<module>", Some(5))]))
    };
    wait_until(&run, turning);
    run.cancel("seen");
}

#[test]
fn stall_verdict_locates_python_below_a_shell_too() {
    let engine = Engine::new().unwrap();
    let spec = Spec::command(["sh", "-c", "python3 -c \"$0\"; true", QUIET]);
    let limits = Limits::new().stall(Duration::from_secs(2)).wall(Duration::from_secs(60));
    let outcome = engine.start(spec.limits(limits)).unwrap().settled_blocking();
    let verdict = outcome.verdict.clone().expect("a verdict");
    assert_eq!((outcome.ending, verdict.python.len()), (Ending::Stalled, 2), "{verdict:?}");
    assert_eq!(verdict.python[0].frames[0].function, "größe");
    assert!(verdict.sentence.contains("; Python was in `größe` at <string>:"), "{}", verdict.sentence);
}

/// The look before a wall is taken 20 ms before it: a machine with more to do may miss one, and not
/// all.
fn assert_located_in(mut verdict: impl FnMut() -> Option<Verdict>, function: &str) {
    let end = Instant::now() + HARD_STOP;
    loop {
        let verdict = verdict().expect("a verdict");
        if verdict.python.iter().flat_map(|thread| &thread.frames).any(|frame| frame.function == function) {
            return;
        }
        assert!(Instant::now() < end, "{verdict:?}");
    }
}

const DEEP: &str =
    "import time\ndef deep():\n    time.sleep(1000)\ntry: deep()\nexcept BaseException: deep()";

#[test]
fn context_reports_where_its_cell_was() {
    let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    let contexts = Engine::new().unwrap().contexts(profile, 1).unwrap();
    let context = contexts.open(ContextSpec::default(), &mut || false).unwrap();
    let cell = || CellSpec {
        source: DEEP.to_owned(),
        limits: Limits::new().wall(Duration::from_secs(1)),
        ..CellSpec::default()
    };
    assert_located_in(|| context.execute(cell(), &mut |_| {}).unwrap().verdict.clone(), "deep");
}

#[test]
fn call_reports_where_it_was() {
    let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    let calls = Engine::new().unwrap().calls(profile, 1).unwrap();
    let limits = Limits::new().wall(Duration::from_secs(1));
    let spec = || CallSpec { limits: limits.clone(), ..program(DEEP) };
    let verdict = || {
        let call = calls.call(spec(), &mut || false).unwrap();
        call.run().settled_blocking().verdict.clone()
    };
    assert_located_in(verdict, "deep");
}

/// An interpreter whose list of interpreters leads into memory of its own making.
const LIAR: &str = "import ctypes, struct, sys, time
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, '_PyRuntime'))
lie = ctypes.create_string_buffer(1 << 16)
here = ctypes.addressof(lie)
KIND
head = 32 if sys.version_info < (3, 11) else 40
if sys.version_info >= (3, 13):
    head = ctypes.c_uint64.from_address(runtime + 40).value
ctypes.c_uint64.from_address(runtime + head).value = here
print('ready', flush=True)
while True: time.sleep(1000)
";

#[test]
fn forged_interpreter_memory_costs_bounded_time() {
    let engine = Engine::new().unwrap();
    let round = "ctypes.memmove(lie, struct.pack('<Q', here) * (1 << 13), 1 << 16)";
    let wild = "ctypes.memmove(lie, struct.pack('<Q', 2**64 - 4) * (1 << 13), 1 << 16)";
    let huge = "ctypes.memmove(lie, struct.pack('<QQQQ', here, here + 32, 2**62, 0x64) * (1 << 11), 1 << 16)";
    for kind in [round, wild, huge, "pass"] {
        let run = engine.start(Spec::command(["python3", "-c", &LIAR.replace("KIND", kind)])).unwrap();
        let end = Instant::now() + HARD_STOP;
        while run.output(sandtimer::engine::Stream::Stdout, 0, 64).unwrap().bytes.is_empty() {
            assert!(Instant::now() < end && !run.has_finished(), "{:?}", run.wait_blocking());
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        for _ in 0..10 {
            let snapshot = run.inspect();
            assert_eq!(snapshot.processes.len(), 1, "{kind}: {snapshot:?}");
            let python = &snapshot.processes[0].python;
            assert!(python.len() <= 16 && python.iter().all(|thread| thread.frames.len() <= 32), "{kind}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{kind}: {:?}", begun.elapsed());
        run.cancel("seen");
    }
}

#[test]
fn what_is_no_python_has_no_stack() {
    let engine = Engine::new().unwrap();
    let run = engine.start(Spec::command(["sleep", "1000"])).unwrap();
    let snapshot = wait_until(&run, |snapshot| !snapshot.processes.is_empty());
    assert!(
        snapshot.processes[0].python.is_empty() && !snapshot.sentence().contains("Python"),
        "{snapshot:?}"
    );
    run.cancel("seen");
}
