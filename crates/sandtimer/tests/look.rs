//! What inspections show of active runs: real ones, each of which hangs in another way.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use std::time::{Duration, Instant};

use sandtimer::engine::{Engine, Run, Spec, Stdin};
use sandtimer::model::WaitingFor;
use sandtimer::supervise::RunInspection;

/// Time for a run to come to where it hangs.
const HARD_STOP: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script])
}

fn python(code: &str) -> Spec {
    Spec::command(["python3", "-c", code])
}

/// An open stdin to which the caller does not write.
fn piped(mut spec: Spec) -> Spec {
    spec.stdin = Stdin::Piped;
    spec
}

/// Ways to hang, and what a look should make of each.
fn hangs() -> Vec<(&'static str, Spec, WaitingFor)> {
    use WaitingFor::*;
    let threads =
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(1000)).start()\nwhile True: pass";
    let joined =
        "import threading, time\nt = threading.Thread(target=lambda: time.sleep(1000))\nt.start()\nt.join()";
    let held = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()";
    let in_a_thread = "import threading\nlock = threading.Lock()\nlock.acquire()\n\
        t = threading.Thread(target=lock.acquire)\nt.start()\nt.join()";
    let deadlock = "import threading, time\na, b = threading.Lock(), threading.Lock()\n\
        def both(one, other):\n with one:\n  time.sleep(0.3)\n  other.acquire()\n\
        threading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n\
        ts = [threading.Thread(target=both, args=p) for p in [(a, b), (b, a)]]\n\
        [t.start() for t in ts]\n[t.join() for t in ts]";
    let of_a_file = "import fcntl\na, b = open('/tmp/f', 'w'), open('/tmp/f')\n\
        fcntl.flock(a, fcntl.LOCK_EX)\nfcntl.flock(b, fcntl.LOCK_EX)";
    let empty = "import os\nread, write = os.pipe()\nos.read(read, 1)";
    let full = "import os\nread, write = os.pipe()\nos.write(write, bytes(10**6))";
    vec![
        ("cat", piped(Spec::command(["cat"])), Stdin),
        ("input()", piped(python("input()")), Stdin),
        ("read in a shell", piped(shell("read x")), Stdin),
        ("sleep", Spec::command(["sleep", "1000"]), Sleep),
        ("asyncio.sleep", python("import asyncio; asyncio.run(asyncio.sleep(1000))"), Sleep),
        ("poll", python("import select; select.poll().poll(1000000)"), Sleep),
        ("a child in the foreground", shell("sleep 1000; true"), Child),
        ("wait", shell("sleep 1000 & wait; true"), Child),
        ("a substitution", shell("x=$(sleep 1000); true"), Child),
        ("subprocess.run", python("import subprocess; subprocess.run(['sleep', '1000'])"), Child),
        ("a socket", python("import socket; s = socket.socketpair(); s[0].recv(1)"), Network),
        ("a loop in a shell", shell("while :; do :; done"), Cpu),
        ("a loop in C", python("sum(range(10**15))"), Cpu),
        ("a loop beside a sleeping thread", python(threads), Cpu),
        ("a stopped process", shell("kill -STOP $$"), Stopped),
        ("a thread that is joined and sleeps", python(joined), Sleep),
        ("a lock that it holds itself", python(held), Lock),
        ("a thread that is joined and waits for a lock", python(in_a_thread), Lock),
        ("a deadlock beside a thread that sleeps", python(deadlock), Lock),
        ("a lock of a file", python(of_a_file), Lock),
        ("an empty pipe", python(empty), Pipe),
        ("a full pipe", python(full), Pipe),
        ("a named pipe that nobody opens", shell("mkfifo /tmp/p && exec cat /tmp/p"), Pipe),
    ]
}

