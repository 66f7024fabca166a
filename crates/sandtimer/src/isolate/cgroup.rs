//! Control groups: one directory per slot and hierarchy, reused from run to run.
//!
//! Three layouts are real: v2, v1, and hybrid (v2 tree for kill and freeze, v1 controllers for
//! limits). A sandbox enters its v2 group by CLONE_INTO_CGROUP and its v1 groups by writing to
//! `tasks` itself: moving a process by writing its pid to cgroup.procs waits for an RCU grace
//! period, about 10 ms on an idle machine.

mod files;
mod hierarchies;
mod kept;
mod outer;
mod parents;
mod sandbox_groups;
mod shortage;
mod slot;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};

use files::{enable_controllers, open_directory, write_file};
pub use hierarchies::Hierarchies;
use outer::{OuterBounds, OuterGroup};
use parents::ParentGroups;
pub use sandbox_groups::SandboxGroups;
pub use shortage::{ForkShortage, Shortage};
pub use slot::{Counters, Slot, SlotLimits};

/// The launcher's group, where it needs one of its own.
const LAUNCHER: &str = "launcher";

/// How the host's control groups are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupLayout {
    /// A version 2 hierarchy with the controllers that limits need.
    V2,
    /// Controllers of version 1 only.
    V1,
    /// A version 2 hierarchy without those controllers; version 1 has them, if any.
    Hybrid,
    /// No hierarchy in which the engine may make groups.
    None,
}

/// An engine's directories in each hierarchy it can use.
#[derive(Debug)]
pub struct Cgroups {
    own: ParentGroups,
    layout: CgroupLayout,
    name: String,
    parents: Vec<OwnedFd>,
    /// Bounds the memory of all slots together.
    bounds: OuterBounds,
    /// What could not be used, for the report.
    pub missing: Vec<String>,
    /// Of the engine's number. A thread may drop this after the engine: no other engine makes
    /// groups of these names before they are removed.
    _lock: OwnedFd,
}

impl Cgroups {
    /// Finds what can be used and makes this engine's directory in each hierarchy. Never fails:
    /// what is missing is reported, and the plan is made without it. `lock` is that of the number.
    pub fn prepare(hierarchies: &Hierarchies, number: u32, lock: OwnedFd) -> Self {
        let found = &hierarchies.found;
        let name = hierarchies.name(number);
        let mut groups = Cgroups {
            own: ParentGroups::default(),
            layout: CgroupLayout::None,
            name,
            parents: Vec::new(),
            bounds: OuterBounds::default(),
            missing: Vec::new(),
            _lock: lock,
        };
        if let Some(path) = &found.unified {
            groups.own.unified = groups.own_directory(path, "the v2 hierarchy");
        }
        let limits_in_v2 =
            found.unified_limits && groups.own.unified.as_ref().is_some_and(|own| enable_controllers(own));
        if !limits_in_v2 {
            groups.own.memory =
                found.memory.as_ref().and_then(|path| groups.own_directory(path, "the v1 memory controller"));
            groups.own.pids =
                found.pids.as_ref().and_then(|path| groups.own_directory(path, "the v1 pids controller"));
        }
        groups.own.has_v2_limits = limits_in_v2;
        groups.layout = match (&groups.own.unified, &groups.own.memory, limits_in_v2) {
            (Some(_), _, true) => CgroupLayout::V2,
            (Some(_), _, false) => CgroupLayout::Hybrid,
            (None, Some(_), _) => CgroupLayout::V1,
            (None, None, _) => CgroupLayout::None,
        };
        groups
    }

