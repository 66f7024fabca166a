//! The directory in which the engine makes temporary files.

use std::path::PathBuf;

/// The system's directory for temporary files. An empty TMPDIR names none, as for other programs.
pub(super) fn temporary_directory() -> PathBuf {
    match std::env::temp_dir() {
        empty if empty.as_os_str().is_empty() => PathBuf::from("/tmp"),
        named => named,
    }
}