fn wait_until(run: &Run, holds: impl Fn(&RunInspection) -> bool) -> RunInspection {
    let end = Instant::now() + HARD_STOP;
    loop {
        let snapshot = run.inspect();
        if holds(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < end, "{snapshot:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn snapshot_distinguishes_ways_to_hang() {
    let engine = Engine::new().unwrap();
    for (name, spec, expected) in hangs() {
        let run = engine.start(spec).unwrap();
        let snapshot = wait_until(&run, |snapshot| snapshot.waiting_for == Some(expected));
        assert_eq!((snapshot.processes[0].depth, snapshot.truncated), (0, false), "{name}: {snapshot:?}");
        run.cancel("seen");
        run.settled_blocking();
        assert_eq!(run.inspect().processes, [], "{name}: of what is over there is nothing to see");
    }
}

/// A single look, a while after the start: at full size ten of each kind, of which nineteen in
/// twenty must be right.
#[test]
fn single_snapshot_is_right_nearly_always() {
    let rounds = if std::env::var_os("SANDTIMER_FULL").is_some() { 10 } else { 1 };
    let engine = Engine::new().unwrap();
    let (mut wrong, mut all) = (Vec::new(), 0);
    for _ in 0..rounds {
        let runs: Vec<_> = hangs()
            .into_iter()
            .map(|(name, spec, expected)| (name, engine.start(spec).unwrap(), expected))
            .collect();
        // The loops leave little of the processors to what is still on its way to where it hangs.
        std::thread::sleep(Duration::from_secs(3));
        for (name, run, expected) in runs {
            all += 1;
            let snapshot = run.inspect();
            if snapshot.waiting_for != Some(expected) {
                wrong.push((name, snapshot));
            }
            run.cancel("seen");
        }
    }
    assert!(wrong.len() * 20 <= all, "{} of {all} were wrong: {wrong:?}", wrong.len());
}

#[test]
fn whole_tree_is_listed_with_inner_pids() {
    let engine = Engine::new().unwrap();
    let run = engine.start(shell("sh -c 'sleep 1000; true' & sleep 1000 & echo ready; wait; true")).unwrap();
    let shape = |snapshot: &RunInspection| -> Vec<(usize, String)> {
        snapshot.processes.iter().map(|process| (process.depth, process.name.clone())).collect()
    };
    let expected =
        [(0, "sh"), (1, "sh"), (2, "sleep"), (1, "sleep")].map(|(depth, name)| (depth, name.to_owned()));
    // A sleep that has its name is on its way to sleeping.
    let begins = "It waits for a process that it started (sleep, which sleeps), ";
    let snapshot =
        wait_until(&run, |snapshot| shape(snapshot) == expected && snapshot.sentence().starts_with(begins));
    assert_eq!(snapshot.waiting_for, Some(WaitingFor::Child), "{snapshot:?}");
    assert!(
        snapshot.processes.iter().all(|process| process.pid < 100 && process.threads == 1),
        "{snapshot:?}"
    );
    run.cancel("seen");
}

#[test]
fn a_crowd_is_listed_in_part() {
    let engine = Engine::new().unwrap();
    let crowd = "for n in $(seq 80); do sleep 1000 & done; wait; true";
    let run = engine.start(shell(crowd)).unwrap();
    let snapshot = wait_until(&run, |snapshot| snapshot.truncated);
    assert_eq!(snapshot.processes.len(), 64);
    run.cancel("seen");
}

#[test]
fn quiet_time_and_processor_time_are_counted() {
    let engine = Engine::new().unwrap();
    let run = engine.start(shell("echo begun; while :; do :; done")).unwrap();
    let snapshot = wait_until(&run, |snapshot| snapshot.quiet_ms >= 300 && snapshot.cpu_ms >= 50);
    assert!(snapshot.processes[0].cpu_ms <= snapshot.cpu_ms + 20, "{snapshot:?}");
    assert!(
        snapshot.sentence().starts_with("It computes, has printed nothing for "),
        "{}",
        snapshot.sentence()
    );
    run.cancel("seen");
}

#[test]
fn idle_ages_are_reported_and_restart_with_use() {
    let engine = Engine::new().unwrap();
    let idle = engine.start(Spec::command(["sleep", "1000"])).unwrap();
    let long = |age: Option<u64>| age.is_some_and(|age| age >= 1_000);
    let snapshot = wait_until(&idle, |snapshot| long(snapshot.cpu_age_ms) && long(snapshot.io_age_ms));
    let sentence = snapshot.sentence();
    assert!(sentence.contains("It has used no processor time for 1"), "{sentence}");
    assert!(sentence.contains("It has read and written nothing for 1"), "{sentence}");
    idle.cancel("seen");
    let busy = engine.start(shell("while :; do echo x > /tmp/x; done")).unwrap();
    let first = wait_until(&busy, |snapshot| snapshot.io_bytes.is_some());
    let snapshot = wait_until(&busy, |snapshot| snapshot.quiet_ms >= 1_000);
    assert!(snapshot.io_bytes > first.io_bytes, "{first:?} {snapshot:?}");
    assert!(snapshot.cpu_age_ms.is_some_and(|age| age < snapshot.quiet_ms / 2), "{snapshot:?}");
    assert!(snapshot.io_age_ms.is_some_and(|age| age < snapshot.quiet_ms / 2), "{snapshot:?}");
    busy.cancel("seen");
}

#[test]
fn threads_with_different_waits_list_the_first_one_first() {
    let engine = Engine::new().unwrap();
    let code = "import threading, time\nlock = threading.Lock()\nlock.acquire()\n\
        ts = [threading.Thread(target=f) for f in [lock.acquire, lock.acquire, lambda: time.sleep(1000)]]\n\
        [t.start() for t in ts]\nlock.acquire()";
    let run = engine.start(python(code)).unwrap();
    let snapshot = wait_until(&run, |snapshot| {
        snapshot.waiting_for == Some(WaitingFor::Lock) && snapshot.processes[0].threads_wait_for.len() == 4
    });
    let expected = "It waits for a lock (its first thread: a lock; 2 others: a lock; 1 other: sleep), has";
    assert!(snapshot.sentence().starts_with(expected), "{}", snapshot.sentence());
    run.cancel("seen");
}
