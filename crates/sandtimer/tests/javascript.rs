//! Contexts with a real Node.js: state that lives, limits that end a cell and not the context, and
//! hostile cells.

#![allow(clippy::disallowed_methods)] // one waits to see that nothing happens

use crate::processes;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use processes::{ListedProcess, children_named};
use sandtimer::engine::{CellEvent, CellSpec, Context, ContextSpec, Contexts};
use sandtimer::model::RemainingState;
use sandtimer::zygote::{Language, Profile};
use sandtimer::{Ending, Engine, Error, Limits, Outcome};

fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let engine = Engine::new().expect("an engine");
        let profile =
            Profile { interpreter: "node".into(), language: Language::JavaScript, ..Profile::default() };
        engine.contexts(profile, 2).expect("a pool")
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
    let outcome = run(
        &context,
        cell("const x = 40; let y = 2\nclass C { z = 1 }\nfunction f() { return 7 }\nconsole.log('hello')"),
    );
    assert_eq!(
        (outcome.ending, outcome.state, outcome.stdout.as_str()),
        (Ending::Returned, RemainingState::Kept, "hello\n"),
        "{outcome:?}"
    );
    assert_eq!((shown(&context, "x + y"), outcome.execution_count), ("42".to_owned(), Some(1)));
}

#[test]
fn a_cell_that_closes_its_streams_costs_the_next_one_nothing() {
    for closed in ["[1]", "[2]", "[0]", "[1, 2]", "[0, 1, 2]"] {
        let context = open();
        run(&context, cell(&format!("for (const stream of {closed}) require('fs').closeSync(stream)")));
        let prints = "console.log('out'); console.error('err'); require('fs').readFileSync(0, 'utf8')";
        let outcome = run(&context, cell(prints));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"), "{outcome:?}");
        assert_eq!(outcome.value, Some("".into()), "{closed}: {outcome:?}");
    }
}

#[test]
fn declarations_may_be_repeated_and_awaited_for() {
    let context = open();
    run(&context, cell("const a = 1; class B {}; let c = 1"));
    run(&context, cell("const a = 2; class B { d = 3 }; let c = 2"));
    assert_eq!(shown(&context, "[a, c, new B().d]"), "[ 2, 2, 3 ]");
    assert_eq!(shown(&context, "await new Promise((resolve) => setTimeout(resolve, 20, 'late'))"), "'late'");
    let outcome = run(&context, cell("({ e: [1, null] })"));
    assert_eq!(outcome.value, Some(serde_json::json!({"e": [1, null]})));
    assert_eq!(run(&context, cell("{ f: 1 }")).value, Some(serde_json::json!({"f": 1})));
    assert_eq!(run(&context, cell("'z'.repeat(300_000)")).value, Some("z".repeat(300_000).into()));
    assert!(run(&context, cell("new Map([[1, 2]])")).value.is_none(), "no JSON says all of it");
}

#[test]
fn modules_are_there_and_so_is_the_workspace() {
    let context = open();
    let source = "import { writeFileSync as write } from 'node:fs'\nwrite('a.cjs', 'module.exports = 1')\nwrite('b.mjs', 'export const b = 2')";
    let outcome = run(&context, cell(source));
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(
        shown(&context, "[require('./a.cjs'), (await import('./b.mjs')).b, require('path').sep]"),
        "[ 1, 2, '/' ]"
    );
    let outcome = run(
        &context,
        cell(
            "require('child_process').execSync('echo one; echo two >&2', { stdio: 'inherit' }); process.stdout.write('three\\n')",
        ),
    );
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("one\nthree\n", "two\n"));
    let stdin =
        CellSpec { stdin: Some(b"one\ntwo".to_vec()), ..cell("require('fs').readFileSync(0, 'utf8')") };
    assert_eq!(run(&context, stdin).value, Some("one\ntwo".into()));
    let source = "let read = ''; for await (const part of process.stdin) read += part; read";
    assert_eq!(
        run(&context, CellSpec { stdin: Some(b"three".to_vec()), ..cell(source) }).value,
        Some("three".into())
    );
    assert_eq!(run(&context, cell(source)).value, Some("".into()), "there is nothing to read");
}

#[test]
fn errors_name_their_cell_and_line() {
    let context = open();
    let outcome = run(&context, cell("1\nfunction f() {\n  throw new TypeError('no')\n}\nf()"));
    let error = outcome.error.as_ref().expect("an error");
    assert_eq!((outcome.ending, outcome.state), (Ending::Raised, RemainingState::Kept));
    assert_eq!((&error["type"], &error["message"]), (&"TypeError".into(), &"no".into()));
    assert_eq!(error["traceback"], "TypeError: no\n    at f (<cell-1>:3:9)\n    at <cell-1>:5:1");
    let error = run(&context, cell("1\nlet x = ;")).error.clone().expect("an error");
    assert_eq!(error["traceback"], "SyntaxError: Unexpected token ';'\n    at <cell-2>:2:9");
    let error = run(&context, cell("throw 3")).error.clone().expect("an error");
    assert_eq!((&error["type"], &error["message"]), (&"number".into(), &"3".into()));
}

