//! Network namespaces of runs: none is lent twice, also where the process that makes them is replaced.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandtimer::Limits;
use sandtimer::engine::{Engine, Spec};
use sandtimer_os::process;

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script]).limits(Limits::new().wall(Duration::from_secs(60)))
}

/// Name and parent of a process.
fn name_and_parent(number: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    Some((name.to_owned(), rest.split_whitespace().nth(1)?.parse().ok()?))
}

/// The processes that make network namespaces for engines of this process: children of its launchers.
fn makers() -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").expect("there");
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_maker = |number: &u32| {
        let Some((name, launcher)) = name_and_parent(*number) else { return false };
        let parent = name_and_parent(launcher).map(|(_, parent)| parent);
        name == "st-networks" && parent == Some(std::process::id())
    };
    numbers.filter(is_maker).collect()
}

/// A pidfd of the only one.
fn maker() -> OwnedFd {
    let [maker] = makers()[..] else { panic!("{:?}", makers()) };
    let maker = Pid::from_raw(maker as i32).expect("a number");
    pidfd_open(maker, PidfdFlags::empty()).expect("it lives")
}

#[test]
fn replaced_maker_lends_no_namespace_of_a_live_run() {
    const NAME: &str = "readlink /proc/self/ns/net";
    let engine = Engine::new().expect("an engine");
    let live = engine.start(shell(&format!("{NAME}; exec sleep 50"))).expect("it starts");
    live.started_blocking();
    pidfd_send_signal(maker(), Signal::KILL).expect("killed");
    let others: Vec<String> =
        (0..3).map(|_| engine.run_blocking(shell(NAME)).expect("a run").stdout.trim().to_owned()).collect();
    live.cancel("the test is over");
    let own = live.settled_blocking().stdout.trim().to_owned();
    assert!(own.starts_with("net:["), "{own}");
    assert!(others.iter().all(|other| other.starts_with("net:[") && *other != own), "{own} {others:?}");
}

#[test]
fn stopped_maker_is_replaced_and_leaves_no_zombie() {
    let engine = Engine::new().expect("an engine");
    engine.run_blocking(shell("true")).expect("a run");
    for _ in 0..2 {
        let stopped = maker();
        pidfd_send_signal(&stopped, Signal::STOP).expect("stopped");
        // More at once than can be ready: some have to wait for the stopped process.
        let runs: Vec<_> = (0..40).map(|_| engine.start(shell("sleep 3")).expect("it starts")).collect();
        for run in &runs {
            let outcome = run.settled_blocking();
            assert!(outcome.ok, "{outcome:?}");
        }
        assert!(process::is_dead(stopped.as_fd()), "it was not replaced");
    }
    // The second replacement has collected the first, and a process that was just replaced may still be dying.
    assert!(makers().len() <= 2, "{:?}", makers());
}
