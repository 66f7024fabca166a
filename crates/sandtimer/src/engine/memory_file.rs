//! What a jail shows as its memory.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::isolate::machine::format_meminfo;

/// The /proc/meminfo of a sandbox that is built before the limits of its job are known.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: OwnedFd,
    /// Bytes.
    shown: AtomicU64,
}

impl MemoryFile {
    pub fn new(file: OwnedFd) -> Self {
        MemoryFile { file, shown: AtomicU64::new(u64::MAX) }
    }

    /// Writes this many bytes as the total memory.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn show(&self, bytes: u64) -> std::io::Result<()> {
        if self.shown.swap(bytes, Ordering::Relaxed) != bytes {
            rustix::io::pwrite(&self.file, format_meminfo(bytes).as_bytes(), 0)?;
        }
        Ok(())
    }
}
