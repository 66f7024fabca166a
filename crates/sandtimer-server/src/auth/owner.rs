//! Owners of runs, contexts, files and jobs.

use std::sync::Arc;

/// Whom a run, a context or a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    pub(crate) fn token(name: &str) -> Self {
        OwnerId(format!("token:{name}").into())
    }

    pub(crate) fn user(uid: u32) -> Self {
        OwnerId(format!("uid:{uid}").into())
    }

    /// As it was written to a record.
    pub fn recorded(text: &str) -> Self {
        OwnerId(text.into())
    }

    /// For a record.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
