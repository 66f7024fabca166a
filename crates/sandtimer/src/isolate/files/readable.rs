//! Which parts of a directory only the owner of a file may read.
//!
//! Where the job has the caller's own uid on the host (T2), permission bits do not keep it from the
//! caller's files, so these parts are covered. What is created after the plan was made is not.

use super::mounts::FileKind;
use crate::isolate::toolchain::lookup::HostFiles;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Entries inspected in one directory tree.
const MAX_ENTRIES: usize = 20_000;
/// Mounts that cover private parts of one directory tree.
const MAX_PRIVATE: usize = 256;

/// Lists the files and directories below `directory` (canonical) that only their owner may read,
/// without those that lie below another listed directory.
///
/// # Errors
/// The end of a sentence about the directory, where it cannot be inspected as a whole.
pub(super) fn private_parts(host: &HostFiles, directory: &Path) -> Result<Vec<(PathBuf, FileKind)>, String> {
    let mut parts = Vec::new();
    let mut waiting = vec![directory.to_path_buf()];
    let mut entries = 0;
    while let Some(directory) = waiting.pop() {
        let listing = std::fs::read_dir(host.on_disk(&directory));
        let unreadable = |error| format!("holds {}, which cannot be read: {error}", directory.display());
        for entry in listing.map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(format!("holds more than {MAX_ENTRIES} files; show a smaller directory"));
            }
            // An entry that is gone by now is not shown either.
            let Ok(metadata) = entry.metadata() else { continue };
            let (path, mode) = (directory.join(entry.file_name()), metadata.permissions().mode());
            if metadata.is_dir() {
                if mode & 0o055 == 0 {
                    parts.push((path, FileKind::Directory));
                } else {
                    waiting.push(path);
                }
            } else if !metadata.is_symlink() && mode & 0o044 == 0 {
                parts.push((path, FileKind::File));
            }
            if parts.len() > MAX_PRIVATE {
                return Err(format!(
                    "holds more than {MAX_PRIVATE} files that only their owner may read; show a directory without them"
                ));
            }
        }
    }
    Ok(parts)
}
