//! A sandbox and the set of all, as their state.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, Weak};

use super::super::inner::Inner;
use super::super::pool::SandboxSlot;
use super::super::scopes::ScopeHandle;
use super::ended::EndedSandboxes;
use super::layers::Layers;
use super::lifetime::{Freezable, Lifetime, SandboxLimit};
use super::mounted::MountedRoot;
use super::network_server::SandboxNetwork;
use super::record::{Home, Record};
use super::stored::StoredTemplate;
use super::visitors::Visitors;
use super::whole::WholeLimits;
use crate::limits::ScopeBound;
use crate::scope::ScopeId;
use crate::supervise::commands::{EnforcerCommand, EnforcerHandle};
use crate::supervise::denials::NetworkDenials;
use crate::supervise::run::SharedRun;
use crate::supervise::waiting::RunNotifier;

/// All sandboxes below one directory.
#[derive(Debug)]
pub struct Sandboxes {
    pub(super) inner: Arc<Inner>,
    pub(super) directory: PathBuf,
    pub(super) all: Mutex<BTreeMap<String, Sandbox>>,
    pub(super) layers: Arc<Layers>,
    /// By their ids.
    pub(super) templates: Arc<Mutex<BTreeMap<String, StoredTemplate>>>,
    pub(super) ended: EndedSandboxes,
}

/// A sandbox. Clones are cheap; the sandbox remains when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(super) inner: Arc<Inner>,
    pub(super) state: Arc<SandboxState>,
    /// What all of its runs are opened in.
    pub(super) scope: Arc<ScopeHandle>,
}

/// What a sandbox is, as its runs share it. Holds nothing of the engine's that would keep the
/// engine alive.
#[derive(Debug)]
pub(super) struct SandboxState {
    pub(super) id: String,
    /// Of the record, which never change: to be read without its lock, which is held while files
    /// are renamed and synced.
    pub(super) owner: String,
    pub(super) template_name: String,
    pub(super) created_at_ms: u64,
    pub(super) network: SandboxNetwork,
    /// Connections that its network was refused.
    pub(super) denials: Arc<NetworkDenials>,
    pub(super) home: Home,
    pub(super) layers: Arc<Layers>,
    pub(super) record: Mutex<Record>,
    pub(super) life: Mutex<Life>,
    /// Notified when a run lets it go.
    pub(super) released: Condvar,
    pub(super) visitors: Visitors,
    /// As `is_deleted` in `life`, for such readers.
    pub(super) is_closed: AtomicBool,
    pub(super) lifetime: Lifetime,
    /// Of memory and processes, under what bounds it from outside.
    pub(super) whole: WholeLimits,
    /// These, for verdicts.
    pub(super) bound: Arc<ScopeBound>,
    /// The row of the mounted root, for readers that are not to wait for a mount.
    pub(super) slot: Mutex<Weak<SandboxSlot>>,
}

#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) is_deleted: bool,
    /// The limit that it is deleted for.
    pub(super) ending: Option<SandboxLimit>,
    pub(super) mounted: Option<Arc<MountedRoot>>,
    /// What holds it: runs, also those that are being started, and work with its files.
    pub(super) users: usize,
    pub(super) runs: Vec<RunHandle>,
    /// Of its live contexts and sessions.
    pub(super) jails: Vec<Freezable>,
}

/// A run in a sandbox, as far as its deletion needs it.
#[derive(Debug)]
pub(super) struct RunHandle {
    pub(super) slot_index: usize,
    pub(super) id: String,
    pub(super) waiting: Arc<RunNotifier>,
    pub(super) running: Weak<SharedRun>,
    pub(super) scope: ScopeId,
}

impl RunHandle {
    /// Ends it without waiting for a grace.
    pub(super) fn end(&self, enforcer: &EnforcerHandle, reason: &str) {
        for _ in 0..2 {
            let reason = reason.to_owned();
            enforcer.send(EnforcerCommand::Cancel {
                slot_index: self.slot_index,
                id: self.id.clone(),
                reason,
            });
        }
    }
}
