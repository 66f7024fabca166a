//! SandboxFusion: `POST /run_code` and `POST /run_jupyter`, as its clients in verl and other
//! trainers use them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::Limits;
use sandtimer::model::{Ending, LimitKind, Outcome};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Map, Value, json};

use super::service::FrontDoorService;
use super::wire::{decoded, error_response, number};
use crate::auth::OwnerId;
use crate::body::{self, Object, RequestFields};
use crate::connection::{Connection, unless_dropped};
use crate::contexts::{self, CellRequest, ContextRequest, LiveContext};
use crate::error::{ApiRejection, Code};
use crate::files::{self, FilePath};
use crate::programs::{
    self, Directory, ProgramFile, ProgramLanguage, ProgramResult, ProgramSpec, StageEnd, StageLimits,
    StageReport, language,
};
use crate::quota::{Permit, PermittedValue};
use crate::runs::CLIENT_GONE;

/// The time limit of a stage for which neither the request nor the operator sets one, and that of a
/// notebook.
const TIMEOUT: Duration = Duration::from_secs(10);
const NOTEBOOK_TIMEOUT: Duration = Duration::from_secs(45);
/// Bytes of each stream that an answer carries.
const MAX_OUTPUT: usize = 1 << 20;
/// Bytes of all files that an answer carries.
const MAX_FETCHED: u64 = 32 << 20;
/// Files with this in their names are skipped.
const IGNORED_NAME_PART: &str = "IGNORE_THIS_FILE";
/// Its names of languages that are never served here.
const UNSERVED_LANGUAGES: [&str; 16] = [
    "go_test",
    "csharp",
    "sql",
    "cuda",
    "D_ut",
    "scala",
    "julia",
    "pytest",
    "junit",
    "kotlin_script",
    "jest",
    "verilog",
    "python_gpu",
    "lean",
    "swift",
    "racket",
];
/// Its names of the others.
const LANGUAGES: [(&str, &ProgramLanguage); 13] = [
    ("python", &language::PYTHON),
    ("cpp", &language::CPP),
    ("nodejs", &language::JAVASCRIPT),
    ("typescript", &language::TYPESCRIPT),
    ("bash", &language::BASH),
    ("go", &language::GO),
    ("java", &language::JAVA),
    ("rust", &language::RUST),
    ("php", &language::PHP),
    ("perl", &language::PERL),
    ("ruby", &language::RUBY),
    ("lua", &language::LUA),
    ("R", &language::R),
];

pub(super) fn routes() -> Router<FrontDoorService> {
    Router::new().route("/run_code", post(run_code)).route("/run_jupyter", post(run_jupyter))
}

/// An error on its way to a client.
#[derive(Debug)]
struct FusionFailure {
    status: u16,
    detail: Value,
}

impl FusionFailure {
    /// A field with a wrong value, as FastAPI reports it.
    fn invalid(field: &str, why: impl Into<String>) -> Self {
        let message: String = why.into();
        FusionFailure {
            status: 422,
            detail: json!([{"type": "value_error", "loc": ["body", field], "msg": message}]),
        }
    }
}

impl From<ApiRejection> for FusionFailure {
    fn from(rejection: ApiRejection) -> Self {
        match rejection.code {
            Code::BadField | Code::BadJson | Code::BadLimit | Code::JsonTooLarge => {
                let field = rejection.details.get("key").and_then(Value::as_str).unwrap_or_default();
                FusionFailure::invalid(field, rejection.message)
            }
            // Its clients try again after this status, and after no other.
            Code::Capacity | Code::Quota | Code::SpawnTimeout | Code::ShuttingDown => {
                FusionFailure { status: 504, detail: rejection.message.into() }
            }
            code => FusionFailure { status: code.status(), detail: rejection.message.into() },
        }
    }
}

impl IntoResponse for FusionFailure {
    fn into_response(self) -> Response {
        error_response(self.status, &json!({"detail": self.detail}), "Basic")
    }
}

pub(super) fn refuse(rejection: ApiRejection) -> Response {
    FusionFailure::from(rejection).into_response()
}

/// What could not be executed here.
fn sandbox_error(message: &str) -> Value {
    json!({
        "status": "SandboxError", "message": message, "compile_result": null, "run_result": null,
        "executor_pod_name": null, "files": {},
    })
}

/// A time limit in seconds.
fn seconds(fields: &mut RequestFields, name: &'static str) -> Result<Option<Duration>, FusionFailure> {
    let Some(value) = fields.value(name) else { return Ok(None) };
    let positive = number(&value).filter(|seconds| *seconds > 0.0);
    let duration = positive.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.map(Some).ok_or_else(|| {
        FusionFailure::invalid(name, format!("{name}: {value} is not a number of seconds greater than 0"))
    })
}

