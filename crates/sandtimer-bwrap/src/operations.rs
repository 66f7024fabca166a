//! What is set up in the new root, one operation after the other, while the old root is at /oldroot and the new one at /newroot.

use std::ffi::{CString, OsStr};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access as FileAccess, CWD, Mode, access};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind_recursive};
use sandtimer_os::own_namespaces::{MountAttributes, restrict_mount, set_host_name};
use sandtimer_os::process;

use crate::failure::{Failure, mount_reason, reason};
use crate::in_root::{Last, resolve};
use crate::mount_points::{MountPoints, Wanted};
use crate::options::{Access, Operation, Upper};

/// Device nodes of `--dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Directories of procfs that are covered where this process could write to them.
const COVERED_PROC: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

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

/// What a path of the command line names in the new root.
fn new(path: &Path) -> Result<PathBuf, Failure> {
    named(path, Last::Follow)
}

fn named(path: &Path, last: Last) -> Result<PathBuf, Failure> {
    failed(format!("Can't resolve {}", path.display()), resolve(Path::new("/newroot"), path, last))
}

fn below(root: &str, path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    Path::new(root).join(OsStr::from_bytes(&bytes[start..]))
}

fn failed<T>(doing: impl Display, result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| Failure::because(doing, error))
}

fn mounted(doing: impl Display, result: rustix::io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::new(format!("{doing}: {}", mount_reason(error))))
}

