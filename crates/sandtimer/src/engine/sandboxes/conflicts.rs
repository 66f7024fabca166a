//! What a run in a sandbox cannot have.

use super::super::spec::Spec;
use super::error::SandboxError;

/// What a run in a sandbox cannot have.
pub fn check(spec: &Spec) -> Result<(), SandboxError> {
    const FILES: &str = "its files are the sandbox's: write them there";
    let conflicts = [
        (spec.workspace.is_some() || spec.private_workspace, "workspace", FILES),
        (!spec.workspaces.is_empty(), "workspaces", FILES),
        (spec.temporary.is_some(), "temporary", FILES),
        (!spec.read_only.is_empty() || !spec.world_readable.is_empty(), "read_only", FILES),
        (spec.workspace_link.is_some(), "workspace_link", FILES),
        (spec.show_credentials, "show_credentials", FILES),
        (spec.gpu, "gpu", "start it without a sandbox"),
        (!spec.without.is_empty(), "without", "start it without a sandbox"),
        (spec.host_proc, "context", "start it without a sandbox"),
    ];
    match conflicts.into_iter().find(|(is_there, ..)| *is_there) {
        Some((_, field, remedy)) => Err(SandboxError::Conflict { field, remedy }),
        None => Ok(()),
    }
}
