//! Sandboxes in the description of the API.

use serde_json::{Value, json};

use super::SuccessAnswer::{Json, Nothing};
use super::schema::{answer, body, list, number, reference, string, with, enumeration};
use super::{START_CODES, Operation};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    const QUERY_CODES: &[Code] = &[Code::BadField, Code::UnknownField];
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
            Code::TemplateNotFound,
            Code::SandboxBusy,
            Code::Refused,
            Code::Quota,
            Code::Capacity,
            Code::System,
            Code::Storage,
        ]),
        Operation::new("get", "/v1/sandboxes", "Your sandboxes, the oldest first", Json("SandboxList"))
            .errors(QUERY_CODES),
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
            "/v1/sandboxes/{id}/exec",
            "Run a command or code in a sandbox: as POST /v1/runs with its id as `sandbox`",
            Json("Run"),
        )
        .body("RunRequest")
        .errors(START_CODES),
    ]
}

pub(super) fn schemas() -> Value {
    json!({
        "SandboxRequest": body(json!({
            "template": string("What it is made from: `host`, the host's programs, unless given; or another of GET /v1/templates, by its name or id."),
        })),
        "Sandbox": answer(json!({
            "sandbox_id": string(""),
            "template": string("What it was made from."),
            "layers": with(list(string("")), "The ids of the layers under what it has written since its last snapshot, the lowest first."),
            "created_at_ms": number("Milliseconds since 1970."),
            "runs": number("Runs that are in it now. Files outlive the server; runs do not."),
            "durability": with(enumeration(&["certain", "uncertain"]), "`uncertain` once the machine was started again after its files were used: what had not reached the disk by then is lost."),
        })),
        "SandboxList": answer(json!({"sandboxes": list(reference("Sandbox"))})),
    })
}
