//! `/v1/contexts` and `/v1/sessions`: live interpreters, and live shells, which are contexts whose
//! language is bash.
//!
//! ```text
//! create ─▶ idle ─▶ (execute: queued ─▶ a run, see `runs` ─▶ idle)* ─▶ deleted, or unused for idle_ms
//! ```
//! What is executed is a run like every other: its output, events, limits and record are found
//! under /v1/runs. A short cell of Python is executed on the thread that received its request; else
//! a thread of the runtime's blocking pool waits in the context while cells are executed or queued
//! there. An idle context needs no thread.

mod branches;
mod context;
mod ended_contexts;
mod images;
mod live;
mod pools;
mod request;
mod service;
mod shells;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::body::{self, Id, MayBeLong, Object, Parameters};
use crate::connection::{Connection, while_there};
use crate::error::{ApiRejection, Code};
use crate::quota::PermittedValue;
use crate::registry::OwnedResource;
use crate::runs::{CLIENT_GONE, LoadedOutcome, RunView, watch_over};

pub(crate) use context::LiveContext;
pub(crate) use ended_contexts::EndReason;
use live::QueuedExecution;
pub(crate) use live::{close, close_all, close_in_sandbox, execute as send, open, reap_idle};
use request::BranchRequest;
pub(crate) use request::{CellRequest, ContextLanguage, ContextRequest, PER_CONTEXT, PER_RUN};
pub(crate) use service::ContextService;

/// A context that is free usually begins within this time.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Each waits on a thread of its own.
const MAX_WAITING: usize = 64;

pub(crate) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/contexts", post(create_context).get(list_contexts))
        .route("/v1/contexts/{id}", get(show).delete(delete))
        .route("/v1/contexts/{id}/execute", post(execute))
        .route("/v1/contexts/{id}/branch", post(branch))
        .route("/v1/contexts/{id}/undo", post(undo))
        .route("/v1/contexts/{id}/interrupt", post(interrupt))
        .route("/v1/sessions", post(create_session).get(list_sessions))
        .route("/v1/sessions/{id}", get(show).delete(delete))
        .route("/v1/sessions/{id}/execute", post(execute))
        .route("/v1/sessions/{id}/undo", post(undo))
        .route("/v1/sessions/{id}/interrupt", post(interrupt))
}

async fn create_context(
    state: State<Arc<ContextService>>,
    owner: Extension<OwnerId>,
    connection: Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    create(state, owner, connection, ContextRequest::parse(fields, None)?).await
}

async fn create_session(
    state: State<Arc<ContextService>>,
    owner: Extension<OwnerId>,
    connection: Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    create(state, owner, connection, ContextRequest::parse(fields, Some(ContextLanguage::Bash))?).await
}

async fn create(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    request: ContextRequest,
) -> Result<Response, ApiRejection> {
    let mut opened = None;
    let opening = async { opened = Some(live::open(service, owner, request).await) };
    // If the client leaves, the context that is being made is dropped with this wait.
    while_there(&connection, opening, || {}).await;
    // This error has no receiver: the client has gone.
    let client_gone = || ApiRejection::new(Code::RequestTimeout, "the client disconnected");
    let context = opened.ok_or_else(client_gone)??;
    Ok((StatusCode::CREATED, body::json(&context.view())).into_response())
}

fn listed(
    service: &Arc<ContextService>,
    owner: &OwnerId,
    wanted: impl Fn(ContextLanguage) -> bool,
) -> Vec<Value> {
    let mut contexts = service.of(owner);
    contexts.retain(|context| wanted(context.language()));
    contexts.sort_by_key(|context| context.created_at_ms());
    contexts.iter().map(|context| context.view()).collect()
}

async fn list_contexts(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    Ok(body::json(&json!({"contexts": listed(&service, &owner, |_| true)})))
}

async fn list_sessions(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    Ok(body::json(
        &json!({"contexts": listed(&service, &owner, |language| language == ContextLanguage::Bash)}),
    ))
}

async fn show(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    Ok(body::json(&service.get(&id, &owner)?.view()))
}

