//! Starts the embedded helper program from a sealed memfd.
//!
//! The caller may be a threaded process of tens of gigabytes, so nothing is copied: the child
//! shares the memory until it executes the image (CLONE_VM | CLONE_VFORK), in one block of
//! assembly. There it makes three system calls, reads what they need from `Start`, and writes
//! nothing but `Start::failure`, where execveat(2) returned; a fourth then ends it. Helpers and
//! sandboxes are children of the host program: execve(2) gives them SIGCHLD for an exit signal
//! again, so a host program that waits for any child at all may meet one. It takes nothing away by
//! that: death is read from pidfds and everything else from sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use crate::program::sealed_memfd;

/// Above every descriptor that the child puts in place before it executes the image.
const FIRST_FREE: i32 = 10;

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helper"));

fn image() -> io::Result<BorrowedFd<'static>> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    let fd = match FILE.get() {
        Some(fd) => fd,
        None => {
            let made = sealed_memfd("sandtimer-helper", IMAGE, true)?;
            // Out of the way of the descriptors that a helper is started with.
            let made = rustix::io::fcntl_dupfd_cloexec(&made, FIRST_FREE)?;
            FILE.get_or_init(|| made)
        }
    };
    Ok(std::os::fd::AsFd::as_fd(fd))
}

#[repr(C)]
#[derive(Default)]
struct HelperCloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// What the child needs, read and written by it in this process's memory.
#[repr(C)]
struct ChildStart {
    socket: i64,
    image: i64,
    empty: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    /// What execveat(2) returned, if it returned.
    failure: i64,
}

/// Starts the helper in `role` with `socket` as its descriptor 3. Returns its pidfd.
///
/// The calling thread must outlive the helper: PDEATHSIG follows the thread, prctl(2).
pub(crate) fn start(role: &'static std::ffi::CStr, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let image = image()?;
    let name = c"sandtimer-helper";
    let arguments = [name.as_ptr(), role.as_ptr(), std::ptr::null()];
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    let mut pidfd: libc::c_int = -1;
    let clone = HelperCloneArguments {
        flags: (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64,
        pidfd: &raw mut pidfd as u64,
        ..HelperCloneArguments::default()
    };
    let mut start = ChildStart {
        socket: socket.as_raw_fd().into(),
        image: image.as_raw_fd().into(),
        empty: c"".as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        failure: 0,
    };
    let registers = [&raw const clone as u64, size_of::<HelperCloneArguments>() as u64, 0];
    let blocked = BlockedSignals::all();
    // SAFETY: everything pointed at lives until the call returns.
    let mut result = unsafe { clone_and_execute(libc::SYS_clone3, registers, &mut start) };
    // Docker's default profile. clone(2) takes the flags, no stack of its own, and where
    // CLONE_PIDFD stores the descriptor.
    if result == -(libc::ENOSYS as isize) {
        let registers = [clone.flags, 0, clone.pidfd];
        // SAFETY: as above.
        result = unsafe { clone_and_execute(libc::SYS_clone, registers, &mut start) };
    }
    drop(blocked);
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    // SAFETY: the kernel stored a new descriptor that has no other owner.
    let pidfd: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(pidfd) };
    if start.failure != 0 {
        crate::process::kill_and_reap(std::os::fd::AsFd::as_fd(&pidfd));
        return Err(io::Error::from_raw_os_error(-start.failure as i32));
    }
    Ok(pidfd)
}

/// clone3 or clone, and in the child: dup2 of the socket to 3, execveat of the image; should that
/// return, its error in `start.failure`, and exit 127.
///
/// # Safety
/// The pointers must be valid until return.
unsafe fn clone_and_execute(number: libc::c_long, registers: [u64; 3], start: &mut ChildStart) -> isize {
    // CLONE_VFORK holds the parent's thread until exec, so the child may run on the same stack: it
    // pushes nothing. A socket that already is descriptor 3 keeps close-on-exec through dup2;
    // F_SETFD below clears it for both cases.
    let result: isize;
    // SAFETY: the block restores nothing because it changes nothing but the named registers and
    // `start.failure`.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax", "jnz 2f",
            // dup2(socket, 3)
            "mov eax, 33", "mov rdi, [r12]", "mov esi, 3", "syscall",
            // fcntl(3, F_SETFD, 0)
            "mov eax, 72", "mov edi, 3", "mov esi, 2", "xor edx, edx", "syscall",
            // execveat(image, "", arguments, environment, AT_EMPTY_PATH)
            "mov eax, 322", "mov rdi, [r12 + 8]", "mov rsi, [r12 + 16]", "mov rdx, [r12 + 24]", "mov r10, [r12 + 32]",
            "mov r8d, 0x1000", "syscall",
            "mov [r12 + 40], rax",
            "mov eax, 231", "mov edi, 127", "syscall",
            "2:",
            inout("rdi") registers[0] => _,
            inout("rsi") registers[1] => _,
            inout("rdx") registers[2] => _,
            in("r12") start as *mut ChildStart,
            inout("rax") number as isize => result, out("rcx") _, out("r11") _,
            inout("r10") 0_u64 => _, inout("r8") 0_u64 => _,
        );
    }
    result
}

/// All signals blocked while the child shares this memory: a handler of the host program must not
/// run in it.
struct BlockedSignals {
    old: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: plain-data sets on the stack, initialised by the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            BlockedSignals { old }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set saved by `all`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.old, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The child puts the socket at 3: an image there would be replaced by it before it is
    /// executed.
    #[test]
    fn the_image_is_out_of_the_way() {
        assert!(image().expect("a memfd").as_raw_fd() >= FIRST_FREE);
    }
}
