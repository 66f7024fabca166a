//! Making, listing and ending sessions.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::json;
use std::sync::Arc;

use super::answer::success;
use super::caller::{BodyFields, Caller, NO_SESSION};
use super::failure::ContainerFailure;
use super::sandbox::{MAX_NAME_BYTES, SessionRequest, directory, timeout, variables};
use crate::contexts::ContextService;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/api/session/create", post(create))
        .route("/api/session/list", get(list))
        .route("/api/session/delete", post(delete))
}

async fn create(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let named = fields.string("id")?;
    let request = SessionRequest {
        environment: variables(&mut fields, "env")?.into_iter().collect(),
        directory: directory(&mut fields)?,
        each: timeout(&mut fields, "commandTimeoutMs")?,
    };
    let name = named.unwrap_or_else(|| format!("session-{}", crate::id::new_id()));
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name == NO_SESSION {
        return Err(ContainerFailure::invalid("id", "it is empty, longer than 1024 bytes, or reserved"));
    }
    caller.sandbox.create(&service, &name, request).await?;
    Ok(success(json!({
        "id": name,
        "message": "Session created",
        "data": {"id": name},
        "containerPlacementId": null,
    })))
}

async fn list(State(service): State<Arc<ContextService>>, caller: Caller) -> Response {
    success(json!({"data": caller.sandbox.names(&service).await}))
}

async fn delete(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let name = fields
        .string("sessionId")?
        .ok_or_else(|| ContainerFailure::invalid("sessionId", "give the session's name"))?;
    if !caller.sandbox.delete(&service, &name).await {
        let message = format!("there is no session '{name}'");
        return Err(ContainerFailure::new(404, "SESSION_NOT_FOUND", message).with("sessionId", name));
    }
    Ok(success(json!({"sessionId": name})))
}
