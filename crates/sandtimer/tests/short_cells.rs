//! Cells that are tried on a thread which may not wait: cells that end at once, cells that
//! continue, and cells that try to keep that thread.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // one waits for nothing but time, and says what is not looked for

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sandtimer::engine::{CellSpec, Context, ContextSpec, Contexts, ExecutionAttempt};
use sandtimer::model::RemainingState;
use sandtimer::zygote::Profile;
use sandtimer::{Ending, Engine, Limits, Outcome};
use sandtimer_os::processors::Processors;

/// As long as tests may be late on a busy machine, and shorter than every wall here.
const LATE: Duration = Duration::from_secs(5);
const WALL: Duration = Duration::from_secs(20);

fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
        Engine::new().and_then(|engine| engine.contexts(profile, 2)).expect("a pool")
    })
}

fn open() -> Context {
    let context = contexts().open(ContextSpec::default(), &mut || false).expect("a context");
    context.settled_info();
    context
}

fn cell(source: &str) -> CellSpec {
    CellSpec { source: source.to_owned(), limits: Limits::new().wall(WALL), ..CellSpec::default() }
}

fn run(context: &Context, source: &str) -> Arc<Outcome> {
    context.execute(cell(source), &mut |_| {}).expect("a run")
}

/// Tries a cell for `most`, and waits for its end. Returns whether it ended at once.
fn tried(context: &Context, cell: CellSpec, most: Duration) -> (bool, Arc<Outcome>) {
    match context.try_execute(cell, most, &mut |_| {}).expect("a run") {
        ExecutionAttempt::Finished(outcome) => (true, outcome),
        ExecutionAttempt::Continues(execution) => {
            (false, context.continue_execution(*execution, &mut |_| {}))
        }
        ExecutionAttempt::NotReady(cell) => (false, context.execute(*cell, &mut |_| {}).expect("a run")),
    }
}

/// A cell that is tried is answered, and its state kept.
fn is_kept(context: &Context, turn: u64) {
    let (_, outcome) = tried(context, cell(&format!("x = {turn}\nx")), LATE);
    assert_eq!(
        (outcome.state, outcome.value.clone()),
        (RemainingState::Kept, Some(turn.into())),
        "{outcome:?}"
    );
}

#[test]
fn a_short_cell_is_over_at_once_with_all_that_belongs_to_it() {
    let context = open();
    let mut at_once_count = 0;
    for turn in 0..50 {
        let source = format!("x = {turn}\nprint('so far')\nx + 1");
        let (at_once, outcome) = tried(&context, cell(&source), LATE);
        at_once_count += u32::from(at_once);
        assert_eq!((outcome.ending, outcome.state), (Ending::Returned, RemainingState::Kept), "{outcome:?}");
        assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("so far\n", Some(0)), "{outcome:?}");
        assert_eq!(outcome.value, Some((turn + 1).into()));
        context.prepare();
    }
    // Where a thread of the engine's has a part in one, that may take longer than is waited for.
    assert!(at_once_count > 0);
    let (_, outcome) = tried(&context, cell("undefined"), LATE);
    assert_eq!((outcome.ending, outcome.state), (Ending::Raised, RemainingState::Kept), "{outcome:?}");
    assert!(context.undo().expect("undone"));
    assert_eq!(run(&context, "x").value, Some(49.into()));
}

/// Children of this process: interpreters of contexts and of the pool, and what they are forked
/// from.
fn children() -> Vec<i32> {
    let own = std::process::id().to_string();
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.split_whitespace().nth(1) == Some(&own))
    };
    let processes = std::fs::read_dir("/proc").expect("readable").filter_map(|entry| {
        entry.ok().and_then(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
    });
    processes.filter(is_child).collect()
}

