//! Bad input: exit 125 (126 and 127 for the command), one line on stderr that names the thing, the
//! value and what would work, and nothing left behind.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::{RunInvocation, Visitor};
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::FinishedProcess;
use sandtimer_tests::wait::{Alone, alone};

fn quiet(test: &'static str) -> (Alone, Census) {
    let alone = alone(test, Duration::from_secs(180));
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    (alone, Census::take())
}

/// Asserts an exit code, an empty stdout, and one line on stderr that names each of `names`.
fn refused(finished: &FinishedProcess, code: i32, names: &[&str]) {
    let errors = finished.errors();
    assert_eq!(finished.code(), Some(code), "{errors}");
    assert!(finished.stdout.is_empty(), "on stdout: {}", finished.text());
    assert_eq!(errors.trim_end().lines().count(), 1, "not one line: {errors:?}");
    for name in names {
        assert!(errors.contains(name), "'{name}' is not named in {errors:?}");
    }
}

#[test]
fn flags_that_cannot_be_are_refused_by_name() {
    let (_alone, before) = quiet("bad flags");
    let table: &[(&[&str], &[&str])] = &[
        (&["--no-such-flag"], &["--no-such-flag"]),
        (&["--wall", "-1s"], &["wall", "-1s"]),
        (&["--wall=-1s"], &["wall", "-1s"]),
        (&["--wall", "abc"], &["wall", "abc"]),
        (&["--wall", "NaN"], &["wall", "NaN"]),
        (&["--wall", ""], &["wall"]),
        (&["--cpu", "1 parsec"], &["cpu", "parsec"]),
        (&["--memory", "10X"], &["memory", "10X"]),
        (&["--memory", "99999999999999999999G"], &["memory", "99999999999999999999G"]),
        (&["--memory", "4K"], &["--memory", "4K", "the command line", "1M"]),
        (&["--open-files", "1"], &["--open-files", "`1`", "the command line", "32"]),
        (&["--memory", "true"], &["memory", "true"]),
        (&["--processes", "1.5"], &["processes", "1.5"]),
        (&["--require", "T9"], &["require", "T9"]),
        (&["--workspace", "/nonexistent/hostile"], &["workspace", "/nonexistent/hostile"]),
        (&["--workspace", "/etc/passwd"], &["workspace", "/etc/passwd"]),
        (&["--cwd", "/nonexistent/hostile"], &["cwd", "/nonexistent/hostile"]),
        (&["--env", "=x"], &["env", "=x"]),
    ];
    for (flags, names) in table {
        let finished = RunInvocation::new().flags(flags).command(&["/bin/true"]).finish();
        refused(&finished, 125, names);
    }
    assert_clean(&before, "a refused flag");
}

#[test]
fn zero_and_unlimited_are_no_limits_and_no_errors() {
    let _alone = alone("unlimited", Duration::from_secs(60));
    for flags in [["--wall", "0"], ["--wall", "unlimited"], ["--memory", "0"], ["--processes", "unlimited"]] {
        let finished = RunInvocation::new().flags(&flags).command(&["/bin/true"]).finish();
        assert_eq!(finished.code(), Some(0), "{flags:?}: {}", finished.errors());
    }
}

#[test]
fn commands_that_cannot_run_have_distinct_exit_codes() {
    let (_alone, before) = quiet("bad commands");
    refused(&RunInvocation::new().finish(), 125, &["command"]);
    refused(
        &RunInvocation::new().command(&["/nonexistent/hostile"]).finish(),
        127,
        &["/nonexistent/hostile"],
    );
    refused(
        &RunInvocation::new().command(&["hostile-no-such-command"]).finish(),
        127,
        &["hostile-no-such-command"],
    );
    refused(&RunInvocation::new().command(&["/etc/passwd"]).finish(), 126, &["/etc/passwd"]);
    refused(&RunInvocation::new().command(&["/usr"]).finish(), 126, &["/usr"]);
    let plain = RunInvocation::new();
    let path = plain.directory.path().join("plain");
    std::fs::write(&path, "#!/bin/sh\nexit 0\n").expect("own directory");
    refused(&plain.command(&[&path]).finish(), 126, &["plain"]);
    assert_clean(&before, "a command that cannot run");
}

#[test]
fn what_a_command_exits_with_is_what_is_exited_with() {
    let _alone = alone("exit codes", Duration::from_secs(60));
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 124", 124), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        let finished = RunInvocation::new().command(&["/bin/sh", "-c", script]).finish();
        assert_eq!(finished.code(), Some(code), "{script}: {}", finished.errors());
    }
}

