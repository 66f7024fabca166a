//! `/v1/workspaces`: directories that runs, contexts and sessions work in and that outlive them.
//!
//! ```text
//! created ─▶ used by any number of runs, contexts and sessions at a time ─▶ deleted, once none uses it
//! ```
//! Each context has one of its own unless it was given one; that goes with it. Whose their files
//! are on the disk is the engine's business (`make_workspace`); what is done with them from outside
//! goes through `files`.

mod live;
mod temporary;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters};
use crate::error::{ApiRejection, Code};
use crate::files;
use crate::runs::RunService;

pub(crate) use live::{Workspace, WorkspaceUse, Workspaces};
pub(crate) use temporary::{ScratchWorkspace, TemporaryDirectory};

pub(crate) fn routes() -> Router<Arc<RunService>> {
    Router::new()
        .route("/v1/workspaces", post(create).get(list))
        .route("/v1/workspaces/{id}", get(show).delete(delete))
}

fn view(workspace: &Workspace) -> Value {
    json!({
        "workspace_id": workspace.id_str(),
        "created_at_ms": workspace.created_at_ms(),
        "in_use": workspace.users(),
    })
}

async fn create(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let made = tokio::task::spawn_blocking(move || service.workspaces.create(&owner, None)).await;
    let made = made.map_err(|_| ApiRejection::new(Code::Internal, "the workspace could not be made"))??;
    Ok((StatusCode::CREATED, body::json(&view(&made))).into_response())
}

async fn list(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let mut all = service.workspaces.of(&owner);
    all.sort_by_key(|workspace| workspace.created_at_ms());
    let shown: Vec<Value> = all.iter().map(|workspace| view(workspace)).collect();
    Ok(body::json(&json!({"workspaces": shown})))
}

async fn show(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let workspace = service.workspaces.get(&id, &owner)?;
    let size = files::act(&workspace, |tree| tree.size()).await?;
    let mut view = view(&workspace);
    view["size_bytes"] = size.bytes.into();
    view["files"] = size.files.into();
    view["complete"] = size.complete.into();
    Ok(body::json(&view))
}

async fn delete(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let workspace = service.workspaces.get(&id, &owner)?;
    if !workspace.close() {
        let message = format!("{} runs or contexts use the workspace `{id}`", workspace.users());
        return Err(ApiRejection::new(Code::WorkspaceInUse, message));
    }
    let removed = tokio::task::spawn_blocking(move || service.workspaces.remove(&workspace)).await;
    removed.map_err(|_| ApiRejection::new(Code::Internal, "the workspace could not be removed"))??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