    /// Makes `<path>/<name>`; notes in `missing` why it could not.
    fn own_directory(&mut self, path: &Path, what: &str) -> Option<Arc<OwnedFd>> {
        let made = open_directory(path).and_then(|parent| {
            match mkdirat(&parent, self.name.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let own = open_directory(&path.join(&self.name))?;
            Ok((parent, own))
        });
        match made {
            Ok((parent, own)) => {
                self.parents.push(parent);
                Some(Arc::new(own))
            }
            Err(error) => {
                self.missing.push(format!("{what}: cannot make a group in {}: {error}", path.display()));
                None
            }
        }
    }

    /// Bounds all slots together, where there are controllers: bytes of memory, no bound with
    /// `None`, and processes.
    pub fn bound_sum(&mut self, memory: Option<u64>, processes: Option<u64>) {
        let is_v2 = self.layout == CgroupLayout::V2;
        let (of_memory, of_pids) =
            if is_v2 { (&self.own.unified, &self.own.unified) } else { (&self.own.memory, &self.own.pids) };
        let (file, unlimited) = if is_v2 { ("memory.max", "max") } else { ("memory.limit_in_bytes", "-1") };
        let text = |value: Option<u64>, unlimited: &str| {
            value.map_or_else(|| unlimited.to_owned(), |value| value.to_string())
        };
        // A group above that bounds less than this holds all the same.
        let mut engine = None;
        if let Some(group) = of_memory {
            let _ = write_file(group.as_fd(), file, &text(memory, unlimited));
            // Without it, a run that the kernel kills for its limit is reported as killed by
            // something outside the engine.
            engine = Some(Arc::new(OuterGroup::of_engine(group.clone(), is_v2)));
        }
        if let Some(group) = of_pids {
            let _ = write_file(group.as_fd(), "pids.max", &text(processes, "max"));
        }
        self.bounds = OuterBounds { engine, sandbox: None };
    }

    /// cgroup.procs of a v2 group for the launcher, for a start from a group that children die at
    /// birth of.
    pub fn launcher_procs(&self) -> io::Result<OwnedFd> {
        let Some(own) = &self.own.unified else { return Err(io::ErrorKind::NotFound.into()) };
        match mkdirat(own, LAUNCHER, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let path = Path::new(LAUNCHER).join("cgroup.procs");
        Ok(openat(own, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// How the host's control groups are laid out.
    pub fn layout(&self) -> CgroupLayout {
        self.layout
    }

    /// Whether memory and process limits can be put on a run.
    pub fn limits(&self) -> bool {
        self.layout == CgroupLayout::V2 || (self.own.memory.is_some() && self.own.pids.is_some())
    }

    /// Whether cgroup.kill can be used (v2, Linux 5.14).
    pub fn kill(&self) -> bool {
        self.own.unified.is_some()
    }

    /// The directories that hold the slots, for the watchdog to sweep.
    pub fn slot_directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.own.directories()
    }

    /// Makes the groups of a slot. What an earlier engine left under this name is used again: it is
    /// empty, swept.
    pub fn slot(&self, index: usize) -> io::Result<Slot> {
        self.own.slot(index, &self.bounds)
    }

    /// Makes an empty slot as good as new: peaks that cannot be reset go with their directory, and
    /// so does the memory that cgroup.kill leaves behind. (Since Linux 6.14 a child cloned into a
    /// group that was ever killed dies at birth, for its parent's group was not.) A v1 memory group
    /// stays: each one removed lingers in the kernel as long as a cached page remembers it. It gets
    /// the limits that the next run will `likely` have.
    pub fn renew(&self, index: usize, likely: Option<SlotLimits>) -> io::Result<Slot> {
        for directory in [&self.own.unified, &self.own.pids].into_iter().flatten() {
            match unlinkat(directory, format!("run-{index}"), AtFlags::REMOVEDIR) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut slot = self.slot(index)?;
        if let Some(limits) = likely {
            // Refused now, it is refused again when a run asks, and reported there.
            slot.put(limits);
        }
        Ok(slot)
    }

    /// Removes the groups of a slot, and returns whether they are gone. They stay while something
    /// is alive in them; what stays is swept by the next engine.
    pub fn remove_slot(&self, index: usize) -> bool {
        self.own.remove_slot(index)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Some(own) = &self.own.unified {
            // Most engines never had one.
            let _ = unlinkat(own, LAUNCHER, AtFlags::REMOVEDIR);
        }
        for parent in &self.parents {
            // Busy while a quarantined slot lives: the next engine sweeps it.
            let _ = unlinkat(parent, self.name.as_str(), AtFlags::REMOVEDIR);
        }
    }
}
