//! An interrupt of a session is Ctrl-C: the command ends with 130, and the shell keeps what it has.
#![allow(clippy::disallowed_methods)] // waits for what sends no event

use crate::live;

use std::sync::Arc;
use std::time::{Duration, Instant};

use live::{run, session, within};
use sandtimer::engine::Context;
use sandtimer::model::RemainingState;
use sandtimer::{Ending, Outcome};

/// Executes a command, and interrupts it after a while.
fn interrupted(session: &Context, command: &str) -> Arc<Outcome> {
    interrupted_after(session, command, Duration::from_millis(300))
}

fn interrupted_after(session: &Context, command: &str, pause: Duration) -> Arc<Outcome> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| within(session, command, Duration::from_secs(10)));
        while session.running().is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(pause);
        assert!(session.interrupt(), "{command}");
        running.join().expect("no panic")
    })
}

const COMMANDS: [&str; 16] = [
    "x=1; sleep 30; echo after",
    "x=1; while :; do :; done; echo after",
    "x=1; for i in 1 2 3; do sleep 30; done; echo after",
    "x=1; for ((i = 0; i < 100000000; i++)); do :; done; echo after",
    "x=1; until false; do sleep 0.01; done",
    "x=1; while /bin/true; do :; done",
    "f() { x=1; sleep 30; echo in; }; f; echo after",
    "x=1\nsleep 30\necho after",
    "x=1; sleep 30 | cat; echo after",
    "x=1; (sleep 30; echo in); echo after",
    "x=1; y=$(sleep 30); echo after",
    "x=1; eval 'eval \"sleep 30; echo in\"; echo in'; echo after",
    "x=1; echo 'sleep 30; echo in' > /tmp/s; . /tmp/s; echo after",
    "x=1; read y < <(sleep 30); echo after",
    "x=1; bash -c 'sleep 30; echo in'; echo after",
    "set -e; x=1; sleep 30; echo after",
];

#[test]
fn command_ends_with_130_and_state_is_kept() {
    for command in COMMANDS {
        let session = session();
        run(&session, "x=0; cd /tmp; f() { :; }; alias g=f");
        let begun = Instant::now();
        let outcome = interrupted(&session, command);
        assert_eq!(
            (outcome.ending, outcome.exit_code, outcome.state, outcome.stdout.as_str()),
            (Ending::Exited, Some(130), RemainingState::Kept, ""),
            "{command}: {outcome:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{command}: {:?}", begun.elapsed());
        let after = run(&session, "echo $? $x $PWD $-; type g >/dev/null && echo g; trap -p");
        let flags = if command.contains("set -e") { "ehBs" } else { "hBs" };
        assert_eq!(after.stdout, format!("130 1 /tmp {flags}\ng\n"), "{command}: {after:?}");
    }
}

#[test]
fn next_command_can_be_interrupted_as_well() {
    let session = session();
    for _ in 0..5 {
        let outcome = interrupted(&session, "while :; do :; done");
        assert_eq!((outcome.exit_code, outcome.state), (Some(130), RemainingState::Kept), "{outcome:?}");
        assert_eq!(run(&session, "echo next").stdout, "next\n");
    }
    assert!(session.undo().expect("the shell lives"));
}

/// The interrupt usually comes before the shell has read the command.
#[test]
fn interrupt_at_once_is_not_lost() {
    let session = session();
    for pause in [0, 0, 100, 200, 500, 1000, 2000] {
        let outcome = interrupted_after(&session, "while :; do :; done", Duration::from_micros(pause));
        assert_eq!(
            (outcome.exit_code, outcome.state),
            (Some(130), RemainingState::Kept),
            "{pause}: {outcome:?}"
        );
    }
}

#[test]
fn interrupt_that_comes_late_is_not_the_next_commands() {
    let session = session();
    for _ in 0..50 {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&session, "true"));
            while !running.is_finished() {
                session.interrupt();
            }
        });
        let outcome = run(&session, "for i in 1 2 3; do :; done; echo whole");
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("whole\n", Some(0)), "{outcome:?}");
    }
}

