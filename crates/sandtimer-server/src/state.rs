//! All services of a server, for the modules that use more than one of them.

use std::sync::Arc;

use crate::api::FrontDoorService;
use crate::contexts::ContextService;
use crate::jobs::JobService;
use crate::mcp::AgentService;
use crate::runs::RunService;
use crate::service_core::ServiceCore;

/// The services of a server.
#[derive(Debug)]
pub(crate) struct App {
    pub core: Arc<ServiceCore>,
    pub runs: Arc<RunService>,
    pub contexts: Arc<ContextService>,
    pub jobs: Arc<JobService>,
    pub front_doors: FrontDoorService,
    pub agents: AgentService,
}

pub(crate) type SharedApp = Arc<App>;
