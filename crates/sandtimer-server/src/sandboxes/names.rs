//! Names by which clients of `/api` find sandboxes (see `compat`).
//!
//! ```text
//! sandbox-names/ID   owner and name of the sandbox with this id; removed with the sandbox
//! ```

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
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
    /// Where the sandboxes are.
    sandboxes: PathBuf,
    /// Ids of sandboxes that are there, and that the engine could not read.
    unreadable: HashSet<String>,
}

impl SandboxNames {
    /// Reads those of earlier servers, and removes those of sandboxes that are gone.
    /// `read_by_engine` has the ids of those that the engine could read.
    pub fn open(
        state_directory: &Path,
        read_by_engine: &HashSet<String>,
        report: &dyn Fn(&str),
    ) -> io::Result<Self> {
        let directory = state_directory.join("sandbox-names");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let sandboxes = state_directory.join("sandboxes");
        let (mut known, mut unreadable) = (KnownIds::new(), HashSet::new());
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !read_by_engine.contains(&id) {
                if !is_there(&sandboxes, &id) {
                    fs::remove_file(&path)?;
                    continue;
                }
                unreadable.insert(id.clone());
            }
            match read(&path) {
                Ok(named) => drop(known.insert(named, id)),
                Err(error) => report(&format!("{} is left out: {error}", path.display())),
            }
        }
        let (known, is_refused) = (Mutex::new(known), AtomicBool::default());
        Ok(SandboxNames { directory, known, is_refused, sandboxes, unreadable })
    }

    fn lock(&self) -> MutexGuard<'_, KnownIds> {
        // Each change is one call on the map.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the sandbox with this name.
    pub fn find(&self, owner: &OwnerId, name: &str) -> Option<String> {
        self.lock().get(&(owner.clone(), name.to_owned())).cloned()
    }

    /// Whether the sandbox with this id is there, and the engine could not read it.
    pub fn is_unreadable(&self, id: &str) -> bool {
        self.unreadable.contains(id) && is_there(&self.sandboxes, id)
    }

    /// Records the name of a sandbox.
    ///
    /// # Errors
    /// With `AlreadyExists`: another one that lives has the name.
    pub fn note(
        &self,
        id: &str,
        owner: &OwnerId,
        name: &str,
        is_living: &dyn Fn(&str) -> bool,
    ) -> io::Result<()> {
        let key = (owner.clone(), name.to_owned());
        let mut known = self.lock();
        if known.get(&key).is_some_and(|earlier| is_living(earlier)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        known.insert(key, id.to_owned());
        drop(known);
        // `forget` removes a name that was not recorded.
        self.write(id, &json!({"owner": owner.as_str(), "name": name}))
    }

    /// The record outlives a crash of the machine, as that of the sandbox does.
    fn write(&self, id: &str, record: &Value) -> io::Result<()> {
        let aside = self.directory.join(format!("{id}.part"));
        let mut file = File::create(&aside)?;
        file.write_all(record.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, self.directory.join(id))?;
        File::open(&self.directory)?.sync_all()
    }

    /// Forgets the name of a sandbox that is gone.
    pub fn forget(&self, id: &str) {
        let forgotten = self.lock().extract_if(|_, known| known == id).count();
        if forgotten > 0 {
            self.forget_record(id);
        }
    }

    /// Removes the record of a name that another sandbox has now.
    pub fn forget_record(&self, id: &str) {
        // A file that is left is removed at the next start.
        let _ = fs::remove_file(self.directory.join(id));
    }
}

/// Whether the directory of a sandbox is there, or cannot be examined.
fn is_there(sandboxes: &Path, id: &str) -> bool {
    match sandboxes.join(id).symlink_metadata() {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}

fn read(path: &Path) -> io::Result<(OwnerId, String)> {
    let record: Value = serde_json::from_slice(&fs::read(path)?)?;
    match (record["owner"].as_str(), record["name"].as_str()) {
        (Some(owner), Some(name)) => Ok((OwnerId::recorded(owner), name.to_owned())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
