//! The enforcer neither allocates nor frees while it starts, limits and ends runs: the allocator
//! has locks that threads of lower priority hold. A test of its own process: it counts for the
//! whole process.
#![allow(clippy::disallowed_methods)] // waits, and what is not looked for

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sandtimer::Options;
use sandtimer::engine::{Engine, Run, Spec};
use sandtimer::limits::Limits;
use sandtimer::model::{Ending, LimitKind, Outcome, Tier};

/// The thread whose use of the allocator is counted; 0 for none.
static THREAD: AtomicI32 = AtomicI32::new(0);
static USES: AtomicUsize = AtomicUsize::new(0);
/// Where it used the allocator, the first time.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

struct CountingAllocator;

fn count() {
    static IS_TRACING: AtomicBool = AtomicBool::new(false);
    let thread = THREAD.load(Ordering::Relaxed);
    if thread == 0 || rustix::thread::gettid().as_raw_nonzero().get() != thread {
        return;
    }
    // Writing down where it was allocates as well.
    if IS_TRACING.swap(true, Ordering::Relaxed) {
        return;
    }
    if USES.fetch_add(1, Ordering::Relaxed) == 0 {
        let backtrace = std::backtrace::Backtrace::force_capture().to_string();
        *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(backtrace);
    }
    IS_TRACING.store(false, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's, with the same arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The number of the thread with this name.
fn thread_named(name: &str) -> i32 {
    let named = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let own = std::fs::read_to_string(path.join("comm")).ok()?;
        (own.trim() == name).then(|| path.file_name()?.to_str()?.parse().ok())?
    };
    std::fs::read_dir("/proc/self/task").expect("there").find_map(named).expect("it is running")
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

fn shell(line: &str, limits: Limits) -> Spec {
    Spec::command(["sh", "-c", line]).limits(limits)
}

/// Runs that end in all the ways that the enforcer has to do with, with their endings.
fn run_all(engine: &Engine) {
    let wall = |count: f64| Limits::new().wall(seconds(count));
    let busy = "while :; do :; done";
    let cases = [
        (shell("exit 3", wall(60.0)), Ending::Exited),
        (shell("sleep 1000", wall(0.1)), Ending::Timeout),
        (shell("trap '' TERM; sleep 1000", wall(0.1).grace(seconds(0.1))), Ending::Timeout),
        (shell(busy, wall(60.0).cpu(seconds(0.1))), Ending::Timeout),
        (shell("sleep 1000", wall(60.0).stall(seconds(0.3))), Ending::Stalled),
        (shell("sleep 0.3", wall(60.0).memory(64 << 20)), Ending::Exited),
    ];
    for (spec, ending) in cases {
        let outcome = engine.run_blocking(spec).expect("a run");
        assert_eq!(outcome.ending, ending, "{outcome:?}");
    }
    let extended = engine.start(shell("sleep 1000", wall(0.2))).expect("a run");
    extended.started_blocking();
    (0..20).for_each(|_| drop(extended.extend(seconds(0.005))));
    assert_eq!(extended.settled_blocking().ending, Ending::Timeout);
    let end = |run: Run| -> std::sync::Arc<Outcome> {
        run.cancel("enough");
        run.settled_blocking()
    };
    let runs: Vec<Run> =
        (0..8).map(|_| engine.start(shell("sleep 1000", wall(60.0))).expect("a run")).collect();
    runs.iter().for_each(Run::started_blocking);
    let paused = &runs[0];
    paused.pause().expect("it is running");
    paused.resume().expect("it is paused");
    runs.into_iter().for_each(|run| assert_eq!(end(run).ending, Ending::Cancelled));
    let limited = engine.start(shell("sleep 1000", wall(60.0))).expect("a run");
    limited.started_blocking();
    limited.end_at_output_limit();
    let verdict = limited.settled_blocking().verdict.clone().expect("it was ended");
    assert_eq!(verdict.kind, Some(LimitKind::Output));
}

/// A process in the background that the kill of a control group does not reach: its first thread
/// has ended while another one runs.
const WITHOUT_FIRST_THREAD: &str = "import ctypes, threading, time\n\
    threading.Thread(target=time.sleep, args=(1000,)).start()\nctypes.CDLL(None).syscall(60, 0)";

/// Runs without namespaces: no end of a pid namespace ends what they have left.
fn run_without_namespaces(engine: &Engine) {
    let wall = Limits::new().wall(seconds(2.0));
    let leaves =
        format!("for i in 1 2 3; do setsid sleep 1000 & setsid python3 -c '{WITHOUT_FIRST_THREAD}' & done");
    for line in [format!("{leaves}; sleep 1000"), format!("{leaves}; sleep 1; exit 3")] {
        let outcome = engine.run_blocking(shell(&line, wall.clone())).expect("a run");
        assert_eq!((outcome.isolation.tier, outcome.tree.survivors), (Tier::T1, Some(0)), "{outcome:?}");
    }
}

/// Does the same twice, and counts how often the enforcer uses the allocator at the second time.
fn assert_uses_no_allocator(engine: &Engine, run: fn(&Engine)) {
    // What is made once is there after this, a watchdog among others.
    run(engine);
    std::thread::sleep(seconds(0.5));
    THREAD.store(thread_named("st-enforcer"), Ordering::SeqCst);
    run(engine);
    std::thread::sleep(seconds(0.2));
    THREAD.store(0, Ordering::SeqCst);
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    assert_eq!(USES.load(Ordering::SeqCst), 0, "{}", first.unwrap_or_default());
}

#[test]
fn enforcer_uses_no_allocator_while_runs_end() {
    assert_uses_no_allocator(&Engine::new().expect("an engine"), run_all);
    // By then the threads of the first engine have ended.
    let options = Options { no_namespaces: true, ..Options::default() };
    assert_uses_no_allocator(&Engine::with_options(options).expect("an engine"), run_without_namespaces);
    // The control: counted is this thread, which allocates.
    THREAD.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    drop(std::hint::black_box(Box::new(7)));
    THREAD.store(0, Ordering::SeqCst);
    assert!(USES.load(Ordering::SeqCst) >= 2);
}
