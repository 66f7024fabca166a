//! Templates of sandboxes in the description of the API.

use serde_json::{Value, json};

use super::operation::Operation;
use super::operation::SuccessAnswer::{Content, Json, Nothing};
use super::schema::{answer, body, boolean, enumeration, list, nullable, number, reference, string, with};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    const STACK_CODES: &[Code] =
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
        .errors(STACK_CODES)
        .errors(&[Code::TemplateExists]),
        Operation::new(
            "post",
            "/v1/sandboxes/{id}/fork",
            "Make sandboxes with the files of one in which nothing runs, which then change independently",
            Json("SandboxList"),
        )
        .answers(&[(201, "All are made.")])
        .body("ForkRequest")
        .errors(STACK_CODES)
        .errors(&[Code::System]),
        Operation::new(
            "get",
            "/v1/sandboxes/{id}/diff",
            "What has changed in a sandbox against its template, by path; a deleted directory stands for all that was in it",
            Json("SandboxDiff"),
        )
        .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 100_000, "default": 1_000}), "How many changes are listed.")
        .errors(&[
            Code::BadField,
            Code::UnknownField,
            Code::FilePermission,
            Code::SandboxBusy,
            Code::FileTooLarge,
            Code::TooLong,
            Code::Quota,
            Code::Capacity,
            Code::Storage,
        ]),
        Operation::new(
            "get",
            "/v1/sandboxes/{id}/export",
            "The files of a sandbox as a tar archive, as a stream: files, directories and links, at most 200000 of them and 4 GiB, without \
             what is shown of the host",
            Content("application/x-tar"),
        )
        .query("what", enumeration(&["all", "changes"]), "All files unless given, or those that were added or changed.")
        .errors(&[
            Code::BadField,
            Code::UnknownField,
            Code::FilePermission,
            Code::SandboxBusy,
            Code::FileTooLarge,
            Code::Quota,
            Code::Capacity,
            Code::System,
            Code::Storage,
        ]),
        Operation::new(
            "post",
            "/v1/templates",
            "Make a template of the body, a tar archive of a root tree, also compressed with gzip or zstd, of at most 200000 members and \
             4 GiB uncompressed. All files belong to the sandbox's user; devices, FIFOs, set-id bits and extended attributes are left out",
            Json("ImportedTemplate"),
        )
        .answers(&[(201, "It is made.")])
        .query("name", string(""), "What the template is called.")
        .bytes()
        .errors(&[
            Code::BadField,
            Code::UnknownField,
            Code::BadArchive,
            Code::BodyBroken,
            Code::RequestTimeout,
            Code::PathOutside,
            Code::TooLong,
            Code::WrongFileType,
            Code::FileExists,
            Code::FileNotFound,
            Code::FileTooLarge,
            Code::TemplateExists,
            Code::Refused,
            Code::Quota,
            Code::Capacity,
            Code::Storage,
        ]),
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
    let template = template();
    let mut imported = template.clone();
    imported["members"] = number("Members of the archive.");
    imported["left_out"] = number("Devices and FIFOs of these, which are not in the template.");
    json!({
        "SnapshotRequest": body(json!({
            "name": string("What the template is called: 1 to 64 letters, digits, `.`, `_` and `-`, which none of your templates has; its id unless given."),
        })),
        "ForkRequest": body(json!({
            "count": number("How many sandboxes are made: 1 unless given, at most 100."),
        })),
        "Template": answer(template),
        "ImportedTemplate": answer(imported),
        "SandboxDiff": answer(json!({
            "changes": list(reference("SandboxChange")),
            "truncated": boolean("There are more changes than were listed; which are left out is not defined."),
        })),
        "SandboxChange": answer(json!({
            "path": string(""),
            "change": enumeration(&["added", "changed", "deleted"]),
            "kind": enumeration(&["file", "directory", "link", "other"]),
            "size_bytes": nullable(number("Of a file that is there.")),
        })),
        "TemplateList": answer(json!({"templates": list(reference("Template"))})),
    })
}

fn template() -> Value {
    json!({
        "template_id": nullable(string("Nothing for a template of the server's.")),
        "name": string("What POST /v1/sandboxes takes."),
        "kind": with(enumeration(&["host", "directory", "snapshot", "import"]), "`host` and `directory` are the server's, and for all clients."),
        "owner": nullable(string("Who made it.")),
        "created_at_ms": nullable(number("Milliseconds since 1970.")),
        "size_bytes": nullable(number("What its topmost layer takes on disk, once that is counted.")),
        "layers": with(list(string("")), "The ids of its layers, the lowest first."),
        "sandbox_id": nullable(string("The sandbox that it is a snapshot of.")),
        "durability": with(enumeration(&["certain", "uncertain"]), "`uncertain` if the machine was started again before all of its files had reached the disk."),
    })
}
