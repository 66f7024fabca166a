//! Names by which clients of another interface find sandboxes (see `compat`).
//!
//! ```text
//! sandbox-names/ID   owner and name of the sandbox with this id; removed with the sandbox
//! ```

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::auth::OwnerId;

/// The ids of named sandboxes, by owner and name.
type KnownIds = HashMap<(OwnerId, String), String>;

/// All named sandboxes.
#[derive(Debug)]
pub(super) struct SandboxNames {
    directory: PathBuf,
    known: Mutex<KnownIds>,
    /// Whether this host has refused to make a sandbox: it is not asked again.
    pub is_refused: AtomicBool,
    /// Whether it was reported that an owner has all sandboxes that it may have.
    pub is_full_reported: AtomicBool,
}

impl SandboxNames {
    /// Reads those of earlier servers, and removes those of sandboxes that are gone.
    pub fn open(
        state_directory: &Path,
        is_known: &dyn Fn(&str) -> bool,
        report: &dyn Fn(&str),
    ) -> io::Result<Self> {
        let directory = state_directory.join("sandbox-names");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let mut known = KnownIds::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !is_known(&id) {
                fs::remove_file(&path)?;
                continue;
            }
            match read(&path) {
                Ok(named) => drop(known.insert(named, id)),
                Err(error) => report(&format!("{} is left out: {error}", path.display())),
            }
        }
        let [is_refused, is_full_reported] = Default::default();
        Ok(SandboxNames { directory, known: Mutex::new(known), is_refused, is_full_reported })
    }

    fn lock(&self) -> MutexGuard<'_, KnownIds> {
        // Each change is one call on the map.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the sandbox with this name.
    pub fn find(&self, owner: &OwnerId, name: &str) -> Option<String> {
        self.lock().get(&(owner.clone(), name.to_owned())).cloned()
    }

    pub fn note(&self, id: &str, owner: &OwnerId, name: &str) -> io::Result<()> {
        let (path, aside) = (self.directory.join(id), self.directory.join(format!("{id}.part")));
        fs::write(&aside, json!({"owner": owner.as_str(), "name": name}).to_string())?;
        fs::rename(&aside, &path)?;
        self.lock().insert((owner.clone(), name.to_owned()), id.to_owned());
        Ok(())
    }

    /// Forgets the name of a sandbox that is gone.
    pub fn forget(&self, id: &str) {
        let forgotten = self.lock().extract_if(|_, known| known == id).count();
        if forgotten > 0 {
            // A file that is left is removed at the next start.
            let _ = fs::remove_file(self.directory.join(id));
        }
    }
}

fn read(path: &Path) -> io::Result<(OwnerId, String)> {
    let record: Value = serde_json::from_slice(&fs::read(path)?)?;
    match (record["owner"].as_str(), record["name"].as_str()) {
        (Some(owner), Some(name)) => Ok((OwnerId::recorded(owner), name.to_owned())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
