//! `/v1/runs`: what a request asks for, done to a run.

mod attached;
mod control;
mod copy;
mod drive;
mod lines;
mod live;
mod output;
mod record;
mod request;
mod stream;
mod terminal;
mod wait;

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

use crate::Shared;
use crate::auth::Owner;
use crate::body::{self, Id, Object, Parameters, refused};
use crate::connection::{Connection, while_there};
use crate::error::{Code, Refusal};
use crate::events;
use crate::owned::Owned;

pub(crate) use attached::{parse as attached, watch_over};
pub(crate) use control::{Input, STDIN_WAIT};
pub(crate) use drive::{
    CLIENT_GONE, QueuedCell, UnbegunGuard, begin_queued, drive_queued, drop_queued, end_queued,
    prepare_records, queue, start, start_here, start_noted, sync, sync_records,
};
pub(crate) use lines::{Line, LineSink, Search, expression, search_end, walk};
pub(crate) use live::{LiveRun, LoadedOutcome, Phase, RunView, Runs, enter_large, keep_house};
pub(crate) use output::{Piece, TextErrors, cut_at_end};
pub(crate) use request::{
    AgentPlace, LIMITS, ProgramRun, RunRequest, environment, interpreted, warn_of, warn_signal,
};
pub(crate) use stream::RunEvents;
pub(crate) use wait::listens;

/// Runs in a listing unless it says how many, and at most.
const LISTED: u64 = 100;
const MOST_LISTED: u64 = 1_000;

pub(crate) fn routes() -> Router<Shared> {
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

/// The run of this owner, or that there is none.
pub(crate) fn find(app: &Shared, id: &str, owner: &Owner) -> Result<Arc<LiveRun>, Refusal> {
    app.runs.find(id, owner).ok_or_else(|| {
        let shown: String = id.chars().take(60).collect();
        Refusal::new(Code::RunNotFound, format!("there is no run `{shown}`"))
    })
}

async fn create(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Extension(connection): Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, Refusal> {
    start_and_wait(&app, &owner, &connection, RunRequest::parse(fields)?).await
}

/// Starts a run and answers with it when it has ended, or when the client does not want to wait any longer.
pub(crate) async fn start_and_wait(
    app: &Shared,
    owner: &Owner,
    connection: &Arc<Connection>,
    request: RunRequest,
) -> Result<Response, Refusal> {
    let (wait, attached, detach) = (request.wait, request.attached, request.detach);
    let errors = request.errors;
    let run = drive::start_here(app, owner, request).await?;
    let gone = || {
        if !detach {
            run.cancel(CLIENT_GONE);
        }
    };
    while_there(connection, run.wait_ended(wait), gone).await;
    if attached {
        watch_over(&run);
    }
    let answer = body::long_json(app, run.owner(), || run.view_with(errors)).await;
    answer.map_err(|refusal: Refusal| refusal.after_execution(Some(run.id())))
}

/// A run's place in a listing, which goes from the latest to the earliest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RunPlace {
    since_ms: u64,
    run_id: String,
}

impl RunPlace {
    fn parse(cursor: &str) -> Result<Self, Refusal> {
        let parts = cursor.split_once('-').filter(|(_, id)| !id.is_empty());
        let place = parts.and_then(|(since, id)| Some((since.parse().ok()?, id.to_owned())));
        place
            .map(|(since_ms, run_id)| RunPlace { since_ms, run_id })
            .ok_or_else(|| refused("cursor", &cursor.into(), "the `next` of a listing"))
    }
}

impl fmt::Display for RunPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.since_ms, self.run_id)
    }
}

