//! Workspaces and their files in the description of the API.

use serde_json::{Value, json};

use super::operation::Operation;
use super::operation::SuccessAnswer::{Content, Json, Nothing};
use super::schema::{answer, body, boolean, enumeration, list, nullable, number, reference, string};
use crate::error::Code;
use crate::files::EntryKind;

const BYTES: &str = "application/octet-stream";
const QUERY_CODES: &[Code] = &[Code::BadField, Code::UnknownField];
/// Of whatever addresses a file.
const FILE_CODES: &[Code] = &[
    Code::BadField,
    Code::UnknownField,
    Code::NulByte,
    Code::TooLong,
    Code::PathOutside,
    Code::FilePermission,
    Code::WorkspaceNotFound,
    Code::SandboxNotFound,
    Code::SandboxEnded,
    Code::SandboxPaused,
    Code::SandboxBusy,
    Code::Refused,
    Code::ContextNotFound,
    Code::ContextEnded,
    Code::FileNotFound,
    Code::WrongFileType,
    Code::FileBusy,
    Code::System,
    Code::Storage,
];

pub(super) fn operations() -> Vec<Operation> {
    let mut all = workspaces();
    all.extend(contents());
    all.extend(archives());
    all.extend(path_operations());
    all
}

fn workspaces() -> Vec<Operation> {
    let workspace = |method, path, summary, shape| Operation::new(method, path, summary, Json(shape));
    vec![
        workspace(
            "post",
            "/v1/workspaces",
            "Make a directory that runs, contexts and sessions can work in, and that outlives them",
            "Workspace",
        )
        .answers(&[(201, "It is made.")])
        .body("Empty")
        .errors(&[Code::Storage]),
        workspace("get", "/v1/workspaces", "Your workspaces, the oldest first", "WorkspaceList")
            .errors(QUERY_CODES),
        workspace("get", "/v1/workspaces/{id}", "One workspace, with its size", "WorkspaceDetails")
            .errors(&[Code::System, Code::Storage]),
        Operation::new("delete", "/v1/workspaces/{id}", "Delete a workspace and all that is in it", Nothing)
            .errors(&[Code::WorkspaceInUse, Code::Storage]),
    ]
}

fn addressed(operation: Operation) -> Operation {
    operation
        .query(
            "workspace",
            string("Its id."),
            "Whose files: give this, or `context`, or `session`, or `sandbox`.",
        )
        .query("context", string("Its id."), "The files that this context works with.")
        .query("session", string("Its id."), "The files that this session works with.")
        .query(
            "sandbox",
            string("Its id."),
            "The files of this sandbox: `path` is absolute, or below /workspace.",
        )
        .errors(FILE_CODES)
}

fn on_file(operation: Operation) -> Operation {
    addressed(operation).query(
        "path",
        string("Relative, or below /workspace, or in a sandbox any absolute path; without `..`."),
        "Which file.",
    )
}

fn contents() -> Vec<Operation> {
    vec![
        on_file(Operation::new(
            "get",
            "/v1/files",
            "Read a file, or a part of it, as a stream; also by a Range header",
            Content(BYTES),
        ))
        .answers(&[(200, "All of it."), (206, "The part that was asked for.")])
        .query("offset", number("A byte's position."), "Where to begin; 0 unless given.")
        .query("length", number("Bytes."), "How much at most; to its end unless given.")
        .errors(&[Code::RangeOutside]),
        on_file(Operation::new(
            "put",
            "/v1/files",
            "Replace a file by the body, at once and as a whole, or make it",
            Json("FileWritten"),
        ))
        .bytes()
        .query("parents", boolean(""), "Makes the directories on the way.")
        .query("create_only", boolean(""), "Refuses to replace what is there.")
        .query(
            "mode",
            string("Permission bits in octal, such as `0644`."),
            "Those of the file it replaces unless given, or 0644.",
        )
        .errors(&[Code::FileExists, Code::FileTooLarge, Code::RequestTimeout, Code::BodyBroken]),
        on_file(Operation::new(
            "post",
            "/v1/files/append",
            "Add the body to the end of a file",
            Json("FileAppended"),
        ))
        .bytes()
        .query("create", boolean(""), "Makes the file if it is not there; true unless given.")
        .errors(&[Code::BodyTooLarge, Code::RequestTimeout, Code::BodyBroken]),
        on_file(Operation::new("delete", "/v1/files", "Delete a file, a link or a directory", Nothing))
            .query("recursive", boolean(""), "With all that is in it.")
            .errors(&[Code::DirectoryNotEmpty]),
    ]
}

const ARCHIVE: &str = "application/x-tar";

