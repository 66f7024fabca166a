//! The groups that the groups of slots are made in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};

use super::kept::CounterFiles;
use super::outer::{OuterBounds, OuterHits};
use super::slot::{Counters, Slot};

/// The groups of an engine, or of a sandbox with limits: one in each hierarchy that it can use.
#[derive(Debug, Clone, Default)]
pub(super) struct ParentGroups {
    /// v2: kill, freeze and processor time; the limits too, if it has these controllers.
    pub unified: Option<Arc<OwnedFd>>,
    pub memory: Option<Arc<OwnedFd>>,
    pub pids: Option<Arc<OwnedFd>>,
    pub has_v2_limits: bool,
}

impl ParentGroups {
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.unified, &self.memory, &self.pids].into_iter().flatten().map(|group| group.as_fd())
    }

    /// Makes the groups of a slot, in which `bounds` holds. What an earlier engine left under this
    /// name is used again: it is empty, swept.
    pub fn slot(&self, index: usize, bounds: &OuterBounds) -> io::Result<Slot> {
        let name = format!("run-{index}");
        let make = |parent: &Option<Arc<OwnedFd>>, new: &mut bool| -> io::Result<Option<Arc<OwnedFd>>> {
            let Some(parent) = parent else { return Ok(None) };
            match mkdirat(parent, name.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                Err(rustix::io::Errno::EXIST) => *new = false,
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
            Ok(Some(Arc::new(openat(parent, name.as_str(), flags, Mode::empty())?)))
        };
        let (mut new, mut new_memory) = (true, true);
        let unified = make(&self.unified, &mut new)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let kill = unified.as_ref().map(|group| openat(group, "cgroup.kill", flags, Mode::empty()));
        let kill = kill.transpose()?.map(Arc::new);
        let mut slot = Slot {
            index,
            unified,
            kill,
            memory: make(&self.memory, &mut new_memory)?,
            pids: make(&self.pids, &mut new)?,
            tasks: Vec::new(),
            kept: Arc::new(CounterFiles::of_slot(index)),
            v2_limits: self.has_v2_limits,
            is_new: false,
            limits: None,
            peak: None,
            start: Counters::default(),
            start_run_queue: 0,
            outer: bounds.clone(),
            outer_hits_at_start: OuterHits::default(),
        };
        slot.is_new = new && new_memory;
        slot.tasks = slot.open_task_files()?;
        if let Some(unified) = &slot.unified {
            // Its proof of death is to need no descriptor, which there may be none of by then.
            slot.kept.hold(unified.as_fd(), "cgroup.events")?;
        }
        if slot.v2_limits {
            // The whole run dies of one out-of-memory, not a process of the kernel's choice.
            slot.write(&slot.unified, "memory.oom.group", "1");
        }
        if !new {
            slot.start = slot.counters();
        } else if !new_memory {
            slot.start.out_of_memory_kills = slot.out_of_memory_kills();
        }
        Ok(slot)
    }

    /// Removes the groups of a slot, and returns whether they are gone. They stay while something
    /// is alive in them; what stays is swept by the next engine.
    pub fn remove_slot(&self, index: usize) -> bool {
        let name = format!("run-{index}");
        let gone = |directory| {
            matches!(
                unlinkat(directory, name.as_str(), AtFlags::REMOVEDIR),
                Ok(()) | Err(rustix::io::Errno::NOENT)
            )
        };
        self.directories().fold(true, |all, directory| gone(directory) & all)
    }
}
