//! Which limit was reached when the kernel killed a run for lack of memory: the run's own, the one
//! of all runs of the engine, or neither.
//!
//! A v2 group counts in `memory.events` how often its own limit, or one below it, left the kernel
//! nothing but a kill (`oom`), and which of its processes were killed because of any limit
//! (`oom_kill`). A v1 group counts only the latter: there a peak at the limit counts as the former,
//! so that a run that had filled its limit with cached files before is counted as having reached
//! it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};

use super::kept::text;
use super::{Counters, Slot, keyed};

/// Where memory had run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// In the run's own group.
    Own,
    /// In the group of all runs of the engine; with its limit in bytes, as far as it can be read.
    Engine(Option<u64>),
    /// In a group above the engine's, or on the whole machine.
    Outside,
}

/// The part of a limit, in 1/256, at the end of which a v1 group's peak counts as having reached
/// it: the kernel fails a charge of several pages before the last page is used.
const V1_MARGIN_SHIFT: u32 = 8;
const V1_MARGIN: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;
/// What a v1 group without a limit has in place of one is more than this.
const V1_UNLIMITED: u64 = 1 << 60;

/// The group of all runs of an engine, which bounds their memory.
#[derive(Debug)]
pub(super) struct EngineGroup {
    directory: OwnedFd,
    is_v2: bool,
    /// Counts how often its own limit was reached; held open, for it is read with each run. `None`
    /// where nothing counts that.
    counter: Option<OwnedFd>,
}

