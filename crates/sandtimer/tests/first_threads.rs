//! Processes whose first thread has ended while others run, and numbers that another process has taken over: init knows what is alive
//! by more than a letter in /proc and a number.
#![allow(clippy::disallowed_methods)] // one waits to see that nothing happens, and reads the output of a script

mod live;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use live::{python_context, session};
use sandtimer::engine::Context;
use sandtimer::model::State;
use sandtimer::{Ending, Outcome};

fn within(context: &Context, source: &str, wall_milliseconds: u64) -> Arc<Outcome> {
    live::within(context, source, Duration::from_millis(wall_milliseconds))
}

/// Becomes a process that /proc shows as `Z`, of which a thread beats.
const BEATS: &str = r"
import ctypes, os, threading, time
def beat():
    number = 0
    while True:
        number += 1
        open('/tmp/beat', 'w').write(str(number))
        time.sleep(0.01)
def leave_first_thread():
    threading.Thread(target=beat).start()
    while not os.path.exists('/tmp/beat'): time.sleep(0.01)
    ctypes.CDLL(None).syscall(60, 0)
";

const LOOKS: &str = "
def state(pid): return open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[0]
def beats():
    first = open('/tmp/beat').read()
    time.sleep(0.3)
    return open('/tmp/beat').read() != first
";

#[test]
fn process_without_first_thread_ends_with_its_cell() {
    let context = python_context();
    assert!(within(&context, &format!("{BEATS}{LOOKS}"), 20_000).ok);
    let leaves = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nchild = os.fork()\nif child == 0: os.setsid(); leave_first_thread()\n\
                  while not os.path.exists('/tmp/beat') or state(child) != 'Z': time.sleep(0.01)\n\
                  print('ended and beats', beats(), flush=True)\nwhile True: pass";
    let outcome = within(&context, leaves, 3_000);
    assert_eq!(outcome.stdout, "ended and beats True\n", "{outcome:?}");
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, State::RolledBack), "{outcome:?}");
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
    let outcome = within(&context, "beats()", 20_000);
    assert_eq!(outcome.results[0]["text/plain"], "False", "it outlived its cell: {outcome:?}");
}

#[test]
fn child_without_first_thread_keeps_a_checkpoint_from_being_made() {
    let context = python_context();
    let outcome = within(
        &context,
        &format!(
            "{BEATS}{LOOKS}\nchild = os.fork()\nif child == 0: leave_first_thread()\nwhile state(child) != 'Z': time.sleep(0.01)"
        ),
        20_000,
    );
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(outcome.tree.survivors, None, "{outcome:?}");
    let why = context.settled_info().checkpoint.expect_err("a copy has no children");
    assert!(why.contains("1 processes"), "{why}");
}

#[test]
fn process_without_first_thread_ends_with_its_command() {
    let session = session();
    let script = BEATS.replace('\'', "\"");
    let leaves = format!(
        "python3 -c '{script}\nleave_first_thread()' & until test -e /tmp/beat; do sleep 0.01; done; sleep 0.3; sleep 60"
    );
    let outcome = within(&session, &leaves, 3_000);
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    let outcome = within(&session, "cat /tmp/beat; sleep 0.3; cat /tmp/beat", 20_000);
    let (first, second) = outcome.stdout.split_at(outcome.stdout.len() / 2);
    assert_eq!(first, second, "it outlived its command");
}

/// Makes a process of the same pid namespace as the process with a marker, with the number that is given, and says whether it is
/// killed within some seconds.
const TAKES_NUMBER: &str = r"
import ctypes, os, signal, struct, sys, time
marker, number = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def find():
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open('/proc/%s/cmdline' % pid).read().split('\0')[0] == marker: return int(pid)
        except OSError: pass
end = time.monotonic() + 20
while not (found := find()) and time.monotonic() < end: time.sleep(0.01)
if libc.setns(os.pidfd_open(found), 0x20000000) != 0: sys.exit('setns: %d' % ctypes.get_errno())
tids = (ctypes.c_int * 1)(number)
arguments = struct.pack('11Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(tids), 1, 0)
while True:
    child = ctypes.PyDLL(None, use_errno=True).syscall(435, arguments, len(arguments))
    if child >= 0 or ctypes.get_errno() != 17 or time.monotonic() > end: break
    time.sleep(0.01)
if child == 0:
    time.sleep(60)
    os._exit(0)
if child < 0: sys.exit('clone3: %d' % ctypes.get_errno())
end = time.monotonic() + 10
while time.monotonic() < end:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        print('killed' if os.WIFSIGNALED(status) else 'ended')
        sys.exit()
    time.sleep(0.01)
os.kill(child, 9)
print('outlived')
";

fn taken_over(session: &Context, marker: &str, elder: &str, while_it_runs: &str) -> String {
    let script = Command::new("python3")
        .args(["-c", TAKES_NUMBER, marker, elder])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3");
    let outcome = within(session, &format!("{while_it_runs}; ( exec -a {marker} sleep 60 )"), 2_000);
    let output = script.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    said
}

#[test]
fn number_of_an_earlier_process_spares_nothing_else() {
    let session = session();
    let elder = within(&session, "sleep 1000 >/dev/null 2>&1 & echo $!", 20_000).stdout.trim().to_owned();
    assert_eq!(within(&session, "sleep 60", 300).ending, Ending::Timeout);
    let outcome = within(&session, &format!("kill -0 {elder} && echo alive"), 20_000);
    assert_eq!(outcome.stdout, "alive\n", "what an earlier command has left is spared");
    let marker = format!("st-number-{}", std::process::id());
    let said = taken_over(&session, &marker, &elder, &format!("kill -9 {elder}; wait {elder} 2>/dev/null"));
    assert_eq!(said, "killed");
}
