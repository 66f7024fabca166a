//! What happens in a Python context between its cells: threads run, and what they do is there for
//! the next cell.
#![allow(clippy::disallowed_methods)] // waits for what sends no event

use crate::live;

use std::time::{Duration, Instant};

use live::{engine, python_context, run, within};
use sandtimer::engine::{Context, ContextSpec};
use sandtimer::model::RemainingState;
use sandtimer::zygote::{Prewarm, Profile};
use sandtimer::{Ending, Limits};

/// A cell that does not heed the interrupt before its wall.
const IGNORES_INTERRUPT: &str = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass";

/// What a cell shows last, as text.
fn shown(context: &Context, source: &str) -> String {
    let outcome = run(context, source);
    assert!(outcome.ok, "{source}: {outcome:?}");
    let last = outcome.results.last().unwrap_or_else(|| panic!("{source} shows nothing: {outcome:?}"));
    last["text/plain"].as_str().expect("a text").to_owned()
}

#[test]
fn timer_fires() {
    let context = python_context();
    run(&context, "import threading\nfired = []\nthreading.Timer(0.1, fired.append, ('fired',)).start()");
    std::thread::sleep(Duration::from_millis(600));
    // The first thing that the cell does.
    assert_eq!(shown(&context, "fired"), "['fired']");
}

#[test]
fn queue_is_worked_off() {
    let context = python_context();
    run(
        &context,
        "import queue, threading, time\nq, done = queue.Queue(), []\ndef work():\n    while True:\n        done.append(q.get())\n        time.sleep(0.001)\n\
         threading.Thread(target=work, daemon=True).start()\nfor i in range(100): q.put(i)",
    );
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(shown(&context, "len(done)"), "100");
}

#[test]
fn output_of_thread_does_not_block_it() {
    let context = python_context();
    let outcome = run(
        &context,
        "import threading, time\nlines = 0\ndef work():\n    global lines\n    time.sleep(0.1)\n    for _ in range(2000):\n        print('x' * 200)\n        lines += 1\n\
         threading.Thread(target=work, daemon=True).start()",
    );
    assert!(outcome.ok, "{outcome:?}");
    context.rest();
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(shown(&context, "lines"), "2000");
}

#[test]
fn busy_thread_leaves_cells_their_turn() {
    let context = python_context();
    run(
        &context,
        "import threading\nn = 0\ndef work():\n    global n\n    while True: n += 1\nthreading.Thread(target=work, daemon=True).start()",
    );
    for _ in 0..5 {
        assert_eq!(shown(&context, "1 + 1"), "2");
    }
    let before: u64 = shown(&context, "n").parse().expect("a number");
    std::thread::sleep(Duration::from_millis(300));
    let after: u64 = shown(&context, "n").parse().expect("a number");
    assert!(after > before + 10_000, "{before} {after}");
    let reason = context.settled_info().checkpoint.expect_err("a thread is running");
    assert!(reason.contains("1 other threads"), "{reason}");
    let outcome = within(&context, "while True: pass", Duration::from_millis(500));
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::Kept), "{outcome:?}");
}

#[test]
fn thread_that_holds_the_gil_delays_no_answer_about_checkpoints() {
    let context = python_context();
    // A C function that keeps the GIL, as PyDLL has it.
    run(
        &context,
        "import ctypes, threading, time\nlibc = ctypes.PyDLL(None)\ndef work():\n    time.sleep(0.1)\n    libc.usleep(3_000_000)\n\
         threading.Thread(target=work, daemon=True).start()",
    );
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    // It is asked for one after the last cell, and again where something has ended since.
    context.settled_info().checkpoint.expect_err("a thread is running");
    assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
    assert_eq!(shown(&context, "1"), "1");
}

#[test]
fn checkpoint_is_made_once_threads_have_ended() {
    let context = python_context();
    run(&context, "import threading\nx = 1\nthreading.Timer(0.2, lambda: None).start()");
    context.settled_info().checkpoint.expect_err("a thread is running");
    std::thread::sleep(Duration::from_millis(600));
    let outcome = within(&context, &format!("x = 2\n{IGNORES_INTERRUPT}"), Duration::from_millis(300));
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!(shown(&context, "x"), "1");
}

