//! What is asked of all of an owner's jobs that a filter matches.

use axum::extract::{Extension, State};
use axum::response::Response;
use sandtimer_jobs::job::{
    CancelResult, Filter, JobStore, OPEN_STATES, RETRIED_STATES, ShownState, StoreError, each_open,
    each_retried, requeue_dead,
};
use serde_json::json;
use std::sync::Arc;

use super::keeping::JobService;
use super::view::{StoreOwner, store_owner};
use crate::auth::OwnerId;
use crate::body::{self, Object, RequestFields};
use crate::error::{ApiRejection, Code};

/// States of jobs that have ended.
const ENDED_STATES: [&str; 5] = ["ok", "failed", "ended", "dead", "cancelled"];

/// Which of an owner's jobs.
pub(super) fn filter(
    store_owner: &StoreOwner,
    fields: &mut RequestFields,
    states: &[&'static str],
) -> Result<Filter, ApiRejection> {
    let (filter, shown) = chosen(store_owner, fields, states)?;
    Ok(filter.shown(shown))
}

fn chosen(
    store_owner: &StoreOwner,
    fields: &mut RequestFields,
    states: &[&'static str],
) -> Result<(Filter, Option<ShownState>), ApiRejection> {
    let queue = fields.string("queue")?.map(|queue| store_owner.stored_queue(&queue));
    let shown = fields.enumeration("state", states)?.and_then(ShownState::from_name);
    Ok((Filter { owner: Some(store_owner.name().to_owned()), queue, ..Filter::default() }, shown))
}

/// The same for requests that must not mean all jobs by a body without fields: they need `all` for
/// that.
fn chosen_explicitly(
    store_owner: &StoreOwner,
    fields: &mut RequestFields,
    states: &[&'static str],
) -> Result<(Filter, Option<ShownState>), ApiRejection> {
    let is_all = fields.boolean("all")?.unwrap_or(false);
    let (filter, shown) = chosen(store_owner, fields, states)?;
    if !is_all && filter.queue.is_none() && shown.is_none() {
        let message = "all is missing; give `queue`, `state`, or `all: true` for all your jobs";
        return Err(ApiRejection::new(Code::BadField, message).with("key", "all"));
    }
    Ok((filter, shown))
}

/// Jobs that workers have are asked to end, and not waited for.
pub(super) async fn cancel(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let reason = fields.reason("the caller")?;
    let (filter, shown) = chosen_explicitly(&store_owner(&owner), &mut fields, &OPEN_STATES)?;
    fields.finish()?;
    let cancel = move |store: &dyn JobStore| -> Result<(u64, u64), StoreError> {
        let (mut cancelled, mut asked) = (0, 0);
        each_open(store, &filter, shown, &mut |line| {
            match store.cancel(&line.id, &reason)? {
                CancelResult::Cancelled => cancelled += 1,
                CancelResult::Asked => asked += 1,
                // It has ended since it was listed.
                CancelResult::TooLate => {}
            }
            Ok(())
        })?;
        Ok((cancelled, asked))
    };
    let (cancelled, asked) = service.ask(move |store| Ok(cancel(store)?)).await?;
    Ok(body::json(&json!({"cancelled": cancelled, "asked": asked})))
}

pub(super) async fn retry(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let (filter, shown) = chosen_explicitly(&store_owner(&owner), &mut fields, &RETRIED_STATES)?;
    fields.finish()?;
    let retry = move |store: &dyn JobStore| -> Result<u64, StoreError> {
        let mut retried = 0;
        store.sweep()?;
        each_retried(store, &filter, shown, &mut |line| store.retry(&line.id).map(|_| retried += 1))?;
        Ok(retried)
    };
    let retried = service.ask(move |store| Ok(retry(store)?)).await?;
    Ok(body::json(&json!({"retried": retried})))
}

/// Dead letters, back into their queues.
pub(super) async fn requeue(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let filter = filter(&store_owner(&owner), &mut fields, &[])?;
    fields.finish()?;
    let requeued = service.ask(move |store| Ok(requeue_dead(store, &filter)?)).await?;
    Ok(body::json(&json!({"requeued": requeued})))
}

pub(super) async fn purge(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let filter = filter(&store_owner(&owner), &mut fields, &ENDED_STATES)?;
    fields.finish()?;
    let purged = service.ask(move |store| Ok(store.purge(&filter)?)).await?;
    Ok(body::json(&json!({"purged": purged})))
}