async fn list(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Parameters(mut fields): Parameters,
) -> Result<Response, Refusal> {
    let status = fields.word("status", &["queued", "running", "ended"])?;
    let limit = usize::try_from(fields.number("limit")?.unwrap_or(LISTED).min(MOST_LISTED)).unwrap_or(0);
    let sandbox = fields.text("sandbox")?;
    let cursor = fields.text("cursor")?.map(|cursor| RunPlace::parse(&cursor)).transpose()?;
    fields.finish()?;
    let is_by_end = status == Some("ended");
    let place = |run: Arc<LiveRun>| {
        let since_ms = run.ended_at_ms().filter(|_| is_by_end).unwrap_or(run.created_at_ms());
        (RunPlace { since_ms, run_id: run.id().to_owned() }, run)
    };
    let runs = app.runs.of(&owner).into_iter();
    let runs = runs.filter(|run| status.is_none_or(|status| run.status() == status));
    let runs = runs.filter(|run| sandbox.is_none() || run.sandbox() == sandbox.as_deref());
    let mut runs: Vec<(RunPlace, Arc<LiveRun>)> = runs.map(place).collect();
    let total = runs.len();
    runs.retain(|(place, _)| cursor.as_ref().is_none_or(|cursor| place < cursor));
    runs.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
    let next =
        if runs.len() > limit { runs[..limit].last().map(|(place, _)| place.to_string()) } else { None };
    runs.truncate(limit);
    let shown: Vec<Value> =
        tokio::task::block_in_place(|| runs.iter().map(|(_, run)| run.summary()).collect());
    Ok(body::json(&json!({"runs": shown, "total": total, "next": next})))
}

async fn show(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, Refusal> {
    let wait = fields.milliseconds("wait_ms")?;
    let errors = TextErrors::parse(&mut fields)?;
    fields.finish()?;
    let run = find(&app, &id, &owner)?;
    if let Some(wait) = wait {
        let _waiter = run.waiter();
        while_there(&connection, run.wait_ended(Some(wait)), || {}).await;
    }
    body::long_json(&app, run.owner(), || run.view_with(errors)).await
}

/// What a run is doing.
async fn processes(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(id): Id,
    Parameters(fields): Parameters,
) -> Result<Response, Refusal> {
    fields.finish()?;
    let run = find(&app, &id, &owner)?.running()?;
    Ok(body::json(&tokio::task::block_in_place(|| doing(&run))))
}

/// What a run is doing, which takes a look at its processes. Blocks for at most a tenth of a second.
pub(crate) fn doing(run: &Run) -> Value {
    let (look, progress) = (run.look(), run.progress());
    let how_far =
        progress.as_ref().map_or(String::new(), |progress| format!(" It is at {}.", progress.words()));
    json!({
        "run_id": run.id(),
        "sentence": look.sentence() + &how_far,
        "waiting_for": look.waiting_for.and_then(WaitingFor::told),
        "quiet_ms": look.quiet_ms,
        "cpu_ms": look.cpu_ms,
        "cpu_age_ms": look.cpu_age_ms,
        "io_bytes": look.io_bytes,
        "io_age_ms": look.io_age_ms,
        "progress": progress,
        "processes": look.processes,
        "truncated": look.truncated,
    })
}

async fn purge(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(id): Id,
) -> Result<Response, Refusal> {
    let run = find(&app, &id, &owner)?;
    app.runs.purge(&run).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn read_output(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, Refusal> {
    let asked = output::Asked::parse(&mut fields)?;
    fields.finish()?;
    let run = find(&app, &id, &owner)?;
    body::long_json(&app, &owner, || output::read(&run, &asked)).await
}

async fn follow(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(id): Id,
    headers: HeaderMap,
    Parameters(mut fields): Parameters,
) -> Result<Response, Refusal> {
    let errors = TextErrors::parse(&mut fields)?;
    fields.finish()?;
    let run = find(&app, &id, &owner)?;
    let place = stream::Place::after(events::last_event_id(&headers)?)?;
    if place.is_end() {
        return Ok(events::nothing_more());
    }
    Ok(events::respond(stream::RunEvents::new(run, place, errors), app.heartbeat))
}
