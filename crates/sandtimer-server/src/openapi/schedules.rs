//! Schedules in the description of the API.

use serde_json::{Value, json};

use super::jobs::{QUERY_CODES, STORE_CODES, moment};
use super::operation::Operation;
use super::operation::SuccessAnswer::Json;
use super::schema::{answer, body, boolean, enumeration, list, nullable, number, reference, string, with};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "get",
            "/v1/jobs/schedules",
            "Your schedules: jobs that recur, and when each is due next",
            Json("JobSchedules"),
        )
        .errors(QUERY_CODES),
        Operation::new(
            "put",
            "/v1/jobs/schedules/{name}",
            "Store a schedule in place of the one of its name; its next moment stays unless the moments change",
            Json("JobSchedule"),
        )
        .body("JobScheduleRequest")
        .errors(STORE_CODES)
        .errors(&[Code::BadSpec, Code::NetworkRefused, Code::Quota]),
        Operation::new(
            "post",
            "/v1/jobs/schedules/{name}/pause",
            "Pause a schedule: it submits no jobs; its running jobs continue",
            Json("JobSchedule"),
        )
        .body("Empty")
        .errors(STORE_CODES)
        .errors(&[Code::ScheduleNotFound]),
        Operation::new(
            "post",
            "/v1/jobs/schedules/{name}/resume",
            "Resume a paused schedule: it is due at its next moment; those that passed are not made up for",
            Json("JobSchedule"),
        )
        .body("Empty")
        .errors(STORE_CODES)
        .errors(&[Code::ScheduleNotFound]),
        Operation::new(
            "delete",
            "/v1/jobs/schedules/{name}",
            "Remove a schedule; the jobs that it has submitted stay",
            Json("JobScheduleRemoved"),
        )
        .errors(QUERY_CODES),
    ]
}

pub(super) fn schemas() -> Value {
    json!({
        "JobScheduleRequest": schedule_request(),
        "JobSchedule": schedule(),
        "JobSchedules": answer(json!({"schedules": list(reference("JobSchedule"))})),
        "JobScheduleRemoved": answer(json!({"name": string(""), "removed": boolean("There was one.")})),
    })
}

fn schedule_request() -> Value {
    body(json!({
        "name": string("The name in the path; it may be left out."),
        "cron": string("Five fields as in crontab(5), such as `30 3 * * mon-fri`, or @hourly, @daily, @weekly, @monthly, @yearly."),
        "time_zone": string("Of `cron`, by its name in the IANA database; UTC unless given."),
        "every_ms": {
            "oneOf": [{"type": "number", "minimum": 1000}, {"type": "string"}],
            "description": "In place of `cron`: the interval, in milliseconds or as a string such as `15m`.",
        },
        "missed": with(enumeration(&["one", "skip", "all"]), "When no worker was there: one job for all moments that were missed, none, or one for each (at most 100); `one` unless given."),
        "overlap": with(enumeration(&["skip", "queue", "allow"]), "When the job before has not finished: no job for this moment, one that waits for it, or one next to it; `skip` unless given."),
        "paused": boolean("No job is submitted. Without it a schedule that is stored again stays paused, or not, as it was."),
        "job": reference("JobRequest"),
    }))
}

fn schedule() -> Value {
    answer(json!({
        "name": string(""),
        "queue": string("The queue of its jobs."),
        "next_ms": nullable(moment("When it is due next; null where it is paused")),
        "last_ms": nullable(moment("The last moment for which a job was submitted")),
        "last_job": nullable(string("The job of that moment.")),
        "last_state": nullable(with(reference("JobState"), "Of that job, as long as it is stored.")),
        "submitted": number("Jobs that it has submitted."),
        "skipped": number("Starts that were skipped, because the job before had not finished, or that were missed."),
        "error": nullable(string("Why the job of the last moment could not be submitted.")),
        "created_ms": moment("When it was stored first"),
        "spec": with(json!({"type": "object"}), "As it was stored, without the secret of a webhook."),
    }))
}
