//! Code contexts, and what is executed in them: output as it comes, results at the end, then one
//! event that says how it ended.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::{delete, post};
use serde_json::{Value, json};

use super::answer::success;
use super::caller::{BodyFields, Caller};
use super::command::begin_in;
use super::failure::ContainerFailure;
use super::frames::{CommandFrames, respond};
use super::sandbox::{self, CodeContext, SessionRequest};
use super::storage::WORKSPACE;
use crate::body::Id;
use crate::connection::Connection;
use crate::contexts::{self, CellRequest, ContextLanguage, ContextService};
use crate::registry::OwnedResource;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/api/contexts", post(create).get(list))
        .route("/api/contexts/{id}", delete(remove))
        .route("/api/execute/code", post(execute))
}

/// The language that is meant, by its name there and here.
fn language(name: &str) -> Result<(&'static str, ContextLanguage), ContainerFailure> {
    match name.to_ascii_lowercase().as_str() {
        "python" | "python3" => Ok(("python", ContextLanguage::Python)),
        "javascript" | "js" | "node" => Ok(("javascript", ContextLanguage::JavaScript)),
        "typescript" | "ts" => Ok(("typescript", ContextLanguage::TypeScript)),
        other => {
            let shown: String = other.chars().take(60).collect();
            Err(ContainerFailure::invalid(
                "language",
                &format!("`{shown}` is not python, javascript or typescript"),
            ))
        }
    }
}

fn not_found(id: &str) -> ContainerFailure {
    let shown: String = id.chars().take(60).collect();
    ContainerFailure::new(404, "CONTEXT_NOT_FOUND", format!("Context {shown} not found"))
        .with("contextId", shown)
}

fn find(service: &Arc<ContextService>, caller: &Caller, id: &str) -> Result<CodeContext, ContainerFailure> {
    let mut contexts = caller.sandbox.contexts();
    let found = contexts.get(id).cloned().ok_or_else(|| not_found(id))?;
    if service.find(id, found.context.owner()).is_none() {
        // It was not used for too long, or was deleted under its other name.
        contexts.remove(id);
        return Err(not_found(id));
    }
    Ok(found)
}

async fn create(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let (name, language) = language(&fields.string("language")?.unwrap_or_else(|| "python".to_owned()))?;
    let directory = sandbox::directory(&mut fields)?.unwrap_or_else(|| WORKSPACE.to_owned());
    let request = SessionRequest {
        environment: sandbox::variables(&mut fields, "env_vars")?.into_iter().collect(),
        directory: Some(directory.clone()),
        ..SessionRequest::default()
    };
    let context = caller.sandbox.open(&service, language, request).await?;
    let id = context.id_str().to_owned();
    let kept = CodeContext { context, name, directory: directory.clone() };
    caller.sandbox.contexts().insert(id.clone(), kept);
    Ok(success(json!({"contextId": id, "language": name, "cwd": directory})))
}

async fn list(State(service): State<Arc<ContextService>>, caller: Caller) -> Response {
    let mut contexts = caller.sandbox.contexts();
    contexts.retain(|id, kept| service.find(id, kept.context.owner()).is_some());
    let mut kept: Vec<&CodeContext> = contexts.values().collect();
    kept.sort_by_key(|kept| kept.context.created_at_ms());
    let views = kept
        .iter()
        .map(|kept| json!({"id": kept.context.id_str(), "language": kept.name, "cwd": kept.directory}));
    success(json!({"contexts": views.collect::<Vec<Value>>()}))
}

async fn remove(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, ContainerFailure> {
    let found = find(&service, &caller, &id)?;
    contexts::close(&service, &found.context).await;
    caller.sandbox.contexts().remove(&id);
    Ok(success(json!({"contextId": id})))
}

async fn execute(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let missing = |key: &str| ContainerFailure::invalid(key, "give it as a string");
    let id = fields.string("context_id")?.ok_or_else(|| missing("context_id"))?;
    let source = fields.string("code")?.ok_or_else(|| missing("code"))?;
    let limits = sandbox::timeout(&mut fields, "timeout_ms")?;
    let wanted = fields.string("language")?.map(|name| language(&name)).transpose()?;
    let found = find(&service, &caller, &id)?;
    if wanted.is_some_and(|(name, _)| name != found.name) {
        let message = format!("Context {id} executes {}", found.name);
        return Err(ContainerFailure::new(500, "CODE_EXECUTION_ERROR", message).with("contextId", id));
    }
    let run = begin_in(&service, &found.context, CellRequest::of(source, limits), &connection).await;
    let run = run.map_err(|failure| match find(&service, &caller, &id) {
        Ok(_) => failure,
        Err(gone) => gone,
    })?;
    Ok(respond(CommandFrames::code(run, connection), service.runs.core.messages.heartbeat))
}