#[test]
fn uncaught_errors_are_reported_and_end_nothing() {
    let context = open();
    let outcome = run(&context, cell("let x = 1; Promise.reject(new Error('lost')); 2"));
    assert!(outcome.ok && outcome.stderr.starts_with("Unhandled rejection: Error: lost\n"), "{outcome:?}");
    let source = "setTimeout(() => { throw new Error('late') }, 1); await new Promise((resolve) => setTimeout(resolve, 50))";
    let outcome = run(&context, cell(source));
    assert!(outcome.ok && outcome.stderr.starts_with("Uncaught: Error: late\n"), "{outcome:?}");
    assert_eq!(shown(&context, "x"), "1");
}

#[test]
fn timers_of_a_cell_go_on_while_later_cells_run() {
    let context = open();
    run(&context, cell("let ticks = 0; setInterval(() => { ticks += 1 }, 1); 0"));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(shown(&context, "ticks < 20"), "true", "between cells nothing runs");
    let source = "while (ticks < 3) await new Promise((resolve) => setTimeout(resolve, 1)); ticks >= 3";
    assert_eq!(shown(&context, source), "true");
}

#[test]
fn typescript_keeps_its_lines() {
    let spec = ContextSpec { typescript: true, ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    let outcome = run(
        &context,
        cell(
            "enum Color {\n  Red,\n  Green = 5,\n}\ninterface A { b: Color }\nconst a: A = { b: Color.Green };",
        ),
    );
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(shown(&context, "(a as A).b"), "5");
    let error = run(&context, cell("type T = string\nconst t: T = 'x'\n;(null as any).x"))
        .error
        .clone()
        .expect("an error");
    assert!(error["traceback"].as_str().expect("a text").contains("<cell-3>:3:16"), "{error}");
    let error = run(&context, cell("let a = 1;\nlet b: = 2;")).error.clone().expect("an error");
    assert!(error["traceback"].as_str().expect("a text").ends_with("at <cell-4>:2:8"), "{error}");
}

/// What a cell does that does not want to end, and what its end is when it has 300 ms.
const HOSTILE: [(&str, &str); 5] = [
    ("loops behind an await", "await 0; for (;;) {}"),
    ("deaf", "process.removeAllListeners('SIGINT'); process.on('SIGINT', () => {}); await 0; for (;;) {}"),
    ("microtasks", "const f = () => Promise.resolve().then(f); await f()"),
    ("waits for a child", "require('child_process').execSync('trap \"\" INT TERM; while :; do :; done')"),
    (
        "daemons",
        "for (let i = 0; i < 4; i++) require('child_process').spawn('setsid', ['sh', '-c', 'while :; do :; done'], { detached: true, stdio: 'ignore' }).unref(); await 0; for (;;) {}",
    ),
];

#[test]
fn hostile_cell_ends_its_interpreter_and_the_next_has_a_new_one() {
    let context = open();
    for (name, source) in HOSTILE {
        run(&context, cell("let x = 1"));
        let outcome = run(&context, within(&format!("console.log('begun'); {source}"), 300));
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Timeout, RemainingState::Reset),
            "{name}: {outcome:?}"
        );
        assert_eq!(
            (outcome.stdout.as_str(), outcome.tree.survivors),
            ("begun\n", Some(0)),
            "{name}: {outcome:?}"
        );
        assert_eq!(shown(&context, "typeof x"), "'undefined'", "{name}");
    }
}

/// A wall, in milliseconds, before which an interpreter is interrupted as early as before any: a
/// busy machine may deliver the interrupt late.
const INTERRUPTED: u64 = 500;

#[test]
fn interrupted_loop_keeps_everything() {
    let context = open();
    let outcome = run(&context, within("let x = 1; for (;;) x += 1", INTERRUPTED));
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::Kept), "{outcome:?}");
    assert_eq!(shown(&context, "x > 1"), "true");
}

/// A promise that nothing will ever settle, and one that is active for ever.
const AWAITING: [&str; 2] =
    ["await new Promise(() => {})", "while (true) await new Promise((resolve) => setTimeout(resolve, 5))"];

