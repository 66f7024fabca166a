//! Raw system calls for a process without libc, without threads and without a heap: the helper
//! program, and a watchdog that is a copy of a command.
//!
//! Every function returns the kernel's own value: negative means `-errno`.

use core::arch::asm;

pub type Fd = i32;

/// One system call with up to six arguments.
///
/// # Safety
/// Pointers among the arguments must be valid for what the call does with them.
#[inline(always)]
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers only rcx, r11 and the result; memory effects are the caller's
    // promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let list = [$($argument as usize),*];
        let mut arguments = [0usize; 6];
        let mut index = 0;
        while index < list.len() { arguments[index] = list[index]; index += 1; }
        // SAFETY: each caller in this program passes pointers to live, NUL-terminated or
        // length-carried data.
        unsafe { $crate::sys::syscall($number, arguments) }
    }};
}
pub(crate) use call;

pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const POLL: usize = 7;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const PREAD64: usize = 17;
    pub const SHMCTL: usize = 31;
    pub const SOCKET: usize = 41;
    pub const SEMCTL: usize = 66;
    pub const MSGCTL: usize = 71;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const NANOSLEEP: usize = 35;
    pub const IOCTL: usize = 16;
    pub const DUP: usize = 32;
    pub const DUP2: usize = 33;
    pub const GETPID: usize = 39;
    pub const GETPPID: usize = 110;
    pub const GETRUSAGE: usize = 98;
    pub const SENDMSG: usize = 46;
    pub const BIND: usize = 49;
    pub const LISTEN: usize = 50;
    pub const RECVMSG: usize = 47;
    pub const CLONE: usize = 56;
    pub const FORK: usize = 57;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const CHDIR: usize = 80;
    pub const FCHDIR: usize = 81;
    pub const UMASK: usize = 95;
    pub const SETSID: usize = 112;
    pub const GETPGID: usize = 121;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const SETRESGID: usize = 119;
    pub const CAPGET: usize = 125;
    pub const CAPSET: usize = 126;
    pub const SCHED_SETSCHEDULER: usize = 144;
    pub const PIVOT_ROOT: usize = 155;
    pub const PRCTL: usize = 157;
    pub const CHROOT: usize = 161;
    pub const MOUNT: usize = 165;
    pub const UMOUNT2: usize = 166;
    pub const SETHOSTNAME: usize = 170;
    pub const GETTID: usize = 186;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const GETDENTS64: usize = 217;
    pub const TGKILL: usize = 234;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const OPENAT: usize = 257;
    pub const MKDIRAT: usize = 258;
    pub const UNLINKAT: usize = 263;
    pub const FACCESSAT: usize = 269;
    pub const SYMLINKAT: usize = 266;
    pub const UNSHARE: usize = 272;
    pub const TIMERFD_SETTIME: usize = 286;
    pub const SIGNALFD4: usize = 289;
    pub const DUP3: usize = 292;
    pub const PIPE2: usize = 293;
    pub const MEMFD_CREATE: usize = 319;
    pub const NEWFSTATAT: usize = 262;
    pub const STATFS: usize = 137;
    pub const FSTATFS: usize = 138;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PRLIMIT64: usize = 302;
    pub const SETNS: usize = 308;
    pub const SECCOMP: usize = 317;
    pub const PIDFD_SEND_SIGNAL: usize = 424;
    pub const PIDFD_OPEN: usize = 434;
    pub const OPEN_TREE: usize = 428;
    pub const MOVE_MOUNT: usize = 429;
    pub const CLONE3: usize = 435;
    pub const CLOSE_RANGE: usize = 436;
    pub const OPENAT2: usize = 437;
    pub const MOUNT_SETATTR: usize = 442;
    pub const LANDLOCK_CREATE_RULESET: usize = 444;
    pub const LANDLOCK_ADD_RULE: usize = 445;
    pub const LANDLOCK_RESTRICT_SELF: usize = 446;
}

pub const EPERM: isize = -1;
pub const ENOENT: isize = -2;
pub const ENOEXEC: isize = -8;
pub const EACCES: isize = -13;
pub const ENOTDIR: isize = -20;
pub const EROFS: isize = -30;
pub const ENAMETOOLONG: isize = -36;
pub const ENOSYS: isize = -38;
pub const ENOTEMPTY: isize = -39;
pub const ELOOP: isize = -40;
pub const ESTALE: isize = -116;
pub const EINTR: isize = -4;
pub const EAGAIN: isize = -11;
pub const EEXIST: isize = -17;
pub const ECHILD: isize = -10;
pub const EINVAL: isize = -22;
pub const EMFILE: isize = -24;
pub const ECONNRESET: isize = -104;
pub const ESRCH: isize = -3;
pub const EBADF: isize = -9;
pub const SIGKILL: i32 = 9;
pub const SIGCONT: i32 = 18;
pub const SIGSTOP: i32 = 19;
pub const SIGTERM: i32 = 15;
pub const AT_FDCWD: isize = -100;
pub const O_RDONLY: usize = 0;
pub const O_WRONLY: usize = 1;
pub const O_CREAT: usize = 0o100;
pub const O_DIRECTORY: usize = 0o200000;
pub const O_NOFOLLOW: usize = 0o400000;
pub const O_CLOEXEC: usize = 0o2000000;
pub const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
pub const MSG_NOSIGNAL: usize = 0x4000;
pub const MSG_DONTWAIT: usize = 0x40;
pub const MSG_TRUNC: i32 = 0x20;
pub const MSG_CTRUNC: i32 = 0x8;
pub const POLLIN: i16 = 1;
pub const POLLHUP: i16 = 0x10;

