//! Dify's sandbox: `POST /v1/sandbox/run`, `GET /v1/sandbox/dependencies` and `GET /health`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer::Limits;
use sandtimer::supervise::signal_name;
use serde_json::{Value, json};

use super::wire::error_response;
use crate::auth::OwnerId;
use crate::body::{self, Object, Parameters, RequestFields};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::programs::{
    self, ProgramLanguage, ProgramService, ProgramSpec, StageEnd, StageLimits, StageReport, language,
};
use crate::quota::PermittedValue;
use crate::runs::LiveRun;

/// The time limit of code for which the operator has set none, as Dify's sandbox has it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of listing packages.
const LISTING_TIMEOUT: Duration = Duration::from_secs(30);
/// Prints the packages that Python has.
const PACKAGES: &str = "import importlib.metadata as m, json\n\
    found = {d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}\n\
    print(json.dumps([{'name': n, 'version': v} for n, v in sorted(found.items())]))";

/// The path that answers whether the server runs, with or without a token.
pub(crate) const HEALTH: &str = "/health";

pub(super) fn routes() -> Router<Arc<ProgramService>> {
    Router::new()
        .route(HEALTH, get(health))
        .route("/v1/sandbox/run", post(run))
        .route("/v1/sandbox/dependencies", get(dependencies))
        .route("/v1/sandbox/dependencies/refresh", get(dependencies))
}

async fn health() -> Response {
    body::json(&"ok")
}

/// An error on its way to a client: a negative code, which its HTTP status repeats.
#[derive(Debug)]
struct DifyFailure {
    status: u16,
    message: String,
}

impl DifyFailure {
    fn bad(message: impl Into<String>) -> Self {
        DifyFailure { status: 400, message: message.into() }
    }
}

impl From<ApiRejection> for DifyFailure {
    fn from(rejection: ApiRejection) -> Self {
        let status = match rejection.code {
            // Dify's status for too many requests.
            Code::Capacity | Code::Quota | Code::SpawnTimeout | Code::ShuttingDown => 503,
            code => code.status(),
        };
        DifyFailure { status, message: rejection.message }
    }
}

impl IntoResponse for DifyFailure {
    fn into_response(self) -> Response {
        let code = -i32::from(self.status);
        error_response(self.status, &json!({"code": code, "message": self.message, "data": null}), "Bearer")
    }
}

pub(super) fn refuse(rejection: ApiRejection) -> Response {
    DifyFailure::from(rejection).into_response()
}

fn success(data: &Value) -> Value {
    json!({"code": 0, "message": "success", "data": data})
}

/// The language of a request, if this host has it.
async fn language(
    service: &Arc<ProgramService>,
    fields: &mut RequestFields,
) -> Result<&'static ProgramLanguage, DifyFailure> {
    let name = fields.string("language")?.filter(|name| !name.is_empty());
    let found = match name.as_deref() {
        None => return Err(DifyFailure::bad("language: it is missing; give python3 or nodejs")),
        Some("python3") => &language::PYTHON,
        Some("nodejs") => &language::JAVASCRIPT,
        Some(_) => return Err(DifyFailure::bad("unsupported language")),
    };
    if programs::version(service, found).await.is_none() {
        let message = format!("unsupported language: this host does not have {}", found.title);
        return Err(DifyFailure::bad(message));
    }
    Ok(found)
}

async fn run(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, DifyFailure> {
    let Object(mut fields) = object?;
    let found = language(&service, &mut fields).await?;
    let code = fields.string("code")?.filter(|code| !code.is_empty());
    let code = code.ok_or_else(|| DifyFailure::bad("code: it is missing; give it as a string"))?;
    // Dify always asks for it: it is what the code may have, and not what it needs.
    let network = fields.boolean("enable_network")?.unwrap_or(false)
        && service.runs.core.tenants.may_have_network(&owner);
    let run = StageLimits { defaults: Limits::new().wall(TIMEOUT), ..StageLimits::default() };
    let program = ProgramSpec { network, run, ..ProgramSpec::new(found, code) };
    let executed = programs::attended(&connection, programs::execute(&service, &owner, program)).await?;
    let missing = || ApiRejection::new(Code::Internal, "the program was not run");
    let run = executed.run.ok_or_else(missing)?;
    let answer = body::long_json(&service.runs.core.messages, &owner, || result(&run)).await;
    answer.map_err(|rejection: ApiRejection| rejection.after_execution(Some(run.id_str())).into())
}

async fn result(run: &LiveRun) -> Result<PermittedValue<Value>, ApiRejection> {
    let report = programs::report(run).await?;
    let stderr = report.stderr_lossy();
    let value = success(&json!({
        "stdout": report.stdout_lossy(),
        "error": execution_error(&report, &stderr),
        "stderr": stderr,
        "exit_code": report.exit_code().unwrap_or(-1),
    }));
    Ok(report.map(|_| value))
}

/// What went wrong, for people; empty where nothing did.
fn execution_error(report: &StageReport, stderr: &str) -> String {
    if report.is_success() {
        return String::new();
    }
    let mut lines = vec![format!("process exited with code {}", report.exit_code().unwrap_or(-1))];
    match report.end {
        StageEnd::TimeLimit => lines.push("error: timeout".to_owned()),
        StageEnd::Signaled(signal) => lines.push(format!("error: signal: {}", signal_name(signal))),
        _ => {}
    }
    lines.extend(report.sentence.clone());
    let mut text = lines.join("\n");
    if !stderr.is_empty() {
        text.push('\n');
        text.push_str(stderr);
    }
    text
}

async fn dependencies(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    parameters: Result<Parameters, ApiRejection>,
) -> Result<Response, DifyFailure> {
    let Parameters(mut fields) = parameters?;
    let found = language(&service, &mut fields).await?;
    if found != &language::PYTHON {
        return Err(DifyFailure::bad("unsupported language"));
    }
    let run = StageLimits { limits: Limits::new().wall(LISTING_TIMEOUT), ..StageLimits::default() };
    let program = ProgramSpec { run, ..ProgramSpec::new(found, PACKAGES) };
    let executed = programs::attended(&connection, programs::execute(&service, &owner, program)).await?;
    let failed =
        |why: &str| ApiRejection::new(Code::Internal, format!("the packages could not be listed: {why}"));
    let run = executed.run.ok_or_else(|| failed("nothing was run"))?;
    let report = programs::report(&run).await?;
    let listed: Result<Value, _> = serde_json::from_slice(&report.stdout);
    let listed = listed.map_err(|_| failed(report.sentence.as_deref().unwrap_or(&report.stderr_lossy())))?;
    Ok(body::json(&success(&json!({"dependencies": listed}))))
}
