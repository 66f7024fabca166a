//! Runs as tasks of the protocol, for clients that declare its extension
//! `io.modelcontextprotocol/tasks`: what outlives the call that started it is answered with a
//! handle, which the client's program asks for until it has ended, instead of with STILL RUNNING. A
//! task is its run: it has the run's id and its owner, outlives the connection and ends at the
//! run's limits.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, Task, TaskPayload, TaskStatus};
use sandtimer::model::Ending;
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::Value;

use super::conversation::OwnerState;
use super::render::{self, ends_at, how_far, kills_at, tool_result};
use crate::error::ApiRejection;
use crate::registry::OwnedResource;
use crate::runs::{LiveRun, RunPhase};

/// How long a client is to wait before it asks again, in milliseconds.
const POLL_INTERVAL_MS: u64 = 1_000;

/// The handle of a run that is active.
pub(super) fn handle(run: &LiveRun) -> Task {
    let now = instant(run.ended_at_ms().unwrap_or_else(calendar_milliseconds));
    Task::new(run.id(), TaskStatus::Working, instant(run.created_at_ms()), now)
        .with_status_message(format!("{}{}", ends_at(kills_at(run)), how_far(run)))
        .with_poll_interval_ms(POLL_INTERVAL_MS)
}

/// The run that is meant.
pub(super) fn find(owner: &OwnerState, id: &str) -> Result<Arc<LiveRun>, ErrorData> {
    owner
        .service
        .contexts
        .runs
        .get(id, &owner.owner)
        .map_err(|refused| ErrorData::invalid_params(refused.message, None))
}

/// The status of the task; once it has ended, with the answer of the call.
pub(super) async fn task_status(run: &LiveRun) -> Result<DetailedTask, ErrorData> {
    let failed = |refused: ApiRejection| ErrorData::internal_error(refused.message, None);
    // Without the Outcome, which is read for the answer.
    let ending = match run.phase() {
        RunPhase::Queued(_) | RunPhase::Running(_) => None,
        RunPhase::Ended(record) => Some(record.facts().ending),
    };
    let payload = match ending {
        None => TaskPayload::Working,
        Some(Ending::Cancelled) => TaskPayload::Cancelled,
        Some(_) => {
            let answer: CallToolResult = tool_result(Ok(render::run(run).await.map_err(failed)?));
            // Plain data with text keys always serialises, and to an object.
            let Ok(Value::Object(result)) = serde_json::to_value(answer) else {
                return Err(ErrorData::internal_error("the result cannot be written", None));
            };
            TaskPayload::Completed { result }
        }
    };
    Ok(DetailedTask::new(handle(run), payload))
}
