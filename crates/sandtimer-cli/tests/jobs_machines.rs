//! `sandtimer jobs work` on two machines, and their NATS server on a third one: network namespaces
//! of the test's own, which nothing but wires between them leads out of, and which are gone with
//! what is in them.
#![allow(clippy::disallowed_methods, reason = "the programs under test are started here")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandtimer_jobs::job::{Filter, JobLine, JobRecord, JobSpec, JobState, JobStore, Submission};
use sandtimer_jobs::{NatsAddress, NatsJobs};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;

use crate::machines;
use crate::support;

use machines::NetworkMachine;
use support::NatsServer;

/// The addresses of the server's machine, one on each wire.
const SERVER: [&str; 2] = ["10.213.1.1", "10.213.2.1"];
const WORKERS: [&str; 2] = ["10.213.1.2", "10.213.2.2"];
const LOGIN: (&str, &str) = ("worker", "not-a-secret");
const SLOTS: usize = 4;

/// The server's machine, and two that reach it and not one another.
fn machines() -> Option<(NetworkMachine, [NetworkMachine; 2])> {
    let (middle, workers) = (NetworkMachine::make()?, [NetworkMachine::make()?, NetworkMachine::make()?]);
    for (index, worker) in workers.iter().enumerate() {
        middle.wire(index, SERVER[index], worker, WORKERS[index]);
    }
    Some((middle, workers))
}

/// `sandtimer jobs work`, ended with its test.
struct WorkerProcess(Child);

impl WorkerProcess {
    /// With a state directory of its own, as on a machine of its own.
    fn start(machine: &NetworkMachine, directory: &Path, index: usize, port: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        let slots = SLOTS.to_string();
        command.args(["jobs", "work", "--slots", &slots, "--lease", "5s", "--store", &url(index, port)]);
        for name in ["SANDTIMER_STORE", "SANDTIMER_NATS_CREDENTIALS", "SANDTIMER_JOB_MEMORY"] {
            command.env_remove(name);
        }
        command.env("SANDTIMER_NATS_CA", directory.join("ca.pem"));
        command.env("SANDTIMER_STATE_DIR", directory.join(format!("state{index}")));
        WorkerProcess(machine.within(|| command.stdin(Stdio::null()).spawn()).expect("started"))
    }