pub fn exit(code: i32) -> ! {
    loop {
        call!(nr::EXIT_GROUP, code);
    }
}

/// Default dispositions and an empty mask: an ignored SIGPIPE, say, would pass from the engine
/// through exec to the job.
pub fn reset_signals() {
    let default = [0usize; 4];
    for signal in 1..=64 {
        call!(nr::RT_SIGACTION, signal, default.as_ptr(), 0, 8);
    }
    let empty = 0u64;
    call!(nr::RT_SIGPROCMASK, 2, &raw const empty, 0, 8);
}

/// Lets go of the terminal, pipe or file that the engine was started with.
pub fn drop_standard_descriptors() {
    let null = open_at(AT_FDCWD, c"/dev/null".as_ptr().cast(), 2, 0);
    for target in 0..3 {
        if null >= 0 {
            call!(nr::DUP2, null, target);
        }
    }
    close(null as Fd);
}

pub fn close(fd: Fd) {
    call!(nr::CLOSE, fd);
}

pub fn write(fd: Fd, bytes: &[u8]) -> isize {
    call!(nr::WRITE, fd, bytes.as_ptr(), bytes.len())
}

pub fn read(fd: Fd, bytes: &mut [u8]) -> isize {
    call!(nr::READ, fd, bytes.as_mut_ptr(), bytes.len())
}

/// pread(2).
pub fn read_at(fd: Fd, bytes: &mut [u8], offset: usize) -> isize {
    call!(nr::PREAD64, fd, bytes.as_mut_ptr(), bytes.len(), offset)
}

/// The inode number of an open file; fails with an errno. fstat(2).
pub fn inode(fd: Fd) -> Result<u64, isize> {
    // struct stat on x86-64, in words.
    let mut status = [0u64; 18];
    let result = call!(nr::FSTAT, fd, status.as_mut_ptr());
    if result < 0 { Err(result) } else { Ok(status[1]) }
}

/// Calls `visit` for every name in a directory; each ends with NUL. Returns whether those were all:
/// otherwise the directory could not be read to its end.
pub fn entries(directory: isize, mut visit: impl FnMut(&[u8])) -> bool {
    let mut entries = [0u8; 4096];
    loop {
        let length = call!(nr::GETDENTS64, directory, entries.as_mut_ptr(), entries.len());
        if length <= 0 {
            return length == 0;
        }
        let mut at = 0;
        while at < length as usize {
            // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, then the name.
            let record = usize::from(u16::from_ne_bytes([entries[at + 16], entries[at + 17]]));
            visit(&entries[at + 19..at + record]);
            at += record;
        }
    }
}

pub fn open_at(directory: isize, path: *const u8, flags: usize, mode: usize) -> isize {
    call!(nr::OPENAT, directory, path, flags | O_CLOEXEC, mode)
}

pub fn prctl(option: usize, argument: usize) -> isize {
    call!(nr::PRCTL, option, argument, 0, 0, 0)
}

pub const PR_SET_PDEATHSIG: usize = 1;
pub const PR_SET_DUMPABLE: usize = 4;
pub const PR_SET_KEEPCAPS: usize = 8;
pub const PR_SET_NAME: usize = 15;
pub const PR_CAPBSET_DROP: usize = 24;
pub const PR_SET_CHILD_SUBREAPER: usize = 36;
pub const PR_SET_NO_NEW_PRIVS: usize = 38;

#[repr(C)]
pub struct PollFd {
    pub fd: Fd,
    pub events: i16,
    pub revents: i16,
}

