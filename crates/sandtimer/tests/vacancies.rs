//! Sandboxes that see several calls, one after the other: only where the last has left nothing.

use crate::programs;

use std::io::Write;

use programs::program;
use sandtimer::engine::{CallEvent, Calls, Engine};
use sandtimer::model::{Ending, Outcome, Proof};
use sandtimer::zygote::Profile;

/// Which sandbox it is: the private file systems of two never have one number at a time, nor were
/// they made at one time.
const NAME: &str = "import os\nprint(os.stat('/tmp').st_dev, os.stat('/tmp').st_ctime_ns)\n";

/// This many jobs use each jail of a pool at least twice, however far it has grown.
const JOBS_PER_TEST: usize = 40;

/// The name of the sandbox that the program ran in, and its outcome.
fn run(calls: &Calls, source: &str) -> (String, Outcome) {
    calls.warm(1, &mut || false).expect("a child");
    let call = calls.call(program(&format!("{NAME}{source}")), &mut || false).expect("a call");
    let CallEvent::Answer(answer) = call.wait().expect("no signal comes here") else {
        panic!("{:?}", call.run().wait_blocking())
    };
    assert!(call.accept(answer.kind));
    let outcome = (*call.run().settled_blocking()).clone();
    assert_eq!(outcome.ending, Ending::Returned, "{source}: {outcome:?}");
    assert_eq!(outcome.tree.survivors, Some(0), "{source}");
    let name = outcome.stdout.lines().next().unwrap_or_default().to_owned();
    (name, outcome)
}

fn pool() -> Option<Calls> {
    let engine = Engine::new().expect("an engine");
    let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    let calls = engine.calls(profile, 1).expect("a pool");
    let (_, outcome) = run(&calls, "");
    let ends_jobs_alone = outcome.isolation.kill == sandtimer::model::KillClass::K3;
    if !ends_jobs_alone {
        let _ =
            writeln!(std::io::stderr(), "skipped: without a v2 control group a job ends with its sandbox");
    }
    ends_jobs_alone.then_some(calls)
}

/// Names of the jails of this many jobs that leave no residue.
fn names(calls: &Calls, count: usize) -> Vec<String> {
    (0..count).map(|_| run(calls, "").0).collect()
}

#[test]
fn jail_without_residue_treats_the_next_job_as_new() {
    let Some(calls) = pool() else { return };
    // A job that begins within the tick of the clock in which its jail was made ends with the jail.
    let mut proofs = (0..JOBS_PER_TEST).map(|_| run(&calls, "").1.tree.proof);
    assert!(proofs.any(|proof| proof == Proof::SubreaperSweep), "every sandbox ends with its job");
    let mut hostnames = names(&calls, JOBS_PER_TEST);
    hostnames.sort();
    hostnames.dedup();
    assert!(hostnames.len() < JOBS_PER_TEST, "{JOBS_PER_TEST} jobs had {} sandboxes", hostnames.len());
    assert!(calls.stats().reused > 0, "{:?}", calls.stats());
    for _ in 0..JOBS_PER_TEST {
        let (_, outcome) = run(&calls, "print(os.getpid(), sorted(os.listdir('/tmp')), os.listdir('.'))");
        assert_eq!(outcome.stdout.lines().nth(1), Some("2 [] []"));
    }
}

#[test]
fn what_one_job_used_is_not_on_the_bill_of_the_next() {
    let Some(calls) = pool() else { return };
    let (_, large) = run(&calls, "x = bytearray(200 << 20)\nfor i in range(10**7): pass");
    assert!(large.usage.memory_peak_bytes > 200 << 20, "{:?}", large.usage);
    for _ in 0..JOBS_PER_TEST {
        let (_, small) = run(&calls, "");
        assert!(small.usage.memory_peak_bytes < 50 << 20, "{:?}", small.usage);
        assert!(small.usage.user_ms + small.usage.system_ms < large.usage.user_ms, "{small:?} {large:?}");
        assert_eq!(small.usage.processes_peak, 1);
    }
}

