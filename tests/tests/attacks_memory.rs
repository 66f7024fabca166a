//! Attacks B and C: memory, and what multiplies. Bombs run only once the cage they need has been
//! seen in force.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sandtimer_tests::attack::{cage_in_force, check, check_one_by_one, print_notice};
use sandtimer_tests::attack_list::{BOMBS, MEMORY};
use sandtimer_tests::cache::resident_bytes;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::{RunInvocation, bare, read_outcome};
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::{Outcome, finding};
use sandtimer_tests::process::{StartedProcess, marked, start};
use sandtimer_tests::wait::{alone, until};

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("memory attacks", Duration::from_secs(300));
    check(MEMORY);
}

#[test]
fn bombs_stay_inside_their_limits() {
    let _alone = alone("bombs", Duration::from_secs(600));
    cage_in_force().unwrap_or_else(|error| panic!("bombs are not run: {error}"));
    check_one_by_one(BOMBS);
}

#[test]
fn a_fork_bomb_never_has_more_processes_than_its_limit() {
    let _alone = alone("fork bomb count", Duration::from_secs(60));
    cage_in_force().unwrap_or_else(|error| panic!("bombs are not run: {error}"));
    let run =
        RunInvocation::new().flags(&["--wall", "2s", "--processes", "32"]).hostile(&["fork-bomb", "300"]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    let peak = outcome.usage("processes_peak").expect("a count");
    assert!((2..=32).contains(&peak), "peak {peak} under a limit of 32: {}", outcome.0);
    assert_eq!(outcome.survivors(), Some(0), "{}", outcome.0);
}

/// C2: address space is not memory, and costs none.
#[test]
fn reserved_address_space_is_not_charged() {
    let _alone = alone("address space", Duration::from_secs(60));
    let run =
        RunInvocation::new().flags(&["--wall", "10s", "--memory", "64M"]).hostile(&["reserve", "32768G"]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    let reported = finding(outcome.stdout()).expect("a finding");
    assert_eq!((outcome.ending(), &reported["result"]), ("exited", &"succeeded".into()), "{}", outcome.0);
    let peak = outcome.usage("memory_peak_bytes").expect("a peak");
    assert!(peak < 32 << 20, "{peak} bytes for mappings that nobody touched");
}

/// C7: a run that reads much more than its memory throws out its own pages, not everybody's.
#[test]
fn files_read_by_a_run_fill_its_own_memory_only() {
    const FILE: u64 = 192 << 20;
    const LIMIT: u64 = 48 << 20;
    let _alone = alone("page cache", Duration::from_secs(180));
    cage_in_force().unwrap_or_else(|error| panic!("{error}"));
    let shared = RunInvocation::new().directory;
    let path = shared.path().join("large");
    // Holes are read into memory as data is.
    let file =
        std::fs::File::options().create_new(true).read(true).write(true).open(&path).expect("own directory");
    file.set_len(FILE).expect("a file with a hole");
    let name = path.to_string_lossy().into_owned();
    let run = RunInvocation::new().flags(&["--json", "--wall", "60s", "--memory", "48M"]);
    let run = run.hostile(&["read-over", &name, "2"]);
    let over = start(run.build().current_dir(shared.path()), vec![], run.hard_stop).finish();
    let (outcome, _) = read_outcome(over).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.ending() == "exited", "reading must not be fatal: {}", outcome.0);
    assert_eq!(finding(outcome.stdout()).expect("a finding")["detail"], format!("{} bytes read", 2 * FILE));
    let kept = resident_bytes(&file, FILE);
    assert!(kept <= LIMIT, "{kept} bytes of the file are in memory, with a limit of {LIMIT}");
    let peak = outcome.usage("memory_peak_bytes").expect("a peak");
    assert!(peak <= LIMIT, "a peak of {peak}");
    // Nobody limits a bare process: there it is all kept.
    let payload = ["read-over", &name, "1"].map(str::to_owned);
    assert_eq!(bare(&payload, None).code(), Some(42));
    let kept = resident_bytes(&file, FILE);
    assert!(kept > 2 * LIMIT, "bare, only {kept} bytes were kept: the test shows nothing");
}

/// C9: what does not fit is not put on the host's disk.
#[test]
fn memory_and_swap_together_have_the_limit() {
    let _alone = alone("swap", Duration::from_secs(60));
    let limit_of = |layers: &[&str]| {
        let run = RunInvocation::new()
            .flags(&["--wall", "20s", "--memory", "64M"])
            .without(layers)
            .hostile(&["sleep"]);
        let started = run.start();
        let mut found = None;
        until(Duration::from_secs(10), || {
            let up = marked(&run.marker).into_iter().find(|process| process.runs("hostile"));
            found = up.and_then(|process| swap_limit(process.pid));
            found.is_some() || started.has_ended()
        });
        found
    };
    let Some(limited) = limit_of(&[]) else {
        return print_notice("no limits on swap here: the kernel does not count it", &[]);
    };
    assert!(["0", "67108864"].contains(&limited.as_str()), "swap is limited to {limited}");
    let unlimited = limit_of(&["cgroup"]).expect("the file was there before");
    assert!(
        !["0", "67108864"].contains(&unlimited.as_str()),
        "without the wall it is {unlimited} all the same"
    );
}

/// `memory.swap.max` of a process's v2 group, else memory and swap together in its v1 group.
fn swap_limit(pid: u32) -> Option<String> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let read = |kind: &str, option: &str, controller: &str, file: &str| {
        let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mount.into_iter().find(|fields| fields[2] == kind && fields[3].contains(option))?;
        let group = groups.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(controller))?;
        let text = std::fs::read_to_string(format!("{}{group}/{file}", mount[1])).ok()?;
        group.contains("sandtimer").then(|| text.trim().to_owned())
    };
    read("cgroup2", "", ":", "memory.swap.max")
        .or_else(|| read("cgroup", "memory", "memory:", "memory.memsw.limit_in_bytes"))
}

