//! A command all of whose processes are refused one system call: the failure of one step, wherever
//! it is made.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// From now on `number` fails with `errno` in what `command` starts, and in all that this starts.
pub fn refuse(command: &mut Command, number: libc::c_long, errno: i32) {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, number as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let load = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: a prctl with a program that lives across the call.
        let load =
            || unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        let mut result = load();
        if result != 0 {
            // Without CAP_SYS_ADMIN the kernel asks for that first.
            // SAFETY: no memory effects.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            result = load();
        }
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the child makes system calls and allocates nothing.
    unsafe { command.pre_exec(load) };
}
