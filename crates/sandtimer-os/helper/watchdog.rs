//! A process that kills what the engine should have killed and did not.
//!
//! Of the engine's memory it shares one table, and it waits for no lock; it has no heap and no
//! second thread. It keeps descriptors: what kills each row, the directories of the rows' cgroups,
//! and the lock of the engine's number, which no other engine can take before this process has
//! ended. A row whose deadline is [`WATCHDOG_SLACK_NANOSECONDS`] past is killed; when the engine's
//! socket closes or its process is dead, all rows are, and the cgroups they ran in are removed.

use core::sync::atomic::Ordering;

use crate::group::kill_each;
use crate::sys::{self, Fd, PollFd, call, nr};
use crate::wire::{
    ENGINE_SOCKET, ROWS, Table, WATCHDOG_SLACK_NANOSECONDS, WatchdogOrder, watchdog_order as order,
};

const MAX_DIRECTORIES: usize = 8;
/// Messages that are handled before the table is read again: a deadline may pass during that time.
const MAX_MESSAGES_AT_A_TIME: usize = 64;
/// How soon a socket that cannot be read is tried again, as while the kernel has no memory.
const RETRY_MILLISECONDS: i32 = 10;
/// Attempts in a row after which an engine that has closed its end counts as gone.
const MAX_FAILED_READS: u32 = 100;

/// What there was to read in the engine's socket.
#[derive(Clone, Copy, PartialEq)]
enum MessageResult {
    Handled,
    /// Nothing now.
    Empty,
    /// The engine is gone.
    Closed,
    /// The system refuses to read it.
    Failed,
}

#[derive(Clone, Copy, PartialEq)]
enum Means {
    None,
    Cgroup(Fd),
    Pidfd(Fd),
    Sweeper(Fd),
}

struct Watchdog {
    table: Option<&'static Table>,
    means: [Means; ROWS],
    directories: [Fd; MAX_DIRECTORIES],
    directory_count: usize,
    engine: Option<Fd>,
}

// Too large for a comfortable stack. All zeros, so that it takes no place in the image either,
// which is written to memory for each engine.
static mut WATCHDOG: Watchdog = Watchdog {
    table: None,
    means: [Means::None; ROWS],
    directories: [0; MAX_DIRECTORIES],
    directory_count: 0,
    engine: None,
};

/// As [`main`], in a copy of a process with one thread, which has executed nothing.
#[allow(dead_code, reason = "only the library makes copies that need this; the launcher has done it before")]
pub fn main_of_copy(socket: Fd) -> ! {
    sys::reset_signals();
    sys::drop_standard_descriptors();
    call!(nr::DUP2, socket, ENGINE_SOCKET);
    // It has a copy of the engine's own end of the socket, too: with that open it would never see
    // the socket closed.
    if call!(nr::CLOSE_RANGE, ENGINE_SOCKET + 1, u32::MAX, 0) < 0 {
        sys::exit(1);
    }
    main()
}

/// In a process whose socket to the engine is [`ENGINE_SOCKET`].
pub fn main() -> ! {
    sys::prctl(sys::PR_SET_NAME, c"st-watchdog".as_ptr() as usize);
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    call!(nr::SETSID);
    call!(nr::CHDIR, c"/".as_ptr());
    call!(nr::CLOSE_RANGE, ENGINE_SOCKET + 1, u32::MAX, 0);
    // It keeps a descriptor for each row. What the engine may have open later is no matter of the
    // limit that it has now.
    sys::raise_descriptor_limit();
    let priority = 1u32;
    call!(nr::SCHED_SETSCHEDULER, 0, 1, &raw const priority);
    let watchdog = &raw mut WATCHDOG;
    // SAFETY: the process has one thread and this is the only reference to the static.
    let watchdog = unsafe { &mut *watchdog };
    let mut failed_reads = 0;
    loop {
        let next = watchdog.look();
        let fds = [ENGINE_SOCKET, watchdog.engine.unwrap_or(-1)];
        let mut fds = fds.map(|fd| PollFd { fd, events: sys::POLLIN, revents: 0 });
        sys::poll(&mut fds, sys::poll_timeout(next));
        // The engine's last messages first: they contain how to kill what it has started.
        if fds[1].revents != 0 {
            watchdog.handle_last_messages();
            watchdog.end_everything();
        }
        let result = if fds[0].revents == 0 { MessageResult::Empty } else { watchdog.handle_messages() };
        failed_reads = if result == MessageResult::Failed { failed_reads + 1 } else { 0 };
        let is_closed = result == MessageResult::Closed
            || failed_reads > MAX_FAILED_READS && fds[0].revents & sys::POLLHUP != 0;
        if is_closed {
            watchdog.end_everything();
        }
        if result == MessageResult::Failed {
            // It has the processor before all others.
            sys::poll(&mut [], RETRY_MILLISECONDS);
        }
    }
}

