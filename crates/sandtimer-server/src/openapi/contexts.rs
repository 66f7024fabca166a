//! Contexts and sessions in the description of the API.

use sandtimer::engine::BRANCHES;
use serde_json::{Value, json};

use super::operation::Operation;
use super::operation::SuccessAnswer::{Json, Nothing};
use super::schema::{
    answer, body, boolean, encoding_error_mode, enumeration, limit_fields, list, nullable, number,
    of_sandbox, or_with, reference, string, with,
};
use crate::contexts::{PER_CONTEXT, PER_RUN};
use crate::error::Code;
use crate::language::LANGUAGES;

const OPEN_ANSWERS: &[(u16, &str)] = &[(201, "It is open.")];
const OPEN_CODES: &[Code] = &[
    Code::BadLimit,
    Code::NulByte,
    Code::WorkspaceNotFound,
    Code::SandboxNotFound,
    Code::SandboxEnded,
    Code::SandboxPaused,
    Code::SandboxBusy,
    Code::Refused,
    Code::Quota,
    Code::Capacity,
    Code::SpawnTimeout,
    Code::System,
    Code::Storage,
    Code::ShuttingDown,
];
const EXECUTE_CODES: &[Code] = &[
    Code::BadLimit,
    Code::NulByte,
    Code::TooLong,
    Code::AnswerUnavailable,
    Code::SandboxPaused,
    Code::Quota,
    Code::Capacity,
    Code::SpawnTimeout,
    Code::System,
    Code::Storage,
    Code::ShuttingDown,
];

const UNDO_CODES: &[Code] = &[
    Code::NothingToUndo,
    Code::SandboxPaused,
    Code::Quota,
    Code::Capacity,
    Code::SpawnTimeout,
    Code::System,
    Code::ShuttingDown,
];

const BRANCH_CODES: &[Code] = &[
    Code::BadLimit,
    Code::NoBranch,
    Code::WorkspaceNotFound,
    Code::Refused,
    Code::Quota,
    Code::Capacity,
    Code::SpawnTimeout,
    Code::System,
    Code::Storage,
    Code::ShuttingDown,
];

pub(super) fn operations() -> Vec<Operation> {
    let post = |path, summary, shape| Operation::new("post", path, summary, Json(shape));
    let get = |path, summary, shape| Operation::new("get", path, summary, Json(shape));
    let delete = |path, summary| Operation::new("delete", path, summary, Nothing);
    let none: &[Code] = &[Code::BadField, Code::UnknownField];
    vec![
        post("/v1/contexts", "Open a live interpreter", "Context")
            .answers(OPEN_ANSWERS)
            .body("ContextRequest")
            .errors(OPEN_CODES),
        get("/v1/contexts", "Your contexts, the oldest first", "ContextList").errors(none),
        get("/v1/contexts/{id}", "One context", "Context"),
        delete("/v1/contexts/{id}", "End a context; what it executes is cancelled"),
        post(
            "/v1/contexts/{id}/execute",
            "Execute code where earlier code has left its variables; the run is found under /v1/runs",
            "Executed",
        )
        .body("CellRequest")
        .errors(EXECUTE_CODES),
        post(
            "/v1/contexts/{id}/branch",
            "Make contexts that begin with all that this one is, each in a sandbox of its own",
            "ContextList",
        )
        .body("BranchRequest")
        .errors(BRANCH_CODES),
        post("/v1/contexts/{id}/undo", "Go back to the state before the last run", "Context")
            .body("Empty")
            .errors(UNDO_CODES),
        post("/v1/contexts/{id}/interrupt", "Interrupt what is executed, as Ctrl-C does", "Interrupted")
            .body("Empty"),
        post("/v1/sessions", "Open a live shell", "Context")
            .answers(OPEN_ANSWERS)
            .body("SessionRequest")
            .errors(OPEN_CODES),
        get("/v1/sessions", "Your sessions, the oldest first", "ContextList").errors(none),
        get("/v1/sessions/{id}", "One session", "Context"),
        delete("/v1/sessions/{id}", "End a session; its command is cancelled"),
        post(
            "/v1/sessions/{id}/execute",
            "Execute a command where earlier ones have left directory, variables and functions",
            "Executed",
        )
        .body("CommandRequest")
        .errors(EXECUTE_CODES),
        post("/v1/sessions/{id}/undo", "Go back to the state before the last command", "Context")
            .body("Empty")
            .errors(UNDO_CODES),
        post("/v1/sessions/{id}/interrupt", "Interrupt the command, as Ctrl-C does", "Interrupted")
            .body("Empty"),
    ]
}

