//! What is alive around init, read from /proc without a heap.

use crate::files::Files;
use crate::sys::{self, Fd, call, nr};

/// Totals over the processes that were found.
pub struct Sample {
    /// Microseconds of processor time, of the living and of all that init has reaped.
    pub cpu: u64,
    pub processes: u64,
    pub threads: u64,
    /// With what the processes have in files of memory.
    pub memory_bytes: u64,
}

/// Fields of /proc/<pid>/stat that are used here; proc_pid_stat(5).
pub struct Stat {
    pub pid: u64,
    pub parent: u64,
    /// Dead, and only not waited for yet: all of its threads. The state is that of the first
    /// thread, which may have ended before others.
    pub is_dead: bool,
    ticks: u64,
    threads: u64,
    resident_pages: u64,
}

/// How many threads a process has; 0 where there is none.
pub fn threads_of(pid: i32) -> u64 {
    one(pid).map_or(0, |stat| stat.threads)
}

/// Calls `visit` for every process that /proc shows, init itself excepted.
pub fn each(mut visit: impl FnMut(&Stat)) {
    let own = call!(nr::GETPID) as u64;
    let directory =
        sys::open_at(sys::AT_FDCWD, c"/proc".as_ptr().cast(), sys::O_RDONLY | sys::O_DIRECTORY, 0);
    if directory < 0 {
        return;
    }
    sys::entries(directory, |name| {
        if name[0].is_ascii_digit()
            && sys::decimal(name) != own
            && let Some(stat) = read(directory, name)
        {
            visit(&stat);
        }
    });
    sys::close(directory as Fd);
}

/// A process by its number; none where there is no such.
fn one(pid: i32) -> Option<Stat> {
    let (digits, at) = text_of(pid);
    let directory =
        sys::open_at(sys::AT_FDCWD, c"/proc".as_ptr().cast(), sys::O_RDONLY | sys::O_DIRECTORY, 0);
    let stat = read(directory, &digits[at..]);
    sys::close(directory as Fd);
    stat
}

/// A number as text that ends with NUL, and where it begins.
pub fn text_of(pid: i32) -> ([u8; 12], usize) {
    let mut digits = [0u8; 12];
    let mut at = digits.len() - 1;
    let mut rest = pid.max(0);
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    (digits, at)
}

/// The parent of a process; 0 where there is none.
pub fn parent(pid: i32) -> i32 {
    one(pid).map_or(0, |stat| stat.parent as i32)
}

/// Whether a stopped process stays so by itself: it has one thread, and no parent whose death could
/// continue it. That no timer does is the filter's affair.
pub fn stays_stopped(pid: i32) -> bool {
    one(pid).is_some_and(|stat| stat.parent == 1 && stat.threads == 1)
}

fn read(proc: isize, name: &[u8]) -> Option<Stat> {
    let mut path = [0u8; 32];
    let digits = name.iter().position(|byte| *byte == 0)?;
    path[..digits].copy_from_slice(&name[..digits]);
    path[digits..digits + 5].copy_from_slice(b"/stat");
    let fd = sys::open_at(proc, path.as_ptr(), sys::O_RDONLY, 0);
    if fd < 0 {
        return None;
    }
    let mut text = [0u8; 1024];
    let length = sys::read(fd as Fd, &mut text);
    sys::close(fd as Fd);
    let text = text.get(..length.max(0) as usize)?;
    // The name in parentheses may hold spaces and parentheses of its own; the last one closes it.
    let after = text.iter().rposition(|byte| *byte == b')')? + 2;
    let mut fields = text[after..].split(|byte| *byte == b' ');
    let mut stat =
        Stat { pid: sys::decimal(name), parent: 0, is_dead: false, ticks: 0, threads: 0, resident_pages: 0 };
    for index in 3..=24 {
        let field = fields.next()?;
        let value = sys::decimal(field);
        match index {
            3 => stat.is_dead = matches!(field, b"Z" | b"X"),
            4 => stat.parent = value,
            14..=17 => stat.ticks += value,
            20 => {
                stat.threads = value;
                stat.is_dead &= value <= 1;
            }
            24 => stat.resident_pages = value,
            _ => {}
        }
    }
    Some(stat)
}

