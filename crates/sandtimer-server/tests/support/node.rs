//! Scenarios that Node plays against Sandtimer: `cargo xtask npm` installs what they need.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test starts its own helper and says what it skips; it is not part of the product"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Relative to the directory of any crate, whose test this may be.
const SCENARIOS: &str = "../sandtimer-server/tests";

/// The directory of the npm packages that a scenario needs. `None` if Node is not installed.
fn modules(package: &str) -> Option<PathBuf> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        println!("skipped: there is no node");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules = std::env::var_os("SANDTIMER_TEST_NPM")
        .map_or_else(|| root.join("target/npm/node_modules"), PathBuf::from);
    let is_there = modules.join(package).join("package.json").is_file();
    assert!(is_there, "{} has no {package}: run `cargo xtask npm`", modules.display());
    Some(modules)
}

/// Plays a scenario of `<directory>/drive.mjs`, whose `package` is there, with these arguments
/// before its name and these variables.
pub fn play(
    directory: &str,
    package: &str,
    arguments: &[&str],
    scenario: &str,
    variables: &[(&str, String)],
) {
    let Some(modules) = modules(package) else { return };
    let output = Command::new("timeout")
        .args(["--signal=KILL", "150", "node"])
        .args(arguments)
        .args(["drive.mjs", scenario])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCENARIOS).join(directory))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env("SANDTIMER_TEST_NPM", modules)
        .output()
        .expect("node is there");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains(&format!("passed: {scenario}\n")), "{stdout}{why}");
}
