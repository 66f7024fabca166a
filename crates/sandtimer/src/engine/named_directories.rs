//! The directories of the host that a sandbox shows in place of its own.

use std::path::PathBuf;

use super::sandboxes::Sandbox;
use super::spec::Spec;

/// Directories of the host that a sandbox shows in place of private ones, or the sandbox that has
/// all of the files.
#[derive(Debug, Clone, Default)]
pub(super) struct NamedDirectories {
    pub workspace: Option<PathBuf>,
    pub temporary: Option<PathBuf>,
    pub sandbox: Option<Sandbox>,
}

impl NamedDirectories {
    /// The spec with these directories.
    pub fn of(&self, spec: Spec) -> Spec {
        let sandbox = self.sandbox.clone();
        let private_workspace = spec.private_workspace && sandbox.is_none();
        let (workspace, temporary) = (self.workspace.clone(), self.temporary.clone());
        Spec { workspace, temporary, sandbox, private_workspace, ..spec }
    }
}
