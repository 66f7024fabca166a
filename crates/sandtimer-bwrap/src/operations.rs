//! What is set up in the new root, one operation after the other, while the old root is at /oldroot
//! and the new one at /newroot.

use std::ffi::{CString, OsStr};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    Access as FileAccess, AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, accessat, fstat, mkdirat,
    openat, readlinkat, statx, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use sandtimer_os::own_namespaces::{MountAttributes, restrict_mount, set_host_name};
use sandtimer_os::process;

use crate::failure::{BwrapFailure, mount_reason, reason};
use crate::in_root::{LastComponent, Location, locate};
use crate::mount_points::{MountPointKind, MountPoints, ensure};
use crate::options::{Access, Operation, Upper};

/// Device nodes of `--dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Directories of procfs that are covered where this process could write to them.
const COVERED_PROC: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

/// Where the new root is while it is built.
pub(crate) const NEW_ROOT: &str = "/newroot";

/// What the operations depend on besides themselves.
#[derive(Debug)]
pub(crate) struct NewRoot<'a> {
    pub points: MountPoints<'a>,
    /// A procfs of the sandbox's PID namespace is to be made.
    pub has_own_processes: bool,
    /// The terminal at stdout.
    pub terminal: Option<PathBuf>,
    /// Overlays whose writes go to a hidden tmpfs, so far.
    pub temporary_overlays: usize,
}

/// A path of the command line below the old root.
pub(crate) fn old(path: &Path) -> PathBuf {
    below("/oldroot", path)
}

/// Finds what a path of the command line names in the new root. Directories that are missing above
/// it are made by `enter`.
fn find(
    path: &Path,
    last: LastComponent,
    enter: impl FnMut(Location) -> io::Result<Rc<OwnedFd>>,
) -> io::Result<Location> {
    locate(Path::new(NEW_ROOT), path, last, enter)
}

/// The same where it must exist.
fn find_existing(path: &Path) -> io::Result<Rc<OwnedFd>> {
    let location = find(path, LastComponent::Follow, |above| above.existing().cloned())?;
    location.existing().cloned()
}

