//! `sandtimer jobs`: opens the store, calls it once, renders the answer.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::limits::{Format, Setting, Unit, parse_string};
use sandtimer_jobs::job::{JobRecord, JobStore, StoreError, StoredBreaker};
use sandtimer_jobs::{NatsAddress, NatsJobs, SqliteJobs};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde::Serialize;
use serde_json::json;

use super::{CommandFailure, serve};
use crate::args::EncodingErrors;
use crate::args::jobs::{
    BreakersArguments, JobsAction, JobsArguments, ListArguments, OutputFlags, PauseArguments, ShowArguments,
    StoreFlags,
};
use crate::render;
use crate::signals::Signals;

mod acting;
mod choosing;
mod files;
mod following;
mod logging;
mod schedules;
mod submitting;
mod text;
mod watching;
mod working;

/// How long a server that does not answer is asked again, and how often.
const RESTART_TIMEOUT: Duration = Duration::from_secs(5);
const RESTART_INTERVAL: Duration = Duration::from_millis(250);

/// `sandtimer jobs`.
pub(crate) fn main(given: JobsArguments) -> Result<ExitCode, CommandFailure> {
    let code = dispatch(given)?;
    match render::stdout_failure() {
        None => Ok(code),
        Some(error) => Err(CommandFailure::usage(format!(
            "standard output cannot be written: {error}; what was asked for is done, and its answer is missing"
        ))),
    }
}

fn dispatch(given: JobsArguments) -> Result<ExitCode, CommandFailure> {
    match given.action {
        JobsAction::Submit(given) => submitting::submit(&given),
        JobsAction::Run(given) => working::run(&given),
        JobsAction::Work(given) => working::work(&given),
        JobsAction::List(given) => list(&given),
        JobsAction::Show(given) => show(&given),
        JobsAction::Log(given) => logging::print(&given),
        JobsAction::Files(given) => files::list(&given),
        JobsAction::Get(given) => files::get(&given),
        JobsAction::Wait(given) => following::wait(&given),
        JobsAction::Watch(given) => watching::watch(&given),
        JobsAction::Cancel(given) => acting::cancel(&given),
        JobsAction::Retry(given) => acting::retry(&given),
        JobsAction::Redeliver(given) => acting::redeliver(&given),
        JobsAction::Requeue(given) => acting::requeue(&given),
        JobsAction::Purge(given) => acting::purge(&given),
        JobsAction::Pause(given) => pause(&given, true),
        JobsAction::Resume(given) => pause(&given, false),
        JobsAction::Queues(given) => queues(&given.store),
        JobsAction::Schedule(given) => schedules::put(&given),
        JobsAction::Schedules(given) => schedules::list(&given.store),
        JobsAction::Unschedule(given) => schedules::remove(&given),
        JobsAction::Breakers(given) => breakers(&given),
        JobsAction::Workers(given) => workers(&given.store),
    }
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        CommandFailure::usage(error.to_string())
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The named store: flags take precedence over variables, and a store over a state directory.
fn named(flags: &StoreFlags) -> Option<OsString> {
    let is_typed = flags.store.is_some() || flags.state_dir.is_some();
    flags.store.clone().map(Into::into).or_else(|| variable("SANDTIMER_STORE").filter(|_| !is_typed))
}

fn open(flags: &StoreFlags) -> Result<Arc<dyn JobStore>, CommandFailure> {
    let store = named(flags);
    match store.as_ref().and_then(|store| store.to_str()).filter(|text| NatsAddress::is_meant(text)) {
        Some(url) => open_patiently(url),
        None => Ok(Arc::new(SqliteJobs::open(&state_directory(flags)?)?)),
    }
}

/// Whether a signal to end comes within this time.
pub(super) fn is_end_requested(signals: &Signals, within: Duration) -> bool {
    following::ending(signals, within).is_some()
}

/// The store of a NATS server. A server that is being started again is waited for, as open
/// connections wait for it.
fn open_patiently(url: &str) -> Result<Arc<dyn JobStore>, CommandFailure> {
    let address = NatsAddress::with_environment(url)?;
    let until = monotonic_nanoseconds() + RESTART_TIMEOUT.as_nanos() as u64;
    let mut is_noted = false;
    loop {
        match NatsJobs::open(&address, render::report_error) {
            // A server that has just come back may not have its JetStream yet.
            Err(error)
                if monotonic_nanoseconds() < until
                    && (is_noted || matches!(error, StoreError::Unreachable(_))) =>
            {
                if !std::mem::replace(&mut is_noted, true) {
                    let seconds = RESTART_TIMEOUT.as_secs();
                    render::note(&format!("{address} does not answer; trying again for {seconds} s"));
                }
                std::thread::park_timeout(RESTART_INTERVAL);
            }
            opened => return Ok(Arc::new(opened?)),
        }
    }
}

/// The store of a NATS server, with the files that the environment names.
pub(super) fn open_server(url: &str, report_error: fn(&str)) -> Result<Arc<dyn JobStore>, CommandFailure> {
    Ok(Arc::new(NatsJobs::open(&NatsAddress::with_environment(url)?, report_error)?))
}

/// The named state directory: the store itself, or with a server the worker's own.
fn state_directory(flags: &StoreFlags) -> Result<PathBuf, CommandFailure> {
    let store = named(flags).filter(|store| !store.to_str().is_some_and(NatsAddress::is_meant));
    let directory = store.map(Into::into).or_else(|| flags.state_dir.clone());
    directory.map_or_else(serve::state_directory, Ok)
}

/// Prints JSON where that was asked for, else text.
fn answer(flags: &StoreFlags, value: &impl Serialize, text: impl FnOnce() -> String) {
    // Plain data with text keys always serialises.
    let json = || serde_json::to_string(value).unwrap_or_default() + "\n";
    render::print(&if flags.json { json() } else { text() });
}

/// The same for a job, whose output may not be UTF-8.
fn answer_job(
    flags: &StoreFlags,
    output: OutputFlags,
    record: &JobRecord,
    text: impl FnOnce(&JobRecord) -> String,
) {
    match output.errors {
        EncodingErrors::Replace if flags.json => {
            let mut record = record.clone();
            record.replace_invalid_utf8();
            answer(flags, &record, String::new);
        }
        _ => answer(flags, record, || text(record)),
    }
}

fn list(given: &ListArguments) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    store.sweep()?;
    let filter = choosing::filter(given.queue.as_ref(), given.state);
    let page = store.list(&filter, given.cursor.as_deref(), given.most as usize)?;
    answer(&given.store, &page, || text::listing(&page, store.now_ms()));
    Ok(ExitCode::SUCCESS)
}

