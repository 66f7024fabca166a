//! Memory and processes of sandboxes as a whole, with real processes.
#![allow(clippy::disallowed_methods)] // tests wait for time to pass, and start themselves again

use crate::as_user;
use crate::sandbox_fixture::{OWNER, open, spec_with, wait_until};

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{CellSpec, ContextSpec, Options, Run, Sandbox, SandboxError};
use sandtimer::model::{Ending, Layer, LimitKind, Outcome, Source};
use sandtimer::zygote::Profile;
use sandtimer::{Engine, Error, Limits, Spec};

const MIB: u64 = 1 << 20;

fn spec_in(sandbox: &Sandbox, line: &str, limits: Limits) -> Spec {
    let limits = limits.wall(Duration::from_secs(60));
    Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]).limits(limits) }
}

/// Uses this much memory until the file `stop` is there.
fn holding_memory(mebibytes: u64) -> String {
    format!(
        "exec python3 -c 'import os, time; held = b\"x\" * ({mebibytes} << 20); open(\"held-\" + str(os.getpid()) + \
         \"-{mebibytes}\", \"w\")\nwhile not os.path.exists(\"stop\"): time.sleep(0.02)'"
    )
}

/// Has this many processes until the file `stop` is there.
fn holding_processes(count: u64) -> String {
    format!(
        "test -p gate || mkfifo gate; i=1; while [ $i -lt {count} ]; do sleep 50 & i=$((i + 1)); done; echo started\n\
         test -e stop || read _ <gate; exit 0"
    )
}

fn let_end(engine: &Engine, sandbox: &Sandbox) {
    let line = ": >stop; test -p gate && : <>gate; exit 0";
    let outcome = engine.run_blocking(spec_in(sandbox, line, Limits::new())).expect("a run");
    assert!(outcome.ok, "{outcome:?}");
}

/// The groups of a process that was started with this argument: one for each hierarchy with limits.
fn groups_of(argument: &str) -> Vec<PathBuf> {
    let is_it = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|each| each == argument.as_bytes())
    };
    let processes = fs::read_dir("/proc").expect("read").flatten().map(|entry| entry.path());
    let Some(process) = processes.filter(|path| path.join("cgroup").exists()).find(is_it) else {
        return Vec::new();
    };
    let own = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"];
    let inside = own.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let all = inside.flat_map(|path| roots.map(|root| Path::new(root).join(path.trim_start_matches('/'))));
    all.filter(|path| path.is_dir() && path.file_name().is_some_and(is_row)).collect()
}

fn is_row(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("run-")
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether a limit of memory is in force on one of these groups.
fn has_memory_limit(groups: &[PathBuf], bytes: u64) -> bool {
    let files = ["memory.max", "memory.limit_in_bytes"];
    groups.iter().any(|group| files.iter().any(|file| number_in(&group.join(file)) == Some(bytes)))
}

/// The limit of processes on these groups.
fn process_limit(groups: &[PathBuf]) -> Option<u64> {
    groups.iter().find_map(|group| number_in(&group.join("pids.max")))
}

/// The groups of the sandbox that a run with this argument is in. Checks that its limits hold
/// before a test uses up anything.
#[track_caller]
fn checked_groups(engine: &Engine, sandbox: &Sandbox, argument: &str) -> Vec<PathBuf> {
    let line = format!("echo; exec sleep {argument}");
    let run = engine.start(spec_in(sandbox, &line, Limits::new())).expect("a run");
    wait_until("it is there", || !groups_of(argument).is_empty());
    let groups: Vec<PathBuf> =
        groups_of(argument).iter().filter_map(|group| group.parent().map(Path::to_owned)).collect();
    let usage = sandbox.usage();
    if let Some(bytes) = usage.memory_limit {
        assert!(bytes <= 128 * MIB && has_memory_limit(&groups, bytes), "{groups:?}");
    }
    if let Some(processes) = usage.processes_limit {
        // The first process of the one run is not counted.
        assert_eq!(process_limit(&groups), Some(processes + 1), "{groups:?}");
        assert!(processes <= 50);
    }
    run.cancel("checked");
    run.cancel("checked");
    run.wait_blocking();
    groups
}

#[track_caller]
fn assert_at_sandboxs(outcome: &Outcome, kind: LimitKind, limit: u64, sandbox: &Sandbox) {
    let verdict = outcome.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.kind, verdict.layer, verdict.limit), (Some(kind), Layer::Sandbox, Some(limit)));
    assert_eq!(verdict.source, Source::Ancestor, "{verdict:?}");
    assert!(verdict.scope.ends_with(&format!("sandbox-{}", sandbox.id())), "{verdict:?}");
    assert!(verdict.sentence.contains("sandbox"), "{verdict:?}");
}

