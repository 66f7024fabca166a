//! Commands that ask a server: ps, logs, kill, extend, pause, resume, sandbox, template. What the
//! server refuses is printed with its code, message and hint, and exit code 125.

mod archive;
mod arguments;
mod client;
mod copy;
mod logs;
mod ps;
mod reply;
mod sandbox;
mod socket;
mod template;

use std::process::ExitCode;

use sandtimer::model::LimitKind;
use serde_json::json;

use super::CommandFailure;
use crate::args::{ExtendArguments, KillArguments, OneRun};
use crate::config::written;
use arguments::added;
use client::{Client, RequestRejection, checked_id};
use reply::print_reply;

pub(crate) use logs::main as logs;
pub(crate) use ps::main as ps;
pub(crate) use sandbox::main as sandbox;
pub(crate) use template::main as template;

/// Ends a run, or a context or session with what it executes.
pub(crate) fn kill(given: &KillArguments) -> Result<ExitCode, CommandFailure> {
    let id = checked_id(&given.id)?;
    let client = Client::having(&given.server, id)?;
    let body = given.reason.as_ref().map_or(json!({}), |reason| json!({"reason": reason}));
    let answer = match client.post(&format!("/v1/runs/{id}/kill"), &body) {
        // Whether an id is a run's or a context's shows only in the server's answer.
        Err(refused) if refused.is("run_not_found") => {
            return match client.delete(&format!("/v1/contexts/{id}")) {
                Ok(()) => {
                    Ok(print_reply(given.server.json, &json!({"context_id": id, "deleted": true}), "ended"))
                }
                Err(other) if other.is("context_not_found") => Err(refused.into()),
                Err(other) => Err(other.into()),
            };
        }
        answer => answer?,
    };
    let sentence = answer["outcome"]["verdict"]["sentence"].as_str();
    let text = match (sentence, answer["outcome"]["ending"].as_str()) {
        (Some(sentence), _) => sentence.to_owned(),
        (None, Some(ending)) => format!("had already ended: {ending}"),
        (None, None) => "is being ended".to_owned(),
    };
    Ok(print_reply(given.server.json, &answer, &text))
}

/// Moves a run's wall limit later.
pub(crate) fn extend(given: &ExtendArguments) -> Result<ExitCode, CommandFailure> {
    let id = checked_id(&given.id)?;
    let client = Client::having(&given.server, id)?;
    let by = added(&given.by)?;
    let body = json!({"by_ms": by.div_ceil(1_000_000)});
    let answer = client.post(&format!("/v1/runs/{id}/extend"), &body)?;
    let text = match answer["wall_left_ms"].as_u64() {
        Some(left) => format!("has {} left", written(LimitKind::Wall.into(), Some(left * 1_000_000))),
        None => "has no wall-clock limit".to_owned(),
    };
    Ok(print_reply(given.server.json, &answer, &text))
}

/// Stops a run's processes and its own clocks.
pub(crate) fn pause(given: &OneRun) -> Result<ExitCode, CommandFailure> {
    act(given, "pause", "paused")
}

/// Resumes a paused run.
pub(crate) fn resume(given: &OneRun) -> Result<ExitCode, CommandFailure> {
    act(given, "resume", "is running")
}

fn act(given: &OneRun, what: &str, done: &str) -> Result<ExitCode, CommandFailure> {
    let id = checked_id(&given.id)?;
    let client = Client::having(&given.server, id)?;
    let answer = client.post(&format!("/v1/runs/{id}/{what}"), &json!({}))?;
    Ok(print_reply(given.server.json, &answer, done))
}

impl From<RequestRejection> for CommandFailure {
    fn from(refused: RequestRejection) -> Self {
        CommandFailure::usage(refused.to_string())
    }
}
