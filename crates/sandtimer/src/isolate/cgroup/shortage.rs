//! Whose limit it was when the kernel killed a run for lack of memory, or rejected a fork: the
//! run's own, the one of its sandbox, the one of all runs of the engine, or neither.
//!
//! A v2 group counts in `memory.events` how often its own limit, or one below it, left the kernel
//! nothing but a kill (`oom`), and which of its processes were killed because of any limit
//! (`oom_kill`). A v1 group counts only the latter: there a peak at the limit counts as
//! the former, so that a run that had filled its limit with cached files before is counted as
//! having reached it.
//!
//! A v1 group, and a v2 group before Linux 6.12, counts the forks of its own processes that any
//! limit rejected. A later v2 group counts those that its own limit rejected, in whichever group
//! the fork was made: a run is blamed for them only if it had more than one process.

use std::os::fd::AsFd;

use super::outer::is_at_limit;
use super::slot::{Counters, Slot};

/// Where memory had run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// In the run's own group.
    Own,
    /// In the group of all runs of its sandbox; with its limit in bytes, as far as it can be read.
    Sandbox(Option<u64>),
    /// In the group of all runs of the engine; with its limit in bytes, as far as it can be read.
    Engine(Option<u64>),
    /// In a group above the engine's, or on the whole machine.
    Outside,
}

/// Whose limit of processes rejected forks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkShortage {
    /// The run's own.
    Own,
    /// That of all runs of its sandbox.
    Sandbox,
}

impl Slot {
    /// Notes that a run begins: what outer limits were reached for before was for others.
    pub fn begin_run(&mut self) {
        self.outer_hits_at_start = self.outer.hits();
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
        // They may have been reached for another run since this one began.
        let start = &self.outer_hits_at_start;
        let sandbox = self.outer.sandbox.as_ref();
        let sandbox = sandbox.filter(|group| group.was_at_memory_limit(start.sandbox));
        if let Some(sandbox) = sandbox {
            return Some(Shortage::Sandbox(sandbox.limit()));
        }
        let engine = self.outer.engine.as_ref().filter(|engine| engine.hits() > start.engine);
        Some(engine.map_or(Shortage::Outside, |engine| Shortage::Engine(engine.limit())))
    }

