//! Questions to the kernel that change nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

use crate::zygote::refuse_descriptors;

/// The Landlock ABI, 0 where there is none; landlock(7).
pub fn landlock_abi() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with the version flag the kernel reads no memory.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Whether this process could load a seccomp filter; seccomp(2). Where filters exist the kernel
/// reads the program first, and there is none at address 0. A run of Sandtimer's own gets EINVAL,
/// as on a kernel without filters.
pub fn seccomp_available() -> bool {
    // SAFETY: the kernel refuses the null pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::null::<u8>()) };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Whether clone3(2) can be called: the filters of some containers refuse it. Without arguments it
/// makes nothing.
pub fn has_clone3() -> bool {
    // SAFETY: the kernel refuses arguments of no length.
    let result = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0usize) };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Whether a socket can refuse descriptors that come in messages; SO_PASSRIGHTS, Linux 6.16.
pub fn descriptors_can_be_refused() -> bool {
    UnixDatagram::pair().is_ok_and(|(one, _)| refuse_descriptors(one.as_fd()))
}

/// Processors this process may use, as it was when first asked: the answer takes reading files.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Whether a mount of the directory `path` can be id-mapped by `namespace`, tried on a detached
/// copy; mount_setattr(2).
pub fn allows_idmap(path: &Path, namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    if tree < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor, and it has no other owner.
    let tree = unsafe { OwnedFd::from_raw_fd(tree as i32) };
    // struct mount_attr: to set, to clear, propagation, user namespace.
    let attributes = [libc::MOUNT_ATTR_IDMAP, 0, 0, namespace.as_raw_fd() as u64];
    let (empty, size) = (c"".as_ptr(), size_of_val(&attributes));
    // SAFETY: live descriptors, and a structure of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty,
            libc::AT_EMPTY_PATH,
            &attributes,
            size,
        )
    };
    Ok(result == 0)
}

/// Reads a file of /proc or /sys whole, in as few system calls as it takes: such files have no size
/// to ask for, and most are short.
///
/// # Errors
/// As open(2) and read(2), and if it is not UTF-8.
pub fn read_string(path: impl AsRef<Path>) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags};
    const USUAL_BYTES: usize = 4096;
    let file = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    loop {
        text.reserve(USUAL_BYTES);
        let read = || rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text));
        if rustix::io::retry_on_intr(read)? == 0 {
            return String::from_utf8(text)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
}

/// Memory of the machine in bytes.
pub fn total_memory_bytes() -> u64 {
    // SAFETY: sysinfo is plain data that the kernel fills in.
    let mut information: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: a valid pointer.
    unsafe { libc::sysinfo(&mut information) };
    information.totalram * u64::from(information.mem_unit)
}

/// Takes an exclusive lock on an open file without waiting; false when another process has it.
pub fn try_lock(file: BorrowedFd<'_>) -> bool {
    // SAFETY: a live descriptor.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_file_is_read_whole() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("helper/wire.rs");
        let text = include_str!("../helper/wire.rs");
        assert!(text.len() > 2 * 4096, "{} bytes", text.len());
        assert_eq!(read_string(file).expect("read"), text);
        let own = std::fs::read_to_string("/proc/self/comm").expect("read");
        assert_eq!(read_string("/proc/self/comm").expect("read"), own);
    }

    #[test]
    fn unreadable_file_is_an_error() {
        let kind = |path: &str| read_string(path).expect_err("an error").kind();
        assert_eq!(kind("/proc/self/absent"), io::ErrorKind::NotFound);
        assert_eq!(kind("/proc"), io::ErrorKind::IsADirectory);
        // It has addresses of the stack, whose bytes are not UTF-8.
        assert_eq!(kind("/proc/self/auxv"), io::ErrorKind::InvalidData);
    }
}
