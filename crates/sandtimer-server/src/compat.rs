//! `/api/*`: the HTTP interface of the containers of the npm package `@cloudflare/sandbox` 0.12,
//! over the calls that /v1 uses.
//!
//! ```text
//! failure      errors in the shape of that interface
//! answer       answers in its shape
//! caller       what a request comes with
//! sandbox      a sandbox of the package: the owner of sessions, processes and contexts that belong together
//! sessions     making, listing and ending sessions
//! shell        texts for bash: a command with a directory and variables of its own, what a process takes over from a session
//! command      a command from its fields to what is answered of it
//! outcome      how a run ended, as that interface reports it
//! execute      commands, answered at their end or as a stream
//! process(es)  commands in the background
//! code         code contexts and what is executed in them
//! files        files; file_frames: one as a stream
//! storage      where all of a sandbox is: a sandbox of the engine, or a workspace and a /tmp
//! frames       the events of a run as that interface has them; cell_frames: the results of code
//! git, ports   what there is of them
//! socket       all of it over one WebSocket
//! ```
//! A session is a context of bash, a process a detached run, a code context a context, and a
//! sandbox the sandbox that all of these are in: all are found under /v1 as well. The state
//! kept here maps names of the package to them. It is not in /openapi.json: the package describes
//! it, and unknown fields are not refused.

mod answer;
mod caller;
mod cell_frames;
mod code;
mod command;
mod execute;
mod failure;
mod file_frames;
mod files;
mod frames;
mod git;
mod outcome;
mod ports;
mod process;
mod processes;
mod sandbox;
mod sessions;
mod shell;
mod socket;
mod storage;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::contexts::ContextService;
use crate::error::ApiRejection;
use crate::trace;

use answer::success;
use failure::ContainerFailure;
use sandbox::Sandboxes;

/// Its routes. `with_fallbacks` adds to those that are answered over a socket what other paths and
/// methods get.
pub(crate) fn routes(
    service: &Arc<ContextService>,
    with_fallbacks: impl FnOnce(Router) -> Router,
) -> Router<Arc<ContextService>> {
    let requests = Router::new()
        .route("/api/ping", get(ping))
        .route("/api/version", get(version))
        .route("/api/interpreter/health", get(ping))
        .merge(sessions::routes())
        .merge(execute::routes())
        .merge(processes::routes())
        .merge(code::routes())
        .merge(files::routes())
        .merge(git::routes())
        .merge(ports::routes())
        .layer(Extension(Arc::new(Sandboxes::default())));
    let handlers = with_fallbacks(requests.clone().with_state(service.clone()))
        .layer(axum::middleware::from_fn_with_state(service.runs.core.traces.clone(), trace::observe));
    requests.merge(socket::routes(service, handlers))
}

/// Renders a refusal that was met before a handler, in the shape that the path's clients read.
pub(crate) fn refuse(path: &str, rejection: ApiRejection) -> Response {
    if path.starts_with("/api/") || path == "/ws" {
        ContainerFailure::from(rejection).into_response()
    } else {
        rejection.into_response()
    }
}

async fn ping() -> Response {
    success(json!({"status": "healthy", "message": "pong"}))
}

async fn version() -> Response {
    success(json!({"version": env!("CARGO_PKG_VERSION")}))
}