fn memory(fields: &mut RequestFields, limits: Limits) -> Result<Limits, FusionFailure> {
    let Some(value) = fields.value("memory_limit_MB") else { return Ok(limits) };
    let whole = number(&value).filter(|megabytes| megabytes.fract() == 0.0 && *megabytes < 1e12);
    match whole {
        Some(megabytes) if megabytes > 0.0 => Ok(limits.memory((megabytes as u64) << 20)),
        // SandboxFusion's value for no limit.
        Some(_) => Ok(limits),
        None => {
            let message = format!("memory_limit_MB: {value} is not a whole number of megabytes, or -1");
            Err(FusionFailure::invalid("memory_limit_MB", message))
        }
    }
}

fn texts(fields: &mut RequestFields, name: &'static str) -> Result<Vec<String>, FusionFailure> {
    let Some(value) = fields.value(name) else { return Ok(Vec::new()) };
    let texts =
        value.as_array().and_then(|list| list.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    texts.ok_or_else(|| FusionFailure::invalid(name, format!("{name}: it is not a list of strings")))
}

/// `files`: an object of paths and contents in base64. The second error is that of a content.
fn sent_files(fields: &mut RequestFields) -> Result<Result<Vec<ProgramFile>, String>, FusionFailure> {
    let Some(value) = fields.value("files") else { return Ok(Ok(Vec::new())) };
    let Value::Object(object) = value else {
        return Err(FusionFailure::invalid(
            "files",
            "files: it is not an object of paths and contents in base64",
        ));
    };
    let mut files = Vec::new();
    for (path, content) in object {
        match content {
            Value::String(text) if !path.contains(IGNORED_NAME_PART) => match decoded(&text) {
                Some(content) => files.push(ProgramFile { path, content: content.into() }),
                None => return Ok(Err(format!("files: the content of `{path}` is not base64"))),
            },
            Value::String(_) | Value::Null => {}
            _ => {
                return Err(FusionFailure::invalid(
                    "files",
                    format!("files: `{path}` is not a string in base64"),
                ));
            }
        }
    }
    Ok(Ok(files))
}

/// The language of this name; `Ok(None)` where it is one of SandboxFusion's that is not served
/// here.
fn language_of(name: &str) -> Result<Option<&'static ProgramLanguage>, FusionFailure> {
    if let Some((_, language)) = LANGUAGES.iter().find(|(known, _)| *known == name) {
        return Ok(Some(language));
    }
    if UNSERVED_LANGUAGES.contains(&name) {
        return Ok(None);
    }
    let known: Vec<&str> = LANGUAGES.iter().map(|(known, _)| *known).chain(UNSERVED_LANGUAGES).collect();
    let shown: String = name.chars().take(60).collect();
    Err(FusionFailure::invalid("language", format!("language: `{shown}` is not one of {}", known.join(", "))))
}

