//! `sandtimer doctor --bwrap`: which `bwrap` the agents find, and how they find this one.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandtimer_os::process::wait_readable;
use serde::Serialize;

use crate::render;

/// Limits for what an agent starts, as lines of sandtimer.toml.
const LIMITS: &str = "wall = \"30m\"\nmemory = \"8G\"\nprocesses = 1024\n";

/// An agent, and how it finds `bwrap`.
const AGENTS: [(&str, &str); 5] = [
    ("Claude Code (sandbox-runtime)", "the first in PATH; or \"bwrapPath\" in its settings"),
    ("Codex", "the first in PATH, unless it lies below a directory that the sandbox may write, such as /tmp"),
    ("pi", "the first in PATH"),
    ("qwen-code", "the first in PATH"),
    ("mini-swe-agent", "MSWEA_BUBBLEWRAP_EXECUTABLE, or the first in PATH"),
];

/// A `bwrap` in PATH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct BwrapProgram {
    path: PathBuf,
    /// What it is a link to.
    target: Option<PathBuf>,
    is_sandtimer: bool,
    version: String,
}

/// What was found, in the order of PATH.
#[derive(Debug, Serialize)]
struct BwrapReport {
    program: Option<PathBuf>,
    first_is_sandtimer: bool,
    found: Vec<BwrapProgram>,
}

pub(super) fn main(json: bool) -> ExitCode {
    let program = std::env::current_exe().ok();
    let found = in_path(&std::env::var_os("PATH").unwrap_or_default(), program.as_deref());
    let first_is_sandtimer = found.first().is_some_and(|first| first.is_sandtimer);
    let report = BwrapReport { program, first_is_sandtimer, found };
    match json {
        true => render::print(&format!("{:#}\n", serde_json::json!(report))),
        false => render::print(&text(&report)),
    }
    if report.first_is_sandtimer { ExitCode::SUCCESS } else { ExitCode::from(125) }
}

fn in_path(variable: &std::ffi::OsStr, program: Option<&Path>) -> Vec<BwrapProgram> {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let own = program.and_then(identity);
    let mut list: Vec<BwrapProgram> = Vec::new();
    for directory in std::env::split_paths(variable) {
        let path = directory.join("bwrap");
        let is_program = path.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
        if is_program && !list.iter().any(|known| known.path == path) {
            let version = version(&path);
            let is_sandtimer = (own.is_some() && identity(&path) == own) || version.contains("sandtimer");
            list.push(BwrapProgram { target: std::fs::read_link(&path).ok(), path, is_sandtimer, version });
        }
    }
    list
}

/// What it prints for `--version`; nothing where it cannot be run, or takes too long.
#[allow(
    clippy::disallowed_methods,
    reason = "the program that the agents would run, and with no more than they ask of it"
)]
fn version(path: &Path) -> String {
    const TIMEOUT_MILLISECONDS: u64 = 5_000;
    let started = Command::new(path).arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else { return String::new() };
    let pidfd =
        Pid::from_raw(child.id().cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if !pidfd.is_some_and(|pidfd| wait_readable(pidfd.as_fd(), TIMEOUT_MILLISECONDS)) {
        // A process that has ended by itself needs no signal.
        let _ = child.kill();
    }
    let output = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

fn text(report: &BwrapReport) -> String {
    let mut text = String::from("bwrap in PATH\n");
    if report.found.is_empty() {
        text.push_str("  none\n");
    }
    for (number, found) in (1..).zip(&report.found) {
        let target = found.target.as_ref().map(|target| format!(" -> {}", target.display()));
        let which = if found.is_sandtimer { "sandtimer" } else { "another program" };
        let shown = format!("{}{}", found.path.display(), target.unwrap_or_default());
        text.push_str(&format!("  {number}. {shown}: {which} ({})\n", found.version));
    }
    text.push_str(match report.first_is_sandtimer {
        true => "\nAgents that look for bwrap find sandtimer.\n",
        false => {
            "\nAgents do not find sandtimer. A link in a directory that comes earlier in PATH changes that:\n"
        }
    });
    if !report.first_is_sandtimer {
        let program = report.program.as_deref().unwrap_or(Path::new("/usr/local/bin/sandtimer"));
        text.push_str(&format!("  ln -s {} /usr/local/bin/bwrap\n", program.display()));
    }
    text.push_str("\nHow each agent finds it\n");
    for (agent, how) in AGENTS {
        text.push_str(&format!("  {agent:<30} {how}\n"));
    }
    text.push_str("\nLimits for an agent's commands, in ~/.config/sandtimer/sandtimer.toml\n");
    LIMITS.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn first_in_path_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = |name: &str, version: &str| {
            let directory = root.path().join(name);
            std::fs::create_dir(&directory).expect("a directory");
            let file = directory.join("bwrap");
            std::fs::write(&file, format!("#!/bin/sh\necho {version}\n")).expect("a file");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("a mode");
            directory
        };
        let (other, ours) =
            (directory("a", "bubblewrap 0.8.0"), directory("b", "bubblewrap 0.11.1 sandtimer"));
        let path = std::env::join_paths([&root.path().join("none"), &other, &ours]).expect("paths");
        let found = in_path(&path, None);
        assert_eq!(found.iter().map(|one| one.is_sandtimer).collect::<Vec<_>>(), [false, true]);
        let report = BwrapReport { program: Some("/opt/sandtimer".into()), first_is_sandtimer: false, found };
        let text = text(&report);
        assert!(text.contains("ln -s /opt/sandtimer /usr/local/bin/bwrap"), "{text}");
        assert!(text.contains("memory = \"8G\""), "{text}");
    }
}