/// Waits at most `timeout_ms` (negative: no bound) for an event.
pub fn poll(fds: &mut [PollFd], timeout_ms: i32) -> isize {
    call!(nr::POLL, fds.as_mut_ptr(), fds.len(), timeout_ms as isize)
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    call!(nr::CLOCK_GETTIME, 1, time.as_mut_ptr());
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Milliseconds for [`poll`] until `deadline_ns`; -1 for `u64::MAX`. Rounded up, so a wake-up is
/// never early.
pub fn poll_timeout(deadline_ns: u64) -> i32 {
    if deadline_ns == u64::MAX {
        return -1;
    }
    let left = deadline_ns.saturating_sub(now());
    let milliseconds = left.div_ceil(1_000_000);
    if milliseconds > 3_600_000 { 3_600_000 } else { milliseconds as i32 }
}

#[repr(C)]
struct IoVector {
    base: *mut u8,
    length: usize,
}

#[repr(C)]
struct MessageHeader {
    name: *mut u8,
    name_length: u32,
    vectors: *mut IoVector,
    vector_count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

pub const MAX_FDS: usize = 32;

#[repr(C, align(8))]
struct ControlBuffer {
    length: usize,
    level: i32,
    kind: i32,
    fds: [Fd; MAX_FDS],
}

/// A received message: its length and the descriptors that came with it.
pub struct Received {
    pub length: isize,
    pub fds: [Fd; MAX_FDS],
    pub fd_count: usize,
}

/// Raises the limit of open descriptors to what is allowed; it stays as it is where that fails.
pub fn raise_descriptor_limit() {
    const RLIMIT_NOFILE: usize = 7;
    let mut limit = [0u64; 2];
    if call!(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr()) == 0 {
        limit[0] = limit[1];
        call!(nr::PRLIMIT64, 0, RLIMIT_NOFILE, limit.as_ptr(), 0);
    }
}

/// Receives one packet. Descriptors arrive close-on-exec. A truncated packet, which one is whose
/// descriptors find no room, is EINVAL with none of its descriptors: its sender is still there.
pub fn receive(socket: Fd, bytes: &mut [u8], flags: usize) -> Received {
    let mut vector = IoVector { base: bytes.as_mut_ptr(), length: bytes.len() };
    let mut control = ControlBuffer { length: 0, level: 0, kind: 0, fds: [-1; MAX_FDS] };
    let mut header = MessageHeader {
        name: core::ptr::null_mut(),
        name_length: 0,
        vectors: &mut vector,
        vector_count: 1,
        control: (&raw mut control).cast(),
        control_length: size_of::<ControlBuffer>(),
        flags: 0,
    };
    let length = call!(nr::RECVMSG, socket, &raw mut header, flags | MSG_CMSG_CLOEXEC);
    let mut received = Received { length, fds: [-1; MAX_FDS], fd_count: 0 };
    if length >= 0 && header.control_length >= 16 && control.level == 1 && control.kind == 1 {
        received.fd_count = (control.length - 16) / 4;
        received.fds = control.fds;
    }
    if length >= 0 && header.flags & (MSG_TRUNC | MSG_CTRUNC) != 0 {
        for fd in &received.fds[..received.fd_count] {
            close(*fd);
        }
        received.fd_count = 0;
        received.length = EINVAL;
    }
    received
}

/// Sends one packet, with at most one descriptor.
pub fn send(socket: Fd, bytes: &[u8], fd: Option<Fd>, flags: usize) -> isize {
    let mut vector = IoVector { base: bytes.as_ptr().cast_mut(), length: bytes.len() };
    let mut control = ControlBuffer { length: 20, level: 1, kind: 1, fds: [-1; MAX_FDS] };
    if let Some(fd) = fd {
        control.fds[0] = fd;
    }
    let mut header = MessageHeader {
        name: core::ptr::null_mut(),
        name_length: 0,
        vectors: &mut vector,
        vector_count: 1,
        control: (&raw mut control).cast(),
        control_length: if fd.is_some() { 24 } else { 0 },
        flags: 0,
    };
    call!(nr::SENDMSG, socket, &raw mut header, flags | MSG_NOSIGNAL)
}

/// Keeps exactly `keep` (a bit mask) and passes none of it on.
pub fn set_capabilities(keep: u64) -> isize {
    let header = [0x2008_0522u32, 0];
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let data = [low, low, 0, high, high, 0];
    call!(nr::CAPSET, header.as_ptr(), data.as_ptr())
}

/// Makes inheritable those of `wanted` that are permitted. Before the bounding set is dropped:
/// afterwards nothing can be added; capabilities(7).
pub fn keep_inheritable(wanted: u64) {
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    call!(nr::CAPGET, header.as_ptr(), data.as_mut_ptr());
    data[2] = data[1] & wanted as u32;
    data[5] = data[4] & (wanted >> 32) as u32;
    call!(nr::CAPSET, header.as_ptr(), data.as_ptr());
}

/// Keeps exactly `keep` (a bit mask), across execve(2) too; each must be permitted and inheritable.
pub fn set_ambient_capabilities(keep: u64) -> isize {
    const PR_CAP_AMBIENT: usize = 47;
    const PR_CAP_AMBIENT_RAISE: usize = 2;
    let header = [0x2008_0522u32, 0];
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let data = [low, low, low, high, high, high];
    let mut result = call!(nr::CAPSET, header.as_ptr(), data.as_ptr());
    for capability in 0..64 {
        if result >= 0 && keep & (1 << capability) != 0 {
            result = call!(nr::PRCTL, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
        }
    }
    result
}

/// Drops the whole bounding set. Where CAP_SETPCAP is missing there is nothing to drop from.
pub fn drop_bounding_set() {
    for capability in 0..64 {
        if prctl(PR_CAPBSET_DROP, capability) == EINVAL {
            break;
        }
    }
}

/// Parses a decimal number at the start of `bytes`; stops at the first other byte.
pub fn decimal(bytes: &[u8]) -> u64 {
    let mut value = 0u64;
    for byte in bytes {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    }
    value
}