impl NewRoot<'_> {
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Bind { .. } => self.bind(operation),
            Operation::Overlay { lower, upper, destination } => self.overlay(lower, upper, destination),
            Operation::Proc(destination) => self.proc(destination),
            Operation::Dev(destination) => self.dev(destination),
            Operation::Tmpfs { destination, mode, size } => {
                self.parents(destination, *mode)?;
                let path = self.directory(destination)?;
                self.tmpfs(&path, *mode, *size)
            }
            Operation::Mqueue(destination) => {
                self.parents(destination, 0o777)?;
                let path = self.directory(destination)?;
                let result = mount("mqueue", &path, "mqueue", MountFlags::empty(), None);
                mounted(format!("Can't mount mqueue on {}", path.display()), result)?;
                self.points.note_own(&path);
                Ok(())
            }
            Operation::Directory { destination, mode } => directory(destination, *mode),
            Operation::File { descriptor, destination, mode } => file(*descriptor, destination, *mode),
            Operation::BindData { descriptor, destination, mode, read_only } => {
                let copy = bound_copy(*descriptor, destination, *mode)?;
                self.parents(destination, *mode)?;
                let to = new(destination)?;
                let made = self.points.ensure(&to, Wanted::File);
                failed(format!("Can't create file at {}", destination.display()), made)?;
                let access = if *read_only { Access::ReadOnly } else { Access::ReadWrite };
                show(&copy, &to, access)?;
                // Nothing but the mount leads to it.
                let _ = std::fs::remove_file(&copy);
                Ok(())
            }
            Operation::Symlink { target, destination } => symlink(target, destination),
            Operation::RemountReadOnly(destination) => {
                self.parents(destination, 0o777)?;
                remount_read_only(destination)
            }
            Operation::HostName(name) => {
                failed(format!("Can't set hostname to {}", name.display()), set_host_name(name.as_bytes()))
            }
            Operation::Chmod { destination, mode } => {
                let set = std::fs::set_permissions(new(destination)?, PermissionsExt::from_mode(*mode));
                failed(format!("Can't chmod 0{mode:o} {}", destination.display()), set)
            }
        }
    }

    /// The directories above a mount point.
    fn parents(&self, destination: &Path, mode: u32) -> Result<(), Failure> {
        let made = self.points.ensure_parents(&new(destination)?, parent_mode(mode));
        failed(format!("Can't mkdir parents for {}", destination.display()), made)
    }

    /// A directory to mount on.
    fn directory(&self, destination: &Path) -> Result<PathBuf, Failure> {
        let path = new(destination)?;
        let made = self.points.ensure(&path, Wanted::Directory(0o755));
        failed(format!("Can't mkdir {}", destination.display()), made)?;
        Ok(path)
    }

    fn bind(&self, operation: &Operation) -> Result<(), Failure> {
        let Operation::Bind { source, destination, access, may_be_absent, descriptor } = operation else {
            return Ok(());
        };
        let from = old(source);
        let is_directory = match std::fs::metadata(&from) {
            Ok(found) => found.is_dir(),
            Err(error) if *may_be_absent && error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(Failure::because(
                    format!("Can't get type of source {}", source.display()),
                    error,
                ));
            }
        };
        self.parents(destination, 0o777)?;
        let to = match is_directory {
            true => self.directory(destination)?,
            false => {
                let path = new(destination)?;
                let made = self.points.ensure(&path, Wanted::File);
                failed(format!("Can't create file at {}", destination.display()), made)?;
                path
            }
        };
        show(&from, &to, *access)?;
        match descriptor {
            Some(number) => check_same(*number, &to, destination),
            None => Ok(()),
        }
    }

    fn overlay(&mut self, lower: &[PathBuf], upper: &Upper, destination: &Path) -> Result<(), Failure> {
        self.parents(destination, 0o777)?;
        let path = self.directory(destination)?;
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
            path.display(),
            OsStr::from_bytes(&data).display()
        );
        let data = CString::new(data).map_err(|_| Failure::new(format!("{shown}: a path holds NUL")))?;
        match mount("overlay", &path, "overlay", MountFlags::empty(), Some(data.as_c_str())) {
            Err(Errno::LOOP) => Err(Failure::new(format!("{shown}: Overlay directories may not overlap"))),
            result => mounted(shown, result),
        }
    }

    fn proc(&mut self, destination: &Path) -> Result<(), Failure> {
        self.parents(destination, 0o777)?;
        let path = self.directory(destination)?;
        if self.has_own_processes {
            let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
            mounted(
                format!("Can't mount proc on {}", path.display()),
                mount("proc", &path, "proc", flags, None),
            )?;
        } else {
            show(Path::new("/oldroot/proc"), &path, Access::ReadWrite)?;
        }
        self.points.note_own(&path);
        for name in COVERED_PROC {
            let covered = path.join(name);
            match access(&covered, FileAccess::WRITE_OK) {
                Ok(()) => show(&covered, &covered, Access::ReadOnly)?,
                Err(Errno::ACCESS | Errno::NOENT | Errno::ROFS) => {}
                Err(error) => {
                    return Err(Failure::because(format!("Can't access {}", covered.display()), error));
                }
            }
        }
        Ok(())
    }

    fn tmpfs(&mut self, path: &Path, mode: u32, size: Option<u64>) -> Result<(), Failure> {
        let size = size.map(|size| format!(",size={size}")).unwrap_or_default();
        let data = CString::new(format!("mode=0{mode:o}{size}")).unwrap_or_default();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let result = mount("tmpfs", path, "tmpfs", flags, Some(data.as_c_str()));
        mounted(format!("Can't mount tmpfs on {}", path.display()), result)?;
        self.points.note_own(path);
        Ok(())
    }

    fn dev(&mut self, destination: &Path) -> Result<(), Failure> {
        self.parents(destination, 0o777)?;
        let path = self.directory(destination)?;
        self.tmpfs(&path, 0o755, None)?;
        let shown = destination.display();
        let device = |name: &str, from: &Path| -> Result<(), Failure> {
            let node = path.join(name);
            failed(format!("Can't create file {shown}/{name}"), create(&node, 0o444).map(drop))?;
            show(from, &node, Access::Devices)
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
            let made = rustix::fs::symlink(target, path.join(name)).map_err(io::Error::from);
            failed(format!("Can't create symlink {shown}/{name}"), made)?;
        }
        for name in ["shm", "pts"] {
            let made =
                rustix::fs::mkdir(path.join(name), Mode::from_raw_mode(0o755)).map_err(io::Error::from);
            failed(format!("Can't create {shown}/{name}"), made)?;
        }
        let terminals = path.join("pts");
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let data = c"newinstance,ptmxmode=0666,mode=620";
        let result = mount("devpts", &terminals, "devpts", flags, Some(data));
        mounted(format!("Can't mount devpts on {}", terminals.display()), result)?;
        match &self.terminal {
            Some(terminal) => device("console", &old(terminal)),
            None => Ok(()),
        }
    }
}

/// Shows `from` at `to`, with all that is mounted below it.
fn show(from: &Path, to: &Path, access: Access) -> Result<(), Failure> {
    let doing = || format!("Can't bind mount {} on {}", from.display(), to.display());
    mount_bind_recursive(from, to).map_err(|error| {
        let error = mount_reason(error);
        Failure::new(format!("{}: Unable to mount source on destination: {error}", doing()))
    })?;
    let attributes = MountAttributes {
        read_only: access == Access::ReadOnly,
        no_devices: access != Access::Devices,
        recursive: true,
    };
    restrict_mount(to, attributes).map_err(|error| {
        let what = format!("Unable to remount destination \"{}\" with correct flags", to.display());
        Failure::new(format!("{}: {what}: {}", doing(), reason(&error)))
    })
}

