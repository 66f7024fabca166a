//! Runs a command for at most two seconds and prints its Outcome as JSON.
//!
//! `cargo run --example run -- sh -c 'echo hello; sleep 60'`
#![allow(clippy::disallowed_macros)] // an example prints

use std::time::Duration;

use sandtimer::{Engine, Error, Limits, Spec};

fn main() -> Result<(), Error> {
    let engine = Engine::new()?;
    let limits = Limits::new().wall(Duration::from_secs(2)).memory(512 << 20).processes(64);
    let outcome = engine.run_blocking(Spec::command(std::env::args_os().skip(1)).limits(limits))?;
    println!("{}", serde_json::to_string_pretty(&*outcome).unwrap_or_default());
    Ok(())
}
