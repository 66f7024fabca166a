//! Which engine of this host owns which uids and cgroups.
//!
//! Each engine holds one numbered lock file for as long as it lives. The number names its cgroup
//! directory and its range of uids, so two engines never share either, and what belongs to an
//! unlocked number has no owner and may be swept. A second file lists the engine's groups, inode
//! and path a line, until they are gone: the engine that sweeps may have been started in another
//! group.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::thread::CapabilitySet;
use sandtimer_os::probe::{read_string, try_lock};
use sandtimer_os::wire::ROWS;

/// Engines that can live on one host at a time, for each user.
pub const ENGINES: u32 = 256;

/// First uid of the first engine. Above every range that systemd, useradd and subordinate ids hand
/// out by default.
const FIRST_UID: u32 = 0x7000_0000;

/// The owner of files in workspaces. It is below all uids of engines, so that each of their maps
/// leaves the uids of other engines unmapped.
pub const WORKSPACES: u32 = FIRST_UID - 1;

/// PROC_USER_INIT_INO of the kernel's `include/linux/proc_ns.h`.
const MACHINES_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether runs can have uids of their own: this is root, of all users, and not of a container that
/// has few of them, or none besides its own (user_namespaces(7)), and has the capabilities that are
/// needed to change users and to end their processes.
pub fn has_uids() -> bool {
    static POWERS: OnceLock<bool> = OnceLock::new();
    rustix::process::getuid().is_root() && *POWERS.get_or_init(|| may_change_users() && maps_all())
}

fn may_change_users() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN | CapabilitySet::KILL;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether this namespace has every uid and gid that engines use.
fn maps_all() -> bool {
    let wanted = u64::from(WORKSPACES)..u64::from(FIRST_UID) + u64::from(ENGINES) * ROWS as u64;
    ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| match read_string(map) {
        Ok(map) => map.lines().any(|line| covers(line, &wanted)),
        // A kernel without user namespaces has no such file.
        Err(error) => error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/status").exists(),
    })
}

/// Which user namespace this is, unless it is the machine's: the same ids in another one are
/// others.
pub(super) fn user_namespace() -> Option<u64> {
    let found = fs::metadata("/proc/self/ns/user").ok()?.ino();
    (found != MACHINES_USER_NAMESPACE).then_some(found)
}

/// Whether a line of a map, which has the first id inside, the first outside and how many, has all
/// of these inside.
fn covers(line: &str, wanted: &Range<u64>) -> bool {
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0_u64));
    let (first, many) = (numbers.next(), numbers.nth(1));
    matches!((first, many), (Some(first), Some(many)) if first <= wanted.start && wanted.end <= first + many)
}

/// A control group, distinguished from a later one of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupIdentity {
    /// The path in the file system of control groups.
    pub path: PathBuf,
    /// The inode number, which no later group has.
    pub inode: u64,
}

impl CgroupIdentity {
    /// The group that is there now, if there is one.
    pub fn of(path: PathBuf) -> Option<Self> {
        let inode = fs::metadata(&path).ok()?.ino();
        Some(CgroupIdentity { path, inode })
    }

    /// Whether it still exists.
    pub fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode)
    }
}

/// A number that no other living engine of this user has.
#[derive(Debug)]
pub struct Lease {
    number: u32,
    directory: PathBuf,
    /// Held for its lock.
    file: File,
}

impl Lease {
    /// Takes the lowest free number that `clean` makes as good as new: what an earlier engine could
    /// not kill still has its groups and its uids. `runtime` overrides the directory of the lock
    /// files.
    pub fn take(
        uid: u32,
        runtime: Option<&Path>,
        clean: impl Fn(u32, &[CgroupIdentity]) -> bool,
    ) -> io::Result<Self> {
        let directory = match runtime {
            Some(path) => path.to_owned(),
            None => default_directory(uid),
        };
        prepare(&directory, uid)?;
        for number in 0..ENGINES {
            let file = open(&directory, number)?;
            if try_lock(file.as_fd()) && clean(number, &noted(&directory, number)) {
                return Ok(Lease { number, directory, file });
            }
        }
        Err(io::Error::other(format!("all {ENGINES} engine numbers in {} are taken", directory.display())))
    }

