//! Processes whose first thread has ended while others run, and numbers that another process has
//! taken over: init knows what is alive by more than a letter in /proc and a number.
#![allow(clippy::disallowed_methods)] // one waits to see that nothing happens, and reads the output of a script

use crate::as_user;
use crate::live;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use live::{python_context, session};
use sandtimer::engine::{Context, Run};
use sandtimer::model::{RemainingState, Tier};
use sandtimer::{Ending, Engine, Limits, Options, Outcome, Spec};

/// With a limit of memory: without a control group, init samples what is used because of it.
fn limits(wall_milliseconds: u64) -> Limits {
    Limits::new().wall(Duration::from_millis(wall_milliseconds)).memory(1 << 30)
}

fn within(context: &Context, source: &str, wall_milliseconds: u64) -> Arc<Outcome> {
    live::under(context, source, limits(wall_milliseconds))
}

/// Becomes a process that /proc shows as `Z`, of which a thread uses a processor: it writes the
/// time that it has had, in seconds.
const BEATS: &str = r"
import ctypes, os, threading, time
PLACE = os.environ.get('BEAT', '/tmp/beat')
def beat():
    while True:
        for _ in range(20000): pass
        with open(PLACE + '.new', 'w') as file: file.write('%09.3f' % time.thread_time())
        os.replace(PLACE + '.new', PLACE)
def leave_first_thread():
    threading.Thread(target=beat).start()
    while not os.path.exists(PLACE): time.sleep(0.01)
    ctypes.CDLL(None).syscall(60, 0)
";

const SAMPLES_STATE: &str = "
def state(pid): return open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[0]
def beats():
    first = open('/tmp/beat').read()
    time.sleep(0.3)
    return open('/tmp/beat').read() != first
";

/// The processor time that was charged to a run is that of the thread, as far as samples go.
fn assert_charged(outcome: &Outcome, thread_seconds: &str) {
    let used: f64 = thread_seconds.trim().parse().expect("seconds");
    let charged = (outcome.usage.user_ms + outcome.usage.system_ms) as f64 / 1000.0;
    assert!(used > 0.5, "the thread has had {used} s: {outcome:?}");
    assert!(charged >= used * 0.7, "{charged} s are charged of {used} s: {outcome:?}");
}

fn ends_with_its_cell() {
    let context = python_context();
    assert!(within(&context, &format!("{BEATS}{SAMPLES_STATE}"), 20_000).ok);
    let leaves = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nchild = os.fork()\nif child == 0: os.setsid(); leave_first_thread()\n\
                  while not os.path.exists('/tmp/beat') or state(child) != 'Z': time.sleep(0.01)\n\
                  print('ended and beats', beats(), flush=True)\nwhile True: time.sleep(1)";
    let outcome = within(&context, leaves, 4_000);
    assert_eq!(outcome.stdout, "ended and beats True\n", "{outcome:?}");
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
    let after = within(&context, "print(open('/tmp/beat').read()); beats()", 20_000);
    assert_eq!(after.results[0]["text/plain"], "False", "it outlived its cell: {after:?}");
    assert_charged(&outcome, &after.stdout);
}

#[test]
fn process_without_first_thread_ends_with_its_cell() {
    ends_with_its_cell();
}

#[test]
fn process_without_first_thread_ends_with_cell_as_user() {
    if !as_a_user("process_without_first_thread_ends_with_cell_as_user") {
        ends_with_its_cell();
    }
}

#[test]
fn child_without_first_thread_prevents_a_checkpoint() {
    let context = python_context();
    let outcome = within(
        &context,
        &format!(
            "{BEATS}{SAMPLES_STATE}\nchild = os.fork()\nif child == 0: leave_first_thread()\nwhile state(child) != 'Z': time.sleep(0.01)"
        ),
        20_000,
    );
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(outcome.tree.survivors, None, "{outcome:?}");
    let why = context.settled_info().checkpoint.expect_err("a copy has no children");
    assert!(why.contains("1 processes"), "{why}");
}

/// A shell's command that leaves such a process and waits.
fn leaves_and_waits() -> String {
    let script = BEATS.replace('\'', "\"");
    format!(
        "export BEAT=${{BEAT:-/tmp/beat}}; setsid python3 -c '{script}\nleave_first_thread()' & \
         until test -e $BEAT; do sleep 0.01; done; sleep 60"
    )
}

