//! The description of the API, generated for `/openapi.json` and `spec/openapi.json`.
//!
//! Limits, errors and enumerations come from the code that reads them. The shapes of answers are
//! written in `schema`; a test compares real answers with them.

mod contexts;
mod files;
mod jobs;
mod judge;
mod mcp;
mod operation;
mod sandboxes;
mod schedules;
mod schema;
mod tasks;
mod templates;

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::error::Code;
use crate::page;
use operation::{FOLLOW_ANSWERS, Operation, START_CODES, SuccessAnswer};

pub(crate) fn routes() -> Router {
    Router::new().route("/openapi.json", get(served))
}

/// Made once: it is the same for all, and clients without a token may ask for it as often as they
/// like.
static SERVED_DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    // Plain data with text keys always serialises.
    let mut text = serde_json::to_vec_pretty(&document()).unwrap_or_default();
    text.push(b'\n');
    text.into()
});

async fn served() -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], SERVED_DOCUMENT.clone()).into_response()
}

/// All of them.
fn operations() -> Vec<Operation> {
    let mut all = run_operations();
    all.extend(contexts::operations());
    all.extend(files::operations());
    all.extend(sandboxes::operations());
    all.extend(judge::operations());
    all.extend(templates::operations());
    all.extend(jobs::operations());
    all.extend(schedules::operations());
    all.extend(mcp::operations());
    all.extend(tasks::operations());
    all
}

fn run_operations() -> Vec<Operation> {
    use SuccessAnswer::{Content, Json, Nothing, Upgrade};
    let wait = || schema::number("Milliseconds.");
    let control = |path, summary, answer| Operation::new("post", path, summary, Json(answer));
    // Where an owner's answers that are not read leave no memory for another one.
    const LONG_ANSWER_CODES: &[Code] =
        &[Code::BadField, Code::UnknownField, Code::Quota, Code::Capacity, Code::Storage];
    const STATE_CODES: &[Code] = &[Code::RunEnded, Code::WrongState];
    vec![
        Operation::new("post", "/v1/runs", "Run a command or code, and wait for its end, or for `wait_ms`", Json("Run"))
            .body("RunRequest")
            .errors(START_CODES),
        Operation::new("get", "/v1/runs", "Your runs, the newest first; those that ended last, where only these are asked for", Json("RunList"))
            .query("status", schema::enumeration(&["queued", "running", "ended"]), "Only these.")
            .query("sandbox", schema::string("Its id."), "Only those in this sandbox.")
            .query("limit", schema::number("How many; at most 1000."), "How many; 100 unless given.")
            .query("cursor", schema::string("The `next` of a listing with the same `status`."), "Continues after that one.")
            .errors(&[Code::BadField, Code::UnknownField]),
        Operation::new("get", "/v1/runs/{id}", "One run, with its Outcome once it has ended", Json("Run"))
            .query("wait_ms", wait(), "How long to wait for its end; 0 unless given.")
            .query("errors", schema::encoding_error_mode(), "As of POST /v1/runs.")
            .errors(LONG_ANSWER_CODES),
        Operation::new("delete", "/v1/runs/{id}", "Remove the record of an ended run", Nothing)
            .errors(&[Code::RunRunning, Code::Storage]),
        Operation::new("get", "/v1/runs/{id}/output", "Output from a position, during the run and after", Json("Output"))
            .query("cursor", schema::number("A byte's position."), "Where to begin; 0 unless given.")
            .query("stream", schema::enumeration(&["stdout", "stderr"]), "Which stream; stdout unless given.")
            .query("max_bytes", schema::number("Bytes, 16 to 8388608."), "How much at most; 262144 unless given.")
            .query("errors", schema::encoding_error_mode(), "As of POST /v1/runs.")
            .errors(LONG_ANSWER_CODES),
        Operation::new(
            "get",
            "/v1/runs/{id}/processes",
            "What a run is doing: its processes, what each waits for, since when it is quiet",
            Json("Processes"),
        )
        .errors(&[Code::RunEnded, Code::RunQueued]),
        Operation::new(
            "get",
            "/v1/runs/{id}/events",
            "Server-sent events: started, stdout, stderr, warning, lagged, ended. A reader that reconnects with Last-Event-ID continues at its position; after `ended` the answer is 204",
            Content("text/event-stream"),
        )
        .answers(FOLLOW_ANSWERS)
        .query("errors", schema::encoding_error_mode(), "As of POST /v1/runs.")
        .errors(&[Code::BadField, Code::UnknownField]),
        Operation::new(
            "get",
            "/v1/runs/{id}/terminal",
            "A WebSocket to a run's terminal. Binary messages are bytes, typed and shown. Text messages are JSON objects of one \
             field: `resize` of `columns` and `rows` from the client; `lagged` of `dropped` and `next_cursor`, `heartbeat` where nothing is shown, `ended` of what the \
             event `ended` has, and `error`, an Error, from the server. Where no header can be set, the token is offered as the \
             protocol `sandtimer.token.` and its base64url, together with the protocol `sandtimer`",
            Upgrade("A WebSocket."),
        )
        .query("cursor", schema::number("A byte's position."), "What was had before: where to begin; 0 unless given.")
        .query("on_close", schema::enumeration(&["keep", "end"]), "What becomes of the run when this connection closes; `keep` unless given.")
        .errors(&[Code::BadField, Code::UnknownField, Code::NoTerminal, Code::UpgradeRequired]),
        control("/v1/runs/{id}/kill", "End a run, and wait for its end; a second time without its grace", "Run").body("Kill").errors(LONG_ANSWER_CODES),
        control("/v1/runs/{id}/extend", "Extend the wall-clock limit", "Extended").body("Extend").errors(STATE_CODES),
        control("/v1/runs/{id}/pause", "Stop the processes and the run's own clocks", "Paused").body("Empty").errors(STATE_CODES),
        control("/v1/runs/{id}/resume", "Resume a paused run", "Paused").body("Empty").errors(STATE_CODES),
        control("/v1/runs/{id}/signal", "Send a signal to every process of a run", "Signalled")
            .body("Signal")
            .errors(&[Code::RunEnded]),
        control("/v1/runs/{id}/stdin", "Write to the stdin of a run that was started with `stdin_open`", "Written")
            .body("Input")
            .errors(&[Code::RunEnded, Code::StdinClosed]),
        control("/v1/runs/{id}/wait", "Wait until a process of a run listens on a TCP port, or a line of its output matches, or it has ended", "Waited")
            .body("Wait")
            .errors(&[Code::NoNetwork, Code::Storage]),
        Operation::new("get", "/v1/host", "What this machine can enforce, what is missing, and the remedy", Json("Host")),
        Operation::new("get", "/v1/config", "Every setting with its value and where it came from", Json("Config")),
        Operation::new("get", "/healthz", "Whether the server is there; asks for no token", Json("Health"))
            .answers(&[(200, "It is there."), (503, "It is ending.")]),
        Operation::new("get", "/metrics", "Counters for Prometheus", Content("text/plain")),
        Operation::new("get", page::PATH, "A page for people that shows and steers runs; asks for no token", Content("text/html")),
        Operation::new("get", "/openapi.json", "This document; asks for no token", Json("Document")),
    ]
}

