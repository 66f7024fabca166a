//! Lengths that a context names: nothing of the engine's memory is kept for them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{BranchSpec, CellSpec, Context, ContextSpec, Contexts, ImageAccount};
use sandtimer::zygote::Profile;
use sandtimer::{Engine, Error, Limits, Outcome};

/// The memory limit of the contexts here.
const LIMIT: u64 = 128 << 20;

fn context() -> Context {
    context_on(None)
}

fn context_on(images: Option<ImageAccount>) -> Context {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    let contexts = CONTEXTS.get_or_init(|| {
        let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
        Engine::new().expect("an engine").contexts(profile, 2).expect("a pool")
    });
    let spec = ContextSpec { limits: Limits::new().memory(LIMIT), images, ..ContextSpec::default() };
    let context = contexts.open(spec, &mut || false).expect("a context");
    assert!(run(&context, FORGER).ok);
    context
}

fn run(context: &Context, source: &str) -> Arc<Outcome> {
    let limits = Limits::new().wall(Duration::from_secs(20));
    let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// What is shown of the files that the interpreter has kept of those it was to write its image to:
/// megabytes, `-1` for one that is closed.
fn kept(context: &Context) -> String {
    let outcome = run(context, "[os.fstat(file).st_blocks >> 11 for file in kept]");
    outcome.results[0]["text/plain"].as_str().unwrap_or_else(|| panic!("{outcome:?}")).to_owned()
}

/// Has the interpreter answer with lengths of its own choosing instead of writing its image, and
/// keep the files. They are kept where the look for open files, which a branch would lack, does not
/// come.
const FORGER: &str = r"
import os, signal, fcntl
globals_of = type(display.__self__).serve.__globals__
native, kept, says, seals = globals_of['native'], [], [], 0
globals_of['check'] = lambda *_: None
honest = native.image
def image(file, base):
    kept.append(os.dup(file))
    if seals:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return says.pop(0) if says else honest(file, base)
native.image = image
def too_short(megabytes): return (megabytes << 20) << 2 | 3
";

fn refused(context: &Context) -> String {
    match context.branch(&BranchSpec { count: 1, ..BranchSpec::default() }) {
        Err(Error::NoBranch(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn image_longer_than_the_memory_limit_is_refused() {
    let context = context();
    for _ in 0..4 {
        run(&context, "says[:] = [too_short(512)]");
        let reason = refused(&context);
        assert!(reason.contains("512 MiB"), "{reason}");
    }
    assert_eq!(kept(&context), "[0, 0, 0, 0]");
}

#[test]
fn file_of_an_image_that_is_not_written_is_emptied() {
    let context = context();
    run(&context, "says[:] = [too_short(100), -14]");
    refused(&context);
    run(&context, "says[:] = [too_short(90), too_short(100), (300 << 20) << 2 | 1]");
    refused(&context);
    assert_eq!(kept(&context), "[0, 0, 0, 0, 0]");
}

/// What seals its file so that it cannot be emptied has it counted, and gets no more than a
/// multiple of its limit.
#[test]
fn files_that_cannot_be_emptied_are_bounded() {
    let context = context();
    run(&context, "seals = fcntl.F_SEAL_SHRINK");
    for _ in 0..8 {
        run(&context, "says[:] = [too_short(100), -14]");
        refused(&context);
    }
    let outcome = run(&context, "sum(os.fstat(file).st_blocks >> 11 for file in kept)");
    let megabytes: u64 =
        outcome.results[0]["text/plain"].as_str().and_then(|text| text.parse().ok()).expect("a number");
    // The control: they were given some, and kept it.
    assert!((100..=2 * (LIMIT >> 20) + 2).contains(&megabytes), "{megabytes} MiB");
}

/// What several contexts keep of the engine's memory is bounded by the account that they share, and
/// given back with them.
#[test]
fn images_of_contexts_with_one_account_are_bounded() {
    let account = ImageAccount::new(150 << 20);
    let contexts: Vec<Context> = (0..3).map(|_| context_on(Some(account.clone()))).collect();
    for context in &contexts {
        run(context, "seals = fcntl.F_SEAL_SHRINK");
        for _ in 0..2 {
            run(context, "says[:] = [too_short(60), -14]");
            refused(context);
        }
    }
    let kept = |context: &Context| {
        let outcome = run(context, "sum(os.fstat(file).st_blocks >> 11 for file in kept)");
        let text = outcome.results[0]["text/plain"].as_str().map(str::to_owned).expect("a number");
        text.parse::<u64>().expect("a number")
    };
    let sum: u64 = contexts.iter().map(kept).sum();
    assert!((100..=150).contains(&sum), "{sum} MiB of six times 60");
    assert!(account.used_bytes() >= sum << 20, "{} bytes are charged", account.used_bytes());
    // An honest one is written all the same: into its context's own memory.
    let honest = context_on(Some(account.clone()));
    run(&honest, "held = os.urandom(40 << 20)");
    let branches = honest.branch(&BranchSpec { count: 1, ..BranchSpec::default() }).expect("a branch");
    assert_eq!(run(&branches[0], "len(held) >> 20").results[0]["text/plain"], "40");
    drop((branches, honest, contexts));
    assert_eq!(account.used_bytes(), 0);
}

/// What a branch is from stays charged as long as the branch lives, its origin gone or not.
#[test]
fn image_is_charged_while_a_branch_has_it() {
    let account = ImageAccount::new(1 << 30);
    let origin = context_on(Some(account.clone()));
    run(&origin, "held = os.urandom(20 << 20)");
    let branches = origin.branch(&BranchSpec { count: 1, ..BranchSpec::default() }).expect("a branch");
    drop(origin);
    assert!(account.used_bytes() >= 20 << 20, "{}", account.used_bytes());
    drop(branches);
    assert_eq!(account.used_bytes(), 0);
}

/// The control: an honest image is written, and stays.
#[test]
fn honest_image_is_kept() {
    let context = context();
    run(&context, "held = os.urandom(20 << 20)");
    let branches = context.branch(&BranchSpec { count: 1, ..BranchSpec::default() }).expect("a branch");
    assert_eq!(run(&branches[0], "len(held) >> 20").results[0]["text/plain"], "20");
    let sizes = kept(&context);
    let last = sizes.trim_matches(['[', ']']).rsplit(", ").next().and_then(|size| size.parse::<u64>().ok());
    assert!(last.is_some_and(|megabytes| megabytes >= 20), "{sizes}");
}
