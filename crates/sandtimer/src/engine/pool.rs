//! Rows of the engine: which are free, and the control groups that go with them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sandtimer_os::wire::ROWS;

use crate::isolate::cgroup::{Cgroups, SandboxGroups, Slot, SlotLimits};

/// Runs that one engine can have at a time: one row of the table is init's uid.
pub const CAPACITY: usize = ROWS - 1;

/// Rows that are held ready; groups and descriptors of more are given back to the system.
const MAX_READY_SLOTS: usize = 8;

#[derive(Debug)]
struct SlotTable {
    /// Emptied and renewed, ready for a run.
    ready: Vec<Slot>,
    /// Rows never used so far start here.
    next: usize,
    /// Rows whose groups were removed.
    without_groups: Vec<usize>,
    /// Rows given back whose groups could be neither renewed nor removed.
    bare: Vec<usize>,
    /// Rows of living runs that share a directory with others; see [`Pool::note_shared`].
    shared: HashSet<usize>,
    /// Rows that such runs had, the one that has been unused for longest first. Used again when no
    /// other is left.
    outlived: VecDeque<usize>,
    /// Rows whose groups are in those of a sandbox with limits.
    in_sandboxes: HashMap<usize, Arc<SandboxSlot>>,
    /// Rows that hold something unkillable.
    quarantined: usize,
    /// The engine is being dropped: nothing is made ready any more.
    closing: bool,
}

/// The row of a sandbox, which gives its user a uid: no process is in it. Given back with the last
/// run in the sandbox's groups.
#[derive(Debug)]
pub(crate) struct SandboxSlot {
    index: usize,
    /// There if the sandbox has limits, and they hold.
    groups: Option<SandboxGroups>,
    pool: Weak<Pool>,
}

impl SandboxSlot {
    pub fn new(index: usize, groups: Option<SandboxGroups>, pool: &Arc<Pool>) -> Self {
        SandboxSlot { index, groups, pool: Arc::downgrade(pool) }
    }

    /// The groups in which those of its runs are, if it has limits.
    pub fn groups(&self) -> Option<&SandboxGroups> {
        self.groups.as_ref()
    }
}

impl Drop for SandboxSlot {
    fn drop(&mut self) {
        self.groups = None;
        if let Some(pool) = self.pool.upgrade() {
            pool.give_back(self.index, None);
        }
    }
}

/// Hands out rows with their control groups.
#[derive(Debug)]
pub(crate) struct Pool {
    cgroups: Cgroups,
    slots: Mutex<SlotTable>,
}