fn ends_with_its_command() {
    let session = session();
    let outcome = within(&session, &leaves_and_waits(), 4_000);
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    let after = within(&session, "cat /tmp/beat; echo; sleep 0.3; cat /tmp/beat", 20_000);
    let (first, second) = after.stdout.split_once('\n').expect("two");
    assert_eq!(first, second, "it outlived its command");
    assert_charged(&outcome, first);
}

#[test]
fn process_without_first_thread_ends_with_its_command() {
    ends_with_its_command();
}

#[test]
fn process_without_first_thread_ends_with_command_as_user() {
    if !as_a_user("process_without_first_thread_ends_with_command_as_user") {
        ends_with_its_command();
    }
}

/// A directory that every user may write.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), mode).expect("own directory");
    directory
}

/// Starts a run that leaves such a process, which writes to a directory. At T1 there are neither
/// contexts nor sessions.
fn run_at_t1(directory: &Path, wall_milliseconds: u64) -> Run {
    let options = Options { no_namespaces: true, ..Options::default() };
    let engine = Engine::with_options(options).expect("an engine");
    let mut spec =
        Spec::command(["/bin/bash", "-c", &leaves_and_waits()]).env("BEAT", directory.join("beat"));
    spec.workspaces = vec![directory.to_owned()];
    spec.limits = limits(wall_milliseconds);
    engine.start(spec).expect("a run")
}

fn assert_silent(beat: &Path) -> String {
    let first = std::fs::read_to_string(beat).expect("it has beaten");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(first, std::fs::read_to_string(beat).expect("it has beaten"), "it outlived its run");
    first
}

/// No pid namespace ends it, and cgroup.kill does not.
fn ends_with_its_run_at_t1() {
    let directory = open_directory();
    let outcome = run_at_t1(directory.path(), 4_000).settled_blocking();
    assert_eq!((outcome.ending, outcome.isolation.tier), (Ending::Timeout, Tier::T1), "{outcome:?}");
    assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
    assert_charged(&outcome, &assert_silent(&directory.path().join("beat")));
}

#[test]
fn process_without_first_thread_ends_with_its_run_at_t1() {
    ends_with_its_run_at_t1();
}

#[test]
fn process_without_first_thread_ends_with_run_at_t1_user() {
    if !as_a_user("process_without_first_thread_ends_with_run_at_t1_user") {
        ends_with_its_run_at_t1();
    }
}

/// The watchdog ends it where the engine is gone.
#[test]
fn process_without_first_thread_dies_with_engine_at_t1() {
    const DIRECTORY_VARIABLE: &str = "SANDTIMER_TEST_PLACE";
    if let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) {
        run_at_t1(Path::new(&directory), 60_000).settled_blocking();
        return;
    }
    let directory = open_directory();
    let mut engine = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "first_threads::process_without_first_thread_dies_with_engine_at_t1"])
        .env(DIRECTORY_VARIABLE, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let beat = directory.path().join("beat");
    for _ in 0..2_000 {
        if beat.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Its first thread ends now.
    std::thread::sleep(Duration::from_millis(500));
    engine.kill().expect("killed");
    engine.wait().expect("its end");
    std::thread::sleep(Duration::from_secs(1));
    assert_silent(&beat);
}

/// Makes a process of the same pid namespace as the process with a marker, with the given PID, and
/// prints whether it is killed within some seconds.
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
    let reply = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    reply
}

#[test]
fn pid_of_an_earlier_process_protects_no_other() {
    let session = session();
    let elder = within(&session, "sleep 1000 >/dev/null 2>&1 & echo $!", 20_000).stdout.trim().to_owned();
    assert_eq!(within(&session, "sleep 60", 300).ending, Ending::Timeout);
    let outcome = within(&session, &format!("kill -0 {elder} && echo alive"), 20_000);
    assert_eq!(outcome.stdout, "alive\n", "what an earlier command has left is spared");
    let marker = format!("st-number-{}", std::process::id());
    let reply = taken_over(&session, &marker, &elder, &format!("kill -9 {elder}; wait {elder} 2>/dev/null"));
    assert_eq!(reply, "killed");
}
