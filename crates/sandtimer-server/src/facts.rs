//! What the server says about itself: health, the host, settings, metrics; and what it says where there is nothing.

use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::auth::Owner;
use crate::body::{self, Parameters};
use crate::error::{Code, Refusal};
use crate::metrics::Gauges;
use crate::{App, Shared, compat, jobs};

/// How long what was found out about the host is believed. Finding out takes seconds and real sandboxes.
const BELIEVED: Duration = Duration::from_secs(60);

/// What was last found out about the host, and when. Whoever asks meanwhile waits for the same answer.
#[derive(Debug, Default)]
pub(crate) struct Facts(Mutex<Option<(u64, Value)>>);

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/host", get(host))
        .route("/v1/config", get(config))
}

async fn health(State(app): State<Shared>) -> Response {
    if *app.closing.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, body::json(&json!({"status": "closing"}))).into_response();
    }
    body::json(&json!({"status": "ok"}))
}

async fn metrics(State(app): State<Shared>, Extension(owner): Extension<Owner>) -> Response {
    let (running, kept) = app.runs.counts();
    // Before the rest, which counts a store that cannot be read.
    let of_jobs = jobs::metrics(&app, &owner).await;
    if of_jobs.is_err() {
        app.metrics.store_failed();
    }
    let mut text = app.metrics.text(Gauges {
        running,
        kept,
        quarantined: app.engine.quarantined(),
        pools: app.contexts.pool_stats(),
        shell_prewarm_failures: app.contexts.shell_prewarm_failures(),
    });
    text.push_str(&of_jobs.unwrap_or_default());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text).into_response()
}

async fn host(State(app): State<Shared>, Parameters(fields): Parameters) -> Result<Response, Refusal> {
    fields.finish()?;
    // A task of its own: clients that go away must not have it begun again and again.
    let facts = tokio::spawn(host_facts(app)).await.map_err(|_| unexamined())??;
    Ok(body::json(&facts))
}

async fn host_facts(app: Shared) -> Result<Value, Refusal> {
    let mut known = app.facts.0.lock().await;
    let now = monotonic_nanoseconds();
    if let Some((at, facts)) = &*known
        && now - at < BELIEVED.as_nanos() as u64
    {
        return Ok(facts.clone());
    }
    let asked: Shared = app.clone();
    let found = tokio::task::spawn_blocking(move || (asked.host.facts)()).await;
    let found = found.map_err(|_| unexamined())?;
    *known = Some((now, found.clone()));
    Ok(found)
}

fn unexamined() -> Refusal {
    Refusal::new(Code::Internal, "the host could not be examined")
}

async fn config(State(app): State<Shared>, Parameters(fields): Parameters) -> Result<Response, Refusal> {
    fields.finish()?;
    let App { host, .. } = &*app;
    Ok(body::json(&host.config))
}

pub(crate) async fn not_found(uri: Uri) -> Response {
    let message = format!("there is nothing at `{}`", uri.path().chars().take(200).collect::<String>());
    compat::refuse(uri.path(), Refusal::new(Code::NotFound, message))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("`{}` does not take {method}", uri.path());
    compat::refuse(uri.path(), Refusal::new(Code::MethodNotAllowed, message))
}
