//! Where control groups can be made: which hierarchies are mounted, where this process is in them,
//! and what engines that are gone left there.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use sandtimer_os::probe::read_string;

use super::files::LIMITING_CONTROLLERS;
use crate::isolate::lease::{CgroupIdentity, own_name};

/// Where hierarchies are mounted and where in them this process is.
#[derive(Debug, Default)]
pub(super) struct CgroupMounts {
    pub unified: Option<PathBuf>,
    pub memory: Option<PathBuf>,
    pub pids: Option<PathBuf>,
    /// Groups below `unified` can have memory and process limits.
    pub unified_limits: bool,
}

/// The group of the v2 tree below which groups with these controllers can be made: `own`, or the
/// nearest above it. A group that holds processes gives no controllers to those below (cgroups(7),
/// "no internal processes"), and the group of a login or a service holds some; its slice does not.
/// The search never leaves a group on which the operator has set a limit.
fn nearest_with(controllers: &[&str], own: &Path, mount: &Path) -> Option<PathBuf> {
    for path in own.ancestors().take_while(|path| path.starts_with(mount)) {
        if gives(path, controllers) {
            return Some(path.to_path_buf());
        }
        if is_limited(path) {
            return None;
        }
    }
    None
}

fn is_limited(group: &Path) -> bool {
    ["memory.max", "memory.high", "pids.max", "cpu.max"].iter().any(|file| {
        // Where a controller is not given there is no such file, and no limit.
        read_string(group.join(file)).is_ok_and(|limit| !limit.starts_with("max"))
    })
}

fn gives(group: &Path, controllers: &[&str]) -> bool {
    // To be moved or cloned between groups takes the right to write the processes of one above
    // both.
    let may_use = access(group, Access::WRITE_OK | Access::EXEC_OK)
        .and_then(|()| access(group.join("cgroup.procs"), Access::WRITE_OK));
    let has = |file: &str| {
        let names = read_string(group.join(file)).unwrap_or_default();
        controllers.iter().all(|wanted| names.split_whitespace().any(|name| name == *wanted))
    };
    let given = "cgroup.subtree_control";
    let enable = |controller: &&str| fs::write(group.join(given), format!("+{controller}")).is_ok();
    may_use.is_ok() && (has(given) || has("cgroup.controllers") && controllers.iter().all(enable))
}

fn find() -> CgroupMounts {
    let mounts = read_string("/proc/self/mountinfo").unwrap_or_default();
    let own = read_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = CgroupMounts::default();
    let mut unified_mount = PathBuf::new();
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut fields = left.split(' ').skip(3);
        let (Some(root), Some(point)) = (fields.next(), fields.next()) else { continue };
        let mut types = right.split(' ');
        let kind = types.next().unwrap_or_default();
        let options = types.nth(1).unwrap_or_default();
        let has = |name: &str| options.split(',').any(|option| option == name);
        let group_path = |controller: &str| {
            let path = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let names = parts.next()?;
                let path = parts.next()?;
                names.split(',').any(|name| name == controller).then_some(path)
            });
            let inside = Path::new(path.unwrap_or("/"));
            let inside = inside.strip_prefix(root).unwrap_or(Path::new(""));
            Path::new(point).join(inside.strip_prefix("/").unwrap_or(inside))
        };
        match kind {
            "cgroup2" if found.unified.is_none() => {
                found.unified = Some(group_path(""));
                unified_mount = PathBuf::from(point);
            }
            "cgroup" if has("memory") => found.memory = Some(group_path("memory")),
            "cgroup" if has("pids") => found.pids = Some(group_path("pids")),
            _ => {}
        }
    }
    if let Some(own) = &found.unified
        && let Some(parent) = nearest_with(&LIMITING_CONTROLLERS, own, &unified_mount)
    {
        found.unified = Some(parent);
        found.unified_limits = true;
    }
    found
}

/// Where this user's engines have their groups.
#[derive(Debug)]
pub struct Hierarchies {
    pub(super) found: CgroupMounts,
    pub(super) prefix: String,
    /// Pauses that are left.
    patience: Cell<usize>,
}

impl Hierarchies {
    /// Looks which hierarchies are mounted and where this process is in them.
    pub fn find() -> Self {
        // Of another namespace's user of the same number the locks are elsewhere.
        let own = own_name("sandtimer", rustix::process::getuid().as_raw());
        Hierarchies { found: find(), prefix: format!("{own}-"), patience: Cell::new(SWEEP_TRIES) }
    }

    fn parents(&self) -> impl Iterator<Item = &PathBuf> {
        // The v2 tree first: killed there, a run's processes are gone from its v1 groups as well.
        [&self.found.unified, &self.found.memory, &self.found.pids].into_iter().flatten()
    }

