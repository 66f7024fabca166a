//! Sessions with a real bash: state that lives, commands that end without it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{CellSpec, Context, ContextSpec};
use sandtimer::model::{Proof, RemainingState};
use sandtimer::{Ending, Engine, Limits, Outcome};
use sandtimer_os::clock::monotonic_nanoseconds;

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().expect("an engine"))
}

fn open() -> Context {
    engine().session(ContextSpec::default()).expect("a session")
}

fn within(command: &str, wall: u64) -> CellSpec {
    CellSpec {
        source: command.to_owned(),
        limits: Limits::new().wall(Duration::from_millis(wall)),
        ..CellSpec::default()
    }
}

fn run(session: &Context, command: &str) -> Arc<Outcome> {
    session.execute(within(command, 20_000), &mut |_| {}).expect("a run")
}

/// What a command prints.
fn printed(session: &Context, command: &str) -> String {
    let outcome = run(session, command);
    assert_eq!(
        (outcome.ending, outcome.state),
        (Ending::Exited, RemainingState::Kept),
        "{command}: {outcome:?}"
    );
    outcome.stdout.clone()
}

#[test]
fn streams_are_opened_by_their_names_as_well() {
    let outcome = run(&open(), "echo out >/dev/stdout; echo err | tee /dev/stderr >/dev/null");
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"), "{outcome:?}");
    assert_eq!(printed(&open(), "cat /dev/stdin && echo nothing"), "nothing\n");
}

#[test]
fn descriptor_kept_from_an_earlier_command_is_writable() {
    let session = open();
    assert_eq!(printed(&session, "exec 3>&1"), "");
    assert_eq!(printed(&session, "echo more >&3; echo here"), "here\n");
    assert_eq!(printed(&session, "seq 100000 >&3; echo there"), "there\n");
    assert_eq!(printed(&session, "echo more >&3; echo at last"), "at last\n");
}

#[test]
fn processes_left_running_are_not_reported_dead() {
    let session = open();
    for turn in 0..20 {
        // As many processes are alive after it as before.
        run(&session, "sleep 0.02 &");
        let outcome = run(&session, "sleep 95 & sleep 0.05");
        assert_eq!(
            (outcome.tree.survivors, outcome.tree.proof),
            (None, Proof::Pending),
            "{turn}: {outcome:?}"
        );
        let outcome = run(&session, "kill $!; wait; sleep 95 &");
        assert_eq!(outcome.tree.survivors, None, "{turn}: {outcome:?}");
        let outcome = run(&session, "kill $!; wait");
        assert_eq!(outcome.tree.survivors, Some(0), "{turn}: {outcome:?}");
    }
}

#[test]
fn background_job_delays_no_command() {
    let session = open();
    run(&session, "true");
    let begun = monotonic_nanoseconds();
    for _ in 0..8 {
        run(&session, "sleep 95 &");
        run(&session, "true");
    }
    let took = Duration::from_nanos(monotonic_nanoseconds() - begun);
    assert!(took < Duration::from_secs(1), "{took:?} for 16 commands");
}

#[test]
fn commands_share_directory_environment_functions_and_options() {
    let session = open();
    for command in [
        "mkdir -p a/b && cd a/b",
        "export A='x y'",
        "f() { echo \"f $1\"; }",
        "set -o pipefail; shopt -s nullglob",
        "alias g='f 2'",
        "declare -A map=([k]=v)",
    ] {
        let outcome = run(&session, command);
        assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (Some(0), ""), "{command}: {outcome:?}");
    }
    let shown = printed(&session, "pwd; echo $A; f 1; g; false | true; echo $? no*such; echo ${map[k]}");
    assert_eq!(shown, "/workspace/a/b\nx y\nf 1\nf 2\n1\nv\n");
    let outcome = run(&session, "echo out; echo err >&2; (exit 3)");
    assert_eq!(
        (outcome.exit_code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (Some(3), "out\n", "err\n")
    );
    assert_eq!(printed(&session, "env | grep -c LD_PRELOAD || true"), "0\n");
}

#[test]
fn a_command_past_its_wall_ends_and_the_session_does_not() {
    let session = open();
    run(&session, "x=1; sleep 1000 & echo $! > job");
    let outcome =
        session.execute(within("x=2; echo begun; sleep 600 | cat", 300), &mut |_| {}).expect("a run");
    assert_eq!(
        (outcome.ending, outcome.state, outcome.stdout.as_str()),
        (Ending::Timeout, RemainingState::RolledBack, "begun\n"),
        "{outcome:?}"
    );
    assert_eq!((outcome.tree.survivors, outcome.tree.killed), (Some(0), 3), "{outcome:?}");
    // What an earlier command left running continues.
    assert_eq!(
        printed(&session, "echo $x; kill -0 $(cat job) && echo runs; kill $(cat job); wait"),
        "1\nruns\n"
    );
}

