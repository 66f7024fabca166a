//! The images that the memory of interpreters is from, and what they take of the engine's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::image_account::Charge;

/// The images that an interpreter's memory is from.
#[derive(Debug, Clone, Default)]
pub(super) struct Images {
    /// Where it has not changed since.
    pub base: Option<Arc<ImageFile>>,
    /// The last one over that.
    pub last: Option<Arc<ImageFile>>,
    /// How long the last one was.
    pub delta: u64,
    pub on_engine: Arc<Mutex<EngineCharges>>,
    /// It has gone back to a checkpoint since, which may be older than the base.
    pub is_stale: bool,
}

/// A sealed file, and what it takes of the engine's memory.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub file: OwnedFd,
    pub charge: Option<Arc<Charge>>,
}

impl AsFd for ImageFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The engine's memory in files that an interpreter was given and may still have.
#[derive(Debug, Default)]
pub(super) struct EngineCharges {
    /// In those that it was to write.
    pub bytes: u64,
    pub charges: Vec<Arc<Charge>>,
}

impl EngineCharges {
    /// Of an interpreter that was given files and has written none.
    pub fn given(files: [&Option<Arc<ImageFile>>; 2]) -> Arc<Mutex<Self>> {
        let charges = files.into_iter().flatten().filter_map(|file| file.charge.clone()).collect();
        Arc::new(Mutex::new(EngineCharges { bytes: 0, charges }))
    }
}

pub(super) fn lock(on_engine: &Mutex<EngineCharges>) -> MutexGuard<'_, EngineCharges> {
    // Each change is one number, or one more charge.
    on_engine.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Images {
    /// Its interpreter has gone back to a checkpoint.
    pub fn went_back(&mut self) {
        self.is_stale = true;
    }

    /// Whether the next image can be a delta over the base.
    pub fn has_usable_base(&self) -> bool {
        self.base.is_some() && !self.is_stale
    }
}
