//! Preallocated files for later records: a thread that writes a record does not wait for an inode.
//!
//! A new file is the dear part of a record. On an ext4 without a journal it costs the more the more
//! files were removed lately: for one to six minutes their inodes are passed over one by one
//! ([`recently_deleted`]), and a thread that renames a file in this directory waits until that is
//! done. So files are made while no thread waits, and in quiet times as many as a burst needs. A
//! name that ends in `.spare` belongs to no run; if none is left, the thread that needs one makes
//! it. No file is used twice, for a reader may still have it open.
//!
//! [`recently_deleted`]: https://elixir.bootlin.com/linux/v6.12/source/fs/ext4/ialloc.c#L688

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record::create;

/// The ending of the names of files that are no record yet.
pub(crate) const PREALLOCATED_EXTENSION: &str = "spare";
/// How many are made at a time in quiet times, which are those in which no more are taken.
const IDLE_BATCH: usize = 8;
/// How many are made at a time during a burst: a thread that renames a file waits for each of them.
const BURST_BATCH: usize = 64;
/// How many there are at most.
const MAX_FILES: usize = 1024;

/// The spare files of a directory.
#[derive(Debug)]
pub(crate) struct PreallocatedFiles {
    directory: PathBuf,
    files: Mutex<Vec<PathBuf>>,
    /// The number in the next one's name.
    next: AtomicU64,
    /// How many were taken since the last `preallocate`.
    taken: AtomicUsize,
}

impl PreallocatedFiles {
    pub fn new(directory: PathBuf) -> Self {
        PreallocatedFiles {
            directory,
            files: Mutex::default(),
            next: AtomicU64::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// An empty file and its name.
    ///
    /// # Errors
    /// There was none left, and none can be made.
    pub fn take(&self) -> io::Result<(File, PathBuf)> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        loop {
            let Some(path) = self.lock().pop() else { return self.make() };
            match File::options().write(true).open(&path) {
                Ok(file) => return Ok((file, path)),
                // Another program may remove such a file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The file exists: it stays for a later caller, when descriptors are available
                // again.
                Err(_) => {
                    self.lock().insert(0, path);
                    return self.make();
                }
            }
        }
    }

    /// Adds a file that was there when the directory was opened, or removes it if it was written
    /// to, was not made here, or exceeds the maximum.
    pub fn add(&self, path: PathBuf) -> io::Result<()> {
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        match number {
            Some(number) if fs::metadata(&path)?.len() == 0 && self.lock().len() < MAX_FILES => {
                self.next.fetch_max(number.saturating_add(1), Ordering::Relaxed);
                self.lock().push(path);
                Ok(())
            }
            _ => fs::remove_file(&path),
        }
    }

    /// Makes files for the callers until the next pass: none if as many are left as were taken
    /// since the last pass, a few more in quiet times. Returns whether no more need to be made
    /// until some are taken: the maximum is reached, or making one failed.
    pub fn preallocate(&self) -> bool {
        let (taken, left) = (self.taken.swap(0, Ordering::Relaxed), self.lock().len());
        let wanted = match taken {
            ..=IDLE_BATCH => IDLE_BATCH,
            _ if left < taken => BURST_BATCH,
            _ => 0,
        };
        for _ in 0..wanted.min(MAX_FILES.saturating_sub(left)) {
            let Ok((_, path)) = self.make() else { return true };
            self.lock().push(path);
        }
        self.lock().len() >= MAX_FILES
    }

    fn make(&self) -> io::Result<(File, PathBuf)> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.directory.join(format!("{number}.{PREALLOCATED_EXTENSION}"));
            match create(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        // A list of names; whole whatever happened to the thread that held it.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_finds_files_that_were_made_in_quiet_times() {
        let directory = tempfile::tempdir().expect("a directory");
        let preallocated = PreallocatedFiles::new(directory.path().to_owned());
        let count = || fs::read_dir(directory.path()).expect("readable").count();
        assert!(!preallocated.preallocate());
        assert_eq!(count(), IDLE_BATCH, "they keep nobody from a processor");
        while !preallocated.preallocate() {}
        assert_eq!(count(), MAX_FILES);
        let use_up = |number| {
            for _ in 0..number {
                let (_, path) = preallocated.take().expect("a file");
                fs::remove_file(path).expect("removed");
            }
        };
        // In the midst of a burst none is made as long as there are enough for as many again.
        use_up(MAX_FILES / 2);
        assert!(!preallocated.preallocate());
        assert_eq!(count(), MAX_FILES / 2);
        use_up(MAX_FILES / 2 - 1);
        assert!(!preallocated.preallocate());
        assert_eq!(count(), 1 + BURST_BATCH, "and then not so many that they hold up the burst");
        // It has ended.
        while !preallocated.preallocate() {}
        assert_eq!(count(), MAX_FILES);
    }

    #[test]
    fn failed_preallocation_is_not_retried() {
        let preallocated = PreallocatedFiles::new(PathBuf::from("/proc/no such directory"));
        assert!(preallocated.preallocate() && preallocated.take().is_err());
    }
}
