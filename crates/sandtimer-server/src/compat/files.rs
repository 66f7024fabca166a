//! Files of a sandbox, by the functions of `files`. Paths are those of /workspace and /tmp: what else a command sees is its own.
//! A relative path begins where the session is, or in /workspace.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::io::{pread, retry_on_intr};
use sandtimer::time::instant;
use serde_json::{Value, json};

use super::failure::Failure;
use super::frames::respond;
use super::place::{Directories, TEMPORARY, WORKSPACE};
use super::{Caller, Fielded, NO_SESSION, processes, success};
use crate::Shared;
use crate::body::Fields;
use crate::error::{Code, Refusal};
use crate::events::{Event, EventSource};
use crate::files::{Asked, Entry, Kind, Place, Tree, WriteOptions, act, act_on_two};
use crate::workspaces::Workspace;

/// The largest file that is read at once.
const MOST_READ: u64 = 32 << 20;
/// Bytes of a file in one event: whole groups of base64.
const PIECE: usize = 65_535;
/// Entries of a listing, and of one look at the directory.
const MOST_LISTED: usize = 100_000;
const PAGE: usize = 10_000;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/read", post(read))
        .route("/api/read/stream", post(read_stream))
        .route("/api/write", post(write))
        .route("/api/delete", post(delete))
        .route("/api/rename", post(rename))
        .route("/api/move", post(move_file))
        .route("/api/mkdir", post(make_directory))
        .route("/api/list-files", post(list))
        .route("/api/exists", post(exists))
}

/// Has a session write its directory, without a newline after it.
const DIRECTORY: &str = "\\builtin printf %s \"$PWD\"";

/// What a request is about: the directory that holds it and where commands see that, and a path as given and below it.
struct Target {
    files: Arc<Workspace>,
    seen_at: &'static str,
    path: String,
    place: Place,
}

async fn target(
    app: &Shared,
    caller: &Caller,
    fields: &mut Fields,
    key: &'static str,
) -> Result<Target, Failure> {
    let session = caller.session(fields)?;
    target_of(app, caller, (fields, key), &session).await
}

/// The same for a session that is known.
async fn target_of(
    app: &Shared,
    caller: &Caller,
    (fields, key): (&mut Fields, &'static str),
    session: &str,
) -> Result<Target, Failure> {
    let path = fields.text(key)?.filter(|path| !path.is_empty());
    let path =
        path.ok_or_else(|| Failure::invalid(key, "give a path, relative or below /workspace or /tmp"))?;
    let absolute = match path.starts_with('/') {
        true => path.clone(),
        false => format!("{}/{path}", directory_of(app, caller, session).await?),
    };
    let seen_at = if Path::new(&absolute).starts_with(TEMPORARY) { TEMPORARY } else { WORKSPACE };
    let place = Place::parse_at(seen_at, &absolute).map_err(|refusal| told(refusal, &path))?;
    let Directories { workspace, temporary } = caller.place.directories(app).await?;
    let files = if seen_at == TEMPORARY { temporary.files().clone() } else { workspace };
    Ok(Target { files, seen_at, path, place })
}

/// Where relative paths begin: in the directory of a session that is open.
async fn directory_of(app: &Shared, caller: &Caller, session: &str) -> Result<String, Failure> {
    let open = match session {
        NO_SESSION => None,
        session => caller.place.open_session(app, session).await,
    };
    let Some(open) = open else { return Ok(WORKSPACE.to_owned()) };
    let directory = processes::output_of(app, &open, DIRECTORY, &caller.connection).await?;
    directory.map_err(|note| Failure::new(500, "FILESYSTEM_ERROR", format!("session '{session}': {note}")))
}

/// Does something with one file, which may not be a directory.
async fn act_on_file<T: Send + 'static>(
    target: &Target,
    work: impl FnOnce(&Tree, &Place) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Failure> {
    let place = target.place.clone();
    let done = act(&target.files, move |tree| match tree.stat(&place) {
        Ok(entry) if entry.kind == Kind::Directory => Ok(None),
        _ => work(tree, &place).map(Some),
    });
    let done = done.await.map_err(|refusal| told(refusal, &target.path))?;
    done.ok_or_else(|| {
        Failure::new(400, "IS_DIRECTORY", format!("{} is a directory", target.path))
            .with("path", target.path.as_str())
    })
}

fn told(refusal: Refusal, path: &str) -> Failure {
    Failure::from(refusal).with("path", path)
}

/// A file's bytes as text where they are, or are to be, text; else as base64. Then the encoding, and whether they are no text.
fn encoded(bytes: Vec<u8>, encoding: Option<&str>) -> (String, &'static str, bool) {
    let is_binary = is_binary(&bytes);
    let as_text = match encoding {
        None => !is_binary,
        Some(encoding) => encoding != "base64",
    };
    if as_text {
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        return (text, "utf-8", is_binary);
    }
    (STANDARD.encode(bytes), "base64", is_binary)
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0) || std::str::from_utf8(bytes).is_err()
}

