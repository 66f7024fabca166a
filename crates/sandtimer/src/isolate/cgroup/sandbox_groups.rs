//! The groups of a sandbox with limits of its own, in which the groups of its runs are made.
//!
//! ```text
//! engine ── run-7, the sandbox's slot: no process, the limits of the whole
//!             ├─ run-8: a run, under its own limits
//!             └─ run-9: another
//! ```
//! An out-of-memory kill at the limit of the whole ends one run: the kernel chooses a process in
//! the subtree, and `memory.oom.group` is set for the groups of the runs, and not for this one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, openat};

use super::files::{enable_controllers, write_file};
use super::outer::{OuterBounds, OuterGroup, ProcessBound};
use super::parents::ParentGroups;
use super::slot::{Slot, SlotLimits};

/// A sandbox's groups: its limits bound all slots in them together.
#[derive(Debug)]
pub struct SandboxGroups {
    /// The sandbox's own slot, in whose groups no process is.
    slot: Slot,
    own: ParentGroups,
    bounds: OuterBounds,
    processes: Option<u64>,
    /// How many slots are in it: the first process of each is not counted.
    slots: Mutex<u64>,
}

impl SandboxGroups {
    /// Puts the limits on the groups of a slot that no process is in.
    ///
    /// # Errors
    /// No controller limits memory and processes, or one of them rejects the limit.
    pub fn new(mut slot: Slot, limits: SlotLimits) -> io::Result<Self> {
        let rejected = |what: &str| io::Error::other(format!("the controller rejected {what}"));
        if !slot.has_controllers() {
            let reason = "no control group limits memory and processes";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let own = ParentGroups {
            unified: slot.unified.clone(),
            memory: slot.memory.clone(),
            pids: slot.pids.clone(),
            has_v2_limits: slot.v2_limits,
        };
        match (&own.unified, &own.memory) {
            (Some(unified), _) if own.has_v2_limits => {
                write_file(unified.as_fd(), "memory.oom.group", "0")?;
                if !enable_controllers(unified) {
                    return Err(rejected("groups below that of the sandbox"));
                }
            }
            (_, Some(memory)) => check_hierarchy(memory)?,
            _ => {}
        }
        // The slot may have limits that the next run was expected to have.
        slot.limits = None;
        if let Some(kind) = slot.limit(limits).first() {
            return Err(rejected(&format!("the {kind} limit of the sandbox")));
        }
        let (memory, pids) = match own.has_v2_limits {
            true => (own.unified.clone(), own.unified.clone()),
            false => (own.memory.clone(), own.pids.clone()),
        };
        let processes = pids.zip(limits.processes).map(|(group, limit)| ProcessBound { group, limit });
        let sandbox =
            memory.map(|memory| Arc::new(OuterGroup::of_sandbox(memory, processes, own.has_v2_limits)));
        let bounds = OuterBounds { engine: slot.outer.engine.clone(), sandbox };
        let groups = SandboxGroups { slot, own, bounds, processes: limits.processes, slots: Mutex::new(0) };
        groups.bound_processes(0);
        Ok(groups)
    }

    /// Makes the groups of a slot in them.
    ///
    /// # Errors
    /// As for a slot of the engine's own.
    pub fn slot(&self, index: usize) -> io::Result<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if *slots == 0 {
            // What runs that are gone had used is not to be attributed to this one. v2 counts hits.
            self.slot.write(&self.own.memory, "memory.max_usage_in_bytes", "0");
        }
        let slot = self.own.slot(index, &self.bounds)?;
        *slots += 1;
        self.bound_processes(*slots);
        Ok(slot)
    }

    /// Removes the groups of a slot, and returns whether they are gone.
    pub fn remove_slot(&self, index: usize) -> bool {
        let is_gone = self.own.remove_slot(index);
        if is_gone {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            *slots = slots.saturating_sub(1);
            self.bound_processes(*slots);
        }
        is_gone
    }

    /// Sets the limit of processes for this many slots.
    fn bound_processes(&self, slots: u64) {
        let Some(processes) = self.processes else { return };
        let directory = if self.own.has_v2_limits { &self.own.unified } else { &self.own.pids };
        // It was accepted before: a failure leaves the limit of fewer slots.
        self.slot.write(directory, "pids.max", &processes.saturating_add(slots).to_string());
    }

    /// The memory that all slots use now, in bytes, with what was read from files.
    pub fn memory_now(&self) -> Option<u64> {
        self.slot.memory_now()
    }

    /// The processes and threads of all slots, without the first process of each.
    pub fn processes_now(&self) -> Option<u64> {
        let slots = *self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.processes_now().map(|count| count.saturating_sub(slots))
    }
}

/// Has a v1 memory group count what the groups below it use: older kernels leave that to a file.
fn check_hierarchy(memory: &OwnedFd) -> io::Result<()> {
    const NAME: &str = "memory.use_hierarchy";
    let Ok(file) = openat(memory, NAME, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        // Newer kernels know nothing else.
        return Ok(());
    };
    match io::read_to_string(std::fs::File::from(file))?.trim() {
        "0" => write_file(memory.as_fd(), NAME, "1"),
        _ => Ok(()),
    }
}