pub(super) fn schemas() -> Value {
    json!({
        "ContextRequest": context(true),
        "SessionRequest": context(false),
        "BranchRequest": branch(),
        "CellRequest": cell("code"),
        "CommandRequest": cell("command"),
        "Context": or_with(answer(json!({
            "context_id": string(""),
            "language": enumeration(&LANGUAGES),
            "workspace": nullable(string("The id of its workspace; null for one of its own.")),
            "network": boolean("It has the host's network."),
            "status": enumeration(&["idle", "busy"]),
            "run_id": nullable(string("What is executed.")),
            "waiting": number("How many wait for their turn."),
            "executions": number("How many have ended."),
            "checkpoint": boolean("A run that is ended by force takes nothing along but itself."),
            "no_checkpoint_because": nullable(string("Why it would take all of the state along.")),
            "can_undo": boolean(""),
            "created_at_ms": number("Milliseconds since 1970."),
            "idle_ms": nullable(number("How long it may be unused before it ends; null is without end.")),
            "idle_left_ms": nullable(number("")),
            "warnings": list(string("Differences from the server's configuration, such as a pre-warm script that did not run.")),
        })), of_sandbox()),
        "ContextList": answer(json!({"contexts": list(reference("Context"))})),
        "Executed": answer(json!({
            "run_id": string("Also while it waits for its turn."),
            "status": enumeration(&["queued", "running", "ended"]),
            "context_id": string(""),
            "position": nullable(number("How many wait, while it is queued.")),
            "notes": list(string("What happened to the context since the last run, and why this one left nothing of it to go back to.")),
            "outcome": nullable(reference("Outcome")),
        })),
        "Interrupted": answer(json!({"context_id": string(""), "interrupted": boolean("Something was executed.")})),
    })
}

fn context(chooses: bool) -> Value {
    let mut fields = json!({
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables of its environment."},
        "cwd": string("Where it begins; /workspace unless given."),
        "workspace": string("The id of the workspace that it works in, as /workspace; one of its own unless given, which goes with it."),
        "sandbox": string("The id of the sandbox that it is in: its files are the sandbox's. Not together with `workspace`. Contexts in Python are in sandboxes of the template `host` only."),
        "idle_ms": reference("Limit"),
        "network": boolean("Gives it the host's network, including loopback; where there are tokens, only to those whose line has the word `network`."),
    });
    if chooses {
        fields["language"] = with(enumeration(&LANGUAGES), "python unless given.");
    }
    limit_fields(&mut fields, &[&PER_CONTEXT[..], &PER_RUN].concat());
    body(fields)
}

fn branch() -> Value {
    let mut fields = json!({
        "count": {"type": "integer", "minimum": 1, "maximum": BRANCHES, "description": "How many; 1 unless given."},
        "idle_ms": reference("Limit"),
    });
    limit_fields(&mut fields, &[&PER_CONTEXT[..], &PER_RUN].concat());
    body(fields)
}

fn cell(source: &str) -> Value {
    let mut fields = json!({
        "code": string("What to execute."),
        "stdin": string("What it reads from its stdin; without it there is nothing to read."),
        "stdin_encoding": with(reference("Encoding"), "What `stdin` is in; `utf-8` unless given."),
        "stdin_open": boolean("Keeps stdin open for POST /v1/runs/{id}/stdin while it runs; not for JavaScript."),
        "warn_ms": number("How long before the wall-clock limit, and before the cpu limit, a `warning` event is sent."),
        "warn_signal": with(json!({"oneOf": [string("Such as `SIGUSR1`."), number("1 to 31.")]}), "A signal that is then sent to those of the context's processes that handle it."),
        "on_output_limit": with(enumeration(&["drop", "end"]), "What happens past the output limit; `drop` unless given."),
        "errors": encoding_error_mode(),
        "wait_ms": number("How long the answer waits for the end; without it until the end, however long; 0 is not at all."),
        "turn_ms": number("How long the answer waits for its turn, where that is longer than `wait_ms`."),
        "attached": boolean("The client must keep waiting: the run is cancelled once no client has waited for it (GET /v1/runs/{id} with `wait_ms`, POST /v1/runs/{id}/wait) for 10 s. Not together with `detach`."),
        "detach": boolean("It continues if this client disconnects while it waits. Without this it is cancelled."),
    });
    if source == "command" {
        fields["command"] = string("The same as `code`.");
    }
    limit_fields(&mut fields, &PER_RUN);
    body(fields)
}
