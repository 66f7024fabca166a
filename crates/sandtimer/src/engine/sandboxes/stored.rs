//! Templates that are kept with the sandboxes: snapshots, and trees that were imported.
//!
//! ```text
//! .templates/ID.json       a template: the layers that it is stacked from, and whose it is
//! .templates/.new-ID.json  being written
//! ```

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::SandboxError;
use super::layers::Stack;
use super::record::NEW;

const EXTENSION: &str = ".json";
/// Letters of a template's name.
const MAX_NAME_LEN: usize = 64;
/// What a name may be, for messages.
const NAMES: &str = "1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or a digit";

/// Where a template comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The files of a sandbox, by its id.
    Snapshot(String),
    /// An imported tree.
    Import,
}

/// A template that is kept with the sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredTemplate {
    /// The id by which [`Template::Stored`](super::Template::Stored) names it.
    pub id: String,
    /// What its owner calls it: the id, if no name was given.
    pub name: String,
    /// The token or user to whom it belongs; others do not find it.
    pub owner: String,
    /// Where its files come from.
    pub origin: Origin,
    /// Milliseconds since the epoch.
    pub created_at_ms: u64,
    /// What its maker called the template below it; the name again for an imported tree.
    pub(super) made_from: String,
    pub(super) stack: Stack,
    /// The start of the machine in which it was made.
    pub(super) boot_id: String,
    /// Its files are on the disk.
    pub(super) is_synced: bool,
    /// Bytes of the files of its topmost layer, once they are counted.
    pub size_bytes: Option<u64>,
}

impl StoredTemplate {
    /// Whether it was made in an earlier start of the machine, and files of it may not have reached
    /// the disk.
    pub fn is_uncertain(&self) -> bool {
        !self.is_synced && self.boot_id != super::record::boot_id()
    }

    /// The ids of its layers, the lowest first.
    pub fn layers(&self) -> Vec<String> {
        self.stack.references().cloned().collect()
    }

    /// Whether it belongs to this owner, and has this name or id.
    pub(super) fn matches(&self, name: &str, owner: &str) -> bool {
        self.owner == owner && (self.name == name || self.id == name)
    }

    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}{EXTENSION}", self.id))
    }

    /// Writes its record, in place of the one before.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let aside = directory.join(format!("{NEW}{}{EXTENSION}", self.id));
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&aside, self.path(directory))
    }

    /// Removes its record.
    pub(super) fn remove(&self, directory: &Path) -> io::Result<()> {
        match fs::remove_file(self.path(directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The template that an owner means by a name or an id.
pub(super) fn find<'a>(
    templates: &'a BTreeMap<String, StoredTemplate>,
    name: &str,
    owner: &str,
) -> Result<&'a StoredTemplate, SandboxError> {
    let found = templates.values().find(|template| template.matches(name, owner));
    found.ok_or_else(|| SandboxError::NoTemplate(name.chars().take(MAX_NAME_LEN).collect()))
}

/// Checks that an owner can give a template this name.
pub(super) fn check_free(
    templates: &BTreeMap<String, StoredTemplate>,
    name: &str,
    owner: &str,
) -> Result<(), SandboxError> {
    check_name(name)?;
    match find(templates, name, owner) {
        Ok(_) => Err(SandboxError::TemplateExists(name.to_owned())),
        Err(_) => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), SandboxError> {
    let is_usable = name.len() <= MAX_NAME_LEN
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    if is_usable {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_NAME_LEN).flat_map(char::escape_default).collect();
    Err(SandboxError::TemplateName { name: shown, problem: format!("is not a name: a name has {NAMES}") })
}

/// Reads all records; what was being written is removed. A record that cannot be read is left where
/// it is, and reported.
pub(super) fn read_all(directory: &Path) -> io::Result<(BTreeMap<String, StoredTemplate>, Vec<String>)> {
    let (mut templates, mut unreadable) = (BTreeMap::new(), Vec::new());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((templates, unreadable)),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NEW)) {
            fs::remove_file(&path)?;
            continue;
        }
        let read = fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<StoredTemplate>(&text)?));
        match read {
            Ok(template) => drop(templates.insert(template.id.clone(), template)),
            Err(error) => unreadable.push(format!("the template in {} is left out: {error}", path.display())),
        }
    }
    Ok((templates, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_plain_characters() {
        for name in ["a", "debian-12.5", "0_x", &"x".repeat(64)] {
            check_name(name).expect(name);
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "é", "a\n", &"x".repeat(65)] {
            let error = check_name(name).expect_err(name).to_string();
            assert!(error.contains("is not a name: a name has 1 to 64 letters"), "{error}");
        }
    }
}
