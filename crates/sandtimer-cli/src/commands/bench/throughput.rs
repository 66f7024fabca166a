//! How fast output passes through `sandtimer run`, compared with a `cat` in the same place.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::pipe::{SpliceFlags, splice};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process::wait_readable;

use super::samples::Samples;

/// Bytes that pass in one round.
pub(super) const BYTES: u64 = 2 << 30;
/// Rounds; each does both ways once.
pub(super) const ROUNDS: usize = 3;
/// A pipe that is silent for this long, in milliseconds, times out.
const PIPE_IDLE_TIMEOUT_MS: u64 = 20_000;

/// Medians, in GiB per second.
#[derive(Debug)]
pub(super) struct Throughput {
    pub(super) through_sandtimer: f64,
    pub(super) through_cat: f64,
}

/// Measures both ways, interleaved.
pub(super) fn measure() -> Result<Throughput, String> {
    let (mut sandtimer, mut cat) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        sandtimer.push(through(&mut [command_line()?])?);
        cat.push(through(&mut [head(), Command::new("cat")])?);
    }
    let median = |values| Samples::new(values).at(0.5).unwrap_or(0.0);
    Ok(Throughput { through_sandtimer: median(sandtimer), through_cat: median(cat) })
}

fn head() -> Command {
    let mut command = Command::new("head");
    command.args(["-c", &BYTES.to_string(), "/dev/zero"]);
    command
}

fn command_line() -> Result<Command, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
    let mut command = Command::new(program);
    command.args(["run", "--wall", "60s", "--", "head", "-c", &BYTES.to_string(), "/dev/zero"]);
    Ok(command)
}

/// Children that are ended and waited for, whatever happens.
#[derive(Default)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // After a whole round they have ended by themselves.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a pipeline and drains it; GiB per second.
#[expect(clippy::disallowed_methods, reason = "the pipelines that pass-through is compared with")]
fn through(pipeline: &mut [Command]) -> Result<f64, String> {
    let mut children = Children::default();
    let mut output: Option<OwnedFd> = None;
    let begun = monotonic_nanoseconds();
    for command in pipeline {
        command
            .stdin(output.take().map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let name = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        output = child.stdout.take().map(OwnedFd::from);
        children.0.push(child);
    }
    let output = output.ok_or("an empty pipeline")?;
    let drained = drain(&output).map_err(|error| format!("cannot read the output: {error}"))?;
    let seconds = (monotonic_nanoseconds() - begun) as f64 / 1e9;
    if drained != BYTES {
        return Err(format!("{drained} of {BYTES} bytes came through"));
    }
    Ok(BYTES as f64 / (1u64 << 30) as f64 / seconds)
}

/// Moves everything from a pipe to nowhere, without a copy of its own.
fn drain(pipe: &OwnedFd) -> io::Result<u64> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    let mut total = 0;
    loop {
        if !wait_readable(pipe.as_fd(), PIPE_IDLE_TIMEOUT_MS) {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        match splice(pipe, None, &nowhere, None, 1 << 20, SpliceFlags::empty()) {
            Ok(0) => return Ok(total),
            Ok(count) => total += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_a_pipe_is_counted() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(rustix::io::write(&write, &[0; 10_000]), Ok(10_000));
        drop(write);
        assert_eq!(drain(&read).expect("an end"), 10_000);
    }
}