#[test]
fn awaiting_cell_is_interrupted_and_keeps_everything() {
    let context = open();
    for source in AWAITING {
        run(&context, cell("var x = 1"));
        let outcome = run(&context, within(&format!("x = 2; console.log('begun'); {source}"), INTERRUPTED));
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Timeout, RemainingState::Kept),
            "{source}: {outcome:?}"
        );
        assert_eq!(outcome.stdout, "begun\n");
        let verdict = outcome.verdict.as_ref().expect("a verdict");
        assert_eq!((verdict.limit_ms, verdict.signals[0].signal.as_str()), (Some(INTERRUPTED), "SIGINT"));
        let outcome =
            context.execute(cell(&format!("setTimeout(() => display(x), 20); {source}")), &mut |event| {
                if let CellEvent::Displayed(_) = event {
                    assert!(context.interrupt(), "it is running");
                }
            });
        let outcome = outcome.expect("a run");
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Raised, RemainingState::Kept),
            "{source}: {outcome:?}"
        );
        let error = outcome.error.as_ref().expect("an error");
        assert!(error["message"].as_str().expect("a text").contains("interrupted by `SIGINT`"), "{error}");
        assert_eq!(shown(&context, "x"), "2", "{source}");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_refused_at_once() {
    let spec = ContextSpec { directory: Some("/usr/not-there".to_owned()), ..ContextSpec::default() };
    let error = contexts().open(spec, &mut || false).expect_err("nothing can be made there");
    assert!(matches!(error, Error::Directory { ref reason, .. } if reason.contains("mkdir")), "{error}");
}

#[test]
fn what_a_cell_exports_without_a_name_is_its_value() {
    let context = open();
    assert_eq!(shown(&context, "export default class {}"), "[class (anonymous)]");
    assert_eq!(
        shown(&context, "const a = 1\nexport default function () { return a }"),
        "[Function (anonymous)]"
    );
    assert_eq!(shown(&context, "export default [a]"), "[ 1 ]");
}

#[test]
fn an_interpreter_that_ends_is_a_new_one() {
    let spec = ContextSpec { limits: Limits::new().memory(300 << 20), ..ContextSpec::default() };
    let context = contexts().open(spec, &mut || false).expect("a context");
    run(&context, cell("let x = 1"));
    let outcome = run(&context, cell("process.exit(3)"));
    assert_eq!(
        (outcome.ending, outcome.exit_code, outcome.state),
        (Ending::NoResult, Some(3), RemainingState::Reset),
        "{outcome:?}"
    );
    assert_eq!(shown(&context, "typeof x"), "'undefined'");
    let outcome = run(&context, cell("const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))"));
    assert_eq!((outcome.ending, outcome.state), (Ending::OutOfMemory, RemainingState::Reset), "{outcome:?}");
    assert_eq!(shown(&context, "1"), "1");
}

/// Writes what looks like an answer to every socket there is.
const FORGED: &str = "const fs = require('fs');
const frames = ['A\\0\\0\\0\\0\\0\\0\\0' + '\\x0f\\0\\0\\0\\0\\0\\0\\0' + '{\"results\":[]} ', 'J' + '\\0'.repeat(16) + 'v{\"results\":[]}', 'K12345678\\0\\0\\0\\0'];
for (const fd of fs.readdirSync('/proc/self/fd').map(Number)) {
  try { if (!fs.readlinkSync('/proc/self/fd/' + fd).startsWith('socket')) continue } catch { continue }
  for (const frame of frames) { fs.writeSync(fd, frame, null, 'latin1'); forged += 1 }
}";

#[test]
fn forged_frames_have_no_effect() {
    let context = open();
    run(&context, cell("setInterval(() => { forge() }, 1); 0"));
    let outcome =
        run(&context, cell(&format!("let forged = 0; function forge() {{ {FORGED} }}\nforge(); 'own'")));
    assert_eq!(outcome.value, Some("own".into()), "{outcome:?}");
    let outcome = run(&context, cell("await new Promise((resolve) => setTimeout(resolve, 100)); 'next'"));
    assert_eq!(outcome.value, Some("next".into()), "{outcome:?}");
    assert_eq!(shown(&context, "forged >= 6"), "true", "this and the timer have written to the channel");
}

/// The control of the test above: code that has the nonce, and runs in the interpreter, answers for
/// the cell.
#[test]
fn python_cell_with_its_nonce_answers_for_itself() {
    let engine = Engine::new().expect("an engine");
    let pool =
        engine.contexts(Profile { interpreter: "python3".into(), ..Profile::default() }, 1).expect("a pool");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let forged = "import os, signal\nos.write(3, display.__self__.nonce + b'A' + bytes(7) + (15).to_bytes(8, 'little') + b'{\"results\":[]} ')\n'own'";
    assert_eq!(run(&context, cell(forged)).value, None);
}

