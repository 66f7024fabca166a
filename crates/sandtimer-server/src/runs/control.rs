//! What can be done to a run that is active: kill, extend, pause, resume, signal, stdin.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;

use super::request;
use super::service::RunService;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object};
use crate::error::{ApiRejection, Code};

/// How long a kill waits for the end by default.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long bytes for stdin wait for a command that does not read them.
pub(crate) const STDIN_WAIT: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Router<Arc<RunService>> {
    Router::new()
        .route("/v1/runs/{id}/kill", post(kill))
        .route("/v1/runs/{id}/extend", post(extend))
        .route("/v1/runs/{id}/pause", post(pause))
        .route("/v1/runs/{id}/resume", post(resume))
        .route("/v1/runs/{id}/signal", post(signal))
        .route("/v1/runs/{id}/stdin", post(stdin))
}

/// Of a run that has ended already it is no error: it is dead, which was asked for.
async fn kill(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let reason = fields.reason("the caller")?;
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(KILL_WAIT);
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    run.cancel(&reason);
    run.wait_ended(Some(wait)).await;
    body::long_json(&service.core.messages, &owner, || run.view()).await
}

async fn extend(
    State(service): State<Arc<RunService>>,
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
    let run = service.get(&id, &owner)?.running()?;
    let deadline = run.extend(by)?;
    let left = |moment: u64| moment.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
    Ok(body::json(&match deadline {
        None => json!({"run_id": id, "wall_left_ms": null, "source": null}),
        Some(deadline) => json!({
            "run_id": id,
            "wall_left_ms": left(deadline.wall_end.as_nanos()),
            "source": deadline.effect.source,
        }),
    }))
}

async fn pause(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    service.get(&id, &owner)?.running()?.pause()?;
    Ok(body::json(&json!({"run_id": id, "paused": true})))
}

async fn resume(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    service.get(&id, &owner)?.running()?.resume()?;
    Ok(body::json(&json!({"run_id": id, "paused": false})))
}

async fn signal(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let given = fields.value("signal").unwrap_or_default();
    fields.finish()?;
    let number = request::signal("signal", &given)?;
    let run = service.get(&id, &owner)?.running()?;
    run.signal(number).map_err(|_| ApiRejection::new(Code::RunEnded, format!("the run `{id}` has ended")))?;
    Ok(body::json(&json!({"run_id": id, "signal": number})))
}

/// Writes what the command takes, and answers how much that was.
async fn stdin(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let data = fields.bytes("data", "encoding")?.unwrap_or_default();
    let eof = fields.boolean("eof")?.unwrap_or(false);
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(STDIN_WAIT);
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    if run.running()?.has_terminal() && eof {
        let message = "eof: a terminal has no end of its input; send \"\\u0004\" (Ctrl-D) as data";
        return Err(ApiRejection::new(Code::BadField, message).with("key", "eof"));
    }
    let written = run.input.write(&data, wait).await?;
    // What was not taken is the caller's to send again: the end does not pass it.
    let closed = eof && written == data.len();
    if closed {
        run.input.close();
    }
    Ok(body::json(&json!({"run_id": id, "written": written, "closed": closed})))
}
