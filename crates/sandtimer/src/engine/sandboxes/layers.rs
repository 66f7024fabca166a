//! Layers that nothing writes to any more, which sandboxes and templates are stacked from.
//!
//! ```text
//! .layers/ID/upper    the files of a layer
//! .layers/.trash-ID   a layer that no record names, while it is removed
//! ```
//! How often a layer is used is computed from the records, at the start, and counted from then on.
//! A layer is made before the record that names it, and removed after the last one: what a crash
//! leaves between the two is removed at the next start. A record that cannot be read may name any
//! layer: until a start that reads all records, none is removed.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::locks::lock;

/// Layers between the template's own tree and what a sandbox writes. Each makes the lookup of a
/// name slower.
pub const MAX_LAYERS: usize = 32;
/// The directory of the layers, below that of the sandboxes.
pub(super) const LAYERS: &str = ".layers";
/// What the name of a directory that is being removed begins with.
pub(super) const TRASH: &str = ".trash-";
/// The files of a layer, in its directory.
pub(super) const UPPER: &str = "upper";

/// What lies under all layers of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Base {
    /// What every run sees of the host.
    Host,
    /// A directory of the operator's.
    Directory(PathBuf),
    /// An imported tree: a layer by its id.
    Layer(String),
}

/// What a sandbox's own layer is stacked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stack {
    pub base: Base,
    /// Ids of layers, the lowest first.
    pub layers: Vec<String>,
    /// The layers were made without privileges: overlayfs keeps its marks in attributes that users
    /// may set, and reads no others.
    pub has_user_attributes: bool,
}

impl Stack {
    /// The ids of all layers, each of which a record of this stack keeps.
    pub fn references(&self) -> impl Iterator<Item = &String> {
        let base = match &self.base {
            Base::Layer(id) => Some(id),
            Base::Host | Base::Directory(_) => None,
        };
        base.into_iter().chain(&self.layers)
    }
}

/// All layers below one directory.
#[derive(Debug)]
pub(super) struct Layers {
    directory: PathBuf,
    /// How many records name each layer.
    counts: Mutex<BTreeMap<String, usize>>,
    /// Whether a record could not be read at the start, so that the counts may be too low.
    has_unreadable_records: bool,
}

impl Layers {
    pub fn below(sandboxes: &Path, has_unreadable_records: bool) -> Self {
        Layers { directory: sandboxes.join(LAYERS), counts: Mutex::default(), has_unreadable_records }
    }

    /// Makes the directory of the layers, unless it exists.
    pub fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    /// The directory of a layer, which holds its files in `upper`.
    pub fn layer(&self, id: &str) -> PathBuf {
        self.directory.join(id)
    }

    /// The files of a layer.
    pub fn upper(&self, id: &str) -> PathBuf {
        self.layer(id).join(UPPER)
    }

    pub fn contains(&self, id: &str) -> bool {
        self.layer(id).exists()
    }

    /// Counts a record that names these layers.
    pub fn retain<'a>(&self, ids: impl IntoIterator<Item = &'a String>) {
        let mut counts = lock(&self.counts);
        for id in ids {
            *counts.entry(id.clone()).or_default() += 1;
        }
    }

    /// Takes a record that named these layers from the counts. Returns what is to be removed:
    /// nothing if a record could not be read at the start.
    pub fn release<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> Vec<PathBuf> {
        let mut counts = lock(&self.counts);
        let mut trash = Vec::new();
        for id in ids {
            let Some(count) = counts.get_mut(id) else { continue };
            *count -= 1;
            if *count == 0 {
                counts.remove(id);
                if !self.has_unreadable_records {
                    // What cannot be renamed is found at the next start.
                    trash.extend(self.discard(id));
                }
            }
        }
        trash
    }

    /// Returns every layer that no record names: none if a record could not be read at the start.
    pub fn unreferenced(&self) -> io::Result<Vec<PathBuf>> {
        if self.has_unreadable_records {
            return Ok(Vec::new());
        }
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let counts = lock(&self.counts);
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !counts.contains_key(&name) {
                found.push(self.directory.join(name));
            }
        }
        Ok(found)
    }

    /// Gives a layer a name that is not a layer's.
    fn discard(&self, id: &str) -> Option<PathBuf> {
        let trash = self.directory.join(format!("{TRASH}{id}"));
        fs::rename(self.layer(id), &trash).ok().map(|()| trash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_goes_with_the_last_record_that_names_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let layers = Layers::below(scratch.path(), false);
        layers.prepare().expect("made");
        let [one, two] = ["one", "two"].map(str::to_owned);
        for id in [&one, &two] {
            fs::create_dir_all(layers.upper(id)).expect("made");
        }
        layers.retain([&one, &two]);
        layers.retain([&one]);
        assert_eq!(layers.unreferenced().expect("read"), Vec::<PathBuf>::new());
        assert_eq!(layers.release([&one, &two]).len(), 1);
        assert!(layers.contains(&one) && !layers.contains(&two));
        let trash = layers.release([&one]);
        assert_eq!(trash, [scratch.path().join(".layers/.trash-one")]);
        assert_eq!(layers.release([&one]), Vec::<PathBuf>::new(), "it is released already");
        // The next start finds both.
        assert_eq!(layers.unreferenced().expect("read").len(), 2);
    }

    #[test]
    fn layer_stays_while_a_record_is_unreadable() {
        let scratch = tempfile::tempdir().expect("a directory");
        let layers = Layers::below(scratch.path(), true);
        let id = "one".to_owned();
        fs::create_dir_all(layers.upper(&id)).expect("made");
        layers.retain([&id]);
        assert_eq!(layers.release([&id]), Vec::<PathBuf>::new());
        assert!(layers.contains(&id));
        assert_eq!(layers.unreferenced().expect("read"), Vec::<PathBuf>::new());
        // The control: a start that reads all records finds it.
        assert_eq!(Layers::below(scratch.path(), false).unreferenced().expect("read"), [layers.layer(&id)]);
    }
}