/// A path to an open file, for system calls that take no descriptor.
fn path_of(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/oldroot/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens what was mounted at a location.
///
/// # Errors
/// EBUSY if another process has replaced the mount point.
fn open_mounted(location: &mut Location) -> io::Result<Rc<OwnedFd>> {
    location.open()?;
    let entry = location.existing()?.clone();
    let found = statx(&entry, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    let is_known = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    match is_known && !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        true => Err(Errno::BUSY.into()),
        false => Ok(entry),
    }
}

fn below(root: &str, path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    Path::new(root).join(OsStr::from_bytes(&bytes[start..]))
}

fn failed<T>(doing: impl Display, result: io::Result<T>) -> Result<T, BwrapFailure> {
    result.map_err(|error| BwrapFailure::because(doing, error))
}

fn mounted(doing: impl Display, result: rustix::io::Result<()>) -> Result<(), BwrapFailure> {
    result.map_err(|error| BwrapFailure::new(format!("{doing}: {}", mount_reason(error))))
}

impl NewRoot<'_> {
    pub fn apply(&mut self, operation: &Operation) -> Result<(), BwrapFailure> {
        match operation {
            Operation::Bind { .. } => self.bind(operation),
            Operation::Overlay { lower, upper, destination } => self.overlay(lower, upper, destination),
            Operation::Proc(destination) => self.proc(destination),
            Operation::Dev(destination) => self.dev(destination),
            Operation::Tmpfs { destination, mode, size } => {
                let mut location = self.directory(destination, *mode)?;
                self.tmpfs(&mut location, destination, *mode, *size).map(drop)
            }
            Operation::Mqueue(destination) => {
                let mut location = self.directory(destination, 0o777)?;
                let file_system = FileSystem { kind: "mqueue", flags: MountFlags::empty(), data: None };
                let mounted = file_system.mount(&mut location, destination)?;
                self.points.note_own(mounted);
                Ok(())
            }
            Operation::Directory { destination, mode } => directory(destination, *mode),
            Operation::File { descriptor, destination, mode } => file(*descriptor, destination, *mode),
            Operation::BindData { descriptor, destination, mode, read_only } => {
                let copy = bound_copy(*descriptor, destination, *mode)?;
                let to = self.file(destination, *mode)?;
                let access = if *read_only { Access::ReadOnly } else { Access::ReadWrite };
                show(&copy, &to, destination, access)?;
                // Nothing but the mount leads to it.
                let _ = std::fs::remove_file(&copy);
                Ok(())
            }
            Operation::Symlink { target, destination } => symlink(target, destination),
            Operation::RemountReadOnly(destination) => {
                let location = self.locate(destination, 0o777)?;
                remount_read_only(&location, destination)
            }
            Operation::HostName(name) => {
                failed(format!("Can't set hostname to {}", name.display()), set_host_name(name.as_bytes()))
            }
            Operation::Chmod { destination, mode } => {
                let set = find_existing(destination).and_then(|entry| {
                    std::fs::set_permissions(path_of(&entry), PermissionsExt::from_mode(*mode))
                });
                failed(format!("Can't chmod 0{mode:o} {}", destination.display()), set)
            }
        }
    }

    /// Finds a mount point, and makes the directories above it.
    fn locate(&self, destination: &Path, mode: u32) -> Result<Location, BwrapFailure> {
        let found = self.points.locate(destination, parent_mode(mode));
        failed(format!("Can't mkdir parents for {}", destination.display()), found)
    }

    /// A directory to mount on; `mode` is what is going to be there.
    fn directory(&self, destination: &Path, mode: u32) -> Result<Location, BwrapFailure> {
        let mut location = self.locate(destination, mode)?;
        let made = self.points.ensure(&mut location, MountPointKind::Directory(0o755));
        failed(format!("Can't mkdir {}", destination.display()), made)?;
        Ok(location)
    }

    /// A file to mount on.
    fn file(&self, destination: &Path, mode: u32) -> Result<Location, BwrapFailure> {
        let mut location = self.locate(destination, mode)?;
        let made = self.points.ensure(&mut location, MountPointKind::File);
        failed(format!("Can't create file at {}", destination.display()), made)?;
        Ok(location)
    }

    fn bind(&self, operation: &Operation) -> Result<(), BwrapFailure> {
        let Operation::Bind { source, destination, access, may_be_absent, descriptor } = operation else {
            return Ok(());
        };
        let from = old(source);
        let is_directory = match std::fs::metadata(&from) {
            Ok(found) => found.is_dir(),
            Err(error) if *may_be_absent && error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(BwrapFailure::because(
                    format!("Can't get type of source {}", source.display()),
                    error,
                ));
            }
        };
        let to = match is_directory {
            true => self.directory(destination, 0o777)?,
            false => self.file(destination, 0o777)?,
        };
        let tree = copy_tree(&from, destination)?;
        if let Some(number) = descriptor {
            check_same(*number, &tree, destination)?;
        }
        attach(&tree, &from, &to, destination, *access)
    }

    fn overlay(&mut self, lower: &[PathBuf], upper: &Upper, destination: &Path) -> Result<(), BwrapFailure> {
        let location = self.directory(destination, 0o777)?;
        let mut data = Vec::new();
        let part = |data: &mut Vec<u8>, name: &str, path: &Path| {
            data.extend_from_slice(name.as_bytes());
            data.extend_from_slice(&escaped(path));
        };
        match upper {
            Upper::Directories { upper, work } => {
                part(&mut data, "upperdir=", &old(upper));
                part(&mut data, ",workdir=", &old(work));
                data.push(b',');
            }
            Upper::Temporary => {
                let number = self.temporary_overlays;
                self.temporary_overlays += 1;
                let own = format!("upperdir=/tmp-overlay-upper-{number},workdir=/tmp-overlay-work-{number},");
                data.extend_from_slice(own.as_bytes());
            }
            Upper::None => {}
        }
        for (number, lower) in lower.iter().enumerate() {
            part(&mut data, if number == 0 { "lowerdir=" } else { ":" }, &old(lower));
        }
        data.extend_from_slice(b",userxattr");
        let shown = format!(
            "Can't make overlay mount on {} with options {}",
            destination.display(),
            OsStr::from_bytes(&data).display()
        );
        let data = CString::new(data).map_err(|_| BwrapFailure::new(format!("{shown}: a path holds NUL")))?;
        let entry = failed(&shown, location.existing())?;
        match mount("overlay", path_of(entry), "overlay", MountFlags::empty(), Some(data.as_c_str())) {
            Err(Errno::LOOP) => {
                Err(BwrapFailure::new(format!("{shown}: Overlay directories may not overlap")))
            }
            result => mounted(shown, result),
        }
    }

    fn proc(&mut self, destination: &Path) -> Result<(), BwrapFailure> {
        let mut location = self.directory(destination, 0o777)?;
        let shown = destination.display();
        let mounted = if self.has_own_processes {
            let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
            FileSystem { kind: "proc", flags, data: None }.mount(&mut location, destination)?
        } else {
            show(Path::new("/oldroot/proc"), &location, destination, Access::ReadWrite)?;
            failed(format!("Can't mount proc on {shown}"), open_mounted(&mut location))?
        };
        self.points.note_own(&mounted);
        for name in COVERED_PROC {
            match accessat(&mounted, name, FileAccess::WRITE_OK, AtFlags::empty()) {
                Ok(()) => {
                    let covered = destination.join(name);
                    let mut location = location.entry_of(mounted.clone(), name);
                    failed(format!("Can't open {}", covered.display()), location.open())?;
                    let entry = failed(format!("Can't open {}", covered.display()), location.existing())?;
                    show(&path_of(entry), &location, &covered, Access::ReadOnly)?;
                }
                Err(Errno::ACCESS | Errno::NOENT | Errno::ROFS) => {}
                Err(error) => {
                    return Err(BwrapFailure::because(format!("Can't access {shown}/{name}"), error));
                }
            }
        }
        Ok(())
    }

    fn tmpfs(
        &mut self,
        location: &mut Location,
        destination: &Path,
        mode: u32,
        size: Option<u64>,
    ) -> Result<Rc<OwnedFd>, BwrapFailure> {
        let size = size.map(|size| format!(",size={size}")).unwrap_or_default();
        let data = CString::new(format!("mode=0{mode:o}{size}")).unwrap_or_default();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let file_system = FileSystem { kind: "tmpfs", flags, data: Some(data) };
        let mounted = file_system.mount(location, destination)?;
        self.points.note_own(&mounted);
        Ok(mounted)
    }

    fn dev(&mut self, destination: &Path) -> Result<(), BwrapFailure> {
        let mut location = self.directory(destination, 0o777)?;
        let mounted = self.tmpfs(&mut location, destination, 0o755, None)?;
        let shown = destination.display();
        let device = |name: &str, from: &Path| -> Result<(), BwrapFailure> {
            let mut node = location.entry_of(mounted.clone(), name);
            let made = ensure(&mut node, MountPointKind::File);
            failed(format!("Can't create file {shown}/{name}"), made)?;
            show(from, &node, &destination.join(name), Access::Devices)
        };
        for name in DEVICES {
            device(name, &Path::new("/oldroot/dev").join(name))?;
        }
        let links = [
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("fd", "/proc/self/fd"),
            ("core", "/proc/kcore"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, target) in links {
            let made = symlinkat(target, &mounted, name).map_err(io::Error::from);
            failed(format!("Can't create symlink {shown}/{name}"), made)?;
        }
        for name in ["shm", "pts"] {
            let made = mkdirat(&mounted, name, Mode::from_raw_mode(0o755)).map_err(io::Error::from);
            failed(format!("Can't create {shown}/{name}"), made)?;
        }
        let mut terminals = location.entry_of(mounted.clone(), "pts");
        failed(format!("Can't open {shown}/pts"), terminals.open())?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let data = Some(c"newinstance,ptmxmode=0666,mode=620".to_owned());
        FileSystem { kind: "devpts", flags, data }.mount(&mut terminals, &destination.join("pts"))?;
        match &self.terminal {
            Some(terminal) => device("console", &old(terminal)),
            None => Ok(()),
        }
    }
}

