//! `/v1/jobs`: durable work. A job is submitted to the store below the state directory and outlives
//! the server; what executes it is a worker of this process, or any other that works on the same
//! store.
//!
//! ```text
//! submission   from a body to submissions, each refusal naming the job and the field
//! keeping      the store, and the worker of this server: its slots, what it admits, its end
//! follow       waiting for a job's end, and its events, from after the last one a reader had
//! files        what jobs have left, as a list and as streams
//! matching     what is asked of all jobs that a filter matches
//! view         jobs and queues as their owner sees them
//! schedules    jobs that recur
//! counts       what is counted
//! ```
//! States and failures are those of `sandtimer_jobs::job`; nothing about a job is kept here.
//! Another owner's jobs are not there, and each token has queues of its own.

mod counts;
mod files;
mod follow;
mod keeping;
mod matching;
mod schedules;
mod submission;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use sandtimer::supervise::output::Chunk;
use sandtimer_jobs::job::{
    CancelResult, JobLog, JobStore, LineTimes, MAX_QUEUES, MAX_SCHEDULES, ShownState, StoreError,
    is_queue_name,
};
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::events;
use crate::intake::AnswerReservation;
use crate::runs::{EncodingErrorMode, Piece};
use crate::scan::Scanner;

pub(crate) use counts::text as metrics;
pub(crate) use keeping::{JobService, WorkerResources};
use view::store_owner;

/// The default and the maximum number of jobs in a listing.
const DEFAULT_LISTED: u64 = 100;
const MAX_LISTED: u64 = 1_000;
/// How long a cancel waits for the end by default.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a log in an answer: the default; the minimum, so that every character fits; the
/// maximum.
const DEFAULT_LOG_BYTES: u64 = 256 * 1024;
const MIN_LOG_BYTES: u64 = 16;
const MAX_LOG_BYTES: u64 = 8 << 20;
/// The same with times, which make 26 bytes of an empty line's one.
const MAX_TIMED_LOG_BYTES: u64 = 256 * 1024;
/// Bytes that the answer to a submission has of each job, at most.
const SUBMITTED_BYTES: usize = 256;

pub(crate) fn routes() -> Router<Arc<JobService>> {
    Router::new()
        .route("/v1/jobs", post(submit).get(list))
        .route("/v1/jobs/cancel", post(matching::cancel))
        .route("/v1/jobs/retry", post(matching::retry))
        .route("/v1/jobs/requeue", post(matching::requeue))
        .route("/v1/jobs/purge", post(matching::purge))
        .route("/v1/jobs/queues", get(queues))
        .route("/v1/jobs/workers", get(workers))
        .route("/v1/jobs/pause", post(pause))
        .route("/v1/jobs/resume", post(resume))
        .route("/v1/jobs/schedules", get(schedules::list))
        .route("/v1/jobs/schedules/{name}", put(schedules::store).delete(schedules::remove))
        .route("/v1/jobs/schedules/{name}/pause", post(schedules::pause))
        .route("/v1/jobs/schedules/{name}/resume", post(schedules::resume))
        .route("/v1/jobs/breakers", get(breakers))
        .route("/v1/jobs/{id}", get(show))
        .route("/v1/jobs/{id}/log", get(log))
        .route("/v1/jobs/{id}/events", get(watch))
        .route("/v1/jobs/{id}/files", get(files::list))
        .route("/v1/jobs/{id}/files/{*path}", get(files::read))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/jobs/{id}/retry", post(retry))
        .route("/v1/jobs/{id}/redeliver", post(redeliver))
}

impl From<StoreError> for ApiRejection {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Spec(error) => submission::bad_spec(&error, None),
            StoreError::Conflict { key, existing } => {
                ApiRejection::new(Code::JobConflict, message).with("key", key).with("job_id", existing)
            }
            StoreError::Queues { .. } => {
                ApiRejection::new(Code::Quota, message).with("quota", "queues").with("limit", MAX_QUEUES)
            }
            StoreError::Schedules { .. } => ApiRejection::new(Code::Quota, message)
                .with("quota", "schedules")
                .with("limit", MAX_SCHEDULES),
            StoreError::Unknown(_) => ApiRejection::new(Code::JobNotFound, message),
            StoreError::WrongState { state, .. } => {
                ApiRejection::new(Code::JobState, message).with("state", state.name())
            }
            StoreError::Cursor(_) => ApiRejection::new(Code::BadField, message).with("key", "cursor"),
            StoreError::Lost(_) => ApiRejection::new(Code::Internal, message),
            // Only the operator may know the address: it is in the log of the server.
            StoreError::Unreachable(_) => {
                ApiRejection::new(Code::StoreUnreachable, "the server's store of jobs does not answer")
            }
            StoreError::Gone(_) => ApiRejection::new(
                Code::StoreGone,
                "the server's store of jobs is gone: its directory or stream was removed or replaced",
            ),
            // What is left is the disk's, or another process's that holds the database.
            _ => ApiRejection::new(Code::Storage, message),
        }
    }
}