/// The processes that /proc shows, each with its parent, by ascending PID as /proc lists them.
struct Parents {
    entries: [(u32, u32); MAX_PROCESSES],
    count: usize,
}

/// Of a host, where init has no pid namespace of its own. What is beyond is not counted.
const MAX_PROCESSES: usize = 8192;

// In .bss: too large for a comfortable stack.
static mut PARENTS: Parents = Parents { entries: [(0, 0); MAX_PROCESSES], count: 0 };

impl Parents {
    fn read(&mut self) {
        self.count = 0;
        each(|stat| {
            if let Some(entry) = self.entries.get_mut(self.count) {
                *entry = (stat.pid as u32, stat.parent as u32);
                self.count += 1;
            }
        });
    }

    fn descends(&self, pid: u64, from: u64) -> bool {
        let entries = &self.entries[..self.count];
        let mut pid = pid as u32;
        // A loop can only come from PIDs that were used again while the list was read.
        for _ in 0..self.count {
            let Ok(at) = entries.binary_search_by_key(&pid, |(pid, _)| *pid) else { return false };
            pid = entries[at].1;
            if u64::from(pid) == from {
                return true;
            }
        }
        false
    }
}

/// Adds up what descends from init. Time is in ticks of 10 ms for the living, exact for those init
/// has reaped.
pub fn sample() -> Sample {
    let own = call!(nr::GETPID) as u64;
    // In a pid namespace of its own /proc shows nothing else.
    let is_alone = own == 1;
    // SAFETY: the program has one thread, and this is the only reference to the static.
    let parents = unsafe { &mut *&raw mut PARENTS };
    if !is_alone {
        parents.read();
    }
    let mut total = Sample { cpu: 0, processes: 0, threads: 0, memory_bytes: 0 };
    let mut files = Files::new();
    each(|stat| {
        if !is_alone && !parents.descends(stat.pid, own) {
            return;
        }
        files.add(stat.pid);
        total.cpu += stat.ticks * 10_000;
        total.processes += 1;
        total.threads += stat.threads;
        total.memory_bytes += stat.resident_pages * 4096;
    });
    total.memory_bytes = files.with(total.memory_bytes);
    let mut usage = [0u64; 18];
    call!(nr::GETRUSAGE, -1isize, usage.as_mut_ptr());
    total.cpu += (usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3];
    total
}

/// Own children that are alive, the orphans this process has adopted among them.
pub fn children() -> u64 {
    let own = call!(nr::GETPID) as u64;
    let mut count = 0;
    each(|stat| count += u64::from(stat.parent == own));
    count
}

/// Signals own children, the orphans this process has adopted among them.
pub fn signal_children(signal: i32) {
    let own = call!(nr::GETPID) as u64;
    each(|stat| {
        if stat.parent == own {
            call!(nr::KILL, stat.pid, signal);
        }
    });
}

/// Kills and reaps all descendants, where no pid namespace does it. Orphans come to this process,
/// which is their subreaper, so every pass finds the children of those that the last one killed.
/// Returns how many are left.
pub fn sweep() -> u64 {
    let own = call!(nr::GETPID) as u64;
    for _ in 0..1000 {
        each(|stat| {
            if stat.parent == own {
                call!(nr::KILL, stat.pid, sys::SIGKILL);
            }
        });
        loop {
            let pid = call!(nr::WAIT4, -1isize, 0, 1, 0);
            if pid == sys::ECHILD {
                return 0;
            }
            if pid <= 0 {
                break;
            }
        }
        sys::poll(&mut [], 1);
    }
    children()
}
