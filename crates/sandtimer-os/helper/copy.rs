//! Copies of an interpreter that wait, stopped, until one of them goes on in its place.

use core::ptr::null_mut;

use crate::sys::{self, Fd, call, nr};

/// Forks a copy that is a child of init and not of this process, whose own children a job waits for: by way of a process
/// that shares this memory and is gone at once. The copy is out of reach from its first moment: in a session of its own, and
/// shown to nobody. 0 in the copy.
pub fn make(thread_id: *mut i32) -> isize {
    const CLONE_VM: usize = 0x100;
    const CLONE_VFORK: usize = 0x4000;
    const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
    const CLONE_CHILD_SETTID: usize = 0x100_0000;
    const SIGCHLD: usize = 17;
    const WCLONE: usize = 0x8000_0000;
    const CLONE: usize = 56;
    const EXIT: usize = 60;
    // Of this memory, and of every copy of it.
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    let mut made: isize = sys::ESRCH;
    let between: isize;
    // SAFETY: the process between runs on this stack while this one waits, as after vfork(2); it touches registers and
    // `made` only. The copy goes on behind the block with the same registers, on its own copy of the stack.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {setsid}",
            "syscall",
            "mov eax, {clone}",
            "mov edi, {fork}",
            "xor esi, esi",
            "xor edx, edx",
            "mov r10, r12",
            "xor r8d, r8d",
            "syscall",
            "test rax, rax",
            "jz 2f",
            "mov [r13], rax",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            setsid = const nr::SETSID,
            clone = const CLONE,
            exit = const EXIT,
            fork = const CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD,
            in("r12") thread_id,
            in("r13") &raw mut made,
            inlateout("rax") CLONE as isize => between,
            inlateout("rdi") CLONE_VM | CLONE_VFORK => _,
            inlateout("rsi") 0usize => _,
            inlateout("rdx") 0usize => _,
            inlateout("r10") 0usize => _,
            inlateout("r8") 0usize => _,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if between == 0 {
        return 0;
    }
    sys::prctl(sys::PR_SET_DUMPABLE, 1);
    if between < 0 {
        return between;
    }
    // Without an exit signal it is a child that only this waits for; wait(2).
    while call!(nr::WAIT4, between, 0, WCLONE, 0) == sys::EINTR {}
    made
}

/// What a copy would not have, or would have twice.
pub struct Surroundings {
    /// This one and the other threads of this process; a negative error.
    pub threads: isize,
    /// Living ones, and dead ones that nobody has waited for.
    pub has_children: bool,
    /// A negative error.
    pub resident_bytes: isize,
}

impl Surroundings {
    pub fn look() -> Self {
        const NO_CHILDREN: isize = -10;
        const P_ALL: usize = 0;
        const WEXITED: usize = 4;
        const WNOHANG: usize = 1;
        const WNOWAIT: usize = 0x0100_0000;
        // Also those without an exit signal.
        const WALL: usize = 0x4000_0000;
        let flags = WEXITED | WNOHANG | WNOWAIT | WALL;
        let waited = call!(nr::WAITID, P_ALL, 0, 0, flags, 0);
        Surroundings { threads: threads(), has_children: waited != NO_CHILDREN, resident_bytes: resident_bytes() }
    }
}

/// A directory has a link for each one in it beside its own two.
fn threads() -> isize {
    let mut status = Status::default();
    match call!(nr::STAT, c"/proc/self/task".as_ptr(), &raw mut status) {
        0 => status.links as isize - 2,
        error => error,
    }
}

/// The second number of /proc/self/statm; proc_pid_statm(5).
fn resident_bytes() -> isize {
    let file = sys::open_at(sys::AT_FDCWD, c"/proc/self/statm".as_ptr().cast(), sys::O_RDONLY, 0);
    if file < 0 {
        return file;
    }
    let mut text = [0u8; 128];
    let length = sys::read(file as Fd, &mut text);
    sys::close(file as Fd);
    if length < 0 {
        return length;
    }
    let pages = text[..length as usize].split(|byte| *byte == b' ').nth(1).map_or(0, sys::decimal);
    pages as isize * 4096
}

/// `struct stat`, as far as it is read here.
#[repr(C)]
#[derive(Default)]
struct Status {
    before: [u64; 2],
    links: u64,
    owner: [u64; 2],
    device: u64,
    rest: [u64; 12],
}

/// Puts files in the place of the standard streams; nothing where `stdin` is negative.
pub fn put_streams([stdin, stdout, stderr]: [Fd; 3]) {
    let stdin = match stdin {
        ..0 => sys::open_at(sys::AT_FDCWD, c"/dev/null".as_ptr().cast(), sys::O_RDONLY, 0) as Fd,
        _ => stdin,
    };
    // Where a job has closed its own, they have come in their places.
    let above = [stdin, stdout, stderr].map(|file| match file {
        0..3 => call!(nr::FCNTL, file, F_DUPFD_CLOEXEC, 3) as Fd,
        _ => file,
    });
    for (standard, file) in above.into_iter().enumerate() {
        call!(nr::DUP2, file, standard);
        sys::close(file);
    }
}

const F_DUPFD_CLOEXEC: usize = 1030;

/// Whether stdin is /dev/null, still.
pub fn reads_nothing() -> bool {
    const NOTHING: u64 = 1 << 8 | 3;
    let mut status = Status::default();
    call!(nr::FSTAT, 0, &raw mut status) == 0 && status.device == NOTHING
}

/// In the copy: until init has it go on.
pub fn wait_to_go_on() {
    let go_on = 1u64 << (sys::SIGCONT - 1);
    while call!(nr::RT_SIGTIMEDWAIT, &raw const go_on, 0, 0, 8) != sys::SIGCONT as isize {}
    sys::prctl(sys::PR_SET_DUMPABLE, 1);
}

/// Where the C library keeps the id of its main thread: the kernel clears that word when the thread ends, and tells where
/// it is; PR_GET_TID_ADDRESS(2const). Musl has another word cleared, so what is there is looked at.
pub fn thread_id_address() -> *mut i32 {
    const PR_GET_TID_ADDRESS: usize = 40;
    let own = call!(nr::GETTID) as i32;
    let mut address: *mut i32 = null_mut();
    sys::prctl(PR_GET_TID_ADDRESS, &raw mut address as usize);
    // SAFETY: a word that the C library gave the kernel to write to.
    if !address.is_null() && unsafe { *address } == own {
        return address;
    }
    let thread: *mut i32;
    // SAFETY: reads the thread pointer: on x86-64 its first word is its own address, in every libc.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly)) };
    for index in 0..256 {
        // SAFETY: the thread's own descriptor, which is longer than that in glibc and followed by static data in musl.
        if unsafe { *thread.add(index) } == own {
            return thread.wrapping_add(index);
        }
    }
    null_mut()
}
