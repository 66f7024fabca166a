//! What tasks are begun and bound with.

use std::sync::Arc;

use axum::extract::FromRef;

use super::live::Tasks;
use crate::intake::Messages;
use crate::runs::RunService;

/// Tasks, and the runs that they are bound to.
#[derive(Debug)]
pub(crate) struct TaskService {
    pub tasks: Tasks,
    pub runs: Arc<RunService>,
}

impl FromRef<Arc<TaskService>> for Messages {
    fn from_ref(service: &Arc<TaskService>) -> Self {
        service.runs.core.messages.clone()
    }
}
