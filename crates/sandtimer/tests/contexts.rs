//! Contexts with real interpreters: state that lives, limits that end a cell and not the context,
//! and hostile cells.
#![allow(clippy::disallowed_methods)] // some stop this process, start it as another user, or poll for what has no event

use crate::as_user;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{CellEvent, CellSpec, Context, ContextSpec, Contexts};
use sandtimer::model::RemainingState;
use sandtimer::zygote::Profile;
use sandtimer::{Ending, Engine, Error, Limits, Outcome};

fn profile(unsupervised: bool) -> Profile {
    let interpreter = "python3".into();
    Profile { interpreter, live: true, unsupervised, ..Profile::default() }
}

fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let engine = Engine::new().expect("an engine");
        engine.contexts(profile(false), 2).expect("a pool")
    })
}

fn open() -> Context {
    contexts().open(ContextSpec::default(), &mut || false).expect("a context")
}

fn cell(source: &str) -> CellSpec {
    CellSpec {
        source: source.to_owned(),
        limits: Limits::new().wall(Duration::from_secs(20)),
        ..CellSpec::default()
    }
}

fn within(source: &str, wall: u64) -> CellSpec {
    CellSpec { limits: Limits::new().wall(Duration::from_millis(wall)), ..cell(source) }
}

fn run(context: &Context, cell: CellSpec) -> Arc<Outcome> {
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// What a cell shows last, as text.
fn shown(context: &Context, source: &str) -> String {
    let outcome = run(context, cell(source));
    assert!(outcome.ok, "{source}: {outcome:?}");
    let last = outcome.results.last().unwrap_or_else(|| panic!("{source} shows nothing: {outcome:?}"));
    last["text/plain"].as_str().expect("a text").to_owned()
}

#[test]
fn cells_share_their_variables() {
    let context = open();
    let outcome = run(&context, cell("x = 40\nprint('hello')"));
    assert_eq!(
        (outcome.ending, outcome.state, outcome.stdout.as_str()),
        (Ending::Returned, RemainingState::Kept, "hello\n")
    );
    assert_eq!((shown(&context, "x + 2"), outcome.execution_count), ("42".to_owned(), Some(1)));
    let other = open();
    let outcome = run(&other, cell("x"));
    assert_eq!(outcome.ending, Ending::Raised);
    assert_eq!(outcome.error.as_ref().expect("an error")["type"], "NameError");
}

#[test]
fn a_cell_past_its_wall_leaves_everything_before_it() {
    let context = open();
    run(&context, cell("import json\nx = [1, 2]\ndef f(): return 7"));
    let hostile = "x.append(3)\nimport os, time\nprint('so far', flush=True)\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass";
    let outcome = run(&context, within(hostile, 300));
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("so far\n", Some(0)));
    assert_eq!(shown(&context, "x, f(), json.dumps(x)"), "([1, 2], 7, '[1, 2]')");
}