impl Watchdog {
    /// Kills what is overdue; returns when to look next.
    fn look(&mut self) -> u64 {
        let Some(table) = self.table else { return u64::MAX };
        // First `next_look` is set to never, then the table is read: the engine writes a row and
        // then reads `next_look`, so either the row is found here or the engine finds that it must
        // wake this process.
        table.next_look.store(u64::MAX, Ordering::SeqCst);
        let now = sys::now();
        let mut next = u64::MAX;
        for (index, entry) in table.used_rows().iter().enumerate() {
            let Some((word, deadline)) = entry.armed() else { continue };
            let due = deadline.saturating_add(WATCHDOG_SLACK_NANOSECONDS);
            if due > now {
                next = next.min(due);
            } else if entry.fire(word) {
                self.kill(index);
            }
        }
        table.next_look.store(next, Ordering::SeqCst);
        next
    }

    fn kill(&self, index: usize) {
        match self.means[index] {
            Means::Cgroup(fd) => {
                sys::write(fd, b"1");
                // The engine sends its directory in the v2 hierarchy first, and has one where it
                // kills by cgroup. A run of a sandbox with limits has its group elsewhere, and a
                // pid namespace that ends with its init.
                if self.directory_count > 0 {
                    kill_each(self.directories[0], &run_name(index));
                }
            }
            Means::Pidfd(fd) => {
                call!(nr::PIDFD_SEND_SIGNAL, fd, sys::SIGKILL, 0, 0);
            }
            Means::Sweeper(fd) => {
                // An init that its job has stopped does not read the other signal.
                call!(nr::PIDFD_SEND_SIGNAL, fd, sys::SIGCONT, 0, 0);
                call!(nr::PIDFD_SEND_SIGNAL, fd, sys::SIGTERM, 0, 0);
            }
            Means::None => {}
        }
    }

    /// Handles what the engine has sent, as long as there is something.
    fn handle_messages(&mut self) -> MessageResult {
        for _ in 0..MAX_MESSAGES_AT_A_TIME {
            let result = self.handle_message();
            if result != MessageResult::Handled {
                return result;
            }
        }
        MessageResult::Handled
    }

    /// Handles what a dead engine has sent.
    fn handle_last_messages(&mut self) {
        let mut failed_reads = 0;
        while failed_reads <= MAX_FAILED_READS {
            match self.handle_message() {
                MessageResult::Handled => failed_reads = 0,
                MessageResult::Failed => {
                    failed_reads += 1;
                    sys::poll(&mut [], RETRY_MILLISECONDS);
                }
                MessageResult::Empty | MessageResult::Closed => return,
            }
        }
    }

