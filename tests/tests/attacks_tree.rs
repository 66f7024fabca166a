//! Attacks B: the process tree. Whatever it forks, detaches or signals, all of it dies and nothing
//! else does.

use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::attack::{cage_in_force, check};
use sandtimer_tests::attack_list::TREE;
use sandtimer_tests::census::{Census, assert_clean, left_over};
use sandtimer_tests::command::{RunInvocation, Visitor};
use sandtimer_tests::count;
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::{ProcessStat, StartedProcess, all, marked};
use sandtimer_tests::wait::{alone, until};

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("tree attacks", Duration::from_secs(900));
    check(TREE);
}

/// I9: processes are counted for each user by the kernel. A run that has all it may have leaves the
/// others theirs.
#[test]
fn run_at_process_limit_does_not_starve_others() {
    let _alone = alone("process counts", Duration::from_secs(180));
    cage_in_force().unwrap_or_else(|error| panic!("{error}"));
    let visitor = Visitor::new(1234);
    for user in [None, Some(&visitor)] {
        let by = |run: RunInvocation| if let Some(user) = user { run.by(user) } else { run };
        let greedy = by(RunInvocation::new().flags(&["--json", "--wall", "30s", "--processes", "24"]));
        let greedy = greedy.hostile(&["fork-bomb", "300"]);
        let started = greedy.start();
        let payloads = || -> Vec<ProcessStat> {
            marked(&greedy.marker).into_iter().filter(|process| process.runs("hostile")).collect()
        };
        // A controller counts init as well.
        let full = until(Duration::from_secs(10), || payloads().len() >= 20);
        assert!(full, "the first run has {} processes: the test shows nothing", payloads().len());
        let modest = by(RunInvocation::new().flags(&["--wall", "20s", "--processes", "24"]));
        let (outcome, _) =
            modest.hostile(&["zombies", "15"]).outcome().unwrap_or_else(|error| panic!("{error}"));
        let reported = finding(outcome.stdout()).expect("a finding");
        assert_eq!(reported["result"], "succeeded", "beside a run at its limit: {}", outcome.0);
        assert!(payloads().len() <= 24, "{} under a limit of 24", payloads().len());
        honest_run().unwrap_or_else(|error| panic!("{error}"));
        drop(started);
        assert!(until(Duration::from_secs(2), || payloads().is_empty()), "survivors: {:?}", payloads());
    }
}

/// I11: nobody waits for them any more.
#[test]
fn many_command_lines_killed_at_once_leave_nothing() {
    let _alone = alone("many killed", Duration::from_secs(180));
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    let before = Census::take();
    let runs: Vec<RunInvocation> =
        (0..count(20, 100)).map(|_| RunInvocation::new().hostile(&["setsid-shuffle"])).collect();
    let engines: Vec<StartedProcess> = runs.iter().map(RunInvocation::start).collect();
    // One look at all processes for all runs: a look must not take long beside the second that is
    // tested.
    let up = || -> usize {
        let payloads: Vec<ProcessStat> =
            all().into_iter().filter(|process| process.runs("hostile")).collect();
        let of = |run: &&RunInvocation| payloads.iter().any(|process| process.carries(&run.marker));
        runs.iter().filter(of).count()
    };
    let all_up = until(Duration::from_secs(60), || up() == runs.len());
    assert!(all_up, "{} of {} runs are up", up(), runs.len());
    engines.iter().for_each(|engine| engine.signal(Signal::KILL));
    let dead = until(Duration::from_secs(1), || up() == 0);
    assert!(dead, "{} runs outlived their engines by a second", up());
    drop(engines);
    // The watchdogs empty their engines' groups; an engine that starts after their end removes
    // them.
    let left = left_over(&before, &["cgroup"]);
    assert!(left.is_empty(), "many killed engines left behind:\n{}", left.join("\n"));
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    assert_clean(&before, "many killed engines");
}
