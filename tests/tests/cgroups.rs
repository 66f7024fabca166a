//! Starts from odd places in the control group tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::attack::print_notice;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::{RunInvocation, sandtimer};
use sandtimer_tests::process::{StartedProcess, descendants, start};
use sandtimer_tests::wait::{alone, until};

/// A v2 group of the test's own, removed at its end.
struct TestGroup(PathBuf);

impl TestGroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let at = fields.next()?;
            (fields.next()? == "cgroup2").then(|| PathBuf::from(at))
        })?;
        let path = root.join(format!("st-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(TestGroup(path))
    }

    fn write(&self, file: &str, value: &str) {
        let path = self.0.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // What was killed in it is gone within milliseconds.
        until(Duration::from_secs(2), || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// The command line, started in `group`.
fn start_in(group: &Path, arguments: &[&str]) -> StartedProcess {
    let enter_and_run = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", enter_and_run]).arg(group).arg(sandtimer()).args(arguments).current_dir("/usr");
    start(&mut command, vec![], Duration::from_secs(20))
}

fn run_in(group: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let finished = start_in(group, arguments).finish();
    (finished.code(), finished.text(), finished.errors())
}

/// Since Linux 6.14 what is cloned from a group that was once killed into one that was not dies at
/// birth.
#[test]
fn an_engine_in_a_group_that_was_once_killed_starts_runs() {
    let Some(group) = TestGroup::new("killed") else {
        assert!(!rustix::process::geteuid().is_root(), "root can make no v2 group here");
        return print_notice("not tried: without root an engine clones into no v2 group here", &[]);
    };
    let _alone = alone("killed group", Duration::from_secs(60));
    let before = Census::take();
    group.write("cgroup.kill", "1");
    let (code, text, errors) = run_in(&group.0, &["run", "--json", "--", "echo", "alive"]);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.contains("alive"), "{text}");
    drop(group);
    assert_clean(&before, "a run from a killed group");
}

#[test]
fn what_an_engine_left_in_another_group_the_next_one_sweeps() {
    let Some(group) = TestGroup::new("elsewhere") else {
        assert!(!rustix::process::geteuid().is_root(), "root can make no v2 group here");
        return print_notice("not tried: without root an engine makes no v2 group here", &[]);
    };
    let _alone = alone("another group", Duration::from_secs(60));
    // Where groups of v2 give limits: an engine goes to no group above one that has some, but makes
    // its own below.
    let _ = fs::write(group.0.join("pids.max"), "1000");
    let before = Census::take();
    let engine = start_in(&group.0, &["run", "--wall", "30s", "--", "sleep", "30"]);
    let helper = |name: &str| descendants(engine.pid()).into_iter().find(|process| process.name == name);
    assert!(until(Duration::from_secs(10), || helper("sleep").is_some()), "no run within 10 s");
    let helpers = descendants(engine.pid());
    let watchdog = helper("st-watchdog").expect("an engine has a watchdog");
    // Stopped first, so that it cleans up nothing.
    watchdog.signal(Signal::STOP);
    engine.signal(Signal::KILL);
    watchdog.signal(Signal::KILL);
    let dead = || engine.has_ended() && helpers.iter().all(|process| process.is_dead());
    assert!(until(Duration::from_secs(5), dead), "something of the engine goes on 5 s after SIGKILL");
    let groups = || fs::read_dir(&group.0).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    let left = groups();
    assert_ne!(left, 0, "nothing was left: the test would show nothing");
    let (next, _) = RunInvocation::new().command(&["true"]).outcome().unwrap();
    assert!(next.ok(), "{}", next.0);
    assert_eq!(groups(), 0, "of {left} groups");
    drop(group);
    assert_clean(&before, "an engine in another group, and the next one here");
}
