//! Templates of sandboxes in the description of the API.

use serde_json::{Value, json};

use super::Answer::{Json, Nothing};
use super::Operation;
use super::schema::{answer, body, list, nullable, number, reference, text, with, words};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    const OF_STACKING: &[Code] =
        &[Code::SandboxBusy, Code::TooManyLayers, Code::Quota, Code::Capacity, Code::Storage];
    vec![
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/snapshot",
            "Make a template of the files of a sandbox in which nothing runs; takes as long for many files as for few",
            Json("Template"),
        )
        .answers(&[(201, "It is made.")])
        .body("SnapshotRequest")
        .errors(OF_STACKING)
        .errors(&[Code::TemplateExists]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/fork",
            "Make sandboxes with the files of one in which nothing runs, which then change independently",
            Json("SandboxList"),
        )
        .answers(&[(201, "All are made.")])
        .body("ForkRequest")
        .errors(OF_STACKING)
        .errors(&[Code::System]),
        Operation::new("get", "/v1/templates", "What you can make sandboxes from", Json("TemplateList"))
            .errors(&[Code::BadField, Code::UnknownField]),
        Operation::new(
            "delete",
            "/v1/templates/{id}",
            "Delete a template of yours, by its id or its name; sandboxes that were made from it keep its files",
            Nothing,
        )
        .errors(&[Code::BadField, Code::Storage]),
    ]
}

pub(super) fn schemas() -> Value {
    json!({
        "SnapshotRequest": body(json!({
            "name": text("What the template is called: 1 to 64 letters, digits, `.`, `_` and `-`, which none of your templates has; its id unless given."),
        })),
        "ForkRequest": body(json!({
            "count": number("How many sandboxes are made: 1 unless given, at most 100."),
        })),
        "Template": answer(json!({
            "template_id": nullable(text("Nothing for a template of the server's.")),
            "name": text("What POST /v1/sandboxes takes."),
            "kind": with(words(&["host", "directory", "snapshot", "import"]), "`host` and `directory` are the server's, and everybody's."),
            "owner": nullable(text("Who made it.")),
            "created_at_ms": nullable(number("Milliseconds since 1970.")),
            "size_bytes": nullable(number("What its topmost layer takes on disk, once that is counted.")),
            "layers": with(list(text("")), "The ids of its layers, the lowest first."),
            "sandbox_id": nullable(text("The sandbox that it is a snapshot of.")),
            "durability": with(words(&["certain", "uncertain"]), "`uncertain` if the machine was started again before all of its files had reached the disk."),
        })),
        "TemplateList": answer(json!({"templates": list(reference("Template"))})),
    })
}