    /// Another descriptor of the lock: it is held until the last one is closed.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// The engine's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The uid (and gid) for the job in `row`. The last of the range is init's.
    pub fn uid(&self, slot: usize) -> u32 {
        FIRST_UID + self.number * ROWS as u32 + slot as u32
    }

    /// The uid (and gid) of the first process of this engine's sandboxes.
    pub fn init_uid(&self) -> u32 {
        self.uid(ROWS - 1)
    }

    /// Whether an engine of this user with `number` gives `uid` to what it makes.
    pub fn owns(&self, number: u32, uid: u32) -> bool {
        let first = FIRST_UID.saturating_add(number.saturating_mul(ROWS as u32));
        uid == rustix::process::getuid().as_raw() || (first..first.saturating_add(ROWS as u32)).contains(&uid)
    }

    /// Notes which groups this engine has made, before anything is started in them. If the disk is
    /// full, only engines that are started in the same group find them.
    pub fn note(&self, groups: &[CgroupIdentity]) {
        let mut note = Vec::new();
        for CgroupIdentity { path, inode } in groups {
            note.extend_from_slice(format!("{inode} ").as_bytes());
            note.extend_from_slice(path.as_os_str().as_bytes());
            note.push(b'\n');
        }
        let _ = fs::write(groups_file(&self.directory, self.number), note);
    }

    /// Numbers that groups are noted of, of engines that are alive or ended by force.
    pub fn noted(&self) -> BTreeSet<u32> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix("engine-")?.strip_suffix(".groups")?.parse().ok()
        };
        entries.filter_map(number).collect()
    }

    /// Sweeps what another engine, of this `number`, has noted, if it is dead. If `sweep` returns
    /// that all of it is gone, the note is removed.
    pub fn sweep_noted(&self, number: u32, sweep: impl FnOnce(&[CgroupIdentity]) -> bool) {
        self.if_abandoned(number, || {
            if sweep(&noted(&self.directory, number)) {
                forget(&self.directory, number);
            }
        });
    }

    /// Does something on behalf of another `number` if no living engine holds it, under its lock.
    pub fn if_abandoned(&self, number: u32, sweep: impl FnOnce()) {
        if number != self.number
            && number < ENGINES
            && let Ok(file) = open(&self.directory, number)
            && try_lock(file.as_fd())
        {
            sweep();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !noted(&self.directory, self.number).iter().any(CgroupIdentity::is_there) {
            forget(&self.directory, self.number);
        }
    }
}

fn groups_file(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("engine-{number}.groups"))
}

/// The groups that are noted of an engine.
fn noted(directory: &Path, number: u32) -> Vec<CgroupIdentity> {
    let note = fs::read(groups_file(directory, number)).unwrap_or_default();
    let group = |line: &[u8]| {
        let end = line.iter().position(|byte| *byte == b' ')?;
        let inode = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
        Some(CgroupIdentity { path: PathBuf::from(OsStr::from_bytes(&line[end + 1..])), inode })
    };
    note.split(|byte| *byte == b'\n').filter_map(group).collect()
}

/// A failure is harmless: what stays noted is searched again, and not found.
fn forget(directory: &Path, number: u32) {
    let _ = fs::remove_file(groups_file(directory, number));
}

/// A name for what engines of this user share.
pub fn own_name(what: &str, uid: u32) -> String {
    match user_namespace() {
        None => format!("{what}-{uid}"),
        Some(namespace) => format!("{what}-{uid}-of-{namespace}"),
    }
}

fn name(number: u32) -> String {
    format!("engine-{number}.lock")
}

fn open(directory: &Path, number: u32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join(name(number)))
}

fn default_directory(uid: u32) -> PathBuf {
    let common = Path::new("/run/sandtimer");
    // In this order, because the second check reads files.
    if uid == 0 && (prepare(common, uid).is_ok() || has_uids()) {
        return common.to_owned();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(path) if Path::new(&path).is_dir() => PathBuf::from(path).join("sandtimer"),
        _ => PathBuf::from(format!("/tmp/{}", own_name("sandtimer", uid))),
    }
}

/// Makes the directory, and fails if it exists and another user could have prepared it.
fn prepare(directory: &Path, uid: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?,
    }
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "{} must be a directory of uid {uid} with mode 0700; remove it or set XDG_RUNTIME_DIR",
            directory.display()
        )));
    }
    Ok(())
}