/// How often each hostile cell is tried; the proof asks for more.
fn rounds() -> usize {
    std::env::var("SANDTIMER_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// A cell that ignores the interrupt before its wall.
const IGNORES_INTERRUPT: &str = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)";

/// What tries to take the checkpoint along, or to outlive the cell.
const HOSTILE: [(&str, &str); 9] = [
    (
        "kill(-1)",
        "import os, signal\nwhile True:\n    try: os.kill(-1, signal.SIGKILL)\n    except OSError: pass",
    ),
    (
        "every number",
        "import os\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpid():\n            try: os.kill(pid, 9)\n            except OSError: pass",
    ),
    (
        "every group",
        "import os\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpgrp():\n            try: os.killpg(pid, 9)\n            except OSError: pass",
    ),
    (
        "every thread",
        "import ctypes\nlibc = ctypes.CDLL(None)\nimport os\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpid(): libc.syscall(200, pid, 9); libc.syscall(234, pid, pid, 9)",
    ),
    (
        "wakes the checkpoint",
        "import os, signal\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpid():\n            for number in (signal.SIGCONT, signal.SIGRTMAX):\n                try: os.kill(pid, number)\n                except OSError: pass",
    ),
    (
        "writes its memory",
        "import os\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpid():\n            try: open('/proc/%d/mem' % pid, 'r+b').close(); os.abort()\n            except OSError: pass",
    ),
    (
        "daemons",
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            while True: time.sleep(1)\n        os._exit(0)\nwhile True: pass",
    ),
    ("a fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    (
        "swallows",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
];

#[test]
fn a_hostile_cell_loses_nothing_but_itself() {
    let spec =
        ContextSpec { limits: Limits::new().processes(40).memory(512 << 20), ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    run(&context, cell("x = 0\nimport os"));
    for round in 0..rounds() {
        for (name, source) in HOSTILE {
            let outcome = run(
                &context,
                within(&format!("{IGNORES_INTERRUPT}\nx = -1\nprint('begun', flush=True)\n{source}"), 250),
            );
            assert_eq!(
                (outcome.ending, outcome.state),
                (Ending::Timeout, RemainingState::RolledBack),
                "{name}: {outcome:?}"
            );
            assert_eq!(
                (outcome.stdout.as_str(), outcome.tree.survivors),
                ("begun\n", Some(0)),
                "{name}: {outcome:?}"
            );
            // In /proc the interpreter sees only itself: init and checkpoints are hidden from it.
            let alive = shown(&context, "x += 1\nx, len([p for p in os.listdir('/proc') if p.isdigit()])");
            assert_eq!(
                alive,
                format!(
                    "({}, 1)",
                    round * HOSTILE.len()
                        + HOSTILE.iter().position(|(other, _)| *other == name).expect("one of them")
                        + 1
                ),
                "{name}"
            );
        }
    }
}

#[test]
fn unsupervised_hostile_cell_kills_the_checkpoint_too() {
    let pool = Engine::new().expect("an engine").contexts(profile(true), 1).expect("a pool");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    run(&context, cell("x = 0"));
    for (name, source) in &HOSTILE[..4] {
        let outcome = run(&context, within(&format!("{IGNORES_INTERRUPT}\n{source}"), 600));
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Timeout, RemainingState::Reset),
            "{name}: {outcome:?}"
        );
        run(&context, cell("x = 0"));
    }
}

#[test]
fn interrupted_cell_keeps_everything() {
    let context = open();
    let outcome = run(&context, within("x = 1\nimport time\ntime.sleep(60)", 500));
    assert_eq!(
        (outcome.ending, outcome.state, outcome.tree.killed),
        (Ending::Timeout, RemainingState::Kept, 0),
        "{outcome:?}"
    );
    assert_eq!(outcome.error.as_ref().expect("an error")["type"], "KeyboardInterrupt");
    let verdict = outcome.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.limit_ms, verdict.signals[0].signal.as_str()), (Some(500), "SIGINT"));
    assert_eq!(shown(&context, "x"), "1");
}

