//! Runs without a terminal: what would wait for a person or for a network ends at once, and an
//! unexpected end is reported.
#![allow(clippy::disallowed_methods, reason = "the command is started here")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sandtimer::engine::{WITHOUT_INPUT, WITHOUT_NETWORK, WITHOUT_TERMINAL};
use serde_json::Value;

/// Longer than what does not wait takes, and shorter than the limit of what does.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(30);

fn run(arguments: &[&str]) -> Output {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.arg("run").args(["--wall", "60s"]).args(arguments);
    command.env("TERM", "xterm-256color").stdin(Stdio::null());
    let output = command.output().expect("it starts");
    assert!(begun.elapsed() < PROMPT_TIMEOUT, "{arguments:?} took {:?}", begun.elapsed());
    output
}

fn outcome(arguments: &[&str]) -> Value {
    let output = run(&[&["--json"], arguments].concat());
    serde_json::from_slice(&output.stdout).expect("an Outcome")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The variables of a run.
fn variables(flags: &[&str]) -> Vec<String> {
    let outcome = outcome(&[flags, &["--", "env"]].concat());
    outcome["stdout"].as_str().expect("a text").lines().map(str::to_owned).collect()
}

fn has_program(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(name).exists()))
}

#[test]
fn unattended_variables_are_set_and_can_be_overridden() {
    let set = variables(&[]);
    for (name, value) in WITHOUT_TERMINAL.iter().chain(&WITHOUT_INPUT).chain(&WITHOUT_NETWORK) {
        assert!(set.contains(&format!("{name}={value}")), "{name}: {set:?}");
    }
    let overridden = variables(&["--env", "TERM", "--env", "PAGER=less", "--network"]);
    for line in ["TERM=xterm-256color", "PAGER=less"] {
        assert!(overridden.contains(&line.to_owned()), "{line}: {overridden:?}");
    }
    assert!(!overridden.iter().any(|line| line.starts_with("PIP_RETRIES=")), "{overridden:?}");
}

#[test]
fn documentation_lists_every_variable() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/run-environment.md");
    let page = fs::read_to_string(page).expect("readable");
    for (name, _) in WITHOUT_TERMINAL.iter().chain(&WITHOUT_INPUT).chain(&WITHOUT_NETWORK) {
        assert!(page.contains(&format!("`{name}")), "{name}");
    }
}

#[test]
fn editors_end_at_once() {
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = temporary.path().to_str().expect("text");
    let git_with = |options: &[&str], arguments: &[&str]| {
        let flags = ["--workspace", directory, "--cwd", directory];
        let git = ["--", "git", "-c", "user.name=a", "-c", "user.email=a@b"];
        run(&[&flags, options, &git, arguments].concat())
    };
    let git = |arguments: &[&str]| git_with(&[], arguments);
    assert!(git(&["init", "-q"]).status.success());
    assert!(git(&["commit", "-q", "--allow-empty", "-m", "first"]).status.success());
    for edits in [
        &["commit", "--allow-empty", "--amend"][..],
        &["rebase", "-i", "--root"],
        &["commit", "--allow-empty"],
    ] {
        let output = git(edits);
        assert!(!output.status.success(), "{edits:?}");
        assert!(
            stderr(&output).contains("no terminal for an editor: give the message with -m"),
            "{}",
            stderr(&output)
        );
    }
    // The control: with an editor of its own it is done.
    let edited = git_with(&["--env", "GIT_EDITOR=true"], &["commit", "--allow-empty", "--amend"]);
    assert!(edited.status.success());
    if has_program("vi") {
        let ended = outcome(&["--workspace", directory, "--", "vi", "file"]);
        assert_eq!((&ended["ending"], &ended["exit_code"]), (&"exited".into(), &1.into()), "{ended}");
    } else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: there is no vi here, so its end without a terminal is not seen"
        );
    }
    assert!(!run(&["--", "sh", "-c", "$EDITOR file"]).status.success());
}

#[test]
fn killed_leftovers_are_reported() {
    let output = run(&["--", "bash", "-c", "sleep 300 & echo started"]);
    assert_eq!(output.stdout, b"started\n");
    assert!(
        stderr(&output).contains("sandtimer: 1 process that it had left behind was killed"),
        "{}",
        stderr(&output)
    );
    let quiet = run(&["--", "bash", "-c", "sleep 0.01 & wait; echo done"]);
    assert_eq!(stderr(&quiet), "");
}