async fn delete(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let context = service.get(&id, &owner)?;
    live::close(&service, &context).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn execute(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    let context = service.get(&id, &owner)?;
    let request = CellRequest::parse(fields, context.language())?;
    check_waiting(&context)?;
    let (wait, attached, detach) = (request.wait, request.attached, request.detach);
    let errors = request.errors;
    // A client must not have to ask again because a checkpoint is being made.
    let turn =
        if context.is_free() { BEGIN_TIMEOUT } else { Duration::ZERO }.max(request.turn.unwrap_or_default());
    let for_turn = wait.map(|wait| wait.max(turn));
    let asked_at = tokio::time::Instant::now();
    let mut queued = live::execute(service.clone(), owner.clone(), context.clone(), request)?;
    let (withdraw, mut begun) = (queued.withdrawal(), Ok(None));
    let waiting = async { begun = queued.begun(for_turn).await };
    let gone = || {
        if !detach {
            withdraw();
        }
    };
    while_there(&connection, waiting, gone).await;
    let begun = begun?;
    if attached && begun.is_none() {
        watch_over(queued.run());
    }
    let Some(run) = begun else { return Ok(body::json(&CellView::of(&context, &queued, None))) };
    let left = wait.map(|wait| wait.saturating_sub(asked_at.elapsed()));
    let gone = || {
        if !detach {
            run.cancel(CLIENT_GONE);
        }
    };
    while_there(&connection, run.wait_ended(left), gone).await;
    if attached {
        watch_over(&run);
    }
    let answer = body::long_json(&service.runs.core.messages, &owner, || async {
        Ok::<_, ApiRejection>(CellView::of(&context, &queued, Some(run.view_with(errors).await?)))
    });
    answer.await.map_err(|rejection| rejection.after_execution(Some(run.id())))
}

/// Refuses one more that would wait where many do.
///
/// # Errors
/// When as many wait in the context as may.
pub(crate) fn check_waiting(context: &LiveContext) -> Result<(), ApiRejection> {
    if context.waiting() < MAX_WAITING {
        return Ok(());
    }
    let message = format!("{MAX_WAITING} requests wait for their turn in the context `{}`", context.id_str());
    Err(ApiRejection::new(Code::Capacity, message))
}

/// What is answered of something that was sent to a context: the run's own view, or that there is
/// none yet.
#[derive(Serialize)]
struct CellView {
    run_id: String,
    status: &'static str,
    context_id: String,
    position: Option<usize>,
    notes: Vec<String>,
    outcome: Option<LoadedOutcome>,
}

impl MayBeLong for CellView {
    fn may_be_long(&self) -> bool {
        self.outcome.as_ref().is_some_and(PermittedValue::may_be_long)
    }
}

impl CellView {
    fn of(context: &LiveContext, queued: &QueuedExecution, run: Option<RunView>) -> Self {
        let (status, position) = match &run {
            Some(run) => (run.status, None),
            None => ("queued", Some(context.waiting())),
        };
        let outcome = run.and_then(|run| run.outcome);
        CellView {
            run_id: queued.run().id().to_owned(),
            status,
            context_id: context.id_str().to_owned(),
            position,
            notes: queued.notes(outcome.as_ref().map(|outcome| outcome.state)),
            outcome,
        }
    }
}

async fn branch(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    let context = service.get(&id, &owner)?;
    let request = BranchRequest::parse(fields)?;
    check_waiting(&context)?;
    let mut made = Ok(Vec::new());
    let making = async { made = branches::make(service, context, request).await };
    while_there(&connection, making, || {}).await;
    let views: Vec<Value> = made?.iter().map(|context| context.view()).collect();
    Ok(body::json(&json!({"contexts": views})))
}

async fn undo(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let context = service.get(&id, &owner)?;
    check_waiting(&context)?;
    let mut undone = Ok(());
    let undoing = async { undone = live::undo(&context).await };
    while_there(&connection, undoing, || {}).await;
    undone?;
    Ok(body::json(&context.view()))
}

async fn interrupt(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let context = service.get(&id, &owner)?;
    Ok(body::json(&json!({"context_id": context.id_str(), "interrupted": context.interrupt()})))
}
