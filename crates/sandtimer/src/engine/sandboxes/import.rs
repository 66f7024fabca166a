//! Trees that become templates: a layer that its caller fills, and that is a template once it is
//! whole.
//!
//! ```text
//! .layers/.new-ID, filled by the caller with the rights of the files' owner ─▶ .layers/ID ─▶ the record of the template
//! ```
//! Until the last step it is not a template, and what is left of it is removed at the next start.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_os::remove::remove_tree;

use super::super::error::Error;
use super::super::opened::new_run_id;
use super::super::workspace::workspace_owner;
use super::layers::{Base, Stack, UPPER};
use super::record::{self, NEW, make_layer};
use super::stored::{self, Origin, StoredTemplate};
use super::{SandboxError, Sandboxes, lock};
use crate::isolate::host::NamespaceSupport;

/// A tree that is being imported. Dropping it removes it.
#[derive(Debug)]
pub struct Import {
    id: String,
    name: String,
    owner: String,
    /// Nothing once it is a layer.
    path: Option<PathBuf>,
}

impl Import {
    /// The empty directory that becomes the root of the template: it belongs to
    /// [`workspace_owner`].
    pub fn root(&self) -> PathBuf {
        self.directory().join(UPPER)
    }

    /// The directory that it lies in, which only the engine's user and the files' owner can enter.
    pub fn directory(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // What cannot be removed is found at the next start.
            let _ = remove_tree(&path);
        }
    }
}

impl Sandboxes {
    /// Begins a template that is made from a tree of the caller's.
    ///
    /// # Errors
    /// The owner has a template of this name, layers cannot be where the sandboxes are, or the disk
    /// is full.
    pub fn begin_import(&self, name: &str, owner: &str) -> Result<Import, Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot make the template's layer", source };
        stored::check_free(&lock(&self.templates), name, owner)?;
        self.check_directory()?;
        self.layers.prepare().map_err(storage)?;
        let id = new_run_id();
        let path = self.layers.layer(&format!("{NEW}{id}"));
        let import = Import { id, name: name.to_owned(), owner: owner.to_owned(), path: Some(path) };
        let made = make_layer(import.directory());
        made.and_then(|()| chown(import.root(), workspace_owner(), workspace_owner())).map_err(storage)?;
        Ok(import)
    }

    /// Makes it a template.
    ///
    /// # Errors
    /// The owner has a template of this name by now, or the disk is full. Nothing is left of it.
    pub fn finish_import(&self, mut import: Import) -> Result<StoredTemplate, Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot keep the template's layer", source };
        let has_user_attributes = self.inner.host()?.namespaces == NamespaceSupport::User;
        let stack = Stack { base: Base::Layer(import.id.clone()), layers: Vec::new(), has_user_attributes };
        self.layers.retain(stack.references());
        if let Err(error) = fs::rename(import.directory(), self.layers.layer(&import.id)) {
            self.release(&stack);
            return Err(storage(error).into());
        }
        import.path = None;
        let template = StoredTemplate {
            id: new_run_id(),
            name: import.name.clone(),
            owner: import.owner.clone(),
            origin: Origin::Import,
            created_at_ms: calendar_milliseconds(),
            made_from: import.name.clone(),
            stack,
            boot_id: record::boot_id(),
            is_synced: false,
            size_bytes: None,
        };
        self.record_template(template, &|_| {})
    }
}
