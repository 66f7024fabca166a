//! `sandtimer jobs`: opens the store, calls it once, renders the answer.

use std::process::ExitCode;

use sandtimer_jobs::job::{StoreError, StoredBreaker};
use serde_json::json;

use super::CommandFailure;
use crate::args::jobs::{
    BreakersArguments, JobsAction, JobsArguments, ListArguments, PauseArguments, ShowArguments, StoreFlags,
};
use crate::render;

mod acting;
mod answers;
mod choosing;
mod durations;
mod files;
mod following;
mod logging;
mod schedules;
mod store;
mod submitting;
mod text;
mod watching;
mod working;

use answers::{answer, answer_job};
pub(super) use following::is_end_requested;
use store::open;
pub(super) use store::open_server;

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