/// A file system that is made for the sandbox.
#[derive(Debug)]
struct FileSystem {
    kind: &'static str,
    flags: MountFlags,
    data: Option<CString>,
}

impl FileSystem {
    /// Mounts it at a location; returns its root.
    fn mount(&self, location: &mut Location, destination: &Path) -> Result<Rc<OwnedFd>, BwrapFailure> {
        let doing = format!("Can't mount {} on {}", self.kind, destination.display());
        let entry = failed(&doing, location.existing())?;
        mounted(&doing, mount(self.kind, path_of(entry), self.kind, self.flags, self.data.as_deref()))?;
        failed(&doing, open_mounted(location))
    }
}

fn not_shown(from: &Path, destination: &Path, why: impl Display) -> BwrapFailure {
    BwrapFailure::new(format!("Can't bind mount {} on {}: {why}", from.display(), destination.display()))
}

/// Shows `from` at `to`, with all that is mounted below it.
fn show(from: &Path, to: &Location, destination: &Path, access: Access) -> Result<(), BwrapFailure> {
    let tree = copy_tree(from, destination)?;
    attach(&tree, from, to, destination, access)
}

/// A copy of the mounts at and below `from`, mounted nowhere yet.
fn copy_tree(from: &Path, destination: &Path) -> Result<OwnedFd, BwrapFailure> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, from, flags).map_err(|error| {
        let why = format!("Unable to mount source on destination: {}", mount_reason(error));
        not_shown(from, destination, why)
    })
}