/// The type that a name and the content suggest.
fn mime_type(path: &str, is_binary: bool) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref().unwrap_or_default() {
        "json" => "application/json",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "md" => "text/markdown",
        "js" | "mjs" => "text/javascript",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        _ if is_binary => "application/octet-stream",
        _ => "text/plain",
    }
}

/// `encoding`: `utf-8`, `utf8` or `base64`.
fn encoding(fields: &mut Fields) -> Result<Option<String>, Failure> {
    let given = fields.text("encoding")?;
    match given.as_deref() {
        None | Some("utf-8" | "utf8" | "base64") => Ok(given),
        Some(_) => Err(Failure::invalid("encoding", "it is none of utf-8, utf8, base64")),
    }
}

async fn read(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let encoding = encoding(&mut fields)?;
    let target = target(&app, &caller, &mut fields, "path").await?;
    let bytes = act_on_file(&target, |tree, place| tree.read(place, MOST_READ)).await?;
    let size = bytes.len();
    let (content, encoding, is_binary) = encoded(bytes, encoding.as_deref());
    Ok(success(json!({
        "path": target.path,
        "content": content,
        "encoding": encoding,
        "isBinary": is_binary,
        "mimeType": mime_type(&target.path, is_binary),
        "size": size,
    })))
}

async fn write(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let encoding = encoding(&mut fields)?;
    let content =
        fields.text("content")?.ok_or_else(|| Failure::invalid("content", "give it as a string"))?;
    let bytes = match encoding.as_deref() {
        Some("base64") => {
            STANDARD.decode(content).map_err(|_| Failure::invalid("content", "it is not base64"))?
        }
        _ => content.into_bytes(),
    };
    let target = target(&app, &caller, &mut fields, "path").await?;
    let options = WriteOptions { parents: true, ..WriteOptions::default() };
    act_on_file(&target, move |tree, place| tree.write(place, &bytes, options)).await?;
    Ok(success(json!({"path": target.path})))
}

async fn delete(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let target = target(&app, &caller, &mut fields, "path").await?;
    let deleted = act_on_file(&target, |tree, place| tree.delete(place, false)).await;
    deleted.map_err(|failure| match failure.code() {
        "IS_DIRECTORY" => Failure::new(
            400,
            "IS_DIRECTORY",
            format!("Cannot delete directory with deleteFile(): {} (use exec('rm -r …'))", target.path),
        )
        .with("path", target.path.as_str()),
        _ => failure,
    })?;
    Ok(success(json!({"path": target.path})))
}

async fn rename(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    put(&app, &caller, &mut fields, ["oldPath", "newPath"]).await
}

async fn move_file(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    put(&app, &caller, &mut fields, ["sourcePath", "destinationPath"]).await
}

