//! Memory in files, which no process's resident memory has: of memfds that are open, and of the
//! private tmpfs.
//!
//! Data queued in sockets and pipes is not counted.

use crate::census;
use crate::sys::{self, Fd, call, nr};

/// Descriptors inspected for one sample: 65,536 of many processes would take longer than the time
/// between two.
const MAX_DESCRIPTORS: usize = 16_384;
/// Places for memfds that were counted; a power of two. What finds none is counted again for each
/// of its descriptors.
const PLACES: usize = 4096;

/// Memfds by their inode, each counted once however many descriptors it has.
pub struct Files {
    proc: isize,
    /// The device of memfds, which they share with nothing that has a name.
    device: u64,
    seen: [u64; PLACES],
    descriptors: usize,
    bytes: u64,
    /// Pages that processes have mapped of files of any kind, those of memory among them.
    mapped_pages: u64,
}

impl Files {
    pub fn new() -> Self {
        let memfd = call!(nr::MEMFD_CREATE, c"st".as_ptr(), 1);
        let device = status(memfd, c"".as_ptr().cast(), 0x1000).map_or(u64::MAX, |status| status[0]);
        sys::close(memfd as Fd);
        let proc = sys::open_at(sys::AT_FDCWD, c"/proc".as_ptr().cast(), sys::O_RDONLY | sys::O_DIRECTORY, 0);
        Files { proc, device, seen: [0; PLACES], descriptors: 0, bytes: 0, mapped_pages: 0 }
    }

    /// Adds those that a process has open, as far as this one may look.
    pub fn add(&mut self, pid: u64) {
        let (digits, at) = census::text_of(pid as i32);
        let name = &digits[at..digits.len() - 1];
        let mut path = [0u8; 20];
        path[..name.len()].copy_from_slice(name);
        path[name.len()..name.len() + 6].copy_from_slice(b"/statm");
        self.mapped_pages += mapped_pages(self.proc, path.as_ptr());
        path[name.len()..name.len() + 6].copy_from_slice(b"/fd\0\0\0");
        let directory = sys::open_at(self.proc, path.as_ptr(), sys::O_RDONLY | sys::O_DIRECTORY, 0);
        if directory < 0 {
            return;
        }
        sys::entries(directory, |name| {
            if name[0].is_ascii_digit() && self.descriptors < MAX_DESCRIPTORS {
                self.descriptors += 1;
                if let Some(status) = status(directory, name.as_ptr(), 0)
                    && status[0] == self.device
                    && self.is_new(status[1])
                {
                    // Blocks of 512 bytes.
                    self.bytes += status[8] * 512;
                }
            }
        });
        sys::close(directory as Fd);
    }

    fn is_new(&mut self, inode: u64) -> bool {
        for step in 0..16 {
            let place = &mut self.seen[(inode as usize + step) % PLACES];
            if *place == inode {
                return false;
            }
            if *place == 0 {
                *place = inode;
                return true;
            }
        }
        true
    }

    /// The memory of processes with these resident bytes and all in files: memfds, and the private
    /// tmpfs of a sandbox that has one. What of the files is mapped is resident as well, and is
    /// counted once.
    pub fn with(self, resident: u64) -> u64 {
        sys::close(self.proc as Fd);
        const TMPFS: u64 = 0x0102_1994;
        // `struct statfs`: type, block size, blocks, free blocks, and more.
        let mut statistics = [0u64; 15];
        let is_private = call!(nr::GETPID) == 1
            && call!(nr::STATFS, c"/tmp".as_ptr(), statistics.as_mut_ptr()) == 0
            && statistics[0] == TMPFS;
        let private = statistics[2].saturating_sub(statistics[3]) * statistics[1];
        let files = self.bytes + if is_private { private } else { 0 };
        resident + files.saturating_sub(self.mapped_pages * 4096)
    }
}

/// The third number of /proc/PID/statm.
fn mapped_pages(proc: isize, path: *const u8) -> u64 {
    let fd = sys::open_at(proc, path, sys::O_RDONLY, 0);
    if fd < 0 {
        return 0;
    }
    let mut text = [0u8; 128];
    let length = sys::read(fd as Fd, &mut text);
    sys::close(fd as Fd);
    text[..length.max(0) as usize].split(|byte| *byte == b' ').nth(2).map_or(0, sys::decimal)
}

/// `struct stat` of x86-64 in words: device, inode, … and the blocks as the ninth.
fn status(directory: isize, path: *const u8, flags: usize) -> Option<[u64; 18]> {
    let mut status = [0u64; 18];
    (call!(nr::NEWFSTATAT, directory, path, status.as_mut_ptr(), flags) == 0).then_some(status)
}
