//! LibreChat's code API, below `/librechat`: `LIBRECHAT_CODE_BASEURL=http://…/librechat`.
//!
//! A session of it is a workspace, whose files outlive the server and are removed a day after they were made. Its id has that of
//! the workspace in it, and the id of a file is a hash of its path: 21 characters each, as LibreChat demands.

mod multipart;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::attended;
use crate::Shared;
use crate::auth::Owner;
use crate::body::{self, Fields, Object, Parameters};
use crate::connection::Connection;
use crate::error::{Code, Refusal};
use crate::files::{self, Asked, Entry, Kind, Place};
use crate::programs::{self, Directory, Executed, Language, Program, ProgramFile, language};
use crate::quota::Permitted;
use crate::workspaces::Workspace;

/// Where it is.
pub(super) const BASE: &str = "/librechat/";
/// The name by which its workspaces are known; no sandbox of another interface can have it.
const MARK: &str = "\nlibrechat";
/// What stands before the id of a workspace.
const PREFIX: &str = "code-";
/// How long files are kept.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Files that an answer lists, and bytes of those that are handed on to a program.
const MAX_FILES: usize = 200;
const MAX_HANDED: u64 = 256 << 20;

/// Its names of languages.
const LANGUAGES: [(&str, &Language); 11] = [
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

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/librechat/exec", post(execute))
        .route("/librechat/upload", post(upload))
        .route("/librechat/files/{session}", get(list))
        .route("/librechat/download/{session}/{file}", get(download))
}

/// An error on its way to a client.
#[derive(Debug)]
struct Failure {
    status: u16,
    error: String,
}

impl Failure {
    fn bad(error: impl Into<String>) -> Self {
        Failure { status: 400, error: error.into() }
    }

