//! Pausing a sandbox, extending it, and its end at a limit.

use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use sandtimer::engine::Sandbox;

use super::{close, find, view};
use crate::SharedApp;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object};
use crate::error::{ApiRejection, Code};

/// How often limits of sandboxes are looked at. Runs inside end on time by themselves.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn routes() -> Router<SharedApp> {
    Router::new()
        .route("/v1/sandboxes/{id}/pause", post(pause))
        .route("/v1/sandboxes/{id}/resume", post(resume))
        .route("/v1/sandboxes/{id}/extend", post(extend))
}

async fn pause(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    change(&app, &owner, &id, |sandbox| sandbox.pause())
}

async fn resume(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    change(&app, &owner, &id, |sandbox| sandbox.resume())
}

async fn extend(
    State(app): State<SharedApp>,
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
    change(&app, &owner, &id, |sandbox| sandbox.extend(by))
}

/// Changes a sandbox, and shows it.
fn change(
    app: &SharedApp,
    owner: &OwnerId,
    id: &str,
    change: impl FnOnce(&Sandbox) -> Result<(), sandtimer::Error>,
) -> Result<Response, ApiRejection> {
    let sandbox = find(app, id, owner)?;
    // Its record is written, and a mount is waited for.
    tokio::task::block_in_place(|| change(&sandbox).map(|()| body::json(&view(&sandbox))))
        .map_err(ApiRejection::from)
}

/// Ends sandboxes that have reached a limit, until the server ends.
pub(crate) async fn end_expired(app: SharedApp) {
    let mut closing = app.closing.subscribe();
    loop {
        let told = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, told).await.is_ok() {
            return;
        }
        let due = tokio::task::block_in_place(|| app.sandbox_service.sandboxes.due());
        for sandbox in due {
            let (id, ending) = (sandbox.id().to_owned(), app.clone());
            let end = move || {
                let service = &ending.sandbox_service;
                if service.sandboxes.end_at_limit(&sandbox)? {
                    service.release(sandbox.id());
                }
                Ok(())
            };
            // One whose processes do not end yet is due again.
            let _ = close(&app, &id, end).await;
        }
    }
}
