//! Directories on the host for runs without mounts, in place of private ones, and what dead engines
//! have left of them.

use std::os::unix::fs::MetadataExt;

use sandtimer_os::remove::remove_tree;

use super::Inner;
use super::error::Error;
use super::opened::new_run_id;
use super::temporary_directory::temporary_directory;
use crate::isolate::lease::own_name;
use crate::isolate::plan::Identity;
use crate::supervise::run::PrivateDirectory;

/// Makes a private directory of the run, which its uid owns. The name contains the engine's number:
/// directories of dead engines are removed.
pub(super) fn private_directory(
    inner: &Inner,
    identity: Option<Identity>,
) -> Result<PrivateDirectory, Error> {
    let prefix = format!("{}-", own_name("sandtimer-run", rustix::process::getuid().as_raw()));
    inner.private_swept.get_or_init(|| sweep_private(inner, &prefix));
    // Landlock grants nothing by way of a link.
    let parent = temporary_directory();
    let parent = parent.canonicalize().unwrap_or(parent);
    let path = parent.join(format!("{prefix}{}-{}", inner.lease.number(), new_run_id()));
    PrivateDirectory::make(path, identity.map(|identity| identity.job))
        .map_err(Error::system("cannot make the run's private directory"))
}

/// Removes what engines without a lock left of their runs' directories.
fn sweep_private(inner: &Inner, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(temporary_directory()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(number) =
            name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next()?.parse().ok())
        else {
            continue;
        };
        // A directory of another user with such a name stays; so does what cannot be removed.
        let own = entry.metadata().is_ok_and(|found| found.is_dir() && inner.lease.owns(number, found.uid()));
        let remove = || {
            let _ = remove_tree(&entry.path());
        };
        if own && number == inner.lease.number() {
            remove();
        } else if own {
            inner.lease.if_abandoned(number, remove);
        }
    }
}
