//! What all handlers share.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRef;

use crate::api::Submissions;
use crate::contexts::ContextService;
use crate::intake::Messages;
use crate::jobs::JobService;
use crate::programs::ProgramService;
use crate::runs::RunService;
use crate::service_core::ServiceCore;
use crate::settings::ToolNames;
use crate::tasks::TaskService;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub core: Arc<ServiceCore>,
    pub runs: Arc<RunService>,
    pub contexts: Arc<ContextService>,
    pub programs: Arc<ProgramService>,
    pub submissions: Submissions,
    pub jobs: Arc<JobService>,
    pub agent_tools: AgentTools,
    pub tasks: Arc<TaskService>,
}

/// The tools that agents are listed, unless their conversation chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentTools {
    /// Those that estimate, too.
    pub estimates: bool,
    pub names: ToolNames,
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
        app.core.messages.clone()
    }
}
