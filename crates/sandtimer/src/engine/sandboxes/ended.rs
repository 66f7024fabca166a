//! Sandboxes that ended at a limit: the error that their owners get when they request one of them
//! later.

use std::collections::{BTreeMap, BTreeSet};
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
/// How many of one owner are known; the oldest are forgotten.
const MAX_ENDED_PER_OWNER: usize = 1024;

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

/// The sandboxes whose ends are known, by their ids.
#[derive(Debug)]
pub(super) struct EndedSandboxes {
    directory: PathBuf,
    by_id: Mutex<BTreeMap<String, SandboxEnd>>,
}

impl EndedSandboxes {
    /// Reads what earlier engines have noted; what is none of their records is removed.
    pub fn open(parent: &Path) -> io::Result<Self> {
        let ended = EndedSandboxes { directory: parent.join(ENDED), by_id: Mutex::default() };
        let entries = match fs::read_dir(&ended.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ended),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if !path.is_file() {
                continue;
            }
            match serde_json::from_slice::<SandboxEnd>(&fs::read(&path)?) {
                Ok(end) => drop(lock(&ended.by_id).insert(end.id.clone(), end)),
                Err(_) => fs::remove_file(&path)?,
            }
        }
        let owners: BTreeSet<String> = lock(&ended.by_id).values().map(|end| end.owner.clone()).collect();
        owners.iter().for_each(|owner| ended.forget_oldest(owner));
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
        let owner = end.owner.clone();
        lock(&self.by_id).insert(end.id.clone(), end);
        self.forget_oldest(&owner);
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

    fn forget_oldest(&self, owner: &str) {
        let mut by_id = lock(&self.by_id);
        let mut owned: Vec<(u64, String)> =
            by_id.values().filter(|end| end.owner == owner).map(|end| (end.at_ms, end.id.clone())).collect();
        owned.sort_unstable();
        let excess = owned.len().saturating_sub(MAX_ENDED_PER_OWNER);
        for (_, oldest) in owned.drain(..excess) {
            by_id.remove(&oldest);
            // Else it is forgotten at the next start.
            let _ = fs::remove_file(self.directory.join(oldest));
        }
    }
}
