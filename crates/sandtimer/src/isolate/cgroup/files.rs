//! The control files of a group.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open, openat};

/// Controllers that limit a run.
pub(super) const LIMITING_CONTROLLERS: [&str; 2] = ["memory", "pids"];

pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?)
}

pub(super) fn write_file(directory: BorrowedFd<'_>, name: &str, value: &str) -> io::Result<()> {
    let fd = openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&fd, value.as_bytes())?;
    Ok(())
}

/// The value after `key` in a file of "key value" lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        if name == key { value.trim().parse().ok() } else { None }
    })
}

/// Turns on memory and pids for the slots of an engine's v2 group.
pub(super) fn enable_controllers(own: &OwnedFd) -> bool {
    LIMITING_CONTROLLERS.iter().all(|controller| {
        write_file(own.as_fd(), "cgroup.subtree_control", &format!("+{controller}")).is_ok()
    })
}