impl EngineGroup {
    pub fn new(directory: OwnedFd, is_v2: bool) -> Self {
        // Not `memory.events`, which counts the limits of the runs' groups as well.
        let name = if is_v2 { "memory.events.local" } else { "memory.failcnt" };
        let counter = openat(&directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        EngineGroup { directory, is_v2, counter }
    }

    fn read(&self, name: &str) -> String {
        let file = openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        file.ok().and_then(|file| io::read_to_string(std::fs::File::from(file)).ok()).unwrap_or_default()
    }

    /// Returns how often its own limit was reached.
    fn hits(&self) -> u64 {
        let text = self.counter.as_ref().and_then(|counter| text(counter).ok()).unwrap_or_default();
        let hits = if self.is_v2 { keyed(&text, "oom") } else { text.trim().parse().ok() };
        hits.unwrap_or(0)
    }

    fn limit(&self) -> Option<u64> {
        let name = if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        self.read(name).trim().parse().ok().filter(|limit| *limit < V1_UNLIMITED)
    }
}

/// Whether a v1 group with this peak has reached its limit.
fn is_at_limit(peak: u64, limit: u64) -> bool {
    let margin = (limit >> V1_MARGIN_SHIFT).clamp(*V1_MARGIN.start(), *V1_MARGIN.end());
    peak.saturating_add(margin) >= limit
}

impl Slot {
    /// Returns how often the limit of all runs was reached so far.
    pub(super) fn engine_hits(&self) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.hits())
    }

    /// Notes that a run begins: what the limit of all runs was reached for before was for others.
    pub fn begin_run(&mut self) {
        self.engine_hits_at_start = self.engine_hits();
    }

    /// Returns where memory had run out; `None` where the kernel killed nothing of the run for
    /// that. `used` is what the run has counted.
    pub fn shortage(&self, used: &Counters) -> Option<Shortage> {
        if used.out_of_memory_kills == 0 {
            return None;
        }
        if self.has_reached_own_limit(used) {
            return Some(Shortage::Own);
        }
        // It may have been reached for another run since this one began.
        let engine = self.engine.as_ref().filter(|engine| engine.hits() > self.engine_hits_at_start);
        Some(engine.map_or(Shortage::Outside, |engine| Shortage::Engine(engine.limit())))
    }

    fn has_reached_own_limit(&self, used: &Counters) -> bool {
        if self.v2_limits {
            return used.memory_limit_hits > 0;
        }
        let Some(group) = &self.memory else { return true };
        let limit = self.kept.read(group.as_fd(), "memory.limit_in_bytes").unwrap_or_default();
        match (self.memory_peak(), limit.trim().parse()) {
            (Some(peak), Ok(limit)) => is_at_limit(peak, limit),
            // What cannot be read is attributed to the run, as if there were no group above.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::super::SlotLimits;
    use super::super::kept::CounterFiles;
    use super::*;

    /// A slot over directories of plain files, in place of groups.
    fn slot(engine: &Path, run: &Path, is_v2: bool) -> Slot {
        let open = |path: &Path| super::super::open_directory(path).expect("a directory");
        let group = || Some(Arc::new(open(run)));
        Slot {
            index: 0,
            unified: if is_v2 { group() } else { None },
            kill: None,
            memory: if is_v2 { None } else { group() },
            pids: None,
            tasks: Vec::new(),
            kept: Arc::new(CounterFiles::of_slot(0)),
            is_new: false,
            v2_limits: is_v2,
            limits: None,
            peak: None,
            start: Counters::default(),
            start_run_queue: 0,
            engine: Some(Arc::new(EngineGroup::new(open(engine), is_v2))),
            engine_hits_at_start: 2,
        }
    }

    fn write(directory: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            std::fs::write(directory.join(name), text).expect("written");
        }
    }

    fn found(slot: &Slot) -> Option<Shortage> {
        slot.shortage(&slot.used())
    }

    #[test]
    fn v2_run_names_the_group_that_ran_out() {
        let (engine, run) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
        write(engine.path(), &[("memory.events.local", "oom 2\n")]);
        let slot = slot(engine.path(), run.path(), true);
        let run_has = |events: &str| write(run.path(), &[("memory.events", events)]);
        let engine_has = |local: &str| {
            // Of its own limit and of those of all runs: only the former is evidence about this
            // run.
            write(engine.path(), &[("memory.events.local", local), ("memory.events", "oom 9\noom_kill 9\n")]);
        };
        write(engine.path(), &[("memory.max", "4096\n")]);
        engine_has("oom 2\noom_kill 0\n");
        run_has("max 7\noom 0\noom_kill 0\noom_group_kill 0\n");
        assert_eq!(found(&slot), None);
        run_has("max 7\noom 1\noom_kill 3\noom_group_kill 1\n");
        assert_eq!(found(&slot), Some(Shortage::Own));
        run_has("max 7\noom 0\noom_kill 3\noom_group_kill 1\n");
        assert_eq!(found(&slot), Some(Shortage::Outside));
        engine_has("oom 3\noom_kill 0\n");
        assert_eq!(found(&slot), Some(Shortage::Engine(Some(4096))));
    }

    #[test]
    fn v1_run_names_the_group_that_ran_out() {
        let (engine, run) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
        write(
            engine.path(),
            &[("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.failcnt", "2\n")],
        );
        let slot = slot(engine.path(), run.path(), false);
        let limit = 64_u64 << 20;
        write(run.path(), &[("memory.limit_in_bytes", &limit.to_string())]);
        write(run.path(), &[("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")]);
        let peak = |bytes: u64| write(run.path(), &[("memory.max_usage_in_bytes", &bytes.to_string())]);
        peak(limit - 4096);
        assert_eq!(found(&slot), Some(Shortage::Own));
        peak(limit - (2 << 20));
        assert_eq!(found(&slot), Some(Shortage::Outside));
        write(engine.path(), &[("memory.failcnt", "40\n")]);
        assert_eq!(found(&slot), Some(Shortage::Engine(None)));
    }

    /// Each way in which a run begins in a slot that was made before.
    #[test]
    fn hits_before_the_run_began_are_not_its_own() {
        let (engine, run) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
        let reached = |times: u32| {
            write(engine.path(), &[("memory.events.local", &format!("oom {times}\n"))]);
        };
        let killed = |times: u32| {
            write(run.path(), &[("memory.events", &format!("oom 0\noom_kill {times}\n"))]);
        };
        reached(2);
        killed(0);
        write(run.path(), &[("pids.peak", "2\n"), ("memory.peak", "0\n")]);
        let limits = SlotLimits { memory_bytes: None, processes: None };
        let begin: [fn(Slot, SlotLimits) -> Slot; 5] = [
            |mut slot, limits| {
                slot.limit(limits);
                slot
            },
            // The limits of the run before.
            |mut slot, limits| {
                slot.limits = Some(limits);
                slot.limit(limits);
                slot
            },
            |mut slot, _| {
                slot.begin_run();
                slot
            },
            |slot, _| slot.again(),
            |mut slot, _| {
                slot.reset();
                slot
            },
        ];
        for (index, begin) in begin.into_iter().enumerate() {
            reached(2);
            killed(0);
            let slot = slot(engine.path(), run.path(), true);
            // For another run, while this slot waits.
            reached(3);
            let slot = begin(slot, limits);
            killed(1);
            assert_eq!(found(&slot), Some(Shortage::Outside), "{index}");
            reached(4);
            assert_eq!(found(&slot), Some(Shortage::Engine(None)), "{index}");
        }
    }
}