#[test]
fn an_interpreter_that_ends_goes_back_to_before() {
    let context = open();
    run(&context, cell("x = 7"));
    let endings = [
        ("import os; os._exit(0)", Ending::NoResult),
        ("import os; os.kill(os.getpid(), 11)", Ending::Signaled),
        ("import ctypes; ctypes.string_at(0)", Ending::Signaled),
    ];
    for (source, ending) in endings {
        let outcome = run(&context, cell(&format!("x = 8\n{source}")));
        assert_eq!(
            (outcome.ending, outcome.state),
            (ending, RemainingState::RolledBack),
            "{source}: {outcome:?}"
        );
        assert_eq!(shown(&context, "x"), "7", "{source}");
    }
    let spec = ContextSpec { limits: Limits::new().memory(200 << 20), ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    run(&context, cell("x = 7"));
    let outcome = run(&context, cell("x = bytearray(1 << 30)"));
    assert_eq!(
        (outcome.ending, outcome.state),
        (Ending::OutOfMemory, RemainingState::RolledBack),
        "{outcome:?}"
    );
    assert_eq!(shown(&context, "x"), "7");
}

#[test]
fn the_last_run_can_be_undone_once() {
    let context = open();
    for source in ["x = 1", "x = 2", "x = 3"] {
        run(&context, cell(source));
    }
    assert!(context.undo().expect("the interpreter lives"));
    assert_eq!(shown(&context, "x"), "2");
    assert!(context.undo().expect("the interpreter lives"), "the last run, which showed x, is undone");
    assert!(!context.undo().expect("the interpreter lives"), "only one state from before is kept");
    assert_eq!(shown(&context, "x"), "2");
}

#[test]
fn state_without_checkpoint_is_reported_and_reset() {
    let context = open();
    run(
        &context,
        cell(
            "import threading, time\nx = 1\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        ),
    );
    run(&context, cell("x"));
    let reason = context.info().checkpoint.expect_err("a thread is running");
    assert!(reason.contains("1 other threads"), "{reason}");
    let outcome = run(&context, within(&format!("{IGNORES_INTERRUPT}\nwhile True: pass"), 100));
    assert_eq!(
        (outcome.ending, outcome.state, outcome.tree.survivors),
        (Ending::Timeout, RemainingState::Reset, Some(0))
    );
    assert_eq!(run(&context, cell("x")).error.as_ref().expect("it begins anew")["type"], "NameError");
}

#[test]
fn what_is_known_of_a_context_is_not_old_where_several_ask() {
    let context = open();
    // A simulated torch, of which each checkpoint checks CUDA, which takes time.
    run(
        &context,
        cell(
            "import sys, time, types
in_use = True
def is_initialized():
    time.sleep(0.05)
    return in_use
sys.modules['torch'] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=is_initialized))",
        ),
    );
    assert!(context.settled_info().checkpoint.expect_err("it is in use").contains("CUDA"));
    run(&context, cell("in_use = False"));
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| context.settled_info().checkpoint)).collect();
        for info in asked {
            assert_eq!(info.join().expect("an answer"), Ok(()));
        }
    });
}

#[test]
fn runs_of_one_context_come_one_after_the_other() {
    let context = open();
    run(&context, cell("order = []"));
    let done: Vec<bool> = std::thread::scope(|scope| {
        let one =
            |_| scope.spawn(|| run(&context, cell("order.append(1)\nimport time\ntime.sleep(0.02)")).ok);
        let handles: Vec<_> = (0..6).map(one).collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    });
    assert!(done.iter().all(|ok| *ok));
    assert_eq!((shown(&context, "len(order)"), context.info().waiting), ("6".to_owned(), 0));
}

#[test]
fn a_closed_context_refuses_and_its_run_is_cancelled() {
    let context = open();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&context, cell(&format!("{IGNORES_INTERRUPT}\nwhile True: pass"))));
        while context.running().is_none() {
            std::thread::yield_now();
        }
        context.close();
        running.join().expect("no panic")
    });
    assert_eq!(outcome.ending, Ending::Cancelled);
    assert!(context.execute(cell("1"), &mut |_| {}).is_err());
}

#[test]
fn cells_children_die_at_the_wall_if_the_interpreter_lives() {
    let context = open();
    let source = "x = 1\nimport os, time\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nif os.fork() == 0:\n    time.sleep(600)\ntime.sleep(600)";
    let outcome = run(&context, within(source, 500));
    assert_eq!(
        (outcome.ending, outcome.state, outcome.tree.killed),
        (Ending::Timeout, RemainingState::Kept, 2),
        "{outcome:?}"
    );
    assert_eq!(outcome.tree.survivors, Some(0));
    let alive = "x, [p for p in os.listdir('/proc') if p.isdigit() and open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[0] != 'Z'] == [str(os.getpid())]";
    assert_eq!(shown(&context, alive), "(1, True)");
    assert_eq!(context.info().checkpoint, Ok(()));
    // A cell that ends by itself may leave processes, and its Outcome reports that.
    let outcome = run(&context, cell("if os.fork() == 0: time.sleep(600)"));
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Returned, None));
}

#[test]
fn what_is_known_is_of_the_last_run() {
    let context = open();
    for source in [
        "x = 1",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    ] {
        run(&context, cell(source));
        let info = context.settled_info();
        assert_eq!(
            (info.checkpoint.is_ok(), info.can_undo),
            (source == "x = 1", source == "x = 1"),
            "{source}"
        );
    }
}

