//! The unmodified npm package `@cloudflare/sandbox`, loaded in Node, against this server's /api.
//!
//! Each test is a scenario of `compat/scenarios.mjs`. `cargo xtask npm` installs the package; without Node they are skipped.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test starts its own helper and says what it skips; it is not part of the product"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Serving, tokens};

/// Where the package is. `None` where there is no Node to load it.
fn modules() -> Option<PathBuf> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        println!("skipped: there is no node");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules = std::env::var_os("SANDTIMER_TEST_NPM")
        .map_or_else(|| root.join("target/npm/node_modules"), PathBuf::from);
    let is_there = modules.join("@cloudflare/sandbox/package.json").is_file();
    assert!(is_there, "{} has no @cloudflare/sandbox: run `cargo xtask npm`", modules.display());
    Some(modules)
}

fn drive(serving: &Serving, scenario: &str, token: &str) {
    let Some(modules) = modules() else { return };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat");
    let output = Command::new("timeout")
        .args(["--signal=KILL", "150", "node", "--import", "./register.mjs", "drive.mjs", scenario])
        .current_dir(directory)
        .env("SANDTIMER_URL", format!("http://{}", serving.address))
        .env("SANDTIMER_TOKEN", token)
        .env("SANDTIMER_TEST_NPM", modules)
        .output()
        .expect("node is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("passed: {scenario}\n")), "{said}{why}");
}

macro_rules! scenarios {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            drive(&Serving::start(), stringify!($name), "");
        })+
    };
}

scenarios! {
    exec
    streams
    nothing_is_lost_in_streams
    sessions
    timeouts
    what_times_out_is_dead
    without_sessions
    commands_of_one_session_queue
    clients_that_go_away
    processes
    code
    code_that_takes_too_long
    interface_of_the_wire
    clones
    files
    long_ones_finish
}

#[test]
fn tokens_are_those_of_the_server() {
    let serving = Serving::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    drive(&serving, "tokens", "first-secret-token-1234");
}

#[test]
fn quiet_streams_are_kept_open() {
    let serving = Serving::with(|settings| settings.heartbeat = Duration::from_millis(100));
    drive(&serving, "quiet_streams_are_kept_open", "");
}

#[test]
fn files_are_there_after_a_restart() {
    let serving = Serving::start();
    drive(&serving, "files_before_a_restart", "");
    let again = Serving::at(serving.stop(), |_| {});
    drive(&again, "files_after_a_restart", "");
}