#[test]
fn missing_network_is_reported_at_once() {
    let pip = [
        "--",
        "python3",
        "-m",
        "pip",
        "download",
        "--no-cache-dir",
        "--no-deps",
        "-d",
        "/tmp/x",
        "sandtimer-no-such-package",
    ];
    let mut names =
        vec![outcome(&["--", "python3", "-c", "import urllib.request as u; u.urlopen('https://pypi.org')"])];
    names.push(outcome(&pip));
    if has_program("npm") {
        let temporary = tempfile::tempdir().expect("a directory");
        let directory = temporary.path().to_str().expect("text");
        fs::write(temporary.path().join("package.json"), "{}").expect("written");
        names.push(outcome(&[
            "--workspace",
            directory,
            "--cwd",
            directory,
            "--",
            "npm",
            "install",
            "left-pad",
        ]));
    }
    for ended in names {
        assert!(ended["ok"] == false && ended["remarks"][0]["kind"] == "no_network", "{ended}");
        let message = ended["remarks"][0]["message"].as_str().expect("a message");
        assert!(message.contains("--network"), "{message}");
    }
}

#[test]
fn missing_network_is_reported_with_passed_through_output() {
    let fetch = "import urllib.request as u; u.urlopen('https://pypi.org')";
    let output = run(&["--", "python3", "-c", fetch]);
    assert!(
        stderr(&output).contains("sandtimer: This run has no network except a loopback"),
        "{}",
        stderr(&output)
    );
    let script = "echo 'curl: (6) Could not resolve host: pypi.org' >&2; head -c 100000 /dev/zero >&2";
    for quiet in [&["--network", "--", "sh", "-c", script][..], &["--", "sh", "-c", script], &["--", "true"]]
    {
        assert!(!stderr(&run(quiet)).contains("sandtimer:"), "{quiet:?}");
    }
}

#[test]
fn streams_have_their_own_encodings() {
    let command = ["--", "sh", "-c", "echo text; printf 'b\\377' >&2"];
    let strict = outcome(&command);
    let parts = |outcome: &Value| {
        ["stdout", "stderr", "stdout_encoding", "stderr_encoding", "encoding"]
            .map(|name| outcome[name].clone())
    };
    assert_eq!(parts(&strict), ["text\n", "Yv8=", "utf-8", "base64", "base64"].map(Value::from));
    let replaced = outcome(&[&["--errors", "replace"], &command[..]].concat());
    assert_eq!(parts(&replaced), ["text\n", "b\u{fffd}", "utf-8", "utf-8", "utf-8"].map(Value::from));
}

/// Runs a line of a shell that finds the command in `$S`.
fn shell(line: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("S", env!("CARGO_BIN_EXE_sandtimer")).stdin(Stdio::null());
    command.output().expect("a shell")
}

#[test]
fn removed_working_directory_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let gone = directory.path().join("gone");
    let output = shell(&format!("mkdir {0} && cd {0} && rmdir {0} && $S run -- pwd", gone.display()));
    let message = format!("the current directory {} (deleted) is not mounted", gone.display());
    assert!(stderr(&output).contains(&message), "{}", stderr(&output));
    assert_eq!(output.stdout, b"/workspace\n");
}

#[test]
fn small_file_size_limit_is_explained() {
    let refused = shell("ulimit -f 0; $S run -- true");
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(
        stderr(&refused).contains("the limit of file sizes is 0 bytes (ulimit -f)"),
        "{}",
        stderr(&refused)
    );
    let output = shell("ulimit -f 4096; $S run -- true");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn long_path_variable_is_read_once() {
    let directories: Vec<String> = (0..15_000).map(|index| format!("/{index}")).collect();
    let path = format!("{}:/usr/bin:/bin", directories.join(":"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    let begun = Instant::now();
    let output = command.args(["run", "--", "no-such-command"]).env("PATH", path).output().expect("started");
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
    assert!(stderr(&output).contains("more directories of PATH"), "{}", stderr(&output));
    assert!(stderr(&output).len() < 4096);
    // With a comparison of each pair it would be about 20 s.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn json_of_a_run_that_cannot_start_is_an_outcome() {
    for (arguments, exit_code, expected) in [
        (&["--", "no-such-command"][..], 127, "`no-such-command` is not found"),
        (&["--", "/etc/passwd"], 126, "/etc/passwd"),
        (&["--cwd", "/no/such", "--", "true"], 125, "--cwd: starting directory `/no/such`"),
    ] {
        let output = run(&[&["--json"], arguments].concat());
        let ended: Value = serde_json::from_slice(&output.stdout).expect("an Outcome");
        assert_eq!(output.status.code(), Some(exit_code), "{ended}");
        assert_eq!((&ended["ending"], &ended["ok"]), (&"infra_error".into(), &false.into()), "{ended}");
        assert!(ended["error"]["message"].as_str().expect("a text").contains(expected), "{ended}");
        assert!(stderr(&output).contains(expected));
        let known = if exit_code == 125 { Value::Null } else { exit_code.into() };
        assert_eq!(ended["exit_code"], known, "{ended}");
        assert!(run(arguments).stdout.is_empty());
    }
}
