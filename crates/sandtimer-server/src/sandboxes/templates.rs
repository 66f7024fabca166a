//! `/v1/templates`, and what makes templates and sandboxes of sandboxes: `snapshot` and `fork`.
//!
//! A template belongs to the token that made it. `host`, and those that the operator named, are for
//! all.

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use sandtimer::engine::{Origin, Sandbox, StoredTemplate};
use serde_json::{Value, json};
use std::sync::Arc;

use super::service::{HOST_TEMPLATE, SANDBOXES, SandboxService, TEMPLATES};
use super::view::view;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, refused};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::tenants::Tenants;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/sandboxes/{id}/snapshot", post(snapshot))
        .route("/v1/sandboxes/{id}/fork", post(fork))
        .route("/v1/templates", get(list))
        .route("/v1/templates/{id}", delete(remove))
}

impl SandboxService {
    /// Refuses a name that is the operator's.
    pub(super) fn check_template_name(&self, name: &str) -> Result<(), ApiRejection> {
        if name != HOST_TEMPLATE && !self.templates.contains_key(name) {
            return Ok(());
        }
        Err(refused(
            "name",
            &name.into(),
            "a name of yours: every client of this server has a template of that name",
        ))
    }

    /// Blocks.
    fn snapshot(
        &self,
        owner: &OwnerId,
        sandbox: &Sandbox,
        name: Option<&str>,
    ) -> Result<StoredTemplate, ApiRejection> {
        name.map_or(Ok(()), |name| self.check_template_name(name))?;
        let share = TEMPLATES.take(owner)?;
        let template = self.sandboxes.snapshot(sandbox, name)?;
        self.hold(&template.id, share);
        Ok(template)
    }

    /// Blocks.
    fn fork(
        &self,
        owner: &OwnerId,
        sandbox: &Sandbox,
        count: usize,
        tenants: &Tenants,
    ) -> Result<Vec<Sandbox>, ApiRejection> {
        // The engine refuses a number that is too large before anything is made.
        let most = count.min(sandtimer::engine::MAX_FORKS);
        let shares = (0..most).map(|_| SANDBOXES.take(owner)).collect::<Result<Vec<_>, _>>()?;
        let forks = self.sandboxes.fork(sandbox, count, tenants.scope(owner))?;
        forks.iter().zip(shares).for_each(|(fork, share)| self.hold(fork.id(), share));
        Ok(forks)
    }

    /// Blocks.
    fn delete_template(&self, owner: &OwnerId, name: &str) -> Result<(), ApiRejection> {
        if name == HOST_TEMPLATE || self.templates.contains_key(name) {
            let message =
                format!("template: `{name}` is the server's, and only its operator can take it away");
            return Err(ApiRejection::new(Code::BadField, message)
                .with("key", "template")
                .with("value", name));
        }
        let template = self.sandboxes.delete_template(name, owner.as_str())?;
        self.release(&template.id);
        Ok(())
    }

    /// All that an owner can make sandboxes from.
    fn list_templates(&self, owner: &OwnerId) -> Vec<Value> {
        let of_operator = |name: &str, kind: &str| {
            json!({
                "template_id": null, "name": name, "kind": kind, "owner": null, "created_at_ms": null, "size_bytes": null,
                "layers": [], "sandbox_id": null, "durability": "certain",
            })
        };
        let mut listed = vec![of_operator(HOST_TEMPLATE, "host")];
        listed.extend(self.templates.keys().map(|name| of_operator(name, "directory")));
        listed.extend(self.sandboxes.templates(owner.as_str()).iter().map(template_view));
        listed
    }
}

pub(super) fn template_view(template: &StoredTemplate) -> Value {
    let (kind, sandbox) = match &template.origin {
        Origin::Snapshot(sandbox) => ("snapshot", Some(sandbox)),
        _ => ("import", None),
    };
    json!({
        "template_id": template.id,
        "name": template.name,
        "kind": kind,
        "owner": template.owner,
        "created_at_ms": template.created_at_ms,
        "size_bytes": template.size_bytes,
        "layers": template.layers(),
        "sandbox_id": sandbox,
        "durability": if template.is_uncertain() { "uncertain" } else { "certain" },
    })
}

fn failed(_: tokio::task::JoinError) -> ApiRejection {
    ApiRejection::new(Code::Internal, "the sandbox or its template could not be made")
}

async fn snapshot(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let name = fields.string("name")?;
    fields.finish()?;
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    let made = tokio::task::spawn_blocking(move || {
        contexts.runs.sandboxes.snapshot(&owner, &sandbox, name.as_deref())
    });
    let template = made.await.map_err(failed)??;
    Ok((StatusCode::CREATED, body::json(&template_view(&template))).into_response())
}

async fn fork(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let count = fields.number("count")?.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
    fields.finish()?;
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    let made = tokio::task::spawn_blocking(move || {
        let forks = contexts.runs.sandboxes.fork(&owner, &sandbox, count, &contexts.runs.core.tenants)?;
        Ok::<_, ApiRejection>(forks.iter().map(view).collect::<Vec<Value>>())
    });
    let forks = made.await.map_err(failed)??;
    Ok((StatusCode::CREATED, body::json(&json!({"sandboxes": forks}))).into_response())
}

async fn list(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let listed = tokio::task::block_in_place(|| contexts.runs.sandboxes.list_templates(&owner));
    Ok(body::json(&json!({"templates": listed})))
}

async fn remove(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let deleted =
        tokio::task::spawn_blocking(move || contexts.runs.sandboxes.delete_template(&owner, &id)).await;
    deleted.map_err(|_| ApiRejection::new(Code::Internal, "the template could not be removed"))??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
