//! What code in a sandbox can do to its init, to the interpreter and to the engine's descriptors.

mod as_user;
mod live;

use std::time::Duration;

use as_user::as_a_user;
use sandtimer::isolate::plan::Wall;
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
    spec.without = vec![Wall::Landlock];
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
    /// A pipe for each of two streams, and what wakes those who wait for them.
    const PER_CELL: usize = 3;
    let context = live::python_context();
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("there").count();
    assert!(live::run(&context, "import os\nkept = []").ok);
    let before = descriptors();
    for _ in 0..CELLS {
        assert!(live::run(&context, "kept.append((os.dup(1), os.dup(2)))").ok);
    }
    let grown = descriptors() - before;
    // The lower bound is the control: output of ended cells is read on while it is open.
    assert!((64..64 * PER_CELL + 60).contains(&grown), "{grown} more");
}
