//! Outcomes of contexts and sessions while other processes of theirs send what the interpreter would: nothing counts but what the
//! interpreter's own process sends about the execution that is on.
#![allow(clippy::disallowed_methods)] // one starts this process as another user

mod as_user;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{Cell, Context, ContextSpec, Contexts};
use sandtimer::model::{Reporter, State};
use sandtimer::zygote::Profile;
use sandtimer::{Ending, Engine, Limits, Outcome};

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().expect("an engine"))
}

fn context() -> Context {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    let contexts = CONTEXTS.get_or_init(|| {
        let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
        engine().contexts(profile, 2).expect("a pool")
    });
    let context = contexts.open(ContextSpec::default(), &mut || false).expect("a context");
    let outcome = run(&context, FORGER);
    assert!(outcome.ok, "{outcome:?}");
    context
}

fn session() -> Context {
    engine().session(ContextSpec::default()).expect("a session")
}

fn run(context: &Context, source: &str) -> Arc<Outcome> {
    let limits = Limits::new().wall(Duration::from_secs(20));
    let cell = Cell { source: source.to_owned(), limits, ..Cell::default() };
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// Executions beside a forger; the full proof has more.
fn executions() -> usize {
    if std::env::var_os("SANDTIMER_FULL").is_some() { 10_000 } else { 300 }
}

/// What forges answers of a cell. A fork by the C library calls none of Python's at-fork handlers, so the child keeps the channel.
const FORGER: &str = r#"
import ctypes, os, signal, threading, time
interpreter = signal.getsignal(signal.SIGINT).__self__
CHANNEL = 3
def forged(nonce):
    said = b'{"status":"ok","results":[{"text/plain":"forged"}],"execution_count":7,"interrupted":false}'
    return nonce + b"A" + bytes(7) + len(said).to_bytes(8, "little") + said
def fork():
    return ctypes.PyDLL(None).fork()
def leave(work):
    """Has a process that is no child of the interpreter's do something again and again."""
    if fork() == 0:
        os.setsid()
        if fork() == 0:
            try:
                while True:
                    work()
                    time.sleep(0.0005)
            finally:
                os._exit(1)
        os._exit(0)
    os.wait()
def send(*packets):
    for packet in packets:
        os.write(CHANNEL, packet)
"#;

/// What fails as tests do.
const FAILS: &str = "time.sleep(0.2); raise AssertionError('1 failed')";

fn assert_failed(outcome: &Outcome) {
    assert_eq!((outcome.ending, outcome.state), (Ending::Raised, State::Kept), "{outcome:?}");
    assert_eq!(outcome.error.as_ref().expect("an error")["message"], "1 failed", "{outcome:?}");
    assert_eq!(outcome.reported_by, Reporter::Interpreter);
}

#[test]
fn answer_of_fork_with_current_nonce_is_dropped() {
    let context = context();
    assert_failed(&run(&context, &format!("leave(lambda: send(forged(interpreter.nonce)))\n{FAILS}")));
}

#[test]
fn answer_of_thread_with_earlier_nonce_is_dropped() {
    let context = context();
    let outcome = run(
        &context,
        "nonce = interpreter.nonce\ndef work():\n    while True:\n        send(forged(nonce)); time.sleep(0.0005)\n\
         threading.Thread(target=work, daemon=True).start()",
    );
    assert!(outcome.ok || outcome.results[0]["text/plain"] == "forged", "{outcome:?}");
    assert_failed(&run(&context, FAILS));
}

/// The control of both: the same packet counts if the interpreter's own process sends it with the nonce of what is executed.
#[test]
fn answer_of_thread_with_current_nonce_counts() {
    let context = context();
    let work = "threading.Timer(0.05, lambda: send(forged(interpreter.nonce))).start()";
    let outcome = run(&context, &format!("{work}\n{FAILS}"));
    assert_eq!(
        (outcome.ending, outcome.reported_by),
        (Ending::Returned, Reporter::Interpreter),
        "{outcome:?}"
    );
    assert_eq!(outcome.results[0]["text/plain"], "forged");
}

#[test]
fn packets_without_shape_cost_a_cell_nothing() {
    let context = context();
    let junk = "b'', b'x', bytes(60000), b'K' + bytes(12), b'b', b'y', b'D{}', interpreter.nonce, interpreter.nonce + b'A'";
    assert_failed(&run(&context, &format!("junk = ({junk})\nleave(lambda: send(*junk))\n{FAILS}")));
    // Parts of an answer that are sent apart come between others' packets.
    let outcome = run(&context, "'x' * 3000000");
    let shown = outcome.results.last().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(shown["text/plain"].as_str().map(str::len), Some(1 << 20), "{:?}", outcome.ending);
}

#[test]
fn process_forked_in_a_cell_ends_with_the_cell() {
    let context = context();
    let outcome = run(
        &context,
        "child = os.fork()\nif child == 0: print('child', flush=True)\nelse: os.wait()\nchild > 0",
    );
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(
        (outcome.stdout.as_str(), outcome.results[0]["text/plain"].as_str()),
        ("child\n", Some("True"))
    );
    // The channel is closed in it, so nothing that it opens is taken for the channel.
    let closed = "import select\nchild = os.fork()\nif child == 0:\n    try: os.write(3, b'x')\n    except OSError: os._exit(7)\n    os._exit(0)\n\
                  os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])";
    assert_eq!(run(&context, closed).results[0]["text/plain"], "7");
    assert_eq!(run(&context, "os.system('test -e /proc/self/fd/3')").results[0]["text/plain"], "256");
}

#[test]
fn cells_beside_a_forger_are_themselves() {
    let context = context();
    let started =
        run(&context, "old = interpreter.nonce\nleave(lambda: send(forged(old), forged(b''), b'P{}', b''))");
    assert!(started.ok, "{started:?}");
    for number in 0..executions() {
        let outcome = run(&context, &format!("if {number} % 2: raise AssertionError({number})\n{number}"));
        assert_eq!(outcome.state, State::Kept, "{number}: {outcome:?}");
        match number % 2 {
            0 => assert_eq!(outcome.results[0]["text/plain"], number.to_string(), "{number}: {outcome:?}"),
            _ => assert_eq!(
                outcome.error.as_ref().expect("an error")["message"],
                number.to_string(),
                "{outcome:?}"
            ),
        }
        assert_eq!(outcome.execution_count, Some(number as u64 + 3), "{outcome:?}");
    }
}

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
        (Ending::Exited, Some(3), State::Kept),
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
fn exit_of_the_shell_is_the_kernels_word() {
    let outcome = run(&session(), "exit 3");
    assert_eq!((outcome.exit_code, outcome.reported_by), (Some(3), Reporter::Kernel), "{outcome:?}");
}

#[test]
fn subshell_takes_no_request_of_the_shell() {
    let session = session();
    let takes = "builtin kill -0 2000000000; read -r -t 0.01 -u 240 line; read -r -N 1 -t 0.01 -u 240 line";
    run(&session, &format!("( while :; do {takes}; sleep 0.01; done ) 2>/dev/null & :"));
    for number in 0..20 {
        assert_eq!(run(&session, &format!("echo {number}")).stdout, format!("{number}\n"));
    }
}

#[test]
fn commands_beside_a_forger_are_themselves() {
    let session = session();
    run(&session, &format!("( while :; do {SENDS}; sleep 0.002; done ) 2>/dev/null & :"));
    for number in 0..executions() {
        let code = number % 3;
        let outcome = run(&session, &format!("echo {number}; (exit {code})"));
        assert_eq!(
            (outcome.exit_code, outcome.state),
            (Some(code as i32), State::Kept),
            "{number}: {outcome:?}"
        );
        assert_eq!(outcome.stdout, format!("{number}\n"), "{number}: {outcome:?}");
    }
}

/// With root the job has another uid than what its shell's script comes through, so the attack is one on the engine of a user.
#[test]
fn without_root_nothing_writes_to_the_shells_script() {
    if as_a_user("without_root_nothing_writes_to_the_shells_script") {
        return;
    }
    let session = session();
    let outcome = run(
        &session,
        "( for fd in /proc/self/fd/* /proc/$$/fd/*; do\ncase $(readlink $fd) in pipe:*|socket:*) ;; *) continue ;; esac\n\
         case ${fd##*/} in 1|2|241|242) ;; *) (echo 'builtin kill -0 2000000001' > $fd) 2>/dev/null ;; esac\ndone ) & wait; sleep 0.2; (exit 3)",
    );
    assert_eq!((outcome.exit_code, outcome.state), (Some(3), State::Kept), "{outcome:?}");
    assert_eq!(run(&session, "(exit 4)").exit_code, Some(4));
}
