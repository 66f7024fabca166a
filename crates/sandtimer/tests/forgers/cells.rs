//! Python contexts: only the interpreter's own process answers, and only about the cell that is
//! executed.

use sandtimer::engine::Context;
use sandtimer::model::{RemainingState, Reporter};
use sandtimer::{Ending, Outcome};

use super::executions;
use crate::live::{python_context, run};

fn context_with_forger() -> Context {
    let context = python_context();
    let outcome = run(&context, FORGER);
    assert!(outcome.ok, "{outcome:?}");
    context
}

/// What forges answers of a cell. A fork by the C library calls none of Python's at-fork handlers,
/// so the child keeps the channel.
const FORGER: &str = r#"
import ctypes, os, signal, threading, time
interpreter = display.__self__
CHANNEL = 3
def forged(nonce):
    said = b'{"status":"ok","results":[{"text/plain":"forged"}],"execution_count":7,"interrupted":false}'
    return nonce + b"A" + bytes(7) + len(said).to_bytes(8, "little") + said
def fork():
    return ctypes.PyDLL(None).fork()
def leave(work):
    """Has a process that is not a child of the interpreter do something repeatedly."""
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
    assert_eq!((outcome.ending, outcome.state), (Ending::Raised, RemainingState::Kept), "{outcome:?}");
    assert_eq!(outcome.error.as_ref().expect("an error")["message"], "1 failed", "{outcome:?}");
    assert_eq!(outcome.reported_by, Reporter::Interpreter);
}

#[test]
fn answer_of_fork_with_current_nonce_is_dropped() {
    let context = context_with_forger();
    assert_failed(&run(&context, &format!("leave(lambda: send(forged(interpreter.nonce)))\n{FAILS}")));
}

#[test]
fn answer_of_thread_with_earlier_nonce_is_dropped() {
    let context = context_with_forger();
    let outcome = run(
        &context,
        "nonce = interpreter.nonce\ndef work():\n    while True:\n        send(forged(nonce)); time.sleep(0.0005)\n\
         threading.Thread(target=work, daemon=True).start()",
    );
    assert!(outcome.ok || outcome.results[0]["text/plain"] == "forged", "{outcome:?}");
    assert_failed(&run(&context, FAILS));
}

/// The control of both: the same packet counts if the interpreter's own process sends it with the
/// nonce of what is executed.
#[test]
fn answer_of_thread_with_current_nonce_counts() {
    let context = context_with_forger();
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
    let context = context_with_forger();
    let junk = "b'', b'x', bytes(60000), b'K' + bytes(12), b'b', b'y', b'D{}', interpreter.nonce, interpreter.nonce + b'A'";
    assert_failed(&run(&context, &format!("junk = ({junk})\nleave(lambda: send(*junk))\n{FAILS}")));
    // Parts of an answer that are sent apart come between others' packets.
    let outcome = run(&context, "'x' * 3000000");
    let shown = outcome.results.last().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(shown["text/plain"].as_str().map(str::len), Some(1 << 20), "{:?}", outcome.ending);
}

#[test]
fn process_forked_in_a_cell_ends_with_the_cell() {
    let context = context_with_forger();
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
fn cells_with_a_forger_keep_their_results() {
    let context = context_with_forger();
    let forges = "old = interpreter.nonce; sent = os.open('/tmp/sent', os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n\
                  leave(lambda: (send(forged(old), forged(b''), b'P{}', b''), os.write(sent, b'.')))";
    let started = run(&context, forges);
    assert!(started.ok, "{started:?}");
    for number in 0..executions() {
        let outcome = run(&context, &format!("if {number} % 2: raise AssertionError({number})\n{number}"));
        assert_eq!(outcome.state, RemainingState::Kept, "{number}: {outcome:?}");
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
    let sent = run(&context, "os.path.getsize('/tmp/sent')").results[0]["text/plain"].clone();
    let sent: usize = sent.as_str().expect("a number").parse().expect("a number");
    assert!(sent > executions() / 10, "the forger did not run: {sent} rounds");
    println!("{} cells with {sent} rounds of forged packets: none forged, none cut short", executions());
}
