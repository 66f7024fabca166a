//! `sandtimer mcp` with the official TypeScript client and the inspector's command line, over stdin and stdout.
//!
//! Each test is a scenario of `mcp/drive.mjs` in the server's tests. `cargo xtask npm` installs both; without Node they are skipped.
#![allow(clippy::disallowed_methods, reason = "the server that the command started is ended here")]

#[path = "../../sandtimer-server/tests/support/node.rs"]
mod node;

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::json;
use tempfile::TempDir;

/// How long a server may take to end what it has.
const ENDS: u64 = Duration::from_secs(30).as_millis() as u64;

/// Where the server of the commands keeps what it has; it is ended with the test.
struct State(TempDir);

impl Drop for State {
    fn drop(&mut self) {
        let Some(server) = server_of(self.0.path()) else { return };
        let Ok(pidfd) = pidfd_open(server, PidfdFlags::empty()) else { return };
        // It may have ended meanwhile.
        let _ = sandtimer_os::process::signal(pidfd.as_fd(), Signal::TERM);
        sandtimer_os::process::wait_readable(pidfd.as_fd(), ENDS);
    }
}

/// The server that has this directory among its arguments.
fn server_of(state: &Path) -> Option<Pid> {
    let named = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let state = state.as_os_str().as_encoded_bytes();
        words.get(1) == Some(&&b"serve"[..]) && words.contains(&state)
    };
    let entries =
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.into_iter().find(named).and_then(Pid::from_raw)
}

fn play(scenario: &str) {
    let state = State(tempfile::tempdir().expect("a directory"));
    let directory = state.0.path().to_str().expect("text");
    let command = json!([env!("CARGO_BIN_EXE_sandtimer"), "mcp", "--state-dir", directory]);
    let variables = [("SANDTIMER_MCP", command.to_string())];
    node::play("mcp", "@modelcontextprotocol/sdk", &[], scenario, &variables);
}

#[test]
fn every_tool() {
    play("every_tool");
}

#[test]
fn a_limit_that_is_near_is_told() {
    play("a_limit_that_is_near_is_told");
}

#[test]
fn the_inspector() {
    play("the_inspector");
}
