//! Attack I14: each system call that starting a sandbox needs fails in turn, in the engine and in
//! all its helpers. The caller gets an answer in time, and nothing is left.

use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::census::{Census, left_over};
use sandtimer_tests::command::{RunInvocation, Visitor, read_outcome, sandtimer};
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::Outcome;
use sandtimer_tests::process::{ProcessStat, descendants, marked, start};
use sandtimer_tests::rejection::refuse;
use sandtimer_tests::side_by_side::{AT_ONCE, side_by_side};
use sandtimer_tests::wait::{alone, pass, until};

/// Not among them: what libraries take for infallible, prlimit64 to look and getrandom.
const CALLS: &[(&str, libc::c_long)] = &[
    ("clone3", libc::SYS_clone3),
    ("clone", libc::SYS_clone),
    ("vfork", libc::SYS_vfork),
    ("execveat", libc::SYS_execveat),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("fsopen", libc::SYS_fsopen),
    ("openat2", libc::SYS_openat2),
    ("mkdirat", libc::SYS_mkdirat),
    ("unlinkat", libc::SYS_unlinkat),
    ("memfd_create", libc::SYS_memfd_create),
    ("socketpair", libc::SYS_socketpair),
    ("sendmsg", libc::SYS_sendmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("pipe2", libc::SYS_pipe2),
    ("eventfd2", libc::SYS_eventfd2),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("signalfd4", libc::SYS_signalfd4),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("waitid", libc::SYS_waitid),
    ("prctl", libc::SYS_prctl),
    ("capset", libc::SYS_capset),
    ("setresuid", libc::SYS_setresuid),
    ("setresgid", libc::SYS_setresgid),
    ("setgroups", libc::SYS_setgroups),
    ("setsid", libc::SYS_setsid),
    ("sethostname", libc::SYS_sethostname),
    ("chdir", libc::SYS_chdir),
    ("fchdir", libc::SYS_fchdir),
    ("close_range", libc::SYS_close_range),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("landlock_add_rule", libc::SYS_landlock_add_rule),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
    ("seccomp", libc::SYS_seccomp),
    ("flock", libc::SYS_flock),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("mlockall", libc::SYS_mlockall),
    ("kill", libc::SYS_kill),
    ("symlinkat", libc::SYS_symlinkat),
];

/// How each call fails.
const ERRORS: [i32; 2] = [libc::EPERM, libc::ENOMEM];

/// A run that would go on, under this failure; what was wrong with how it ended.
fn try_without(name: &str, number: libc::c_long, errno: i32) -> Result<(), String> {
    let mut run = RunInvocation::new().flags(&["--json", "--wall", "500ms"]).hostile(&["sleep"]);
    run.hard_stop = Duration::from_secs(20);
    let mut command = run.build();
    refuse(&mut command, number, errno);
    let finished = start(&mut command, vec![], run.hard_stop).finish();
    let tale =
        format!("{name}: exit {:?} after {:?}: {}", finished.code(), finished.elapsed, finished.errors());
    if finished.status.is_none() {
        return Err(format!("{tale}: it hangs"));
    }
    if finished.pipe_held || !until(Duration::from_secs(1), || marked(&run.marker).is_empty()) {
        return Err(format!("{tale}: still alive: {:?}", marked(&run.marker)));
    }
    let outcome = Outcome::parse(&finished.text());
    match (finished.code(), outcome) {
        // Refused before a run existed, with a reason.
        (Some(125..=127), Err(_)) if finished.errors().starts_with("sandtimer: ") => Ok(()),
        (Some(_), Ok(outcome)) if outcome.expected_exit() == finished.code() => {
            unsaid(&outcome).map_or(Ok(()), Err)
        }
        _ => Err(format!("{tale}: {}", finished.text())),
    }
}

/// A run that went on without something must say so.
fn unsaid(outcome: &Outcome) -> Option<String> {
    let whole = outcome.tier() == "T3" && outcome.degraded().is_empty();
    (outcome.ending() == "timeout" && whole && outcome.survivors() != Some(0)).then(|| outcome.0.to_string())
}

/// Docker's default profile without CAP_SYS_ADMIN: clone3 is answered as by an old kernel, and
/// there are no namespaces.
fn under_docker(mut run: RunInvocation, namespaces: bool) -> Result<Outcome, String> {
    run = run.flags(&["--json", "--wall", "20s"]);
    let mut command = run.build();
    refuse(&mut command, libc::SYS_clone3, libc::ENOSYS);
    if !namespaces {
        refuse(&mut command, libc::SYS_unshare, libc::EPERM);
    }
    let finished = start(&mut command, vec![], Duration::from_secs(60)).finish();
    let (outcome, _) = read_outcome(finished)?;
    if !until(Duration::from_secs(1), || marked(&run.marker).is_empty()) {
        return Err(format!("still alive: {:?}: {}", marked(&run.marker), outcome.0));
    }
    Ok(outcome)
}

#[test]
fn without_clone3_runs_start_and_end() {
    let _alone = alone("no clone3", Duration::from_secs(300));
    let visitor = Visitor::new(1234);
    let runs = || [RunInvocation::new(), RunInvocation::new().by(&visitor)];
    for (usual, refused) in runs().into_iter().zip(runs()) {
        let (usual, _) = usual.command(&["/bin/true"]).outcome().unwrap_or_else(|error| panic!("{error}"));
        // A daemon is in the group too, and dies with it.
        let outcome =
            under_docker(refused.hostile(&["daemon"]), true).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((outcome.ending(), outcome.survivors()), ("exited", Some(0)), "{}", outcome.0);
        assert_eq!(
            (outcome.tier(), outcome.kill_class()),
            (usual.tier(), usual.kill_class()),
            "{}",
            outcome.0
        );
        assert_eq!(outcome.degraded(), usual.degraded());
    }
    for run in runs() {
        let outcome =
            under_docker(run.command(&["/bin/true"]), false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((outcome.tier(), outcome.ok()), ("T1", true), "{}", outcome.0);
    }
}

#[test]
fn a_system_call_that_fails_leaves_an_answer_and_nothing_else() {
    let _alone = alone("failing steps", Duration::from_secs(900));
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    let mut failures = vec![];
    for group in CALLS.chunks(AT_ONCE / ERRORS.len()) {
        let names: Vec<&str> = group.iter().map(|(name, _)| *name).collect();
        let before = Census::take();
        let attempts = group.iter().flat_map(|call| ERRORS.map(|errno| (call, errno)));
        let attempt = |(call, errno): (&(&str, libc::c_long), i32)| try_without(call.0, call.1, errno);
        failures.extend(side_by_side(attempts, attempt));
        // What the failing engine could not remove the next one does.
        failures.extend(honest_run().err().map(|error| format!("after {}: {error}", names.join(", "))));
        let left = left_over(&before, &[]);
        if !left.is_empty() {
            failures.push(format!("{}: left behind {}", names.join(", "), left.join("; ")));
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

/// Clock ticks of processor time that a process has used; proc_pid_stat(5), fields 14 and 15.
fn processor_ticks(process: &ProcessStat) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).expect("it is alive");
    let fields = stat.rsplit(") ").next().expect("a line of stat").split(' ');
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// It has a real-time priority. If it read without a pause, an engine on a busy machine would not
/// even have the time to end it.
#[test]
fn watchdog_whose_socket_is_unreadable_stays_idle() {
    let _alone = alone("unreadable socket", Duration::from_secs(60));
    let state = tempfile::tempdir().expect("a temporary directory");
    let mut command = std::process::Command::new(sandtimer());
    command.args(["serve", "--listen", "127.0.0.1:0", "--state-dir"]).arg(state.path());
    refuse(&mut command, libc::SYS_recvmsg, libc::ENOMEM);
    let started = start(&mut command, vec![], Duration::from_secs(20));
    let watchdog = || descendants(started.pid()).into_iter().find(|process| process.name == "st-watchdog");
    let found = until(Duration::from_secs(5), || watchdog().is_some());
    assert!(found, "no watchdog was started");
    started.signal(Signal::STOP);
    let watchdog = watchdog().expect("the engine, which ends it, is stopped");
    pass(Duration::from_millis(500));
    let used = processor_ticks(&watchdog);
    started.signal(Signal::CONT);
    started.signal(Signal::KILL);
    let finished = started.finish();
    assert!(finished.status.is_some(), "it hangs: {}", finished.errors());
    assert!(used <= 10, "{used} clock ticks in half a second");
    assert!(until(Duration::from_secs(3), || watchdog.is_dead()), "it outlived its engine");
}

/// It has a real-time priority, and the processes whose end it waits for have none: it must leave
/// them the processor.
#[test]
fn watchdog_that_waits_for_groups_leaves_the_processor() {
    let _alone = alone("groups that stay", Duration::from_secs(60));
    let (outcome, _) = RunInvocation::new().command(&["true"]).outcome().expect("a run");
    let mut command = std::process::Command::new(sandtimer());
    command.args(["run", "--wall", "30s", "--", "sleep", "20"]);
    // No group can be removed, as if a process in it could not die.
    refuse(&mut command, libc::SYS_unlinkat, libc::EBUSY);
    let started = start(&mut command, vec![], Duration::from_secs(30));
    let named = |name: &str| descendants(started.pid()).into_iter().find(|process| process.name == name);
    let is_up = until(Duration::from_secs(10), || named("st-watchdog").is_some() && named("sleep").is_some());
    assert!(is_up, "no watchdog, or no run");
    let watchdog = named("st-watchdog").expect("it was there");
    started.signal(Signal::KILL);
    let begun = processor_ticks(&watchdog);
    pass(Duration::from_millis(500));
    // Without control groups it has none to wait for.
    let waits = outcome.kill_class() == "K3";
    assert!(!watchdog.is_dead() || !waits, "it does not wait: the test shows nothing");
    let used = if waits { processor_ticks(&watchdog) - begun } else { 0 };
    drop(started);
    assert!(used <= 10, "{used} clock ticks in half a second");
    assert!(until(Duration::from_secs(5), || watchdog.is_dead()), "it waits for ever");
    // The next engine sweeps what this one could not remove.
    honest_run().unwrap_or_else(|error| panic!("{error}"));
}

/// Every layer is there and no run can be built, as in an initramfs: the headline says what the
/// trial run showed.
#[test]
fn doctor_reports_no_tier_where_no_run_is_built() {
    let _alone = alone("doctor without pivot_root", Duration::from_secs(120));
    let doctor = |arguments: &[&str], refused: bool| {
        let mut command = std::process::Command::new(sandtimer());
        command.arg("doctor").args(arguments);
        if refused {
            refuse(&mut command, libc::SYS_pivot_root, libc::EINVAL);
        }
        start(&mut command, vec![], Duration::from_secs(60)).finish()
    };
    let report = doctor(&["--json"], true);
    let found: serde_json::Value = serde_json::from_str(&report.text()).expect("a report");
    assert!(found["tier"].is_null() && found["kill"].is_null(), "{found}");
    let layers = found["layers"].as_array().expect("layers");
    let first = layers.iter().find(|layer| layer["layer"] == "a first run").expect("the trial run");
    assert_eq!(first["status"], "missing");
    for (key, part) in [("evidence", "change root"), ("remedy", "pivot_root")] {
        assert!(first[key].as_str().is_some_and(|text| text.contains(part)), "{key}: {first}");
    }
    let required = doctor(&["--require", "T0"], true);
    assert_eq!(required.code(), Some(125), "{}", required.errors());
    // The control: with the call, the same host has a tier.
    let required = doctor(&["--require", "T0"], false);
    assert_eq!(required.code(), Some(0), "{}", required.errors());
}