#[test]
fn a_cell_of_a_caller_who_left_does_not_begin() {
    let context = open();
    let withdrawn = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&context, cell("import time\ntime.sleep(20)")));
        while context.running().is_none() {
            std::thread::yield_now();
        }
        let second = CellSpec { withdrawn: Some(withdrawn.clone()), ..cell("x = 1") };
        let second = scope.spawn(|| context.execute(second, &mut |_| {}));
        while context.info().waiting == 0 {
            std::thread::yield_now();
        }
        withdrawn.store(true, Ordering::Release);
        context.running().expect("the first").cancel("enough");
        assert_eq!(first.join().expect("no panic").ending, Ending::Cancelled);
        assert!(matches!(second.join().expect("no panic"), Err(sandtimer::Error::Withdrawn)));
    });
    assert_eq!(run(&context, cell("x")).error.as_ref().expect("it did not begin")["type"], "NameError");
}

#[test]
fn loss_between_runs_is_reported_to_the_next_run() {
    let context = open();
    run(&context, cell("x = 1"));
    let killer =
        "import os, subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.2; kill -9 %d' % os.getpid()])";
    run(&context, cell(killer));
    // There is no checkpoint while a child lives; there is one again once the interpreter was
    // replaced.
    assert!(context.settled_info().checkpoint.is_err());
    while context.settled_info().checkpoint.is_err() {
        std::thread::yield_now();
    }
    let mut lost = None;
    let outcome = context.execute(cell("x"), &mut |event| {
        if let CellEvent::Lost(state, reason) = event {
            lost = Some((state, reason));
        }
    });
    let (state, reason) = lost.expect("asking did not take it away");
    assert!(state == RemainingState::Reset && reason.contains("the interpreter"), "{reason}");
    assert_eq!(outcome.expect("a run").error.as_ref().expect("it begins anew")["type"], "NameError");
}

#[test]
fn exception_is_pickled_with_its_outcome() {
    let context = open();
    let mut pickled = None;
    let outcome = context.execute(cell("{}['k']"), &mut |event| {
        if let CellEvent::Raised(data) = event {
            pickled = Some(data);
        }
    });
    let outcome = outcome.expect("a run");
    let error = outcome.error.as_ref().expect("an error").as_object().expect("an object");
    assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "module", "traceback", "type"]);
    assert!(pickled.is_some_and(|data| data.len() > 20), "it can be pickled");
}

#[test]
fn a_forgotten_checkpoint_is_no_survivor() {
    let context = open();
    for _ in 0..60 {
        assert_eq!(run(&context, cell("1")).tree.survivors, Some(0));
    }
    // What is left is one all the same.
    assert_eq!(
        run(&context, cell("import subprocess; subprocess.Popen(['sleep', '600'])")).tree.survivors,
        None
    );
}

/// Runs a cell, and interrupts it each time that it displays something.
fn run_interrupted(context: &Context, source: &str) -> Arc<Outcome> {
    let interrupt = &mut |event| {
        if let CellEvent::Displayed(_) = event {
            assert!(context.interrupt(), "it is running");
        }
    };
    context.execute(cell(source), interrupt).expect("a run")
}

#[test]
fn interrupts_arrive_wherever_the_cell_is() {
    let context = open();
    // In small steps: a signal that comes between the interpreter's last look and a system call
    // waits for the end of that call.
    run(
        &context,
        cell(
            "import asyncio, time\nheard = []\nstopped = []\ndef pause():\n    for _ in range(2000): time.sleep(0.01)",
        ),
    );
    let twice = "try:\n    display(1)\n    pause()\nexcept KeyboardInterrupt:\n    heard.append(1)\n    display(2)\n    pause()";
    let shown_slowly = "class Slow:\n    def __repr__(self):\n        display(1)\n        pause()\nSlow()";
    let awaited = "async def wait():\n    try:\n        display(1)\n        for _ in range(2000): await asyncio.sleep(0.01)\n    finally:\n        stopped.append(1)\nawait wait()";
    for source in [twice, shown_slowly, awaited] {
        let outcome = run_interrupted(&context, source);
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Raised, RemainingState::Kept),
            "{source}: {outcome:?}"
        );
        assert_eq!(outcome.error.as_ref().expect("an error")["type"], "KeyboardInterrupt", "{source}");
    }
    // What a cell awaited does not continue during the awaits of the next cell.
    assert_eq!(
        shown(
            &context,
            "await asyncio.sleep(0)\nheard, stopped, len(asyncio.all_tasks(asyncio.get_event_loop()))"
        ),
        "([1], [1], 0)"
    );
}

