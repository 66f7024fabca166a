//! Sessions: only the shell's own process receives a command and ends it.

use std::time::Duration;

use sandtimer::engine::{CellEvent, CellSpec, Context};
use sandtimer::model::{RemainingState, Reporter};
use sandtimer::{Ending, Limits};

use super::executions;
use crate::as_user::as_a_user;
use crate::live::{run, session};

/// What a subshell sends to have its command counted as one that succeeded.
const SENDS: &str = r"builtin kill -0 2000000001; printf 'A\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0' >&240; printf '' >&240; printf x >&240";

#[test]
fn subshell_cannot_end_its_command() {
    let session = session();
    let outcome = run(
        &session,
        &format!("( while :; do {SENDS}; sleep 0.01; done ) 2>/dev/null & sleep 0.3; echo tests; (exit 3)"),
    );
    assert_eq!(
        (outcome.ending, outcome.exit_code, outcome.state),
        (Ending::Exited, Some(3), RemainingState::Kept),
        "{outcome:?}"
    );
    assert_eq!((outcome.stdout.as_str(), outcome.reported_by), ("tests\n", Reporter::Interpreter));
}

/// The control: the same call by the shell itself ends its command.
#[test]
fn shell_itself_ends_its_command() {
    let outcome = run(&session(), "builtin kill -0 2000000001; sleep 0.3; (exit 3)");
    assert_eq!(
        (outcome.ending, outcome.exit_code, outcome.ok),
        (Ending::Exited, Some(0), true),
        "{outcome:?}"
    );
}

#[test]
fn shell_exit_status_comes_from_the_kernel() {
    let outcome = run(&session(), "exit 3");
    assert_eq!((outcome.exit_code, outcome.reported_by), (Some(3), Reporter::Kernel), "{outcome:?}");
}

fn assert_commands_are_executed(session: &Context, count: usize) {
    for number in 0..count {
        assert_eq!(run(session, &format!("echo {number}")).stdout, format!("{number}\n"));
    }
}

#[test]
fn subshell_takes_no_request_of_the_shell() {
    let session = session();
    let takes = "builtin kill -0 2000000000; read -r -t 0.01 -u 240 line; read -r -N 1 -t 0.01 -u 240 line";
    run(&session, &format!("( while :; do {takes}; sleep 0.01; done ) 2>/dev/null & :"));
    assert_commands_are_executed(&session, 20);
}

/// A session that has `take.c` as `./take.so`.
fn session_with_builtin() -> Context {
    let session = session();
    let source = include_str!("take.c");
    let made =
        run(&session, &format!("cat > take.c <<'END'\n{source}\nEND\ncc -shared -fPIC -o take.so take.c"));
    assert_eq!((made.exit_code, made.stderr.as_str()), (Some(0), ""), "{made:?}");
    session
}

const LOAD: &str = "enable -f ./take.so take";

#[test]
fn channel_is_closed_in_forks_of_the_shell() {
    let session = session_with_builtin();
    let outcome = run(&session, &format!("( {LOAD}; take look ); {LOAD} && take look"));
    assert_eq!(outcome.stdout, "closed\nopen\n", "the control: the shell itself has it. {outcome:?}");
    for fork in [
        "( take look )",
        "( ( take look ) )",
        "take look | cat",
        "true | take look",
        "echo $(take look)",
        "cat < <(take look)",
        "take look & wait",
        // Bash forgets the descriptors of a coprocess that has ended.
        "coproc { take look; sleep 0.3; }; cat <&${COPROC[0]}",
        "trap '( take look )' DEBUG; :; trap - DEBUG",
    ] {
        let outcome = run(&session, fork);
        assert!(outcome.stdout.lines().all(|line| line == "closed"), "{fork}: {outcome:?}");
        assert!(!outcome.stdout.is_empty(), "{fork}: {outcome:?}");
    }
}

#[test]
fn loaded_builtin_of_a_subshell_takes_no_command() {
    let session = session_with_builtin();
    run(&session, &format!("( {LOAD}; while :; do take on; sleep 0.001; done ) 2>/dev/null & :"));
    assert_commands_are_executed(&session, 50);
}