/// Mounts a copied tree at a location.
fn attach(
    tree: &OwnedFd,
    from: &Path,
    to: &Location,
    destination: &Path,
    access: Access,
) -> Result<(), BwrapFailure> {
    let attributes = MountAttributes {
        read_only: access == Access::ReadOnly,
        no_devices: access != Access::Devices,
        recursive: true,
    };
    restrict_mount(&path_of(tree), attributes).map_err(|error| {
        let what = format!("Unable to remount destination \"{}\" with correct flags", destination.display());
        not_shown(from, destination, format!("{what}: {}", reason(&error)))
    })?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    let entry = to.existing().map_err(|error| not_shown(from, destination, reason(&error)))?;
    move_mount(tree, "", entry.as_fd(), "", flags).map_err(|error| {
        let why = format!("Unable to mount source on destination: {}", mount_reason(error));
        not_shown(from, destination, why)
    })
}

fn remount_read_only(location: &Location, destination: &Path) -> Result<(), BwrapFailure> {
    let attributes = MountAttributes { read_only: true, no_devices: true, recursive: false };
    let shown = destination.display();
    let restricted = location.existing().and_then(|entry| restrict_mount(&path_of(entry), attributes));
    restricted.map_err(|error| {
        let doing = format!("Can't remount readonly on {shown}");
        match error.raw_os_error() {
            Some(code) if code == Errno::INVAL.raw_os_error() => {
                BwrapFailure::new(format!("{doing}: Unable to find \"{shown}\" in mount table"))
            }
            _ => BwrapFailure::because(doing, error),
        }
    })
}

/// What was opened may have been replaced before it was mounted.
fn check_same(number: i32, tree: &OwnedFd, destination: &Path) -> Result<(), BwrapFailure> {
    let opened = process::inherited(number).and_then(|fd| Ok(fstat(fd)?));
    let opened = failed(format!("Can't stat fd {number}"), opened)?;
    let found = fstat(tree).map_err(io::Error::from);
    let found = failed(format!("Can't stat mount at {}", destination.display()), found)?;
    match (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino) {
        true => Ok(()),
        false => Err(BwrapFailure::new("Race condition binding dirfd")),
    }
}

/// Directories above something that a group or others cannot use are not for these either.
fn parent_mode(mode: u32) -> u32 {
    let group = if mode & 0o070 == 0 { 0o050 } else { 0 };
    let others = if mode & 0o007 == 0 { 0o005 } else { 0 };
    0o755 & !group & !others
}

