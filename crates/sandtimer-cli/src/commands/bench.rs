//! `sandtimer bench`: what limits and isolation cost on this machine, compared with a floor and
//! peers in the same run.
//!
//! Every bench is bounded in time and count and reports how many samples it has. Nothing here
//! prints. The hard fact: on a shared machine only ratios of interleaved samples, and lateness
//! compared with a timer's own, mean anything.

mod canary;
mod contenders;
mod findings;
mod hostile;
mod lateness;
mod many;
mod samples;
mod spawn;
mod throughput;

use std::process::ExitCode;

use sandtimer::Error;

use crate::args::{Bench, BenchArguments};
use crate::render;

/// The command.
pub(crate) fn main(arguments: &BenchArguments) -> ExitCode {
    match bench(arguments) {
        Ok(text) => {
            render::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            render::report_error(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// The text to print.
fn bench(arguments: &BenchArguments) -> Result<String, Error> {
    let (findings, json) = match &arguments.bench {
        Bench::Lateness { runs, load, json } => (lateness::measure(*runs as usize, *load)?, *json),
        Bench::Spawn { rounds, json } => (spawn::measure(*rounds as usize)?, *json),
        Bench::Many { runs, json } => (many::measure(*runs as usize)?, *json),
    };
    Ok(if json { format!("{:#}\n", findings.json) } else { findings.text })
}
