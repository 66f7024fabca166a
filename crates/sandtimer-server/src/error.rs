//! Every error a caller can get, in one list: its code, HTTP status, exit code, hint, and whether
//! trying again helps.
//!
//! What a run does is never here: a timeout or a crash is data in its Outcome. A message names the
//! thing, the value and what would work; it holds no path, pid or address of the host that the
//! caller did not give.

use std::fmt::Write;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandtimer::engine::SandboxError;
use sandtimer::isolate::files::FilesError;
use sandtimer::scope::ScopeError;
use sandtimer_agents::BudgetError;
use serde_json::{Map, Value, json};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $status:literal, $exit:literal, $retryable:literal, $hint:literal;)+) => {
        /// What kind of error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            fn facts(self) -> CodeFacts {
                match self {
                    $(Code::$name => CodeFacts {
                        code: $code, status: $status, exit: $exit, retryable: $retryable, hint: $hint,
                        doc: concat!($($doc),+),
                    },)+
                }
            }
        }
    };
}

struct CodeFacts {
    code: &'static str,
    status: u16,
    exit: u8,
    retryable: bool,
    hint: &'static str,
    doc: &'static str,
}

codes! {
    /// The request is not valid HTTP/1.1.
    BadHttp = "bad_http", 400, 125, false, "send an HTTP/1.1 request: a first line, header lines and an empty line, each ended by CR LF";
    /// The body is not a JSON object in UTF-8.
    BadJson = "bad_json", 400, 125, false, "send one JSON object, encoded in UTF-8";
    /// The body ended before it was whole.
    BodyBroken = "body_broken", 400, 125, true, "send all of the body; nothing was changed";
    /// A field or parameter is missing, or its value is not valid.
    BadField = "bad_field", 400, 125, false, "see /openapi.json for the fields and their types";
    /// The request has a field or parameter that does not exist.
    UnknownField = "unknown_field", 400, 125, false, "remove it, or correct its name; see /openapi.json";
    /// The spec of a job was rejected; `details.path` is the path of the field and, in a batch,
    /// `details.index` the index of the job.
    BadSpec = "bad_spec", 400, 125, false, "correct the field that the message names; nothing was submitted";
    /// The value is not a valid limit.
    BadLimit = "bad_limit", 400, 125, false, "leave it out to inherit; 0, null or \"unlimited\" for none; else a positive value";
    /// The body is not an archive that can be unpacked; nothing was changed.
    BadArchive = "bad_archive", 400, 125, false, "send an uncompressed tar archive of files, directories and links, as `tar cf -` and Python's tarfile write it";
    /// A string contains a NUL byte where the system does not allow one.
    NulByte = "nul_byte", 400, 125, false, "NUL bytes can go to stdin, not into arguments, variables or code";
    /// An argument or a variable, or all of them together, are longer than the kernel accepts, or a
    /// path in a sandbox is longer than the server reads.
    TooLong = "too_long", 400, 125, false, "pass long data by stdin; shorten the path by a run in the sandbox";
    /// The request was not sent in time.
    RequestTimeout = "request_timeout", 408, 125, true, "send the whole request without pauses";
    /// The body is larger than the server accepts.
    BodyTooLarge = "body_too_large", 413, 125, false, "a body has at most 64 MiB";
    /// The JSON of the body or message has more bytes, values or levels than the server accepts;
    /// `details.counted` says which.
    JsonTooLarge = "json_too_large", 413, 125, false, "send long text as a string of code, command, stdin, data, content or inputs, many jobs in several requests, and data as files";
    /// The path and query are longer than the server accepts.
    UriTooLong = "uri_too_long", 414, 125, false, "path and query have at most 16 KiB; send long values in the body";
    /// The head of the request has more lines or bytes than the server accepts.
    HeadTooLarge = "head_too_large", 431, 125, false, "a request has at most 64 header lines, and 64 KiB before its body; send fewer";
    /// The request has no token, or a token that this server does not know.
    Unauthorized = "unauthorized", 401, 125, false, "send `Authorization: Bearer TOKEN` with a token from the server's token file";
    /// The connection comes from a user other than the one who runs the server.
    PeerRefused = "peer_refused", 403, 125, false, "connect as the user who runs the server, or start the server with --token-file";
    /// The Host header names neither loopback nor the address on which the server listens.
    HostRefused = "host_refused", 403, 125, false, "use the address on which the server listens";
    /// The request comes from a web page of another origin.
    OriginRefused = "origin_refused", 403, 125, false, "leave Origin out, or serve the page from this server's own origin";
    /// The token may not give runs the host's network.
    NetworkRefused = "network_refused", 403, 125, false, "omit `network`, or have the operator add `network`, or `network=HOST,HOST` for the allow-lists of sandboxes, to the token's line in the server's token file";
    /// The token does not belong to an operator.
    OperatorOnly = "operator_only", 403, 125, false, "use a token whose line in the server's token file has the word `operator`";
    /// The mode of the file, or of a directory in its path, does not permit this to the owner of
    /// the files.
    FilePermission = "file_permission", 403, 125, false, "change its mode in a run (chmod)";
    /// The path leads out of the workspace, by `..` or through a symbolic link.
    PathOutside = "path_outside", 403, 125, false, "give a path without `..`, relative or below /workspace; symbolic links may lead only to paths in the workspace";
    /// The API has no such path.
    NotFound = "not_found", 404, 125, false, "see /openapi.json for the paths";
    /// There is no such run, or it belongs to another owner.
    RunNotFound = "run_not_found", 404, 125, false, "GET /v1/runs lists your runs; old ones are removed";
    /// There is no such context or session, or it belongs to another owner.
    ContextNotFound = "context_not_found", 404, 125, false, "GET /v1/contexts lists yours; a context that is not used for its idle_ms ends";
    /// There is no such task, or it belongs to another owner.
    TaskNotFound = "task_not_found", 404, 125, false, "GET /v1/tasks lists yours; POST /v1/tasks starts one";
    /// There is no such job, or it belongs to another owner.
    JobNotFound = "job_not_found", 404, 125, false, "GET /v1/jobs lists yours; finished jobs are removed after their `retention_ms`";
    /// The job kept no file with this name.
    JobFileNotFound = "job_file_not_found", 404, 125, false, "GET /v1/jobs/{id}/files lists its files once it has finished";
    /// There is no such schedule, or it belongs to another owner.
    ScheduleNotFound = "schedule_not_found", 404, 125, false, "GET /v1/jobs/schedules lists yours; PUT /v1/jobs/schedules/{name} stores one";
    /// There is no such sandbox, it was deleted, or it belongs to another owner.
    SandboxNotFound = "sandbox_not_found", 404, 125, false, "GET /v1/sandboxes lists yours; POST /v1/sandboxes creates one";
    /// The server has no such template.
    TemplateNotFound = "template_not_found", 404, 125, false, "GET /v1/templates lists those that you can use";
    /// There is no such workspace, or it belongs to another owner.
    WorkspaceNotFound = "workspace_not_found", 404, 125, false, "GET /v1/workspaces lists yours; POST /v1/workspaces creates one";
    /// The workspace has nothing at this path.
    FileNotFound = "file_not_found", 404, 125, false, "GET /v1/files/list shows what is there; `parents: true` creates missing directories";
    /// The path does not support this method.
    MethodNotAllowed = "method_not_allowed", 405, 125, false, "see /openapi.json for the methods";
    /// The run has finished, and the request needs one that is running.
    RunEnded = "run_ended", 409, 125, false, "GET /v1/runs/{id} has its outcome";
    /// The task has finished, and the request needs one that is running.
    TaskEnded = "task_ended", 409, 125, false, "GET /v1/tasks/{id} shows how it ended; POST /v1/tasks starts another";
    /// The idempotency key belongs to a job with another spec; `details.job_id` is that job.
    JobConflict = "job_conflict", 409, 125, false, "use another key, or the same spec; GET /v1/jobs/{id} shows the existing job";
    /// The job is not in a state that this needs: it has not finished, it succeeded, or it has no
    /// webhook to redeliver.
    JobState = "job_state", 409, 125, false, "GET /v1/jobs/{id} shows its state; a job that failed, is dead or was cancelled can be retried, and the webhook of a job that has ended can be redelivered";
    /// The run is still queued, and the request needs one that has started.
    RunQueued = "run_queued", 409, 125, true, "wait for its turn: GET /v1/runs/{id} shows its status; POST /v1/runs/{id}/kill cancels it";
    /// The run is still running, and the request needs one that has finished.
    RunRunning = "run_running", 409, 125, false, "wait for its end, or POST /v1/runs/{id}/kill first";
    /// The run or the sandbox is not in the state that this needs: paused already, not paused, or
    /// past its limit.
    WrongState = "wrong_state", 409, 125, false, "GET /v1/runs/{id} or /v1/sandboxes/{id} shows its state";
    /// The context has no earlier state to return to.
    NothingToUndo = "nothing_to_undo", 409, 125, false, "only the last run can be undone, and only if a checkpoint could be made; GET the context for the reason";
    /// The context cannot be branched, because a branch would differ from it; the message says why.
    NoBranch = "no_branch", 409, 125, false, "Python contexts can be branched while they have no threads, child processes, open files or sockets, and no more than 64 MiB of files";
    /// The run's stdin was not kept open, or has been closed.
    StdinClosed = "stdin_closed", 409, 125, false, "start the run with `stdin_open: true` to write to it later";
    /// The run has no network, and the request needs one.
    NoNetwork = "no_network", 409, 125, false, "start the run with `network: true`; or use a Unix socket or a file in /workspace, or wait for its output";
    /// The request was carried out, but there is no memory for its answer: unread answers of the
    /// same owner occupy all of it. `details.run_id` is the run, if there was one.
    AnswerUnavailable = "answer_unavailable", 409, 125, false, "do not send it again: it was carried out; read your open answers to the end, then GET /v1/runs/{run_id}, and its output in pieces by GET /v1/runs/{run_id}/output";
    /// The run has no terminal.
    NoTerminal = "no_terminal", 409, 125, false, "start the run with `terminal`, such as {\"columns\": 80, \"rows\": 24}";
    /// The sandbox is in use. For a snapshot or a fork `details.runs` names its runs,
    /// `details.contexts` is how many live contexts and sessions it has besides, and
    /// `details.files` how many reads and writes of its files are being made.
    SandboxBusy = "sandbox_busy", 409, 125, true, "try again when the runs in it have ended, and its contexts and sessions are closed";
    /// The sandbox is paused: nothing can be started in it, and its files can only be read.
    SandboxPaused = "sandbox_paused", 409, 125, false, "POST /v1/sandboxes/{id}/resume first";
    /// You have a template of this name.
    TemplateExists = "template_exists", 409, 125, false, "GET /v1/templates lists yours; delete that one, or give another name";
    /// The sandbox is stacked from as many layers as there can be, so that no snapshot or fork of
    /// it can be made.
    TooManyLayers = "too_many_layers", 409, 125, false, "make a new sandbox from its template, and copy what has changed into it";
    /// Runs, contexts or sessions use the workspace.
    WorkspaceInUse = "workspace_in_use", 409, 125, true, "end them first: GET /v1/runs?status=running and GET /v1/contexts show yours";
    /// The path already exists.
    FileExists = "file_exists", 409, 125, false, "delete it first, or allow the request to replace it";
    /// The directory is not empty.
    DirectoryNotEmpty = "directory_not_empty", 409, 125, false, "`recursive=true` deletes all that is in it";
    /// The path, or a directory in it, has another file type than this needs.
    WrongFileType = "wrong_file_type", 409, 125, false, "files are read and written, directories listed; FIFOs, sockets and devices are neither";
    /// Other processes are changing what is at the path.
    FileBusy = "file_busy", 409, 125, true, "try again when the runs that change it have ended";
    /// The context or session ended with an earlier server; `details` has the time and the
    /// workspace that remains.
    ContextEnded = "context_ended", 410, 125, false, "open another; GET /v1/runs has the records of its runs";
    /// The sandbox ended at one of its limits, and its files were deleted: `details.limit` is
    /// `wall` or `idle`, `details.limit_ms` its length, and `details.ended_at_ms` the time.
    SandboxEnded = "sandbox_ended", 410, 125, false, "create another, with a longer `wall_ms` or `idle_ms`; a snapshot keeps files beyond the end";
    /// The file is larger than the server writes or reads at once, or a sandbox has more files.
    FileTooLarge = "file_too_large", 413, 125, false, "write at most 4 GiB at a time; read large files by GET /v1/files in parts, and many files as archives of parts of them";
    /// The range begins after the end of the file.
    RangeOutside = "range_outside", 416, 125, false, "GET /v1/files/stat shows its size";
    /// The path needs a WebSocket, and the request is not a WebSocket upgrade.
    UpgradeRequired = "upgrade_required", 426, 125, false, "connect with a WebSocket client (RFC 6455), such as `new WebSocket(…)`";
    /// The command is not found.
    CommandNotFound = "command_not_found", 422, 127, false, "name a program of the host, or give its path";
    /// The command cannot be executed.
    CommandNotExecutable = "command_not_executable", 422, 126, false, "give an executable file";
    /// This host cannot provide what was requested.
    Refused = "refused", 422, 125, false, "GET /v1/host shows what this host can enforce";
    /// A quota of the token is used up.
    Quota = "quota", 429, 125, true, "try again when one of yours has ended, or end one; `details.quota` names what is counted";
    /// The budget of the agent's connection is used up.
    BudgetOver = "budget_over", 429, 125, false, "running runs continue under their limits and can be read; open another connection to start more";
    /// Nothing listens on the port of the sandbox, or what listens there gave no answer.
    PortUnavailable = "port_unavailable", 502, 125, true, "start a server in the sandbox on 127.0.0.1, ::1 or 0.0.0.0, and wait for it: GET /v1/sandboxes/{id}/ports?port=N&wait_ms=10000";
    /// All slots for runs are taken.
    Capacity = "capacity", 503, 125, true, "try again when a run has ended";
    /// An interpreter or a shell did not start in time; nothing of it is left alive.
    SpawnTimeout = "spawn_timeout", 503, 125, true, "try again; if interpreters are slow to start, raise INTERPRETER_SPAWN_TIMEOUT_MS of the server";
    /// The operating system refused something that Sandtimer needs.
    System = "system", 503, 125, true, "GET /v1/host shows what is missing; try again";
    /// A record cannot be written or read.
    Storage = "storage", 503, 125, true, "free disk space in the server's state directory";
    /// The job store, on another machine or in another process, does not answer.
    StoreUnreachable = "store_unreachable", 503, 125, true, "try again when the job store is available; a job submitted with an idempotency_key is accepted once";
    /// The directory or the stream of the job store was removed or replaced after the server had
    /// opened it.
    StoreGone = "store_gone", 503, 125, false, "ask the operator to put the directory of the store back, or to restart the server, which then works without those jobs";
    /// The server is shutting down.
    ShuttingDown = "shutting_down", 503, 125, true, "try again when it has restarted";
    /// An internal error of Sandtimer.
    Internal = "internal", 500, 125, false, "please report it";
}

