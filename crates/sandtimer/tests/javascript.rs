//! Contexts with a real Node.js: state that lives, limits that end a cell and not the context, and hostile cells.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{Cell, Context, ContextSpec, Contexts, Told};
use sandtimer::model::State;
use sandtimer::zygote::{Language, Profile};
use sandtimer::{Ending, Engine, Limits, Outcome};

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
    let outcome = run(&context, cell("const x = 40; let y = 2\nclass C { z = 1 }\nfunction f() { return 7 }\nconsole.log('hello')"));
    assert_eq!(
        (outcome.ending, outcome.state, outcome.stdout.as_str()),
        (Ending::Returned, State::Kept, "hello\n"),
        "{outcome:?}"
    );
    assert_eq!((shown(&context, "x + y"), outcome.execution_count), ("42".to_owned(), Some(1)));
}
