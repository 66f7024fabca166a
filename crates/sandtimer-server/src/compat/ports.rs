//! Waiting for a port. Runs have no network, so nothing in them can listen on one: that is said, instead of a wait without end.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use serde_json::json;

use super::failure::Failure;
use super::frames::respond;
use super::{Caller, Fielded, processes};
use crate::Shared;
use crate::events::{Event, EventSource};
use crate::runs::LiveRun;

/// What is said of a port of a process that goes on.
const NO_NETWORK: &str = "processes on this server have no network, so none of them can listen on a port; \
                          use a Unix socket or a file in /workspace, or wait for its output";

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/api/port-watch", post(watch))
}

async fn watch(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let port = fields.number("port")?.filter(|port| (1..=65_535).contains(port));
    let port =
        port.ok_or_else(|| Failure::new(400, "INVALID_PORT", "port: give a number from 1 to 65535"))?;
    let run = fields.text("processId")?.map(|id| processes::run_of(&caller, &id)).transpose()?;
    Ok(respond(Answer { port, run, step: 0 }, app.heartbeat))
}

struct Answer {
    port: u64,
    run: Option<Arc<LiveRun>>,
    step: u8,
}

impl EventSource for Answer {
    async fn next(&mut self) -> Option<Event> {
        self.step += 1;
        let exit_code = self.run.as_ref().and_then(|run| processes::exit_code(run));
        let data = match (self.step, exit_code) {
            (1, _) => json!({"type": "watching", "port": self.port}),
            (2, Some(code)) => json!({"type": "process_exited", "port": self.port, "exitCode": code}),
            (2, None) => json!({"type": "error", "port": self.port, "error": NO_NETWORK}),
            _ => return None,
        };
        Some(Event { id: String::new(), name: "", data })
    }
}