/// An interpreter is bound while it is asked for a copy, and no cell finds it so: not the next one,
/// nor one after a rollback.
#[test]
fn back_to_back_cells_are_copied_elsewhere_and_run_anywhere() {
    const MASKS: &str =
        "import os\n[sorted(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')]";
    let shown = |outcome: &Outcome| outcome.results[0]["text/plain"].to_string();
    let (is_bound_once, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let until = Instant::now() + LATE * 6;
    let burst = |all: &str| {
        let context = open();
        let pids = children();
        std::thread::scope(|scope| {
            over.store(false, Ordering::Relaxed);
            scope.spawn(|| {
                let is_bound = |pid: &i32| Processors::of(*pid).is_ok_and(|now| now.count() < available());
                // Bounded: a cell that is not as it should be leaves it looking.
                while !over.load(Ordering::Relaxed) && Instant::now() < until {
                    is_bound_once.fetch_or(pids.iter().any(is_bound), Ordering::Relaxed);
                }
            });
            (0..100).for_each(|turn| is_kept(&context, turn));
            over.store(true, Ordering::Relaxed);
        });
        let (_, outcome) = tried(&context, cell(MASKS), LATE);
        assert_eq!(shown(&outcome), all);
        let deaf =
            "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 'lost'\nwhile True: pass";
        let ended = CellSpec { limits: Limits::new().wall(Duration::from_millis(100)), ..cell(deaf) };
        let (_, outcome) = tried(&context, ended, LATE);
        assert_eq!(
            (outcome.state, outcome.tree.survivors),
            (RemainingState::RolledBack, Some(0)),
            "{outcome:?}"
        );
        let (_, outcome) = tried(&context, cell(&format!("assert x == 99\n{MASKS}")), LATE);
        assert_eq!(shown(&outcome), all, "{outcome:?}");
    };
    let all = shown(&run(&open(), MASKS));
    burst(&all);
    if !may_be_bound() {
        println!("not looked for: whether one is bound, which takes two processors and CAP_SYS_NICE");
        return;
    }
    // Another program may keep the processors from the thread that observes this.
    while !is_bound_once.load(Ordering::Relaxed) {
        assert!(Instant::now() < until, "no interpreter was ever bound");
        burst(&all);
    }
}

fn available() -> u32 {
    Processors::of(0).map_or(1, |own| own.count())
}

/// There is a choice of processors, and this process may make it for others; capabilities(7).
fn may_be_bound() -> bool {
    const SYS_NICE: u32 = 23;
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a line of it");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("a number");
    available() > 1 && effective >> SYS_NICE & 1 == 1
}

/// The limit has no room for a surplus checkpoint besides the copy that is being made.
#[test]
fn checkpoints_are_made_under_a_small_limit_of_processes_too() {
    let limits = Limits::new().processes(5);
    let spec = ContextSpec { limits, ..ContextSpec::default() };
    let open = || contexts().open(spec.clone(), &mut || false).expect("a context");
    let short_cells = |context: Context| {
        for turn in 0..50 {
            is_kept(&context, turn);
            let info = context.info();
            assert_eq!(info.checkpoint, Ok(()), "{turn}");
        }
        let info = context.settled_info();
        assert_eq!((info.checkpoint, info.can_undo), (Ok(()), true));
    };
    short_cells(open());
    // And where what dies has to wait for a processor.
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| short_cells(open())))));
}

#[test]
fn a_cell_that_closes_its_streams_costs_the_next_one_nothing() {
    for closed in ["1,", "2,", "0,", "1, 2", "0, 2", "0, 1, 2"] {
        let context = open();
        run(&context, &format!("import os, sys\nfor stream in ({closed}): os.close(stream)"));
        let prints =
            "print('out'); print('err', file=sys.stderr)\nsys.stdin.read(), os.system('echo below; cat')";
        let outcome = run(&context, prints);
        assert_eq!(outcome.ending, Ending::Returned, "{closed}: {outcome:?}");
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\nbelow\n", "err\n"), "{closed}");
        assert_eq!(outcome.results[0]["text/plain"], "('', 0)", "{closed}");
        run(&context, &format!("for stream in ({closed}): os.close(stream)"));
        // Its source is then a file, passed with its streams.
        let long = format!("{prints}\n# {}", "a".repeat(40_000));
        let with_stdin = CellSpec { stdin: Some(b"read".to_vec()), ..cell(&long) };
        let outcome = context.execute(with_stdin, &mut |_| {}).expect("a run");
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\nbelow\n", "err\n"), "{closed}");
        assert_eq!(outcome.results[0]["text/plain"], "('read', 0)", "{closed}");
    }
}

