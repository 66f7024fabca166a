//! LibreChat's code API, below `/librechat`: `LIBRECHAT_CODE_BASEURL=http://…/librechat`.
//!
//! A session of it is a workspace, whose files outlive the server and are removed a day after they
//! were made. Its id has that of the workspace in it, and the id of a file is a hash of its path:
//! 21 characters each, as LibreChat demands.

mod multipart;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use sandtimer::time::instant;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::wire::error_response;
use crate::auth::OwnerId;
use crate::body::{self, Object, Parameters, RequestFields};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::files::{self, EntryKind, FileEntry, FilePath, ListingRequest};
use crate::intake::Reservation;
use crate::programs::{
    self, Directory, ProgramFile, ProgramLanguage, ProgramResult, ProgramService, ProgramSpec, language,
};
use crate::quota::PermittedValue;
use crate::workspaces::Workspace;

/// Where it is.
pub(super) const BASE: &str = "/librechat/";
/// The name by which its workspaces are known; no sandbox of another interface can have it.
const MARK: &str = "\nlibrechat";
/// The prefix of the id of a workspace.
const PREFIX: &str = "code-";
/// How long files are kept.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The longest wait for the runs of a session that is not kept, and the interval at which they are
/// counted.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
const CLOSE_INTERVAL: Duration = Duration::from_millis(100);
/// Files that an answer lists or a program is handed, and bytes of the latter.
const MAX_FILES: usize = 200;
const MAX_INPUT_BYTES: u64 = 256 << 20;

/// Its names of languages.
const LANGUAGES: [(&str, &ProgramLanguage); 11] = [
    ("py", &language::PYTHON),
    ("js", &language::JAVASCRIPT),
    ("ts", &language::TYPESCRIPT),
    ("bash", &language::BASH),
    ("c", &language::C),
    ("cpp", &language::CPP),
    ("go", &language::GO),
    ("java", &language::JAVA),
    ("php", &language::PHP),
    ("r", &language::R),
    ("rs", &language::RUST),
];

pub(super) fn routes() -> Router<Arc<ProgramService>> {
    Router::new()
        .route("/librechat/exec", post(execute))
        .route("/librechat/upload", post(upload))
        .route("/librechat/files/{session}", get(list))
        .route("/librechat/download/{session}/{file}", get(download))
}

/// An error on its way to a client.
#[derive(Debug)]
struct LibreChatFailure {
    status: u16,
    error: String,
}

impl LibreChatFailure {
    fn bad(error: impl Into<String>) -> Self {
        LibreChatFailure { status: 400, error: error.into() }
    }

    fn not_found(what: &str) -> Self {
        LibreChatFailure { status: 404, error: format!("{what} not found") }
    }
}

impl From<ApiRejection> for LibreChatFailure {
    fn from(rejection: ApiRejection) -> Self {
        LibreChatFailure { status: rejection.code.status(), error: rejection.message }
    }
}

impl IntoResponse for LibreChatFailure {
    fn into_response(self) -> Response {
        error_response(self.status, &json!({"error": self.error, "message": self.error}), "Bearer")
    }
}

pub(super) fn refuse(rejection: ApiRejection) -> Response {
    LibreChatFailure::from(rejection).into_response()
}

/// The id of a session.
fn session_id(workspace: &Workspace) -> String {
    format!("{PREFIX}{}", workspace.id_str())
}

/// The id of a file of a session.
fn file_id(path: &str) -> String {
    let hash = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(path));
    hash.chars().take(21).collect()
}

/// The session of this owner.
fn find(
    service: &Arc<ProgramService>,
    owner: &OwnerId,
    session: &str,
) -> Result<Arc<Workspace>, LibreChatFailure> {
    let id = session.strip_prefix(PREFIX);
    let found = id.and_then(|id| service.runs.workspaces.find(id, owner));
    found
        .filter(|workspace| workspace.is_of_sandbox(MARK) && !is_expired(workspace))
        .ok_or_else(|| LibreChatFailure::not_found("Session"))
}

/// Makes a session.
async fn open(service: &Arc<ProgramService>, owner: &OwnerId) -> Result<NewSession, ApiRejection> {
    let (service, owner) = (service.clone(), owner.clone());
    let made = tokio::task::spawn_blocking(move || {
        let workspace = service.runs.workspaces.create(&owner, Some(MARK))?;
        Ok(NewSession { service, workspace, is_settled: false })
    });
    made.await.map_err(|_| ApiRejection::new(Code::Internal, "the session could not be made"))?
}

/// A session that is being made. If it is dropped before it is settled, it is removed.
#[derive(Debug)]
struct NewSession {
    service: Arc<ProgramService>,
    workspace: Arc<Workspace>,
    is_settled: bool,
}