/// An ordinary user who can have no cgroup of its own must be refused rather than given less.
#[test]
fn a_required_tier_that_cannot_be_had_is_refused() {
    let visitor = Visitor::new(65534);
    let run = RunInvocation::new().by(&visitor).flags(&["--require", "T3"]).command(&["/bin/true"]);
    // The directory of a user's locks is made once, and stays.
    refused(&run.finish(), 125, &["T3", "cgroup"]);
    let (_alone, before) = quiet("tier");
    refused(&run.finish(), 125, &["T3", "cgroup"]);
    assert_clean(&before, "a refused tier");
}

#[test]
fn a_configuration_file_with_an_unknown_key_is_refused() {
    let (_alone, before) = quiet("unknown key");
    let run = RunInvocation::new().flags(&["--config", "sandtimer.toml"]).command(&["/bin/true"]);
    std::fs::write(run.directory.path().join("sandtimer.toml"), "wal = \"2s\"\n").expect("own directory");
    refused(&run.finish(), 125, &["sandtimer.toml", "wal"]);
    assert_clean(&before, "an unknown key");
}

#[test]
fn grace_that_leaves_nothing_of_a_ceiling_is_cut() {
    let (_alone, before) = quiet("grace");
    let run = RunInvocation::new().flags(&["--grace", "5s"]).command(&["/bin/true"]);
    std::fs::write(run.directory.path().join("sandtimer.toml"), "wall = \"4s\"\n").expect("own directory");
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.ending(), "exited");
    assert_clean(&before, "a long grace");
}

#[test]
fn more_workspaces_than_can_be_given_are_refused() {
    let (_alone, before) = quiet("workspaces");
    let flags = ["--workspace", "/usr"].repeat(17);
    refused(
        &RunInvocation::new().flags(&flags).command(&["/bin/true"]).finish(),
        125,
        &["workspaces", "17", "16"],
    );
    assert_clean(&before, "too many workspaces");
}

#[test]
fn a_configuration_file_in_the_current_directory_only_tightens() {
    let _alone = alone("loosening", Duration::from_secs(120));
    let with = |text: &str, flags: &[&str]| {
        let run = RunInvocation::new().flags(flags).hostile(&["sleep"]);
        std::fs::write(run.directory.path().join("sandtimer.toml"), text).expect("own directory");
        run.outcome()
    };
    let (tightened, finished) =
        with("wall = \"1s\"\n", &["--wall", "20s"]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((tightened.ending(), tightened.limit()), ("timeout", "wall"));
    assert!(finished.elapsed < Duration::from_secs(10), "it did not tighten: {:?}", finished.elapsed);
    // Refused or without effect: either way the limit given with the call stands.
    let loosened = with("wall = \"15s\"\n", &["--wall", "1s"]);
    if let Ok((outcome, finished)) = loosened {
        assert_eq!(outcome.ending(), "timeout");
        assert!(finished.elapsed < Duration::from_secs(10), "it loosened: {:?}", finished.elapsed);
    }
    // Ignored, and named.
    let run = RunInvocation::new().hostile(&["connect", "127.0.0.1", "9"]);
    std::fs::write(run.directory.path().join("sandtimer.toml"), "network = true\n").expect("own directory");
    let finished = run.finish();
    assert_ne!(finished.code(), Some(125), "{}", finished.errors());
    for part in ["sandtimer.toml", "network", "is ignored"] {
        assert!(finished.errors().contains(part), "{part}: {}", finished.errors());
    }
}

#[test]
fn arguments_and_environment_need_not_be_utf8() {
    let _alone = alone("bytes", Duration::from_secs(60));
    let bytes = OsString::from_vec(vec![b'a', 0xff, 0xfe, b'b']);
    let mut run = RunInvocation::new().flags(&["--wall", "20s"]).environment("HOSTILE_BYTES", &bytes);
    let payload: Vec<String> = vec!["echo-arguments".into()];
    run = run.hostile(&payload);
    let mut command = run.build();
    command.arg(&bytes);
    let finished = sandtimer_tests::process::start(&mut command, vec![], run.hard_stop).finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.errors());
    let reported = finding(&finished.text()).expect("a finding");
    assert_eq!(reported["arguments"], serde_json::json!(["61fffe62"]));
}

#[test]
fn workspace_name_that_is_not_utf8_is_handled() {
    let _alone = alone("workspace bytes", Duration::from_secs(60));
    let mut run = RunInvocation::new();
    let path = run.directory.path().join(OsString::from_vec(vec![b'w', 0xff]));
    std::fs::create_dir(&path).expect("own directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("own directory");
    run = run.flags(&[OsString::from("--workspace"), path.into_os_string()]).command(&["/bin/true"]);
    let finished = run.finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.errors());
}
