//! `/v1/runs`: what a request asks for, done to a run.

mod all;
mod attached_runs;
mod control;
mod copy;
pub(crate) mod drive;
mod encoding_error_mode;
mod input;
mod lines;
mod live;
mod output;
mod record;
mod request;
mod service;
mod stream;
mod terminal;
mod wait;
mod waiters;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer::Run;
use sandtimer::model::WaitingFor;
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, refused};
use crate::connection::{Connection, while_there};
use crate::error::ApiRejection;
use crate::events;
use crate::registry::OwnedResource;

pub(crate) use all::Runs;
pub(crate) use attached_runs::{parse as attached, watch_over};
pub(crate) use control::STDIN_WAIT;
pub(crate) use drive::{
    CLIENT_GONE, QueuedCell, UnbegunGuard, prepare_records, remove_expired_records, start, start_noted, sync,
    sync_records,
};
pub(crate) use encoding_error_mode::EncodingErrorMode;
pub(crate) use input::RunInput;
pub(crate) use lines::{LineSearch, LineSink, OutputLine, StreamPosition, expression, search_end, walk};
pub(crate) use live::{LiveRun, LoadedOutcome, RunPhase, RunView, enter_large};
pub(crate) use output::{Piece, cut_at_end};
pub(crate) use request::{
    LIMITS, ProgramRun, RunLocation, RunRequest, ScriptRun, environment, interpreted, warn_of, warn_signal,
};
pub(crate) use service::RunService;
pub(crate) use stream::RunEvents;
pub(crate) use wait::listens;

/// The default and the maximum number of runs in a listing.
const DEFAULT_LISTED: u64 = 100;
const MAX_LISTED: u64 = 1_000;

pub(crate) fn routes() -> Router<Arc<RunService>> {
    Router::new()
        .route("/v1/runs", post(create).get(list))
        .route("/v1/runs/{id}", get(show).delete(purge))
        .route("/v1/runs/{id}/output", get(read_output))
        .route("/v1/runs/{id}/processes", get(processes))
        .route("/v1/runs/{id}/events", get(follow))
        .route("/v1/runs/{id}/terminal", get(terminal::attach))
        .route("/v1/runs/{id}/wait", post(wait::wait))
        .merge(control::routes())
}

async fn create(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    start_and_wait(&service, &owner, &connection, RunRequest::parse(fields)?).await
}

/// Starts a run and answers with it when it has ended, or when the client does not want to wait any
/// longer.
pub(crate) async fn start_and_wait(
    service: &Arc<RunService>,
    owner: &OwnerId,
    connection: &Arc<Connection>,
    request: RunRequest,
) -> Result<Response, ApiRejection> {
    let (wait, attached, detach) = (request.wait, request.attached, request.detach);
    let errors = request.errors;
    let run = drive::start_here(service, owner, request).await?;
    let gone = || {
        if !detach {
            run.cancel(CLIENT_GONE);
        }
    };
    while_there(connection, run.wait_ended(wait), gone).await;
    if attached {
        watch_over(&run);
    }
    let answer = body::long_json(&service.core.messages, run.owner(), || run.view_with(errors)).await;
    answer.map_err(|rejection: ApiRejection| rejection.after_execution(Some(run.id())))
}

/// A run's place in a listing, which goes from the latest to the earliest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ListingPosition {
    since_ms: u64,
    run_id: String,
}

impl ListingPosition {
    fn parse(cursor: &str) -> Result<Self, ApiRejection> {
        let parts = cursor.split_once('-').filter(|(_, id)| !id.is_empty());
        let position = parts.and_then(|(since, id)| Some((since.parse().ok()?, id.to_owned())));
        position
            .map(|(since_ms, run_id)| ListingPosition { since_ms, run_id })
            .ok_or_else(|| refused("cursor", &cursor.into(), "the `next` of a listing"))
    }
}

impl fmt::Display for ListingPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.since_ms, self.run_id)
    }
}

async fn list(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let status = fields.enumeration("status", &["queued", "running", "ended"])?;
    let limit =
        usize::try_from(fields.number("limit")?.unwrap_or(DEFAULT_LISTED).min(MAX_LISTED)).unwrap_or(0);
    let sandbox = fields.string("sandbox")?;
    let cursor = fields.string("cursor")?.map(|cursor| ListingPosition::parse(&cursor)).transpose()?;
    fields.finish()?;
    let is_by_end = status == Some("ended");
    let with_position = |run: Arc<LiveRun>| {
        let since_ms = run.ended_at_ms().filter(|_| is_by_end).unwrap_or(run.created_at_ms());
        (ListingPosition { since_ms, run_id: run.id().to_owned() }, run)
    };
    let runs = service.records.of(&owner).into_iter();
    let runs = runs.filter(|run| status.is_none_or(|status| run.status() == status));
    let runs = runs.filter(|run| sandbox.is_none() || run.sandbox() == sandbox.as_deref());
    let mut runs: Vec<(ListingPosition, Arc<LiveRun>)> = runs.map(with_position).collect();
    let total = runs.len();
    runs.retain(|(position, _)| cursor.as_ref().is_none_or(|cursor| position < cursor));
    runs.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
    let next = if runs.len() > limit {
        runs[..limit].last().map(|(position, _)| position.to_string())
    } else {
        None
    };
    runs.truncate(limit);
    let shown: Vec<Value> =
        tokio::task::block_in_place(|| runs.iter().map(|(_, run)| run.summary()).collect());
    Ok(body::json(&json!({"runs": shown, "total": total, "next": next})))
}

async fn show(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let wait = fields.milliseconds("wait_ms")?;
    let errors = EncodingErrorMode::parse(&mut fields)?;
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    if let Some(wait) = wait {
        let _waiter = run.waiter();
        while_there(&connection, run.wait_ended(Some(wait)), || {}).await;
    }
    body::long_json(&service.core.messages, run.owner(), || run.view_with(errors)).await
}

/// What a run is doing.
async fn processes(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let run = service.get(&id, &owner)?.running()?;
    Ok(body::json(&tokio::task::block_in_place(|| doing(&run))))
}

/// What a run is doing, from an inspection of its processes. Blocks for at most a tenth of a
/// second.
pub(crate) fn doing(run: &Run) -> Value {
    let (inspection, progress) = (run.inspect(), run.progress());
    let how_far =
        progress.as_ref().map_or(String::new(), |progress| format!(" It is at {}.", progress.description()));
    json!({
        "run_id": run.id(),
        "sentence": inspection.sentence() + &how_far,
        "waiting_for": inspection.waiting_for.and_then(WaitingFor::as_recorded),
        "quiet_ms": inspection.quiet_ms,
        "cpu_ms": inspection.cpu_ms,
        "cpu_age_ms": inspection.cpu_age_ms,
        "io_bytes": inspection.io_bytes,
        "io_age_ms": inspection.io_age_ms,
        "progress": progress,
        "processes": inspection.processes,
        "truncated": inspection.truncated,
    })
}

async fn purge(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let run = service.get(&id, &owner)?;
    service.records.purge(&run).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn read_output(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let asked = output::OutputRequest::parse(&mut fields)?;
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    body::long_json(&service.core.messages, &owner, || output::read(&run, &asked)).await
}

async fn follow(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    headers: HeaderMap,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let errors = EncodingErrorMode::parse(&mut fields)?;
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    let position = stream::RunPosition::after(events::last_event_id(&headers)?)?;
    if position.is_end() {
        return Ok(events::nothing_more());
    }
    Ok(events::respond(stream::RunEvents::new(run, position, errors), service.core.messages.heartbeat))
}
