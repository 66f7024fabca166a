//! What executing code in a live context costs, checkpoint included: `cargo run --release -p
//! sandtimer --example contexts`; with `-- branch` branches alone.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // an example prints and reads the clock

use std::time::{Duration, Instant};

use sandtimer::engine::{BranchSpec, CellSpec, Context, ContextSpec, Contexts};
use sandtimer::model::RemainingState;
use sandtimer::zygote::Profile;
use sandtimer::{Engine, Error, Limits};

const DEAF: &str = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";

fn main() -> Result<(), Error> {
    let engine = Engine::new()?;
    let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    let pool = engine.contexts(profile, 4)?;
    pool.warm(4, &mut || false)?;
    for megabytes in [0, 50, 500] {
        branch(&pool, megabytes)?;
    }
    if std::env::args().any(|argument| argument == "branch") {
        return Ok(());
    }
    for megabytes in [0, 50] {
        let context = pool.open(ContextSpec::default(), &mut || false)?;
        execute(
            &context,
            &format!("import os\nheld = [bytearray(os.urandom(4096)) for _ in range({megabytes} * 256)]"),
            20_000,
        )?;
        for pause in [0, 5] {
            let mut times = Vec::new();
            for _ in 0..500 {
                std::thread::sleep(Duration::from_millis(pause));
                times.push(execute(&context, "1+1", 20_000)?.1);
            }
            report(&format!("{megabytes} MB more, 1+1 every {pause} ms"), times);
        }
        let mut late = Vec::new();
        for _ in 0..50 {
            let (state, took) = execute(&context, DEAF, 50)?;
            assert_eq!(state, RemainingState::RolledBack, "the cell hears nothing");
            late.push(took.saturating_sub(Duration::from_millis(50)));
            execute(&context, "1+1", 20_000)?;
        }
        report(&format!("{megabytes} MB more, answered behind a wall"), late);
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        let context = pool.open(ContextSpec::default(), &mut || false)?;
        times.push(begun.elapsed());
        drop(context);
    }
    report("a new context", times);
    Ok(())
}

/// What branches cost: the first of a context, later ones when a small cell has run in between, and
/// eight at once.
fn branch(pool: &Contexts, megabytes: u64) -> Result<(), Error> {
    let (mut first, mut later, mut cell, mut eight) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let context = pool.open(ContextSpec::default(), &mut || false)?;
        let source = format!(
            "import os\nx = 0\nheld = [bytearray(os.urandom(4096)) for _ in range({megabytes} * 256)]"
        );
        execute(&context, &source, 60_000)?;
        for round in 0..21 {
            execute(&context, "x += 1", 20_000)?;
            pool.warm(4, &mut || false)?;
            std::thread::sleep(Duration::from_millis(20));
            let begun = Instant::now();
            let branches = context.branch(&BranchSpec { count: 1, ..BranchSpec::default() })?;
            if round == 0 { &mut first } else { &mut later }.push(begun.elapsed());
            cell.push(execute(&branches[0], "x", 20_000)?.1);
        }
        let begun = Instant::now();
        drop(context.branch(&BranchSpec { count: 8, ..BranchSpec::default() })?);
        eight.push(begun.elapsed());
    }
    for (what, times) in [
        ("a context's first branch", first),
        ("a later one", later),
        ("the first cell in a branch", cell),
        ("eight later ones and their end", eight),
    ] {
        report(&format!("{megabytes} MB more, {what}"), times);
    }
    Ok(())
}

fn execute(context: &Context, source: &str, wall_ms: u64) -> Result<(RemainingState, Duration), Error> {
    let limits = Limits::new().wall(Duration::from_millis(wall_ms));
    let begun = Instant::now();
    let outcome = context
        .execute(CellSpec { source: source.to_owned(), limits, ..CellSpec::default() }, &mut |_| {})?;
    Ok((outcome.state, begun.elapsed()))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!("{what}: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms", at(0.5), at(0.9), at(0.99));
}