    fn not_found(what: &str) -> Self {
        Failure { status: 404, error: format!("{what} not found") }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure { status: refusal.code.status(), error: refusal.message }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = body::json(&json!({"error": self.error, "message": self.error}));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.status == 401 {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub(super) fn refuse(refusal: Refusal) -> Response {
    Failure::from(refusal).into_response()
}

/// The id of a session.
fn session_id(workspace: &Workspace) -> String {
    format!("{PREFIX}{}", workspace.id_text())
}

/// The id of a file of a session.
fn file_id(path: &str) -> String {
    let hash = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(path));
    hash.chars().take(21).collect()
}

/// The session of this owner.
fn find(app: &Shared, owner: &Owner, session: &str) -> Result<Arc<Workspace>, Failure> {
    let id = session.strip_prefix(PREFIX);
    let found = id.and_then(|id| app.workspaces.find(id, owner));
    found.filter(|workspace| workspace.is_of_sandbox(MARK)).ok_or_else(|| Failure::not_found("Session"))
}

/// Makes a session, and removes those that are too old.
async fn open(app: &Shared, owner: &Owner) -> Result<Arc<Workspace>, Refusal> {
    let (app, owner) = (app.clone(), owner.clone());
    let made = tokio::task::spawn_blocking(move || {
        let oldest = calendar_milliseconds().saturating_sub(MAX_AGE.as_millis() as u64);
        let all = app.workspaces.of(&owner).into_iter();
        for old in all.filter(|workspace| workspace.is_of_sandbox(MARK) && workspace.created_at_ms() < oldest)
        {
            if old.close()
                && let Err(refusal) = app.workspaces.remove(&old)
            {
                (app.host.complain)(&refusal.message);
            }
        }
        app.workspaces.create(&owner, Some(MARK))
    });
    made.await.map_err(|_| Refusal::new(Code::Internal, "the session could not be made"))?
}

/// Removes a session that has no files.
async fn discard(app: &Shared, workspace: Arc<Workspace>) {
    let app = app.clone();
    let removed = tokio::task::spawn_blocking(move || {
        if workspace.close()
            && let Err(refusal) = app.workspaces.remove(&workspace)
        {
            (app.host.complain)(&refusal.message);
        }
    });
    // A panic there was reported by itself.
    let _ = removed.await;
}

/// The files of a session.
async fn entries(workspace: &Arc<Workspace>) -> Result<Vec<Entry>, Refusal> {
    let asked = Asked { recursive: true, most: MAX_FILES * 4, after: None };
    let listing = files::act(workspace, move |tree| tree.list(&Place::default(), &asked)).await?;
    let mut found = listing.entries;
    found.retain(|entry| entry.kind == Kind::File);
    found.truncate(MAX_FILES);
    Ok(found)
}

/// A file as it is answered.
fn reference(session: &str, path: &str) -> Value {
    json!({"id": file_id(path), "name": path, "session_id": session, "storage_session_id": session})
}

async fn execute(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Extension(connection): Extension<Arc<Connection>>,
    object: Result<Object, Refusal>,
) -> Result<Response, Failure> {
    let Object(mut fields) = object?;
    let missing = |name: &str| Failure::bad(format!("{name} is required as a string"));
    let name = fields.text("lang")?.ok_or_else(|| missing("lang"))?;
    let code = fields.text("code")?.ok_or_else(|| missing("code"))?;
    let arguments = arguments(fields.value("args"))?;
    let found = LANGUAGES.iter().find(|(known, _)| *known == name).map(|(_, language)| *language);
    let is_installed = match found {
        Some(language) => programs::version(&app, language).await.is_some(),
        None => false,
    };
    let Some(language) = found.filter(|_| is_installed) else {
        let shown: String = name.chars().take(60).collect();
        return Err(Failure::bad(format!("lang: this server does not have `{shown}`")));
    };
    let (handed, origins) = handed(&app, &owner, &mut fields).await?;
    let workspace = open(&app, &owner).await?;
    let session = session_id(&workspace);
    let program = Program {
        files: handed.clone(),
        arguments,
        directory: Directory::Named(workspace.clone()),
        directory_link: Some("/mnt/data"),
        ..Program::new(language, code)
    };
    let executed = match attended(&connection, programs::execute(&app, &owner, program)).await {
        Ok(executed) => executed,
        Err(refusal) => {
            discard(&app, workspace).await;
            return Err(refusal.into());
        }
    };
    remove_program(&workspace, language, &handed).await?;
    let made = made(&workspace, &executed, &handed).await?;
    if made.is_empty() {
        discard(&app, workspace).await;
    }
    let view = |path: &String| {
        let mut view = reference(&session, path);
        if let Some(origin) = origins.get(path) {
            view["modified_from"] = origin.clone();
        }
        view
    };
    let listed: Vec<Value> = made.iter().map(view).collect();
    let answer = body::long_json(&app, &owner, || result(&session, &executed, &listed)).await;
    answer.map_err(|refusal: Refusal| {
        refusal.after_execution(executed.run.as_ref().map(|run| run.id_text())).into()
    })
}

fn arguments(given: Option<Value>) -> Result<Vec<String>, Failure> {
    match given {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>();
            texts.ok_or_else(|| Failure::bad("args: it is not a list of strings"))
        }
        Some(_) => Err(Failure::bad("args: it is not a list of strings")),
    }
}

/// The files of other sessions that a program is handed, and where each of them is from, by its path.
async fn handed(
    app: &Shared,
    owner: &Owner,
    fields: &mut Fields,
) -> Result<(Vec<ProgramFile>, HashMap<String, Value>), Failure> {
    let list = match fields.value("files") {
        None => return Ok((Vec::new(), HashMap::new())),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Failure::bad("files: it is not a list of files")),
    };
    let (mut files, mut origins, mut left) = (Vec::new(), HashMap::new(), MAX_HANDED);
    for file in &list {
        let part = |key: &str| file[key].as_str();
        let session = part("storage_session_id").or(part("session_id"));
        let (Some(session), Some(id)) = (session, part("id")) else {
            return Err(Failure::bad("files: each needs `id` and `session_id`"));
        };
        let workspace = find(app, owner, session)?;
        let entries = entries(&workspace).await?;
        let entry = entries.iter().find(|entry| file_id(&entry.path) == id);
        let entry = entry.ok_or_else(|| Failure::not_found("File"))?;
        let place = Place::parse(&entry.path)?;
        let content = files::act(&workspace, move |tree| tree.read(&place, left)).await?;
        left -= content.len() as u64;
        let path = part("name").filter(|name| !name.is_empty()).unwrap_or(&entry.path).to_owned();
        Place::parse(&path)?;
        origins.insert(path.clone(), json!({"id": id, "session_id": session}));
        files.push(ProgramFile { path, content });
    }
    Ok((files, origins))
}

/// Removes the file that the program was written to, which does not belong to the session.
async fn remove_program(
    workspace: &Arc<Workspace>,
    language: &'static Language,
    handed: &[ProgramFile],
) -> Result<(), Refusal> {
    for name in language.written() {
        if handed.iter().any(|file| file.path == *name) {
            continue;
        }
        let place = Place::parse(name)?;
        let removed = files::act(workspace, move |tree| tree.delete(&place, false)).await;
        if let Err(refusal) = removed
            && refusal.code != Code::FileNotFound
        {
            return Err(refusal);
        }
    }
    Ok(())
}

