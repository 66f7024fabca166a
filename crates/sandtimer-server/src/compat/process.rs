//! One process of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::time::instant;
use serde_json::{Value, json};

use super::outcome::{code, status};
use crate::runs::{LiveRun, RunPhase};

/// How long a killed process may take to be dead. Infrastructure: always finite.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);

/// One process.
#[derive(Debug)]
pub(super) struct SandboxProcess {
    pub id: String,
    pub command: String,
    pub run: Arc<LiveRun>,
}

impl SandboxProcess {
    pub fn view(&self) -> Value {
        let mut view = json!({
            "id": self.id,
            "command": self.command,
            "status": status(&self.run),
            "startTime": instant(self.run.created_at_ms()),
        });
        if let RunPhase::Ended(record) = self.run.phase() {
            view["exitCode"] = code(record.facts()).into();
            view["endTime"] = instant(record.ended_at_ms()).into();
        }
        view
    }

    pub fn is_running(&self) -> bool {
        matches!(self.run.phase(), RunPhase::Running(_))
    }

    /// Ends it with all that it has started. False where it is not dead in time.
    pub async fn kill(&self) -> bool {
        self.run.cancel("a client asked for the process's end");
        self.run.wait_ended(Some(DEATH_TIMEOUT)).await;
        !self.is_running()
    }
}