async fn run_code(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, FusionFailure> {
    let Object(mut fields) = object?;
    let missing =
        |name: &str| FusionFailure::invalid(name, format!("{name}: it is missing; give it as a string"));
    let code = fields.string("code")?.ok_or_else(|| missing("code"))?;
    let named = fields.string("language")?.ok_or_else(|| missing("language"))?;
    let found = language_of(&named)?;
    let stage =
        |timeout: Option<Duration>, fields: &mut RequestFields| -> Result<StageLimits, FusionFailure> {
            let limits = timeout.map_or_else(Limits::new, |timeout| Limits::new().wall(timeout));
            let defaults = Limits::new().wall(TIMEOUT);
            Ok(StageLimits { limits: memory(fields, limits)?, defaults, ends_at_output_limit: false })
        };
    let (compile, run) = (seconds(&mut fields, "compile_timeout")?, seconds(&mut fields, "run_timeout")?);
    let run = stage(run, &mut fields)?;
    let memory = run.limits.get(LimitKind::Memory);
    let mut compile = stage(compile, &mut fields)?;
    compile.limits.set(LimitKind::Memory, memory);
    let fetched = texts(&mut fields, "fetch_files")?;
    let sent = sent_files(&mut fields)?;
    let stdin = fields.string("stdin")?.map(String::into_bytes);
    let arguments = texts(&mut fields, "args")?;
    let is_installed = match found {
        Some(language) => programs::version(&service.programs, language).await.is_some(),
        None => false,
    };
    let Some(language) = found.filter(|_| is_installed) else {
        return Ok(body::json(&sandbox_error(&not_served(&service, &named).await)));
    };
    let files = match sent {
        Ok(files) => files,
        Err(message) => return Ok(body::json(&sandbox_error(&message))),
    };
    let directory = if fetched.is_empty() { Directory::Own } else { Directory::Kept };
    let program =
        ProgramSpec { files, arguments, stdin, directory, compile, run, ..ProgramSpec::new(language, code) };
    let executed =
        match programs::attended(&connection, programs::execute(&service.programs, &owner, program)).await {
            Ok(executed) => executed,
            Err(rejection) if is_about_the_program(&rejection) => {
                return Ok(body::json(&sandbox_error(&rejection.message)));
            }
            Err(rejection) => return Err(rejection.into()),
        };
    let fetched = fetch(executed.workspace.as_ref().map(|scratch| scratch.files()), &fetched).await;
    let answer =
        body::long_json(&service.programs.runs.core.messages, &owner, || answer(&executed, &fetched)).await;
    answer.map_err(|rejection: ApiRejection| {
        let run = executed.run.as_ref().map(|run| run.id_str());
        rejection.after_execution(run).into()
    })
}

async fn not_served(service: &FrontDoorService, name: &str) -> String {
    let installed = programs::installed(&service.programs).await;
    let is_served = |(_, language): &&(&str, &'static ProgramLanguage)| {
        installed.iter().any(|(found, _)| found == language)
    };
    let served: Vec<&str> = LANGUAGES.iter().filter(is_served).map(|(name, _)| *name).collect();
    format!("language: this server does not have `{name}`; it has {}", served.join(", "))
}

/// Whether another try of the same program would be refused as well: then it is an error of the
/// sandbox for this interface.
fn is_about_the_program(rejection: &ApiRejection) -> bool {
    let of_server =
        [Code::Capacity, Code::Quota, Code::SpawnTimeout, Code::ShuttingDown, Code::RequestTimeout];
    !of_server.contains(&rejection.code)
}

/// Files that the request asks for, in base64, and why others are left out.
#[derive(Debug, Default)]
struct FetchedFiles {
    files: Map<String, Value>,
    notes: Vec<String>,
}

/// Reads files that a program left. Missing files are left out, as in SandboxFusion.
async fn fetch(workspace: Option<&Arc<crate::workspaces::Workspace>>, paths: &[String]) -> FetchedFiles {
    let mut fetched = FetchedFiles::default();
    let Some(workspace) = workspace else { return fetched };
    let mut left = MAX_FETCHED;
    for path in paths {
        let read = match FilePath::parse(path) {
            Ok(file_path) => files::act(workspace, move |tree| tree.read(&file_path, left)).await,
            Err(rejection) => Err(rejection),
        };
        match read {
            Ok(bytes) => {
                left -= bytes.len() as u64;
                fetched.files.insert(path.clone(), BASE64_STANDARD.encode(&bytes).into());
            }
            Err(rejection) if rejection.code == Code::FileNotFound => {}
            Err(rejection) => fetched.notes.push(format!("fetch_files: {}", rejection.message)),
        }
    }
    fetched
}

/// What is answered of a program.
async fn answer(
    executed: &ProgramResult,
    fetched: &FetchedFiles,
) -> Result<PermittedValue<Value>, ApiRejection> {
    let mut notes = fetched.notes.clone();
    let compile = executed.compile.as_ref().map(|report| RenderedStage::new(report, &mut notes));
    let Some(run) = &executed.run else {
        return Ok(PermittedValue::new(rendered(compile, None, &notes, &fetched.files), None));
    };
    let report = programs::report(run).await?;
    let run = RenderedStage::new(&report, &mut notes);
    let value = rendered(compile, Some(run), &notes, &fetched.files);
    Ok(report.map(|_| value))
}

/// A stage of a program, and its part of the answer.
struct RenderedStage<'a> {
    report: &'a StageReport,
    result: Value,
}

impl<'a> RenderedStage<'a> {
    fn new(report: &'a StageReport, notes: &mut Vec<String>) -> Self {
        RenderedStage { report, result: command_result(report, notes) }
    }
}

/// Returns the answer to a program, from its stages.
fn rendered(
    compile: Option<RenderedStage<'_>>,
    run: Option<RenderedStage<'_>>,
    notes: &[String],
    files: &Map<String, Value>,
) -> Value {
    let stages = || compile.iter().chain(&run).map(|stage| stage.report);
    let status = if stages().any(|report| report.end == StageEnd::Failed) {
        "SandboxError"
    } else if stages().all(StageReport::is_success) {
        "Success"
    } else {
        "Failed"
    };
    json!({
        "status": status, "message": notes.join(" "), "compile_result": compile.map(|stage| stage.result),
        "run_result": run.map(|stage| stage.result), "executor_pod_name": null, "files": files,
    })
}

