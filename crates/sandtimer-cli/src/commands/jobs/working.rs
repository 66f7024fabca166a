//! Workers: `sandtimer jobs work`, and `run`, which is one for a single job.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::limits::Limits;
use sandtimer::{Engine, Options};
use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{JobStore, StoreError};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_server::HttpWebhookSender;

use super::answers::answer_job;
use super::durations::duration;
use super::following::{FollowResult, Follower, exit_code};
use super::store::{open, state_directory};
use super::{submitting, text};
use crate::args::jobs::{RunArguments, StoreFlags, WorkArguments};
use crate::commands::CommandFailure;
use crate::commands::serve::{
    ServerSetting, drain_time, file_bytes, memory as bytes_of_memory, private_webhooks,
};
use crate::config::{Config, Uses};
use crate::render;
use crate::signals::Signals;

const MIN_LEASE: Duration = Duration::from_secs(1);

/// What a worker may use: by flags, else by the variables that a server has too.
struct WorkerBounds {
    file_bytes: u64,
    private_webhooks: bool,
}

impl WorkerBounds {
    fn read(files: Option<&OsString>, private: bool) -> Result<Self, CommandFailure> {
        Ok(WorkerBounds {
            file_bytes: file_bytes(&ServerSetting::named("files", "SANDTIMER_JOB_FILES", files))?,
            private_webhooks: private_webhooks(&ServerSetting::switch("private-webhooks", private))?,
        })
    }
}

/// `sandtimer jobs work`.
pub(super) fn work(given: &WorkArguments) -> Result<ExitCode, CommandFailure> {
    let lease = given.lease.as_deref().map(|typed| duration("--lease", typed, MIN_LEASE)).transpose()?;
    let store = open(&given.store)?;
    let bounds = WorkerBounds::read(given.files.as_ref(), given.private_webhooks)?;
    let drain = drain_time(&ServerSetting::named("drain", "SANDTIMER_DRAIN", given.drain.as_ref()))?;
    let memory = ServerSetting::named("memory", "SANDTIMER_JOB_MEMORY", given.memory.as_ref());
    let default = WorkerSettings::new(render::report_error);
    let settings = WorkerSettings {
        slots: given.slots.into(),
        queues: given.queue.clone(),
        lease: lease.unwrap_or(default.lease),
        memory: bytes_of_memory(&memory)?,
        ..default
    };
    let (worker, signals) = worker(&given.store, &store, &bounds, settings)?;
    std::thread::scope(|scope| {
        let working = std::thread::Builder::new().spawn_scoped(scope, || worker.work());
        let working = working.map_err(CommandFailure::system("cannot start a thread"))?;
        let (mut is_draining, mut until) = (false, None);
        while !working.is_finished() {
            let is_asked = super::following::ending(&signals, Duration::from_millis(200)).is_some();
            let is_late = until.is_some_and(|until| monotonic_nanoseconds() >= until);
            if is_asked && !is_draining {
                let limit = drain.map_or_else(String::new, |drain| format!(" within {drain:?}"));
                render::note(&format!(
                    "draining: running jobs continue to their ends{limit}; a second signal gives them back"
                ));
                worker.drain();
                is_draining = true;
                until = drain.map(|drain| {
                    monotonic_nanoseconds()
                        .saturating_add(u64::try_from(drain.as_nanos()).unwrap_or(u64::MAX))
                });
            } else if is_asked || is_late {
                if is_late {
                    render::note("the drain time has passed: what still runs is given back");
                }
                until = None;
                worker.give_back();
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// `sandtimer jobs run`.
pub(super) fn run(given: &RunArguments) -> Result<ExitCode, CommandFailure> {
    let RunArguments { submission: given, output } = given;
    let store = open(&given.store)?;
    let submissions = submitting::read(given, &*store)?;
    let [one] = &submissions[..] else {
        return Err(CommandFailure::usage(
            "`sandtimer jobs run` takes one job; submit many, and start `sandtimer jobs work`",
        ));
    };
    let queue = &one.spec.queue;
    let is_paused = store.queues()?.iter().any(|facts| facts.paused && facts.queue == *queue);
    let submitted = store.submit(std::slice::from_ref(one))?.remove(0);
    let id = submitted.id;
    if is_paused {
        render::note(&format!(
            "queue {queue} is paused, and job {id} waits in it; `sandtimer jobs resume {queue}` resumes it"
        ));
    }
    let settings = WorkerSettings { only: Some(id.clone()), ..WorkerSettings::new(render::report_error) };
    let bounds = WorkerBounds::read(None, false)?;
    let (worker, signals) = worker(&given.store, &store, &bounds, settings)?;
    let followed = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .spawn_scoped(scope, || worker.work())
            .map_err(CommandFailure::system("cannot start a thread"))?;
        let asked = |count: u32, reason: &str| match count {
            // The job belongs to its earlier submitter, and another worker continues with it.
            1 if submitted.existed => {
                render::note(&format!(
                    "job {id} was there before and is left to other workers; `sandtimer jobs cancel {id}` ends it"
                ));
                worker.give_back();
                Err(StoreError::Busy)
            }
            1 => store.cancel(&id, reason).map(drop),
            _ => {
                worker.give_back();
                Ok(())
            }
        };
        let followed = Follower::new(&*store, &id, &signals, !given.store.json).follow(None, &asked);
        // Whatever became of the following, nothing more is begun here.
        worker.drain();
        if followed.is_err() {
            worker.give_back();
        }
        followed.map_err(CommandFailure::from)
    })?;
    match followed {
        FollowResult::Over(record) => {
            answer_job(&given.store, *output, &record, text::value);
            if !given.store.json {
                render::note(&text::ending(&record));
            }
            Ok(exit_code(&record))
        }
        FollowResult::Left(code) => Ok(ExitCode::from(code)),
    }
}

fn worker(
    flags: &StoreFlags,
    store: &Arc<dyn JobStore>,
    bounds: &WorkerBounds,
    settings: WorkerSettings,
) -> Result<(Worker, Signals), CommandFailure> {
    let config = Config::load(&Limits::new(), true)?;
    // Before the engine, whose threads must not get these signals.
    let signals = Signals::watch().map_err(CommandFailure::system("cannot watch for signals"))?;
    let engine = Engine::with_options(Options { maxima: config.maxima(), ..Options::default() })?;
    let resources = WorkerContext::new(engine, Arc::clone(store), &state_directory(flags)?);
    let resources = WorkerContext {
        defaults: config.defaults(Uses::Commands),
        max_file_bytes: bounds.file_bytes,
        ..resources
    };
    let webhook_sender = Arc::new(HttpWebhookSender::new(bounds.private_webhooks));
    Ok((Worker::new(resources, settings).with_webhook_sender(webhook_sender), signals))
}
