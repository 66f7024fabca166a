//! The `sandtimer.toml` of the current directory: it bounds what applies without it, and is ignored
//! where it would not.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sandtimer::limits::{EffectiveLimits, Limits, Setting};

use super::contexts::ContextSettings;
use super::file;
use super::layers::LayeredLimits;
use super::names::{NAMES, Uses};
use super::values::written;
use crate::commands::CommandFailure;

/// The directory of `writable` through which a run could have written the file; `None` if there is
/// none, or no file.
pub(super) fn writable_through(file: &Path, writable: &[PathBuf]) -> Option<PathBuf> {
    file.symlink_metadata().ok()?;
    // Of a link, also where it leads.
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
    let target = file.canonicalize().ok().and_then(|target| Some(target.parent()?.to_owned()));
    let directories_of_file: Vec<PathBuf> = here.into_iter().chain(target).collect();
    let mut directories = writable.iter().filter_map(|directory| directory.canonicalize().ok());
    directories.find(|directory| directories_of_file.iter().any(|location| location.starts_with(directory)))
}

/// Whether it is a file that was read already.
pub(super) fn is_one_of(file: &Path, read_files: &[file::Identity]) -> bool {
    file.metadata().is_ok_and(|metadata| read_files.contains(&(metadata.dev(), metadata.ino())))
}

/// What is printed of a file that is not read.
pub(super) fn notice(file: &Path, directory: &Path) -> String {
    format!(
        "{} is ignored, because this command can write to {} and an earlier one may have left it; to use it give --config {}",
        in_full(file).display(),
        directory.display(),
        file.display()
    )
}

/// What is printed of a file that cannot be used.
pub(super) fn notice_of_failure(file: &Path, failure: &CommandFailure) -> String {
    format!("{}; {} is ignored: correct it, or remove it", failure.message, in_full(file).display())
}

fn in_full(file: &Path) -> PathBuf {
    std::env::current_dir().unwrap_or_default().join(file)
}

/// Reads the file's bounds; `None` if there is no file, or one of those in `seen`.
///
/// # Errors
/// It cannot be read, or is not valid, or would loosen what applies without it.
pub(super) fn read(
    file: &Path,
    read_files: &[file::Identity],
    without: impl FnOnce() -> EffectiveLimits,
) -> Result<Option<Limits>, CommandFailure> {
    match file::read(file, file::Missing::IsFine)? {
        Some(found) if !read_files.contains(&found.identity) => {
            let bounds = bounds(&found)?;
            check(&found, &bounds, &without())?;
            Ok(Some(bounds))
        }
        _ => Ok(None),
    }
}

/// The limits of the file, as bounds.
pub(super) fn bounds(found: &file::ConfigFile) -> Result<Limits, CommandFailure> {
    let parsed = file::parse(found)?;
    if parsed.maxima != Limits::new() {
        return Err(CommandFailure::usage(format!(
            "{}: [max] is read only from your own file and the machine's; put bounds for this directory into [limits]",
            found.locate_keys(&["max"])
        )));
    }
    let of_code = |layer: &LayeredLimits| matches!(layer.uses, Uses::Code | Uses::JavaScript);
    if parsed.contexts != ContextSettings::default() || parsed.layers.iter().any(of_code) {
        return Err(CommandFailure::usage(format!(
            "{}: the settings of a server's contexts are read only from your own file and the machine's",
            found.path.display()
        )));
    }
    Ok(parsed.limits())
}

/// Refuses the first bound that is looser than what applies without it.
pub(super) fn check(
    found: &file::ConfigFile,
    bounds: &Limits,
    without: &EffectiveLimits,
) -> Result<(), CommandFailure> {
    for name in NAMES {
        let wanted = match bounds.get(name.key) {
            Setting::Inherit => continue,
            Setting::Unlimited => None,
            Setting::At(value) => Some(value),
        };
        let Some(applies) = without.get(name.key).map(|effect| effect.value) else { continue };
        if wanted.is_none_or(|wanted| wanted > applies) {
            let applies = written(name.key, Some(applies));
            return Err(CommandFailure::usage(format!(
                "{}: {} = `{}` would loosen what applies without this file, which is {applies}; use {applies} or less, or \
                 remove the key",
                found.locate_keys(&[name.file]),
                name.file,
                written(name.key, wanted),
            )));
        }
    }
    Ok(())
}
