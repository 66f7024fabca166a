//! How the setup is started: in its namespaces, and in its control groups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::set_child_subreaper;
use rustix::thread::LinkNameSpaceType;
use sandtimer_os::fork::{Child, CloneRequest, clone_process};
use sandtimer_os::{descriptors, socket};

use crate::failure::BwrapFailure;
use crate::message::{Message, kind};
use crate::options::BwrapOptions;
use crate::rlimits::ProcessRlimit;
use crate::setup::{Setup, enter};

const NEWNS: u64 = 0x0002_0000;
const NEWCGROUP: u64 = 0x0200_0000;
const NEWUTS: u64 = 0x0400_0000;
const NEWIPC: u64 = 0x0800_0000;
const NEWUSER: u64 = 0x1000_0000;
const NEWPID: u64 = 0x2000_0000;
const NEWNET: u64 = 0x4000_0000;
const PARENT: u64 = 0x8000;

/// What the command is started with, as received from the caller.
#[derive(Debug, Default)]
pub(super) struct StartParameters {
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) tasks: Vec<OwnedFd>,
    pub(super) outputs: [Option<OwnedFd>; 2],
    pub(super) limits: Vec<(ProcessRlimit, u64)>,
    pub(super) wall: u64,
    pub(super) grace: u64,
}

/// Starts the setup in its namespaces and groups.
pub(super) fn start(setup: Setup, given: StartParameters, socket: &OwnedFd) -> Result<Child, BwrapFailure> {
    // Orphans of the command come here.
    let own = rustix::process::getpid();
    set_child_subreaper(Some(own)).map_err(|error| BwrapFailure::because("prctl", error))?;
    let flags = flags(&setup.options)?;
    let options = setup.options.clone();
    let mut setup = Some(setup);
    if let Some(cgroup) = &given.cgroup {
        let born =
            clone_in(&options, flags, Some(cgroup.as_fd()), || enter_and_build(&mut setup, &given, None));
        match born {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Err(not_created(&options, error));
            }
            // Since Linux 6.14 it dies at birth where the groups' kills differ.
            Ok(child) if !is_alive(socket, &child) => {
                reap(&child);
            }
            Ok(child) => return Ok(child),
            Err(_) => {}
        }
    }
    let group = given.cgroup.as_ref();
    let child = clone_in(&options, flags, None, || enter_and_build(&mut setup, &given, group));
    let child = child.map_err(|error| not_created(&options, error))?;
    match is_alive(socket, &child) {
        true => Ok(child),
        false => Err(BwrapFailure::new("the setup could not enter its control group")),
    }
}

fn reap(child: &Child) {
    sandtimer_os::process::wait_readable(child.pidfd.as_fd(), 1000);
    sandtimer_os::process::reap(child.pidfd.as_fd());
}

/// Whether the setup has reported that it lives, before its end.
fn is_alive(socket: &OwnedFd, child: &Child) -> bool {
    loop {
        if let Ok(Some((Message { kind: kind::ALIVE, .. }, _))) = Message::receive(socket, false) {
            return true;
        }
        if sandtimer_os::process::is_dead(child.pidfd.as_fd()) {
            return matches!(
                Message::receive(socket, false),
                Ok(Some((Message { kind: kind::ALIVE, .. }, _)))
            );
        }
        sandtimer_os::process::wait_readable_unless(socket.as_fd(), child.pidfd.as_fd(), 1000);
    }
}

