//! What a sandbox may use as a whole: memory and processes of all its runs, contexts and sessions
//! together.
//!
//! The kernel holds it in the groups of the sandbox's slot
//! ([`SandboxGroups`](crate::isolate::cgroup::SandboxGroups)), in which those of its runs are. It
//! bounds the limits of each run as well, as those of every outer scope do.

use serde::{Deserialize, Serialize};

use super::error::SandboxError;
use crate::isolate::cgroup::SlotLimits;
use crate::limits::{Key, Limits, ScopeBound, ScopeLocation, Setting};
use crate::model::LimitKind;

/// What a sandbox can be limited in.
const KINDS: [LimitKind; 4] = [LimitKind::Idle, LimitKind::Wall, LimitKind::Memory, LimitKind::Processes];

/// What a record says of the limits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WholeLimits {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
}

/// Rejects limits that a sandbox as a whole cannot have.
pub(super) fn check(limits: &Limits) -> Result<(), SandboxError> {
    let is_other = |key: &Key| !KINDS.iter().any(|kind| Key::Kind(*kind) == *key);
    match Key::ALL.into_iter().filter(is_other).find(|key| matches!(limits.get(*key), Setting::At(_))) {
        Some(key) => Err(SandboxError::NoSuchLimit(key.wire())),
        None => Ok(()),
    }
}

impl WholeLimits {
    pub fn new(limits: &Limits) -> Self {
        let value = |kind| match limits.get(kind) {
            Setting::At(value) => Some(value),
            _ => None,
        };
        WholeLimits { memory_bytes: value(LimitKind::Memory), processes: value(LimitKind::Processes) }
    }

    pub fn is_limited(self) -> bool {
        self != WholeLimits::default()
    }

    /// With these limits in the sandbox's scope.
    pub fn in_scope(self, limits: Limits) -> Limits {
        let limits = self.memory_bytes.map_or(limits.clone(), |bytes| limits.memory(bytes));
        self.processes.map_or(limits.clone(), |count| limits.processes(count))
    }

    /// Under what bounds the sandbox's scope, where that is less.
    pub fn bounded(self, bound: impl Fn(LimitKind) -> Option<u64>) -> Self {
        let least = |own: Option<u64>, kind| own.map(|own| bound(kind).map_or(own, |bound| bound.min(own)));
        WholeLimits {
            memory_bytes: least(self.memory_bytes, LimitKind::Memory),
            processes: least(self.processes, LimitKind::Processes),
        }
    }

    /// As a verdict names them if all runs of the sandbox have reached one together.
    pub fn in_verdicts(self, location: ScopeLocation) -> ScopeBound {
        let bound = ScopeBound::new(location);
        let limits = [(LimitKind::Memory, self.memory_bytes), (LimitKind::Processes, self.processes)];
        limits.into_iter().fold(bound, |bound, (kind, limit)| match limit {
            Some(limit) => bound.with(kind, limit),
            None => bound,
        })
    }

    pub fn of_slot(self) -> SlotLimits {
        SlotLimits { memory_bytes: self.memory_bytes, processes: self.processes }
    }
}
