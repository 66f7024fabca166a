//! What a sandbox has on disk: a directory of its own below that of all sandboxes.
//!
//! ```text
//! ID/record.json   what it is
//! ID/lock          locked as long as something may write to the layer; its time is that of the last use
//! ID/layer/        upper: the files that it has written; work-…: overlayfs's own, a new one for each mount
//! ID/next/         the layer that takes the place of `layer` when that is stacked
//! .new-ID, .trash-ID   being made, being removed: the next start removes them
//! ```
//! A sandbox is there from the rename of `.new-ID` on, until the rename to `.trash-ID`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_os::probe::read_string;
use sandtimer_os::remove::remove_tree;
use serde::{Deserialize, Serialize};

use super::super::workspace::{make_workspace, workspace_owner};
use super::ended::ENDED;
use super::layers::{LAYERS, Layers, Stack, TRASH, UPPER};
use super::lifetime::RecordedLife;
use super::network_server::SandboxNetwork;
use super::whole::WholeLimits;
use crate::isolate::files::WORKSPACE;
use crate::isolate::sandbox::SANDBOX_HOME;

const RECORD: &str = "record.json";
pub(super) const NEW: &str = ".new-";
/// The directory of the templates, below that of the sandboxes.
pub(super) const TEMPLATES: &str = ".templates";
const LAYER: &str = "layer";
const NEXT: &str = "next";
const WORK: &str = "work-";

/// For utimensat(2).
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };

/// What is recorded of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub owner: String,
    pub template_name: String,
    pub stack: Stack,
    /// How many layers of the stack, from the lowest on, it was made with: what is above has
    /// changed since.
    pub template_layers: usize,
    /// Milliseconds since the epoch.
    pub created_at_ms: u64,
    /// What it may reach outside; nothing in records from before there was a choice.
    #[serde(default)]
    pub network: SandboxNetwork,
    /// The start of the machine in which it was last mounted.
    pub boot_id: String,
    /// It was mounted in an earlier one: what was not on disk then is lost.
    pub is_uncertain: bool,
    /// Nothing bounds it if it is absent.
    #[serde(default)]
    pub life: RecordedLife,
    /// Nothing limits it if it is absent.
    #[serde(default)]
    pub whole: WholeLimits,
}

/// Which start of the machine this is.
pub(super) fn boot_id() -> String {
    read_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
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

    /// Notes that it is used now.
    pub fn note_use(&self) -> io::Result<()> {
        let now = Timestamps { last_access: NOW, last_modification: NOW };
        Ok(rustix::fs::utimensat(CWD, self.lock(), &now, AtFlags::empty())?)
    }

    /// When it was used last, in milliseconds since the epoch. Now, if that is not known.
    pub fn used_at_ms(&self) -> u64 {
        let modified = fs::metadata(self.lock()).ok().and_then(|data| {
            let milliseconds = data.mtime().checked_mul(1000)?.checked_add(data.mtime_nsec() / 1_000_000)?;
            u64::try_from(milliseconds).ok()
        });
        modified.unwrap_or_else(calendar_milliseconds)
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
        make_layer(&self.layer())?;
        if record.stack.layers.is_empty() {
            self.make_own_directories()?;
        }
        self.write(record)
    }

    /// What every sandbox has of its own, whatever it is made from. A snapshot has it.
    fn make_own_directories(&self) -> io::Result<()> {
        let inside = |path: &str| self.upper().join(path.trim_start_matches('/'));
        let home = inside(SANDBOX_HOME);
        for (path, mode) in [("/tmp", 0o1777), ("/var", 0o755), ("/var/tmp", 0o1777), ("/home", 0o755)] {
            make_directory(&inside(path), mode)?;
        }
        for path in [home, inside(WORKSPACE)] {
            make_directory(&path, 0o755)?;
            chown(&path, workspace_owner(), workspace_owner())?;
        }
        Ok(())
    }

    /// Reads the record.
    pub fn read(&self) -> io::Result<Record> {
        let text = fs::read(self.path.join(RECORD))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Replaces the record.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let aside = self.path.join("record.part");
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&aside, self.path.join(RECORD))
    }

    /// The layer that takes the place of the one that is stacked.
    fn next(&self) -> PathBuf {
        self.path.join(NEXT)
    }

    /// Whether nothing was written since the last layer was stacked.
    pub fn is_upper_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(self.upper())?.next().is_none())
    }

    /// Makes the sandbox's own layer the topmost of its stack, as `record` names it, and gives the
    /// sandbox an empty one. Nothing has it mounted. `reached` is called between the steps.
    ///
    /// ```text
    /// next made ─▶ recorded ─▶ moved ─▶ renewed
    /// ```
    /// Before the second step nothing has changed; what is left of the others is done by
    /// [`Home::finish_stacking`].
    pub fn stack(&self, layers: &Layers, record: &Record, reached: &dyn Fn(&str)) -> io::Result<()> {
        layers.prepare()?;
        self.remove_work()?;
        make_layer(&self.next())?;
        reached("next made");
        self.write(record)?;
        reached("recorded");
        self.finish_stacking(layers, record, reached)
    }

    /// Does what is left of the steps of [`Home::stack`], if an engine ended between them. Nothing
    /// has the layer mounted.
    pub fn finish_stacking(
        &self,
        layers: &Layers,
        record: &Record,
        reached: &dyn Fn(&str),
    ) -> io::Result<()> {
        if !self.next().exists() {
            return Ok(());
        }
        if let Some(top) = record.stack.layers.last()
            && !layers.contains(top)
        {
            fs::rename(self.layer(), layers.layer(top))?;
            reached("moved");
        }
        if self.layer().exists() {
            // The record was not written.
            return Ok(remove_tree(&self.next())?);
        }
        fs::rename(self.next(), self.layer())?;
        reached("renewed");
        Ok(())
    }

    fn remove_work(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.layer())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(WORK)) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// A new directory for overlayfs's work, by name. What earlier mounts left goes.
    pub fn renew_work(&self, name: &str) -> io::Result<String> {
        self.remove_work()?;
        let name = format!("{WORK}{name}");
        make_directory(&self.layer().join(&name), 0o755)?;
        Ok(name)
    }

    /// Removes it and all of its files now. What cannot be removed is found at the next start.
    pub fn remove_at_once(&self) {
        if let Ok(trash) = self.discard() {
            let _ = remove_tree(&trash);
        }
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

/// Makes the directory of a layer without files.
pub(super) fn make_layer(path: &Path) -> io::Result<()> {
    make_workspace(path)?;
    make_directory(&path.join(UPPER), 0o755)
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

/// Reads what there is. A record that cannot be read leaves its sandbox out, and its files where
/// they are.
pub(super) fn read_all(parent: &Path) -> io::Result<Inventory> {
    let mut inventory = Inventory::default();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if [LAYERS, TEMPLATES, ENDED].contains(&name.as_str()) {
            continue;
        }
        if name.starts_with(NEW) || name.starts_with(TRASH) {
            inventory.trash.push(path);
            continue;
        }
        let home = Home { path };
        match home.read() {
            Ok(record) => inventory.homes.push((name, home, record)),
            Err(error) => {
                let path = home.path.display();
                inventory.unreadable.push(format!("the sandbox in {path} is left out: {error}"));
            }
        }
    }
    Ok(inventory)
}