/// Finds a path, and makes the directories above it. Requested directories stay, and so do those
/// above them.
fn make_parents(destination: &Path, mode: u32, last: LastComponent) -> Result<Location, BwrapFailure> {
    let found = find(destination, last, |mut above| {
        ensure(&mut above, MountPointKind::Directory(parent_mode(mode)))?;
        above.existing().cloned()
    });
    failed(format!("Can't mkdir parents for {}", destination.display()), found)
}

fn directory(destination: &Path, mode: u32) -> Result<(), BwrapFailure> {
    let mut location = make_parents(destination, mode, LastComponent::Follow)?;
    let made = ensure(&mut location, MountPointKind::Directory(mode));
    failed(format!("Can't mkdir {}", destination.display()), made).map(drop)
}

fn copy(descriptor: i32, to: &mut std::fs::File) -> io::Result<u64> {
    io::copy(&mut std::fs::File::from(process::inherited(descriptor)?), to)
}

fn file(descriptor: i32, destination: &Path, mode: u32) -> Result<(), BwrapFailure> {
    let location = make_parents(destination, mode, LastComponent::Follow)?;
    let shown = destination.display();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(&location.directory, &location.name, flags, Mode::from_raw_mode(mode));
    let opened = failed(format!("Can't create file {shown}"), opened.map_err(io::Error::from))?;
    let mut to = std::fs::File::from(opened);
    failed(format!("Can't write data to file {shown}"), copy(descriptor, &mut to)).map(drop)
}

/// A copy of what a descriptor gives, outside of the new root.
fn bound_copy(descriptor: i32, destination: &Path, mode: u32) -> Result<PathBuf, BwrapFailure> {
    let path = PathBuf::from(format!("/bindfile-{descriptor}"));
    let shown = destination.display();
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut to = failed(format!("Can't create tmpfile for {shown}"), made)?;
    let set = to.set_permissions(PermissionsExt::from_mode(mode));
    failed(format!("Can't set mode 0{mode:o} on file to be used for {shown}"), set)?;
    failed(format!("Can't write data to file {shown}"), copy(descriptor, &mut to))?;
    Ok(path)
}

fn symlink(target: &OsStr, destination: &Path) -> Result<(), BwrapFailure> {
    let location = make_parents(destination, 0o777, LastComponent::Keep)?;
    let shown = destination.display();
    match symlinkat(target, &location.directory, &location.name) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match readlinkat(&location.directory, &location.name, Vec::new()) {
            Ok(existing) if existing.to_bytes() == target.as_bytes() => Ok(()),
            Ok(existing) => Err(BwrapFailure::new(format!(
                "Can't make symlink at {shown}: existing destination is {}",
                OsStr::from_bytes(existing.to_bytes()).display()
            ))),
            Err(Errno::INVAL) => {
                let why = "destination exists and is not a symlink";
                Err(BwrapFailure::new(format!("Can't make symlink at {shown}: {why}")))
            }
            Err(error) => {
                let why = "destination exists, and cannot read symlink target";
                Err(BwrapFailure::because(format!("Can't make symlink at {shown}: {why}"), error))
            }
        },
        Err(error) => Err(BwrapFailure::because(format!("Can't make symlink at {shown}"), error)),
    }
}

/// A path as overlayfs reads it in a list of options.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b',' | b':') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_below_the_old_root() {
        assert_eq!(old(Path::new("//a/b")), Path::new("/oldroot/a/b"));
        assert_eq!(old(Path::new("/")), Path::new("/oldroot/"));
    }

    #[test]
    fn parents_are_as_closed_as_what_they_hold() {
        let modes = [0o1777, 0o755, 0o644, 0o750, 0o710, 0o700, 0o705, 0].map(parent_mode);
        assert_eq!(modes, [0o755, 0o755, 0o755, 0o750, 0o750, 0o700, 0o705, 0o700]);
    }

    #[test]
    fn overlay_paths_are_escaped() {
        assert_eq!(escaped(Path::new("/a,b:c\\d\"")), b"/a\\,b\\:c\\\\d\"");
    }
}