    fn signal(&self, signal: Signal) {
        let worker = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).expect("a pidfd");
        pidfd_send_signal(worker, signal).expect("sent");
    }

    fn namespace(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/ns/net", self.0.id())).expect("it lives")
    }

    fn is_stopped(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        status.expect("readable").contains(") T ")
    }

    /// As a worker is named.
    fn is_of(&self, line: &JobLine) -> bool {
        line.worker.as_deref().is_some_and(|name| name.ends_with(&format!(":{}", self.0.id())))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn url(index: usize, port: u16) -> String {
    format!("tls://{}:{}@{}:{port}", LOGIN.0, LOGIN.1, SERVER[index])
}

fn until(what: &str, most: Duration, mut is: impl FnMut() -> bool) {
    let begun = monotonic_nanoseconds();
    while !is() {
        assert!(u128::from(monotonic_nanoseconds() - begun) < most.as_nanos(), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

fn in_state(store: &dyn JobStore, state: JobState) -> Vec<JobLine> {
    let filter = Filter { state: Some(state), ..Filter::default() };
    store.list(&filter, None, 100_000).expect("listed").jobs
}

/// Kills a worker that has jobs, and asserts that the processes that it had started die. Returns
/// the jobs.
fn kill_with_jobs(store: &dyn JobStore, worker: &WorkerProcess) -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    until("it has jobs when it is killed", Duration::from_secs(60), || {
        worker.signal(Signal::STOP);
        until("it has stopped", Duration::from_secs(60), || worker.is_stopped());
        let leased = || in_state(store, JobState::Leased).into_iter().filter(|line| worker.is_of(line));
        held.clear();
        // What it sent in its last moment, and is on its way, may be the end of one of them.
        until("what it had sent has come", Duration::from_secs(60), || {
            let before = std::mem::replace(&mut held, leased().map(|line| line.id).collect());
            before == held
        });
        if held.is_empty() {
            worker.signal(Signal::CONT);
        }
        !held.is_empty()
    });
    let started = descendants(worker.0.id());
    assert!(!started.is_empty(), "its watchdog at least");
    worker.signal(Signal::KILL);
    let lives = |(pid, at): &(u32, String)| start(*pid).is_some_and(|(_, start)| start == *at);
    until("what it had started is dead", Duration::from_secs(60), || !started.iter().any(lives));
    held
}

/// What a process has started, and what that has: each by its id and the moment of its start.
fn descendants(pid: u32) -> BTreeSet<(u32, String)> {
    let entries = std::fs::read_dir("/proc").expect("readable").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<(u32, u32, String)> =
        pids.filter_map(|pid| start(pid).map(|(parent, start)| (pid, parent, start))).collect();
    let (mut found, mut parents) = (BTreeSet::new(), vec![pid]);
    while let Some(parent) = parents.pop() {
        for (child, _, start) in all.iter().filter(|(_, of, _)| *of == parent) {
            found.insert((*child, start.clone()));
            parents.push(*child);
        }
    }
    found
}

/// The parent of a process that lives, and when it was started.
fn start(pid: u32) -> Option<(u32, String)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = status.rsplit(')').next()?.split_whitespace().collect();
    (fields[0] != "Z").then(|| (fields[1].parse().unwrap_or(0), fields[19].to_owned()))
}

/// One result, a good one, and nothing that came too late or was left running.
fn check(record: &JobRecord) {
    assert_eq!((record.line.state, record.line.ok), (JobState::Ended, Some(true)), "{record:?}");
    assert!(record.duplicates.is_empty(), "{record:?}");
    let outcome = record.result.as_ref().and_then(|result| result.outcome.as_ref()).expect("an outcome");
    assert_eq!((outcome.exit_code, outcome.tree.survivors), (Some(0), Some(0)), "{record:?}");
}

#[test]
fn jobs_complete_once_when_one_of_two_machines_dies() {
    let is_full = std::env::var_os("SANDTIMER_FULL").is_some();
    let (many, most) =
        if is_full { (10_000, Duration::from_secs(1800)) } else { (300, Duration::from_secs(120)) };
    let directory = tempfile::tempdir().expect("a directory");
    let names = format!("IP:{},IP:{}", SERVER[0], SERVER[1]);
    let Some(()) = support::certificates(directory.path(), &names) else { return };
    let Some((middle, machines)) = machines() else { return };
    let login = format!("authorization {{ user: {:?}, password: {:?} }}\n", LOGIN.0, LOGIN.1);
    let configuration = support::tls(directory.path()) + &login;
    let Some(server) = middle.within(|| NatsServer::start_everywhere(&configuration)) else { return };
    let address = NatsAddress::parse(&url(0, server.port)).expect("an address");
    let address = address.with_certificates(Some(directory.path().join("ca.pem")));
    let store = middle.within(|| NatsJobs::open(&address, |problem| panic!("{problem}"))).expect("opened");

    let spec = json!({"command": ["true"], "wall_ms": 3_600_000});
    let one = || Submission { spec: JobSpec::read(spec.clone()).expect("valid"), owner: String::new() };
    let batch: Vec<Submission> = (0..many).map(|_| one()).collect();
    let batches = batch.chunks(500).flat_map(|some| store.submit(some).expect("submitted"));
    let jobs: BTreeSet<String> = batches.map(|one| one.id).collect();
    assert_eq!(jobs.len(), many);

    let begun = monotonic_nanoseconds();
    let start = |index: usize| WorkerProcess::start(&machines[index], directory.path(), index, server.port);
    let (dying, surviving) = (start(0), start(1));
    let own = std::fs::read_link("/proc/self/ns/net").expect("readable");
    assert_eq!(BTreeSet::from([own, dying.namespace(), surviving.namespace()]).len(), 3);
    until("half of them are done", most, || in_state(&store, JobState::Ended).len() >= many / 2);
    let held = kill_with_jobs(&store, &dying);
    let before = in_state(&store, JobState::Ended);
    assert!(before.iter().any(|line| dying.is_of(line)) && before.iter().any(|line| surviving.is_of(line)));
    until("all are done", most, || in_state(&store, JobState::Ended).len() == many);
    let took = (monotonic_nanoseconds() - begun) / 1_000_000;

    let ended = in_state(&store, JobState::Ended);
    assert_eq!(ended.iter().map(|line| line.id.clone()).collect::<BTreeSet<_>>(), jobs);
    let earlier: BTreeSet<_> = before.iter().map(|line| (&line.id, line.ended_ms, &line.worker)).collect();
    let later: BTreeSet<_> = ended.iter().map(|line| (&line.id, line.ended_ms, &line.worker)).collect();
    assert!(earlier.is_subset(&later), "what was recorded before the death is what there is after it");
    for id in &jobs {
        let record = store.get(id).expect("readable").expect("there");
        check(&record);
        let deliveries = if held.contains(id) { 2 } else { 1 };
        assert_eq!(record.line.deliveries, deliveries, "{record:?}");
    }
    let of_dying = ended.iter().filter(|line| dying.is_of(line)).count();
    // If the write fails, stderr has no reader.
    let _ = writeln!(
        std::io::stderr(),
        "{many} jobs in {took} ms: {of_dying} by the worker that died, with {} in its hands, {} by the other",
        held.len(),
        many - of_dying
    );
}