fn show(given: &ShowArguments) -> Result<ExitCode, CommandFailure> {
    let ShowArguments { jobs, output, store: flags } = given;
    let store = open(flags)?;
    store.sweep()?;
    let ids = choosing::resolve_all(&*store, &jobs.ids)?;
    let mut is_first = true;
    let failed = acting::each_named(&ids, &mut |id| {
        let record = store.get(id)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))?;
        let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
        answer_job(flags, *output, &record, |record| format!("{gap}{}", text::record(record)));
        Ok(())
    })?;
    Ok(if failed { ExitCode::from(125) } else { ExitCode::SUCCESS })
}

fn pause(given: &PauseArguments, paused: bool) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    let Some(queue) = &given.queue else { return schedules::pause(&*store, given, paused) };
    store.pause(queue, paused)?;
    let state = if paused { "paused: it hands out nothing more" } else { "not paused" };
    answer(&given.store, &json!({"queue": queue, "paused": paused}), || {
        format!("queue {queue} is {state}\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn queues(flags: &StoreFlags) -> Result<ExitCode, CommandFailure> {
    let store = open(flags)?;
    store.sweep()?;
    let facts = store.queues()?;
    answer(flags, &json!({"queues": facts}), || text::queues(&facts));
    Ok(ExitCode::SUCCESS)
}

fn breakers(given: &BreakersArguments) -> Result<ExitCode, CommandFailure> {
    let page = open(&given.store)?.breakers(None, given.cursor.as_deref(), given.most as usize)?;
    let with_owner = |breaker: &StoredBreaker| {
        let mut value = serde_json::to_value(breaker).unwrap_or_default();
        value["owner"] = json!(breaker.owner);
        value
    };
    let values: Vec<_> = page.breakers.iter().map(with_owner).collect();
    answer(&given.store, &json!({"breakers": values, "next": page.next}), || text::breakers(&page));
    Ok(ExitCode::SUCCESS)
}

fn workers(flags: &StoreFlags) -> Result<ExitCode, CommandFailure> {
    let store = open(flags)?;
    store.sweep()?;
    let workers = store.workers()?;
    answer(flags, &json!({"workers": workers}), || text::workers(&workers, store.now_ms()));
    Ok(ExitCode::SUCCESS)
}

/// A duration of at least `least`, typed as a flag.
fn duration(flag: &str, typed: &str, least: Duration) -> Result<Duration, CommandFailure> {
    let set = parse_string(flag, Format::required(Unit::Seconds), typed, "the command line")?;
    match set {
        Setting::At(nanoseconds) if Duration::from_nanos(nanoseconds) >= least => {
            Ok(Duration::from_nanos(nanoseconds))
        }
        _ => Err(CommandFailure::usage(format!(
            "{flag}: `{typed}` is too short (from the command line); use {least:?} or more"
        ))),
    }
}
