//! One context, as the server knows it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::engine::{Context, RunOutput, Sandbox};
use sandtimer::{Limits, Run};
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use serde_json::{Value, json};

use super::request::ContextLanguage;
use crate::auth::OwnerId;
use crate::files::{FileSource, SandboxRoot};
use crate::quota::QuotaPermit;
use crate::registry::OwnedResource;
use crate::runs::LiveRun;
use crate::workspaces::{TemporaryDirectory, Workspace, WorkspaceUse};

/// Runs of a context whose remaining processes are read after their end.
const MAX_LEFT_OUTPUTS: usize = 32;

/// One context, as the server knows it.
#[derive(Debug)]
pub(crate) struct LiveContext {
    pub(super) id: String,
    pub(super) owner: OwnerId,
    pub(super) language: ContextLanguage,
    pub(super) created_at_ms: u64,
    pub(super) idle: Option<Duration>,
    pub(super) each: Limits,
    /// What is not as it was to be.
    pub(super) warnings: Vec<String>,
    /// Its place under its owner's quota.
    pub(super) quota_permit: Mutex<Option<QuotaPermit>>,
    pub(super) context: Context,
    pub(super) files: ContextFiles,
    /// The output of runs that left something running here, the latest ones: what that writes is
    /// read from there.
    pub(super) left: Mutex<VecDeque<Arc<RunOutput>>>,
    /// Keeps directories that are not its own, until it is closed.
    pub(super) using: Mutex<Option<WorkspaceUse>>,
    pub(super) temporary: Mutex<Option<Arc<TemporaryDirectory>>>,
    /// When it was last used, in monotonic nanoseconds.
    pub(super) used: AtomicU64,
    /// A task is about to settle it.
    pub(super) is_to_rest: AtomicBool,
}

impl OwnedResource for LiveContext {
    fn id(&self) -> &str {
        &self.id
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl LiveContext {
    /// Makes a context that is not registered yet.
    pub(super) fn new(
        owner: OwnerId,
        begun: ContextStart,
        context: Context,
        directories: Directories,
        quota_permit: QuotaPermit,
    ) -> Arc<Self> {
        Arc::new(LiveContext {
            id: crate::id::new_id(),
            owner,
            language: begun.language,
            created_at_ms: calendar_milliseconds(),
            idle: begun.idle,
            each: begun.each,
            warnings: begun.warnings,
            quota_permit: Mutex::new(Some(quota_permit)),
            context,
            files: directories.files,
            left: Mutex::default(),
            using: Mutex::new(directories.using),
            temporary: Mutex::new(directories.temporary),
            used: AtomicU64::new(monotonic_nanoseconds()),
            is_to_rest: AtomicBool::new(false),
        })
    }

    pub fn id_str(&self) -> &str {
        &self.id
    }

    /// What it works in, outside of a sandbox.
    pub fn workspace(&self) -> Option<&Arc<Workspace>> {
        match &self.files {
            ContextFiles::Workspace(workspace) => Some(workspace),
            ContextFiles::Sandbox(_) => None,
        }
    }

    /// A workspace that is not its own.
    pub(super) fn named_workspace(&self) -> Option<&Arc<Workspace>> {
        self.workspace().filter(|workspace| !workspace.is_own())
    }

    /// The id of the sandbox that it is in.
    pub fn sandbox(&self) -> Option<&str> {
        match &self.files {
            ContextFiles::Workspace(_) => None,
            ContextFiles::Sandbox(sandbox) => Some(sandbox.id()),
        }
    }

    /// Whether its sandbox is paused.
    pub(super) fn is_in_paused_sandbox(&self) -> bool {
        matches!(&self.files, ContextFiles::Sandbox(sandbox) if sandbox.is_paused())
    }

    /// The files that it works with.
    pub fn files(&self) -> Arc<dyn FileSource> {
        match &self.files {
            ContextFiles::Workspace(workspace) => workspace.clone(),
            ContextFiles::Sandbox(sandbox) => Arc::new(SandboxRoot::new(sandbox.clone())),
        }
    }

    pub fn language(&self) -> ContextLanguage {
        self.language
    }

    pub fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    pub fn waiting(&self) -> usize {
        self.context.info().waiting
    }

    /// Whether nothing is executed and nothing waits.
    pub fn is_free(&self) -> bool {
        self.waiting() == 0 && self.context.running().is_none_or(|run| run.has_finished())
    }

    pub fn interrupt(&self) -> bool {
        self.context.interrupt()
    }

    /// The directory that is its /tmp and not its own, unless it is closed.
    pub(super) fn temporary(&self) -> Option<Arc<TemporaryDirectory>> {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn touch(&self) {
        self.used.store(monotonic_nanoseconds(), Ordering::Relaxed);
    }

    /// Keeps the output of a run that left something running, for readers of what that writes.
    pub(super) fn keep_left(&self, live: &LiveRun, run: &Run) {
        let output = Arc::new(run.captured_output());
        live.set_left(&output);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push_back(output);
        if left.len() > MAX_LEFT_OUTPUTS {
            left.pop_front();
        }
    }

    /// How long it may still be unused. `None` is without end.
    pub(super) fn idle_left(&self) -> Option<Duration> {
        self.idle.map(|idle| idle.saturating_sub(self.unused()))
    }

    /// For how long it has been unused.
    pub(super) fn unused(&self) -> Duration {
        let used = self.used.load(Ordering::Relaxed);
        Duration::from_nanos(monotonic_nanoseconds().saturating_sub(used))
    }

    pub fn view(&self) -> Value {
        let info = self.context.info();
        let running = self.context.running();
        let mut view = json!({
            "context_id": self.id,
            "language": self.language.name(),
            "workspace": self.named_workspace().map(|workspace| workspace.id_str()),
            "network": self.context.has_network(),
            "status": if running.is_some() { "busy" } else { "idle" },
            "run_id": running.as_ref().map(|run| run.id()),
            "waiting": info.waiting,
            "executions": info.executions,
            "checkpoint": info.checkpoint.is_ok(),
            "no_checkpoint_because": info.checkpoint.err(),
            "can_undo": info.can_undo,
            "created_at_ms": self.created_at_ms,
            "idle_ms": self.idle.map(milliseconds),
            "idle_left_ms": self.idle_left().map(milliseconds),
            "warnings": self.warnings,
        });
        if let Some(sandbox) = self.sandbox() {
            view["sandbox"] = sandbox.into();
        }
        view
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whose files a context works with.
#[derive(Debug)]
pub(super) enum ContextFiles {
    Workspace(Arc<Workspace>),
    Sandbox(Sandbox),
}

/// What a context works in.
pub(super) struct Directories {
    pub files: ContextFiles,
    /// Keeps a workspace that is not its own.
    pub using: Option<WorkspaceUse>,
    pub temporary: Option<Arc<TemporaryDirectory>>,
}

/// What a context is made with, besides its interpreter.
pub(super) struct ContextStart {
    pub language: ContextLanguage,
    pub idle: Option<Duration>,
    pub each: Limits,
    pub warnings: Vec<String>,
}
