//! All contexts of a server.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::FromRef;
use sandtimer::engine::Stats;
use sandtimer_os::clock::calendar_milliseconds;

use super::context::LiveContext;
use super::ended_contexts::EndedContexts;
use super::images::Images;
use super::pools::Pools;
use super::shells::Shells;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::intake::Messages;
use crate::policy::{Defaults, Interpreters};
use crate::quota::Shares;
use crate::registry::Registry;
use crate::runs::RunService;
use crate::settings::MAX_BLOCKING_THREADS;

/// What is opened, executed, undone, branched or waits in contexts: each on one of the threads
/// ([`MAX_BLOCKING_THREADS`]) of which the disk needs some, too.
pub(super) static CONTEXT_SHARES: Shares = Shares::of("executions in contexts", MAX_BLOCKING_THREADS * 7 / 8);

/// All contexts, what is executed in them, and where their interpreters and shells come from.
#[derive(Debug)]
pub(crate) struct ContextService {
    pub runs: Arc<RunService>,
    pub(super) defaults: Defaults,
    pub(super) registry: Registry<LiveContext>,
    pub(super) pools: Pools,
    pub(super) images: Images,
    /// Something is executed on a thread of the runtime's own.
    pub(super) is_one_here: AtomicBool,
    pub(super) shells: Shells,
    pub(super) ended: EndedContexts,
}

impl ContextService {
    /// Those of a server that begins now.
    ///
    /// # Errors
    /// Where what earlier servers have left in the state directory cannot be read.
    pub fn open(
        state_directory: &Path,
        runs: &Arc<RunService>,
        defaults: Defaults,
        interpreters: Interpreters,
    ) -> io::Result<Self> {
        let interpreters = Arc::new(interpreters);
        Ok(ContextService {
            runs: runs.clone(),
            defaults,
            registry: Registry::default(),
            pools: Pools::new(runs.clone(), interpreters.clone()),
            images: Images::default(),
            is_one_here: AtomicBool::new(false),
            shells: Shells::new(runs.clone(), interpreters),
            ended: EndedContexts::open(state_directory, calendar_milliseconds())?,
        })
    }

    /// Notes one that is open, for a later server. Blocks.
    pub(super) fn note(&self, context: &LiveContext) {
        self.ended.note(context);
    }

    pub fn find(&self, id: &str, owner: &OwnerId) -> Option<Arc<LiveContext>> {
        self.registry.find(id, owner)
    }

    /// The context of this owner, or why there is none.
    pub fn get(&self, id: &str, owner: &OwnerId) -> Result<Arc<LiveContext>, ApiRejection> {
        self.find(id, owner).ok_or_else(|| {
            if let Some(reason) = self.ended.reason(id, owner) {
                return reason;
            }
            let shown: String = id.chars().take(60).collect();
            ApiRejection::new(Code::ContextNotFound, format!("there is no context `{shown}`"))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.registry.all().is_empty()
    }

    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<LiveContext>> {
        self.registry.of(owner)
    }

    /// Has one that is open found by its owner.
    pub(super) fn add(&self, context: Arc<LiveContext>) {
        self.registry.add(context);
    }

    /// Makes the first interpreters of owners ready. Blocks.
    pub fn fill(&self, owners: &[OwnerId]) {
        self.pools.fill(owners);
    }

    /// What the pools of each language have done.
    pub fn pool_stats(&self) -> Vec<(&'static str, Stats)> {
        self.pools.stats()
    }

    /// Pre-warm scripts of shells that have failed.
    pub fn shell_prewarm_failures(&self) -> u64 {
        self.shells.failures()
    }
}

/// Does work on a context on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiRejection> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiRejection::new(Code::Internal, "the context could not be used"))
}

impl FromRef<Arc<ContextService>> for Messages {
    fn from_ref(service: &Arc<ContextService>) -> Self {
        service.runs.core.messages.clone()
    }
}