impl NewSession {
    fn keep(mut self) {
        self.is_settled = true;
    }

    /// Removes the session and returns once that is done, so that no later request finds it.
    async fn discard(mut self) {
        close_and_remove(self.service.clone(), self.workspace.clone()).await;
        self.is_settled = true;
    }
}

impl Drop for NewSession {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        // Without a runtime the server has ended: the session expires in the next one.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(close_and_remove(self.service.clone(), self.workspace.clone()));
    }
}

async fn close_and_remove(service: Arc<ProgramService>, workspace: Arc<Workspace>) {
    // A run that was cancelled leaves it soon; what does not is left to the housekeeping.
    let since = monotonic_nanoseconds();
    while !workspace.close() && monotonic_nanoseconds() - since < CLOSE_TIMEOUT.as_nanos() as u64 {
        tokio::time::sleep(CLOSE_INTERVAL).await;
    }
    // A panic there was reported by itself.
    let _ = tokio::task::spawn_blocking(move || remove(&service, &workspace)).await;
}

/// Removes a session that nothing uses. Blocks.
fn remove(service: &Arc<ProgramService>, workspace: &Workspace) {
    if workspace.close()
        && let Err(rejection) = service.runs.workspaces.remove(workspace)
    {
        (service.runs.core.host.log_error)(&rejection.message);
    }
}

fn is_expired(workspace: &Workspace) -> bool {
    let oldest = calendar_milliseconds().saturating_sub(MAX_AGE.as_millis() as u64);
    workspace.created_at_ms() < oldest
}

/// Removes the sessions that are too old. Blocks.
pub(super) fn remove_expired(service: &Arc<ProgramService>) {
    let all = service.runs.workspaces.all().into_iter();
    for old in all.filter(|workspace| workspace.is_of_sandbox(MARK) && is_expired(workspace)) {
        remove(service, &old);
    }
}

/// The files of a session.
async fn entries(workspace: &Arc<Workspace>) -> Result<Vec<FileEntry>, ApiRejection> {
    let asked = ListingRequest { recursive: true, most: MAX_FILES * 4, after: None };
    let listing = files::act(workspace, move |tree| tree.list(&FilePath::default(), &asked)).await?;
    let mut found = listing.entries;
    found.retain(|entry| entry.kind == EntryKind::File);
    found.truncate(MAX_FILES);
    Ok(found)
}

/// A file as it is answered.
fn reference(session: &str, path: &str) -> Value {
    json!({"id": file_id(path), "name": path, "session_id": session, "storage_session_id": session})
}

async fn execute(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    object: Result<Object, ApiRejection>,
) -> Result<Response, LibreChatFailure> {
    let Object(mut fields) = object?;
    let missing = |name: &str| LibreChatFailure::bad(format!("{name} is required as a string"));
    let name = fields.string("lang")?.ok_or_else(|| missing("lang"))?;
    let code = fields.string("code")?.ok_or_else(|| missing("code"))?;
    let arguments = arguments(fields.value("args"))?;
    let found = LANGUAGES.iter().find(|(known, _)| *known == name).map(|(_, language)| *language);
    let is_installed = match found {
        Some(language) => programs::version(&service, language).await.is_some(),
        None => false,
    };
    let Some(language) = found.filter(|_| is_installed) else {
        let shown: String = name.chars().take(60).collect();
        return Err(LibreChatFailure::bad(format!("lang: this server does not have `{shown}`")));
    };
    let mut inputs = collect_inputs(&service, &owner, &mut fields).await?;
    let new_session = open(&service, &owner).await?;
    let workspace = new_session.workspace.clone();
    let session = session_id(&workspace);
    let program = ProgramSpec {
        files: std::mem::take(&mut inputs.files),
        arguments,
        directory: Directory::Named(workspace.clone()),
        directory_link: Some("/mnt/data"),
        ..ProgramSpec::new(language, code)
    };
    let executed = programs::attended(&connection, programs::execute(&service, &owner, program)).await?;
    remove_program(&workspace, language, &inputs).await?;
    let made = made(&workspace, &executed, &inputs).await?;
    let view = |path: &String| {
        let mut view = reference(&session, path);
        if let Some(file) = inputs.origins.get(path) {
            view["modified_from"] = file.origin.clone();
        }
        view
    };
    let listed: Vec<Value> = made.iter().map(view).collect();
    let answer =
        body::long_json(&service.runs.core.messages, &owner, || result(&session, &executed, &listed)).await;
    let answer = answer.map_err(|rejection: ApiRejection| {
        rejection.after_execution(executed.run.as_ref().map(|run| run.id_str()))
    })?;
    if made.is_empty() {
        new_session.discard().await;
    } else {
        new_session.keep();
    }
    Ok(answer)
}