#[test]
fn a_loop_in_the_shell_itself_goes_back_to_before() {
    let session = open();
    run(&session, "x=1; f() { echo f; }; cd /tmp; trap 'echo trapped' USR1");
    let outcome = session.execute(within("x=2; cd /; while :; do :; done", 300), &mut |_| {}).expect("a run");
    assert_eq!(
        (outcome.ending, outcome.state, outcome.tree.survivors),
        (Ending::Timeout, RemainingState::RolledBack, Some(0)),
        "{outcome:?}"
    );
    assert_eq!(
        printed(&session, "echo $x; f; pwd; trap -p USR1"),
        "1\nf\n/tmp\ntrap -- 'echo trapped' SIGUSR1\n"
    );
}

/// Cut anywhere, it would end in the middle of a command.
#[test]
fn shell_with_too_many_variables_keeps_those_that_fit() {
    let session = open();
    run(
        &session,
        "cd /tmp; export SMALL=kept; for i in {1..11}; do export BIG$i=$(printf %0100000d 0); done; exit 7",
    );
    let outcome = run(
        &session,
        "n=0; for i in {1..11}; do v=BIG$i; [ ${#v} -gt 0 ] && [ -n \"${!v}\" ] && n=$((n + 1)); done; echo $n $SMALL $PWD",
    );
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("10 kept /tmp\n", ""), "{outcome:?}");
}

#[test]
fn a_shell_that_exits_is_followed_by_one_where_it_was() {
    let session = open();
    run(&session, "f() { :; }; plain=1; alias g=f; set -o pipefail");
    let outcome = run(&session, "cd /tmp; export A=\"q'\n uote\"; exit 7");
    assert_eq!(
        (outcome.ending, outcome.exit_code, outcome.state),
        (Ending::Exited, Some(7), RemainingState::Reset),
        "{outcome:?}"
    );
    let shown = printed(
        &session,
        "pwd; echo \"$A\"; type f g 2>/dev/null; echo \"[$plain]\"; set -o | grep pipefail",
    );
    assert_eq!(shown, "/tmp\nq'\n uote\n[]\npipefail       \toff\n");
    let outcome = run(&session, "set -e\nfalse\necho never");
    assert_eq!(
        (outcome.exit_code, outcome.stdout.as_str(), outcome.state),
        (Some(1), "", RemainingState::Reset)
    );
    let outcome = run(&session, "exec echo replaced");
    assert_eq!((outcome.exit_code, outcome.stdout.as_str()), (Some(0), "replaced\n"), "{outcome:?}");
    assert_eq!(printed(&session, "pwd"), "/tmp\n");
}

/// What is left of a session does not matter: the next command is executed, by a shell that is
/// reported as a new one.
#[test]
fn a_shell_that_executes_nothing_any_more_is_replaced() {
    let session = open();
    run(&session, "cd /tmp; export A=kept");
    for command in ["set -n", "enable -n kill", "builtin() { :; }", "shopt -s extdebug; trap false DEBUG"] {
        let outcome =
            session.execute(CellSpec { source: command.to_owned(), ..CellSpec::default() }, &mut |_| {});
        let outcome = outcome.expect("a run");
        assert_eq!(
            (outcome.exit_code, outcome.state),
            (Some(125), RemainingState::Reset),
            "{command}: {outcome:?}"
        );
        assert!(outcome.stderr.contains("executes nothing any more"), "{command}: {outcome:?}");
        assert_eq!(printed(&session, "pwd; echo $A"), "/tmp\nkept\n", "{command}");
    }
    for command in ["readonly __sandtimer", "enable -n read", "ulimit -n 100"] {
        run(&session, command);
        let outcome = run(&session, "echo never");
        assert_eq!(
            (outcome.exit_code, outcome.state, outcome.stdout.as_str()),
            (Some(125), RemainingState::Reset, ""),
            "{command}: {outcome:?}"
        );
        assert!(outcome.stderr.contains("the session is reset"), "{command}: {outcome:?}");
        assert_eq!(printed(&session, "echo next"), "next\n", "{command}");
    }
    for command in ["set -t", "set -v", "exec >/dev/null", "exec 0<&- 1>&- 2>&-", "trap '' INT TERM"] {
        run(&session, command);
        assert_eq!(printed(&session, "echo next"), "next\n", "{command}");
    }
}

