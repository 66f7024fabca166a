//! Judge0: `/submissions`, `/languages` and `/statuses`, as version 1.13 has them.
//!
//! ```text
//! languages   its numbers of languages
//! request     the fields of a submission, each refusal by its field
//! submission  a submission from its creation to its record
//! verdict     how a program ended, as one of its statuses
//! store       submissions that are executed, and the records of others
//! ```

mod execution;
mod languages;
mod request;
mod store;
mod submission;
mod verdict;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Map, Value, json};

use super::service::FrontDoorService;
use super::wire::error_response;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, RequestFields};
use crate::connection::{Connection, while_there};
use crate::error::ApiRejection;
use crate::intake::{AnswerReservation, MAX_SHORT_BYTES};
use crate::programs;

pub(crate) use store::Submissions;
use submission::{SubmissionView, SubmissionViewOptions};

/// Submissions of a batch.
const MAX_BATCH: usize = 20;
/// Bytes of the records of all submissions that an answer shows.
const MAX_SHOWN_BYTES: usize = 128 << 20;
/// For each byte of a record, the bytes in memory while it is shown: the record, its attributes,
/// and the answer.
const MEMORY_PER_BYTE: usize = 3;

pub(super) fn routes() -> Router<FrontDoorService> {
    Router::new()
        .route("/submissions", post(create))
        .route("/submissions/batch", post(create_batch).get(show_batch))
        .route("/submissions/{token}", get(show))
        .route("/languages", get(list_languages))
        .route("/languages/all", get(list_languages))
        .route("/languages/{id}", get(show_language))
        .route("/statuses", get(statuses))
        .route("/about", get(about))
        .route("/config_info", get(config_info))
}

/// An error on its way to a client.
#[derive(Debug)]
struct Judge0Failure {
    status: u16,
    answer: Value,
}

impl Judge0Failure {
    fn new(status: u16, error: impl Into<String>) -> Self {
        Judge0Failure { status, answer: json!({"error": error.into()}) }
    }
}

impl From<ApiRejection> for Judge0Failure {
    fn from(rejection: ApiRejection) -> Self {
        Judge0Failure::new(rejection.code.status(), rejection.message)
    }
}

impl IntoResponse for Judge0Failure {
    fn into_response(self) -> Response {
        error_response(self.status, &self.answer, "Bearer")
    }
}

pub(super) fn refuse(rejection: ApiRejection) -> Response {
    Judge0Failure::from(rejection).into_response()
}

/// An answer with a status.
fn answer(status: StatusCode, value: &Value) -> Response {
    (status, body::json(value)).into_response()
}

/// How the query of a request wants submissions to be shown.
fn view(fields: &mut RequestFields) -> Result<SubmissionViewOptions, Judge0Failure> {
    let is_base64 = fields.string("base64_encoded")?.as_deref() == Some("true");
    let wanted = fields.string("fields")?.unwrap_or_default();
    let wanted: Vec<String> = wanted.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let unknown: Vec<&str> = wanted
        .iter()
        .map(String::as_str)
        .filter(|name| !["*", "language"].contains(name) && !submission::FIELDS.contains(name))
        .collect();
    if !unknown.is_empty() {
        return Err(Judge0Failure::new(400, format!("invalid fields: [{}]", unknown.join(", "))));
    }
    Ok(SubmissionViewOptions { is_base64, fields: wanted })
}

async fn create(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    parameters: Result<Parameters, ApiRejection>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, Judge0Failure> {
    let Parameters(mut parameters) = parameters?;
    let waits = parameters.string("wait")?.as_deref() == Some("true");
    let view = view(&mut parameters)?;
    let Object(fields) = object?;
    service.submissions.check_room(&owner, 1)?;
    let submission = match request::parse(&service, &owner, fields, view.is_base64).await {
        Ok(request) => execution::submit(&service, &owner, request)?,
        Err(errors) => return Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, &errors.into())),
    };
    let token = submission.token().to_owned();
    if !waits {
        return Ok(answer(StatusCode::CREATED, &json!({"token": token})));
    }
    while_there(&connection, submission.finished(), || {}).await;
    let make = || match submission.render(&view) {
        SubmissionView::Shown(shown) => Ok(shown),
        SubmissionView::NotUtf8 => Ok(json!({"token": token, "error": submission::NOT_UTF8_MESSAGE})),
    };
    long_answer(&service, &owner, StatusCode::CREATED, std::slice::from_ref(&token), make).await
}

