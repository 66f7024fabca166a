//! Sandboxes that clients of `/api` find by their names.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use sandtimer::engine::{Sandbox, SandboxError, SandboxNetwork};
use sandtimer::limits::Limits;

use super::service::{HOST_TEMPLATE, SANDBOXES, SandboxService};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};
use crate::tenants::Tenants;

impl SandboxService {
    /// The sandbox of this owner with this name, unless it is being deleted.
    pub fn named(&self, owner: &OwnerId, name: &str) -> Option<Sandbox> {
        self.living(&self.names.find(owner, name)?, owner)
    }

    fn living(&self, id: &str, owner: &OwnerId) -> Option<Sandbox> {
        self.get(id, owner).ok().filter(|sandbox| !sandbox.is_deleted())
    }

    /// Makes a sandbox of the template `host` that is found by this name from now on; returns the
    /// one that has the name if there is one. `None`: this host cannot make sandboxes, which
    /// `report` gets once; a sandbox that needs a network fails instead. Blocks.
    pub fn create_named(
        &self,
        owner: &OwnerId,
        name: &str,
        network: SandboxNetwork,
        tenants: &Tenants,
        report: &dyn Fn(&str),
    ) -> Result<Option<Sandbox>, ApiRejection> {
        let needs_network = network != SandboxNetwork::None;
        if self.names.is_refused.load(Ordering::Relaxed) && !needs_network {
            return Ok(None);
        }
        let earlier = self.names.find(owner, name);
        if let Some(id) = earlier.as_ref().filter(|id| self.names.is_unreadable(id)) {
            let message = format!(
                "the sandbox `{id}` of this name cannot be read, as the server's log has it; the operator has to repair it, or to \
                 delete its directory in `sandboxes` of the state directory"
            );
            return Err(ApiRejection::new(Code::Storage, message).with("sandbox_id", id.as_str()));
        }
        let spec = self.spec(owner, HOST_TEMPLATE, network, Limits::new(), tenants)?;
        let sandbox = match self.make(spec, SANDBOXES.take(owner)?) {
            Err(refused) if is_of_host(&refused) && !needs_network => {
                if !self.names.is_refused.swap(true, Ordering::Relaxed) {
                    let why = ApiRejection::from(refused).message;
                    report(&format!(
                        "new sandboxes of /api are workspaces, with /workspace and /tmp alone, until the server is restarted: {why}"
                    ));
                }
                return Ok(None);
            }
            made => made?,
        };
        let is_living = |id: &str| self.living(id, owner).is_some();
        if let Err(error) = self.names.note(sandbox.id(), owner, name, &is_living) {
            // One that is left is deleted by its owner, who sees it in the list.
            let _ = self.delete(sandbox.id(), owner);
            return match (error.kind(), self.named(owner, name)) {
                (ErrorKind::AlreadyExists, Some(named)) => Ok(Some(named)),
                _ => Err(storage("the sandbox's name cannot be recorded", &error)),
            };
        }
        if let Some(id) = earlier {
            self.names.forget_record(&id);
        }
        Ok(Some(sandbox))
    }
}

/// Whether a host that refuses a sandbox with this error refuses all of them: a disk that is full,
/// or memory that is short, is another matter.
fn is_of_host(error: &sandtimer::Error) -> bool {
    match error {
        sandtimer::Error::Sandbox(SandboxError::OnOverlay { .. } | SandboxError::NoNamespaces(_)) => true,
        sandtimer::Error::Sandbox(SandboxError::Overlay { source }) => matches!(
            source.kind(),
            ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn full_disk_is_not_a_host_without_sandboxes() {
        let overlay = |number| SandboxError::Overlay { source: io::Error::from_raw_os_error(number) };
        let is_of_host = |error| is_of_host(&sandtimer::Error::Sandbox(error));
        for transient in [libc_errno::ENOSPC, libc_errno::EROFS, libc_errno::ENOMEM] {
            assert!(!is_of_host(overlay(transient)), "{transient}");
        }
        assert!(!is_of_host(SandboxError::Locked));
        assert!(is_of_host(overlay(libc_errno::EINVAL)));
        assert!(is_of_host(SandboxError::NoNamespaces("none".to_owned())));
    }

    /// The numbers of errno(3).
    mod libc_errno {
        pub const ENOMEM: i32 = 12;
        pub const EINVAL: i32 = 22;
        pub const ENOSPC: i32 = 28;
        pub const EROFS: i32 = 30;
    }
}