#[test]
fn hostile_commands_lose_nothing_but_themselves() {
    let session = open();
    run(&session, "x=1");
    let commands = [
        "kill -9 -1; while :; do :; done",
        "for p in $(seq 2 300); do [ $p = $BASHPID ] || kill -9 $p 2>/dev/null; done; while :; do :; done",
        "setsid sh -c 'setsid sleep 600 & setsid sleep 600' & sleep 600",
        "trap '' INT TERM; (trap '' INT TERM; while :; do :; done) & while :; do :; done",
        "kill -STOP $BASHPID; sleep 600",
    ];
    for command in commands {
        let outcome = session.execute(within(&format!("x=2; {command}"), 200), &mut |_| {}).expect("a run");
        assert_eq!(
            (outcome.ending, outcome.tree.survivors),
            (Ending::Timeout, Some(0)),
            "{command}: {outcome:?}"
        );
        let info = session.info();
        assert_eq!(outcome.state, RemainingState::RolledBack, "{command}: {info:?} {outcome:?}");
        assert_eq!(printed(&session, "x=1; echo $x"), "1\n", "{command}");
    }
    let outcome = run(&session, "kill -9 $BASHPID");
    assert_eq!(
        (outcome.ending, outcome.signal.as_deref(), outcome.state),
        (Ending::Signaled, Some("SIGKILL"), RemainingState::Reset),
        "{outcome:?}"
    );
    assert_eq!(printed(&session, "echo $x"), "\n");
}

#[test]
fn scripts_mean_what_they_mean_at_the_top_level() {
    let session = open();
    assert_eq!(
        printed(&session, "cat <<'END'\n$x `y`\nEND\nread a b <<< 'one two'; echo $b"),
        "$x `y`\ntwo\n"
    );
    assert_eq!(run(&session, "if then").exit_code, Some(2));
    assert_eq!(printed(&session, "break 2>/dev/null; declare y=3"), "");
    assert_eq!(printed(&session, "echo $y; exec 3>file; echo there >&3"), "3\n");
    assert_eq!(printed(&session, "echo more >&3; exec 3>&-; cat file; cat"), "there\nmore\n");
    assert_eq!(printed(&session, "head -c 5000000 /dev/zero | tr '\\0' x").len(), 5_000_000);
    assert_eq!(printed(&session, "sleep 0.3 & echo $! > n; jobs -p | diff n - && wait %1; echo $?"), "0\n");
    let stdin = CellSpec { stdin: Some(b"given".to_vec()), ..within("cat", 20_000) };
    assert_eq!(session.execute(stdin, &mut |_| {}).expect("a run").stdout, "given");
    let long = format!("echo '{}' | wc -c", "y".repeat(300_000));
    assert_eq!(printed(&session, &long), "300001\n");
    assert!(session.undo().expect("the shell lives"));
}

#[test]
fn no_part_of_a_command_is_executed_after_its_wall() {
    let session = open();
    let list = "sleep 10; touch /tmp/behind; (while :; do date +%s%N > /tmp/beat; sleep 0.02; done) &";
    let outcome = session.execute(within(list, 500), &mut |_| {}).expect("a run");
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    let alive = "ls /tmp; one=$(cat /tmp/beat 2>/dev/null); sleep 0.3; [ \"$one\" = \"$(cat /tmp/beat 2>/dev/null)\" ] || echo runs";
    assert_eq!(printed(&session, alive), "");
}

#[test]
fn loop_with_many_processes_is_rolled_back() {
    let session = open();
    run(&session, "x=1");
    let many = "x=2; for ((i = 0; i < 400; i++)); do sleep 1000 & done; while :; do :; done";
    let outcome = session.execute(within(many, 3000), &mut |_| {}).expect("a run");
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!(printed(&session, "echo $x"), "1\n");
}

/// What Sandtimer has the shell execute around a command is neither traced nor trapped where the
/// command writes.
#[test]
fn tracing_and_debug_traps_show_the_command_alone() {
    let session = open();
    run(&session, "set -x");
    assert_eq!(run(&session, "echo hi").stderr, "++ echo hi\n");
    run(&session, "set +x; trap 'echo dbg:$BASH_COMMAND' DEBUG");
    assert_eq!(run(&session, "echo hi").stdout, "dbg:echo hi\nhi\n");
    run(&session, "trap - DEBUG; trap 'echo err:$BASH_COMMAND' ERR");
    assert_eq!(run(&session, "false").stdout, "err:false\n");
}
