//! What a host has to have for a run.

use crate::isolate::host::{HostCapabilities, NamespaceSupport};
use crate::isolate::lease::WORKSPACES;
use crate::isolate::plan::PlanRejection;

/// Root's uid outside of any namespace of its own is no uid for a run, with whatever capabilities:
/// devices and files are root's.
pub(super) fn check_user(has_uids: bool, host: &HostCapabilities) -> Result<(), PlanRejection> {
    match &host.namespaces {
        NamespaceSupport::None(reason) if host.uid == 0 && !has_uids => Err(PlanRejection {
            required: "a uid for runs, or a user namespace,".to_owned(),
            possible: "root's uid alone".to_owned(),
            reason: format!(
                "it lacks CAP_SETUID, CAP_SETGID, CAP_CHOWN or CAP_KILL, or the uids from {} on, and {reason}; start it as \
                 another user",
                WORKSPACES
            ),
        }),
        _ => Ok(()),
    }
}

/// Fails if /workspace or /tmp is a directory that outlives the run, and cannot be mounted.
pub(super) fn check_workspace(outlives_run: bool, host: &HostCapabilities) -> Result<(), PlanRejection> {
    match &host.namespaces {
        NamespaceSupport::None(reason) if outlives_run => Err(PlanRejection {
            required: "a workspace or a /tmp that outlives its run".to_owned(),
            possible: "one of the run's own".to_owned(),
            reason: format!("it needs a mount namespace, and {reason}"),
        }),
        _ => Ok(()),
    }
}
