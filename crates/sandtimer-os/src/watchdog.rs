//! The engine's side of the watchdog: the shared table, and messages to the process that reads it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::fork::{CloneRequest, clone_process};
use crate::socket::{self, bytes_of};
use crate::watchdog_process;
use crate::wire::{ROWS, Row, Table, WatchdogOrder, row, watchdog_order as order};

/// The table that engine and watchdog share. Rows are numbered 0 to [`ROWS`] − 1.
#[derive(Debug)]
pub struct SharedTable {
    table: &'static Table,
    memory: OwnedFd,
}

impl SharedTable {
    /// A table with all rows free. The mapping lives as long as the process.
    pub fn new() -> io::Result<Self> {
        let memory = memfd_create("sandtimer-watchdog", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, size_of::<Table>() as u64)?;
        // SAFETY: a fresh shared mapping of the memfd's whole size, zero-filled, never unmapped;
        // every field of Table is atomic, so sharing it with another process breaks no rule of
        // references.
        let table = unsafe {
            let address = rustix::mm::mmap(
                std::ptr::null_mut(),
                size_of::<Table>(),
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &memory,
                0,
            )?;
            &*address.cast::<Table>()
        };
        table.next_look.store(u64::MAX, Ordering::SeqCst);
        Ok(SharedTable { table, memory })
    }

    fn slot(&self, index: usize) -> &Row {
        &self.table.rows[index]
    }

    /// Writes a row's deadline (monotonic nanoseconds, `u64::MAX` for none). True: the watchdog
    /// must be woken for it.
    pub fn arm(&self, index: usize, deadline: u64) -> bool {
        self.table.arm(index, deadline);
        deadline.saturating_add(crate::wire::WATCHDOG_SLACK_NANOSECONDS)
            < self.table.next_look.load(Ordering::SeqCst)
    }

    /// Frees a row. True: the watchdog had fired it.
    pub fn disarm(&self, index: usize) -> bool {
        self.slot(index).disarm() == row::FIRED
    }

    /// Whether the watchdog fired a row.
    pub fn fired(&self, index: usize) -> bool {
        self.slot(index).state.load(Ordering::SeqCst) & row::STATE == row::FIRED
    }
}

/// A watchdog process.
#[derive(Debug)]
pub struct Watchdog {
    socket: OwnedFd,
    pidfd: OwnedFd,
}

impl Watchdog {
    pub(crate) fn new(socket: OwnedFd, pidfd: OwnedFd) -> Self {
        Watchdog { socket, pidfd }
    }

    /// Starts a watchdog over `table`. Unlike the launcher it outlives the calling thread and,
    /// briefly, the engine.
    pub fn start(table: &SharedTable) -> io::Result<Self> {
        let (socket, theirs) = socket::pair()?;
        let pidfd = crate::helper::start(c"watchdog", theirs.as_fd())?;
        let watchdog = Watchdog { socket, pidfd };
        watchdog.watch(table)?;
        Ok(watchdog)
    }

    /// Makes a watchdog of a copy of this process, which must have a single thread: for a short
    /// command line executing another program takes as long as all that the watchdog does. It needs
    /// a table.
    ///
    /// # Errors
    /// As [`clone_process`].
    pub fn fork() -> io::Result<Self> {
        let (socket, theirs) = socket::pair()?;
        let serve = || watchdog_process::main_of_copy(theirs.as_raw_fd());
        let child = clone_process(CloneRequest::default(), serve)?;
        Ok(Watchdog { socket, pidfd: child.pidfd })
    }

    /// Gives it the table of the slots that it is to kill at their deadlines.
    ///
    /// # Errors
    /// If it has ended.
    pub fn watch(&self, table: &SharedTable) -> io::Result<()> {
        self.send_command(order::TABLE, 0, Some(table.memory.as_fd()))
    }

    /// Readable when the watchdog has died.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Says how row `index` is killed: by writing to this cgroup.kill file.
    pub fn kill_by_cgroup(&self, index: usize, kill_file: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(order::CGROUP, index, Some(kill_file))
    }

    /// Says how row `index` is killed: by killing its init.
    pub fn kill_by_pidfd(&self, index: usize, pidfd: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(order::PIDFD, index, Some(pidfd))
    }

    /// Sends how slot `index` is killed if no pid namespace dies with init: init is signalled to
    /// sweep.
    pub fn kill_by_sweeper(&self, index: usize, pidfd: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(order::SWEEPER, index, Some(pidfd))
    }

    /// Makes it drop the pidfd of row `index`.
    pub fn forget(&self, index: usize) -> io::Result<()> {
        self.send_command(order::FORGET, index, None)
    }

    /// Hands over a directory whose `run-<row>` entries it removes once the engine is gone.
    pub fn sweep_directory(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(order::DIRECTORY, 0, Some(directory))
    }

    /// Has it hold a descriptor open for as long as it lives.
    pub fn hold(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(order::HOLD, 0, Some(fd))
    }

    /// Shows it this process, whose end it is to see by itself.
    pub fn show_engine(&self) -> io::Result<()> {
        let own =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
        self.send_command(order::ENGINE, 0, Some(own.as_fd()))
    }

    /// Makes it look at the table now.
    pub fn wake(&self) -> io::Result<()> {
        self.send_command(order::LOOK, 0, None)
    }

    /// Ends it at once: nothing is left to watch.
    pub fn dismiss(&self) {
        crate::process::kill_and_reap(self.pidfd.as_fd());
    }

    fn send_command(&self, kind: u32, index: usize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        debug_assert!(index < ROWS, "row {index} is outside the table");
        let message = WatchdogOrder { kind, row: index as u32 };
        socket::send(&self.socket, bytes_of(&message), fd.as_slice(), false)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Its socket closes with this: it kills what is left, sweeps and leaves. A stopped one is
        // not waited for long.
        let (closed, _) = match socket::pair() {
            Ok(pair) => pair,
            Err(_) => return,
        };
        drop(std::mem::replace(&mut self.socket, closed));
        if !crate::process::wait_readable(self.pidfd.as_fd(), 1000) {
            crate::process::kill_and_reap(self.pidfd.as_fd());
        }
        crate::process::reap(self.pidfd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_rows_end_after_highest_armed_row() {
        let table = SharedTable::new().expect("a table");
        assert!(table.table.used_rows().is_empty());
        for (index, end) in [(7, 8), (2, 8), (ROWS - 1, ROWS)] {
            table.arm(index, 100);
            assert_eq!(table.table.used_rows().len(), end, "row {index}");
        }
    }

    /// What the watchdog reads, then what the engine does, then what the watchdog does with what it
    /// has read.
    #[test]
    fn slot_rearmed_after_read_does_not_fire() {
        let table = SharedTable::new().expect("a table");
        let slot = table.slot(7);
        table.arm(7, 100);
        let (armed_state, deadline) = slot.armed().expect("armed");
        assert_eq!(deadline, 100);
        // The run ends, and the row is the next run's.
        assert!(!table.disarm(7));
        table.arm(7, 900);
        assert!(!slot.fire(armed_state), "the next run is killed for the end of the last");
        assert!(!table.fired(7));
        let (armed_state, deadline) = slot.armed().expect("armed");
        assert_eq!(deadline, 900);
        assert!(slot.fire(armed_state));
        // A later end comes too late, and the row says so until it is disarmed.
        table.arm(7, 1_000);
        assert!(table.fired(7));
        assert!(table.disarm(7));
        assert!(slot.armed().is_none());
    }
}
