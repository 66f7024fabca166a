//! What all handlers share.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;
use sandtimer::Engine;
use sandtimer_agents::estimate::FinishedRun;
use tokio::sync::watch;

use crate::auth::Tokens;
use crate::contexts::LiveContexts;
use crate::facts::HostFacts;
use crate::intake::Messages;
use crate::jobs::JobService;
use crate::metrics::Metrics;
use crate::policy::{Defaults, Interpreters};
use crate::quota::QuotaTable;
use crate::runs::Runs;
use crate::sandboxes::SandboxService;
use crate::settings::{HostProgram, ToolNames};
use crate::tasks::{Durations, Tasks};
use crate::tenants::Tenants;
use crate::trace::Traces;
use crate::workspaces::Workspaces;
use crate::{api, compat, programs};

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub engine: Engine,
    pub tokens: Option<Tokens>,
    pub defaults: Defaults,
    pub interpreters: Interpreters,
    /// The interpreters that execute Python programs.
    pub programs: Arc<sandtimer::engine::Interpreters>,
    pub program_service: programs::ProgramService,
    pub submissions: api::Submissions,
    pub quotas: QuotaTable,
    pub tenants: Arc<Tenants>,
    pub messages: Messages,
    pub traces: Traces,
    pub host: HostProgram,
    pub runs: Runs,
    pub contexts: LiveContexts,
    pub sandboxes: compat::Sandboxes,
    pub sandbox_service: SandboxService,
    pub workspaces: Workspaces,
    pub jobs: JobService,
    pub durations: Durations,
    pub estimate_tools: bool,
    pub tool_names: ToolNames,
    pub tasks: Tasks,
    pub facts: HostFacts,
    pub metrics: Metrics,
    /// True once the server is to stop.
    pub closing: watch::Sender<bool>,
}

/// The same, for each of them.
#[derive(Debug, Clone)]
pub(crate) struct SharedApp(Arc<App>);

impl SharedApp {
    pub fn new(app: App) -> Self {
        SharedApp(Arc::new(app))
    }
}

impl Deref for SharedApp {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

impl FromRef<SharedApp> for Messages {
    fn from_ref(app: &SharedApp) -> Self {
        app.messages.clone()
    }
}

impl App {
    /// Keeps a duration for the next server, on a thread of the runtime that may block.
    pub(crate) fn keep_duration(&self, finished: &FinishedRun) {
        // Not on a thread for what blocks: waking one would cost more than what is written, as a
        // rule.
        if let Err(error) = tokio::task::block_in_place(|| self.durations.keep(finished)) {
            self.metrics.store_failed();
            (self.host.log_error)(&format!("the duration of a run is kept in memory only: {error}"));
        }
    }
}
