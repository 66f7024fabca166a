//! Copies of an interpreter that wait, stopped, until one of them continues in its place.

use core::ptr::null_mut;

use crate::sys::{self, call, nr};
use crate::wire::CHECKPOINT_CONTINUES;

/// Forks a copy that is a child of init and not of this process, whose own children a job waits
/// for: by way of a process that shares this memory and is gone at once. The copy is out of reach
/// from its first moment: in a session of its own, and hidden in /proc. Returns 0 in the copy.
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
    // SAFETY: the process between runs on this stack while this one waits, as after vfork(2); it
    // touches registers and `made` only. The copy continues after the block with the same
    // registers, on its own copy of the stack.
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

/// Waits in the copy, which has all signals blocked, until init has it continue.
pub fn wait_to_go_on() {
    let go_on = 1u64 << (CHECKPOINT_CONTINUES - 1);
    while call!(nr::RT_SIGTIMEDWAIT, &raw const go_on, 0, 0, 8) != CHECKPOINT_CONTINUES as isize {}
    sys::prctl(sys::PR_SET_DUMPABLE, 1);
}

/// Where the C library keeps the id of its main thread: the kernel clears that word when the thread
/// ends, and returns its address; PR_GET_TID_ADDRESS(2const). Musl has another word cleared, so the
/// value is checked.
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
        // SAFETY: the thread's own descriptor, which is longer than that in glibc and followed by
        // static data in musl.
        if unsafe { *thread.add(index) } == own {
            return thread.wrapping_add(index);
        }
    }
    null_mut()
}