/// An answer that shows submissions, made where that may block. Memory for it is reserved before,
/// until it is sent.
async fn long_answer<T: AsRef<str>>(
    service: &FrontDoorService,
    owner: &OwnerId,
    status: StatusCode,
    tokens: &[T],
    make: impl FnOnce() -> Result<Value, Judge0Failure>,
) -> Result<Response, Judge0Failure> {
    let size = |token: &T| service.submissions.size(token.as_ref(), owner);
    let bytes: usize = tokio::task::block_in_place(|| tokens.iter().map(size).sum());
    if bytes > MAX_SHOWN_BYTES {
        let error = format!(
            "the submissions have {bytes} bytes together, and an answer shows at most {MAX_SHOWN_BYTES}; ask for fewer"
        );
        return Err(Judge0Failure::new(400, error));
    }
    let memory = bytes * MEMORY_PER_BYTE;
    let reserved = match memory > MAX_SHORT_BYTES {
        true => Some(
            service
                .programs
                .runs
                .core
                .messages
                .answers
                .reserve(owner, memory, service.programs.runs.core.messages.patience)
                .await?,
        ),
        false => None,
    };
    tokio::task::block_in_place(|| {
        let mut response = answer(status, &make()?);
        if let Some(reserved) = reserved {
            response.extensions_mut().insert(AnswerReservation::new(reserved));
        }
        Ok(response)
    })
}