/// C11: runs just below their limits are not in each other's way.
#[test]
fn many_runs_close_to_their_limits_all_finish() {
    let _alone = alone("close to the limit", Duration::from_secs(180));
    cage_in_force().unwrap_or_else(|error| panic!("{error}"));
    let runs: Vec<RunInvocation> = (0..8).map(|_| holder("64M", "1500")).collect();
    let outcomes = finished(runs.iter().map(RunInvocation::start).collect());
    for outcome in &outcomes {
        assert_eq!((outcome.ending(), outcome.ok()), ("exited", true), "{}", outcome.0);
        assert!(outcome.usage("memory_peak_bytes").expect("a peak") > 60 << 20, "{}", outcome.0);
    }
    honest_run().unwrap_or_else(|error| panic!("{error}"));
}

/// C11: the sum of many limits may be more than there is, and nobody refuses it. What dies of it
/// then is the runs.
#[test]
fn runs_over_shared_memory_die_and_report_it_engines_live() {
    let _alone = alone("too much together", Duration::from_secs(180));
    cage_in_force().unwrap_or_else(|error| panic!("{error}"));
    let before = Census::take();
    let Some(cage) = MemoryCage::of("256M") else {
        return print_notice(
            "no v1 memory hierarchy in which a group can be made: nothing to be too much in",
            &[],
        );
    };
    let runs: Vec<RunInvocation> = (0..8).map(|_| holder("128M", "3000")).collect();
    let outcomes = finished(runs.iter().map(|run| cage.start(run)).collect());
    let ended = |ending: &str| outcomes.iter().filter(|outcome| outcome.ending() == ending).count();
    let all: Vec<_> = outcomes.iter().map(|outcome| &outcome.0).collect();
    assert_eq!(ended("exited") + ended("out_of_memory"), outcomes.len(), "{all:#?}");
    assert!(ended("out_of_memory") > 0, "there was enough for all: the test shows nothing");
    // Their own limits were not reached, and are not what they are said to have died of.
    for killed in outcomes.iter().filter(|outcome| outcome.ending() == "out_of_memory") {
        let verdict = &killed.0["verdict"];
        assert_eq!((&verdict["layer"], &verdict["scope"]), (&"infrastructure".into(), &"machine".into()));
        assert_eq!((verdict["limit"].as_u64(), killed.limit()), (None, "memory"), "{verdict}");
        assert!(killed.sentence().contains("Its own limit of 128 MiB"), "{verdict}");
    }
    // An engine without memory may not see the death in time. It says so then, and the census has
    // the last word.
    let is_accounted_for = |outcome: &Outcome| outcome.survivors() == Some(0) || outcome.proof() == "pending";
    assert!(outcomes.iter().all(is_accounted_for), "{all:#?}");
    drop(cage);
    assert_clean(&before, "runs that were too much together");
}

/// A group of the test's own with less memory than is asked for in it. Removed when dropped.
struct MemoryCage(PathBuf);

impl MemoryCage {
    fn of(limit: &str) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory{own}/st-cage-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let cage = MemoryCage(path);
        std::fs::write(cage.0.join("memory.limit_in_bytes"), limit).ok()?;
        Some(cage)
    }

    /// Starts the command line in it.
    fn start(&self, run: &RunInvocation) -> StartedProcess {
        let built = run.build();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo 0 > \"$0\" && exec \"$@\""]).arg(self.0.join("tasks"));
        command.arg(built.get_program()).args(built.get_args()).current_dir(run.directory.path());
        start(&mut command, vec![], run.hard_stop)
    }
}

impl Drop for MemoryCage {
    fn drop(&mut self) {
        until(Duration::from_secs(5), || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// A run that holds 60 MiB, under this limit.
fn holder(memory: &str, milliseconds: &str) -> RunInvocation {
    let flags = ["--json", "--wall", "60s", "--memory", memory, "--processes", "32"];
    RunInvocation::new().flags(&flags).hostile(&["hold-memory", "60M", milliseconds])
}

fn finished(runs: Vec<StartedProcess>) -> Vec<Outcome> {
    let read = |run: StartedProcess| read_outcome(run.finish()).unwrap_or_else(|error| panic!("{error}")).0;
    runs.into_iter().map(read).collect()
}
