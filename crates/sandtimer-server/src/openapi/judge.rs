//! Judging in the description of the API.

use serde_json::{Value, json};

use super::operation::SuccessAnswer::Json;
use super::operation::{Operation, START_CODES};
use super::schema::{
    answer, body, boolean, enumeration, limit_fields, list, nullable, number, reference, string, with,
};
use crate::judge::{LIMITS, MAX_CASES, VERDICTS};
use crate::programs::language;

pub(super) fn operations() -> Vec<Operation> {
    let summary = "Run a program on cases, each in a run of its own, and compare what it prints with what is expected, which \
                   never enters a run";
    vec![
        Operation::new("post", "/v1/judge", summary, Json("Judgement"))
            .body("JudgeRequest")
            .errors(START_CODES),
    ]
}

pub(super) fn schemas() -> Value {
    let mut request = json!({
        "code": string("The program."),
        "language": with(enumeration(&language::LANGUAGES.map(|language| language.name)), "python unless given; of the others those that the server's host has."),
        "cases": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_CASES,
            "items": reference("JudgeCase"),
            "description": "The cases, each in a run of its own, with the limits that are given.",
        },
        "checker": with(enumeration(&["lines", "none"]), "lines, unless given: the same words on the same lines; blank lines, and how words are spaced, do not count. none: the client compares, and cases have no `expected`."),
        "stop_early": boolean("Whether to stop at the first case, in their order, that is not accepted."),
        "total_ms": number("A limit of all cases together; those that have not begun by then are not run."),
    });
    limit_fields(&mut request, &LIMITS);
    json!({
        "JudgeRequest": body(request),
        "JudgeCase": body(json!({
            "stdin": string("What the program reads from its stdin; nothing unless given."),
            "stdin_encoding": with(reference("Encoding"), "What `stdin` is in; `utf-8` unless given."),
            "expected": string("What it is expected to print."),
        })),
        "Judgement": answer(json!({
            "passed": boolean("Every case is accepted."),
            "score": json!({"type": "number", "description": "The mean of the scores of the cases."}),
            "error": nullable(string("What the compiler printed, if the program does not compile.")),
            "cases": with(list(reference("JudgedCase")), "In the order of the request."),
        })),
        "JudgedCase": answer(json!({
            "verdict": with(enumeration(&VERDICTS), "not_compared: it exited with 0, and `checker` is none."),
            "score": json!({"type": "number", "description": "1 for an accepted case, else 0."}),
            "run_id": nullable(string("Its run, under /v1/runs.")),
            "error": nullable(string("Why the server could not run it.")),
            "outcome": nullable(reference("Outcome")),
        })),
    })
}
