//! Builds what was asked for around this process, which was born in its namespaces.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{DumpableBehavior, fchdir, pivot_root, set_dumpable_behavior, umask};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_no_new_privs};
use sandtimer_os::own_namespaces::{enter_user_namespace, raise_loopback};
use sandtimer_os::{descriptors, process};

use crate::capabilities;
use crate::command::{CommandExecution, die_with_guard, wait_for};
use crate::failure::{BwrapFailure, mount_reason};
use crate::mount_points::MountPoints;
use crate::operations::{NEW_ROOT, NewRoot};
use crate::options::{self, BwrapOptions, Operation, Upper};
use crate::rlimits::ProcessRlimit;

/// Where the new root is made: it exists everywhere, and nothing that is shown to the command is
/// below it.
const BASE: &str = "/tmp";

/// What the setup is given by the guard.
#[derive(Debug)]
pub(crate) struct Setup {
    pub options: Box<BwrapOptions>,
    /// To the guard.
    pub guard: OwnedFd,
    /// Readable once the caller has opened the namespaces, and has written the id maps if it is to
    /// write them.
    pub proceed: OwnedFd,
    /// procfs of the caller's PID namespace.
    pub proc: OwnedFd,
    pub terminal: Option<PathBuf>,
    pub limits: Vec<(ProcessRlimit, u64)>,
    pub own: Ids,
}

/// A uid and a gid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    uid: u32,
    gid: u32,
}

impl Ids {
    /// The caller's; in a new user namespace they have no names until its maps are written.
    pub fn of_caller() -> Self {
        Ids { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }
}

fn failed(doing: &'static str) -> impl Fn(rustix::io::Errno) -> BwrapFailure {
    move |error| BwrapFailure::because(doing, error)
}

fn not_mounted(doing: &'static str) -> impl Fn(rustix::io::Errno) -> BwrapFailure {
    move |error| BwrapFailure::new(format!("{doing}: {}", mount_reason(error)))
}

impl Setup {
    /// Builds everything and begins the command. Returns what this process exits with, where it is
    /// not the command itself.
    pub fn main(mut self) -> i32 {
        let messages = self.options.messages;
        let code = self.build().unwrap_or_else(|failure| {
            messages.error(&failure);
            1
        });
        // An init has closed its descriptors by number.
        std::mem::forget(self);
        code
    }