/// The first steps of the setup, where nothing of the caller's root is replaced yet.
fn enter_and_build(setup: &mut Option<Setup>, given: &StartParameters, group: Option<&OwnedFd>) -> i32 {
    let Some(mut setup) = setup.take() else { return 1 };
    for file in &given.tasks {
        if rustix::io::write(file, b"0").is_err() {
            return 1;
        }
    }
    if let Some(group) = group {
        let procs = openat(group, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if procs.and_then(|procs| rustix::io::write(&procs, b"0")).is_err() {
            return 1;
        }
    }
    for (number, output) in (1..).zip(&given.outputs) {
        if let Some(output) = output
            && descriptors::replace(number, output).is_err()
        {
            return 1;
        }
    }
    setup.limits = given.limits.clone();
    if Message::of(kind::ALIVE).send(&setup.guard, None).is_err() {
        return 1;
    }
    setup.main()
}

/// The namespaces that a command line asks for, for clone(2).
fn flags(options: &BwrapOptions) -> Result<u64, BwrapFailure> {
    let asked = options.unshared;
    let has_cgroup = std::fs::metadata("/proc/self/ns/cgroup");
    if asked.cgroup
        && let Err(error) = &has_cgroup
    {
        return Err(BwrapFailure::new(match error.kind() {
            io::ErrorKind::NotFound => {
                "Cannot create new cgroup namespace because the kernel does not support it".to_owned()
            }
            _ => format!("stat on /proc/self/ns/cgroup failed: {error}"),
        }));
    }
    let list = [
        (asked.user, NEWUSER),
        (asked.pid, NEWPID),
        (asked.net, NEWNET),
        (asked.ipc, NEWIPC),
        (asked.uts, NEWUTS),
        (asked.cgroup || (asked.cgroup_try && has_cgroup.is_ok()), NEWCGROUP),
    ];
    Ok(list.into_iter().filter(|(is_asked, _)| *is_asked).fold(NEWNS, |all, (_, flag)| all | flag))
}

/// Clones the setup; by way of a process that enters the namespaces that are named, where some are.
fn clone_in(
    options: &BwrapOptions,
    flags: u64,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> i32,
) -> io::Result<Child> {
    let named = &options.descriptors;
    let (user, pid) = (named.user_namespace, named.pid_namespace);
    if user.is_none() && pid.is_none() {
        return clone_process(CloneRequest { flags, cgroup }, child);
    }
    let (sender, receiver) = socket::pair()?;
    let messages = options.messages;
    let between = clone_process(CloneRequest::default(), || {
        let entered = enter_named(user, pid);
        let request = CloneRequest { flags: flags | PARENT, cgroup };
        match entered
            .and_then(|()| clone_process(request, child).map_err(|error| not_created(options, error)))
        {
            Ok(born) => {
                let _ =
                    Message::with(kind::CREATED, &[born.pid as u64]).send(&sender, Some(born.pidfd.as_fd()));
                0
            }
            Err(failure) => {
                messages.error(&failure);
                1
            }
        }
    })?;
    drop(sender);
    let answer = Message::receive(&receiver, true)?;
    reap(&between);
    match answer {
        Some((Message { kind: kind::CREATED, values, .. }, Some(pidfd))) => {
            Ok(Child { pid: values[0] as i32, pidfd })
        }
        // It has reported the reason.
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn enter_named(user: Option<i32>, pid: Option<i32>) -> Result<(), BwrapFailure> {
    if let Some(number) = user {
        enter(number, LinkNameSpaceType::User).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => BwrapFailure::new(
                "Joining the specified user namespace failed, it might not be a descendant of the current user namespace.",
            ),
            _ => BwrapFailure::because("Joining specified user namespace failed", error),
        })?;
    }
    match pid {
        Some(number) => enter(number, LinkNameSpaceType::ProcessID)
            .map_err(|error| BwrapFailure::because("Setting pidns failed", error)),
        None => Ok(()),
    }
}

fn not_created(options: &BwrapOptions, error: io::Error) -> BwrapFailure {
    use rustix::io::Errno;
    if error.kind() == io::ErrorKind::BrokenPipe {
        // The process between has reported the reason.
        return BwrapFailure::new("");
    }
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::INVAL) if options.unshared.user => BwrapFailure::new(
            "Creating new namespace failed, likely because the kernel does not support user namespaces.",
        ),
        Some(Errno::PERM) if options.unshared.user => BwrapFailure::new(
            "No permissions to create a new namespace, likely because the kernel does not allow non-privileged user \
             namespaces. Debian allows them with 'sysctl kernel.unprivileged_userns_clone=1', Ubuntu with 'sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0'.",
        ),
        Some(Errno::NOSPC) => BwrapFailure::new(
            "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
        ),
        _ => BwrapFailure::because("Creating new namespace failed", error),
    }
}
