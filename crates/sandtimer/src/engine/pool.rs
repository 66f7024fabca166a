//! Rows of the engine: which are free, and the control groups that go with them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandtimer_os::wire::ROWS;

use crate::isolate::cgroup::{Cgroups, Slot, SlotLimits};

/// Runs that one engine can have at a time: one row of the table is init's uid.
pub const CAPACITY: usize = ROWS - 1;

/// Rows that are held ready; groups and descriptors of more are given back to the system.
const MOST_READY: usize = 8;

#[derive(Debug)]
struct Rows {
    /// Emptied and renewed, ready for a run.
    ready: Vec<Slot>,
    /// Rows never used so far start here.
    next: usize,
    /// Rows whose groups were removed.
    spare: Vec<usize>,
    /// Rows given back whose groups could be neither renewed nor removed.
    bare: Vec<usize>,
    /// Rows of living runs that share a directory with others; see [`Pool::note_shared`].
    shared: HashSet<usize>,
    /// Rows that such runs had, the one that has been unused for longest first. Used again when no other is left.
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
    rows: Mutex<Rows>,
}

impl Pool {
    pub fn new(cgroups: Cgroups) -> Self {
        let rows = Rows {
            ready: Vec::new(),
            next: 0,
            spare: Vec::new(),
            bare: Vec::new(),
            shared: HashSet::new(),
            outlived: VecDeque::new(),
            quarantined: 0,
            closing: false,
        };
        Pool { cgroups, rows: Mutex::new(rows) }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // The lists stay whole whatever happens to the thread that held them.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// A free row; `Ok(None)` when all are taken.
    pub fn take(&self) -> std::io::Result<Option<Slot>> {
        let (bare, fresh) = {
            let mut rows = self.lock();
            if let Some(slot) = rows.ready.pop() {
                return Ok(Some(slot));
            }
            let fresh = rows.spare.pop().or_else(|| {
                let next = (rows.next < CAPACITY).then_some(rows.next);
                rows.next += usize::from(next.is_some());
                next
            });
            let fresh = fresh.or_else(|| rows.outlived.pop_front());
            (if fresh.is_none() { std::mem::take(&mut rows.bare) } else { Vec::new() }, fresh)
        };
        if let Some(row) = fresh {
            return self.cgroups.slot(row).map(Some).inspect_err(|_| self.lock().bare.push(row));
        }
        // Rows that could not be renewed when they were given back: one of them may be empty by now.
        let mut found = None;
        for row in bare {
            match found.is_none().then(|| self.cgroups.renew(row, None)) {
                Some(Ok(slot)) => found = Some(slot),
                _ => self.lock().bare.push(row),
            }
        }
        Ok(found)
    }

    /// Notes that the run of this row has a directory in common with others. It can hand descriptors on by a socket there, and
    /// what these hold (memory of files, inotify instances, terminals) stays charged to its groups and its uid when it is dead.
    pub fn note_shared(&self, row: usize) {
        self.lock().shared.insert(row);
    }

    /// Takes a row back whose run is dead; the next one will likely have the same limits.
    pub fn give_back(&self, row: usize, limits: Option<SlotLimits>) {
        let (enough, is_shared) = {
            let mut rows = self.lock();
            let is_shared = rows.shared.remove(&row);
            if rows.closing {
                return;
            }
            (rows.ready.len() >= MOST_READY, is_shared)
        };
        if is_shared {
            let is_removed = self.cgroups.remove_slot(row);
            let mut rows = self.lock();
            if is_removed {
                rows.outlived.push_back(row)
            } else {
                rows.bare.push(row)
            }
            return;
        }
        // What only a time of many runs needed is not held for ever.
        if enough && self.cgroups.remove_slot(row) {
            self.lock().spare.push(row);
            return;
        }
        match self.cgroups.renew(row, limits) {
            Ok(slot) => self.lock().ready.push(slot),
            Err(_) => self.lock().bare.push(row),
        }
    }

    /// Removes the groups of rows that nothing runs in.
    pub fn remove_idle(&self) {
        let idle = std::mem::take(&mut self.lock().ready);
        for slot in idle {
            self.cgroups.remove_slot(slot.row);
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
        for row in 0..used {
            self.cgroups.remove_slot(row);
        }
    }
}
