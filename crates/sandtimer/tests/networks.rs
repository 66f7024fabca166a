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

/// Name, state and parent of a process.
fn status(number: u32) -> Option<(String, String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut rest = rest.split_whitespace();
    Some((name.to_owned(), rest.next()?.to_owned(), rest.next()?.parse().ok()?))
}

/// The processes that make network namespaces for engines of this process, children of its launchers: whether each is a zombie.
fn makers() -> Vec<(u32, bool)> {
    let numbers = std::fs::read_dir("/proc").expect("there");
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let maker = |number: u32| {
        let (name, state, launcher) = status(number)?;
        let (_, _, parent) = status(launcher)?;
        (name == "st-networks" && parent == std::process::id()).then_some((number, state == "Z"))
    };
    numbers.filter_map(maker).collect()
}

/// A pidfd of the only one that lives.
fn maker() -> OwnedFd {
    let makers = makers();
    let living: Vec<u32> =
        makers.iter().filter(|(_, is_zombie)| !is_zombie).map(|(number, _)| *number).collect();
    let [maker] = living[..] else { panic!("{makers:?}") };
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
    live.cancel("the test has finished");
    let own = live.settled_blocking().stdout.trim().to_owned();
    assert!(own.starts_with("net:["), "{own}");
    assert!(others.iter().all(|other| other.starts_with("net:[") && *other != own), "{own} {others:?}");
}

#[test]
fn stopped_maker_is_replaced_and_leaves_no_zombie() {
    let engine = Engine::new().expect("an engine");
    engine.run_blocking(shell("true")).expect("a run");
    for _ in 0..3 {
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
    // Each replacement collects the zombies of those before: the last may still be there.
    assert!(makers().len() <= 2, "{:?}", makers());
}