/// The paths of the files that a program has made or changed, if it has succeeded: what another leaves is not kept.
async fn made(
    workspace: &Arc<Workspace>,
    executed: &Executed,
    handed: &[ProgramFile],
) -> Result<Vec<String>, Refusal> {
    let has_succeeded = match &executed.run {
        Some(run) => programs::report(run).await?.is_success(),
        None => false,
    };
    if !has_succeeded {
        return Ok(Vec::new());
    }
    let before: HashMap<&str, &[u8]> =
        handed.iter().map(|file| (file.path.as_str(), file.content.as_slice())).collect();
    let mut made = Vec::new();
    for entry in entries(workspace).await? {
        let is_unchanged = match before.get(entry.path.as_str()) {
            Some(content) if content.len() as u64 == entry.size => {
                let (place, most) = (Place::parse(&entry.path)?, entry.size);
                let now = files::act(workspace, move |tree| tree.read(&place, most)).await?;
                now == *content
            }
            _ => false,
        };
        if !is_unchanged && Place::parse(&entry.path).is_ok() {
            made.push(entry.path);
        }
    }
    Ok(made)
}

async fn result(session: &str, executed: &Executed, files: &[Value]) -> Result<Permitted<Value>, Refusal> {
    let view = |stdout: String, stderr: String| json!({"session_id": session, "stdout": stdout, "stderr": stderr, "files": files});
    let Some(run) = &executed.run else {
        let compile = executed.compile.as_ref();
        let text = compile.map(|report| report.stderr_text() + &report.stdout_text()).unwrap_or_default();
        let sentence = compile.and_then(|report| report.sentence.clone()).unwrap_or_default();
        return Ok(Permitted::new(view(String::new(), text + &sentence), None));
    };
    let report = programs::report(run).await?;
    let mut stderr = report.stderr_text();
    if let Some(sentence) = &report.sentence {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(sentence);
    }
    let value = view(report.stdout_text(), stderr);
    Ok(report.map(|_| value))
}

async fn upload(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    request: Request<Body>,
) -> Result<Response, Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = kind.and_then(multipart::boundary);
    let bytes = body::bytes(request, &app, None).await?;
    let parts = multipart::parts(&bytes, boundary.as_deref()).ok_or_else(|| {
        Failure::bad("the body is not multipart/form-data with a part `file` that has a file name")
    })?;
    let mut written = Vec::new();
    for part in parts {
        let Some(name) = part.file_name else { continue };
        // A browser may send a path.
        let path = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        Place::parse(&path).ok().filter(|place| !place.is_root()).ok_or_else(|| {
            Failure::bad(format!(
                "the file name `{}` cannot be used",
                path.chars().take(60).collect::<String>()
            ))
        })?;
        written.push((ProgramFile { path, content: part.content.to_vec() }, 0o644));
    }
    if written.is_empty() {
        return Err(Failure::bad("the body has no part with a file name"));
    }
    let workspace = open(&app, &owner).await?;
    let session = session_id(&workspace);
    let names: Vec<String> = written.iter().map(|(file, _)| file.path.clone()).collect();
    programs::write(&workspace, written).await?;
    let listed: Vec<Value> =
        names.iter().map(|name| json!({"fileId": file_id(name), "filename": name})).collect();
    Ok(body::json(&json!({
        "message": "success", "session_id": session, "storage_session_id": session, "files": listed,
    })))
}

async fn list(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Path(session): Path<String>,
    parameters: Result<Parameters, Refusal>,
) -> Result<Response, Failure> {
    let Parameters(mut fields) = parameters?;
    let detail = fields.text("detail")?.unwrap_or_else(|| "simple".to_owned());
    let workspace = find(&app, &owner, &session)?;
    let view = |entry: &Entry| {
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
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Path((session, file)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let workspace = find(&app, &owner, &session)?;
    let entries = entries(&workspace).await?;
    let entry = entries.iter().find(|entry| file_id(&entry.path) == file);
    let entry = entry.ok_or_else(|| Failure::not_found("File"))?;
    let mut response = files::download(&workspace, Place::parse(&entry.path)?).await?;
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
        assert!(is_id(&file_id("a/b c.txt")) && is_id(&format!("{PREFIX}{}", crate::new_id())));
        assert_ne!(file_id("a"), file_id("b"));
    }
}