fn remount_read_only(destination: &Path) -> Result<(), Failure> {
    let path = new(destination)?;
    let attributes = MountAttributes { read_only: true, no_devices: true, recursive: false };
    restrict_mount(&path, attributes).map_err(|error| {
        let doing = format!("Can't remount readonly on {}", path.display());
        match error.raw_os_error() {
            Some(code) if code == Errno::INVAL.raw_os_error() => {
                Failure::new(format!("{doing}: Unable to find \"{}\" in mount table", path.display()))
            }
            _ => Failure::because(doing, error),
        }
    })
}

/// What was opened may have been replaced before it was mounted.
fn check_same(number: i32, path: &Path, destination: &Path) -> Result<(), Failure> {
    let opened = process::inherited(number).and_then(|fd| Ok(rustix::fs::fstat(fd)?));
    let opened = failed(format!("Can't stat fd {number}"), opened)?;
    let found = std::fs::symlink_metadata(path);
    let found = failed(format!("Can't stat mount at {}", destination.display()), found)?;
    match (opened.st_dev, opened.st_ino) == (found.dev(), found.ino()) {
        true => Ok(()),
        false => Err(Failure::new("Race condition binding dirfd")),
    }
}

/// Directories above something that a group or others cannot use are not for these either.
fn parent_mode(mode: u32) -> u32 {
    let group = if mode & 0o070 == 0 { 0o050 } else { 0 };
    let others = if mode & 0o007 == 0 { 0o005 } else { 0 };
    0o755 & !group & !others
}

/// Directories that were asked for stay, and so do those above them.
fn make_parents(destination: &Path, mode: u32, last: Last) -> Result<PathBuf, Failure> {
    let path = named(destination, last)?;
    let mut above: Vec<&Path> =
        path.ancestors().skip(1).filter(|above| above.as_os_str().len() > 1).collect();
    above.reverse();
    for above in above {
        let made = crate::mount_points::ensure(above, Wanted::Directory(parent_mode(mode)));
        failed(format!("Can't mkdir parents for {}", destination.display()), made)?;
    }
    Ok(path)
}

fn directory(destination: &Path, mode: u32) -> Result<(), Failure> {
    let path = make_parents(destination, mode, Last::Follow)?;
    let made = crate::mount_points::ensure(&path, Wanted::Directory(mode));
    failed(format!("Can't mkdir {}", destination.display()), made).map(drop)
}

fn create(path: &Path, mode: u32) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)
}

fn copy(descriptor: i32, to: &mut std::fs::File) -> io::Result<u64> {
    io::copy(&mut std::fs::File::from(process::inherited(descriptor)?), to)
}

fn file(descriptor: i32, destination: &Path, mode: u32) -> Result<(), Failure> {
    let path = make_parents(destination, mode, Last::Follow)?;
    let shown = destination.display();
    let mut to = failed(format!("Can't create file {shown}"), create(&path, mode))?;
    failed(format!("Can't write data to file {shown}"), copy(descriptor, &mut to)).map(drop)
}

/// A copy of what a descriptor gives, outside of the new root.
fn bound_copy(descriptor: i32, destination: &Path, mode: u32) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(format!("/bindfile-{descriptor}"));
    let shown = destination.display();
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut to = failed(format!("Can't create tmpfile for {shown}"), made)?;
    let set = to.set_permissions(PermissionsExt::from_mode(mode));
    failed(format!("Can't set mode 0{mode:o} on file to be used for {shown}"), set)?;
    failed(format!("Can't write data to file {shown}"), copy(descriptor, &mut to))?;
    Ok(path)
}

fn symlink(target: &OsStr, destination: &Path) -> Result<(), Failure> {
    let path = make_parents(destination, 0o777, Last::Keep)?;
    let shown = destination.display();
    match rustix::fs::symlinkat(target, CWD, &path) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match std::fs::read_link(&path) {
            Ok(existing) if existing.as_os_str() == target => Ok(()),
            Ok(existing) => Err(Failure::new(format!(
                "Can't make symlink at {shown}: existing destination is {}",
                existing.display()
            ))),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let why = "destination exists and is not a symlink";
                Err(Failure::new(format!("Can't make symlink at {shown}: {why}")))
            }
            Err(error) => {
                let why = "destination exists, and cannot read symlink target";
                Err(Failure::because(format!("Can't make symlink at {shown}: {why}"), error))
            }
        },
        Err(error) => Err(Failure::because(format!("Can't make symlink at {shown}"), error)),
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