/// The schemas of all bodies and answers.
fn schemas() -> Value {
    let mut schemas = Map::new();
    for part in [
        schema::requests(),
        schema::runs(),
        contexts::schemas(),
        files::schemas(),
        sandboxes::schemas(),
        judge::schemas(),
        templates::schemas(),
        jobs::schemas(),
        schedules::schemas(),
        tasks::schemas(),
        schema::outcome(),
        schema::limits(),
        schema::server(),
    ] {
        if let Value::Object(part) = part {
            schemas.extend(part);
        }
    }
    Value::Object(schemas)
}

/// The whole document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path.to_owned()).or_insert_with(|| json!({}));
        path[operation.method] = operation.described();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sandtimer",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs untrusted code under hard limits, kills everything that it started, and reports which limit fired and why. Limits: absent is inherited; 0, null or \"unlimited\" is explicitly unlimited; otherwise a positive value.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7880"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, inner) in object {
                    match inner.as_str().filter(|_| key == "$ref") {
                        Some(target) => drop(found.insert(target.to_owned())),
                        None => references(inner, found),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_has_its_schema_and_every_schema_a_reference() {
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let known: BTreeSet<String> =
            schemas.keys().map(|name| format!("#/components/schemas/{name}")).collect();
        assert_eq!(found, known);
    }

    #[tokio::test]
    async fn document_is_made_once() {
        use http_body_util::BodyExt;
        let mut answers = Vec::new();
        for _ in 0..2 {
            answers.push(served().await.into_body().collect().await.expect("a body").to_bytes());
        }
        assert_eq!(serde_json::from_slice::<Value>(&answers[0]).expect("JSON"), document());
        assert_eq!(answers[0].as_ptr(), answers[1].as_ptr());
    }

    #[test]
    fn operations_have_ids_of_their_own() {
        let ids: BTreeSet<String> = operations().iter().map(Operation::id).collect();
        assert_eq!(ids.len(), operations().len());
        assert!(
            ids.contains("post_runs") && ids.contains("get_runs_one") && ids.contains("post_runs_kill"),
            "{ids:?}"
        );
    }
}