impl Code {
    /// Its name on wires.
    pub fn name(self) -> &'static str {
        self.facts().code
    }

    /// The HTTP status it is sent with.
    pub fn status(self) -> u16 {
        self.facts().status
    }

    /// The exit code of the command line.
    pub fn exit_code(self) -> u8 {
        self.facts().exit
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        self.facts().retryable
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        self.facts().hint
    }
}

/// The reference of all errors, as Markdown.
pub fn reference() -> String {
    let mut text = "# Errors\n\nGenerated by `cargo xtask generate`; change `crates/sandtimer-server/src/error.rs` instead.\n\n\
        Every error is an object of `code`, `message`, `hint`, `retryable` and `details`. A limit that fires, an exit code or a signal is not an error: it is in the Outcome.\n\n\
        | code | HTTP status | exit code | retryable | meaning | hint |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for code in Code::ALL {
        let CodeFacts { code, status, exit, retryable, hint, doc } = code.facts();
        let retryable = if retryable { "yes" } else { "no" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{code}` | {status} | {exit} | {retryable} | {} | {hint} |", doc.trim());
    }
    text
}

/// An error on its way to a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRejection {
    pub code: Code,
    pub message: String,
    pub details: Map<String, Value>,
}

impl ApiRejection {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        ApiRejection { code, message: message.into(), details: Map::new() }
    }

    /// Adds a fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// What is answered of a request that was carried out and whose answer cannot be made: where
    /// the same request might succeed later it is not to be sent again, which would carry it out
    /// twice.
    #[must_use]
    pub fn after_execution(mut self, run_id: Option<&str>) -> Self {
        if self.code.is_retryable() {
            self.details.insert("reason".to_owned(), self.code.name().into());
            self.code = Code::AnswerUnavailable;
            self.message = format!("the request was carried out, but cannot be answered: {}", self.message);
        }
        match run_id {
            Some(run_id) => self.with("run_id", run_id),
            None => self,
        }
    }

    /// As it is sent.
    pub fn json(&self) -> Value {
        json!({
            "code": self.code.name(),
            "message": self.message,
            "hint": self.code.hint(),
            "retryable": self.code.is_retryable(),
            "details": self.details,
        })
    }
}

impl IntoResponse for ApiRejection {
    fn into_response(self) -> Response {
        let mut response = crate::body::json(&self.json());
        // Every status of the list is one.
        *response.status_mut() =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.code, Code::Capacity | Code::SpawnTimeout | Code::Quota) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<&sandtimer::Error> for Code {
    fn from(error: &sandtimer::Error) -> Self {
        use sandtimer::Error;
        match error {
            Error::NoCommand
            | Error::Workspaces(_)
            | Error::BranchCount(_)
            | Error::NothingToFollow
            | Error::NoticeSignal(_)
            | Error::NoticeTime => Code::BadField,
            Error::NoBranch(_) => Code::NoBranch,
            Error::Files(FilesError::Missing { .. }) => Code::CommandNotFound,
            Error::Files(FilesError::NotExecutable { .. }) => Code::CommandNotExecutable,
            Error::Files(_) | Error::Script(_) | Error::Directory { .. } => Code::BadField,
            Error::Limit(_) => Code::BadLimit,
            Error::Scope(ScopeError::Unknown(_)) => Code::RunEnded,
            Error::Scope(_) => Code::WrongState,
            Error::Refused(_) => Code::Refused,
            Error::Full(_) => Code::Capacity,
            Error::Nul { .. } => Code::NulByte,
            Error::CallTooLong(_) | Error::ArgumentTooLong { .. } => Code::TooLong,
            Error::SpawnLimit(_) => Code::SpawnTimeout,
            Error::System { .. } | Error::SpoolDirectory { .. } | Error::Interpreter(_) => Code::System,
            Error::Closed => Code::ShuttingDown,
            Error::Sandbox(error) => of_sandbox(error),
            _ => Code::Internal,
        }
    }
}

fn of_sandbox(error: &SandboxError) -> Code {
    match error {
        SandboxError::NotFound(_) => Code::SandboxNotFound,
        SandboxError::Ended(_) => Code::SandboxEnded,
        SandboxError::Paused(_) => Code::SandboxPaused,
        SandboxError::NotPaused(_) => Code::WrongState,
        SandboxError::NoTemplate(_) => Code::TemplateNotFound,
        SandboxError::TemplateExists(_) => Code::TemplateExists,
        SandboxError::TooDeep { .. } => Code::TooManyLayers,
        SandboxError::Template { .. }
        | SandboxError::TemplateName { .. }
        | SandboxError::ForkCount { .. }
        | SandboxError::NoSuchLimit(_)
        | SandboxError::Conflict { .. } => Code::BadField,
        SandboxError::Overlay { .. }
        | SandboxError::OnOverlay { .. }
        | SandboxError::OtherPrivileges { .. }
        | SandboxError::NoNamespaces(_)
        | SandboxError::NoNetwork(_)
        | SandboxError::NoWholeLimits(_) => Code::Refused,
        SandboxError::Locked | SandboxError::Busy(_) | SandboxError::HasRuns { .. } => Code::SandboxBusy,
        SandboxError::TooManyFiles { .. } => Code::FileTooLarge,
        SandboxError::PathTooLong { .. } => Code::TooLong,
        SandboxError::Storage { .. } => Code::Storage,
        _ => Code::Internal,
    }
}

impl From<BudgetError> for ApiRejection {
    fn from(error: BudgetError) -> Self {
        match error {
            BudgetError::Engine(error) => error.into(),
            error => ApiRejection::new(Code::BadLimit, error.to_string()),
        }
    }
}

impl From<sandtimer::Error> for ApiRejection {
    fn from(error: sandtimer::Error) -> Self {
        if let sandtimer::Error::Sandbox(error) = &error {
            let rejection = ApiRejection::new(of_sandbox(error), sandbox_message(error));
            return match error {
                SandboxError::Ended(end) => rejection
                    .with("limit", json!(end.limit))
                    .with("limit_ms", end.limit_ms)
                    .with("ended_at_ms", end.at_ms),
                SandboxError::Template { .. } => rejection.with("key", "template"),
                SandboxError::Conflict { field, .. } | SandboxError::NoSuchLimit(field) => {
                    rejection.with("key", *field)
                }
                SandboxError::TemplateName { name, .. } | SandboxError::TemplateExists(name) => {
                    rejection.with("key", "name").with("value", name.as_str())
                }
                SandboxError::ForkCount { count, .. } => rejection.with("key", "count").with("value", *count),
                SandboxError::HasRuns { runs, contexts, files, .. } => {
                    rejection.with("runs", runs.clone()).with("contexts", *contexts).with("files", *files)
                }
                SandboxError::PathTooLong { path, .. } => rejection.with("path", path.as_str()),
                _ => rejection,
            };
        }
        if let sandtimer::Error::SpawnLimit(limit) = error {
            return spawn_timeout(limit);
        }
        if let sandtimer::Error::Limit(error) = error {
            return error.into();
        }
        if let sandtimer::Error::Script(error) = &error {
            let message = format!("code is not valid TypeScript: {error}");
            return ApiRejection::new(Code::BadField, message)
                .with("key", "code")
                .with("line", error.line)
                .with("column", error.column);
        }
        if let sandtimer::Error::Directory { directory, .. } = &error {
            let rejection = ApiRejection::new(Code::BadField, format!("cwd: {error}"));
            return rejection.with("key", "cwd").with("value", directory.as_str());
        }
        if let sandtimer::Error::Files(FilesError::StartingDirectory { path, .. }) = &error {
            // Whether it is on the host is the host's.
            let path = path.display().to_string();
            let message = format!(
                "cwd: `{path}` is not a directory of the run; give one that exists below /workspace, or a directory that every run sees"
            );
            return ApiRejection::new(Code::BadField, message).with("key", "cwd").with("value", path);
        }
        let message = match &error {
            // Where it was looked for is the host's.
            sandtimer::Error::Files(FilesError::Missing { command, .. }) => {
                format!("command `{}` is not found", command.display())
            }
            other => other.to_string(),
        };
        ApiRejection::new(Code::from(&error), message)
    }
}

/// The message without the paths that the operator gave.
fn sandbox_message(error: &SandboxError) -> String {
    match error {
        SandboxError::Template { problem, .. } => {
            format!("template: the directory of this template {problem}; the operator has to correct --template")
        }
        SandboxError::OnOverlay { .. } => "the server's state directory lies on an overlay, as the root of most containers does, and \
             the kernel takes no layer of a sandbox from there; the operator has to give a --state-dir on another file system"
            .to_owned(),
        other => other.to_string(),
    }
}

impl From<sandtimer::limits::LimitError> for ApiRejection {
    fn from(error: sandtimer::limits::LimitError) -> Self {
        ApiRejection::new(Code::BadLimit, error.to_string())
            .with("key", error.key())
            .with("value", error.value())
    }
}

/// An interpreter that did not start in time.
pub(crate) fn spawn_timeout(limit: std::time::Duration) -> ApiRejection {
    let message = format!(
        "the interpreter was not ready within its spawn limit of {limit:?} (INTERPRETER_SPAWN_TIMEOUT_MS)"
    );
    let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    ApiRejection::new(Code::SpawnTimeout, message).with("limit_ms", milliseconds)
}

/// A record that cannot be written.
pub(crate) fn storage(doing: &str, error: &std::io::Error) -> ApiRejection {
    ApiRejection::new(Code::Storage, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn names_are_unique_and_statuses_are_errors() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| (400..600).contains(&code.status())));
    }

    #[test]
    fn sandbox_errors_have_fitting_codes_and_details() {
        let in_use = SandboxError::HasRuns { id: "x".to_owned(), runs: Vec::new(), contexts: 2, files: 1 };
        let long = SandboxError::PathTooLong { path: "/x".to_owned(), most: 4_000 };
        let busy = json!({"runs": [], "contexts": 2, "files": 1});
        for (error, code, details) in [
            (in_use, Code::SandboxBusy, busy),
            (long, Code::TooLong, json!({"path": "/x"})),
            (SandboxError::TooManyFiles { most: 10 }, Code::FileTooLarge, json!({})),
        ] {
            let is_retryable = error.is_retryable();
            let rejection = ApiRejection::from(sandtimer::Error::from(error));
            assert_eq!(
                (rejection.code, rejection.code.is_retryable()),
                (code, is_retryable),
                "{rejection:?}"
            );
            assert_eq!(json!(rejection.details), details, "{rejection:?}");
        }
    }

    #[test]
    fn the_exit_codes_are_the_engines() {
        let command = || OsString::from("x");
        let errors = [
            sandtimer::Error::NoCommand,
            sandtimer::Error::Full(3),
            FilesError::Missing { command: command(), detail: String::new() }.into(),
            FilesError::NotExecutable { command: command(), detail: String::new() }.into(),
        ];
        for error in errors {
            let code = Code::from(&error);
            assert_eq!(
                (code.exit_code(), code.is_retryable()),
                (error.exit_code(), error.is_retryable()),
                "{error}"
            );
        }
    }
}
