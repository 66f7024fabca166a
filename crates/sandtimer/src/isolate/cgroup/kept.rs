//! Files of a slot's groups that are read with each run, held open: opening one costs more than
//! reading it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, TryLockError};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Rows above do without, whatever the limit of descriptors: each such file has a page of the
/// kernel's.
const MAX_SLOTS: u64 = 256;
/// A slot may have one of this many descriptors of the process.
const DESCRIPTORS_PER_SLOT: u64 = 64;

/// Most that is read of a file.
const MAX_BYTES: usize = 1024;
/// Files of a slot's groups that are read.
const MAX_FILES: usize = 16;

/// The text of a small file; takes no memory of its own, so that the enforcer can read it.
#[derive(Debug)]
pub(super) struct SmallFile {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Default for SmallFile {
    fn default() -> Self {
        SmallFile { bytes: [0; MAX_BYTES], length: 0 }
    }
}

impl std::ops::Deref for SmallFile {
    type Target = str;

    fn deref(&self) -> &str {
        // The kernel's counters are ASCII.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// By name, which no two of the groups that are read have in common.
#[derive(Debug, Default)]
pub(super) struct CounterFiles(Option<Mutex<Vec<(&'static str, OwnedFd)>>>);

impl CounterFiles {
    /// Nothing is held if there are too few descriptors for the slots.
    pub fn of_slot(slot: usize) -> Self {
        static SLOTS_WITH_FILES: OnceLock<u64> = OnceLock::new();
        let slots = SLOTS_WITH_FILES.get_or_init(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            (limit / DESCRIPTORS_PER_SLOT).min(MAX_SLOTS)
        });
        CounterFiles(((slot as u64) < *slots).then(|| Mutex::new(Vec::with_capacity(MAX_FILES))))
    }

    /// Opens a file that is to be read later, if any are held.
    pub fn hold(&self, directory: BorrowedFd<'_>, name: &'static str) -> Result<(), Errno> {
        self.0.as_ref().map_or(Ok(()), |_| self.read(directory, name).map(drop))
    }

    /// What is in a small file of a directory.
    pub fn read(&self, directory: BorrowedFd<'_>, name: &'static str) -> Result<SmallFile, Errno> {
        let open = || openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mut files = match self.0.as_ref().map(Mutex::try_lock) {
            Some(Ok(files)) => files,
            // Poisoning is harmless: the list only grows, by single insertions.
            Some(Err(TryLockError::Poisoned(files))) => files.into_inner(),
            // The enforcer does not wait for another thread that reads.
            Some(Err(TryLockError::WouldBlock)) | None => return text(&open()?),
        };
        if let Some((_, file)) = files.iter().find(|(other, _)| *other == name) {
            return text(file);
        }
        let file = open()?;
        let text = text(&file);
        files.push((name, file));
        text
    }
}

/// What is in a small file that is open.
pub(super) fn text(file: &OwnedFd) -> Result<SmallFile, Errno> {
    let mut text = SmallFile::default();
    text.length = rustix::io::pread(file, &mut text.bytes, 0)?;
    Ok(text)
}