    /// Returns whose limit rejected forks of the run; `None` if none did. `used` is what the run
    /// has counted.
    pub fn fork_shortage(&self, used: &Counters) -> Option<ForkShortage> {
        let is_rejected = used.process_limit_hits > 0;
        let Some(sandbox) = &self.outer.sandbox else {
            return is_rejected.then_some(ForkShortage::Own);
        };
        let peak = self.processes_peak();
        if sandbox.rejected_forks.is_some() {
            let is_sandboxs = sandbox.rejected_forks() > self.outer_hits_at_start.rejected_forks
                && peak.is_none_or(|peak| peak > 1);
            let outer = is_sandboxs.then_some(ForkShortage::Sandbox);
            return if is_rejected { Some(ForkShortage::Own) } else { outer };
        }
        let own = self.limits.and_then(|limits| limits.processes);
        let is_own = peak.zip(own).is_some_and(|(peak, limit)| peak >= limit);
        match is_rejected {
            true if !is_own && sandbox.was_at_process_limit() => Some(ForkShortage::Sandbox),
            true => Some(ForkShortage::Own),
            false => None,
        }
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

    use super::super::kept::CounterFiles;
    use super::super::outer::{OuterBounds, OuterGroup, OuterHits, ProcessBound};
    use super::super::slot::SlotLimits;
    use super::*;

    /// A slot over directories of plain files, in place of groups.
    fn slot(engine: &Path, run: &Path, is_v2: bool) -> Slot {
        let open = |path: &Path| super::super::files::open_directory(path).expect("a directory");
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
            outer: OuterBounds {
                engine: Some(Arc::new(OuterGroup::of_engine(Arc::new(open(engine)), is_v2))),
                sandbox: None,
            },
            outer_hits_at_start: OuterHits { engine: 2, ..OuterHits::default() },
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

    /// A slot of a sandbox with limits of 8192 bytes and 20 processes, over directories of plain
    /// files.
    fn slot_in(sandbox: &Path, engine: &Path, run: &Path, is_v2: bool) -> Slot {
        let group = Arc::new(super::super::files::open_directory(sandbox).expect("a directory"));
        let processes = Some(ProcessBound { group: group.clone(), limit: 20 });
        let outer = OuterGroup::of_sandbox(group, processes, is_v2);
        let mut slot = slot(engine, run, is_v2);
        slot.outer.sandbox = Some(Arc::new(outer));
        slot.limits = Some(SlotLimits { memory_bytes: Some(1 << 20), processes: Some(16) });
        slot.begin_run();
        slot
    }

    #[test]
    fn v2_kill_at_the_sandboxs_limit_is_the_victims() {
        let [sandbox, engine, first, second] = std::array::from_fn(|_| tempfile::tempdir().expect("one"));
        write(engine.path(), &[("memory.events.local", "oom 2\n")]);
        write(sandbox.path(), &[("memory.events.local", "oom 1\n"), ("memory.max", "8192\n")]);
        let slots = [&first, &second].map(|run| slot_in(sandbox.path(), engine.path(), run.path(), true));
        let both = || slots.each_ref().map(found);
        write(first.path(), &[("memory.events", "oom 0\noom_kill 0\n")]);
        write(second.path(), &[("memory.events", "oom 0\noom_kill 2\n")]);
        assert_eq!(both(), [None, Some(Shortage::Outside)], "reached before they began");
        write(sandbox.path(), &[("memory.events.local", "oom 2\n")]);
        assert_eq!(both(), [None, Some(Shortage::Sandbox(Some(8192)))]);
        // Its own limit was reached as well: that is the one it names.
        write(second.path(), &[("memory.events", "oom 1\noom_kill 2\n")]);
        assert_eq!(both(), [None, Some(Shortage::Own)]);
    }

    #[test]
    fn v1_kill_without_a_peak_at_the_limit_is_not_the_sandboxs() {
        let [sandbox, engine, run] = std::array::from_fn(|_| tempfile::tempdir().expect("one"));
        let limit = 96_u64 << 20;
        write(
            engine.path(),
            &[("memory.failcnt", "2\n"), ("memory.limit_in_bytes", "9223372036854771712\n")],
        );
        write(sandbox.path(), &[("memory.limit_in_bytes", &limit.to_string())]);
        let slot = slot_in(sandbox.path(), engine.path(), run.path(), false);
        write(run.path(), &[("memory.limit_in_bytes", "67108864\n")]);
        write(run.path(), &[("memory.max_usage_in_bytes", "50331648\n")]);
        write(run.path(), &[("memory.oom_control", "under_oom 0\noom_kill 1\n")]);
        let peak = |bytes: u64| write(sandbox.path(), &[("memory.max_usage_in_bytes", &bytes.to_string())]);
        peak(limit / 2);
        assert_eq!(found(&slot), Some(Shortage::Outside));
        peak(limit);
        assert_eq!(found(&slot), Some(Shortage::Sandbox(Some(limit))));
        write(run.path(), &[("memory.max_usage_in_bytes", "67108864\n")]);
        assert_eq!(found(&slot), Some(Shortage::Own));
        write(run.path(), &[("memory.oom_control", "under_oom 0\noom_kill 0\n")]);
        assert_eq!(found(&slot), None);
    }

    #[test]
    fn rejected_fork_names_the_limit_that_was_reached() {
        let [sandbox, engine, run] = std::array::from_fn(|_| tempfile::tempdir().expect("one"));
        let forks = |slot: &Slot| slot.fork_shortage(&slot.used());
        // A kernel that counts forks where they were made.
        let slot = slot_in(sandbox.path(), engine.path(), run.path(), true);
        write(run.path(), &[("pids.events", "max 0\n"), ("pids.peak", "13\n")]);
        write(sandbox.path(), &[("pids.peak", "22\n")]);
        assert_eq!(forks(&slot), None);
        write(run.path(), &[("pids.events", "max 1\n")]);
        assert_eq!(forks(&slot), Some(ForkShortage::Sandbox));
        write(run.path(), &[("pids.peak", "17\n")]);
        assert_eq!(forks(&slot), Some(ForkShortage::Own));
        write(run.path(), &[("pids.peak", "13\n")]);
        write(sandbox.path(), &[("pids.peak", "15\n")]);
        assert_eq!(forks(&slot), Some(ForkShortage::Own), "the sandbox was never full");

        // A kernel that counts them where the limit was.
        write(run.path(), &[("pids.events", "max 0\n")]);
        write(sandbox.path(), &[("pids.events.local", "max 3\n")]);
        let slot = slot_in(sandbox.path(), engine.path(), run.path(), true);
        assert_eq!(forks(&slot), None);
        write(sandbox.path(), &[("pids.events.local", "max 4\n")]);
        assert_eq!(forks(&slot), Some(ForkShortage::Sandbox));
        write(run.path(), &[("pids.peak", "2\n")]);
        assert_eq!(forks(&slot), None, "it never had another process");
        write(run.path(), &[("pids.events", "max 1\n")]);
        assert_eq!(forks(&slot), Some(ForkShortage::Own));
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
