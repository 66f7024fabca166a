//! `hostile`: one program, many misbehaviours, one per run, chosen by its first argument.
//!
//! Usage: `hostile [--life SECONDS] [--marker TEXT] [--host-pid-namespace INODE] NAME ARGUMENTS…`;
//! `hostile list` prints the table. It must never outlive `--life` (60 s): every process of it
//! carries a kernel timer that sends SIGKILL, so that a wall that failed costs a minute and not the
//! machine.
//!
//! A payload that probes a wall prints one line of JSON,
//! `{"attack":…,"result":"denied","errno":"EPERM"}`, and exits 0 when the wall held, 42 when it did
//! not, 3 when the payload could not be tried.
#![allow(
    clippy::disallowed_methods,
    reason = "this program exists to do what the engine forbids; it is never part of the product"
)]

mod arguments;
mod disk;
mod files;
mod kernel;
mod locks;
mod meeting;
mod memory;
mod network;
mod output;
mod privilege;
mod report;
mod system;
mod table;
mod time;
mod tree;

use std::process::ExitCode;

use arguments::PayloadArguments;
use report::Finding;

fn main() -> ExitCode {
    let arguments = match PayloadArguments::parse(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => return usage(&message),
    };
    if arguments.name == "list" {
        report::line(&table::as_json());
        return ExitCode::SUCCESS;
    }
    let Some(payload) = table::TABLE.iter().find(|payload| payload.name == arguments.name) else {
        return usage(&format!("unknown payload '{}' (try: hostile list)", arguments.name));
    };
    system::bound_life(arguments.life_seconds);
    if payload.cage_only && !arguments.inside_cage() {
        return finish(payload, Finding::Untried("refused outside a process namespace of its own".into()));
    }
    finish(payload, (payload.run)(&arguments))
}

fn usage(message: &str) -> ExitCode {
    report::report_error(message);
    ExitCode::from(2)
}

fn finish(payload: &table::Payload, finding: Finding) -> ExitCode {
    if let Some(line) = finding.as_json(payload.attack, payload.name) {
        report::line(&line);
    }
    ExitCode::from(finding.exit_code())
}
