//! How much of a file the kernel keeps in memory.

use std::fs::File;
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;

/// Bytes of the first `length` of a file that are in the page cache.
///
/// # Panics
/// When the file cannot be mapped.
#[must_use]
pub fn resident_bytes(file: &File, length: u64) -> u64 {
    let length = length as usize;
    let mut pages = vec![0u8; length.div_ceil(PAGE)];
    // SAFETY: a fresh mapping of that length, never touched, and one byte for each of its pages.
    let result = unsafe {
        let start =
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED, "map a file");
        let result = libc::mincore(start, length, pages.as_mut_ptr());
        libc::munmap(start, length);
        result
    };
    assert_eq!(result, 0, "mincore: {}", std::io::Error::last_os_error());
    (pages.iter().filter(|page| **page & 1 == 1).count() * PAGE) as u64
}
