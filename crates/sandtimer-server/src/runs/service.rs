//! What runs are started with, and found in.

use std::sync::Arc;

use axum::extract::FromRef;
use sandtimer::Limits;
use sandtimer::engine::Interpreters;
use sandtimer::model::Source;
use sandtimer_agents::estimate::FinishedRun;

use super::all::Runs;
use super::live::LiveRun;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::intake::Messages;
use crate::sandboxes::SandboxService;
use crate::service_core::ServiceCore;
use crate::tasks::Durations;
use crate::workspaces::Workspaces;

/// Runs, their records and durations, and what they work in.
#[derive(Debug)]
pub(crate) struct RunService {
    pub core: Arc<ServiceCore>,
    pub records: Runs,
    /// The default limits of commands.
    pub defaults: Vec<(Source, Limits)>,
    /// The interpreters that execute Python programs.
    pub programs: Arc<Interpreters>,
    pub durations: Durations,
    pub workspaces: Workspaces,
    pub sandboxes: SandboxService,
}

impl RunService {
    /// The run of this owner, or that there is none.
    pub fn get(&self, id: &str, owner: &OwnerId) -> Result<Arc<LiveRun>, ApiRejection> {
        self.records.find(id, owner).ok_or_else(|| {
            let shown: String = id.chars().take(60).collect();
            ApiRejection::new(Code::RunNotFound, format!("there is no run `{shown}`"))
        })
    }

    /// Keeps a duration for the next server, on a thread of the runtime that may block.
    pub fn keep_duration(&self, finished: &FinishedRun) {
        // Not on a thread for what blocks: waking one would cost more than what is written, as a
        // rule.
        if let Err(error) = tokio::task::block_in_place(|| self.durations.keep(finished)) {
            self.core.metrics.store_failed();
            (self.core.host.log_error)(&format!("the duration of a run is kept in memory only: {error}"));
        }
    }
}

impl FromRef<Arc<RunService>> for Messages {
    fn from_ref(service: &Arc<RunService>) -> Self {
        service.core.messages.clone()
    }
}
