//! Live interpreters of one engine, for the suites that execute code in them.
#![allow(dead_code, reason = "no suite uses all of it")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{CellSpec, Context, ContextSpec, Contexts};
use sandtimer::zygote::{Language, Profile};
use sandtimer::{Engine, Limits, Outcome};

/// The engine of this process.
pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().expect("an engine"))
}

/// A new Python context.
pub fn python_context() -> Context {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    let profile = || Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    open(CONTEXTS.get_or_init(|| engine().contexts(profile(), 2).expect("a pool")))
}

/// A new JavaScript context.
pub fn javascript_context() -> Context {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    let profile =
        || Profile { interpreter: "node".into(), language: Language::JavaScript, ..Profile::default() };
    open(CONTEXTS.get_or_init(|| engine().contexts(profile(), 2).expect("a pool")))
}

fn open(contexts: &Contexts) -> Context {
    contexts.open(ContextSpec::default(), &mut || false).expect("a context")
}

/// A new session.
pub fn session() -> Context {
    engine().session(ContextSpec::default()).expect("a session")
}

/// Executes a cell or command under a limit of 20 s.
pub fn run(context: &Context, source: &str) -> Arc<Outcome> {
    within(context, source, Duration::from_secs(20))
}

/// Executes a cell or command under a wall-clock limit.
pub fn within(context: &Context, source: &str, wall: Duration) -> Arc<Outcome> {
    under(context, source, Limits::new().wall(wall))
}

/// Executes a cell or command under limits.
pub fn under(context: &Context, source: &str, limits: Limits) -> Arc<Outcome> {
    let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
    context.execute(cell, &mut |_| {}).expect("a run")
}
