//! The owners of the files that a run sees: directories shown under other ids than they have on
//! disk, and directories for which that is not possible.
//!
//! docs/design/files-and-ownership.md has the why.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use sandtimer_os::probe;

use super::Inner;
use super::error::Error;
use super::known_files::KnownFiles;
use crate::isolate::files::{FileKind, FilesPlan, HOME, Mount};
use crate::isolate::plan::Identity;

/// Installations that every user may read need no mapping; directories that people work in always
/// have one.
pub(super) fn skip_identity_maps(plan: &mut FilesPlan) {
    let cwd = plan.cwd.clone();
    for mount in &mut plan.mounts {
        if let Mount::Bind { source, target, writable: false, identity_mapped, kind } = mount
            && *identity_mapped
            && !cwd.starts_with(&*target)
        {
            let wanted = if *kind == FileKind::Directory { 0o005 } else { 0o004 };
            *identity_mapped =
                !std::fs::metadata(&*source).is_ok_and(|metadata| metadata.mode() & wanted == wanted);
        }
    }
}

/// A user namespace for each directory that is shown under other ids than it has on disk.
pub(super) fn idmap_namespaces(
    inner: &Inner,
    sources: &[PathBuf],
    identity: Option<Identity>,
    slot_index: usize,
) -> Result<Vec<Arc<OwnedFd>>, Error> {
    let Some(identity) = identity else { return Ok(Vec::new()) };
    let namespace = |source: &PathBuf| idmap_namespace(inner, owner_of(source)?, identity, slot_index);
    sources.iter().map(namespace).collect()
}

/// The user namespace that maps the owner of a directory on disk to the job's user, which has the
/// uid of this slot.
pub(super) fn owner_namespace(
    inner: &Inner,
    directory: &Path,
    uid: u32,
    slot_index: usize,
) -> Result<Arc<OwnedFd>, Error> {
    let identity = Identity { job: uid, init: inner.lease.init_uid(), owner: None };
    idmap_namespace(inner, owner_of(directory)?, identity, slot_index)
}

/// The user namespace that shows `owner` on disk as the job of `row`.
fn idmap_namespace(
    inner: &Inner,
    owner: (u32, u32),
    identity: Identity,
    slot_index: usize,
) -> Result<Arc<OwnedFd>, Error> {
    let key = (owner.0, owner.1, slot_index);
    if let Some(known) = inner.idmaps.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(known.clone());
    }
    let maps = (id_map(owner.0, identity.job), id_map(owner.1, identity.job));
    let made = inner.launchers.with(false, |ready| ready.launcher.user_namespace(&maps.0, &maps.1))?;
    let made = Arc::new(made);
    inner.idmaps.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
    Ok(made)
}

/// The owner whose directories the job can write although one cannot be mapped; `None` where every
/// one can. Every user may write the directory that is shown as /tmp, so its owner comes last.
pub(super) fn unmapped_owner(
    inner: &Inner,
    files: &KnownFiles,
    identity: Identity,
    slot_index: usize,
) -> Result<Option<(u32, u32)>, Error> {
    let (mut owners, mut is_unmapped) = (Vec::new(), false);
    for mount in &files.mounts {
        let Mount::Bind { source, target, writable: true, identity_mapped: true, .. } = mount else {
            continue;
        };
        let status = status_of(source)?;
        let owner = (status.st_uid, status.st_gid);
        let known =
            inner.mappable.lock().unwrap_or_else(PoisonError::into_inner).get(&status.st_dev).copied();
        let mappable = match known {
            Some(mappable) => mappable,
            None => {
                let namespace = idmap_namespace(inner, owner, identity, slot_index)?;
                let found = probe::allows_idmap(source, namespace.as_fd())
                    .map_err(Error::system("cannot look at a directory to be shown"))?;
                inner.mappable.lock().unwrap_or_else(PoisonError::into_inner).insert(status.st_dev, found);
                found
            }
        };
        owners.push((!mappable, target != Path::new(HOME), owner));
        is_unmapped |= !mappable;
    }
    let of_unmapped =
        |is_other: bool| owners.iter().find(|(unmapped, other, _)| *unmapped && *other == is_other);
    let of_others = || owners.iter().find(|(_, other, _)| *other);
    let found = of_unmapped(true).or_else(of_others).or_else(|| of_unmapped(false));
    Ok(found.filter(|_| is_unmapped).map(|(_, _, owner)| *owner))
}

fn owner_of(source: &Path) -> Result<(u32, u32), Error> {
    let status = status_of(source)?;
    Ok((status.st_uid, status.st_gid))
}

/// A directory of the plan, as the sandbox will open it: by its canonical path, following no link
/// that was put in the way since.
fn status_of(source: &Path) -> Result<rustix::fs::Stat, Error> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(rustix::fs::CWD, source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .and_then(|directory| rustix::fs::fstat(&directory))
        .map_err(|error| Error::System {
            doing: "cannot look at a directory to be shown",
            source: error.into(),
        })
}

/// Maps the workspace owner's uid to the job's uid, and lower uids to themselves; leaves higher
/// uids unmapped.
fn id_map(owner: u32, job: u32) -> String {
    let mut map = String::new();
    if owner > 0 {
        map.push_str(&format!("0 0 {}\n", owner.min(job)));
    }
    map.push_str(&format!("{owner} {job} 1\n"));
    if owner + 1 < job {
        map.push_str(&format!("{0} {0} {1}\n", owner + 1, job - owner - 1));
    }
    map
}
