//! What a process does in namespaces of its own: mount attributes, its loopback device, a user
//! namespace, its own filters.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Attributes that a mount is given; mount_setattr(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountAttributes {
    pub read_only: bool,
    pub no_devices: bool,
    /// It, and all mounts below it.
    pub recursive: bool,
}

/// Adds attributes to the mount at `path`, and always `nosuid`. Attributes that it has stay.
///
/// # Errors
/// As mount_setattr(2); EINVAL where nothing is mounted there.
pub fn restrict_mount(path: &Path, attributes: MountAttributes) -> io::Result<()> {
    let read_only = if attributes.read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
    let no_devices = if attributes.no_devices { libc::MOUNT_ATTR_NODEV } else { 0 };
    let set = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | read_only | no_devices,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: valid pointers, and the size of the structure.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const set,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Enters a new user namespace; unshare(2).
pub fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: takes a plain number, and shares nothing that was separate.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into())
}

/// Sets the host name of the UTS namespace.
pub fn set_host_name(name: &[u8]) -> io::Result<()> {
    // SAFETY: a valid pointer and its length.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into())
}

/// Brings up the loopback device of a network namespace; the kernel gives it its addresses.
pub fn raise_loopback() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use std::os::fd::AsRawFd;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: ifreq is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = *from as libc::c_char;
    }
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: a live descriptor and a valid pointer.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }.into())
}

/// Adds a seccomp filter: `struct sock_filter`s, of eight bytes each.
///
/// # Errors
/// As seccomp(2); EINVAL for what is not a filter.
pub fn add_filter(filter: &[u8]) -> io::Result<()> {
    let mut instructions = Vec::with_capacity(filter.len() / 8);
    for bytes in filter.chunks_exact(8) {
        instructions.push(libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        });
    }
    let length = u16::try_from(instructions.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    const FILTER_MODE: libc::c_long = 2;
    // SAFETY: the program points to `length` instructions that live until the call returns.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, FILTER_MODE, &raw const program, 0, 0) }.into())
}
