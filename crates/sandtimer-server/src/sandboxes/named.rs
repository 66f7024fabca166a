//! Sandboxes that clients of another interface find by their names.

use std::sync::atomic::{AtomicBool, Ordering};

use sandtimer::engine::{Sandbox, SandboxNetwork};
use sandtimer::limits::Limits;

use super::service::{HOST_TEMPLATE, SANDBOXES, SandboxService};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};
use crate::tenants::Tenants;

impl SandboxService {
    /// The sandbox of this owner with this name, unless it is being deleted.
    pub fn named(&self, owner: &OwnerId, name: &str) -> Option<Sandbox> {
        let id = self.names.find(owner, name)?;
        self.get(&id, owner).ok().filter(|sandbox| !sandbox.is_deleted())
    }

    /// Makes a sandbox of the template `host` that is found by this name from now on. `None`: there
    /// can be none, which `report` gets once; a sandbox that needs a network fails instead. Blocks.
    pub fn create_named(
        &self,
        owner: &OwnerId,
        name: &str,
        network: SandboxNetwork,
        tenants: &Tenants,
        report: &dyn Fn(&str),
    ) -> Result<Option<Sandbox>, ApiRejection> {
        let needs_network = network != SandboxNetwork::None;
        let fall_back = |is_reported: &AtomicBool, why: ApiRejection| match needs_network {
            true => Err(why),
            false => {
                if !is_reported.swap(true, Ordering::Relaxed) {
                    let why = why.message;
                    report(&format!("sandboxes of /api have /workspace and /tmp alone from now on: {why}"));
                }
                Ok(None)
            }
        };
        if self.names.is_refused.load(Ordering::Relaxed) && !needs_network {
            return Ok(None);
        }
        if let Err(full) = SANDBOXES.take(owner) {
            return fall_back(&self.names.is_full_reported, full);
        }
        if let Some(id) = self.names.find(owner, name) {
            self.names.forget(&id);
        }
        let sandbox = match self.create(owner, HOST_TEMPLATE, network, Limits::new(), tenants) {
            Err(refused) if refused.code == Code::Refused => {
                return fall_back(&self.names.is_refused, refused);
            }
            made => made?,
        };
        self.names.note(sandbox.id(), owner, name).map_err(|error| {
            // One that is left is deleted by its owner, who sees it in the list.
            let _ = self.delete(sandbox.id(), owner);
            storage("the sandbox's name cannot be recorded", &error)
        })?;
        Ok(Some(sandbox))
    }
}
