//! Starting a tool and waiting for it: every command of every chore goes through here.

use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::{Result, root};

/// A command that runs in the root of the repository.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    // Under `cargo xtask` this is the very cargo that was called, toolchain override included.
    let program = match program {
        "cargo" => std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        other => other.into(),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Runs `command` with this process's own output.
pub(crate) fn run(mut command: Command) -> Result {
    let shown = shown(&command);
    let status = command.status().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// Runs cargo with `arguments`.
pub(crate) fn cargo(arguments: &[&str]) -> Result {
    run(command("cargo", arguments))
}

/// Runs `command` and returns what it wrote to stdout, without the end of the line.
pub(crate) fn output(command: Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&outputs(command)?.stdout).trim_end().to_owned())
}

/// Runs `command` and returns what it wrote to stderr, where cargo reports.
pub(crate) fn report(command: Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&outputs(command)?.stderr).into_owned())
}

fn outputs(mut command: Command) -> Result<Output> {
    let shown = shown(&command);
    let output = command.output().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{shown}` failed: {}: {}", output.status, stderr.trim_end()))
}

/// Whether the command can be started and succeeds. Its output is not shown.
pub(crate) fn succeeds(line: &[&str]) -> bool {
    let mut command = command(line[0], &line[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs `work` under a heading and prints how long it took.
pub(crate) fn timed(name: &str, work: impl FnOnce() -> Result) -> Result {
    println!("== {name}");
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("== {name}: ok, {seconds:.1} s"),
        Err(_) => println!("== {name}: FAILED after {seconds:.1} s"),
    }
    result.map_err(|error| format!("xtask: step `{name}` failed: {error}"))
}