fn arguments(given: Option<Value>) -> Result<Vec<String>, LibreChatFailure> {
    match given {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>();
            texts.ok_or_else(|| LibreChatFailure::bad("args: it is not a list of strings"))
        }
        Some(_) => Err(LibreChatFailure::bad("args: it is not a list of strings")),
    }
}

/// The files of other sessions that a program is handed.
#[derive(Debug, Default)]
struct InputFiles {
    files: Vec<ProgramFile>,
    /// By the paths of the files.
    origins: HashMap<String, FileOrigin>,
    /// Memory for the contents.
    _memory: Vec<Reservation>,
}

/// The session that a file is from, and its content there.
#[derive(Debug)]
struct FileOrigin {
    origin: Value,
    size: u64,
    hash: [u8; 32],
}

async fn collect_inputs(
    service: &Arc<ProgramService>,
    owner: &OwnerId,
    fields: &mut RequestFields,
) -> Result<InputFiles, LibreChatFailure> {
    let list = match fields.value("files") {
        None => return Ok(InputFiles::default()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(LibreChatFailure::bad("files: it is not a list of files")),
    };
    if list.len() > MAX_FILES {
        return Err(LibreChatFailure::bad(format!(
            "files: it has {} files; at most {MAX_FILES} are handed on",
            list.len()
        )));
    }
    let (mut inputs, mut left) = (InputFiles::default(), MAX_INPUT_BYTES);
    let mut sessions: HashMap<&str, (Arc<Workspace>, Vec<FileEntry>)> = HashMap::new();
    for file in &list {
        let part = |key: &str| file[key].as_str();
        let session = part("storage_session_id").or(part("session_id"));
        let (Some(session), Some(id)) = (session, part("id")) else {
            return Err(LibreChatFailure::bad("files: each needs `id` and `session_id`"));
        };
        if !sessions.contains_key(session) {
            let workspace = find(service, owner, session)?;
            let entries = entries(&workspace).await?;
            sessions.insert(session, (workspace, entries));
        }
        let Some((workspace, entries)) = sessions.get(session) else { continue };
        let entry = entries.iter().find(|entry| file_id(&entry.path) == id);
        let entry = entry.ok_or_else(|| LibreChatFailure::not_found("File"))?;
        let (file_path, most) = (FilePath::parse(&entry.path)?, entry.size.min(left));
        inputs._memory.push(
            service
                .runs
                .core
                .messages
                .requests
                .try_reserve(owner, usize::try_from(most).unwrap_or(usize::MAX))?,
        );
        let content = files::act(workspace, move |tree| tree.read(&file_path, most)).await?;
        let size = content.len() as u64;
        left -= size;
        let path = part("name").filter(|name| !name.is_empty()).unwrap_or(&entry.path).to_owned();
        FilePath::parse(&path)?;
        let origin = json!({"id": id, "session_id": session});
        inputs
            .origins
            .insert(path.clone(), FileOrigin { origin, size, hash: Sha256::digest(&content).into() });
        inputs.files.push(ProgramFile { path, content: content.into() });
    }
    Ok(inputs)
}

/// Removes the file that the program was written to, which does not belong to the session.
async fn remove_program(
    workspace: &Arc<Workspace>,
    language: &'static ProgramLanguage,
    inputs: &InputFiles,
) -> Result<(), ApiRejection> {
    for name in language.written() {
        if inputs.origins.contains_key(*name) {
            continue;
        }
        let file_path = FilePath::parse(name)?;
        let removed = files::act(workspace, move |tree| tree.delete(&file_path, false)).await;
        if let Err(rejection) = removed
            && rejection.code != Code::FileNotFound
        {
            return Err(rejection);
        }
    }
    Ok(())
}

/// The paths of the files that a program has made or changed, if it exited with 0 or a limit ended
/// it: those of a program that failed are not kept.
async fn made(
    workspace: &Arc<Workspace>,
    executed: &ProgramResult,
    inputs: &InputFiles,
) -> Result<Vec<String>, ApiRejection> {
    let is_settled = match &executed.run {
        Some(run) => programs::report(run).await?.has_files(),
        None => false,
    };
    if !is_settled {
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for entry in entries(workspace).await? {
        let is_unchanged = match inputs.origins.get(&entry.path) {
            Some(origin) if origin.size == entry.size => {
                let (file_path, most) = (FilePath::parse(&entry.path)?, entry.size);
                let now = files::act(workspace, move |tree| tree.read(&file_path, most)).await?;
                <[u8; 32]>::from(Sha256::digest(&now)) == origin.hash
            }
            _ => false,
        };
        if !is_unchanged && FilePath::parse(&entry.path).is_ok() {
            made.push(entry.path);
        }
    }
    Ok(made)
}

async fn result(
    session: &str,
    executed: &ProgramResult,
    files: &[Value],
) -> Result<PermittedValue<Value>, ApiRejection> {
    let view = |stdout: String, stderr: String| json!({"session_id": session, "stdout": stdout, "stderr": stderr, "files": files});
    let Some(run) = &executed.run else {
        let compile = executed.compile.as_ref();
        let text = compile.map(|report| report.stderr_lossy() + &report.stdout_lossy()).unwrap_or_default();
        let sentence = compile.and_then(|report| report.sentence.clone()).unwrap_or_default();
        return Ok(PermittedValue::new(view(String::new(), text + &sentence), None));
    };
    let report = programs::report(run).await?;
    let mut stderr = report.stderr_lossy();
    if let Some(sentence) = &report.sentence {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(sentence);
    }
    let value = view(report.stdout_lossy(), stderr);
    Ok(report.map(|_| value))
}

async fn upload(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    request: Request<Body>,
) -> Result<Response, LibreChatFailure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = kind.and_then(multipart::boundary);
    let bytes = Bytes::from(body::bytes(request, &service.runs.core.messages, None).await?);
    let parts = multipart::parts(&bytes, boundary.as_deref()).ok_or_else(|| {
        LibreChatFailure::bad("the body is not multipart/form-data with a part `file` that has a file name")
    })?;
    let mut written = Vec::new();
    for part in parts {
        let Some(name) = part.file_name else { continue };
        // A browser may send a path.
        let path = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        FilePath::parse(&path).ok().filter(|file_path| !file_path.is_root()).ok_or_else(|| {
            LibreChatFailure::bad(format!(
                "the file name `{}` cannot be used",
                path.chars().take(60).collect::<String>()
            ))
        })?;
        written.push((ProgramFile { path, content: bytes.slice_ref(part.content) }, 0o644));
    }
    if written.is_empty() {
        return Err(LibreChatFailure::bad("the body has no part with a file name"));
    }
    if written.len() > MAX_FILES {
        return Err(LibreChatFailure::bad(format!(
            "the body has {} files; a session has at most {MAX_FILES}",
            written.len()
        )));
    }
    let new_session = open(&service, &owner).await?;
    let session = session_id(&new_session.workspace);
    let names: Vec<String> = written.iter().map(|(file, _)| file.path.clone()).collect();
    programs::write(&new_session.workspace, written).await?;
    new_session.keep();
    let listed: Vec<Value> =
        names.iter().map(|name| json!({"fileId": file_id(name), "filename": name})).collect();
    Ok(body::json(&json!({
        "message": "success", "session_id": session, "storage_session_id": session, "files": listed,
    })))
}

async fn list(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Path(session): Path<String>,
    parameters: Result<Parameters, ApiRejection>,
) -> Result<Response, LibreChatFailure> {
    let Parameters(mut fields) = parameters?;
    let detail = fields.string("detail")?.unwrap_or_else(|| "simple".to_owned());
    let workspace = find(&service, &owner, &session)?;
    let view = |entry: &FileEntry| {
        let extension = entry.path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
        let extension = extension.map_or_else(String::new, |(_, extension)| format!(".{extension}"));
        let id = file_id(&entry.path);
        let name = format!("{session}/{id}{extension}");
        match detail.as_str() {
            "simple" => name.into(),
            "normalized" => reference(&session, &entry.path),
            _ => {
                let mut view = reference(&session, &entry.path);
                view["name"] = name.into();
                view["size"] = entry.size.into();
                view["lastModified"] = instant(entry.modified_at_ms).into();
                view["metadata"] = json!({"original-filename": entry.path});
                view
            }
        }
    };
    let listed: Vec<Value> = entries(&workspace).await?.iter().map(view).collect();
    Ok(body::json(&listed))
}

async fn download(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Path((session, file)): Path<(String, String)>,
) -> Result<Response, LibreChatFailure> {
    let workspace = find(&service, &owner, &session)?;
    let entries = entries(&workspace).await?;
    let entry = entries.iter().find(|entry| file_id(&entry.path) == file);
    let entry = entry.ok_or_else(|| LibreChatFailure::not_found("File"))?;
    let mut response = files::download(&workspace, FilePath::parse(&entry.path)?).await?;
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|letter| if letter.is_ascii_graphic() && letter != '"' { letter } else { '_' })
        .collect();
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{plain}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_librechat_demands() {
        let is_id = |id: &str| {
            id.len() == 21 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        assert!(is_id(&file_id("a/b c.txt")) && is_id(&format!("{PREFIX}{}", crate::id::new_id())));
        assert_ne!(file_id("a"), file_id("b"));
    }
}
