//! Commands that change jobs: cancel, retry, redeliver, requeue, purge. Each job has a line of its
//! own.

use std::process::ExitCode;

use sandtimer_jobs::job::{CancelResult, JobState, StoreError, each_open, each_retried, requeue_dead};
use serde_json::json;

use super::answers::answer;
use super::choosing;
use super::store::open;
use crate::args::jobs::{
    CancelArguments, PurgeArguments, RedeliverArguments, RequeueArguments, RetryArguments, StoreFlags,
};
use crate::commands::CommandFailure;
use crate::render;

/// `sandtimer jobs cancel`.
pub(super) fn cancel(given: &CancelArguments) -> Result<ExitCode, CommandFailure> {
    let CancelArguments { reason, jobs, store: flags } = given;
    let reason = reason.as_deref().unwrap_or("asked for with `sandtimer jobs cancel`");
    let store = open(flags)?;
    if jobs.ids.is_empty() {
        let mut count = 0;
        let filter = choosing::of_queue(jobs.queue.as_ref());
        each_open(&*store, &filter, jobs.state, &mut |line| {
            // A job that has ended since it was listed is not among those that the filter names.
            let done = store.cancel(&line.id, reason)?;
            if done != CancelResult::TooLate {
                count += 1;
                show_cancelled(flags, &line.id, done);
            }
            Ok(())
        })?;
        note_if_none(flags, count);
        return Ok(ExitCode::SUCCESS);
    }
    let ids = choosing::resolve_all(&*store, &jobs.ids)?;
    let mut is_late = false;
    let failed = each_named(&ids, &mut |id| {
        let done = store.cancel(id, reason)?;
        is_late |= done == CancelResult::TooLate;
        show_cancelled(flags, id, done);
        Ok(())
    })?;
    Ok(ExitCode::from(if failed { 125 } else { u8::from(is_late) }))
}

fn show_cancelled(flags: &StoreFlags, id: &str, done: CancelResult) {
    answer(flags, &json!({"id": id, "cancelled": done}), || match done {
        CancelResult::Cancelled => format!("job {id} is cancelled; no worker had it\n"),
        CancelResult::Asked => format!("job {id} is being ended by its worker\n"),
        CancelResult::TooLate => format!("job {id} had already ended\n"),
    });
}

/// `sandtimer jobs retry`.
pub(super) fn retry(given: &RetryArguments) -> Result<ExitCode, CommandFailure> {
    let RetryArguments { jobs, store: flags } = given;
    let store = open(flags)?;
    if jobs.ids.is_empty() {
        store.sweep()?;
        let mut count = 0;
        let filter = choosing::of_queue(jobs.queue.as_ref());
        each_retried(&*store, &filter, jobs.state, &mut |line| {
            show_retried(flags, &line.id, store.retry(&line.id)?);
            count += 1;
            Ok(())
        })?;
        note_if_none(flags, count);
        return Ok(ExitCode::SUCCESS);
    }
    let ids = choosing::resolve_all(&*store, &jobs.ids)?;
    let failed = each_named(&ids, &mut |id| {
        show_retried(flags, id, store.retry(id)?);
        Ok(())
    })?;
    Ok(if failed { ExitCode::from(125) } else { ExitCode::SUCCESS })
}

fn show_retried(flags: &StoreFlags, id: &str, state: JobState) {
    answer(flags, &json!({"id": id, "state": state}), || format!("job {id} is {}\n", state.name()));
}

/// Does something to each of the jobs that are named. A failure is an error if the job is the only
/// one; of several it is reported, and the others are done. Returns whether there was a failure.
pub(super) fn each_named(
    ids: &[String],
    act: &mut dyn FnMut(&str) -> Result<(), StoreError>,
) -> Result<bool, CommandFailure> {
    let mut failed = false;
    for id in ids {
        match act(id) {
            Err(error @ (StoreError::Unknown(_) | StoreError::WrongState { .. })) if ids.len() > 1 => {
                render::report_error(&error.to_string());
                failed = true;
            }
            done => done?,
        }
    }
    Ok(failed)
}

/// Reports to people that a filter matches nothing, which is not an error.
pub(super) fn note_if_none(flags: &StoreFlags, count: usize) {
    if count == 0 && !flags.json {
        render::print("no such jobs\n");
    }
}

/// `sandtimer jobs redeliver`.
pub(super) fn redeliver(given: &RedeliverArguments) -> Result<ExitCode, CommandFailure> {
    let flags = &given.store;
    let store = open(flags)?;
    let ids = choosing::resolve_all(&*store, &given.jobs.ids)?;
    let failed = each_named(&ids, &mut |id| {
        let webhook = store.redeliver_webhook(id)?;
        answer(flags, &json!({"id": id, "webhook": webhook}), || {
            format!("the end of job {id} is due to be sent to {}\n", webhook.url)
        });
        Ok(())
    })?;
    Ok(if failed { ExitCode::from(125) } else { ExitCode::SUCCESS })
}

/// `sandtimer jobs requeue`.
pub(super) fn requeue(given: &RequeueArguments) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    store.sweep()?;
    let requeued = requeue_dead(&*store, &choosing::of_queue(given.queue.as_ref()))?;
    answer(&given.store, &json!({"requeued": requeued}), || {
        format!("{requeued} dead jobs are queued again\n")
    });
    Ok(ExitCode::SUCCESS)
}

/// `sandtimer jobs purge`.
pub(super) fn purge(given: &PurgeArguments) -> Result<ExitCode, CommandFailure> {
    let filter = choosing::filter(given.queue.as_ref(), given.state);
    let purged = open(&given.store)?.purge(&filter)?;
    answer(&given.store, &json!({"purged": purged}), || format!("{purged} jobs removed\n"));
    Ok(ExitCode::SUCCESS)
}