/// No cell is charged for what threads use between cells.
#[test]
fn processor_time_between_cells_is_not_the_next_cells() {
    let context = python_context();
    run(
        &context,
        "import threading\ndef work():\n    while True: pass\nthreading.Thread(target=work, daemon=True).start()",
    );
    context.rest();
    std::thread::sleep(Duration::from_millis(1500));
    let limits = Limits::new().wall(Duration::from_secs(20)).cpu(Duration::from_millis(1000));
    let outcome = live::under(&context, "1", limits);
    assert_eq!(outcome.ending, Ending::Returned, "{outcome:?}");
}

/// A fork of a thread has no channel, and what it does is none of the interpreter's.
#[test]
fn fork_of_thread_answers_nothing() {
    let context = python_context();
    run(
        &context,
        "import os, threading, time\ndef work():\n    time.sleep(0.1)\n    if os.fork() == 0:\n        try: os.write(3, b'x' * 100)\n        except OSError: os._exit(9)\n        os._exit(0)\n\
         threading.Thread(target=work).start()",
    );
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(shown(&context, "os.waitstatus_to_exitcode(os.wait()[1])"), "9");
}

/// Simulates tqdm's monitor: a thread that watches bars.
const MONITOR: &str = "import sys, threading, types
class TMonitor(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.was_killed = threading.Event()
        self.start()
    def run(self): self.was_killed.wait()
sys.modules['tqdm._monitor'] = types.SimpleNamespace(TMonitor=TMonitor)
TMonitor()
x = 1";

#[test]
fn helper_thread_of_progress_bars_keeps_no_checkpoint_away() {
    let context = python_context();
    assert!(run(&context, MONITOR).ok);
    assert_eq!(context.settled_info().checkpoint, Ok(()));
    let outcome =
        within(&context, &format!("x = 2\nTMonitor()\n{IGNORES_INTERRUPT}"), Duration::from_millis(300));
    assert_eq!(outcome.state, RemainingState::RolledBack, "{outcome:?}");
    assert_eq!(shown(&context, "x"), "1");
}

/// Interrupts a cell as soon as possible, and asserts that the interrupt ends it.
fn interrupt_at_once(context: &Context, source: &str) {
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| within(context, source, Duration::from_secs(20)));
        while !context.interrupt() {
            std::thread::yield_now();
        }
        running.join().expect("no panic")
    });
    assert_eq!(outcome.ending, Ending::Raised, "{outcome:?}");
}

#[test]
fn cell_interrupt_is_not_lost_to_an_earlier_cells_thread() {
    let context = python_context();
    run(
        &context,
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    );
    for _ in 0..40 {
        interrupt_at_once(&context, "import time\ntime.sleep(10)");
    }
}

#[test]
fn interrupt_that_comes_late_is_not_the_next_cells() {
    let context = python_context();
    for round in 0..100 {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&context, "1"));
            while !running.is_finished() {
                context.interrupt();
            }
        });
        let outcome = run(&context, "for _ in range(10000): pass");
        assert!(outcome.ok, "round {round}: {outcome:?}");
    }
}

/// The interrupt before the wall may come just when the cell has ended.
#[test]
fn interrupt_before_a_wall_is_not_the_next_cells() {
    let context = python_context();
    for round in 0..100 {
        let spins = format!(
            "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass",
            0.0885 + f64::from(round % 10) * 0.0003
        );
        within(&context, &spins, Duration::from_millis(100));
        let outcome = run(&context, "for _ in range(10000): pass");
        assert!(outcome.ok, "round {round}: {outcome:?}");
    }
}