impl Pool {
    pub fn new(cgroups: Cgroups) -> Self {
        let slots = SlotTable {
            ready: Vec::new(),
            next: 0,
            without_groups: Vec::new(),
            bare: Vec::new(),
            shared: HashSet::new(),
            outlived: VecDeque::new(),
            in_sandboxes: HashMap::new(),
            quarantined: 0,
            closing: false,
        };
        Pool { cgroups, slots: Mutex::new(slots) }
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        // The lists stay whole whatever happens to the thread that held them.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// A free row; `Ok(None)` when all are taken.
    pub fn take(&self) -> io::Result<Option<Slot>> {
        let (bare, fresh) = {
            let mut slots = self.lock();
            if let Some(slot) = slots.ready.pop() {
                return Ok(Some(slot));
            }
            let fresh = slots.without_groups.pop().or_else(|| {
                let next = (slots.next < CAPACITY).then_some(slots.next);
                slots.next += usize::from(next.is_some());
                next
            });
            let fresh = fresh.or_else(|| slots.outlived.pop_front());
            (if fresh.is_none() { std::mem::take(&mut slots.bare) } else { Vec::new() }, fresh)
        };
        if let Some(slot_index) = fresh {
            return self
                .cgroups
                .slot(slot_index)
                .map(Some)
                .inspect_err(|_| self.lock().bare.push(slot_index));
        }
        // Rows that could not be renewed when they were given back: one of them may be empty by
        // now.
        let mut found = None;
        for slot_index in bare {
            let is_free = found.is_none() && self.leaves_sandbox(slot_index);
            match is_free.then(|| self.cgroups.renew(slot_index, None)) {
                Some(Ok(slot)) => found = Some(slot),
                _ => self.lock().bare.push(slot_index),
            }
        }
        Ok(found)
    }

    /// A free row whose groups are in those of a sandbox with limits; `Ok(None)` when all are
    /// taken.
    pub fn take_in(&self, sandbox: &Arc<SandboxSlot>) -> io::Result<Option<Slot>> {
        let Some(groups) = sandbox.groups() else { return self.take() };
        let Some(slot_index) = self.row_without_groups() else { return Ok(None) };
        match groups.slot(slot_index) {
            Ok(slot) => {
                self.lock().in_sandboxes.insert(slot_index, sandbox.clone());
                Ok(Some(slot))
            }
            Err(error) => {
                groups.remove_slot(slot_index);
                self.lock().without_groups.push(slot_index);
                Err(error)
            }
        }
    }

    /// A free row that has no groups, or had some that are removed.
    fn row_without_groups(&self) -> Option<usize> {
        let (ready, bare) = {
            let mut slots = self.lock();
            let unused = slots.without_groups.pop().or_else(|| {
                let next = (slots.next < CAPACITY).then_some(slots.next);
                slots.next += usize::from(next.is_some());
                next
            });
            if unused.is_some() {
                return unused;
            }
            let ready = slots.ready.pop();
            if ready.is_none()
                && let Some(outlived) = slots.outlived.pop_front()
            {
                return Some(outlived);
            }
            let bare = if ready.is_none() { std::mem::take(&mut slots.bare) } else { Vec::new() };
            (ready, bare)
        };
        let rows: Vec<usize> = ready.into_iter().map(|slot| slot.index).chain(bare).collect();
        let mut found = None;
        for slot_index in rows {
            match found.is_none() && self.leaves_sandbox(slot_index) && self.cgroups.remove_slot(slot_index) {
                true => found = Some(slot_index),
                false => self.lock().bare.push(slot_index),
            }
        }
        found
    }

    /// Removes the groups that a row has in those of a sandbox. Whether it has none any more.
    fn leaves_sandbox(&self, slot_index: usize) -> bool {
        let sandbox = self.lock().in_sandboxes.remove(&slot_index);
        let Some(sandbox) = sandbox else { return true };
        let is_gone = sandbox.groups().is_none_or(|groups| groups.remove_slot(slot_index));
        if !is_gone {
            self.lock().in_sandboxes.insert(slot_index, sandbox);
        }
        // Not under the lock: the last one gives the sandbox's row back.
        is_gone
    }

    /// Notes that the run of this row has a directory in common with others. It can hand
    /// descriptors on by a socket there, and what these hold (memory of files, inotify instances,
    /// terminals) stays charged to its groups and its uid when it is dead.
    pub fn note_shared(&self, slot_index: usize) {
        self.lock().shared.insert(slot_index);
    }

    /// Takes a row back whose run is dead; the next one will likely have the same limits.
    pub fn give_back(&self, slot_index: usize, limits: Option<SlotLimits>) {
        let (enough, is_shared) = {
            let mut slots = self.lock();
            let is_shared = slots.shared.remove(&slot_index);
            if slots.closing {
                return;
            }
            let is_in_sandbox = slots.in_sandboxes.contains_key(&slot_index);
            (slots.ready.len() >= MAX_READY_SLOTS, is_shared || is_in_sandbox)
        };
        if is_shared {
            let is_removed = self.leaves_sandbox(slot_index) && self.cgroups.remove_slot(slot_index);
            let mut slots = self.lock();
            if is_removed {
                slots.outlived.push_back(slot_index)
            } else {
                slots.bare.push(slot_index)
            }
            return;
        }
        // What only a time of many runs needed is not held for ever.
        if enough && self.cgroups.remove_slot(slot_index) {
            self.lock().without_groups.push(slot_index);
            return;
        }
        match self.cgroups.renew(slot_index, limits) {
            Ok(slot) => self.lock().ready.push(slot),
            Err(_) => self.lock().bare.push(slot_index),
        }
    }

    /// Removes the groups of rows that nothing runs in.
    pub fn remove_idle(&self) {
        let idle = std::mem::take(&mut self.lock().ready);
        for slot in idle {
            self.cgroups.remove_slot(slot.index);
        }
    }

    /// Stops making rows ready for use.
    pub fn close(&self) {
        self.lock().closing = true;
    }

    /// Counts a row whose run cannot be killed now; it comes back by itself once that has died.
    pub fn quarantine(&self) {
        self.lock().quarantined += 1;
    }

    /// A row's run has died after all.
    pub fn release(&self) {
        let mut pool = self.lock();
        pool.quarantined = pool.quarantined.saturating_sub(1);
    }

    /// Rows in quarantine.
    pub fn quarantined(&self) -> usize {
        self.lock().quarantined
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let used = self.lock().next;
        self.lock().ready.clear();
        // First: their groups are in those of other rows.
        let in_sandboxes = std::mem::take(&mut self.lock().in_sandboxes);
        for (slot_index, sandbox) in in_sandboxes {
            if let Some(groups) = sandbox.groups() {
                groups.remove_slot(slot_index);
            }
        }
        for slot_index in 0..used {
            self.cgroups.remove_slot(slot_index);
        }
    }
}
