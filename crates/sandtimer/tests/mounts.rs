//! Directories that a run shows, below one that another run writes: a directory that the other run
//! exchanges during the mount does not lead elsewhere.
//!
//! 2,000 tries; at full size (`SANDTIMER_FULL`) 100,000.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // the clock bounds the waits; the count of tries is shown

use crate::as_user;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use as_user::as_a_user;
use sandtimer::engine::{Run, Stream};
use sandtimer::model::{Ending, Tier};
use sandtimer::{Engine, Limits, Options, Outcome, Spec};

/// Exchanges the directory `x` with each of the links as fast as it can, in bursts: between them a
/// workspace below it can be planned.
const EXCHANGE: &str = "
import ctypes, os, random, sys, time
rename = ctypes.CDLL(None, use_errno=True).renameat2
os.chdir(sys.argv[1])
print('begun', flush=True)
while True:
    for link in (b'made', b'changed') * 10:
        for _ in range(2):
            if rename(-100, b'x', -100, link, 2): raise OSError(ctypes.get_errno(), 'renameat2')
    time.sleep(random.random() * 0.002)
";

/// Where a link of the other run's leads: nothing here may change.
struct ForbiddenFiles {
    _directory: tempfile::TempDir,
    /// Empty.
    empty: PathBuf,
    /// Of mode 0600, named as the workspace is.
    key: PathBuf,
}

impl ForbiddenFiles {
    fn is_touched(&self) -> bool {
        let is_empty = fs::read_dir(&self.empty).expect("own directory").next().is_none();
        !is_empty || self.key.metadata().expect("own file").mode() & 0o777 != 0o600
    }

    fn restore(&self) {
        let _ = fs::remove_dir(self.empty.join("out"));
        fs::set_permissions(&self.key, Permissions::from_mode(0o600)).expect("own file");
    }
}

/// A project that holds `x/out`, and the links that `x` is to be exchanged with.
fn project() -> (tempfile::TempDir, ForbiddenFiles) {
    let project = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(project.path().join("x/out")).expect("made");
    let directory = tempfile::tempdir().expect("a directory");
    let (empty, keys) = (directory.path().join("empty"), directory.path().join("keys"));
    fs::create_dir(&empty).expect("made");
    fs::create_dir(&keys).expect("made");
    symlink(&empty, project.path().join("made")).expect("made");
    symlink(&keys, project.path().join("changed")).expect("made");
    let key = keys.join("out");
    fs::write(&key, "secret").expect("written");
    let forbidden = ForbiddenFiles { _directory: directory, empty, key };
    forbidden.restore();
    (project, forbidden)
}

/// A run that may write the project, and exchanges names there until it is ended.
fn exchanger(engine: &Engine, project: &Path) -> Run {
    let spec = Spec {
        workspaces: vec![project.to_owned()],
        ..Spec::command(["/usr/bin/python3", "-c", EXCHANGE, project.to_str().expect("ASCII")])
    };
    let run = engine.start(spec.limits(Limits::new().wall(Duration::from_secs(4 * 3_600)))).expect("a run");
    let limit = Instant::now() + Duration::from_secs(60);
    while run.output(Stream::Stdout, 0, 100).expect("in memory").bytes.is_empty() {
        assert!(Instant::now() < limit, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    run
}

fn in_project(line: &str, workspace: &Path) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(60));
    Spec { workspaces: vec![workspace.to_owned()], ..Spec::command(["/bin/sh", "-c", line]) }.limits(limits)
}

fn infrastructure(outcome: &Outcome) -> bool {
    outcome.ending == Ending::InfraError
}

/// Whether making the workspace's mount point by its path, as mkdir(2) and chmod(2) do, is led
/// outside.
fn paths_are_led_outside(workspace: &Path, forbidden: &ForbiddenFiles) -> bool {
    let limit = Instant::now() + Duration::from_secs(60);
    let (mut made, mut changed) = (false, false);
    while Instant::now() < limit && !(made && changed) {
        if fs::create_dir(workspace).is_ok() {
            made = true;
            let _ = fs::set_permissions(workspace, Permissions::from_mode(0o755));
        }
        changed |= forbidden.key.metadata().expect("own file").mode() & 0o777 == 0o755;
        let _ = fs::remove_dir(forbidden.empty.join("out"));
    }
    forbidden.restore();
    made && changed
}