/// What a job can leave for another, and how.
const TRACES: &[(&str, &str)] = &[
    ("a file in /tmp", "open('/tmp/x', 'w').write('x')"),
    ("a file in /dev/shm", "open('/dev/shm/x', 'w').write('x')"),
    ("a file in its workspace", "open('x', 'w').write('x')"),
    ("a file in its home", "open(os.path.expanduser('~/x'), 'w').write('x')"),
    ("a file that is gone again", "open('/tmp/x', 'w').close(); os.unlink('/tmp/x')"),
    ("a directory", "os.mkdir('/tmp/x')"),
    ("a link", "os.symlink('/', '/tmp/x')"),
    ("a socket", "import socket; socket.socket(socket.AF_UNIX).bind('/tmp/x')"),
    (
        "a segment of System V",
        "import ctypes; assert ctypes.CDLL(None).shmget(77, 4096, 0o1666) >= 0, 'refused'",
    ),
    ("a set of semaphores", "import ctypes; assert ctypes.CDLL(None).semget(77, 1, 0o1666) >= 0, 'refused'"),
    ("a queue of System V", "import ctypes; assert ctypes.CDLL(None).msgget(77, 0o1666) >= 0, 'refused'"),
    (
        "a packet on its loopback",
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); s.sendto(b'x', s.getsockname())",
    ),
    (
        "a connection in TIME_WAIT",
        "import socket; a = socket.create_server(('127.0.0.1', 0)); b = socket.create_connection(a.getsockname()); b.close()",
    ),
    ("a connection that failed", "import socket; assert socket.socket().connect_ex(('192.0.2.1', 80)) != 0"),
    (
        "a connection over IPv6 that failed",
        "import socket; assert socket.socket(socket.AF_INET6).connect_ex(('2001:db8::1', 80)) != 0",
    ),
    ("a process", "os.fork() or __import__('time').sleep(60)"),
    ("a daemon", "os.fork() or (os.setsid(), os.fork() or __import__('time').sleep(60), os._exit(0))"),
    (
        "a thread",
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ),
    ("a process that is gone again", "os.waitpid(os.fork() or os._exit(0), 0)"),
];

#[test]
fn a_sandbox_in_which_anything_is_left_is_not_used_again() {
    let Some(calls) = pool() else { return };
    let mut used_again: Vec<&str> = Vec::new();
    for (what, how) in TRACES {
        let (left, _) = run(&calls, how);
        let later = names(&calls, JOBS_PER_TEST);
        used_again.extend(later.contains(&left).then_some(*what));
        let again = |name: &String| later.iter().filter(|other| *other == name).count() > 1;
        assert!(later.iter().any(again), "control: after {what} no sandbox was used again: {later:?}");
    }
    assert!(used_again.is_empty(), "used again after {used_again:?}");
}

/// A message queue outlives its process, is in no directory, and is there before Landlock is asked.
#[test]
#[allow(clippy::disallowed_methods, reason = "the control is a bare process on purpose")]
fn a_job_cannot_make_a_message_queue() {
    const MAKE: &str = "import ctypes, errno
library = ctypes.CDLL('librt.so.1', use_errno=True)
print(library.mq_open(b'/sandtimer-test', 0o102, 0o600, None), errno.errorcode.get(ctypes.get_errno()))
print(library.mq_unlink(b'/sandtimer-test'), errno.errorcode.get(ctypes.get_errno()))";
    let Some(calls) = pool() else { return };
    let (_, outcome) = run(&calls, MAKE);
    let lines: Vec<&str> = outcome.stdout.lines().skip(1).collect();
    // The C library itself returns EACCES if a queue may not be removed.
    assert_eq!(lines, ["-1 EPERM", "-1 EACCES"]);
    let outside = std::process::Command::new("python3").args(["-c", MAKE]).output().expect("python3 runs");
    let printed = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert!(!printed.starts_with("-1"), "control: outside it can be made: {printed}");
}
