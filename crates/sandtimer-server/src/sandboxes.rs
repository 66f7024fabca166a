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
mod network;
mod network_counts;
mod ports;
mod templates;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer::Engine;
use sandtimer::engine::{Durability, Sandbox, SandboxNetwork, SandboxSpec, Sandboxes, Template};
use sandtimer::limits::Limits;
use sandtimer::model::LimitKind;
use sandtimer_proxy::Capacity;
use serde_json::{Value, json};
use tokio::runtime::Handle;

pub(crate) use self::life::{OwnedSandbox, end_expired};
pub(crate) use self::network_counts::NetworkCounts;
pub(crate) use self::ports::{ByHost, LinkKey, is_port_host, owner_by_link, route_by_host};
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, refused};
use crate::connection::Connection;
use crate::contexts::{self, EndReason};
use crate::error::{ApiRejection, Code};
use crate::quota::{Share, Shares};
use crate::runs::{self, RunRequest};
use crate::state::SharedApp;
use crate::tenants::Tenants;

/// The template that every server has.
pub(crate) const HOST_TEMPLATE: &str = "host";
/// How often the contexts in a sandbox that is being deleted are listed.
const CLOSING_INTERVAL: Duration = Duration::from_millis(20);
/// Templates of an owner's that a message names.
const MAX_NAMED_TEMPLATES: usize = 20;
/// What a sandbox as a whole can be limited in.
pub(crate) const WHOLE_LIMITS: [LimitKind; 4] =
    [LimitKind::Idle, LimitKind::Wall, LimitKind::Memory, LimitKind::Processes];
/// Each takes one of the engine's slots, of which runs need the others.
static SANDBOXES: Shares = Shares::of("sandboxes", 1_000);

/// The sandboxes of a server, and what they can be made from.
#[derive(Debug)]
pub(crate) struct SandboxService {
    sandboxes: Sandboxes,
    /// Directories that the operator has named.
    templates: BTreeMap<String, PathBuf>,
    /// What each takes of what there is for all.
    shares: Mutex<HashMap<String, Share>>,
    /// What links to their ports are signed with.
    pub link_key: LinkKey,
    /// What their networks have done.
    pub network_counts: Arc<NetworkCounts>,
}

impl SandboxService {
    /// Opens those below a state directory that no other server uses. What their networks need runs
    /// in `runtime`.
    pub fn open(
        engine: &Engine,
        runtime: &Handle,
        state_directory: &Path,
        templates: BTreeMap<String, PathBuf>,
        tenants: &Arc<Tenants>,
        report: &dyn Fn(&str),
    ) -> Result<Self, sandtimer::Error> {
        let network_counts = Arc::new(NetworkCounts::default());
        engine.serve_networks(Arc::new(network::Networks {
            runtime: runtime.clone(),
            tenants: tenants.clone(),
            counts: network_counts.clone(),
            capacity: Capacity::default(),
        }));
        let scope = |owner: &str| tenants.scope(&OwnerId::recorded(owner));
        let sandboxes = engine.sandboxes(&state_directory.join("sandboxes"), &scope, report)?;
        let link_key = LinkKey::new().map_err(|source| {
            let doing = "cannot make the key of links to ports";
            sandtimer::Error::System { doing, source }
        })?;
        let shares = Mutex::default();
        let service = SandboxService { sandboxes, templates, shares, link_key, network_counts };
        for sandbox in service.sandboxes.all() {
            // A sandbox over the quota is kept.
            if let Ok(share) = SANDBOXES.take(&OwnerId::recorded(&sandbox.owner())) {
                service.hold(sandbox.id(), share);
            }
        }
        for template in service.sandboxes.all_templates() {
            if let Ok(share) = templates::TEMPLATES.take(&OwnerId::recorded(&template.owner)) {
                service.hold(&template.id, share);
            }
        }
        Ok(service)
    }

    /// Has a sandbox or a template, by its id, hold a share until it is deleted.
    fn hold(&self, id: &str, share: Share) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), share);
    }

    fn release(&self, id: &str) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The owner of a sandbox; `None` if there is no such sandbox.
    fn owner_of(&self, id: &str) -> Option<OwnerId> {
        self.sandboxes.owner_of(id).map(|owner| OwnerId::recorded(&owner))
    }

    fn template(&self, name: &str, owner: &OwnerId) -> Result<Template, ApiRejection> {
        if name == HOST_TEMPLATE {
            return Ok(Template::Host);
        }
        if let Some(path) = self.templates.get(name) {
            return Ok(Template::Directory(path.clone()));
        }
        let stored = self.sandboxes.templates(owner.as_str());
        if stored.iter().any(|template| template.name == name || template.id == name) {
            return Ok(Template::Stored(name.to_owned()));
        }
        let shown: String = name.chars().take(60).collect();
        let names: Vec<&str> = std::iter::once(HOST_TEMPLATE)
            .chain(self.templates.keys().map(String::as_str))
            .chain(stored.iter().take(MAX_NAMED_TEMPLATES).map(|template| template.name.as_str()))
            .collect();
        let message = format!("template: there is no template `{shown}`; use one of {}", names.join(", "));
        Err(ApiRejection::new(Code::TemplateNotFound, message).with("key", "template").with("value", shown))
    }

    /// Blocks.
    fn create(
        &self,
        owner: &OwnerId,
        template: &str,
        network: SandboxNetwork,
        limits: Limits,
        tenants: &Tenants,
    ) -> Result<Sandbox, ApiRejection> {
        network::check(tenants, owner, &network)?;
        let spec = SandboxSpec {
            template: self.template(template, owner)?,
            template_name: template.to_owned(),
            owner: owner.as_str().to_owned(),
            parent: tenants.scope(owner),
            network,
            limits,
        };
        let share = SANDBOXES.take(owner)?;
        let sandbox = self.sandboxes.create(spec)?;
        self.hold(sandbox.id(), share);
        Ok(sandbox)
    }

    /// Blocks until nothing runs in it.
    fn delete(&self, id: &str, owner: &OwnerId) -> Result<(), ApiRejection> {
        self.sandboxes.delete(id, owner.as_str())?;
        self.release(id);
        Ok(())
    }
}

