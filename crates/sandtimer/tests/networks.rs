//! Network namespaces of runs: none is lent twice, also where the process that makes them is
//! replaced.

use crate::processes;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use processes::{ListedProcess, children_named, processes};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandtimer::Limits;
use sandtimer::engine::{Engine, Spec};
use sandtimer_os::process;

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script]).limits(Limits::new().wall(Duration::from_secs(60)))
}

/// The processes that make network namespaces for engines of this process, children of its
/// launchers.
fn makers() -> Vec<ListedProcess> {
    let launchers = children_named("st-launcher");
    let is_maker = |process: &ListedProcess| {
        process.name == "st-networks" && launchers.iter().any(|launcher| launcher.pid == process.parent)
    };
    processes().into_iter().filter(is_maker).collect()
}

/// A pidfd of the only one that lives.
fn maker() -> OwnedFd {
    let makers = makers();
    let living: Vec<i32> = makers.iter().filter(|maker| !maker.is_zombie).map(|maker| maker.pid).collect();
    let [maker] = living[..] else { panic!("{makers:?}") };
    let maker = Pid::from_raw(maker).expect("a PID");
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
