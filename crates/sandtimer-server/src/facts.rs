//! What the server reports about itself: health, the host, settings, metrics; and its answer for
//! unknown paths.
//!
//! Without tokens, and with a token that has `operator`, all of it. Another token gets what applies
//! to its own runs and their counts: nothing of other owners, and no path of the host.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::auth::OwnerId;
use crate::body::{self, Parameters};
use crate::error::{ApiRejection, Code};
use crate::metrics::Gauges;
use crate::state::SharedApp;
use crate::{api, jobs};

/// How long what was found out about the host is believed. Finding out takes seconds and real
/// sandboxes.
const MAX_FACTS_AGE: Duration = Duration::from_secs(60);

/// The facts that were last found about the host, and when. Requests that arrive during a probe
/// wait for its result.
#[derive(Debug, Default)]
struct HostFacts(Mutex<Option<(u64, Value)>>);

pub(crate) fn routes() -> Router<SharedApp> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/host", get(host))
        .route("/v1/config", get(config))
        .layer(Extension(Arc::new(HostFacts::default())))
}

async fn health(State(app): State<SharedApp>) -> Response {
    if *app.core.closing.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, body::json(&json!({"status": "closing"}))).into_response();
    }
    body::json(&json!({"status": "ok"}))
}

async fn metrics(State(app): State<SharedApp>, Extension(owner): Extension<OwnerId>) -> Response {
    let is_operator = app.core.tenants.is_operator(&owner);
    // Before the rest, which counts a store that cannot be read.
    let of_jobs = jobs::metrics(&app.jobs, &owner, is_operator).await;
    if of_jobs.is_err() {
        app.core.metrics.store_failed();
    }
    let mut text = if is_operator { of_all(&app) } else { of_owner(&app, &owner) };
    text.push_str(&of_jobs.unwrap_or_default());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text).into_response()
}

fn of_all(app: &SharedApp) -> String {
    let (running, kept) = app.runs.records.counts();
    app.core.metrics.text(Gauges {
        running,
        kept,
        quarantined: app.core.engine.quarantined(),
        pools: app.contexts.pool_stats(),
        networks: app.runs.sandboxes.network_counts.clone(),
        shell_prewarm_failures: app.contexts.shell_prewarm_failures(),
    })
}

fn of_owner(app: &SharedApp, owner: &OwnerId) -> String {
    let runs = app.runs.records.of(owner);
    let count = |status: &str| runs.iter().filter(|run| run.status() == status).count();
    let mut text = String::new();
    for (name, help, status) in [
        ("sandtimer_runs_running", "Your runs that are running.", "running"),
        ("sandtimer_runs_queued", "Your runs that have not begun.", "queued"),
        ("sandtimer_runs_kept", "Records of your ended runs.", "ended"),
    ] {
        crate::metrics::head(&mut text, name, "gauge", help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} {}", count(status));
    }
    text
}

async fn host(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Extension(known): Extension<Arc<HostFacts>>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let is_operator = app.core.tenants.is_operator(&owner);
    // A task of its own: clients that go away must not have it begun again and again.
    let mut facts = tokio::spawn(host_facts(app, known)).await.map_err(|_| unexamined())??;
    if !is_operator {
        reduce_host(&mut facts);
    }
    Ok(body::json(&facts))
}

/// Leaves what the machine enforces, without what it was found by.
fn reduce_host(facts: &mut Value) {
    for layer in facts.get_mut("layers").and_then(Value::as_array_mut).into_iter().flatten() {
        for key in ["evidence", "remedy"] {
            if layer.get(key).is_some() {
                layer[key] = "".into();
            }
        }
    }
    if facts.get("measured").is_some() {
        facts["measured"] = json!({});
    }
}

/// Keeps the limits of runs, without their origins and the server's other settings.
fn reduce_settings(settings: &Value) -> Value {
    let mut limits = settings.get("limits").cloned().unwrap_or_default();
    for setting in limits.as_object_mut().into_iter().flat_map(|limits| limits.values_mut()) {
        if setting.get("origin").is_some() {
            setting["origin"] = Value::Null;
        }
    }
    json!({"limits": limits, "policy": {}, "server": {}})
}

async fn host_facts(app: SharedApp, known: Arc<HostFacts>) -> Result<Value, ApiRejection> {
    let mut known = known.0.lock().await;
    let now = monotonic_nanoseconds();
    if let Some((at, facts)) = &*known
        && now - at < MAX_FACTS_AGE.as_nanos() as u64
    {
        return Ok(facts.clone());
    }
    let asked: SharedApp = app.clone();
    let found = tokio::task::spawn_blocking(move || (asked.core.host.facts)()).await;
    let found = found.map_err(|_| unexamined())?;
    *known = Some((now, found.clone()));
    Ok(found)
}

fn unexamined() -> ApiRejection {
    ApiRejection::new(Code::Internal, "the host could not be examined")
}

async fn config(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let config = &app.core.host.config;
    if app.core.tenants.is_operator(&owner) {
        return Ok(body::json(config));
    }
    Ok(body::json(&reduce_settings(config)))
}

pub(crate) async fn not_found(uri: Uri) -> Response {
    let message = format!("there is nothing at `{}`", uri.path().chars().take(200).collect::<String>());
    api::refuse(uri.path(), ApiRejection::new(Code::NotFound, message))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("`{}` does not take {method}", uri.path());
    api::refuse(uri.path(), ApiRejection::new(Code::MethodNotAllowed, message))
}