    /// Numbers of engines that have groups here, alive or not.
    pub fn numbers(&self) -> BTreeSet<u32> {
        let entries = self.parents().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
        let number =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(&self.prefix)?.parse().ok();
        entries.filter_map(number).collect()
    }

    pub(super) fn name(&self, number: u32) -> String {
        format!("{}{number}", self.prefix)
    }

    /// The groups that engine `number` has here and that exist.
    pub fn groups(&self, number: u32) -> Vec<CgroupIdentity> {
        self.parents().filter_map(|parent| CgroupIdentity::of(parent.join(self.name(number)))).collect()
    }

    /// Kills and removes what engine `number` has left, here and in the groups that it has `noted`:
    /// it may have been started from other groups than this process. Its lock is held by the
    /// caller. False when something stays: a process that waits in the kernel cannot be killed.
    pub fn sweep(&self, number: u32, noted: &[CgroupIdentity]) -> bool {
        let mut groups = self.groups(number);
        groups.extend(noted.iter().filter(|group| group.is_there()).cloned());
        // First all of it: killed in its v2 group, a process is gone from its v1 groups as well.
        for path in groups.iter().flat_map(|group| groups_in(&group.path)) {
            // Only v2 has the file. It kills what is in the groups below as well.
            let _ = fs::write(path.join("cgroup.kill"), "1");
        }
        let mut clean = true;
        for group in &groups {
            for path in groups_in(&group.path) {
                // The slot of a sandbox has the groups of its runs in its own.
                let is_empty =
                    groups_in(&path).iter().fold(true, |all, run| self.remove_when_empty(run) & all);
                clean &= is_empty && self.remove_when_empty(&path);
            }
            clean = clean && self.remove_when_empty(&group.path);
        }
        clean
    }

    /// Removes a group, waiting for killed processes to be gone from it while there is patience.
    /// Whether it is gone.
    fn remove_when_empty(&self, path: &Path) -> bool {
        loop {
            match fs::remove_dir(path) {
                Err(error) if error.raw_os_error() == Some(16) && self.patience.get() > 0 => {
                    self.patience.set(self.patience.get() - 1);
                    super::slot::kill_each(|| {
                        let list = fs::read_to_string(path.join("cgroup.procs")).ok()?;
                        Some(super::slot::parse_process_ids(&list))
                    });
                    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                    // A bounded pause between tries: v1 groups have no event for being empty.
                    let _ = rustix::event::poll(&mut [], Some(&pause));
                }
                Err(error) => return error.kind() == io::ErrorKind::NotFound,
                Ok(()) => return true,
            }
        }
    }
}

/// The groups directly below one.
fn groups_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Pauses of 10 ms in which killed processes may leave the groups of dead engines, at one start.
const SWEEP_TRIES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a directory that looks like a group. A group that holds processes refuses to give
    /// controllers, which a directory in place of the file simulates.
    fn group(path: &Path, has: &str, gives: Option<&str>) {
        fs::create_dir_all(path).expect("a directory");
        fs::write(path.join("cgroup.controllers"), has).expect("a file");
        fs::write(path.join("cgroup.procs"), "").expect("a file");
        match gives {
            Some(names) => fs::write(path.join("cgroup.subtree_control"), names).expect("a file"),
            None => fs::create_dir(path.join("cgroup.subtree_control")).expect("a directory"),
        }
    }

    #[test]
    fn the_nearest_group_that_gives_limits_is_taken() {
        let mount = tempfile::tempdir().expect("a temporary directory");
        let mount = mount.path();
        let all = "cpu io memory pids";
        group(mount, all, Some("memory pids"));
        group(&mount.join("user.slice"), all, Some("cpu pids memory"));
        group(&mount.join("user.slice/session-1.scope"), all, None);
        group(&mount.join("system.slice"), "cpu memory", Some("memory"));
        group(&mount.join("system.slice/a.service"), "memory", Some(""));
        group(&mount.join("delegated"), all, Some(""));
        let nearest = |own: &str| nearest_with(&LIMITING_CONTROLLERS, &mount.join(own), mount);
        assert_eq!(nearest("user.slice/session-1.scope"), Some(mount.join("user.slice")));
        assert_eq!(nearest("system.slice/a.service"), Some(mount.to_path_buf()));
        assert_eq!(nearest("delegated"), Some(mount.join("delegated")));
        assert_eq!(
            nearest_with(&LIMITING_CONTROLLERS, &mount.join("system.slice"), &mount.join("system.slice")),
            None
        );
        fs::write(mount.join("user.slice/session-1.scope/pids.max"), "max\n").expect("a file");
        assert_eq!(nearest("user.slice/session-1.scope"), Some(mount.join("user.slice")));
        fs::write(mount.join("user.slice/session-1.scope/memory.max"), "1073741824\n").expect("a file");
        assert_eq!(nearest("user.slice/session-1.scope"), None, "an operator's limit was left behind");
    }
}
