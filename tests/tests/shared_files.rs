//! Attacks A18, G4 and F12: what a run can do to others through a file that all of them see
//! read-only, and what not.
//!
//! Locks and watches need nothing but a descriptor open for reading, no filter can see which file
//! that is, and honest programs need both in their own directories. So these are residual channels
//! (docs/threat-model.md): the tests pin down how far they go, so that a change in either direction
//! is noticed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use sandtimer_tests::command::{RunInvocation, read_outcome};
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::{StartedProcess, start};
use sandtimer_tests::wait::{alone, until};

/// A file that a run in this directory sees, and may not write.
fn shared(run: &RunInvocation) -> PathBuf {
    let path = run.directory.path().join("shared");
    std::fs::write(&path, "everybody reads this\n").expect("own directory");
    path
}

/// Whether a program on the host can lock it against everybody else right now.
fn can_lock(path: &Path, by_record: bool) -> bool {
    let file = File::options().read(true).write(true).open(path).expect("own file");
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    if by_record { fcntl_lock(&file, exclusive).is_ok() } else { flock(&file, exclusive).is_ok() }
}

/// A run that is active, with `payload` on `path`, in a directory that others may share.
fn holding(kind: &str) -> (RunInvocation, PathBuf, StartedProcess) {
    let run = RunInvocation::new().flags(&["--json", "--wall", "40s"]);
    let path = shared(&run);
    assert!(can_lock(&path, false) && can_lock(&path, true), "a new file is locked");
    let text = path.to_string_lossy().into_owned();
    let run = run.hostile(&["lock", kind, &text, "30000"]);
    let started = run.start();
    (run, path, started)
}

/// What the payload of a run says that is started in `directory`.
fn finding_in(directory: &Path, run: &RunInvocation) -> serde_json::Value {
    let finished = start(run.build().current_dir(directory), vec![], run.hard_stop).finish();
    let (outcome, _) = read_outcome(finished).unwrap_or_else(|error| panic!("{error}"));
    finding(outcome.stdout()).unwrap_or_else(|| panic!("no finding: {}", outcome.0))
}

fn probe(payload: &[&str]) -> RunInvocation {
    RunInvocation::new().flags(&["--json", "--wall", "20s"]).hostile(payload)
}

#[test]
fn a_lock_on_a_shared_file_reaches_others_and_ends_with_the_run() {
    let _alone = alone("shared locks", Duration::from_secs(180));
    for (kind, by_record) in [("flock", false), ("posix", true), ("ofd", true)] {
        let (run, path, started) = holding(kind);
        let held = until(Duration::from_secs(10), || !can_lock(&path, by_record));
        assert!(held, "{kind}: no lock: the threat model says there is one");
        let name = path.to_string_lossy().into_owned();
        let other = finding_in(run.directory.path(), &probe(&["lock", kind, &name]));
        // Record locks can only be shared ones where nothing may be written.
        let expected = if by_record { "succeeded" } else { "denied" };
        assert_eq!(other["result"], expected, "{kind} in a second run: {other}");
        drop(started);
        let free = until(Duration::from_secs(2), || can_lock(&path, by_record));
        assert!(free, "{kind}: the lock outlived the run");
    }
}

#[test]
fn shared_file_rejects_write_locks_leases_and_notices() {
    let _alone = alone("shared leases", Duration::from_secs(120));
    for (kind, errno) in [("write", "EBADF"), ("lease", "EPERM"), ("notify", "EPERM")] {
        let first = RunInvocation::new();
        let name = shared(&first).to_string_lossy().into_owned();
        let answer = finding_in(first.directory.path(), &probe(&["lock", kind, &name]));
        assert_eq!((&answer["result"], &answer["errno"]), (&"denied".into(), &errno.into()), "{kind}");
    }
}

#[test]
fn watch_reports_changes_of_shared_files_only() {
    let _alone = alone("shared watches", Duration::from_secs(120));
    let directory = RunInvocation::new();
    let visible = shared(&directory);
    let elsewhere = RunInvocation::new();
    let unseen = shared(&elsewhere);
    let watched = |path: &Path| {
        let run = probe(&["inotify", &path.to_string_lossy(), "5000"]);
        let started = start(run.build().current_dir(directory.directory.path()), vec![], run.hard_stop);
        // Nothing of a captured run is seen before its end, so it is shown something until it has
        // seen it.
        until(Duration::from_secs(20), || {
            drop(std::fs::read(path));
            started.has_ended()
        });
        let (outcome, _) = read_outcome(started.finish()).unwrap_or_else(|error| panic!("{error}"));
        finding(outcome.stdout()).unwrap_or_else(|| panic!("no finding: {}", outcome.0))
    };
    let answer = watched(&visible);
    assert_eq!(answer["result"], "succeeded", "the threat model says that it is seen: {answer}");
    let answer = watched(&unseen);
    assert_eq!((&answer["result"], &answer["errno"]), (&"denied".into(), &"ENOENT".into()));
}
