//! What a sandbox has on disk: a directory of its own below that of all sandboxes.
//!
//! ```text
//! ID/record.json   what it is
//! ID/lock          locked as long as something may write to the layer
//! ID/layer/        upper: the files that it has written; work-…: overlayfs's own, a new one for each mount
//! .new-ID, .trash-ID   being made, being removed: the next start removes them
//! ```
//! A sandbox is there from the rename of `.new-ID` on, until the rename to `.trash-ID`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use sandtimer_os::probe::read_text;
use sandtimer_os::remove::remove_tree;
use serde::{Deserialize, Serialize};

use super::super::workspace::{make_workspace, workspace_owner};
use super::Template;
use crate::isolate::files::WORKSPACE;
use crate::isolate::sandbox::SANDBOX_HOME;

const RECORD: &str = "record.json";
const NEW: &str = ".new-";
const TRASH: &str = ".trash-";
const LAYER: &str = "layer";
const UPPER: &str = "upper";
const WORK: &str = "work-";

/// What is recorded of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub owner: String,
    pub template: Template,
    pub template_name: String,
    /// Milliseconds since the epoch.
    pub created_at_ms: u64,
    /// The start of the machine in which it was last mounted.
    pub boot_id: String,
    /// It was mounted in an earlier one: what was not on disk then is lost.
    pub is_uncertain: bool,
    /// Its layer was made without privileges: overlayfs keeps its marks in attributes that users may set, and reads no others.
    pub has_user_attributes: bool,
}

/// Which start of the machine this is.
pub(super) fn boot_id() -> String {
    read_text("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The directory of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Home {
    path: PathBuf,
}

impl Home {
    pub fn layer(&self) -> PathBuf {
        self.path.join(LAYER)
    }

    pub fn upper(&self) -> PathBuf {
        self.layer().join(UPPER)
    }

    pub fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Makes it whole, or leaves nothing.
    pub fn create(parent: &Path, id: &str, record: &Record) -> io::Result<Self> {
        let unfinished = Home { path: parent.join(format!("{NEW}{id}")) };
        let home = Home { path: parent.join(id) };
        let made = unfinished.fill(record).and_then(|()| fs::rename(&unfinished.path, &home.path));
        if made.is_err() {
            // What cannot be removed now is found at the next start.
            let _ = remove_tree(&unfinished.path);
        }
        made.map(|()| home)
    }

    fn fill(&self, record: &Record) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.path)?;
        File::create_new(self.lock())?;
        make_workspace(&self.layer())?;
        make_directory(&self.upper(), 0o755)?;
        let inside = |path: &str| self.upper().join(path.trim_start_matches('/'));
        let home = inside(SANDBOX_HOME);
        for (path, mode) in [("/tmp", 0o1777), ("/var", 0o755), ("/var/tmp", 0o1777), ("/home", 0o755)] {
            make_directory(&inside(path), mode)?;
        }
        for path in [home, inside(WORKSPACE)] {
            make_directory(&path, 0o755)?;
            chown(&path, workspace_owner(), workspace_owner())?;
        }
        self.write(record)
    }

    /// Replaces the record.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let aside = self.path.join("record.part");
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&aside, self.path.join(RECORD))
    }

    /// A new directory for overlayfs's work, by name. What earlier mounts left goes.
    pub fn renew_work(&self, name: &str) -> io::Result<String> {
        for entry in fs::read_dir(self.layer())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(WORK)) {
                remove_tree(&path)?;
            }
        }
        let name = format!("{WORK}{name}");
        make_directory(&self.layer().join(&name), 0o755)?;
        Ok(name)
    }

    /// Moves it out of the way of those that exist; what is returned is to be removed.
    pub fn discard(&self) -> io::Result<PathBuf> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trash = self.path.with_file_name(format!("{TRASH}{name}"));
        match fs::rename(&self.path, &trash) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(trash),
        }
    }
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    // The process's umask is not the sandbox's.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// What is found where the sandboxes are.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub homes: Vec<(String, Home, Record)>,
    /// What was being made or removed.
    pub trash: Vec<PathBuf>,
    /// Why a sandbox is left out.
    pub unreadable: Vec<String>,
}

/// Reads what there is. A record that cannot be read leaves its sandbox out, and its files where they are.
pub(super) fn read_all(parent: &Path) -> io::Result<Inventory> {
    let mut inventory = Inventory::default();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(NEW) || name.starts_with(TRASH) {
            inventory.trash.push(path);
            continue;
        }
        let read = fs::read(path.join(RECORD)).and_then(|text| Ok(serde_json::from_slice(&text)?));
        match read {
            Ok(record) => inventory.homes.push((name, Home { path }, record)),
            Err(error) => {
                inventory.unreadable.push(format!("the sandbox in {} is left out: {error}", path.display()))
            }
        }
    }
    Ok(inventory)
}
