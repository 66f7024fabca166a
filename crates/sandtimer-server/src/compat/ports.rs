//! Waiting for a port of a process. Each has its own loopback, so a port of no process in particular is never listened on: that is
//! reported, instead of a wait without end.

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
use crate::runs::{self, LiveRun};

/// What is said of a port of no process in particular.
const NO_PROCESS: &str = "each process on this server has a loopback of its own: give `processId`, the process that listens on the \
                          port";

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/api/port-watch", post(watch))
}

async fn watch(
    State(app): State<Shared>,
    caller: Caller,
    Fielded(mut fields): Fielded,
) -> Result<Response, Failure> {
    let port = fields.number("port")?.filter(|port| (1..=65_535).contains(port));
    let port = port.and_then(|port| u16::try_from(port).ok());
    let port =
        port.ok_or_else(|| Failure::new(400, "INVALID_PORT", "port: give a number from 1 to 65535"))?;
    let run = fields.text("processId")?.map(|id| processes::run_of(&caller, &id)).transpose()?;
    Ok(respond(Answer { port, run, step: 0 }, app.heartbeat))
}

struct Answer {
    port: u16,
    run: Option<Arc<LiveRun>>,
    step: u8,
}

impl EventSource for Answer {
    async fn next(&mut self) -> Option<Event> {
        let data = match (self.step, &self.run) {
            (0, _) => json!({"type": "watching", "port": self.port}),
            (1, None) => json!({"type": "error", "port": self.port, "error": NO_PROCESS}),
            (1, Some(run)) => match runs::listens(run, self.port, None).await {
                Ok(true) => json!({"type": "ready", "port": self.port}),
                Ok(false) => {
                    json!({"type": "process_exited", "port": self.port, "exitCode": processes::exit_code(run)})
                }
                Err(refusal) => json!({"type": "error", "port": self.port, "error": refusal.message}),
            },
            _ => return None,
        };
        // Only here: the future may be dropped before.
        self.step += 1;
        Some(Event { id: String::new(), name: "", data })
    }
}