fn held_files(state: &Path, sandbox: &Sandbox) -> usize {
    let directory = state.join(sandbox.id()).join("layer/upper/workspace");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("held-")).count()
}

#[test]
fn runs_under_own_limits_share_the_memory_of_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().memory(80 * MIB))).expect("a sandbox");
    let other = sandboxes.create(spec_with(Limits::new().memory(80 * MIB))).expect("another");
    checked_groups(&engine, &sandbox, "61.0101");
    let own = Limits::new().memory(64 * MIB);
    let start =
        |sandbox: &Sandbox| engine.start(spec_in(sandbox, &holding_memory(48), own.clone())).expect("a run");
    let first = start(&sandbox);
    let elsewhere = start(&other);
    let held = |sandbox: &Sandbox| held_files(state.path(), sandbox);
    wait_until("both hold their memory", || held(&sandbox) == 1 && held(&other) == 1);
    let usage = sandbox.usage();
    assert!(usage.memory.is_some_and(|bytes| bytes > 48 * MIB && bytes <= 80 * MIB), "{usage:?}");
    assert_eq!(usage.memory_limit, Some(80 * MIB));

    let second = start(&sandbox);
    wait_until("one is ended", || first.has_finished() || second.has_finished());
    let_end(&engine, &sandbox);
    let_end(&engine, &other);
    let outcomes = [first.wait_blocking(), second.wait_blocking()];
    let [killed, alive]: [Vec<_>; 2] = [Ending::OutOfMemory, Ending::Exited]
        .map(|ending| outcomes.iter().filter(|outcome| outcome.ending == ending).collect());
    assert_eq!((killed.len(), alive.len()), (1, 1), "{outcomes:?}");
    assert_at_sandboxs(killed[0], LimitKind::Memory, 80 * MIB, &sandbox);
    assert!(killed[0].verdict.as_ref().is_some_and(|verdict| {
        verdict.sentence.contains("all runs of its sandbox together had reached their memory limit of 80")
            && verdict.sentence.contains("Its own limit of 64")
    }));
    assert!(alive[0].ok && alive[0].verdict.is_none(), "{:?}", alive[0]);
    let unaffected = elsewhere.wait_blocking();
    assert!(unaffected.ok && unaffected.verdict.is_none(), "{unaffected:?}");

    // Controls: one alone is under both limits, and one over its own is ended by that.
    let alone = engine.run_blocking(spec_in(&sandbox, &holding_memory(48), own)).expect("a run");
    assert!(alone.ok, "{alone:?}");
    let small = Limits::new().memory(24 * MIB);
    let over = engine.run_blocking(spec_in(&sandbox, &holding_memory(48), small)).expect("a run");
    let verdict = over.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.layer, verdict.limit), (Layer::Run, Some(24 * MIB)), "{verdict:?}");
    assert_eq!(over.ending, Ending::OutOfMemory);
}

#[test]
fn run_without_a_limit_has_that_of_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox =
        sandboxes.create(spec_with(Limits::new().memory(40 * MIB).processes(8))).expect("a sandbox");
    checked_groups(&engine, &sandbox, "61.0202");
    let run = engine.start(spec_in(&sandbox, &holding_memory(48), Limits::new())).expect("a run");
    assert_eq!(run.effective().get(LimitKind::Memory).expect("one").value, 40 * MIB);
    let outcome = run.wait_blocking();
    assert_eq!(outcome.ending, Ending::OutOfMemory);
    assert_at_sandboxs(&outcome, LimitKind::Memory, 40 * MIB, &sandbox);
    let forks = engine.run_blocking(spec_in(&sandbox, &holding_processes(12), Limits::new())).expect("a run");
    assert_eq!(forks.ending, Ending::ProcessLimit, "{forks:?}");
    assert_at_sandboxs(&forks, LimitKind::Processes, 8, &sandbox);
}

fn started(run: &Run) -> bool {
    run.output(sandtimer::engine::Stream::Stdout, 0, 1 << 10).is_ok_and(|output| !output.bytes.is_empty())
}

