//! What the interfaces of other systems are served with.

use std::sync::Arc;

use axum::extract::FromRef;

use super::judge0::Submissions;
use crate::contexts::ContextService;
use crate::intake::Messages;
use crate::programs::ProgramService;

/// Programs, the contexts of notebooks, and submissions.
#[derive(Debug, Clone)]
pub(crate) struct FrontDoorService {
    pub programs: Arc<ProgramService>,
    pub contexts: Arc<ContextService>,
    pub submissions: Arc<Submissions>,
}

impl FromRef<FrontDoorService> for Messages {
    fn from_ref(service: &FrontDoorService) -> Self {
        service.programs.runs.core.messages.clone()
    }
}