async fn submit(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let are_lines = kind.is_some_and(submission::are_lines);
    let bytes = body::bytes(request, &service.core.messages, Some(Scanner::batch())).await?;
    let networked = service.core.tenants.may_have_network(&owner);
    let answering = service.clone();
    let (submitted, reserved) = service
        .ask(move |store| {
            let batch =
                submission::read(&bytes, are_lines, &store_owner(&owner), networked, store.calendar_ms())?;
            // Before anything is submitted: without memory for the answer it can be sent again.
            let reserved =
                answering.core.messages.answers.reserve_long(&owner, batch.len() * SUBMITTED_BYTES)?;
            Ok((store.submit(&batch)?, reserved))
        })
        .await?;
    let status = if submitted.iter().all(|one| one.existed) { StatusCode::OK } else { StatusCode::CREATED };
    let jobs: Vec<Value> = submitted
        .iter()
        .map(|one| json!({"job_id": one.id, "state": one.state, "existed": one.existed}))
        .collect();
    let mut answer = (status, body::json(&json!({"jobs": jobs}))).into_response();
    if let Some(reserved) = reserved {
        answer.extensions_mut().insert(AnswerReservation::new(reserved));
    }
    Ok(answer)
}

async fn list(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let store_owner = store_owner(&owner);
    let filter = matching::filter(&store_owner, &mut fields, &ShownState::NAMES)?;
    let limit = fields.number("limit")?.unwrap_or(DEFAULT_LISTED).clamp(1, MAX_LISTED) as usize;
    let cursor = fields.number("cursor")?.map(|cursor| cursor.to_string());
    let is_counted = fields.boolean("total")?.unwrap_or(false);
    fields.finish()?;
    let (page, total) = service
        .ask(move |store| {
            store.sweep()?;
            let total = is_counted.then(|| store.count(&filter)).transpose()?;
            Ok((store.list(&filter, cursor.as_deref(), limit)?, total))
        })
        .await?;
    let jobs: Vec<Value> = page.jobs.iter().map(|line| store_owner.line(line)).collect();
    Ok(body::json(&json!({"jobs": jobs, "next": page.next, "total": total})))
}

async fn show(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(Duration::ZERO);
    let errors = EncodingErrorMode::parse(&mut fields)?;
    fields.finish()?;
    let store_owner = store_owner(&owner);
    let mut record = follow::until_over(&service, &store_owner, &id, wait).await?;
    if errors == EncodingErrorMode::Replace {
        record.replace_invalid_utf8();
    }
    Ok(body::json(&store_owner.record(&record)))
}

/// A part of what a job has written, of all its deliveries.
async fn log(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let cursor = fields.number("cursor")?.unwrap_or(0);
    let is_timed = fields.boolean("timestamps")?.unwrap_or(false);
    let longest = if is_timed { MAX_TIMED_LOG_BYTES } else { MAX_LOG_BYTES };
    let most =
        fields.number("max_bytes")?.unwrap_or(DEFAULT_LOG_BYTES).clamp(MIN_LOG_BYTES, longest) as usize;
    let errors = EncodingErrorMode::parse(&mut fields)?;
    fields.finish()?;
    // In this order: of a job that has ended, nothing is added to its log afterwards.
    let record = service.find(&store_owner(&owner), &id).await?;
    let of = id.clone();
    let (log, following, before) = service
        .ask(move |store| {
            let log = store.read_log(&of, cursor, most)?;
            let following = store.read_log(&of, log.next_cursor, 1)?;
            let before = match cursor.checked_sub(1).filter(|_| is_timed) {
                Some(before) => store.read_log(&of, before, 1)?.bytes.pop(),
                None => None,
            };
            Ok((log, following, before))
        })
        .await?;
    let last = record.line.state.is_over() && following.bytes.is_empty();
    let piece = match is_timed {
        true => timed_piece(errors, log, before, last),
        false => {
            let chunk = Chunk { bytes: log.bytes, next_cursor: log.next_cursor, dropped_before: 0 };
            Piece::with(errors, chunk, last)
        }
    };
    Ok(body::json(&json!({
        "job_id": id,
        "state": record.line.state,
        "cursor": piece.cursor,
        "next_cursor": piece.next_cursor,
        "data": piece.data,
        "encoding": piece.encoding,
        "ended": last,
    })))
}