#[test]
fn runs_share_the_processes_of_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().processes(20))).expect("a sandbox");
    let other = sandboxes.create(spec_with(Limits::new().processes(20))).expect("another");
    checked_groups(&engine, &sandbox, "61.0303");
    let own = Limits::new().processes(16);
    let start = |sandbox: &Sandbox, count| {
        engine.start(spec_in(sandbox, &holding_processes(count), own.clone())).expect("a run")
    };
    let first = start(&sandbox, 12);
    wait_until("the first has its processes", || started(&first));
    let usage = sandbox.usage();
    assert_eq!((usage.processes_limit, usage.processes), (Some(20), Some(12)), "{usage:?}");

    let second = start(&sandbox, 12).wait_blocking();
    assert_eq!(second.ending, Ending::ProcessLimit, "{second:?}");
    assert_at_sandboxs(&second, LimitKind::Processes, 20, &sandbox);
    let elsewhere = start(&other, 12);
    wait_until("another sandbox has as many", || started(&elsewhere));
    // A failure of its own while the first is at work is not blamed on the limit.
    let failed = engine.run_blocking(spec_in(&sandbox, "exit 3", own.clone())).expect("a run");
    assert_eq!((failed.ending, failed.exit_code), (Ending::Exited, Some(3)), "{failed:?}");
    let_end(&engine, &sandbox);
    let_end(&engine, &other);
    for run in [first, elsewhere] {
        let outcome = run.wait_blocking();
        assert!(outcome.ok && outcome.verdict.is_none(), "{outcome:?}");
    }
    // Controls: alone it is under both, and over its own limit that is named.
    let alone = start(&sandbox, 12).wait_blocking();
    assert!(alone.ok, "{alone:?}");
    let over = start(&sandbox, 18).wait_blocking();
    let verdict = over.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.layer, verdict.limit), (Layer::Run, Some(16)), "{verdict:?}");
}

#[test]
fn sessions_count_in_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().processes(20))).expect("a sandbox");
    checked_groups(&engine, &sandbox, "61.0404");
    let spec = ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
    let session = engine.session(spec).expect("a session");
    let before = sandbox.usage().processes.expect("counted");
    assert!((1..=4).contains(&before), "{before}");
    let limits = Limits::new().wall(Duration::from_secs(30));
    let source = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 50 & done".to_owned();
    let cell = CellSpec { source, limits, ..CellSpec::default() };
    let outcome = session.execute(cell, &mut |_| {}).expect("a command");
    assert_eq!(outcome.ending, Ending::Exited, "{outcome:?}");
    // A copy of the shell that is being made is counted, too.
    wait_until("its twelve are counted", || {
        sandbox.usage().processes.is_some_and(|now| (before + 11..=before + 13).contains(&now))
    });
    let run = engine.run_blocking(spec_in(&sandbox, &holding_processes(12), Limits::new())).expect("a run");
    assert_eq!(run.ending, Ending::ProcessLimit, "{run:?}");
    assert_at_sandboxs(&run, LimitKind::Processes, 20, &sandbox);
    drop(session);
    wait_until("its processes are gone", || sandbox.usage().processes == Some(0));
}

#[test]
fn python_context_is_ended_at_the_memory_of_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().memory(96 * MIB))).expect("a sandbox");
    checked_groups(&engine, &sandbox, "61.0505");
    let own = Limits::new().memory(88 * MIB);
    let run = engine.start(spec_in(&sandbox, &holding_memory(40), own.clone())).expect("a run");
    wait_until("it holds its memory", || held_files(state.path(), &sandbox) == 1);
    let spec = ContextSpec { sandbox: Some(sandbox.clone()), limits: own, ..ContextSpec::default() };
    let profile = Profile { interpreter: "/usr/bin/python3".into(), live: true, ..Profile::default() };
    let pool = engine.contexts(profile, 0).expect("a pool");
    let context = pool.open(spec, &mut || false).expect("a context");
    let source = "held = b'x' * (72 << 20)".to_owned();
    let limits = Limits::new().wall(Duration::from_secs(30));
    let outcome = context.execute(CellSpec { source, limits, ..CellSpec::default() }, &mut |_| {});
    let outcome = outcome.expect("a cell");
    // It is larger than the run by the time there is too little.
    assert_eq!(outcome.ending, Ending::OutOfMemory, "{outcome:?}");
    assert_at_sandboxs(&outcome, LimitKind::Memory, 96 * MIB, &sandbox);
    assert!(!run.has_finished(), "the other one is not ended");
    let_end(&engine, &sandbox);
    assert!(run.wait_blocking().ok);
}

