//! Estimates and tasks in the description of the API.

use sandtimer_agents::estimate::{Complexity, MAX_MEGABYTES, TaskType};
use serde_json::{Value, json};

use super::operation::Operation;
use super::operation::SuccessAnswer::Json;
use super::schema::{answer, body, boolean, enumeration, list, nullable, number, reference, string, with};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    let post = |path, summary, shape| Operation::new("post", path, summary, Json(shape));
    let get = |path, summary, shape| Operation::new("get", path, summary, Json(shape));
    vec![
        post(
            "/v1/tasks/estimate",
            "Say how long a type of task, or a command, is likely to take: from your runs, or from a table",
            "Estimate",
        )
        .body("Asked"),
        post("/v1/tasks", "Begin a task that is compared with its estimate", "Task")
            .answers(&[(201, "It is followed.")])
            .body("TaskRequest")
            .errors(&[Code::RunNotFound]),
        get("/v1/tasks", "Your tasks, the oldest first", "TaskList")
            .errors(&[Code::BadField, Code::UnknownField]),
        get("/v1/tasks/{id}", "One task", "Task"),
        post(
            "/v1/tasks/{id}/bind",
            "From now on a task's clock is a run's, and it ends with that run",
            "Task",
        )
        .body("Bind")
        .errors(&[Code::RunNotFound, Code::TaskEnded]),
        post("/v1/tasks/{id}/complete", "End a task; a run that it is bound to continues", "Task")
            .body("Empty")
            .errors(&[Code::TaskEnded]),
    ]
}

pub(super) fn schemas() -> Value {
    let amount = |meaning: &str| json!({"type": "number", "description": meaning});
    let mut request = asked();
    request["name"] = string("What to call it; the type or the command unless given.");
    request["run_id"] = string("The run that it is bound to.");
    let types: Vec<&str> = TaskType::all().map(TaskType::name).collect();
    json!({
        "Asked": body(asked()),
        "TaskRequest": body(request),
        "Bind": body(json!({"run_id": string("The run.")})),
        "TaskType": enumeration(&types),
        "Estimate": answer(json!({
            "task_type": nullable(reference("TaskType")),
            "data_size_mb": nullable(amount("As asked.")),
            "complexity": complexity(),
            "context": nullable(string("As asked.")),
            "best_ms": number("One run of twenty is shorter."),
            "typical_ms": number("Half of the runs are shorter."),
            "worst_ms": number("One run of twenty is longer."),
            "runs": number("How many runs it rests on; where `basis` is neither exact nor any_load, of how many different things."),
            "basis": with(enumeration(&["exact", "any_load", "template", "class", "type", "unknown", "prior"]), "What these runs have in common with the question: the same command; the same under another load; all but numbers and paths; type, size and machine; type. prior: there are none, and the figures are those of a table. unknown: there are none of this command or a similar one, and the range is that of most commands."),
            "censored_rate": amount("The part of these runs that was stopped before its end."),
            "coverage": nullable(amount("The part of recent runs with a history like this that took no longer than their worst case.")),
            "fits_budget": nullable(boolean("The worst case ends within `budget_ms`.")),
            "chance_within_budget": nullable(amount("The probability that it has ended by then.")),
            "suggested_limit_ms": number("A wall-clock limit that ends almost no healthy run."),
            "limit_rests_on_runs": boolean("Runs show that it does, and not only a table."),
            "text": string("The same for people and agents."),
        })),
        "Task": answer(json!({
            "task_id": string(""),
            "name": string(""),
            "status": enumeration(&["open", "queued", "running", "ended"]),
            "run_id": nullable(string("The run that it is bound to.")),
            "begun_at_ms": number("Milliseconds since 1970; of its run, where it has one."),
            "ended_at_ms": nullable(number("")),
            "elapsed_ms": number(""),
            "left_typical_ms": nullable(number("The remaining time, given how long it has been running; null once it has ended.")),
            "left_worst_ms": nullable(number("")),
            "is_overdue": boolean("It takes, or took, longer than typical."),
            "is_over_worst": boolean("It takes, or took, longer than its worst case."),
            "estimate": reference("Estimate"),
        })),
        "TaskList": answer(json!({"tasks": list(reference("Task"))})),
    })
}

fn complexity() -> Value {
    enumeration(&Complexity::ALL.map(Complexity::name))
}

fn asked() -> Value {
    let command = json!({
        "description": "A list of texts, or a line for a shell.",
        "oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
    });
    json!({
        "task_type": with(reference("TaskType"), "This, a command, or both."),
        "command": command,
        "data_size_mb": {
            "type": "number",
            "minimum": 0,
            "maximum": MAX_MEGABYTES,
            "description": "Megabytes of data that it works on.",
        },
        "complexity": with(complexity(), "moderate unless given."),
        "context": string("Keywords that distinguish it from others of its type; they are compared, not interpreted."),
        "budget_ms": number("How much time there is for it."),
    })
}
