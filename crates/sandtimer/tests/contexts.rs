//! Contexts with real interpreters: state that lives, limits that end a cell and not the context, and hostile cells.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sandtimer::engine::{Cell, Context, ContextSpec, Contexts, Told};
use sandtimer::model::{Proof, State};
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