#[test]
fn groups_end_with_the_sandbox_and_with_the_engine() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let limits = Limits::new().memory(64 * MIB).processes(20);
    let sandbox = sandboxes.create(spec_with(limits.clone())).expect("a sandbox");
    let groups = checked_groups(&engine, &sandbox, "61.0606");
    let is_there = |groups: &[PathBuf]| groups.iter().any(|group| group.exists());
    assert!(is_there(&groups) && groups.len() >= 2, "{groups:?}");
    let inside = |groups: &[PathBuf]| {
        let entries = groups.iter().flat_map(|group| fs::read_dir(group).into_iter().flatten().flatten());
        entries.filter(|entry| is_row(&entry.file_name())).count()
    };
    wait_until("the groups of its run are removed", || inside(&groups) == 0);
    let run = engine.start(spec_in(&sandbox, "sleep 50", Limits::new())).expect("a run");
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    assert_eq!(run.wait_blocking().ending, Ending::Cancelled);
    wait_until("they are removed", || !is_there(&groups));
    drop((run, sandbox));

    // The groups that a snapshot gives back, and a fork's own limits.
    let sandbox = sandboxes.create(spec_with(limits)).expect("a sandbox");
    let groups = checked_groups(&engine, &sandbox, "61.0707");
    let forks = sandboxes.fork(&sandbox, 1, None).expect("a fork");
    wait_until("it is unmounted", || !is_there(&groups));
    let of_fork = checked_groups(&engine, &forks[0], "61.0808");
    assert_eq!(forks[0].usage().memory_limit, Some(64 * MIB));
    let running = engine.start(spec_in(&forks[0], "sleep 50", Limits::new())).expect("a run");
    assert!(is_there(&of_fork));
    drop((running, forks, sandbox, sandboxes));
    drop(engine);
    wait_until("the engine leaves nothing", || !is_there(&of_fork));
}

#[test]
fn next_engine_keeps_the_limits() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let limits = Limits::new().memory(64 * MIB).processes(20);
    let id = sandboxes.create(spec_with(limits)).expect("a sandbox").id().to_owned();
    drop(sandboxes);
    drop(engine);
    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.find(&id, OWNER).expect("there");
    let usage = sandbox.usage();
    assert_eq!((usage.memory_limit, usage.processes_limit), (Some(64 * MIB), Some(20)));
    assert_eq!((usage.memory, usage.processes), (Some(0), Some(0)), "it is not mounted");
    checked_groups(&engine, &sandbox, "61.0909");
}

#[test]
fn ceiling_bounds_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let maxima = Limits::new().memory(64 * MIB).processes(20);
    let engine = Engine::with_options(Options { maxima, ..Options::default() }).expect("an engine");
    let sandboxes = open(&engine, state.path());
    let asked = Limits::new().memory(1 << 40).processes(1_000_000);
    let sandbox = sandboxes.create(spec_with(asked)).expect("a sandbox");
    let usage = sandbox.usage();
    assert_eq!((usage.memory_limit, usage.processes_limit), (Some(64 * MIB), Some(20)));
    checked_groups(&engine, &sandbox, "61.1010");
    let free = sandboxes.create(spec_with(Limits::new())).expect("a sandbox");
    let usage = free.usage();
    assert_eq!(
        (usage.memory_limit, usage.memory, usage.processes),
        (None, None, None),
        "no limit, no groups"
    );
}