#[test]
fn trap_of_the_session_decides() {
    let session = session();
    let outcome = interrupted(&session, "trap 'echo trapped' INT; sleep 30; echo after");
    assert_eq!(
        (outcome.stdout.as_str(), outcome.state),
        ("trapped\nafter\n", RemainingState::Kept),
        "{outcome:?}"
    );
    let outcome = interrupted(&session, "trap '' INT; sleep 1; echo ignored");
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("ignored\n", Some(0)), "{outcome:?}");
    run(&session, "trap - INT");
    let outcome = interrupted(&session, "sleep 30; echo after");
    assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (Some(130), ""), "{outcome:?}");
}

#[test]
fn child_that_handles_the_interrupt_is_waited_for() {
    let session = session();
    let handles = "python3 -c 'import time\ntry:\n    print(1, flush=True); time.sleep(30)\nexcept KeyboardInterrupt: time.sleep(0.3); print(2)'; echo after";
    let outcome = interrupted_after(&session, handles, Duration::from_millis(1500));
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("1\n2\n", Some(130)), "{outcome:?}");
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
}

#[test]
fn jobs_of_earlier_commands_are_spared() {
    let session = session();
    run(&session, "python3 -c 'import time; time.sleep(60)' & echo $! > /tmp/job; sleep 1");
    let outcome = interrupted(&session, "sleep 30");
    assert_eq!(outcome.exit_code, Some(130), "{outcome:?}");
    assert_eq!(run(&session, "kill -0 $(cat /tmp/job) && echo runs").stdout, "runs\n");
}

/// What `read` had taken of its file and not used is not the next command.
#[test]
fn rest_of_an_interrupted_read_is_not_executed() {
    let session = session();
    run(&session, "x=0; yes 'echo INJECTED; x=1' | head -n 1500000 > /tmp/log");
    for command in
        ["read -t 0.3 y < /dev/zero", "while read l; do :; done < /tmp/log", "read -d X y < /tmp/log"]
    {
        if command.contains("-t") {
            run(&session, command);
        } else {
            interrupted_after(&session, command, Duration::from_millis(100));
        }
        let outcome = run(&session, "echo mine $x");
        assert_eq!(
            (outcome.stdout.as_str(), outcome.stderr.as_str()),
            ("mine 0\n", ""),
            "{command}: {outcome:?}"
        );
    }
}

#[test]
fn trap_removed_in_the_same_command_keeps_the_shell_alive() {
    let session = session();
    run(&session, "x=1; echo 'trap : INT; trap - INT' > /tmp/traps");
    for command in [
        "trap : INT; trap - INT; sleep 30; echo after",
        "trap '' INT; trap - INT; while :; do :; done",
        "f() { trap : INT TERM; sleep 0.1; trap - INT TERM; }; f; sleep 30; echo after",
        ". /tmp/traps; sleep 30; echo after",
    ] {
        let outcome = interrupted_after(&session, command, Duration::from_millis(500));
        assert_eq!(
            (outcome.exit_code, outcome.state, outcome.stdout.as_str()),
            (Some(130), RemainingState::Kept, ""),
            "{command}: {outcome:?}"
        );
        assert_eq!(run(&session, "echo $x").stdout, "1\n", "{command}");
    }
}

/// Bash executes a trap between two commands, also those that Sandtimer has it execute.
#[test]
fn trap_for_an_interrupt_before_the_command_is_executed_in_it() {
    let session = session();
    run(&session, "trap 'echo trapped' INT");
    for pause in [0, 0, 0, 50, 100, 200, 500, 1000, 2000] {
        let outcome = interrupted_after(&session, "sleep 0.2; echo after", Duration::from_micros(pause));
        assert_eq!(
            (outcome.stdout.as_str(), outcome.stderr.as_str(), outcome.state),
            ("trapped\nafter\n", "", RemainingState::Kept),
            "{pause}: {outcome:?}"
        );
    }
}
