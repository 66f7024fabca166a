//! A sandbox that lives as long as something else.

use sandtimer::engine::{Sandbox, SandboxNetwork};
use sandtimer::limits::Limits;
use sandtimer::scope::ScopeId;
use tokio::runtime::Handle;

use super::close;
use crate::SharedApp;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};

/// A sandbox that is deleted when this is dropped. If the server is killed before, the sandbox's
/// own limits end it.
#[derive(Debug)]
pub(crate) struct OwnedSandbox {
    app: SharedApp,
    owner: OwnerId,
    sandbox: Sandbox,
}

impl OwnedSandbox {
    pub async fn create(
        app: SharedApp,
        owner: OwnerId,
        template: String,
        limits: Limits,
    ) -> Result<Self, ApiRejection> {
        let made = tokio::task::spawn_blocking(move || {
            let network = SandboxNetwork::None;
            let sandbox = app.sandbox_service.create(&owner, &template, network, limits, &app.tenants)?;
            Ok(OwnedSandbox { app, owner, sandbox })
        });
        made.await.map_err(|_| ApiRejection::new(Code::Internal, "the sandbox could not be made"))?
    }

    pub fn id(&self) -> &str {
        self.sandbox.id()
    }

    pub fn scope(&self) -> ScopeId {
        self.sandbox.scope()
    }
}

impl Drop for OwnedSandbox {
    fn drop(&mut self) {
        // Without a runtime the server is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let (app, owner, id) = (self.app.clone(), self.owner.clone(), self.sandbox.id().to_owned());
        runtime.spawn(async move {
            let (service, deleted) = (app.clone(), id.clone());
            // What is left is ended by its idle limit.
            let _ = close(&app, &id, move || service.sandbox_service.delete(&deleted, &owner)).await;
        });
    }
}