pub(crate) fn routes() -> Router<SharedApp> {
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

/// The sandbox of this owner, or that there is none.
pub(crate) fn find(app: &SharedApp, id: &str, owner: &OwnerId) -> Result<Sandbox, ApiRejection> {
    Ok(app.sandbox_service.sandboxes.find(id, owner.as_str()).map_err(sandtimer::Error::from)?)
}

/// Waits while its record is being written.
fn view(sandbox: &Sandbox) -> Value {
    let (life, usage) = (sandbox.life(), sandbox.usage());
    let milliseconds =
        |time: Option<Duration>| time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    json!({
        "sandbox_id": sandbox.id(),
        "template": sandbox.template_name(),
        "layers": sandbox.layers(),
        "network": network::view(sandbox.network()),
        "created_at_ms": sandbox.created_at_ms(),
        "runs": sandbox.runs(),
        "durability": match sandbox.durability() {
            Durability::Certain => "certain",
            Durability::Uncertain => "uncertain",
        },
        "paused": life.is_paused,
        "idle_ms": milliseconds(life.idle),
        "idle_left_ms": milliseconds(life.idle_left),
        "wall_ms": milliseconds(life.wall),
        "wall_left_ms": milliseconds(life.wall_left),
        "memory_bytes": usage.memory_limit,
        "memory_used_bytes": usage.memory,
        "processes": usage.processes_limit,
        "processes_used": usage.processes,
    })
}

async fn create(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let template = fields.string("template")?.unwrap_or_else(|| HOST_TEMPLATE.to_owned());
    let network = network::parse(&mut fields)?;
    let limits = fields.limits(&WHOLE_LIMITS.map(Into::into))?;
    fields.finish()?;
    let made = tokio::task::spawn_blocking(move || {
        app.sandbox_service.create(&owner, &template, network, limits, &app.tenants)
    });
    let made =
        made.await.map_err(|_| ApiRejection::new(Code::Internal, "the sandbox could not be made"))??;
    Ok((StatusCode::CREATED, body::json(&view(&made))).into_response())
}

async fn list(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let sandboxes = app.sandbox_service.sandboxes.of(owner.as_str());
    let shown: Vec<Value> = tokio::task::block_in_place(|| sandboxes.iter().map(view).collect());
    Ok(body::json(&json!({"sandboxes": shown})))
}

async fn show(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    let sandbox = find(&app, &id, &owner)?;
    Ok(body::json(&tokio::task::block_in_place(|| view(&sandbox))))
}

async fn delete(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    // A sandbox that ended at a limit is deleted already: this request acknowledges that.
    find(&app, &id, &owner).map(drop).or_else(|refusal| match refusal.code {
        Code::SandboxEnded => Ok(()),
        _ => Err(refusal),
    })?;
    let (service, deleted_id) = (app.clone(), id.clone());
    close(&app, &id, EndReason::Deleted, move || service.sandbox_service.delete(&deleted_id, &owner)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Removes a sandbox with `remove`, and closes the contexts in it at the same time.
async fn close<T: Send + 'static>(
    app: &SharedApp,
    id: &str,
    reason: EndReason,
    remove: impl FnOnce() -> Result<T, ApiRejection> + Send + 'static,
) -> Result<T, ApiRejection> {
    let (app, id) = (app.clone(), id.to_owned());
    // On a task of its own: a client that goes away does not leave it half removed.
    let removed = tokio::spawn(async move {
        let mut removing = tokio::task::spawn_blocking(remove);
        // Contexts hold it, also those that are opened at the last moment.
        loop {
            match tokio::time::timeout(CLOSING_INTERVAL, &mut removing).await {
                Ok(removed) => break removed,
                Err(_) => contexts::close_in_sandbox(&app, &id, reason).await,
            }
        }
    });
    let failed = |_| ApiRejection::new(Code::Internal, "the sandbox could not be removed");
    removed.await.map_err(failed)?.map_err(failed)?
}

/// A run in the sandbox of the path: `POST /v1/runs` with its id as `sandbox`.
async fn execute(
    State(app): State<SharedApp>,
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
    runs::start_and_wait(&app, &owner, &connection, request).await
}
