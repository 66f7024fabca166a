//! Contexts with real interpreters: state that lives, limits that end a cell and not the context, and hostile cells.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{Cell, Context, ContextSpec, Contexts, Told};
use sandtimer::model::State;
use sandtimer::zygote::Profile;
use sandtimer::{Ending, Engine, Limits, Outcome};

fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let engine = Engine::new().expect("an engine");
        let profile =
            Profile { interpreter: "python3".into(), preload: Vec::new(), paths: None, network: false, live: true };
        engine.contexts(profile, 2).expect("a pool")
    })
}

fn open() -> Context {
    contexts().open(ContextSpec::default(), &mut || false).expect("a context")
}

fn cell(source: &str) -> Cell {
    Cell { source: source.to_owned(), limits: Limits::new().wall(Duration::from_secs(20)), ..Cell::default() }
}

fn within(source: &str, wall: u64) -> Cell {
    Cell { limits: Limits::new().wall(Duration::from_millis(wall)), ..cell(source) }
}

fn run(context: &Context, cell: Cell) -> Arc<Outcome> {
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
    assert_eq!((outcome.ending, outcome.state, outcome.stdout.as_str()), (Ending::Returned, State::Kept, "hello\n"));
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
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, State::RolledBack), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("so far\n", Some(0)));
    assert_eq!(shown(&context, "x, f(), json.dumps(x)"), "([1, 2], 7, '[1, 2]')");
}

/// How often each hostile cell is tried; the proof asks for more.
fn rounds() -> usize {
    std::env::var("SANDTIMER_ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// A cell that does not hear the interrupt before its wall.
const DEAF: &str = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)";

/// What tries to take the checkpoint along, or to outlive the cell.
const HOSTILE: [(&str, &str); 9] = [
    ("kill(-1)", "import os, signal\nwhile True:\n    try: os.kill(-1, signal.SIGKILL)\n    except OSError: pass"),
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
        "import os, signal\nwhile True:\n    for pid in range(2, 400):\n        if pid != os.getpid():\n            try: os.kill(pid, signal.SIGCONT)\n            except OSError: pass",
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
    let spec = ContextSpec { limits: Limits::new().processes(40).memory(512 << 20), ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    run(&context, cell("x = 0\nimport os"));
    for round in 0..rounds() {
        for (name, source) in HOSTILE {
            let outcome = run(&context, within(&format!("{DEAF}\nx = -1\nprint('begun', flush=True)\n{source}"), 60));
            assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, State::RolledBack), "{name}: {outcome:?}");
            assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("begun\n", Some(0)), "{name}: {outcome:?}");
            // Of its own user it sees itself alone: init and checkpoints show themselves to nobody.
            let alive = shown(&context, "x += 1\nx, len([p for p in os.listdir('/proc') if p.isdigit()])");
            assert_eq!(alive, format!("({}, 1)", round * HOSTILE.len() + HOSTILE.iter().position(|(other, _)| *other == name).expect("one of them") + 1), "{name}");
        }
    }
}
