//! Reserved room on the disk for when it is full: active jobs can still be renewed, finished and
//! cancelled, and ended ones purged.
//!
//! It is a file next to the database that is released if such a change finds no room, and made
//! again, as large as there is room, as soon as the change is done, so that no other program gets
//! it; opening the database, purging and sweeping bring back the rest. New jobs, logs and files
//! never get it: while the disk has less than that free no job is taken in or handed out, and logs
//! and files are refused.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::job::StoreError;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Bytes: several times what SQLite's log takes between two checkpoints of small transactions.
const RESERVE_BYTES: u64 = 4 << 20;

/// What the database must have inside it that is free before new jobs come in on a full disk.
const MIN_FREE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Reserve {
    directory: PathBuf,
}

impl Reserve {
    pub fn below(directory: &Path) -> Self {
        Reserve { directory: directory.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("jobs.reserve")
    }

    /// Sets the room aside, unless it is or there is little more than that.
    pub fn keep(&self) {
        let path = self.path();
        let is_kept = std::fs::metadata(&path).is_ok_and(|file| file.len() >= RESERVE_BYTES);
        if is_kept || self.free().is_none_or(|free| free < 2 * RESERVE_BYTES) {
            return;
        }
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let kept = file.map(|file| fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok());
        if !kept.unwrap_or(false) {
            // Where it cannot be had, a full disk is what it is without.
            self.release();
        }
    }

    /// Takes back the rest of the room that was released.
    pub fn take_back(&self) {
        let path = self.path();
        let length = self.free().unwrap_or(0).min(RESERVE_BYTES);
        let is_there = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        if is_there || length == 0 {
            return;
        }
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        // Where the rest has gone in this moment, half of it is tried once.
        let is_taken = file.is_ok_and(|file| {
            [length, length / 2]
                .into_iter()
                .any(|length| length > 0 && fallocate(&file, FallocateFlags::empty(), 0, length).is_ok())
        });
        if !is_taken {
            self.release();
        }
    }

    /// Whether there is room now that was not there before.
    pub fn release(&self) -> bool {
        std::fs::remove_file(self.path()).is_ok()
    }

    /// Refuses what would take the last room; `reusable` are the bytes that the database has for
    /// it.
    pub fn leave(&self, reusable: impl FnOnce() -> u64) -> Result<(), StoreError> {
        match self.free() {
            Some(free)
                if free < RESERVE_BYTES
                    && free.saturating_add(reusable()) < RESERVE_BYTES + MIN_FREE_BYTES =>
            {
                let (free, room) = (free >> 10, RESERVE_BYTES >> 10);
                Err(StoreError::Full(format!("{free} KiB of the disk are free, and {room} KiB are kept so")))
            }
            _ => Ok(()),
        }
    }

    /// The free bytes of the disk; `None` if they cannot be read.
    fn free(&self) -> Option<u64> {
        let disk = statvfs(&self.directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
