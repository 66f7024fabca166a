//! Rows of the engine: which are free, and the control groups that go with them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandtimer_os::wire::ROWS;

use crate::isolate::cgroup::{Cgroups, Slot, SlotLimits};

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
    /// Rows that hold something unkillable.
    quarantined: usize,
    /// The engine is being dropped: nothing is made ready any more.
    closing: bool,
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
    pub fn take(&self) -> std::io::Result<Option<Slot>> {
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
            match found.is_none().then(|| self.cgroups.renew(slot_index, None)) {
                Some(Ok(slot)) => found = Some(slot),
                _ => self.lock().bare.push(slot_index),
            }
        }
        Ok(found)
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
            (slots.ready.len() >= MAX_READY_SLOTS, is_shared)
        };
        if is_shared {
            let is_removed = self.cgroups.remove_slot(slot_index);
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
        for slot_index in 0..used {
            self.cgroups.remove_slot(slot_index);
        }
    }
}
