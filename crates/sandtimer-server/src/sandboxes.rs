//! `/v1/sandboxes`: file systems in which many runs work, and which outlive them and the server.
//!
//! ```text
//! created ─▶ used by any number of runs at a time ⇄ paused ─▶ deleted, or at a limit, which ends those that are in it
//! ```
//! The engine implements them (docs/design/sandboxes.md); this module decides which owner may do
//! what.

mod export;
mod import;
mod life;
mod named;
mod names;
pub(crate) mod network;
mod network_counts;
pub(crate) mod ports;
mod service;
mod templates;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer::model::LimitKind;
use serde_json::{Value, json};

use self::life::close;
pub(crate) use self::life::{OwnedSandbox, end_expired, owned_are_deleted};
pub(crate) use self::network_counts::NetworkCounts;
pub(crate) use self::ports::{ByHost, is_port_host, route_by_host};
pub(crate) use self::service::{HOST_TEMPLATE, SandboxService};
use self::view::view;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, refused};
use crate::connection::Connection;
use crate::contexts::{ContextService, EndReason};
use crate::error::{ApiRejection, Code};
use crate::runs::{self, RunRequest};

/// What a sandbox as a whole can be limited in.
pub(crate) const WHOLE_LIMITS: [LimitKind; 4] =
    [LimitKind::Idle, LimitKind::Wall, LimitKind::Memory, LimitKind::Processes];
pub(crate) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/sandboxes", post(create).get(list))
        .route("/v1/sandboxes/{id}", get(show).delete(delete))
        .route("/v1/sandboxes/{id}/exec", post(execute))
        .merge(life::routes())
        .merge(templates::routes())
        .merge(ports::routes())
        .merge(export::routes())
        .merge(import::routes())
}

async fn create(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let template = fields.string("template")?.unwrap_or_else(|| HOST_TEMPLATE.to_owned());
    let network = network::parse(&mut fields)?;
    let limits = fields.limits(&WHOLE_LIMITS.map(Into::into))?;
    fields.finish()?;
    let made = tokio::task::spawn_blocking(move || {
        contexts.runs.sandboxes.create(&owner, &template, network, limits, &contexts.runs.core.tenants)
    });
    let made =
        made.await.map_err(|_| ApiRejection::new(Code::Internal, "the sandbox could not be made"))??;
    Ok((StatusCode::CREATED, body::json(&view(&made))).into_response())
}

async fn list(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let sandboxes = contexts.runs.sandboxes.sandboxes.of(owner.as_str());
    let shown: Vec<Value> = tokio::task::block_in_place(|| sandboxes.iter().map(view).collect());
    Ok(body::json(&json!({"sandboxes": shown})))
}

async fn show(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    Ok(body::json(&tokio::task::block_in_place(|| view(&sandbox))))
}

async fn delete(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    // A sandbox that ended at a limit is deleted already: this request acknowledges that.
    contexts.runs.sandboxes.get(&id, &owner).map(drop).or_else(|refusal| match refusal.code {
        Code::SandboxEnded => Ok(()),
        _ => Err(refusal),
    })?;
    let (runs, deleted_id) = (contexts.runs.clone(), id.clone());
    close(&contexts, &id, EndReason::Deleted, move || runs.sandboxes.delete(&deleted_id, &owner)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A run in the sandbox of the path: `POST /v1/runs` with its id as `sandbox`.
async fn execute(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    let mut request = RunRequest::parse(fields)?;
    if let Some(other) = &request.sandbox
        && *other != id
    {
        return Err(refused("sandbox", &other.as_str().into(), "the sandbox of the path, or nothing"));
    }
    request.enter_sandbox(id)?;
    runs::start_and_wait(&contexts.runs, &owner, &connection, request).await
}
