//! The groups that bound several slots together, and how often their limits were reached.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};

use super::files::keyed;
use super::kept::text;

/// The part of a limit, in 1/256, at the end of which a v1 group's peak counts as having reached
/// it: the kernel fails a charge of several pages before the last page is used.
const V1_MARGIN_SHIFT: u32 = 8;
const V1_MARGIN: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;
/// What a v1 group without a limit has in place of one is more than this.
const V1_UNLIMITED: u64 = 1 << 60;

/// A group that bounds several slots together: that of an engine, or of a sandbox.
#[derive(Debug)]
pub(super) struct OuterGroup {
    directory: Arc<OwnedFd>,
    is_v2: bool,
    /// Counts how often its own limit was reached; held open, for it is read with each run. `None`
    /// where nothing counts that.
    counter: Option<OwnedFd>,
    /// Of a sandbox with a limit of processes.
    processes: Option<ProcessBound>,
    /// Counts the forks that its own limit rejected (v2, Linux 6.12).
    pub(super) rejected_forks: Option<OwnedFd>,
}

/// A limit of processes, and the group that holds it.
#[derive(Debug)]
pub(super) struct ProcessBound {
    pub group: Arc<OwnedFd>,
    /// Without the first process of each slot.
    pub limit: u64,
}

fn open_file(directory: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn read(directory: &OwnedFd, name: &str) -> Option<u64> {
    let text = io::read_to_string(std::fs::File::from(open_file(directory, name).ok()?)).ok()?;
    text.trim().parse().ok()
}

impl OuterGroup {
    pub fn of_engine(directory: Arc<OwnedFd>, is_v2: bool) -> Self {
        // Not `memory.events`, which counts the limits of the runs' groups as well.
        let name = if is_v2 { "memory.events.local" } else { "memory.failcnt" };
        let counter = open_file(&directory, name).ok();
        OuterGroup { directory, is_v2, counter, processes: None, rejected_forks: None }
    }

    pub fn of_sandbox(directory: Arc<OwnedFd>, processes: Option<ProcessBound>, is_v2: bool) -> Self {
        let bound = processes.as_ref().filter(|_| is_v2);
        let rejected_forks = bound.and_then(|bound| open_file(&bound.group, "pids.events.local").ok());
        let counter = if is_v2 { open_file(&directory, "memory.events.local").ok() } else { None };
        OuterGroup { directory, is_v2, counter, processes, rejected_forks }
    }

    /// Returns how often its own limit of memory was reached.
    pub(super) fn hits(&self) -> u64 {
        let text = self.counter.as_ref().and_then(|counter| text(counter).ok()).unwrap_or_default();
        let hits = if self.is_v2 { keyed(&text, "oom") } else { text.trim().parse().ok() };
        hits.unwrap_or(0)
    }

    pub(super) fn rejected_forks(&self) -> u64 {
        let text = self.rejected_forks.as_ref().and_then(|file| text(file).ok()).unwrap_or_default();
        keyed(&text, "max").unwrap_or(0)
    }

    pub(super) fn limit(&self) -> Option<u64> {
        let name = if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        read(&self.directory, name).filter(|limit| *limit < V1_UNLIMITED)
    }

    /// Whether the memory limit of a sandbox was reached; with v2 more often than `before`. For v1
    /// the peak since it was last without runs stands for that: `memory.failcnt` also counts what
    /// was reclaimed, and in Linux 6.18 nothing of a group below another.
    pub(super) fn was_at_memory_limit(&self, before: u64) -> bool {
        if self.is_v2 {
            return self.hits() > before;
        }
        let peak = read(&self.directory, "memory.max_usage_in_bytes");
        peak.zip(self.limit()).is_some_and(|(peak, limit)| is_at_limit(peak, limit))
    }

    /// Whether there were ever as many processes at once as its limit allows.
    pub(super) fn was_at_process_limit(&self) -> bool {
        self.processes.as_ref().is_some_and(|bound| {
            // Kernels before 6.1 count no peak.
            read(&bound.group, "pids.peak").is_none_or(|peak| peak >= bound.limit)
        })
    }
}

/// What bounds a slot together with others.
#[derive(Debug, Clone, Default)]
pub(super) struct OuterBounds {
    pub engine: Option<Arc<OuterGroup>>,
    /// There if its sandbox has limits.
    pub sandbox: Option<Arc<OuterGroup>>,
}

/// How often limits of these were reached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OuterHits {
    pub(super) engine: u64,
    pub(super) sandbox: u64,
    pub(super) rejected_forks: u64,
}

impl OuterBounds {
    /// Returns how often their limits were reached so far.
    pub fn hits(&self) -> OuterHits {
        let sandbox = self.sandbox.as_ref();
        OuterHits {
            engine: self.engine.as_ref().map_or(0, |engine| engine.hits()),
            sandbox: sandbox.map_or(0, |sandbox| sandbox.hits()),
            rejected_forks: sandbox.map_or(0, |sandbox| sandbox.rejected_forks()),
        }
    }
}

/// Whether a v1 group with this peak has reached its limit.
pub(super) fn is_at_limit(peak: u64, limit: u64) -> bool {
    let margin = (limit >> V1_MARGIN_SHIFT).clamp(*V1_MARGIN.start(), *V1_MARGIN.end());
    peak.saturating_add(margin) >= limit
}
