//! Sandboxes in the description of the API.

use sandtimer::model::LimitKind;
use serde_json::{Value, json};

use super::Answer::{Json, Nothing};
use super::schema::{
    answer, body, limit_fields, list, nullable, number, reference, text, truth, with, words,
};
use super::{OF_STARTS, Operation};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    const OF_QUERIES: &[Code] = &[Code::BadField, Code::UnknownField];
    vec![
        Operation::new(
            "post",
            "/v1/sandboxes",
            "Make a file system of its own, in which many runs can work, and which outlives them and the server",
            Json("Sandbox"),
        )
        .answers(&[(201, "It is made.")])
        .body("SandboxRequest")
        .errors(&[
            Code::BadLimit,
            Code::TemplateNotFound,
            Code::SandboxBusy,
            Code::Refused,
            Code::Quota,
            Code::Capacity,
            Code::System,
            Code::Storage,
        ]),
        Operation::new("get", "/v1/sandboxes", "Your sandboxes, the oldest first", Json("SandboxList"))
            .errors(OF_QUERIES),
        Operation::new("get", "/v1/sandboxes/{id}", "One sandbox", Json("Sandbox")),
        Operation::new(
            "delete",
            "/v1/sandboxes/{id}",
            "End all runs in a sandbox, and delete it with all of its files",
            Nothing,
        )
        .errors(&[Code::SandboxBusy, Code::Storage]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/pause",
            "Stop all that runs in a sandbox, and the clocks of its limits; until it is resumed, nothing can be started in it, and its files \
             can only be read",
            Json("Sandbox"),
        )
        .body("Empty")
        .errors(&[Code::SandboxPaused, Code::WrongState, Code::Storage]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/resume",
            "Resume a paused sandbox: its limits end later by the length of the pause",
            Json("Sandbox"),
        )
        .body("Empty")
        .errors(&[Code::WrongState, Code::Storage]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/extend",
            "Extend the wall-clock limit of a sandbox, and begin its idle limit again",
            Json("Sandbox"),
        )
        .body("Extend")
        .errors(&[Code::WrongState, Code::Storage]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/exec",
            "Run a command or code in a sandbox: as POST /v1/runs with its id as `sandbox`",
            Json("Run"),
        )
        .body("RunRequest")
        .errors(OF_STARTS),
    ]
}

pub(super) fn schemas() -> Value {
    let mut request = json!({
        "template": text("What it is made from: `host`, the host's programs, unless given; or another of GET /v1/templates, by its name or id."),
    });
    limit_fields(&mut request, &[LimitKind::Idle.into(), LimitKind::Wall.into()]);
    request["idle_ms"] = with(
        reference("Limit"),
        "How long it may be unused; runs, live contexts and sessions are use, and so is work with its files.",
    );
    request["wall_ms"] = with(
        reference("Limit"),
        "How long it may exist, pauses not counted. At the limit its runs end, and it is deleted.",
    );
    json!({
        "SandboxRequest": body(request),
        "Sandbox": answer(json!({
            "sandbox_id": text(""),
            "template": text("What it was made from."),
            "layers": with(list(text("")), "The ids of the layers under what it has written since its last snapshot, the lowest first."),
            "created_at_ms": number("Milliseconds since 1970."),
            "runs": number("Runs that are in it now. Files outlive the server; runs do not."),
            "durability": with(words(&["certain", "uncertain"]), "`uncertain` once the machine was started again after its files were used: what had not reached the disk by then is lost."),
            "paused": truth("Whether nothing runs in it, or can be started, until it is resumed."),
            "idle_ms": nullable(number("Its idle limit.")),
            "idle_left_ms": nullable(number("What is left of it; all of it while it is used.")),
            "wall_ms": nullable(number("Its wall-clock limit, with its extensions.")),
            "wall_left_ms": nullable(number("What is left of it.")),
        })),
        "SandboxList": answer(json!({"sandboxes": list(reference("Sandbox"))})),
    })
}
