//! What the runs of a sandbox use together, and whether their limits hold.

use super::super::error::Error;
use super::super::pool::SandboxSlot;
use super::error::SandboxError;
use super::locks::lock;
use super::sandbox::Sandbox;
use super::visitors::Visitor;
use crate::limits::{Key, check_at_least};
use crate::model::LimitKind;

/// The limits of a sandbox as a whole, and what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxUsage {
    /// Bytes of memory that all of its runs may use together; `None` without such a limit.
    pub memory_limit: Option<u64>,
    /// Bytes of memory that they use now, with what was read from files; `None` without limits.
    pub memory: Option<u64>,
    /// Processes that all of its runs may have at once; `None` without such a limit.
    pub processes_limit: Option<u64>,
    /// Processes and threads that they have now; `None` without limits.
    pub processes: Option<u64>,
}

impl Sandbox {
    /// Mounts it, and checks that its limits of memory and processes hold.
    pub(super) fn check_whole(&self) -> Result<(), Error> {
        let effective = self.scope.effective()?;
        let whole = self.state.whole;
        for (own, kind) in [(whole.memory_bytes, LimitKind::Memory), (whole.processes, LimitKind::Processes)]
        {
            let key = Key::Kind(kind);
            if own.is_some() {
                check_at_least(&effective, key, key.least())?;
            }
        }
        match self.enter(Visitor::Files)?.unlimited() {
            Some(reason) => Err(SandboxError::NoWholeLimits(reason.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// The limits of memory and processes of all its runs together, and what they use now.
    pub fn usage(&self) -> SandboxUsage {
        let limits = self.state.whole;
        let slot = lock(&self.state.slot).upgrade();
        let groups = slot.as_deref().and_then(SandboxSlot::groups);
        // A sandbox that is not mounted has no process.
        let unused = limits.is_limited().then_some(0);
        SandboxUsage {
            memory_limit: limits.memory_bytes,
            memory: groups.map_or(unused, |groups| groups.memory_now()),
            processes_limit: limits.processes,
            processes: groups.map_or(unused, |groups| groups.processes_now()),
        }
    }
}