/// A stage as it is answered; why a limit ended it is a note.
fn command_result(report: &StageReport, notes: &mut Vec<String>) -> Value {
    notes.extend(report.sentence.clone());
    let (status, return_code) = match report.end {
        StageEnd::TimeLimit => ("TimeLimitExceeded", None),
        StageEnd::Failed => ("Error", None),
        _ => ("Finished", report.exit_code().or(report.signal().map(|signal| -signal))),
    };
    let mut stream = |name: &str, bytes: &[u8]| {
        if bytes.len() > MAX_OUTPUT {
            notes.push(format!("{name} has more than {MAX_OUTPUT} bytes; the rest is left out."));
        }
        String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_OUTPUT)]).into_owned()
    };
    json!({
        "status": status,
        "execution_time": report.wall_ms as f64 / 1_000.0,
        "return_code": return_code,
        "stdout": stream("stdout", &report.stdout),
        "stderr": stream("stderr", &report.stderr),
    })
}

async fn run_jupyter(
    State(service): State<FrontDoorService>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, FusionFailure> {
    let Object(mut fields) = object?;
    if !fields.has("cells") {
        return Err(FusionFailure::invalid("cells", "cells: it is missing; give a list of strings"));
    }
    let cells = texts(&mut fields, "cells")?;
    if let Some(kernel) = fields.string("kernel")?.filter(|kernel| kernel != "python3") {
        return Err(FusionFailure::invalid("kernel", format!("kernel: `{kernel}` is not python3")));
    }
    // It means no limit by 0.
    let cell = match fields.value("cell_timeout").filter(|value| number(value) != Some(0.0)) {
        Some(value) => seconds(
            &mut RequestFields::new(Map::from_iter([("cell_timeout".to_owned(), value)])),
            "cell_timeout",
        )?,
        None => None,
    };
    let total = seconds(&mut fields, "total_timeout")?.unwrap_or(NOTEBOOK_TIMEOUT);
    let whole = memory(&mut fields, Limits::new())?;
    let fetched = texts(&mut fields, "fetch_files")?;
    let files = match sent_files(&mut fields)? {
        Ok(files) => files,
        Err(message) => return Ok(body::json(&notebook_error(&message))),
    };
    let notebook = Notebook { cells, cell, total, whole, files, fetched };
    match programs::attended(&connection, notebook.execute(&service, &owner)).await {
        Ok(answer) => Ok(body::json(&answer)),
        Err(rejection) if is_about_the_program(&rejection) => {
            Ok(body::json(&notebook_error(&rejection.message)))
        }
        Err(rejection) => Err(rejection.into()),
    }
}

fn notebook_error(message: &str) -> Value {
    json!({
        "status": "SandboxError", "message": message, "driver": null, "cells": [],
        "executor_pod_name": null, "files": {},
    })
}

/// Cells that one interpreter executes in turn.
#[derive(Debug)]
struct Notebook {
    cells: Vec<String>,
    cell: Option<Duration>,
    total: Duration,
    whole: Limits,
    files: Vec<ProgramFile>,
    fetched: Vec<String>,
}

impl Notebook {
    async fn execute(self, service: &FrontDoorService, owner: &OwnerId) -> Result<Value, ApiRejection> {
        // Without a turn while a quota does not allow it.
        let open = || async {
            let turn = programs::enter(owner).await;
            let usual = ContextRequest::usual(contexts::ContextLanguage::Python);
            let request = ContextRequest { whole: self.whole.clone(), ..usual };
            Ok((contexts::open(service.contexts.clone(), owner.clone(), request).await?, turn))
        };
        let (context, turn) = programs::while_quota(&service.programs, open).await?;
        let mut done = Err(ApiRejection::new(Code::Internal, "the cells were not executed"));
        let (closing, closed) = (service.clone(), context.clone());
        let close = move || {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { contexts::close(&closing.contexts, &closed).await });
            }
        };
        unless_dropped(async { done = self.execute_in(service, owner, &context, turn).await }, close).await;
        contexts::close(&service.contexts, &context).await;
        done
    }

    async fn execute_in(
        &self,
        service: &FrontDoorService,
        owner: &OwnerId,
        context: &Arc<LiveContext>,
        mut turn: Option<Permit>,
    ) -> Result<Value, ApiRejection> {
        let files = self.files.iter().cloned().map(|file| (file, 0o644)).collect();
        if let Some(workspace) = context.workspace() {
            programs::write(workspace, files).await?;
        }
        let (mut spent, mut is_released) = (Duration::ZERO, false);
        let (mut results, mut failed) = (Vec::new(), None);
        let mut left = MAX_OUTPUT * 16;
        for source in &self.cells {
            if is_released {
                turn = programs::enter(owner).await;
            }
            let began = monotonic_nanoseconds();
            let remaining = self.total.saturating_sub(spent).max(Duration::from_millis(1));
            let wall = self.cell.map_or(remaining, |cell| cell.min(remaining));
            let cell = CellRequest::of(source.clone(), Limits::new().wall(wall));
            let mut queued = contexts::send(service.contexts.clone(), owner.clone(), context.clone(), cell)?;
            let withdraw = queued.withdrawal();
            let mut begun = Ok(None);
            unless_dropped(async { begun = queued.begun(None).await }, withdraw).await;
            let missing = || ApiRejection::new(Code::Internal, "the cell was not executed");
            let run = begun?.ok_or_else(missing)?;
            let has_turn = turn.is_some();
            unless_dropped(programs::wait_ended(&run, &mut turn), || run.cancel(CLIENT_GONE)).await;
            is_released = has_turn && turn.is_none();
            spent += Duration::from_nanos(monotonic_nanoseconds() - began);
            let outcome = run.outcome().await?.ok_or_else(missing)?;
            results.push(cell_result(&outcome, &mut left));
            if !matches!(outcome.ending, Ending::Returned | Ending::Raised) {
                failed = Some((StageReport::of(&outcome).end, sentence(&outcome)));
                break;
            }
        }
        let fetched = fetch(context.workspace(), &self.fetched).await;
        let (status, message) = match &failed {
            None => ("Success", String::new()),
            Some((_, sentence)) => ("Failed", sentence.clone()),
        };
        let driver = match &failed {
            Some((StageEnd::TimeLimit, _)) => "TimeLimitExceeded",
            Some(_) => "Error",
            None => "Finished",
        };
        let notes = fetched.notes.iter().fold(message, |message, note| format!("{message} {note}"));
        Ok(json!({
            "status": status,
            "message": notes.trim(),
            "driver": {
                "status": driver, "execution_time": spent.as_secs_f64(),
                "return_code": failed.is_none().then_some(0), "stdout": "", "stderr": "",
            },
            "cells": results,
            "executor_pod_name": null,
            "files": fetched.files,
        }))
    }
}