async fn put(
    app: &Shared,
    caller: &Caller,
    fields: &mut Fields,
    [from, to]: [&'static str; 2],
) -> Result<Response, Failure> {
    let session = caller.session(fields)?;
    let source = target_of(app, caller, (fields, from), &session).await?;
    let goal = target_of(app, caller, (fields, to), &session).await?;
    let (from, to) = (source.place.clone(), goal.place);
    let moved =
        act_on_two(&source.files, &goal.files, move |tree, other| tree.rename_to(&from, other, &to, true));
    moved.await.map_err(|refusal| told(refusal, &source.path))?;
    Ok(success(json!({"path": source.path, "newPath": goal.path})))
}

async fn make_directory(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let recursive = fields.truth("recursive")?.unwrap_or(false);
    let target = target(&app, &caller, &mut fields, "path").await?;
    let place = target.place.clone();
    let made = act(&target.files, move |tree| tree.make_directory(&place, recursive)).await;
    made.map_err(|refusal| told(refusal, &target.path))?;
    Ok(success(json!({"path": target.path, "recursive": recursive})))
}

async fn exists(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let target = target(&app, &caller, &mut fields, "path").await?;
    let place = target.place.clone();
    let exists = act(&target.files, move |tree| tree.exists(&place)).await;
    let exists = exists.map_err(|refusal| told(refusal, &target.path))?;
    Ok(success(json!({"path": target.path, "exists": exists})))
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let options = fields.value("options").unwrap_or_default();
    let asked = |key: &str| options[key].as_bool().unwrap_or(false);
    let (recursive, hidden) = (asked("recursive"), asked("includeHidden"));
    let target = target(&app, &caller, &mut fields, "path").await?;
    let place = target.place.clone();
    let found = act(&target.files, move |tree| whole(tree, &place, recursive)).await;
    let entries = found.map_err(|refusal| match refusal.code {
        Code::WrongFileType => {
            Failure::new(400, "NOT_DIRECTORY", refusal.message).with("path", target.path.as_str())
        }
        _ => told(refusal, &target.path),
    })?;
    let base = target.place.text();
    let files: Vec<Value> = entries
        .iter()
        .map(|entry| (entry, relative(&base, &entry.path)))
        .filter(|(_, relative)| hidden || !relative.split('/').any(|name| name.starts_with('.')))
        .map(|(entry, relative)| info(entry, target.seen_at, relative))
        .collect();
    Ok(success(json!({"path": target.path, "count": files.len(), "files": files})))
}

/// All pages of a listing, up to a bound.
fn whole(tree: &Tree, place: &Place, recursive: bool) -> Result<Vec<Entry>, Refusal> {
    let mut asked = Asked { recursive, most: PAGE, after: None };
    let mut entries = Vec::new();
    loop {
        let page = tree.list(place, &asked)?;
        // Not of the last page: with what stands for bytes that are no text, a name may be longer than one that is taken.
        let last = page.entries.last().filter(|_| page.more);
        asked.after = last.map(|entry| Place::parse(&entry.path)).transpose()?;
        entries.extend(page.entries);
        if entries.len() > MOST_LISTED || page.incomplete {
            let message =
                format!("there are more than {MOST_LISTED} files, or they lie too deep; list a part of them");
            return Err(Refusal::new(Code::FileTooLarge, message));
        }
        if !page.more {
            return Ok(entries);
        }
    }
}

fn relative<'a>(base: &str, path: &'a str) -> &'a str {
    path.strip_prefix(base).map_or(path, |path| path.trim_start_matches('/'))
}

fn info(entry: &Entry, seen_at: &str, relative: &str) -> Value {
    let kind = match entry.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        _ => "other",
    };
    let bit = |bit: u32, letter: char| if entry.mode & bit != 0 { letter } else { '-' };
    let mode: String = (0..9).map(|index| bit(0o400 >> index, ['r', 'w', 'x'][index as usize % 3])).collect();
    json!({
        "name": relative.rsplit('/').next().unwrap_or(relative),
        "absolutePath": format!("{seen_at}/{}", entry.path),
        "relativePath": relative,
        "type": kind,
        "size": entry.size,
        "modifiedAt": instant(entry.modified_at_ms),
        "mode": mode,
        "permissions": {
            "readable": entry.mode & 0o400 != 0,
            "writable": entry.mode & 0o200 != 0,
            "executable": entry.mode & 0o100 != 0,
        },
    })
}