/// The control of both: code that is loaded into the shell itself can leave a process that has the
/// channel. A command that such a process takes is not executed. If it takes a request for a
/// checkpoint, the session is the checkpoint before, and the next command's Outcome reports so.
#[test]
fn builtin_of_the_shell_can_leave_a_thief() {
    let session = session_with_builtin();
    // A shell that waits for a request usually takes it first: this one is late for the request
    // that comes after its answer.
    run(&session, &format!("{LOAD}; take fork; trap 'sleep 0.05' DEBUG"));
    let is_request_taken = || {
        // A shell that still runs takes the next request before the kernel has woken the process
        // that waits for it.
        std::thread::sleep(Duration::from_millis(100));
        let limits = Limits::new().wall(Duration::from_millis(1_500));
        let cell = CellSpec { source: "echo executed".to_owned(), limits, ..CellSpec::default() };
        let mut is_checkpoint_lost = false;
        let outcome = session
            .execute(cell, &mut |event| is_checkpoint_lost |= matches!(event, CellEvent::Lost(..)))
            .expect("an outcome");
        let is_command_lost = outcome.ending == Ending::Timeout;
        assert!(is_command_lost || outcome.stdout == "executed\n", "{outcome:?}");
        is_command_lost || is_checkpoint_lost
    };
    assert!((0..10).any(|_| is_request_taken()), "nothing is taken");
}

#[test]
fn script_neither_copies_nor_closes_the_channel() {
    let session = session();
    for attempt in [
        "exec 250>&240",
        "exec 250<&240",
        "exec {copy}>&240",
        ": 240>/dev/null",
        "exec 240>/dev/null",
        "{ ( sleep 0.1 ) & } 240>&1",
        "read -t 0 -u 240",
        "mapfile -n 1 -u 240 lines",
    ] {
        let outcome = run(&session, &format!("{attempt} && echo done"));
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, ""), "{attempt}: {outcome:?}");
    }
    // It is as if it were not open.
    run(&session, "exec 240>&-; exec 240<&-");
    let own = run(&session, "( exec 240>&1; echo own >&240 ); ls /proc/self/fd | grep -c 240");
    assert_eq!((own.stdout.as_str(), own.state), ("own\n0\n", RemainingState::Kept), "{own:?}");
}

#[test]
fn commands_with_a_forger_keep_their_results() {
    let session = session();
    run(
        &session,
        &format!("( while :; do {SENDS}; printf . >>/tmp/sent; sleep 0.002; done ) 2>/dev/null & :"),
    );
    for number in 0..executions() {
        let code = number % 3;
        let outcome = run(&session, &format!("echo {number}; (exit {code})"));
        assert_eq!(
            (outcome.exit_code, outcome.state),
            (Some(code as i32), RemainingState::Kept),
            "{number}: {outcome:?}"
        );
        assert_eq!(outcome.stdout, format!("{number}\n"), "{number}: {outcome:?}");
    }
    let sent = run(&session, "wc -c </tmp/sent").stdout.trim().parse::<usize>().expect("a number");
    assert!(sent > executions() / 30, "the forger did not run: {sent} rounds");
    println!("{} commands with {sent} rounds of forged packets: none forged, none cut short", executions());
}

/// With root the job has another uid than what its shell's script comes through, so the attack is
/// one on the engine of a user.
#[test]
fn without_root_nothing_writes_to_the_shells_script() {
    if as_a_user("commands::without_root_nothing_writes_to_the_shells_script") {
        return;
    }
    let session = session();
    let outcome = run(
        &session,
        "( for fd in /proc/self/fd/* /proc/$$/fd/*; do\ncase $(readlink $fd) in pipe:*|socket:*) ;; *) continue ;; esac\n\
         case ${fd##*/} in 1|2|241|242) ;; *) (echo 'builtin kill -0 2000000001' > $fd) 2>/dev/null ;; esac\ndone ) & wait; sleep 0.2; (exit 3)",
    );
    assert_eq!((outcome.exit_code, outcome.state), (Some(3), RemainingState::Kept), "{outcome:?}");
    assert_eq!(run(&session, "(exit 4)").exit_code, Some(4));
}

/// Opens the shell's memory as another process of the session does, or prints why it cannot.
const OPENS_MEMORY: &str = r#"
import os, sys
try: os.close(os.open("/proc/%s/mem" % sys.argv[1], getattr(os, sys.argv[2]))); print("opened")
except OSError as error: print(error.strerror)
"#;

fn memory_of_the_shell_stays_its_own() {
    let session = session();
    let opens = |mode: &str| {
        let command = format!("python3 -c '{OPENS_MEMORY}' $$ {mode}");
        run(&session, &command).stdout.trim().to_owned()
    };
    assert_eq!(opens("O_RDONLY"), "opened", "the control: the kernel would let it");
    assert_eq!(opens("O_RDWR"), "Permission denied");
}

#[test]
fn memory_of_the_shell_is_not_written() {
    memory_of_the_shell_stays_its_own();
}

#[test]
fn memory_of_the_shell_is_not_written_as_user() {
    if !as_a_user("commands::memory_of_the_shell_is_not_written_as_user") {
        memory_of_the_shell_stays_its_own();
    }
}