#[test]
fn threads_that_outlive_the_cells_wall_are_reported() {
    let context = python_context();
    let outcome = within(
        &context,
        "import threading, time\nn = 0\ndef count():\n    global n\n    while True: n += 1\nthreading.Thread(target=count, daemon=True).start()\nwhile True: time.sleep(0.01)",
        Duration::from_millis(500),
    );
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::Kept), "{outcome:?}");
    assert_eq!(outcome.tree.survivors, None, "{outcome:?}");
    let sentence = &outcome.verdict.as_ref().expect("a wall").sentence;
    assert!(sentence.contains("What it started continues in the context"), "{sentence}");
}

/// It would take the place of the next cell.
#[test]
fn signal_between_cells_is_handled_in_the_next_cell() {
    let sets = "import signal, threading, time\ncame = []\ndef late(number, frame):\n    came.append(number)\n    raise ValueError('late')\n\
                signal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\n";
    for thread in ["", "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"] {
        let context = python_context();
        assert!(run(&context, &format!("{sets}{thread}")).ok);
        std::thread::sleep(Duration::from_millis(500));
        let outcome = run(&context, "x = 1");
        let is_reported =
            outcome.stderr.contains("in late") && outcome.stderr.ends_with("ValueError: late\n");
        assert!(outcome.ok && is_reported, "{outcome:?}");
        assert_eq!(shown(&context, "x, came, signal.getsignal(signal.SIGALRM) is late"), "(1, [14], True)");
        // In a cell it is called at once, as ever.
        let within = "signal.setitimer(signal.ITIMER_REAL, 0.05)\ntry:\n    time.sleep(10)\nexcept ValueError as error:\n    y = str(error)\ny";
        assert_eq!(shown(&context, within), "'late'");
    }
}

#[test]
fn display_between_cells_raises() {
    let context = python_context();
    let late = "import threading, time\nsaid = []\ndef late():\n    display('in')\n    time.sleep(0.2)\n    try:\n        display('x' * 10_000_000)\n\
                \x20   except RuntimeError as error:\n        said.append(str(error))\n\
                thread = threading.Thread(target=late)\nthread.start()\ntime.sleep(0.1)";
    let outcome = run(&context, late);
    assert_eq!(outcome.results.len(), 1, "{outcome:?}");
    std::thread::sleep(Duration::from_millis(1000));
    let shown_error = shown(&context, "thread.join()\nsaid[0]");
    assert!(shown_error.contains("works only while a cell runs"), "{shown_error}");
}

#[test]
fn handler_is_given_the_frame_that_it_interrupts() {
    let context = python_context();
    let source = "import signal, time\ndef late(number, frame):\n    global where\n    where = frame.f_code.co_name\n\
                  def slow():\n    end = time.monotonic() + 0.5\n    while time.monotonic() < end: pass\n\
                  signal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\nslow()\nwhere";
    assert_eq!(shown(&context, source), "'slow'");
}

#[test]
fn handlers_are_called_in_processes_forked_between_cells() {
    let context = python_context();
    let forks = "import os, signal, threading, time\nended = []\ndef fork():\n    time.sleep(0.3)\n    pid = os.fork()\n    if pid == 0:\n\
                 \x20       time.sleep(0.5)\n        os._exit(1)\n    time.sleep(0.2)\n    os.kill(pid, signal.SIGTERM)\n\
                 \x20   ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n\
                 signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\nthreading.Thread(target=fork).start()";
    assert!(run(&context, forks).ok);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(shown(&context, "ended"), "[7]");
}

#[test]
fn handler_of_a_script_that_runs_before_the_context_is_called() {
    let source = "import signal, subprocess\ncame = []\nsignal.signal(signal.SIGCHLD, lambda number, frame: came.append(number))\nsubprocess.run(['true'])";
    let prewarm = Some(Prewarm { source: source.to_owned(), limit: Duration::from_secs(20) });
    let profile = Profile { interpreter: "python3".into(), live: true, prewarm, ..Profile::default() };
    let pool = engine().contexts(profile, 1).expect("a pool");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    assert_eq!(shown(&context, "came"), "[17]");
}