/// What goes wrong before the first byte is an event here, as that interface has it.
async fn read_stream(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let target = target(&app, &caller, &mut fields, "path").await?;
    let opened = act_on_file(&target, |tree, place| {
        let (file, size) = tree.open_to_read(place)?;
        // As text goes only what is seen to be text; a larger file may be anything.
        let text =
            if size <= MOST_READ { String::from_utf8(tree.read(place, MOST_READ)?).ok() } else { None };
        Ok((file, size, text.filter(|text| !text.contains('\0'))))
    });
    let mut stream = FileFrames { path: target.path.clone(), content: Content::Over, ready: VecDeque::new() };
    match opened.await {
        Ok((file, size, text)) => stream.begin(file, size, text),
        Err(failure) => stream.ready.push_back(json!({"type": "error", "error": failure.message()})),
    }
    Ok(respond(stream, app.heartbeat))
}

enum Content {
    Text { text: String, at: usize },
    Bytes { file: Arc<OwnedFd>, at: u64, size: u64 },
    Over,
}

/// A file in pieces.
struct FileFrames {
    path: String,
    content: Content,
    ready: VecDeque<Value>,
}

impl FileFrames {
    fn begin(&mut self, file: OwnedFd, size: u64, text: Option<String>) {
        let (is_binary, encoding) = if text.is_some() { (false, "utf-8") } else { (true, "base64") };
        let mime_type = mime_type(&self.path, is_binary);
        let size = text.as_ref().map_or(size, |text| text.len() as u64);
        self.ready.push_back(json!({
            "type": "metadata", "mimeType": mime_type, "size": size, "isBinary": is_binary, "encoding": encoding,
        }));
        self.content = match text {
            Some(text) => Content::Text { text, at: 0 },
            None => Content::Bytes { file: Arc::new(file), at: 0, size },
        };
    }

    /// The next piece of text, or that it is over.
    fn text(text: &str, at: &mut usize) -> Value {
        let mut end = text.len().min(*at + PIECE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let piece = &text[*at..end];
        *at = end;
        match piece {
            "" => json!({"type": "complete", "bytesRead": text.len()}),
            piece => json!({"type": "chunk", "data": piece}),
        }
    }

    async fn bytes(file: Arc<OwnedFd>, at: &mut u64, size: u64) -> Value {
        let (begin, most) = (*at, usize::try_from(size - *at).unwrap_or(PIECE).min(PIECE));
        let read = tokio::task::spawn_blocking(move || full_piece(&file, begin, most)).await;
        match read.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(bytes) if bytes.is_empty() => json!({"type": "complete", "bytesRead": begin}),
            Ok(bytes) => {
                *at += bytes.len() as u64;
                json!({"type": "chunk", "data": STANDARD.encode(bytes)})
            }
            Err(error) => json!({"type": "error", "error": format!("the file cannot be read: {error}")}),
        }
    }
}

/// A piece of a file that is only shorter at the file's end.
fn full_piece(file: &OwnedFd, at: u64, most: usize) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; most], 0);
    while filled < most {
        match retry_on_intr(|| pread(file, &mut bytes[filled..], at + filled as u64))? {
            0 => break,
            length => filled += length,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl EventSource for FileFrames {
    async fn next(&mut self) -> Option<Event> {
        let data = match (self.ready.pop_front(), &mut self.content) {
            (Some(data), _) => data,
            (None, Content::Text { text, at }) => Self::text(text, at),
            (None, Content::Bytes { file, at, size }) => Self::bytes(file.clone(), at, *size).await,
            (None, Content::Over) => return None,
        };
        if data["type"] == "complete" || data["type"] == "error" {
            self.content = Content::Over;
        }
        Some(Event { id: String::new(), name: "", data })
    }
}