/// A mount point below a directory that another run writes is neither made nor changed, as root or
/// as a user.
fn race() {
    let engine = Engine::new().expect("an engine");
    let host = engine.host().expect("a host");
    if !host.has_namespaces() {
        // Nothing is mounted; see `landlock_rule_through_link_grants_nothing`.
        return;
    }
    let (project, forbidden) = project();
    let project = project.path().canonicalize().expect("a path");
    std::env::set_current_dir(&project).expect("own directory");
    let workspace = project.join("x/out");
    let tries = if std::env::var_os("SANDTIMER_FULL").is_some() { 100_000 } else { 2_000 };
    let other = exchanger(&engine, &project);
    // The negative control: names do lead outside, often.
    assert!(paths_are_led_outside(&workspace, &forbidden), "the race is not hit");
    let (mut ran, mut hit, mut refused) = (0, 0, 0);
    for number in 0..tries {
        match engine.run_blocking(in_project("touch here", &workspace)) {
            Ok(outcome) if outcome.ending == Ending::Exited => ran += 1,
            Ok(outcome) if infrastructure(&outcome) => {
                let why = outcome.error.as_ref().map(ToString::to_string).unwrap_or_default();
                assert!(why.contains("x/out"), "{why}");
                hit += 1;
            }
            Ok(outcome) => panic!("{outcome:?}"),
            // The workspace was a link when it was planned.
            Err(_) => refused += 1,
        }
        assert!(!forbidden.is_touched(), "after {number} tries");
    }
    let counts =
        format!("{tries} tries: {ran} ran, {hit} met a link while they were built, {refused} before");
    assert!(ran > 0 && hit > 0, "the race is not hit: {counts}");
    println!("{counts}; none was led outside");
    other.cancel("enough");
    let outcome = other.wait_blocking();
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
    assert_eq!(outcome.ending, Ending::Cancelled, "names were exchanged until the last try");
}

#[test]
fn mount_point_exchanged_by_run_leads_nowhere() {
    race();
}

#[test]
fn mount_point_exchanged_leads_nowhere_as_user() {
    if !as_a_user("mount_point_exchanged_leads_nowhere_as_user") {
        race();
    }
}

/// Without mounts a workspace is writable by a Landlock rule. A workspace that became a link since
/// it was planned grants nothing.
fn links_in_rules() {
    let options = Options { no_namespaces: true, ..Options::default() };
    let engine = Engine::with_options(options).expect("an engine");
    let (project, _forbidden) = project();
    let x = project.path().canonicalize().expect("a path").join("x");
    let (workspace, aside) = (x.join("out"), project.path().join("aside"));
    // Below /dev no workspace is taken, so a plan that is made after the exchange is refused.
    let shared = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let outside = shared.path().join("out");
    fs::create_dir(&outside).expect("made");
    for (path, mode) in
        [(project.path(), 0o755), (shared.path(), 0o755), (&outside, 0o777), (&workspace, 0o777), (&x, 0o755)]
    {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("own directory");
    }
    let (from, to) = (workspace.join("file"), outside.join("file"));
    let write = |path: &Path| format!("echo written > {}", path.display());
    let mut refused = 0;
    // A plan is used for a second: on a busy machine it may be over before the exchange.
    for _ in 0..100 {
        let own = engine.run_blocking(in_project(&write(&from), &workspace)).expect("a run");
        if own.isolation.tier != Tier::T1 {
            return;
        }
        assert_eq!(
            (own.exit_code, from.exists()),
            (Some(0), true),
            "the control: its workspace is writable: {own:?}"
        );
        // The next run may have another uid, which cannot write to it.
        fs::remove_file(&from).expect("removed");
        fs::rename(&x, &aside).expect("renamed");
        symlink(shared.path(), &x).expect("made");
        assert!(workspace.canonicalize().expect("a path").starts_with("/dev/shm"), "the link leads outside");
        let result = engine.run_blocking(in_project(&write(&to), &workspace));
        fs::remove_file(&x).expect("removed");
        fs::rename(&aside, &x).expect("renamed");
        assert!(!to.exists(), "{result:?}");
        if let Ok(outcome) = result {
            assert!(outcome.exit_code != Some(0), "{outcome:?}");
            refused += 1;
            if refused == 3 {
                return;
            }
        }
    }
    panic!("{refused} runs had a plan from before the exchange");
}

#[test]
fn landlock_rule_through_link_grants_nothing() {
    links_in_rules();
}

#[test]
fn landlock_rule_through_link_grants_nothing_user() {
    if !as_a_user("landlock_rule_through_link_grants_nothing_user") {
        links_in_rules();
    }
}

/// What is in a private directory has one name inside.
fn one_name() {
    let engine = Engine::new().expect("an engine");
    if !engine.host().expect("a host").has_namespaces() {
        return;
    }
    let read = |path: &str| {
        let line = format!("echo written > /tmp/file; cat {path}");
        let outcome = engine.run_blocking(Spec::command(["/bin/sh", "-c", &line])).expect("a run");
        outcome.stdout == "written\n"
    };
    // The second and third have a template.
    for _ in 0..3 {
        assert!(read("/tmp/file"), "the control: its own name");
        assert!(!read("/.private/_tmp/file"), "a second name");
    }
}

#[test]
fn private_directory_has_no_second_name() {
    one_name();
}

#[test]
fn private_directory_has_no_second_name_as_user() {
    if !as_a_user("private_directory_has_no_second_name_as_user") {
        one_name();
    }
}
