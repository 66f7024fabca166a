//! What the tools of agents are served with.

use std::sync::Arc;

use crate::contexts::ContextService;
use crate::settings::ToolNames;
use crate::tasks::TaskService;

/// The contexts, runs and tasks of agents, and the tools that they are listed.
#[derive(Debug, Clone)]
pub(crate) struct AgentService {
    pub contexts: Arc<ContextService>,
    pub tasks: Arc<TaskService>,
    /// Whether the tools that estimate are listed, unless a conversation chooses.
    pub shows_estimates: bool,
    /// The names that tools are listed by, unless a conversation chooses.
    pub tool_names: ToolNames,
}
