//! Times a command, run again and again in fresh sandboxes.
//!
//! `cargo run --release --example latency -- 200 /bin/true`
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // an example prints and reads the clock

use std::time::{Duration, Instant};

use sandtimer::{Engine, Error, Spec};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1);
    let rounds = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(200);
    let command: Vec<_> = arguments.collect();
    let started = Instant::now();
    let engine = Engine::new()?;
    println!("engine ready after {:?}", started.elapsed());
    let mut times = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        let outcome = engine.run_blocking(Spec::command(&command))?;
        times.push(started.elapsed());
        assert!(outcome.ok, "{outcome:?}");
    }
    report("cold", times);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let parked = engine.park(&Spec::command(&command))?;
        let started = Instant::now();
        let outcome = parked.start(Spec::command(&command))?.wait_blocking();
        times.push(started.elapsed());
        assert!(outcome.ok, "{outcome:?}");
    }
    report("parked", times);
    Ok(())
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{name}: p50 {:?}  p90 {:?}  max {:?}", at(50), at(90), at(100));
}