#[test]
fn early_interrupt_is_not_lost() {
    let context = open();
    for round in 0..40 {
        let interrupt = &mut |event| {
            if let CellEvent::Started(_) = event {
                assert!(context.interrupt(), "it is running");
            }
        };
        let sleep = within("import time\nfor _ in range(2000): time.sleep(0.01)", 20_000);
        let outcome = context.execute(sleep, interrupt).expect("a run");
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Raised, RemainingState::Kept),
            "{round}: {outcome:?}"
        );
        assert_eq!(shown(&context, "1 + 1"), "2", "{round}: it is nobody else's");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_refused() {
    let spec = ContextSpec { directory: Some("/usr/not-there".to_owned()), ..ContextSpec::default() };
    let error = contexts().open(spec, &mut || false).expect_err("nothing can be made there");
    assert!(
        matches!(error, Error::Directory { ref directory, .. } if directory == "/usr/not-there"),
        "{error}"
    );
    assert!(error.to_string().contains("Read-only file system"), "{error}");
}

/// The Outcome, if it comes within this many seconds; otherwise the thread that waits for it is
/// abandoned.
fn run_bounded(context: &Arc<Context>, cell: CellSpec, seconds: u64) -> Option<Arc<Outcome>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let context = context.clone();
    std::thread::spawn(move || sender.send(context.execute(cell, &mut |_| {}).ok()));
    receiver.recv_timeout(Duration::from_secs(seconds)).ok().flatten()
}

#[test]
fn incomplete_answer_does_not_delay_the_wall() {
    let context = Arc::new(open());
    run(&context, cell("x = 1"));
    let forged = "import os, signal, time\nimport gc\nnonce = next(found for found in gc.get_objects() if type(found).__name__ == 'Context').nonce\nword = lambda value, size: value.to_bytes(size, 'little')\nos.write(3, nonce + b'A' + bytes([1, 0, 0]) + word(1, 4) + word(0, 8) + word(4096, 8) + word(1 << 20, 8))\nwhile True: time.sleep(1)";
    let outcome = run_bounded(&context, within(&format!("{IGNORES_INTERRUPT}\n{forged}"), 500), 10);
    assert_eq!(outcome.expect("its wall has passed").state, RemainingState::RolledBack);
}

#[test]
fn unread_cell_is_not_executed_by_the_checkpoint() {
    let context = open();
    let stops = "x = 1\nimport os, time\nme = os.getpid()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(0.4)\n        os.kill(me, 19)\n    os._exit(0)\nos.wait()";
    run(&context, cell(stops));
    assert_eq!(context.settled_info().checkpoint, Ok(()));
    std::thread::sleep(Duration::from_millis(800));
    let outcome = run(&context, within("x += 1\nopen('/tmp/ran', 'w').close()", 500));
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!(shown(&context, "x, os.path.exists('/tmp/ran')"), "(1, False)");
}

