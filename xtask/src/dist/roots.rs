//! Roots of Debian releases, made by debootstrap once and kept in `target/dist-roots`.

use std::fs;
use std::path::PathBuf;

use super::make;
use crate::{Result, root, step};

/// The releases that a rehearsal installs in.
pub(super) const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// What a newcomer's machine has besides the packages that every Debian has.
const INCLUDED: &str = "--include=python3,python3-venv";

/// Returns the root of `release`, which is made first if it does not exist. Nothing may be written
/// to it.
pub(super) fn prepare(release: &str) -> Result<PathBuf> {
    let directory = root().join("target/dist-roots");
    make(&directory)?;
    let path = directory.join(release);
    if path.exists() {
        return Ok(path);
    }
    // Renamed when it is complete, so that an interrupted one is never taken for a whole one.
    let unfinished = directory.join(format!("{release}.new"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .map_err(|error| format!("cannot remove {}: {error}", unfinished.display()))?;
    }
    let arguments = ["--variant=minbase", INCLUDED, release, &unfinished.to_string_lossy()];
    step::run(step::command("debootstrap", &arguments))?;
    fs::rename(&unfinished, &path)
        .map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))?;
    Ok(path)
}