#[test]
fn cell_without_installed_streams_is_not_executed() {
    let context = open();
    run(&context, "kept = 1");
    let closes =
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nos.close(0); os.close(1)";
    run(&context, closes);
    let outcome = run(&context, "print('out')\nkept = 2");
    assert_eq!(
        (outcome.ok, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (false, "", ""),
        "{outcome:?}"
    );
    assert!(context.undo().expect("undone"));
    let outcome = run(&context, "print('out')\nkept");
    assert_eq!((outcome.stdout.as_str(), outcome.value.clone()), ("out\n", Some(1.into())), "{outcome:?}");
}

#[test]
fn what_is_written_down_may_show_something_itself() {
    let context = open();
    let shows = "class D(dict):\n    def items(self): display('within'); return [('a', 1)]\n\
                 class V:\n    def _repr_mimebundle_(self): return {'application/json': D(a=1)}\n\
                 class W:\n    def _repr_mimebundle_(self): return {'application/json': E(a=1)}\n\
                 class E(dict):\n    def items(self): raise RuntimeError\nV()";
    let outcome = run(&context, shows);
    assert_eq!((outcome.ending, outcome.state), (Ending::Returned, RemainingState::Kept), "{outcome:?}");
    let last = outcome.results.last().expect("a value");
    assert_eq!(last["application/json"], serde_json::json!({"a": 1}));
    let outcome = run(&context, "W()");
    assert_eq!((outcome.ending, outcome.state), (Ending::Returned, RemainingState::Kept), "{outcome:?}");
    assert!(outcome.results[0].get("application/json").is_none(), "{outcome:?}");
}

#[test]
fn processes_left_by_a_short_cell_are_not_reported_dead() {
    let context = open();
    let source = "import subprocess\nchild = subprocess.Popen(['sleep', '95'])";
    let (_, outcome) = tried(&context, cell(source), LATE);
    assert_eq!((outcome.state, outcome.tree.survivors), (RemainingState::Kept, None), "{outcome:?}");
    let (_, outcome) = tried(&context, cell("child.kill(); child.wait()"), LATE);
    // A checkpoint that could not be kept may still be dying, and is never reported as dead then.
    assert_eq!(outcome.state, RemainingState::Kept, "{outcome:?}");
}

#[test]
fn what_takes_longer_goes_on_elsewhere_and_its_limits_with_it() {
    let context = open();
    let begun = Instant::now();
    let limits = Limits::new().wall(Duration::from_millis(300));
    let stuck = CellSpec { limits, ..cell("y = 1\nprint('so far', flush=True)\nwhile True: pass") };
    let (at_once, outcome) = tried(&context, stuck, Duration::from_millis(2));
    assert!(!at_once);
    assert_eq!(outcome.verdict.as_ref().map(|verdict| verdict.limit_ms), Some(Some(300)), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("so far\n", Some(0)), "{outcome:?}");
    assert!(begun.elapsed() < LATE);
    let large = "'x' * 1_000_000";
    let (_, outcome) = tried(&context, cell(large), LATE);
    assert_eq!(outcome.results[0]["text/plain"].as_str().map(str::len), Some(1_000_002));
}

/// Finds the interpreter's end of the channel, and talks without an end.
const TALKS: &str = "
import os, stat
channel = next(int(name) for name in os.listdir('/proc/self/fd') if stat.S_ISSOCK(os.fstat(int(name)).st_mode))
while True:
    os.write(channel, b'P1/2')
";

#[test]
fn endless_output_holds_no_thread_beyond_its_bound() {
    let context = open();
    let begun = Instant::now();
    let limits = Limits::new().wall(LATE * 2);
    let talker = CellSpec { limits, ..cell(TALKS) };
    let tried = context.try_execute(talker, Duration::from_millis(50), &mut |_| {}).expect("a run");
    assert!(begun.elapsed() < LATE, "{:?}", begun.elapsed());
    let ExecutionAttempt::Continues(execution) = tried else { panic!("{tried:?}") };
    assert!(context.running().is_some_and(|run| !run.has_finished()));
    context.running().expect("a run").cancel("enough");
    let outcome = context.continue_execution(*execution, &mut |_| {});
    assert_eq!(outcome.ending, Ending::Cancelled, "{outcome:?}");
    assert_eq!(run(&context, "1 + 1").value, Some(2.into()));
}

#[test]
fn one_that_cannot_begin_at_once_is_given_back() {
    let context = open();
    let _turn = context.queue();
    let tried = context.try_execute(cell("1"), Duration::from_millis(2), &mut |_| {}).expect("no error");
    let ExecutionAttempt::NotReady(cell) = tried else { panic!("{tried:?}") };
    assert!(cell.turn.is_some(), "it keeps its place");
}

#[test]
fn descriptor_kept_from_an_earlier_cell_is_writable() {
    let context = open();
    let (_, outcome) = tried(&context, cell("import os\nout = os.dup(1)"), LATE);
    assert_eq!(outcome.state, RemainingState::Kept, "{outcome:?}");
    for source in [
        "os.write(out, b'x' * 1000)",
        "1",
        "sum(os.write(out, b'x' * 1000) for _ in range(200))",
        "os.write(out, b'y')",
    ] {
        let (_, outcome) = tried(&context, cell(source), Duration::from_millis(2));
        assert_eq!(
            (outcome.ending, outcome.state),
            (Ending::Returned, RemainingState::Kept),
            "{source}: {outcome:?}"
        );
        context.prepare();
    }
}

#[test]
fn what_was_read_ahead_of_another_stdin_is_not_the_next_cells() {
    let context = open();
    let source = "import os, sys\nread, write = os.pipe()\nos.write(write, b'a\\nb\\n')\nos.dup2(read, 0)\nsys.stdin.readline()";
    assert_eq!(run(&context, source).value, Some("a\n".into()));
    let outcome = run(&context, "input()");
    assert_eq!(outcome.error.as_ref().expect("an error")["type"], "EOFError", "{outcome:?}");
    assert_eq!(run(&context, "sys.stdin.close(); os.close(0)").state, RemainingState::Kept);
    assert_eq!(run(&context, "sys.stdin.read()").value, Some("".into()));
}
