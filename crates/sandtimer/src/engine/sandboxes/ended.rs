//! Sandboxes that ended at a limit: what their owners are told when they ask for one of them later.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::lifetime::SandboxLimit;
use super::locks::lock;

/// The directory of their records, below that of the sandboxes.
pub(super) const ENDED: &str = ".ended";
/// How many are known; the oldest are forgotten.
const MAX_ENDED: usize = 4096;

/// A sandbox that ended at a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SandboxEnd {
    /// The id that the sandbox had.
    pub id: String,
    /// The token or user to whom it belonged.
    pub owner: String,
    /// The limit that ended it.
    pub limit: SandboxLimit,
    /// That limit in milliseconds.
    pub limit_ms: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

/// Those that are known.
#[derive(Debug)]
pub(super) struct EndedSandboxes {
    directory: PathBuf,
    by_id: Mutex<BTreeMap<String, SandboxEnd>>,
}

impl EndedSandboxes {
    /// Reads what earlier engines have noted; what cannot be read is removed.
    pub fn open(parent: &Path) -> io::Result<Self> {
        let ended = EndedSandboxes { directory: parent.join(ENDED), by_id: Mutex::default() };
        let entries = match fs::read_dir(&ended.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ended),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let read = fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<SandboxEnd>(&text)?));
            match read {
                Ok(end) => drop(lock(&ended.by_id).insert(end.id.clone(), end)),
                Err(_) => fs::remove_file(&path)?,
            }
        }
        ended.forget_oldest();
        Ok(ended)
    }

    pub fn find(&self, id: &str, owner: &str) -> Option<SandboxEnd> {
        lock(&self.by_id).get(id).filter(|end| end.owner == owner).cloned()
    }

    pub fn contains(&self, id: &str) -> bool {
        lock(&self.by_id).contains_key(id)
    }

    /// Notes one. What cannot be written costs the owner the reason after the next start.
    pub fn note(&self, end: SandboxEnd) {
        let _ = self.write(&end);
        lock(&self.by_id).insert(end.id.clone(), end);
        self.forget_oldest();
    }

    fn write(&self, end: &SandboxEnd) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        fs::write(self.directory.join(&end.id), serde_json::to_vec(end)?)
    }

    /// Forgets one. False if there is none of this owner.
    pub fn forget(&self, id: &str, owner: &str) -> bool {
        let mut by_id = lock(&self.by_id);
        if by_id.get(id).is_none_or(|end| end.owner != owner) {
            return false;
        }
        by_id.remove(id);
        // Else it is known again after the next start.
        let _ = fs::remove_file(self.directory.join(id));
        true
    }

    fn forget_oldest(&self) {
        let mut by_id = lock(&self.by_id);
        while by_id.len() > MAX_ENDED {
            let oldest = by_id.values().min_by_key(|end| end.at_ms).map(|end| end.id.clone());
            let Some(oldest) = oldest else { return };
            by_id.remove(&oldest);
            // Else it is forgotten at the next start.
            let _ = fs::remove_file(self.directory.join(oldest));
        }
    }
}