fn sentence(outcome: &Outcome) -> String {
    let verdict_sentence = outcome.verdict.as_ref().map(|verdict| verdict.sentence.clone());
    verdict_sentence.unwrap_or_else(|| "the code ended its interpreter".to_owned())
}

/// The answer on a cell, within the `left` bytes that remain of the whole answer.
fn cell_result(outcome: &Outcome, left: &mut usize) -> Value {
    let report = StageReport::of(outcome);
    let mut text = |bytes: &[u8]| {
        let most = bytes.len().min(MAX_OUTPUT).min(*left);
        *left -= most;
        String::from_utf8_lossy(&bytes[..most]).into_owned()
    };
    let (stdout, stderr) = (text(&report.stdout), text(&report.stderr));
    let mut display = Vec::new();
    for result in &outcome.results {
        let bytes = body::json_bytes(result);
        if bytes <= *left {
            *left -= bytes;
            display.push(result);
        }
    }
    json!({"stdout": stdout, "stderr": stderr, "display": display, "error": cell_error(outcome)})
}

/// What went wrong in a cell: an exception, or what ended it.
fn cell_error(outcome: &Outcome) -> Vec<Value> {
    let part = |key: &str| {
        outcome.error.as_ref().and_then(|error| error[key].as_str()).unwrap_or_default().to_owned()
    };
    match outcome.ending {
        Ending::Returned => Vec::new(),
        Ending::Raised => {
            let traceback: Vec<String> = part("traceback").lines().map(str::to_owned).collect();
            vec![json!({"ename": part("type"), "evalue": part("message"), "traceback": traceback})]
        }
        Ending::Timeout | Ending::Stalled => {
            vec![json!({"ename": "TimeoutError", "evalue": sentence(outcome), "traceback": []})]
        }
        Ending::OutOfMemory => {
            vec![json!({"ename": "MemoryError", "evalue": sentence(outcome), "traceback": []})]
        }
        _ => vec![json!({"ename": "ExecutionEnded", "evalue": sentence(outcome), "traceback": []})],
    }
}