/// The same with the time before each line. Positions are those of the log, which has no times in
/// it.
fn timed_piece(errors: EncodingErrorMode, mut log: JobLog, before: Option<u8>, last: bool) -> Piece {
    let chunk = |bytes: Vec<u8>, next_cursor| Chunk { bytes, next_cursor, dropped_before: 0 };
    let plain = Piece::with(errors, chunk(log.bytes.clone(), log.next_cursor), last);
    // A character that the end has cut is left for the next part.
    log.bytes.truncate((plain.next_cursor - plain.cursor) as usize);
    log.next_cursor = plain.next_cursor;
    let stamped = LineTimes::after(before).stamp(&log);
    let length = stamped.len() as u64;
    let Piece { data, encoding, .. } = Piece::with(errors, chunk(stamped, length), true);
    Piece { data, encoding, ..plain }
}

async fn watch(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    headers: HeaderMap,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let errors = EncodingErrorMode::parse(&mut fields)?;
    fields.finish()?;
    let position = follow::JobPosition::after(events::last_event_id(&headers)?)?;
    let store_owner = store_owner(&owner);
    let record = service.find(&store_owner, &id).await?;
    if position.has_last_event(&record) {
        return Ok(events::nothing_more());
    }
    let heartbeat = service.core.messages.heartbeat;
    Ok(events::respond(follow::JobEvents::new(service, store_owner, id, position, errors), heartbeat))
}

/// Of a job that has ended already it is no error: it is no longer active, which was asked for.
async fn cancel(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let reason = fields.reason("the caller")?;
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(CANCEL_WAIT);
    fields.finish()?;
    let store_owner = store_owner(&owner);
    service.find(&store_owner, &id).await?;
    let of = id.clone();
    let done = service.ask(move |store| Ok(store.cancel(&of, &reason)?)).await?;
    let wait = if done == CancelResult::Asked { wait } else { Duration::ZERO };
    let record = follow::until_over(&service, &store_owner, &id, wait).await?;
    Ok(body::json(&json!({"job_id": id, "cancelled": done, "state": record.line.state})))
}

async fn retry(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    service.find(&store_owner(&owner), &id).await?;
    let of = id.clone();
    let state = service.ask(move |store| Ok(store.retry(&of)?)).await?;
    Ok(body::json(&json!({"job_id": id, "state": state})))
}

/// Sends the webhook of a job that has ended once more.
async fn redeliver(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    service.find(&store_owner(&owner), &id).await?;
    let of = id.clone();
    let webhook = service.ask(move |store| Ok(store.redeliver_webhook(&of)?)).await?;
    Ok(body::json(&json!({"job_id": id, "webhook": webhook})))
}

async fn queues(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let facts = service
        .ask(|store| {
            store.sweep()?;
            Ok(store.queues()?)
        })
        .await?;
    Ok(body::json(&json!({"queues": store_owner(&owner).queues(facts)})))
}

/// A part of the breakers that the owner's jobs share.
async fn breakers(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let limit = fields.number("limit")?.unwrap_or(DEFAULT_LISTED).clamp(1, MAX_LISTED) as usize;
    let cursor = fields.string("cursor")?;
    fields.finish()?;
    let of = store_owner(&owner);
    let list = move |store: &dyn JobStore| Ok(store.breakers(Some(of.name()), cursor.as_deref(), limit)?);
    Ok(body::json(&service.ask(list).await?))
}

/// Live workers of the store, with jobs of all owners: for operators.
async fn workers(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    if !service.core.tenants.is_operator(&owner) {
        let message = "the workers of a store are shown to operators only";
        return Err(ApiRejection::new(Code::OperatorOnly, message));
    }
    let workers = service
        .ask(|store| {
            store.sweep()?;
            Ok(store.workers()?)
        })
        .await?;
    Ok(body::json(&json!({"workers": workers})))
}

async fn pause(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    set_paused(&service, &owner, fields, true).await
}

async fn resume(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    set_paused(&service, &owner, fields, false).await
}

async fn set_paused(
    service: &Arc<JobService>,
    owner: &OwnerId,
    mut fields: RequestFields,
    paused: bool,
) -> Result<Response, ApiRejection> {
    let queue = fields.string("queue")?;
    fields.finish()?;
    let queue = queue.ok_or_else(|| {
        ApiRejection::new(Code::BadField, "queue is missing; give its name").with("key", "queue")
    })?;
    if !is_queue_name(&queue) {
        return Err(refused("queue", &queue.into(), "a name of 1 to 200 printable characters"));
    }
    let stored = store_owner(owner).stored_queue(&queue);
    let (of, name) = (store_owner(owner), queue.clone());
    let pause = move |store: &dyn JobStore| {
        // A queue that is paused is kept, also without jobs.
        if paused && !of.is_local() {
            let own = of.queues(store.queues()?);
            if own.len() >= MAX_QUEUES && own.iter().all(|facts| facts.queue != name) {
                return Err(StoreError::Queues { owner: of.name().to_owned() });
            }
        }
        store.pause(&stored, paused)
    };
    service.ask(move |store| Ok(pause(store)?)).await?;
    Ok(body::json(&json!({"queue": queue, "paused": paused})))
}