#[test]
fn a_memory_limit_is_named_where_it_was_set() {
    let spec = ContextSpec { limits: Limits::new().memory(200 << 20), ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    let outcome = run(&context, cell("x = bytearray(1 << 30)"));
    let sentence = &outcome.verdict.as_ref().expect("a verdict").sentence;
    assert!(sentence.contains("200 MiB (set by"), "{sentence}");
}

#[test]
fn closing_ends_a_cell_that_is_just_beginning() {
    let context = Arc::new(open());
    run(&context, cell("x = 1"));
    // Its length makes the time between the last look whether it is wanted and its beginning
    // longer.
    let source = format!("{IGNORES_INTERRUPT}\n#{}\nwhile True: pass", "y".repeat(24 << 20));
    let executing = context.clone();
    std::thread::spawn(move || {
        executing.execute(CellSpec { source, ..CellSpec::default() }, &mut |_| {}).is_ok()
    });
    std::thread::sleep(Duration::from_millis(2));
    let (sender, receiver) = std::sync::mpsc::channel();
    let closing = context.clone();
    std::thread::spawn(move || {
        closing.close();
        sender.send(())
    });
    let closed = receiver.recv_timeout(Duration::from_secs(5)).is_ok();
    if let Some(left) = context.running() {
        left.cancel("the test is over");
    }
    assert!(closed, "it waits for a cell without a limit that nobody has cancelled");
}

#[test]
fn a_rollback_that_the_watchdog_overtakes_is_not_called_one() {
    let context = open();
    run(&context, cell("x = 1"));
    let own = std::process::id();
    let stall = format!("sleep 0.15; kill -STOP {own}; sleep 0.45; kill -CONT {own}");
    let mut staller = std::process::Command::new("sh").args(["-c", &stall]).spawn().expect("a shell");
    let outcome = run(&context, within(&format!("{IGNORES_INTERRUPT}\nwhile True: pass"), 300));
    staller.wait().expect("it ends");
    let has_state = run(&context, cell("x")).ok;
    assert_eq!(outcome.state == RemainingState::RolledBack, has_state, "{outcome:?}");
}

/// Has the request for the next checkpoint answered with a process that wakes itself by timers.
const FORGES_A_CHECKPOINT: &str = r#"
import sys, os, ctypes, signal, time
frame = sys._getframe()
while frame:
    found = frame.f_locals.get('self')
    if type(found).__name__ == 'Context': context = found
    frame = frame.f_back
libc = ctypes.CDLL(None)
def forge(nonce, ahead):
    r, w = os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()
        made = os.fork()
        if made:
            os.write(w, str(made).encode())
            os._exit(0)
        class Event(ctypes.Structure):
            _fields_ = [('v', ctypes.c_void_p), ('signal', ctypes.c_int), ('how', ctypes.c_int), ('pad', ctypes.c_char * 48)]
        event = Event(None, 18, 0)
        signal.signal(18, lambda *_: None)
        for step in range(60):
            timer = ctypes.c_void_p()
            libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer))
            at = 300_000_000 + step * 50_000_000
            libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, at // 10**9, at % 10**9), None)
        count = 0
        while True:
            count += 1
            with open('/tmp/beat', 'w') as file: file.write(str(count))
            time.sleep(0.002)
    os.waitpid(between, 0)
    del context.checkpoint
    time.sleep(0.2)
    os.write(3, b'K' + nonce + int(os.read(r, 20)).to_bytes(4, 'little'))
context.checkpoint = forge
"#;

#[test]
fn a_forged_checkpoint_does_not_run_on() {
    let context = open();
    run(&context, cell(FORGES_A_CHECKPOINT));
    run(&context, cell("1"));
    let outcome = run(&context, within(&format!("{IGNORES_INTERRUPT}\nwhile True: pass"), 300));
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    let beats = "import time\nbeat = lambda: open('/tmp/beat').read()\nfirst = beat()\ntime.sleep(0.4)\nfirst == beat()";
    assert_eq!(shown(&context, beats), "True", "what was started before the wall runs behind it");
}

#[test]
fn without_a_group_that_counts_what_is_left_is_no_less_alive() {
    if as_a_user("without_a_group_that_counts_what_is_left_is_no_less_alive") {
        return;
    }
    let beats = "x = 1\nimport os, time\nif os.fork() == 0:\n    os.setsid()\n    for beat in range(1000):\n        open('/tmp/beat', 'w').write(str(beat))\n        time.sleep(0.01)\n    os._exit(0)\nwhile not os.path.exists('/tmp/beat'): time.sleep(0.01)";
    let alive = "beat = lambda: open('/tmp/beat').read()\nfirst = beat()\ntime.sleep(0.3)\nfirst != beat()";
    let context = open();
    let outcome = run(&context, cell(beats));
    assert_eq!((shown(&context, alive), outcome.tree.survivors), ("True".to_owned(), None), "{outcome:?}");
    let context = open();
    let outcome = run(&context, within(&format!("{beats}\ntime.sleep(60)"), 2000));
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    assert_eq!(shown(&context, alive), "False", "{outcome:?}");
}
