//! The sandboxes of a server, and what they can be made from.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, Uri};
use sandtimer::Engine;
use sandtimer::engine::{Sandbox, SandboxNetwork, SandboxSpec, Sandboxes, Template};
use sandtimer::limits::Limits;
use sandtimer_proxy::Capacity;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::names::SandboxNames;
use super::network;
use super::network_counts::NetworkCounts;
use super::ports::LinkKey;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::quota::{Share, Shares};
use crate::tenants::Tenants;

/// The template that every server has.
pub(crate) const HOST_TEMPLATE: &str = "host";
/// Templates of an owner's that a message names.
const MAX_NAMED_TEMPLATES: usize = 20;
/// Each takes one of the engine's slots, of which runs need the others.
pub(super) static SANDBOXES: Shares = Shares::of("sandboxes", 1_000);
/// Each keeps layers on disk.
pub(super) static TEMPLATES: Shares = Shares::of("templates", 1_000);

/// The sandboxes of a server, and what they can be made from.
#[derive(Debug)]
pub(crate) struct SandboxService {
    pub(super) sandboxes: Sandboxes,
    /// Directories that the operator has named.
    pub(super) templates: BTreeMap<String, PathBuf>,
    /// Those that clients of /api name.
    pub(super) names: SandboxNames,
    /// What each takes of what there is for all.
    shares: Mutex<HashMap<String, Share>>,
    /// How many there are that are deleted with the connection that made them.
    pub(super) owned: watch::Sender<usize>,
    /// What links to their ports are signed with.
    pub link_key: LinkKey,
    /// What their networks have done.
    pub network_counts: Arc<NetworkCounts>,
}

impl SandboxService {
    /// Opens those below a state directory that no other server uses. What their networks need runs
    /// in `runtime`.
    pub fn open(
        engine: &Engine,
        runtime: &Handle,
        state_directory: &Path,
        templates: BTreeMap<String, PathBuf>,
        tenants: &Arc<Tenants>,
        report: &dyn Fn(&str),
    ) -> Result<Self, sandtimer::Error> {
        let network_counts = Arc::new(NetworkCounts::default());
        engine.serve_networks(Arc::new(network::Networks {
            runtime: runtime.clone(),
            tenants: tenants.clone(),
            counts: network_counts.clone(),
            capacity: Capacity::default(),
        }));
        let scope = |owner: &str| tenants.scope(&OwnerId::recorded(owner));
        let sandboxes = engine.sandboxes(&state_directory.join("sandboxes"), &scope, report)?;
        let link_key = LinkKey::new().map_err(|source| {
            let doing = "cannot make the key of links to ports";
            sandtimer::Error::System { doing, source }
        })?;
        let known: HashSet<String> = sandboxes.all().iter().map(|sandbox| sandbox.id().to_owned()).collect();
        let names = SandboxNames::open(state_directory, &known, report);
        let names = names.map_err(|source| {
            let doing = "cannot read the names of sandboxes";
            sandtimer::Error::System { doing, source }
        })?;
        let shares = Mutex::default();
        let owned = watch::Sender::new(0);
        let service = SandboxService { sandboxes, templates, names, shares, owned, link_key, network_counts };
        for sandbox in service.sandboxes.all() {
            // A sandbox over the quota is kept.
            if let Ok(share) = SANDBOXES.take(&OwnerId::recorded(&sandbox.owner())) {
                service.hold(sandbox.id(), share);
            }
        }
        for template in service.sandboxes.all_templates() {
            if let Ok(share) = TEMPLATES.take(&OwnerId::recorded(&template.owner)) {
                service.hold(&template.id, share);
            }
        }
        Ok(service)
    }

    /// Has a sandbox or a template, by its id, hold a share until it is deleted.
    pub(super) fn hold(&self, id: &str, share: Share) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), share);
    }

    pub(super) fn release(&self, id: &str) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.names.forget(id);
    }

    /// The sandbox of this owner, or that there is none.
    pub fn get(&self, id: &str, owner: &OwnerId) -> Result<Sandbox, ApiRejection> {
        Ok(self.sandboxes.find(id, owner.as_str()).map_err(sandtimer::Error::from)?)
    }

    /// The owner of a sandbox, for a request to a port of it that a link allows.
    ///
    /// # Errors
    /// The query has a link that does not.
    pub fn owner_by_link(&self, uri: &Uri, headers: &HeaderMap) -> Result<Option<OwnerId>, ApiRejection> {
        Ok(self.link_key.linked_sandbox(uri, headers)?.and_then(|id| self.owner_of(id)))
    }

    /// The owner of a sandbox; `None` if there is no such sandbox.
    fn owner_of(&self, id: &str) -> Option<OwnerId> {
        self.sandboxes.owner_of(id).map(|owner| OwnerId::recorded(&owner))
    }

    fn template(&self, name: &str, owner: &OwnerId) -> Result<Template, ApiRejection> {
        if name == HOST_TEMPLATE {
            return Ok(Template::Host);
        }
        if let Some(path) = self.templates.get(name) {
            return Ok(Template::Directory(path.clone()));
        }
        let stored = self.sandboxes.templates(owner.as_str());
        if stored.iter().any(|template| template.name == name || template.id == name) {
            return Ok(Template::Stored(name.to_owned()));
        }
        let shown: String = name.chars().take(60).collect();
        let names: Vec<&str> = std::iter::once(HOST_TEMPLATE)
            .chain(self.templates.keys().map(String::as_str))
            .chain(stored.iter().take(MAX_NAMED_TEMPLATES).map(|template| template.name.as_str()))
            .collect();
        let message = format!("template: there is no template `{shown}`; use one of {}", names.join(", "));
        Err(ApiRejection::new(Code::TemplateNotFound, message).with("key", "template").with("value", shown))
    }

    /// Blocks.
    pub(super) fn create(
        &self,
        owner: &OwnerId,
        template: &str,
        network: SandboxNetwork,
        limits: Limits,
        tenants: &Tenants,
    ) -> Result<Sandbox, ApiRejection> {
        let spec = self.spec(owner, template, network, limits, tenants)?;
        Ok(self.make(spec, SANDBOXES.take(owner)?)?)
    }

    /// What a sandbox of this owner is to be.
    pub(super) fn spec(
        &self,
        owner: &OwnerId,
        template: &str,
        network: SandboxNetwork,
        limits: Limits,
        tenants: &Tenants,
    ) -> Result<SandboxSpec, ApiRejection> {
        network::check(tenants, owner, &network)?;
        Ok(SandboxSpec {
            template: self.template(template, owner)?,
            template_name: template.to_owned(),
            owner: owner.as_str().to_owned(),
            parent: tenants.scope(owner),
            network,
            limits,
        })
    }

    /// Makes a sandbox that holds this share. Blocks.
    pub(super) fn make(&self, spec: SandboxSpec, share: Share) -> Result<Sandbox, sandtimer::Error> {
        let sandbox = self.sandboxes.create(spec)?;
        self.hold(sandbox.id(), share);
        Ok(sandbox)
    }

    /// Blocks until nothing runs in it.
    pub(super) fn delete(&self, id: &str, owner: &OwnerId) -> Result<(), ApiRejection> {
        self.sandboxes.delete(id, owner.as_str())?;
        self.release(id);
        Ok(())
    }
}
