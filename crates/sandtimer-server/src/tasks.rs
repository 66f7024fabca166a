//! `/v1/tasks`: estimates of how long a piece of work takes, and tasks that are compared with their
//! estimates.
//!
//! ```text
//! begun ─▶ open ─▶ (bound to a run) running ─▶ ended: with its run, or when it is said to be
//! ```
//! A task's clock is its run's, or goes from its beginning while it has none. The type of a task
//! describes its run better than the command alone, so a bound run is recorded as work of that
//! type. Tasks are in memory; durations outlive the server.

mod durations;
mod live;
mod service;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer_agents::estimate::{EstimateError, EstimateRequest, MAX_MEGABYTES};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, RequestFields, refused};
use crate::error::{ApiRejection, Code};

pub(crate) use durations::Durations;
pub(crate) use live::{Task, Tasks};
pub(crate) use service::TaskService;

pub(crate) fn routes() -> Router<Arc<TaskService>> {
    Router::new()
        .route("/v1/tasks/estimate", post(estimate))
        .route("/v1/tasks", post(begin).get(list))
        .route("/v1/tasks/{id}", get(show))
        .route("/v1/tasks/{id}/bind", post(bind))
        .route("/v1/tasks/{id}/complete", post(complete))
}

/// What is asked for, from the fields of a body.
pub(crate) fn asked(fields: &mut RequestFields) -> Result<EstimateRequest, ApiRejection> {
    Ok(EstimateRequest {
        task_type: fields.string("task_type")?,
        command: command(fields)?,
        data_size_mb: size(fields)?,
        complexity: fields.string("complexity")?,
        context: fields.string("context")?,
        budget: fields.milliseconds("budget_ms")?,
    })
}

fn size(fields: &mut RequestFields) -> Result<Option<f64>, ApiRejection> {
    let Some(value) = fields.value("data_size_mb") else { return Ok(None) };
    let wanted = || format!("a number of megabytes from 0 to {MAX_MEGABYTES:?}");
    value.as_f64().map(Some).ok_or_else(|| refused("data_size_mb", &value, &wanted()))
}

/// As `command` of a run: a list of texts, or a line for a shell.
fn command(fields: &mut RequestFields) -> Result<Option<Vec<String>>, ApiRejection> {
    let Some(value) = fields.value("command") else { return Ok(None) };
    let wrong = || refused("command", &value, "a list of texts, or a line for a shell");
    let parts = match &value {
        Value::String(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let arguments = if value.is_string() { &parts[2..] } else { &parts[..] };
    if arguments.iter().all(|part| part.trim().is_empty()) { Err(wrong()) } else { Ok(Some(parts)) }
}

impl From<EstimateError> for ApiRejection {
    fn from(error: EstimateError) -> Self {
        let message = error.to_string();
        let field = |key: &str| ApiRejection::new(Code::BadField, message.clone()).with("key", key);
        match error {
            EstimateError::UnknownTask { given, nearest } => {
                field("task_type").with("value", given).with("nearest", nearest)
            }
            EstimateError::NothingAsked => field("task_type"),
            EstimateError::UnknownComplexity(given) => field("complexity").with("value", given),
            EstimateError::BadSize(size) => field("data_size_mb").with("value", size),
            _ => ApiRejection::new(Code::Internal, message),
        }
    }
}

async fn estimate(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let asked = asked(&mut fields)?;
    fields.finish()?;
    Ok(body::json(&service.runs.durations.answer(asked, &owner)?.object()))
}

async fn begin(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let asked = asked(&mut fields)?;
    let (name, run_id) = (fields.string("name")?, fields.string("run_id")?);
    fields.finish()?;
    let run = run_id.map(|id| service.runs.get(&id, &owner)).transpose()?;
    let answer = service.runs.durations.answer(asked, &owner)?;
    let task = service.tasks.begin(&owner, name, answer);
    if let Some(run) = run {
        task.bind(&run)?;
    }
    Ok((StatusCode::CREATED, body::json(&task.view())).into_response())
}

async fn list(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let tasks: Vec<Value> = service.tasks.of(&owner).iter().map(|task| task.view()).collect();
    Ok(body::json(&json!({"tasks": tasks})))
}

async fn show(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
) -> Result<Response, ApiRejection> {
    Ok(body::json(&service.tasks.find(&id, &owner)?.view()))
}

async fn bind(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let run_id = fields.string("run_id")?;
    fields.finish()?;
    let task = service.tasks.find(&id, &owner)?;
    let run_id =
        run_id.ok_or_else(|| ApiRejection::new(Code::BadField, "run_id is missing").with("key", "run_id"))?;
    task.bind(&service.runs.get(&run_id, &owner)?)?;
    Ok(body::json(&task.view()))
}

async fn complete(
    State(service): State<Arc<TaskService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let task = service.tasks.find(&id, &owner)?;
    if let Some(finished) = task.complete()?
        && let Some(finished) = service.runs.durations.learned(finished)
    {
        service.runs.keep_duration(&finished);
    }
    Ok(body::json(&task.view()))
}
