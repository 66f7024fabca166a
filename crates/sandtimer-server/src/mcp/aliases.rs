//! The names that agents were trained on, over the same tools. After our answer they print the
//! lines that agents know.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::call::{ToolCall, required};
use super::render::ToolAnswer;
use super::start::bare;
use super::{read, start, steer};
use crate::body::{RequestFields, refused};
use crate::error::ApiRejection;
use crate::registry::OwnedResource;
use crate::runs::LiveRun;

/// The longest `timeout` that is waited for in the call itself; a longer one continues in the
/// background.
const MAX_WAIT_MS: u64 = 45_000;
/// What these tools call the id of a command.
pub(super) const IDS: [&str; 2] = ["bash_id", "shell_id"];

/// `Bash`: what it is called there becomes what `bash` calls it.
pub(super) async fn bash(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let (one, other) = (fields.boolean("background")?, fields.boolean("run_in_background")?);
    let background = one.unwrap_or(false) || other.unwrap_or(false);
    let mut given = Map::new();
    for name in ["command", "description"] {
        given.insert(name.to_owned(), fields.string(name)?.into());
    }
    if let Some(timeout) = fields.raw("timeout") {
        if timeout.as_u64().is_none() && !timeout.is_null() {
            return Err(refused("timeout", &timeout, "a whole number of milliseconds"));
        }
        given.insert("timeout_ms".to_owned(), timeout);
    }
    fields.finish()?;
    given.insert("background".to_owned(), background.into());
    if !background {
        given.insert("wait_ms".to_owned(), MAX_WAIT_MS.into());
    }
    let mut answer = start::bash(call, RequestFields::new(given)).await?;
    // A command in the background may have ended by now, and its id is still what the next call
    // names.
    if background || answer.structured["status"] != "ended" {
        let id = format!("bash_{}", answer.structured["run_id"].as_str().unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = write!(
            answer.text,
            "\n\nCommand running in background with ID: {id} (bash_id of BashOutput, shell_id of KillShell)\n\
             Started background process: {id}"
        );
        for name in IDS {
            answer.structured[name] = id.clone().into();
        }
    }
    Ok(answer)
}

fn named(
    call: &ToolCall,
    fields: &mut RequestFields,
    name: &'static str,
) -> Result<Arc<LiveRun>, ApiRejection> {
    let id = required(fields, name)?;
    call.service().contexts.runs.get(bare(&id), call.owner())
}

/// `BashOutput` and `ReadBashOutput`: what is new since the last look.
pub(super) async fn output(
    call: &ToolCall,
    mut fields: RequestFields,
    id: &'static str,
) -> Result<ToolAnswer, ApiRejection> {
    let run = named(call, &mut fields, id)?;
    let (mut answer, data) = read::news(call, &run, &mut fields).await?;
    fields.finish()?;
    let (head, _) = answer.text.split_once("\n\n").unwrap_or((&answer.text, ""));
    let data_shown = if data.is_empty() { "(nothing new)" } else { &data };
    answer.text = format!("{head}\n\n=== Status: {} ===\n{data_shown}", status(&answer.structured));
    answer.structured["data"] = data.into();
    Ok(answer)
}

/// As agents know it.
fn status(run: &Value) -> String {
    if run["status"] != "ended" {
        return "RUNNING".to_owned();
    }
    match (run["ending"].as_str(), run["exit_code"].as_i64()) {
        (Some("exited"), Some(code)) => format!("COMPLETED (exit code: {code})"),
        (Some("cancelled"), _) => "KILLED".to_owned(),
        (ending, _) => format!("STOPPED ({})", ending.unwrap_or("unknown")),
    }
}

/// `KillShell`.
pub(super) async fn kill(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let run = named(call, &mut fields, "shell_id")?;
    fields.finish()?;
    let had_ended = run.status() == "ended";
    steer::end_now(&run).await;
    let mut answer = read::shown(&run).await?;
    let (id, is_killed) = (run.id(), answer.structured["ending"] == "cancelled" && !had_ended);
    let _ = match is_killed {
        true => write!(answer.text, "\n\nKilled background process: bash_{id}"),
        // It may have ended by itself before the kill.
        false => write!(
            answer.text,
            "\n\nBackground process bash_{id} had ended before it was to be killed: {}",
            status(&answer.structured)
        ),
    };
    answer.structured["killed"] = is_killed.into();
    Ok(answer)
}