    fn handle_message(&mut self) -> MessageResult {
        let mut message = WatchdogOrder { kind: 0, row: 0 };
        // SAFETY: WatchdogOrder is plain numbers; any bytes are a valid value of it.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut((&raw mut message).cast::<u8>(), size_of::<WatchdogOrder>())
        };
        let received = sys::receive(ENGINE_SOCKET, bytes, sys::MSG_DONTWAIT);
        match received.length {
            // Only these mean that the engine is gone.
            0 | sys::ECONNRESET => return MessageResult::Closed,
            // A message without room for its descriptor.
            1.. | sys::EINVAL => {}
            sys::EAGAIN | sys::EINTR => return MessageResult::Empty,
            _ => return MessageResult::Failed,
        }
        // Without room for the descriptor the row has no means: init and the engine are left to it.
        let fd = if received.fd_count > 0 { received.fds[0] } else { -1 };
        let index = (message.row as usize).min(ROWS - 1);
        match message.kind {
            order::TABLE => self.map(fd),
            order::CGROUP | order::PIDFD | order::SWEEPER if fd < 0 => self.replace(index, Means::None),
            order::CGROUP => self.replace(index, Means::Cgroup(fd)),
            order::PIDFD => self.replace(index, Means::Pidfd(fd)),
            order::SWEEPER => self.replace(index, Means::Sweeper(fd)),
            order::FORGET => self.replace(index, Means::None),
            order::DIRECTORY if fd >= 0 && self.directory_count < MAX_DIRECTORIES => {
                self.directories[self.directory_count] = fd;
                self.directory_count += 1;
            }
            order::HOLD => {}
            order::ENGINE => self.engine = (fd >= 0).then_some(fd),
            _ => {}
        }
        MessageResult::Handled
    }

    fn replace(&mut self, index: usize, means: Means) {
        match core::mem::replace(&mut self.means[index], means) {
            Means::Cgroup(fd) | Means::Pidfd(fd) | Means::Sweeper(fd) => sys::close(fd),
            Means::None => {}
        }
    }

    fn map(&mut self, fd: Fd) {
        let address = call!(nr::MMAP, 0, size_of::<Table>(), 3, 1, fd, 0);
        sys::close(fd);
        if !(-4095..0).contains(&address) {
            // SAFETY: a shared mapping of the whole table that is never unmapped; all its fields
            // are atomic.
            self.table = Some(unsafe { &*(address as *const Table) });
        }
    }

    /// The engine is gone: nothing it started may stay.
    fn end_everything(&mut self) -> ! {
        for index in 0..ROWS {
            self.kill(index);
            // Its descriptor's place may be needed to read the groups.
            self.replace(index, Means::None);
        }
        // The inits no longer have a parent that waits; the process that adopted them reaps them.
        // The directories empty within milliseconds; a process that cannot die keeps its directory,
        // which the next engine sweeps. A pass must cost little: at its real-time priority this
        // process would starve those whose end it waits for.
        for _ in 0..200 {
            let mut left = false;
            for directory in &self.directories[..self.directory_count] {
                // Including those of parked jails, which the watchdog never received.
                let is_whole = each_run(*directory, |name| {
                    // The slot of a sandbox has the groups of its runs in its own.
                    let stays = remove(*directory, name)
                        && (remove_below(*directory, name) || remove(*directory, name));
                    if stays {
                        left = true;
                        kill_each(*directory, name);
                    }
                });
                left |= !is_whole;
            }
            if !left {
                break;
            }
            sys::poll(&mut [], 10);
        }
        sys::exit(0)
    }
}

/// Removes a group; returns whether it stays because something is in it.
fn remove(directory: Fd, name: &[u8]) -> bool {
    call!(nr::UNLINKAT, directory, name.as_ptr(), 0x200) == -16
}

/// Removes the groups of rows in the group `name`; returns whether one stays.
fn remove_below(directory: Fd, name: &[u8]) -> bool {
    let group = sys::open_at(directory as isize, name.as_ptr(), sys::O_DIRECTORY, 0);
    if group < 0 {
        return false;
    }
    let mut left = false;
    let is_whole = each_run(group as Fd, |name| {
        if remove(group as Fd, name) {
            left = true;
            kill_each(group as Fd, name);
        }
    });
    sys::close(group as Fd);
    left || !is_whole
}

/// Calls `visit` for the group of each row in a group; names end with NUL. Returns whether the
/// group could be read.
fn each_run(group: Fd, mut visit: impl FnMut(&[u8])) -> bool {
    let list = sys::open_at(group as isize, c".".as_ptr().cast(), sys::O_DIRECTORY, 0);
    if list < 0 {
        return false;
    }
    let is_whole = sys::entries(list, |name| {
        if name.starts_with(b"run-") {
            visit(name);
        }
    });
    sys::close(list as Fd);
    is_whole
}

/// `run-<index>` with its NUL.
fn run_name(index: usize) -> [u8; 16] {
    let mut name = *b"run-\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut divisor = 1;
    while index / divisor >= 10 {
        divisor *= 10;
    }
    let mut at = 4;
    while divisor > 0 {
        name[at] = b'0' + (index / divisor % 10) as u8;
        at += 1;
        divisor /= 10;
    }
    name
}