async fn create_batch(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    parameters: Result<Parameters, ApiRejection>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, Judge0Failure> {
    let Parameters(mut parameters) = parameters?;
    let view = view(&mut parameters)?;
    let Object(mut fields) = object?;
    let Some(Value::Array(all)) = fields.value("submissions").filter(|all| *all != json!([])) else {
        return Err(Judge0Failure::new(400, "there should be at least one submission in a batch"));
    };
    check_batch(all.len())?;
    service.submissions.check_room(&owner, all.len())?;
    let (mut answers, mut has_valid, mut refused) = (Vec::new(), false, None);
    for one in all {
        let fields = match one {
            Value::Object(object) => RequestFields::new(object),
            _ => RequestFields::new(Map::new()),
        };
        answers.push(match request::parse(&service, &owner, fields, view.is_base64).await {
            Ok(request) => match execution::submit(&service, &owner, request) {
                Ok(submission) => {
                    has_valid = true;
                    json!({"token": submission.token()})
                }
                // The tokens of the others are answered all the same.
                Err(rejection) => {
                    let error = json!({"error": rejection.message});
                    refused = Some(rejection);
                    error
                }
            },
            Err(errors) => errors.into(),
        });
    }
    if let Some(rejection) = refused.filter(|_| !has_valid) {
        return Err(rejection.into());
    }
    let status = if has_valid { StatusCode::CREATED } else { StatusCode::UNPROCESSABLE_ENTITY };
    Ok(answer(status, &answers.into()))
}

fn check_batch(count: usize) -> Result<(), Judge0Failure> {
    if count <= MAX_BATCH {
        return Ok(());
    }
    Err(Judge0Failure::new(
        400,
        format!("number of submissions in a batch should be less than or equal to {MAX_BATCH}"),
    ))
}

async fn show(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    Id(token): Id,
    parameters: Result<Parameters, ApiRejection>,
) -> Result<Response, Judge0Failure> {
    let Parameters(mut parameters) = parameters?;
    let view = view(&mut parameters)?;
    let unknown = || {
        let shown: String = token.chars().take(60).collect();
        Judge0Failure::new(404, format!("there is no submission with the token `{shown}`"))
    };
    let make = || match service.submissions.find(&token, &owner).ok_or_else(unknown)?.render(&view) {
        SubmissionView::Shown(shown) => Ok(shown),
        SubmissionView::NotUtf8 => Err(Judge0Failure::new(400, submission::NOT_UTF8_MESSAGE)),
    };
    long_answer(&service, &owner, StatusCode::OK, std::slice::from_ref(&token), make).await
}

async fn show_batch(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    headers: HeaderMap,
    parameters: Result<Parameters, ApiRejection>,
) -> Result<Response, Judge0Failure> {
    let Parameters(mut parameters) = parameters?;
    let view = view(&mut parameters)?;
    let of_header = headers.get("tokens").and_then(|tokens| tokens.to_str().ok()).map(str::to_owned);
    let tokens = of_header.or(parameters.string("tokens")?).unwrap_or_default();
    let tokens: Vec<&str> =
        tokens.trim().split(',').filter(|token| !token.is_empty()).map(str::trim).collect();
    if tokens.is_empty() {
        return Err(Judge0Failure::new(400, "there should be at least one submission in a batch"));
    }
    check_batch(tokens.len())?;
    let show = |token: &&str| match service.submissions.find(token, &owner).map(|found| found.render(&view)) {
        None => Ok(Value::Null),
        Some(SubmissionView::Shown(one)) => Ok(one),
        Some(SubmissionView::NotUtf8) => {
            let error = "some attributes for one or more submissions cannot be converted to UTF-8, \
                         use base64_encoded=true query parameter";
            Err(Judge0Failure::new(400, error))
        }
    };
    let make = || {
        let shown: Vec<Value> = tokens.iter().map(show).collect::<Result<_, Judge0Failure>>()?;
        Ok(json!({"submissions": shown}))
    };
    long_answer(&service, &owner, StatusCode::OK, &tokens, make).await
}

async fn list_languages(State(service): State<FrontDoorService>) -> Response {
    let mut listed = Vec::new();
    for (language, version) in programs::installed(&service.programs).await {
        if let Some(known) = languages::of(language) {
            listed.push((known.id, known.name(&version)));
        }
    }
    listed.sort();
    let listed: Vec<Value> = listed.into_iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
    body::json(&listed)
}

async fn show_language(
    State(service): State<FrontDoorService>,
    Id(id): Id,
) -> Result<Response, Judge0Failure> {
    let number = id.parse().ok();
    let known = number.and_then(languages::find);
    let version = match known {
        Some(known) => programs::version(&service.programs, known.language).await,
        None => None,
    };
    let (Some(known), Some(version)) = (known, version) else {
        let shown: String = id.chars().take(60).collect();
        return Err(Judge0Failure::new(404, format!("there is no language with the id {shown}")));
    };
    let [compile, run] = known.language.shown;
    Ok(body::json(&json!({
        "id": number,
        "name": known.name(&version),
        "is_archived": false,
        "source_file": known.language.file,
        "compile_cmd": compile,
        "run_cmd": run.map_or_else(|| known.language.run_line(), str::to_owned),
    })))
}

async fn statuses() -> Response {
    let all = verdict::STATUSES.iter().enumerate();
    let all: Vec<Value> = all.map(|(index, name)| json!({"id": index + 1, "description": name})).collect();
    body::json(&all)
}

async fn about() -> Response {
    body::json(&json!({
        "version": "1.13.1",
        "homepage": env!("CARGO_PKG_REPOSITORY"),
        "source_code": env!("CARGO_PKG_REPOSITORY"),
        "maintainer": format!("Sandtimer {}, with the interface of Judge0 1.13", env!("CARGO_PKG_VERSION")),
    }))
}

async fn config_info(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
) -> Response {
    let mut info = json!({
        "maintenance_mode": false,
        "enable_wait_result": true,
        "enable_compiler_options": true,
        "allowed_languages_for_compile_options": [],
        "enable_command_line_arguments": true,
        "enable_submission_delete": false,
        "enable_callbacks": false,
        "callbacks_max_tries": 0,
        "callbacks_timeout": 0,
        "enable_additional_files": false,
        "max_extract_size": 0,
        "max_queue_size": store::MAX_QUEUED,
        "enable_per_process_and_thread_time_limit": false,
        "allow_enable_per_process_and_thread_time_limit": false,
        "enable_per_process_and_thread_memory_limit": false,
        "allow_enable_per_process_and_thread_memory_limit": false,
        "redirect_stderr_to_stdout": false,
        "enable_batched_submissions": true,
        "max_submission_batch_size": MAX_BATCH,
        "submission_cache_duration": 0,
        "use_docs_as_homepage": false,
        "allow_enable_network": service.programs.runs.core.tenants.may_have_network(&owner),
        "enable_network": false,
        "disable_implicit_base64_encoding": true,
    });
    for bound in &request::BOUNDS {
        let (most, _) = bound.most(&service, &owner);
        info[bound.name] = request::written(bound.usual);
        info[format!("max_{}", bound.name)] = request::written(most);
    }
    body::json(&info)
}