fn archives() -> Vec<Operation> {
    let directory = "Which directory; all of /workspace unless given.";
    let path = || string("Relative, or below /workspace; in a sandbox any absolute path.");
    vec![
        addressed(Operation::new(
            "get",
            "/v1/files/tar",
            "A directory as a tar archive, as a stream: files, directories and links with their modes and times, at most 200000 of them and 4 GiB",
            Content(ARCHIVE),
        ))
        .query("path", path(), directory)
        .errors(&[Code::FileTooLarge, Code::Quota, Code::Capacity]),
        addressed(Operation::new(
            "put",
            "/v1/files/tar",
            "Unpack the body, a tar archive of at most 200000 members and 4 GiB, into a directory. Files and links replace those of their \
             names; nothing is changed where a member leaves the directory, or is not a file, directory or link",
            Json("ArchiveUnpacked"),
        ))
        .bytes()
        .query("path", path(), directory)
        .query("parents", boolean(""), "Makes the directory, and those on the way.")
        .query(
            "links",
            enumeration(&["inside", "keep"]),
            "`inside`, unless given, refuses links that lead out of the directory; `keep` makes them as they are.",
        )
        .errors(&[
            Code::BadArchive,
            Code::FileTooLarge,
            Code::RequestTimeout,
            Code::BodyBroken,
            Code::Quota,
            Code::Capacity,
        ]),
    ]
}

fn path_operations() -> Vec<Operation> {
    let get = |path, summary, answer| Operation::new("get", path, summary, answer);
    let post = |path, summary| Operation::new("post", path, summary, Json("FileEntry"));
    let directory = "Which directory; all of /workspace unless given.";
    vec![
        addressed(get("/v1/files/list", "What is in a directory, in the order of names", Json("FileListing")))
            .query("path", string("Relative, or below /workspace; in a sandbox any absolute path."), directory)
            .query("recursive", boolean(""), "With all below it.")
            .query("limit", number("1 to 10000."), "How many at most; 1000 unless given.")
            .query("after", string("A path of this listing."), "Only entries after this one: `next_after` of the previous page."),
        on_file(get("/v1/files/stat", "What is at a path; a link is not followed", Json("FileEntry"))),
        addressed(get(
            "/v1/files/watch",
            "Server-sent events of a directory: ready, created, modified, attributes, deleted, moved_from, moved_to, lagged (some were \
             lost), and of a tree unwatched (a directory has no events: `reason` is full, closed or deep). Nothing is kept for a \
             reader that disconnected: list the directory again",
            Content("text/event-stream"),
        ))
        .query("path", string("Relative, or below /workspace; in a sandbox any absolute path."), directory)
        .query("recursive", boolean(""), "With all directories below it, also those that are made later; false unless given.")
        .errors(&[Code::Capacity]),
        post("/v1/files/move", "Move a file or a directory; what is there now").body("MoveRequest").errors(FILE_CODES).errors(&[
            Code::FileExists,
            Code::DirectoryNotEmpty,
        ]),
        post("/v1/files/mkdir", "Make a directory").body("DirectoryRequest").errors(FILE_CODES).errors(&[Code::FileExists]),
    ]
}

pub(super) fn schemas() -> Value {
    let workspace = || {
        json!({
            "workspace_id": string(""),
            "created_at_ms": number("Milliseconds since 1970."),
            "in_use": number("How many runs, contexts and sessions work in it."),
        })
    };
    let mut details = workspace();
    details["size_bytes"] = number("What it takes on the disk.");
    details["files"] = number("How many files and directories are in it.");
    details["complete"] =
        boolean("All of it was counted: a million files at most, and none that its owner has shut away.");
    json!({
        "Workspace": answer(workspace()),
        "WorkspaceDetails": answer(details),
        "WorkspaceList": answer(json!({"workspaces": list(reference("Workspace"))})),
        "FileEntry": answer(json!({
            "path": string("Relative to the workspace; absolute in a sandbox. What is not UTF-8 in it is U+FFFD, and such a file has to be reached by a run."),
            "type": enumeration(&EntryKind::NAMES),
            "size": number("Bytes."),
            "modified_at_ms": number("Milliseconds since 1970."),
            "mode": string("Permission bits in octal."),
            "target": nullable(string("The target of a link.")),
        })),
        "FileListing": answer(json!({
            "entries": list(reference("FileEntry")),
            "next_after": nullable(string("Where the next page begins; null on the last.")),
            "incomplete": boolean("Directories are not shown whole: of more than 100000 names, more than 64 deep, or shut."),
        })),
        "FileWritten": answer(json!({
            "path": string(""),
            "size": number("Bytes."),
            "created": boolean("Nothing was there."),
        })),
        "ArchiveUnpacked": answer(json!({
            "path": string(""),
            "members": number("Files, directories and links of the archive."),
            "bytes": number("Of the archive."),
        })),
        "FileAppended": answer(json!({"path": string(""), "size": number("Bytes, with those that were added.")})),
        "MoveRequest": request(json!({
            "from": string("A path."),
            "to": string("A path."),
            "overwrite": boolean("Replaces what is there."),
        })),
        "DirectoryRequest": request(json!({
            "path": string(""),
            "parents": boolean("Makes those on the way as well, and it may be there."),
        })),
    })
}

fn request(mut fields: Value) -> Value {
    for (name, of) in [
        ("workspace", "this workspace"),
        ("context", "this context"),
        ("session", "this session"),
        ("sandbox", "this sandbox"),
    ] {
        fields[name] = string(&format!("The id, for files of {of}."));
    }
    body(fields)
}
