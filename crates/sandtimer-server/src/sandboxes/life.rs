//! Pausing a sandbox, extending it, its end at a limit, and sandboxes that are deleted with the
//! connection or object that made them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use sandtimer::engine::{Sandbox, SandboxNetwork};
use sandtimer::limits::Limits;
use sandtimer::scope::ScopeId;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::view::view;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object};
use crate::contexts::{self, ContextService, EndReason};
use crate::error::{ApiRejection, Code};

/// How often limits of sandboxes are checked. Runs inside end on time by themselves.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(500);
/// How often the contexts in a sandbox that is being deleted are listed.
const CLOSING_INTERVAL: Duration = Duration::from_millis(20);
/// How many sandboxes are ended at once; each may block a thread for some seconds.
const MAX_ENDING: usize = 64;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/sandboxes/{id}/pause", post(pause))
        .route("/v1/sandboxes/{id}/resume", post(resume))
        .route("/v1/sandboxes/{id}/extend", post(extend))
}

async fn pause(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    change(&contexts, &owner, &id, |sandbox| sandbox.pause())
}

async fn resume(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    change(&contexts, &owner, &id, |sandbox| sandbox.resume())
}

async fn extend(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let by = fields.milliseconds("by_ms")?;
    fields.finish()?;
    let by = by.filter(|by| *by > Duration::ZERO).ok_or_else(|| {
        ApiRejection::new(Code::BadField, "by_ms: give a positive number of milliseconds")
            .with("key", "by_ms")
    })?;
    change(&contexts, &owner, &id, |sandbox| sandbox.extend(by))
}

/// Changes a sandbox, and shows it.
fn change(
    contexts: &Arc<ContextService>,
    owner: &OwnerId,
    id: &str,
    change: impl FnOnce(&Sandbox) -> Result<(), sandtimer::Error>,
) -> Result<Response, ApiRejection> {
    let sandbox = contexts.runs.sandboxes.get(id, owner)?;
    // Its record is written, and a mount is waited for.
    tokio::task::block_in_place(|| change(&sandbox).map(|()| body::json(&view(&sandbox))))
        .map_err(ApiRejection::from)
}

/// Removes a sandbox with `remove`, and closes the contexts in it at the same time.
pub(super) async fn close<T: Send + 'static>(
    contexts: &Arc<ContextService>,
    id: &str,
    reason: EndReason,
    remove: impl FnOnce() -> Result<T, ApiRejection> + Send + 'static,
) -> Result<T, ApiRejection> {
    let (contexts, id) = (contexts.clone(), id.to_owned());
    // On a task of its own: a client that goes away does not leave it half removed.
    let removed = tokio::spawn(async move {
        let mut removing = tokio::task::spawn_blocking(remove);
        // Contexts hold it, also those that are opened at the last moment.
        loop {
            match tokio::time::timeout(CLOSING_INTERVAL, &mut removing).await {
                Ok(removed) => break removed,
                Err(_) => contexts::close_in_sandbox(&contexts, &id, reason).await,
            }
        }
    });
    let failed = |_| ApiRejection::new(Code::Internal, "the sandbox could not be removed");
    removed.await.map_err(failed)?.map_err(failed)?
}

/// Ends sandboxes that have reached a limit, until the server ends.
pub(crate) async fn end_expired(contexts: Arc<ContextService>) {
    let mut closing = contexts.runs.core.closing.subscribe();
    // Each on a task of its own: processes of one that end late delay no other's limit.
    let mut ending: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    loop {
        let told = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, told).await.is_ok() {
            return;
        }
        let due = tokio::task::block_in_place(|| contexts.runs.sandboxes.sandboxes.due());
        ending.retain(|_, task| !task.is_finished());
        for sandbox in due {
            let id = sandbox.id().to_owned();
            if ending.len() < MAX_ENDING && !ending.contains_key(&id) {
                ending.insert(id, tokio::spawn(end(contexts.clone(), sandbox)));
            }
        }
    }
}

/// Ends a sandbox that has reached a limit. One whose processes do not end yet is due again.
async fn end(contexts: Arc<ContextService>, sandbox: Sandbox) {
    let (id, ending) = (sandbox.id().to_owned(), contexts.clone());
    let remove = move || {
        let service = &ending.runs.sandboxes;
        if service.sandboxes.end_at_limit(&sandbox)? {
            service.release(sandbox.id());
        }
        Ok(())
    };
    let _ = close(&contexts, &id, EndReason::Limit, remove).await;
}

/// A sandbox that is deleted when this is dropped. If the server is killed before, the sandbox's
/// own limits end it.
#[derive(Debug)]
pub(crate) struct OwnedSandbox {
    contexts: Arc<ContextService>,
    owner: OwnerId,
    sandbox: Sandbox,
}

impl OwnedSandbox {
    pub async fn create(
        contexts: Arc<ContextService>,
        owner: OwnerId,
        template: String,
        limits: Limits,
    ) -> Result<Self, ApiRejection> {
        let made = tokio::task::spawn_blocking(move || {
            let network = SandboxNetwork::None;
            let sandbox = contexts.runs.sandboxes.create(
                &owner,
                &template,
                network,
                limits,
                &contexts.runs.core.tenants,
            )?;
            contexts.runs.sandboxes.owned.send_modify(|count| *count += 1);
            Ok(OwnedSandbox { contexts, owner, sandbox })
        });
        made.await.map_err(|_| ApiRejection::new(Code::Internal, "the sandbox could not be made"))?
    }

    pub fn id(&self) -> &str {
        self.sandbox.id()
    }

    pub fn template_name(&self) -> String {
        self.sandbox.template_name()
    }

    pub fn scope(&self) -> ScopeId {
        self.sandbox.scope()
    }
}

/// Waits until each of them that there is has been dropped, and deleted.
pub(crate) async fn owned_are_deleted(contexts: &ContextService) {
    // The sender is there.
    let _ = contexts.runs.sandboxes.owned.subscribe().wait_for(|count| *count == 0).await;
}

impl Drop for OwnedSandbox {
    fn drop(&mut self) {
        // Without a runtime the server is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let (contexts, owner, id) = (self.contexts.clone(), self.owner.clone(), self.sandbox.id().to_owned());
        runtime.spawn(async move {
            let (runs, deleted) = (contexts.runs.clone(), id.clone());
            // What is left is ended by its idle limit.
            let _ =
                close(&contexts, &id, EndReason::Deleted, move || runs.sandboxes.delete(&deleted, &owner))
                    .await;
            contexts.runs.sandboxes.owned.send_modify(|count| *count -= 1);
        });
    }
}
