//! What code in a sandbox can do to its init, to the interpreter and to the engine's descriptors.
#![allow(clippy::disallowed_methods)] // another process runs a test as a user, and its output is read

use crate::as_user;
use crate::live;

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use as_user::as_a_user;
use sandtimer::isolate::plan::IsolationLayer;
use sandtimer::{Ending, Engine, Limits, Spec};

#[test]
fn init_ignores_sigterm_from_inside() {
    // As root, init has another uid than the job, which may not signal it.
    if as_a_user("init_ignores_sigterm_from_inside") {
        return;
    }
    let engine = Engine::new().expect("an engine");
    let script = "kill -TERM 1 && echo sent; sleep 0.3; echo alive";
    let limits = Limits::new().wall(Duration::from_secs(20));
    let mut spec = Spec::command(["/bin/sh", "-c", script]).limits(limits);
    spec.private_workspace = true;
    // Landlock's scopes keep the signal from init, on kernels that have them.
    spec.without = vec![IsolationLayer::Landlock];
    let outcome = engine.run_blocking(spec).expect("a run");
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "sent\nalive\n"), "{outcome:?}");
}

#[test]
fn fork_of_a_cell_cannot_write_the_interpreter() {
    let context = live::python_context();
    let source = r#"
import os
def attempt(mode):
    try:
        open(f"/proc/{os.getppid()}/mem", mode, buffering=0).close()
        return 1
    except PermissionError:
        return 2
results = []
for mode in ("rb", "r+b"):
    child = os.fork()
    if child == 0:
        os._exit(attempt(mode))
    results.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(results)
"#;
    let outcome = live::run(&context, source);
    // Reading is the control: the process is there, and the kernel lets the user in.
    assert_eq!(outcome.stdout, "[1, 2]\n", "{outcome:?}");
}

#[test]
fn copies_of_output_keep_a_bounded_number_of_descriptors() {
    const CELLS: usize = 150;
    /// A pipe for each of two streams, and the waker of the threads that wait for them.
    const PER_CELL: usize = 3;
    let context = live::python_context();
    // Not those of sandboxes, of which more are being made ready all the while.
    let descriptors = || {
        let entries = std::fs::read_dir("/proc/self/fd").expect("there").flatten();
        let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let names = targets.map(|target| target.to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("pipe:") || name == "anon_inode:[eventfd]").count()
    };
    assert!(live::run(&context, "import os\nkept = []").ok);
    let before = descriptors();
    for _ in 0..CELLS {
        assert!(live::run(&context, "kept.append((os.dup(1), os.dup(2)))").ok);
    }
    // The lower bound is the control: output of ended cells is read on while it is open.
    let wanted = 64..64 * PER_CELL + 60;
    let limit = Instant::now() + Duration::from_secs(20);
    // The collector may be late by some cells.
    while !wanted.contains(&(descriptors() - before)) {
        assert!(Instant::now() < limit, "{} more", descriptors() - before);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Copies of all pipes of this process that are not in `known` yet, as a process has them that this
/// one forks.
fn copy_pipes(known: &mut Vec<String>) -> Vec<OwnedFd> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("the own descriptors");
    let entries: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let mut copies = Vec::new();
    for path in entries {
        let target = std::fs::read_link(&path).unwrap_or_default().to_string_lossy().into_owned();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| target.starts_with("pipe:") && !known.contains(&target)) {
            // SAFETY: the number of a descriptor that was open just now. It is copied, not closed;
            // a copy of another one does no harm.
            let pipe = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            copies.extend(pipe.try_clone());
            known.push(target);
        }
    }
    copies
}

/// Processor time of the thread with this name so far, in nanoseconds.
fn used_by_thread(name: &str) -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("the own threads");
    let used = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let is_it = std::fs::read_to_string(path.join("comm")).ok()?.trim() == name;
        let times = std::fs::read_to_string(path.join("schedstat")).ok().filter(|_| is_it)?;
        times.split_whitespace().next()?.parse::<u64>().ok()
    });
    used.sum()
}

/// A copy keeps the entry of a pipe among what the collector waits for, and output that nothing
/// reads any more is always there.
#[test]
fn collector_waits_for_no_output_that_it_has_closed() {
    const CELLS: usize = 80;
    const WATCHED: Duration = Duration::from_secs(2);
    let context = live::python_context();
    let writes = "import subprocess\nchild = subprocess.Popen(['sh', '-c', 'while :; do echo output; sleep 0.1; done'])";
    let (mut known, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..CELLS {
        assert!(live::run(&context, writes).ok);
        copies.extend(copy_pipes(&mut known));
    }
    // Each wakes the collector ten times a second.
    let wait = || std::thread::park_timeout(WATCHED);
    wait();
    let before = used_by_thread("st-collector");
    wait();
    let used = Duration::from_nanos(used_by_thread("st-collector") - before);
    assert!(used < WATCHED / 2, "{used:?} of {WATCHED:?}");
    drop(copies);
}
