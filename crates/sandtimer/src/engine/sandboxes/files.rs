//! The files of a sandbox, for work from outside of its runs.

use std::io;
use std::os::fd::OwnedFd;

use super::super::error::Error;
use super::{Sandbox, SandboxUse, Visitor};

/// A sandbox that is held, mounted, for work with its files: its deletion waits for the end of
/// this.
#[derive(Debug)]
pub struct SandboxFiles {
    held: SandboxUse,
}

impl SandboxFiles {
    /// A descriptor of the sandbox's root directory. What is opened below it has to stay inside
    /// (RESOLVE_IN_ROOT), and is to be used with the rights of [`SandboxFiles::owner`] alone.
    ///
    /// # Errors
    /// As dup(2).
    pub fn root(&self) -> io::Result<OwnedFd> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.held.mounted.as_ref().ok_or_else(gone)?.root.try_clone()
    }

    /// The uid and gid of the sandbox's user outside, if it is not the engine's own.
    pub fn owner(&self) -> Option<u32> {
        self.held.view().and_then(|view| view.uid)
    }
}

impl Sandbox {
    /// Holds it for work with its files. Blocks while it is being mounted.
    ///
    /// # Errors
    /// It was deleted, or cannot be mounted.
    pub fn files(&self) -> Result<SandboxFiles, Error> {
        Ok(SandboxFiles { held: self.enter(Visitor::Files)? })
    }

    /// Whether it takes neither runs nor other work any more: it was deleted, or is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.state.is_closed.load(std::sync::atomic::Ordering::Relaxed)
    }
}
