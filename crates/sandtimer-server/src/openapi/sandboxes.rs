//! Sandboxes in the description of the API.

use serde_json::{Value, json};

use super::operation::SuccessAnswer::{Json, Nothing};
use super::operation::{Operation, START_CODES};
use super::schema::{
    answer, body, boolean, enumeration, limit_fields, list, nullable, number, reference, string, with,
};
use crate::error::Code;
use crate::sandboxes::WHOLE_LIMITS;

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
            Code::BadLimit,
            Code::TemplateNotFound,
            Code::NetworkRefused,
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
        .errors(START_CODES),
        Operation::new(
            "get",
            "/v1/sandboxes/{id}/ports",
            "The ports that something in a sandbox listens on; with `port` whether that one is, waiting for it at most `wait_ms`",
            Json("SandboxPorts"),
        )
        .query("port", number("From 1 to 65535."), "The port that is asked for.")
        .query("wait_ms", number("Milliseconds."), "How long it is waited for; not at all unless given.")
        .errors(QUERY_CODES),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/expose",
            "Make a link to a port of a sandbox, which needs no token until it expires",
            Json("SandboxLink"),
        )
        .body("SandboxLinkRequest"),
    ]
}

/// The network of a sandbox.
fn network(meaning: &str) -> Value {
    let entries = list(string(
        "A host (`pypi.org`), its sub-domains (`*.example.com`), an address or a network (`10.1.0.0/16`), each with a port (`:5432`) or for 80 and 443.",
    ));
    with(json!({"oneOf": [enumeration(&["none", "host"]), entries]}), meaning)
}

pub(super) fn schemas() -> Value {
    let mut request = json!({
        "template": string("What it is made from: `host`, the host's programs, unless given; or another of GET /v1/templates, by its name or id."),
        "network": network("What all that runs in it can reach outside, by a proxy: nothing (`none`, unless given); the host's network (`host`); or these hosts."),
    });
    limit_fields(&mut request, &WHOLE_LIMITS.map(Into::into));
    request["idle_ms"] = with(
        reference("Limit"),
        "How long it may be unused; runs, live contexts and sessions are use, and so is work with its files.",
    );
    request["wall_ms"] = with(
        reference("Limit"),
        "How long it may exist, pauses not counted. At the limit its runs end, and it is deleted.",
    );
    request["memory_bytes"] = with(
        reference("Limit"),
        "Memory of all of its runs, contexts and sessions together, under a ceiling of the operator. Each has its own limit as well.",
    );
    request["processes"] = with(
        reference("Limit"),
        "Processes and threads of all of them together, at once, under a ceiling of the operator.",
    );
    json!({
        "SandboxRequest": body(request),
        "Sandbox": answer(json!({
            "sandbox_id": string(""),
            "template": string("What it was made from."),
            "layers": with(list(string("")), "The ids of the layers under what it has written since its last snapshot, the lowest first."),
            "network": network("What all that runs in it can reach outside."),
            "created_at_ms": number("Milliseconds since 1970."),
            "runs": number("Runs that are in it now. Files outlive the server; runs do not."),
            "durability": with(enumeration(&["certain", "uncertain"]), "`uncertain` once the machine was started again after its files were used: what had not reached the disk by then is lost."),
            "paused": boolean("Whether nothing runs in it, or can be started, until it is resumed."),
            "idle_ms": nullable(number("Its idle limit.")),
            "idle_left_ms": nullable(number("What is left of it; all of it while it is used.")),
            "wall_ms": nullable(number("Its wall-clock limit, with its extensions.")),
            "wall_left_ms": nullable(number("What is left of it.")),
            "memory_bytes": nullable(number("The limit of memory of all its runs together; null is without.")),
            "memory_used_bytes": nullable(number("What they use now, with what was read from files; null without a limit of the whole.")),
            "processes": nullable(number("The limit of processes and threads of all its runs together; null is without.")),
            "processes_used": nullable(number("How many they have now; null without a limit of the whole.")),
        })),
        "SandboxPorts": answer(json!({
            "ports": list(answer(json!({
                "port": number(""),
                "addresses": with(list(string("")), "The local addresses of its sockets."),
            }))),
            "listening": nullable(boolean("Whether something listens on the `port` of the request, if it has one.")),
        })),
        "SandboxLinkRequest": body(json!({
            "port": number("From 1 to 65535. Nothing has to listen on it yet."),
            "ttl_ms": number("How long the link is valid: an hour unless given, at most 30 days. A restart of the server ends it."),
        })),
        "SandboxLink": answer(json!({
            "port": number(""),
            "url": string("At PORT-ID.localhost, where pages have an origin of their own."),
            "path": string("The same below this server's own address: for programs."),
            "expires_at_ms": number("Milliseconds since 1970."),
        })),
        "SandboxList": answer(json!({"sandboxes": list(reference("Sandbox"))})),
    })
}