/// What a cell makes of what all code uses.
const POLLUTED: &str = "JSON.stringify = JSON.parse = () => { throw 1 }; Object.prototype.toJSON = () => 'forged';
Array.prototype.push = Array.prototype.map = Array.prototype.toJSON = () => { throw 2 };
Object.prototype.get = 7; Promise.prototype.then = () => { throw 3 }; globalThis.Promise = class {};
String.prototype.slice = String.prototype.indexOf = () => 'forged'; Function.prototype.call = Function.prototype.apply = () => 'forged';
Buffer.from = () => { throw 4 }; globalThis.setImmediate = globalThis.String = undefined; process.stdout.write = () => true; 0";

#[test]
fn what_a_cell_makes_of_built_in_things_changes_no_answer() {
    let context = open();
    run(&context, cell("const x = 41"));
    run(&context, cell(POLLUTED));
    let outcome = run(&context, cell("x + 1"));
    assert_eq!(
        (outcome.ending, outcome.state, &outcome.value),
        (Ending::Returned, RemainingState::Kept, &Some(42.into())),
        "{outcome:?}"
    );
    let outcome = run(&context, cell("null.x"));
    assert_eq!(outcome.error.as_ref().expect("an error")["type"], "TypeError", "{outcome:?}");
}

#[test]
fn undo_is_rejected_with_a_reason() {
    let context = open();
    run(&context, cell("1"));
    assert!(!context.undo().expect("the interpreter lives"));
    assert!(context.settled_info().checkpoint.expect_err("there is none").contains("JavaScript"));
}

#[test]
fn values_are_displayed_as_they_come() {
    let context = open();
    let mut displayed = Vec::new();
    let source = "display({ a: 1 }, { [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>' }) })";
    context
        .execute(cell(source), &mut |event| {
            if let CellEvent::Displayed(value) = event {
                displayed.push(value);
            }
        })
        .expect("a run");
    assert_eq!(displayed[0]["application/json"], serde_json::json!({"a": 1}));
    assert_eq!(displayed[1]["text/html"], "<b>");
}

#[test]
fn without_node_the_error_names_what_to_install() {
    let engine = Engine::new().expect("an engine");
    let profile = Profile {
        interpreter: "node-that-is-not-there".into(),
        language: Language::JavaScript,
        ..Profile::default()
    };
    let error = engine.contexts(profile, 1).expect("a pool").open(ContextSpec::default(), &mut || false);
    let error = error.expect_err("no interpreter").to_string();
    assert!(error.contains("node-that-is-not-there") && error.contains("install Node.js"), "{error}");
}

#[test]
fn interrupt_of_an_ended_interpreter_reaches_nothing_else() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let context = open();
    run(&context, cell("0"));
    // The oldest one; what it has just cloned still has its name.
    let launcher = children_named("st-launcher").into_iter().next().expect("a launcher");
    let done = AtomicBool::new(false);
    // Judged once the other thread has ended: a panic before `done` is set would leave that thread
    // there for ever.
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                context.interrupt();
            }
        });
        let outcomes = (0..60).map(|_| run(&context, cell("process.reallyExit(3)"))).collect();
        done.store(true, Ordering::Relaxed);
        outcomes
    });
    // An interrupt may come before the cell's only statement, and is then all that ends it.
    let (interrupted, ended): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.state == RemainingState::Kept);
    for outcome in &interrupted {
        let message = outcome.error.as_ref().map(|error| error["message"].to_string()).unwrap_or_default();
        assert!(message.contains("SIGINT"), "{outcome:?}");
    }
    assert!(ended.len() >= 10, "too few interpreters ended: {} of {}", ended.len(), outcomes.len());
    assert_eq!(ListedProcess::of(launcher.pid), Some(launcher), "it was interrupted");
}

#[test]
fn typescript_is_read_within_its_owners_memory() {
    // A reader that takes 400 MiB, and reads nothing.
    let program = "import sys; sys.stdin.read(); taken = bytearray(400 << 20); taken[::4096] = b'x' * len(taken[::4096]); sys.exit(3)";
    let reader = ["python3", "-c", program].map(Into::into).to_vec();
    let options = sandtimer::Options { reader: Some(reader), ..sandtimer::Options::default() };
    let engine = Engine::with_options(options).expect("an engine");
    let limits = Limits::new().memory(200 << 20);
    let owner = engine.open_scope(None, sandtimer::model::Layer::Tenant, "alice", &limits).expect("a scope");
    let read =
        |parent| engine.typescript("let a = 1", None, parent).expect_err("it reads nothing").to_string();
    let within = read(Some(owner.id()));
    assert!(within.contains("took more than 200 MiB of memory"), "{within}");
    // The control: by itself it ends as it wants to.
    let alone = read(None);
    assert!(!alone.contains("memory"), "{alone}");
}
