//! The limits, directories and isolation of a context.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::named_directories::NamedDirectories;
use super::super::pre_warmer::ChildPool;
use super::super::sandboxes::Sandbox;
use super::super::spec::{Require, Spec};
use super::image_account::ImageAccount;
use super::prewarm_script::ShellPrewarm;
use crate::limits::Limits;
use crate::model::Source;
use crate::scope::ScopeId;

/// The limits, directories and isolation of a context.
#[derive(Debug, Clone, Default)]
pub struct ContextSpec {
    /// What holds for the context as a whole: memory, processes, open files, disk.
    pub limits: Limits,
    /// Limits with lower precedence than `limits`, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// The scope that the context belongs to; none by default.
    pub parent: Option<ScopeId>,
    /// As [`Spec::owner`], for a session; an interpreter of a pool has the owner of the pool's
    /// profile.
    pub owner: Option<Arc<str>>,
    /// The minimum of isolation; with less the context is not opened.
    pub require: Require,
    /// Variables added to the clean environment.
    pub environment: HashMap<String, String>,
    /// Where it begins, inside; made if it is not there. Its workspace by default.
    pub directory: Option<String>,
    /// A directory made by [`make_workspace`](crate::engine::make_workspace) that is its
    /// /workspace. Without it, one of its own.
    pub workspace: Option<PathBuf>,
    /// A directory made by [`make_temporary_directory`](crate::engine::make_temporary_directory)
    /// that is its /tmp and its home directory, and may be that of others too. Without it, a
    /// private one that goes with it.
    pub temporary: Option<PathBuf>,
    /// The sandbox that it is in, in place of a workspace and a temporary directory: its files are
    /// the sandbox's. An interpreter of a pool can be in a sandbox of the template
    /// [`Template::Host`](crate::engine::Template::Host) only.
    pub sandbox: Option<Sandbox>,
    /// The host's network, for a session; for an interpreter of a pool the pool's profile decides.
    pub network: bool,
    /// Its cells are TypeScript, for a JavaScript interpreter.
    pub typescript: bool,
    /// What bounds the images of this context, of its branches, and of all others with the same
    /// account.
    pub images: Option<ImageAccount>,
    /// What each of its shells runs before the first command, for a session.
    pub prewarm: Option<Arc<ShellPrewarm>>,
}

impl ContextSpec {
    /// What it shows of the host, unless all of it is its own.
    pub(super) fn directories(&self) -> Option<NamedDirectories> {
        let (workspace, temporary) = (self.workspace.clone(), self.temporary.clone());
        let sandbox = self.sandbox.clone();
        let is_named = workspace.is_some() || temporary.is_some() || sandbox.is_some();
        is_named.then_some(NamedDirectories { workspace, temporary, sandbox })
    }
}

/// What an interpreter begins with, as JSON; or that it is to become an image.
pub(super) fn variables(spec: &ContextSpec, branch: bool) -> serde_json::Value {
    serde_json::json!({"environment": spec.environment, "directory": spec.directory, "branch": branch})
}

/// What an interpreter of this profile is called, for messages.
fn interpreter_name(source: &ChildPool) -> OsString {
    source.profile.interpreter.clone()
}

/// What an interpreter of a context is planned by, as a run.
pub(super) fn run_of(source: &ChildPool, spec: &ContextSpec) -> Spec {
    let mut run = Spec::command([interpreter_name(source)]);
    run.limits = spec.limits.clone();
    run.defaults = spec.defaults.clone();
    run.parent = spec.parent;
    run.require = spec.require;
    run.sandbox = spec.sandbox.clone();
    run
}