    fn build(&mut self) -> Result<i32, BwrapFailure> {
        die_with_guard()?;
        set_no_new_privs(true).map_err(failed("prctl(PR_SET_NO_NEW_PRIVS) failed"))?;
        options::close(self.options.descriptors.info);
        options::close(self.options.descriptors.json_status);
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.proceed, &mut [0; 1]));
        if read != Ok(1) {
            // The caller is gone.
            return Ok(1);
        }
        let own = self.own;
        let inside =
            Ids { uid: self.options.uid.unwrap_or(own.uid), gid: self.options.gid.unwrap_or(own.gid) };
        self.switch_user(own, inside)?;
        if self.options.unshared.net {
            raise_loopback()
                .map_err(|error| BwrapFailure::because("loopback: Failed to bring up lo", error))?;
        }
        let first = self.map_ids(own, inside)?;
        let before = umask(Mode::empty());
        self.resolve_sources()?;
        let directory = std::env::current_dir().ok();
        self.make_root()?;
        self.leave_old_root()?;
        self.close_user_namespaces(first, inside)?;
        self.drop_privileges(own)?;
        wait_for(self.options.descriptors.block);
        let mut filters = std::mem::take(&mut self.options.filters);
        if let Some(number) = self.options.descriptors.seccomp {
            filters.push(options::read_filter(number)?);
        }
        umask(before);
        let environment = self.enter_directory(directory)?;
        if self.options.new_session {
            rustix::process::setsid().map_err(failed("setsid"))?;
        }
        let limits = std::mem::take(&mut self.limits);
        CommandExecution { options: &self.options, filters, environment, limits, guard: &self.guard }.begin()
    }

    /// In a user namespace this process has every capability again, and other ids may be mapped.
    fn switch_user(&self, own: Ids, inside: Ids) -> Result<(), BwrapFailure> {
        let enters = self.options.descriptors.user_namespace.is_some();
        if self.options.unshared.user || enters {
            capabilities::bound(self.options.capabilities())?;
        }
        // Uids first, as bubblewrap does: with CAP_SETGID, which stays where the namespace's owner
        // is not left.
        if enters && inside.gid != own.gid {
            let gid = rustix::process::Gid::from_raw(inside.gid);
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|error| {
                BwrapFailure::because(format!("unable to switch to gid {}", inside.gid), error)
            })?;
        }
        if enters && inside.uid != own.uid {
            let uid = rustix::process::Uid::from_raw(inside.uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|error| {
                BwrapFailure::because(format!("unable to switch to uid {}", inside.uid), error)
            })?;
        }
        Ok(())
    }

    /// Writes the maps of the new user namespace, unless the caller does. Returns the ids in it.
    fn map_ids(&self, own: Ids, inside: Ids) -> Result<Ids, BwrapFailure> {
        if !self.options.unshared.user || self.options.descriptors.user_namespace_block.is_some() {
            return Ok(inside);
        }
        // devpts can only be mounted where root is mapped; a second namespace then has the ids that
        // were asked for.
        let has_terminals = self.options.operations.iter().any(|one| matches!(one, Operation::Dev(_)));
        let first = if has_terminals { Ids { uid: 0, gid: 0 } } else { inside };
        self.write_maps(first, own, true)?;
        Ok(first)
    }

    fn write_maps(&self, inside: Ids, outside: Ids, denies_groups: bool) -> Result<(), BwrapFailure> {
        self.write_proc("self/uid_map", &format!("{} {} 1\n", inside.uid, outside.uid))
            .map_err(|error| BwrapFailure::because("setting up uid map", error))?;
        if denies_groups {
            match self.write_proc("self/setgroups", "deny\n") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(BwrapFailure::because("error writing to setgroups", error));
                }
                _ => {}
            }
        }
        self.write_proc("self/gid_map", &format!("{} {} 1\n", inside.gid, outside.gid))
            .map_err(|error| BwrapFailure::because("setting up gid map", error))
    }

    fn write_proc(&self, name: &str, text: &str) -> io::Result<()> {
        let file = openat(&self.proc, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes())?;
        Ok(())
    }

    /// Relative paths and links are those of the caller's root.
    fn resolve_sources(&mut self) -> Result<(), BwrapFailure> {
        let resolve = |path: &mut PathBuf, may_be_absent: bool| match path.canonicalize() {
            Ok(found) => {
                *path = found;
                Ok(())
            }
            Err(error) if may_be_absent && error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                Err(BwrapFailure::because(format!("Can't find source path {}", path.display()), error))
            }
        };
        for operation in &mut self.options.operations {
            match operation {
                Operation::Bind { source, may_be_absent, .. } => resolve(source, *may_be_absent)?,
                Operation::Overlay { lower, upper, .. } => {
                    if let Upper::Directories { upper, work } = upper {
                        resolve(upper, false)?;
                        resolve(work, false)?;
                    }
                    lower.iter_mut().try_for_each(|path| resolve(path, false))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a tmpfs the root, with the old root below it, and builds the new root in a directory
    /// of it.
    fn make_root(&mut self) -> Result<(), BwrapFailure> {
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", slave).map_err(not_mounted("Failed to make / slave"))?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("tmpfs", BASE, "tmpfs", flags, None).map_err(not_mounted("Failed to mount tmpfs"))?;
        rustix::process::chdir(BASE).map_err(failed("chdir base_path"))?;
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdir("newroot", mode).map_err(failed("Creating newroot failed"))?;
        mount_bind_recursive("newroot", "newroot").map_err(not_mounted("setting up newroot bind"))?;
        rustix::fs::mkdir("oldroot", mode).map_err(failed("Creating oldroot failed"))?;
        let is_temporary =
            |one: &&Operation| matches!(one, Operation::Overlay { upper: Upper::Temporary, .. });
        for number in 0..self.options.operations.iter().filter(is_temporary).count() {
            for name in ["upper", "work"] {
                rustix::fs::mkdir(format!("tmp-overlay-{name}-{number}"), mode)
                    .map_err(failed("Creating --tmp-overlay directory failed"))?;
            }
        }
        pivot_root(BASE, "oldroot").map_err(failed("pivot_root"))?;
        rustix::process::chdir("/").map_err(failed("chdir / (base path)"))?;
        let mut points = MountPoints::new(&self.guard, Path::new(NEW_ROOT));
        let root = openat(CWD, NEW_ROOT, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        points.note_own(root.map_err(failed("can't open /newroot"))?);
        let mut root = NewRoot {
            points,
            has_own_processes: self.options.unshared.pid || self.options.descriptors.pid_namespace.is_some(),
            terminal: self.terminal.clone(),
            temporary_overlays: 0,
        };
        for operation in &self.options.operations {
            root.apply(operation)?;
        }
        for operation in &self.options.operations {
            match operation {
                Operation::Bind { descriptor: Some(number), .. } => options::close(Some(*number)),
                Operation::File { descriptor, .. } | Operation::BindData { descriptor, .. } => {
                    // Descriptor 0 too: bubblewrap closes it, and the command then has no stdin.
                    descriptors::close_inherited(*descriptor);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn leave_old_root(&self) -> Result<(), BwrapFailure> {
        // Unmounting must not reach the caller's mounts.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("oldroot", private).map_err(not_mounted("Failed to make old root rprivate"))?;
        unmount("oldroot", UnmountFlags::DETACH).map_err(failed("unmount old root"))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let base = openat(CWD, "/", flags, Mode::empty()).map_err(failed("can't open /"))?;
        rustix::process::chdir("/newroot").map_err(failed("chdir /newroot"))?;
        // The old root then lies on the new one, from where it is unmounted; pivot_root(2).
        pivot_root(".", ".").map_err(failed("pivot_root(/newroot)"))?;
        fchdir(&base).map_err(failed("fchdir to oldroot"))?;
        unmount(".", UnmountFlags::DETACH).map_err(failed("umount old root"))?;
        rustix::process::chdir("/").map_err(failed("chdir /"))
    }

    /// The second user namespace: with the ids that were asked for, and where it is to be the last
    /// one.
    fn close_user_namespaces(&self, first: Ids, inside: Ids) -> Result<(), BwrapFailure> {
        if let Some(number) = self.options.descriptors.second_user_namespace {
            enter(number, LinkNameSpaceType::User)
                .map_err(|error| BwrapFailure::because("Setting userns2 failed", error))?;
        }
        let disables = self.options.disable_user_namespaces;
        let is_mapped_here =
            self.options.unshared.user && self.options.descriptors.user_namespace_block.is_none();
        let differs = (first.uid, first.gid) != (inside.uid, inside.gid);
        if is_mapped_here && (differs || disables) {
            if disables {
                self.write_proc("sys/user/max_user_namespaces", "1").map_err(|error| {
                    BwrapFailure::because("cannot open /proc/sys/user/max_user_namespaces", error)
                })?;
            }
            enter_user_namespace().map_err(|error| BwrapFailure::because("unshare user ns", error))?;
            capabilities::bound(self.options.capabilities())?;
            self.write_maps(inside, first, false)?;
        }
        if (disables || self.options.assert_user_namespaces_disabled) && enter_user_namespace().is_ok() {
            return Err(BwrapFailure::new("creation of new user namespaces was not disabled as requested"));
        }
        Ok(())
    }

    fn drop_privileges(&self, own: Ids) -> Result<(), BwrapFailure> {
        if own.uid != 0 || self.options.changes_capabilities {
            capabilities::keep(self.options.capabilities())?;
        }
        // Its files in /proc are the user's again.
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(failed("can't set dumpable"))
    }

    /// Enters the directory to start in; returns the environment, which names it.
    fn enter_directory(&self, before: Option<PathBuf>) -> Result<Vec<(OsString, OsString)>, BwrapFailure> {
        let mut environment = self.options.environment(std::env::vars_os());
        let home = environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
        let directory = match &self.options.working_directory {
            Some(directory) => {
                rustix::process::chdir(directory.as_path()).map_err(|error| {
                    BwrapFailure::because(format!("Can't chdir to {}", directory.display()), error)
                })?;
                directory.clone()
            }
            None => {
                let mut found = before.into_iter().chain(home);
                found
                    .find(|directory| rustix::process::chdir(directory.as_path()).is_ok())
                    .unwrap_or_else(|| "/".into())
            }
        };
        environment.retain(|(name, _)| name != "PWD");
        environment.push(("PWD".into(), directory.into()));
        Ok(environment)
    }
}

/// Enters a namespace that a descriptor names.
pub(crate) fn enter(number: i32, kind: LinkNameSpaceType) -> io::Result<()> {
    let fd = process::inherited(number)?;
    let fd: BorrowedFd<'_> = fd.as_fd();
    Ok(move_into_link_name_space(fd, Some(kind))?)
}