#[test]
fn limit_that_a_whole_cannot_have_is_rejected() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let cpu = sandboxes.create(spec_with(Limits::new().cpu(Duration::from_secs(1))));
    match cpu {
        Err(Error::Sandbox(error @ SandboxError::NoSuchLimit("cpu_ms"))) => {
            assert!(error.to_string().contains("give it to its runs"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let small = sandboxes.create(spec_with(Limits::new().memory(1)));
    assert!(matches!(small, Err(Error::Limit(_))), "{small:?}");
    assert!(sandboxes.all().is_empty());
    let unlimited = Limits::new().unlimited(LimitKind::Memory).unlimited(LimitKind::Processes);
    let free = sandboxes.create(spec_with(unlimited)).expect("without limits");
    assert_eq!(free.usage().memory_limit, None);
}

#[test]
fn without_groups_a_limit_of_the_whole_is_rejected() {
    if as_a_user("without_groups_a_limit_of_the_whole_is_rejected") {
        return;
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = match sandboxes.create(spec_with(Limits::new().memory(64 * MIB))) {
        // Groups that this user may use.
        Ok(sandbox) => return drop(checked_groups(&engine, &sandbox, "61.1111")),
        Err(Error::Sandbox(SandboxError::NoNamespaces(_) | SandboxError::Overlay { .. })) => return,
        Err(Error::Sandbox(error @ SandboxError::NoWholeLimits(_))) => error,
        Err(other) => panic!("{other}"),
    };
    assert!(sandbox.to_string().contains("control group"), "{sandbox}");
    assert!(sandboxes.all().is_empty());
    let left = fs::read_dir(state.path()).expect("read").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name.len() == 12).collect();
    assert!(left.is_empty(), "{left:?}");
    let control = sandboxes.create(spec_with(Limits::new())).expect("without limits");
    let is_degraded = |outcome: &Outcome| {
        outcome.isolation.degraded.iter().any(|degraded| degraded.layer == "sandbox limits")
    };
    let outcome = engine.run_blocking(spec_in(&control, "true", Limits::new())).expect("a run");
    assert!(outcome.ok && !is_degraded(&outcome), "{outcome:?}");

    // One that an engine with control groups has made is used, and each run reports it.
    let record = state.path().join(control.id()).join("record.json");
    let id = control.id().to_owned();
    drop((control, sandboxes));
    drop(engine);
    let text = fs::read_to_string(&record).expect("a record");
    let recorded = r#""whole":{"memory_bytes":null,"processes":null}"#;
    assert!(text.contains(recorded), "{text}");
    let limited = r#""whole":{"memory_bytes":67108864,"processes":null}"#;
    fs::write(&record, text.replace(recorded, limited)).expect("written");
    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.find(&id, OWNER).expect("there");
    let run = engine.start(spec_in(&sandbox, "true", Limits::new())).expect("a run");
    assert_eq!(run.effective().get(LimitKind::Memory).expect("each run has it").value, 64 * MIB);
    let outcome = run.wait_blocking();
    assert!(outcome.ok && is_degraded(&outcome), "{outcome:?}");
}

const AS_VICTIM: &str = "SANDTIMER_TEST_STATE";

/// Not a test by itself: the engine that another test kills.
#[test]
fn engine_that_is_killed_with_a_limited_sandbox() {
    let Some(state) = std::env::var_os(AS_VICTIM) else { return };
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, Path::new(&state));
    let limits = Limits::new().memory(64 * MIB).processes(20);
    let sandbox = sandboxes.create(spec_with(limits)).expect("a sandbox");
    let run = engine.start(spec_in(&sandbox, "exec sleep 61.1212", Limits::new())).expect("a run");
    wait_until("it is there", || !groups_of("61.1212").is_empty());
    let shown: Vec<_> = groups_of("61.1212").iter().map(|path| path.display().to_string()).collect();
    #[allow(clippy::disallowed_macros)] // what the other test reads
    {
        println!("\ngroups {}", shown.join(" "));
    }
    let _: Arc<Outcome> = run.wait_blocking();
}

/// Children of a process with this name.
fn children(parent: u32, name: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("read").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |number: &u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        let parent_of =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2)?.parse::<u32>().ok());
        stat.contains(&format!("({name})")) && parent_of == Some(parent)
    };
    numbers.filter(is_one).collect()
}

fn killed_engine_leaves(with_watchdog: bool) -> (Vec<PathBuf>, tempfile::TempDir) {
    let state = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let name = "sandbox_limits::engine_that_is_killed_with_a_limited_sandbox";
    command.args(["--exact", name, "--nocapture"]).env(AS_VICTIM, state.path());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("groups ")).expect("its groups");
    let groups: Vec<PathBuf> = line.split(' ').skip(1).map(PathBuf::from).collect();
    assert!(groups.len() >= 2 && groups.iter().all(|group| group.is_dir()), "{groups:?}");
    let watchdogs = children(child.id(), "st-watchdog");
    let kill = |number: u32| {
        let number = rustix::process::Pid::from_raw(number as i32).expect("a number");
        rustix::process::kill_process(number, rustix::process::Signal::KILL).expect("killed");
    };
    if with_watchdog {
        assert_eq!(watchdogs.len(), 1, "its watchdog");
        kill(watchdogs[0]);
    }
    child.kill().expect("killed");
    child.wait().expect("reaped");
    (groups, state)
}

fn is_left(groups: &[PathBuf]) -> bool {
    groups.iter().any(|group| group.exists() || group.parent().is_some_and(Path::exists))
}

#[test]
fn killed_engine_leaves_no_groups() {
    let (groups, _state) = killed_engine_leaves(false);
    wait_until("the watchdog removes them", || !is_left(&groups));
}

#[test]
fn groups_of_an_engine_without_a_watchdog_are_swept() {
    let (groups, state) = killed_engine_leaves(true);
    wait_until("the next engine removes them", || {
        drop(Engine::new().expect("an engine"));
        !is_left(&groups)
    });
    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.of(OWNER).pop().expect("the sandbox");
    checked_groups(&engine, &sandbox, "61.1313");
}
