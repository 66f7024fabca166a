//! Sessions are like a shell that one sits at: exit codes, traps and variables are the session's
//! own.

use crate::live;

use live::{run, session};
use sandtimer::model::RemainingState;

#[test]
fn exit_code_is_there_for_the_next_command() {
    let session = session();
    assert_eq!(run(&session, "echo $?").stdout, "0\n");
    for (command, code) in [("(exit 7)", 7), ("false", 1), ("true", 0), ("(exit 255)", 255)] {
        assert_eq!(run(&session, command).exit_code, Some(code), "{command}");
        assert_eq!(run(&session, "echo $?; declare -F").stdout, format!("{code}\n"), "{command}");
    }
    run(&session, "set -u; (exit 7)");
    assert_eq!(run(&session, "echo $?; set -e").stdout, "7\n");
    // Under errexit a command that fails ends the shell, and the one before it does not.
    let outcome = run(&session, "(exit 3)");
    assert_eq!((outcome.exit_code, outcome.state), (Some(3), RemainingState::Reset), "{outcome:?}");
    assert_eq!(run(&session, "echo $?").stdout, "0\n");
    run(&session, "(exit 4)");
    assert_eq!(run(&session, "set -e; true; echo $-").stdout, "ehBs\n");
}

#[test]
fn traps_are_the_sessions_own() {
    let session = session();
    assert_eq!(run(&session, "trap -p; trap; (trap -p)").stdout, "");
    run(&session, "trap 'echo bye' EXIT; export A=kept");
    assert_eq!(run(&session, "trap -p").stdout, "trap -- 'echo bye' EXIT\n");
    let outcome = run(&session, "cd /tmp; export B=\"q'\n uote\"; exit 3");
    assert_eq!(
        (outcome.exit_code, outcome.state, outcome.stdout.as_str()),
        (Some(3), RemainingState::Reset, "bye\n")
    );
    // Its environment and directory are there, and its trap is not: that shell has exited.
    assert_eq!(
        run(&session, "pwd; echo \"$A $B $OLDPWD\"; trap -p").stdout,
        "/tmp\nkept q'\n uote /workspace\n"
    );
    assert_eq!(run(&session, "exit 4").stdout, "");
    assert_eq!(run(&session, "pwd").stdout, "/tmp\n");
}

#[test]
fn shell_that_ends_by_a_signal_hands_on_what_it_has() {
    let session = session();
    run(&session, "cd /tmp");
    let outcome = run(&session, "export A=1; cd /; kill $$; sleep 30");
    assert_eq!(
        (outcome.signal.as_deref(), outcome.state),
        (Some("SIGTERM"), RemainingState::Reset),
        "{outcome:?}"
    );
    assert_eq!(run(&session, "pwd; echo $A").stdout, "/\n1\n");
}

#[test]
fn shell_is_bash() {
    let shown = run(&session(), "echo $SHELL; $SHELL -c 'echo ${BASH_VERSION:+bash}'").stdout.clone();
    assert!(shown.ends_with("/bash\nbash\n"), "{shown}");
}
