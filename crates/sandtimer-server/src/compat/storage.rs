//! Where a sandbox of the package has its files.
//!
//! ```text
//! first use ─▶ a sandbox of the engine, found by its name after a restart, too
//!          │     └▶ deleted, or ended at a limit: the next use makes another
//!          ├▶ a workspace and a /tmp, if this host cannot make sandboxes
//!          └▶ the workspace that an earlier version made for the name, until that is deleted
//! ```
//! All that is started for the package is started in the sandbox: sessions, code contexts,
//! commands and processes share its files and its network. `/workspace` is the sandbox's own, as
//! the engine shows a run in a sandbox no directories from outside.

use std::path::Path;
use std::sync::Arc;

use sandtimer::Limits;
use sandtimer::engine::{Sandbox, SandboxNetwork};

use crate::auth::OwnerId;
use crate::contexts::{ContextRequest, ContextService};
use crate::error::ApiRejection;
use crate::files::{FilePath, FileSource, SandboxRoot};
use crate::registry::OwnedResource;
use crate::runs::{RunLocation, ScriptRun};
use crate::workspaces::{TemporaryDirectory, Workspace};

/// Where commands begin by default.
pub(super) const WORKSPACE: &str = "/workspace";
/// The home directory, too.
const TEMPORARY: &str = "/tmp";

/// What the user of a sandbox may write.
pub(super) const WRITABLE_DIRECTORIES: [&str; 4] = [WORKSPACE, TEMPORARY, "/var/tmp", "/home/user"];

/// Where a sandbox of the package has its files.
#[derive(Debug, Clone)]
pub(super) enum SandboxStorage {
    /// In a sandbox of the engine.
    Sandbox(Sandbox),
    /// In directories of its own, without any other files that stay.
    Directories(OwnDirectories),
}

/// A workspace, and the /tmp that goes with it.
#[derive(Debug, Clone)]
pub(super) struct OwnDirectories {
    workspace: Arc<Workspace>,
    temporary: Arc<TemporaryDirectory>,
}

impl OwnDirectories {
    /// Whether they were not removed yet.
    pub fn is_there(&self, service: &ContextService) -> bool {
        let (id, owner) = (self.workspace.id_str(), OwnedResource::owner(&*self.workspace));
        service.runs.workspaces.find(id, owner).is_some()
    }
}

/// A file of a sandbox, and where it is.
#[derive(Debug)]
pub(super) struct LocatedFile {
    /// What its path is in.
    pub files: Arc<dyn FileSource>,
    /// Where commands see that.
    pub mount_path: &'static str,
    pub file_path: FilePath,
}

impl LocatedFile {
    /// Whether its path, links apart, is below a directory that commands may write.
    pub fn is_below_writable(&self) -> bool {
        let path = Path::new("/").join(self.mount_path).join(self.file_path.path());
        WRITABLE_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
    }
}

impl SandboxStorage {
    /// That of the sandbox with this name, made if there is none. Blocks.
    pub fn find_or_make(
        service: &ContextService,
        owner: &OwnerId,
        name: &str,
        network: SandboxNetwork,
    ) -> Result<Self, ApiRejection> {
        let (sandboxes, workspaces) = (&service.runs.sandboxes, &service.runs.workspaces);
        if let Some(sandbox) = sandboxes.named(owner, name) {
            return Ok(SandboxStorage::Sandbox(sandbox));
        }
        let workspace = match workspaces.of_sandbox(owner, name) {
            Some(known) => known,
            None => {
                let core = &service.runs.core;
                let report = |line: &str| (core.host.log_error)(line);
                let made = sandboxes.create_named(owner, name, network, &core.tenants, &report)?;
                if let Some(sandbox) = made {
                    return Ok(SandboxStorage::Sandbox(sandbox));
                }
                workspaces.create(owner, Some(name))?
            }
        };
        let temporary = workspaces.temporary_of(owner, &workspace)?;
        Ok(SandboxStorage::Directories(OwnDirectories { workspace, temporary }))
    }

    /// What it may reach outside.
    pub fn network(&self) -> SandboxNetwork {
        match self {
            SandboxStorage::Sandbox(sandbox) => sandbox.network().clone(),
            SandboxStorage::Directories(_) => SandboxNetwork::None,
        }
    }

    fn location(self) -> RunLocation {
        match self {
            SandboxStorage::Sandbox(sandbox) => RunLocation::Sandbox(sandbox.id().to_owned()),
            SandboxStorage::Directories(OwnDirectories { workspace, temporary }) => {
                RunLocation::Workspace(workspace.id_str().to_owned(), temporary)
            }
        }
    }

    /// A script for a run here.
    pub fn script(self, text: String, limits: Limits) -> ScriptRun {
        let environment = vec![("HOME".to_owned(), TEMPORARY.to_owned())];
        ScriptRun { text, environment, location: self.location(), limits, detach: false }
    }

    /// A context that is to be opened here.
    pub fn context(self, mut request: ContextRequest) -> ContextRequest {
        request.environment.entry("HOME".to_owned()).or_insert_with(|| TEMPORARY.to_owned());
        request.enter(self.location());
        request
    }

    /// The file at an absolute path.
    pub fn locate(self, path: &str) -> Result<LocatedFile, ApiRejection> {
        let OwnDirectories { workspace, temporary } = match self {
            SandboxStorage::Sandbox(sandbox) => {
                let file_path = FilePath::parse_absolute(path)?;
                let files = Arc::new(SandboxRoot::new(sandbox));
                return Ok(LocatedFile { files, mount_path: "", file_path });
            }
            SandboxStorage::Directories(directories) => directories,
        };
        let (mount_path, files): (_, Arc<dyn FileSource>) = match Path::new(path).starts_with(TEMPORARY) {
            true => (TEMPORARY, temporary.files().clone()),
            false => (WORKSPACE, workspace),
        };
        Ok(LocatedFile { files, mount_path, file_path: FilePath::parse_at(mount_path, path)? })
    }
}
