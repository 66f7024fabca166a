//! What the queue alone costs, with jobs that do nothing: submission, lease and finish in batches,
//! and a listing, with more and more jobs waiting; with the feature `nats` also on a `nats-server`
//! that it starts, there also with two workers; and what a worker adds to a run, compared with the
//! same run without a queue. `cargo run --release -p sandtimer-jobs --features nats --example queue
//! [JOBS]`

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::{Engine, Spec};
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{
    Filter, Finish, JobAssignment, JobResult, JobSpec, JobState, JobStatus, JobStore, LeaseRequest,
    Submission,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;

const BATCH: usize = 500;
/// Free slots of a worker that asks.
const SLOTS: usize = 50;
/// Jobs that go through at each depth.
const THROUGH: usize = 5_000;
/// Runs of a round, alone and through the queue, and rounds.
const SEQUENTIAL_JOBS: usize = 20;
const ROUNDS: usize = 15;

#[cfg(feature = "nats")]
#[path = "../tests/support/nats.rs"]
mod support;

fn main() -> Result<(), Box<dyn Error>> {
    let most: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    print_line("SQLite, one process")?;
    curve(&SqliteJobs::open(directory.path())?, most)?;
    let (direct, queued) = added(tempfile::tempdir()?.path())?;
    print_line(&format!(
        "a run alone: {direct:.2} ms; as a job of a queue: {queued:.2} ms; added: {:.2} ms (p50)",
        queued - direct
    ))?;
    on_a_server(most)
}

#[cfg(not(feature = "nats"))]
fn on_a_server(_: usize) -> Result<(), Box<dyn Error>> {
    print_line("NATS: not built in (--features nats)")
}

#[cfg(feature = "nats")]
fn on_a_server(most: usize) -> Result<(), Box<dyn Error>> {
    use sandtimer_jobs::{NatsAddress, NatsJobs};
    let Some(server) = support::NatsServer::start() else { return Ok(()) };
    let address = NatsAddress::parse(&server.url())?;
    print_line("\nnats-server with JetStream and its store in a file, one process")?;
    curve(&NatsJobs::open(&address, |problem| panic!("{problem}"))?, most)?;
    let (opened, opening) = timed(|| NatsJobs::open(&address, |problem| panic!("{problem}")))?;
    print_line(&format!("a process that comes now has opened the store after {:.2} s", opening))?;
    let other = NatsJobs::open(&address, |problem| panic!("{problem}"))?;
    // Each leases from what there is, so that none is without work before both are done.
    let both = || {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| work(&opened, THROUGH).map_err(|error| error.to_string()));
            let two = work(&other, THROUGH).map_err(|error| error.to_string())?;
            Ok::<usize, String>(one.join().map_err(|_| "a worker failed")?? + two)
        })
    };
    let (done, seconds) = timed(both)?;
    print_line(&format!("two such processes lease and finish {:.0} jobs/s together", done as f64 / seconds))
}

fn print_line(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn curve(store: &dyn JobStore, most: usize) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:>8}  {:>12}  {:>18}  {:>14}  {:>10}",
        "queued", "submitted/s", "leased+finished/s", "all three, /s", "list, us"
    )?;
    let mut queued = 0;
    for depth in [0, most / 100, most / 10, most / 2, most] {
        let (grown, filling) = timed(|| fill(store, depth - queued))?;
        queued += grown;
        let (submitted, submitting) = timed(|| fill(store, THROUGH))?;
        let (done, working) = timed(|| work(store, THROUGH))?;
        let (_, listing) =
            timed(|| (0..20).try_for_each(|_| store.list(&Filter::default(), None, 50).map(drop)))?;
        let rate = |count: usize, seconds: f64| count as f64 / seconds;
        let submit = if grown > THROUGH { rate(grown, filling) } else { rate(submitted, submitting) };
        let all = rate(done, submitting + working);
        writeln!(
            out,
            "{queued:>8}  {submit:>12.0}  {:>18.0}  {all:>14.0}  {:>10.0}",
            rate(done, working),
            listing * 1e6 / 20.0
        )?;
    }
    Ok(())
}

/// Milliseconds for a run by itself, and for one that a worker leases, executes and finishes, at
/// the median of rounds in turns.
fn added(directory: &Path) -> Result<(f64, f64), Box<dyn Error>> {
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory)?);
    let engine = Engine::new()?;
    let settings = WorkerSettings::new(|problem| panic!("{problem}"));
    let worker = Worker::new(WorkerContext::new(engine.clone(), Arc::clone(&store), directory), settings);
    let direct = || {
        (0..SEQUENTIAL_JOBS).try_for_each(|_| {
            let mut spec = Spec::command(["true"]);
            spec.private_workspace = true;
            engine.run_blocking(spec).map(drop)
        })
    };
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let mut rounds = (Vec::new(), Vec::new());
        let measured = (0..ROUNDS).try_for_each(|_| {
            rounds.0.push(timed(direct)?.1);
            rounds.1.push(through(&*store)?);
            Ok::<_, Box<dyn Error>>(())
        });
        worker.drain();
        measured.map(|()| (median(rounds.0), median(rounds.1)))
    })
}

/// Seconds from the lease of the first of some jobs to the end of the last.
fn through(store: &dyn JobStore) -> Result<f64, Box<dyn Error>> {
    store.pause("default", true)?;
    fill(store, SEQUENTIAL_JOBS)?;
    let filter = Filter { state: Some(JobState::Ended), ..Filter::default() };
    store.purge(&filter)?;
    store.pause("default", false)?;
    let mut begun = None;
    loop {
        let jobs = store.list(&Filter::default(), None, SEQUENTIAL_JOBS)?.jobs;
        if begun.is_none() && jobs.iter().any(|job| job.state != JobState::Queued) {
            begun = Some(monotonic_nanoseconds());
        }
        if jobs.iter().all(|job| job.state.is_over()) {
            let begun = begun.ok_or("the jobs were over before they were looked at")?;
            return Ok(Duration::from_nanos(monotonic_nanoseconds() - begun).as_secs_f64());
        }
        std::thread::park_timeout(Duration::from_micros(500));
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2] * 1e3 / SEQUENTIAL_JOBS as f64
}

fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let begun = monotonic_nanoseconds();
    let done = work()?;
    Ok((done, Duration::from_nanos(monotonic_nanoseconds() - begun).as_secs_f64()))
}

fn fill(store: &dyn JobStore, count: usize) -> Result<usize, Box<dyn Error>> {
    let spec = JobSpec::read(json!({"command": ["true"], "wall_ms": 3_600_000}))?;
    let one = Submission { spec, owner: "bench".to_owned() };
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        store.submit(&vec![one.clone(); batch])?;
        left -= batch;
    }
    Ok(count)
}

fn work(store: &dyn JobStore, count: usize) -> Result<usize, Box<dyn Error>> {
    let request = LeaseRequest {
        worker: "bench".to_owned(),
        slots: SLOTS,
        queues: Vec::new(),
        only: None,
        lease: Duration::from_secs(60),
        memory: None,
        handlers: Vec::new(),
    };
    let finish = |leased: JobAssignment| Finish {
        held: leased.held,
        result: JobResult::bare(JobStatus::Ok, None),
        again: false,
        pause_ms: 0,
    };
    let mut done = 0;
    while done < count {
        let leased = store.lease(&request)?;
        if leased.is_empty() {
            return Err("the queue is empty too early".into());
        }
        done += store.finish(&leased.into_iter().map(finish).collect::<Vec<_>>())?.len();
    }
    Ok(done)
}
