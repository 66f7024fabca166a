//! Limits of each process, which the kernel enforces.

use crate::isolate::plan::ProcessLimits;
use crate::limits::EffectiveLimits;
use crate::model::LimitKind;

/// Size of the private directories where no disk limit is set, as far as memory allows.
const PRIVATE_BYTES: u64 = 1 << 34;

pub(crate) fn process_limits(effective: &EffectiveLimits) -> ProcessLimits {
    let value = |kind: LimitKind| effective.get(kind).map(|effect| effect.value);
    let memory = value(LimitKind::Memory);
    ProcessLimits {
        // A second later than the group's budget, which the enforcer holds: per process, for when
        // all else is dead.
        cpu_seconds: value(LimitKind::Cpu).map(|nanoseconds| nanoseconds.div_ceil(1_000_000_000) + 1),
        memory_bytes: memory,
        processes: value(LimitKind::Processes),
        open_files: value(LimitKind::OpenFiles),
        disk_bytes: value(LimitKind::Disk),
        private_bytes: value(LimitKind::Disk).unwrap_or(PRIVATE_BYTES).min(memory.unwrap_or(PRIVATE_BYTES)),
    }
}
