//! The programs that live on the far side of the engine: launcher, sandbox init and watchdog.
//!
//! One static executable without libc, heap or threads, run from a sealed memfd. It knows no
//! policy: the engine compiles a plan into steps and this program carries them out. It may not fail
//! in a way that leaves a process: each of the three ends when the socket to the engine closes.
#![no_std]
#![no_main]

mod census;
mod checkpoints;
mod clone;
mod execute;
mod files;
mod group;
mod init;
mod launcher;
mod network_residue;
mod network_sockets;
mod networks;
mod proc;
mod runtime;
mod steps;
mod sys;
mod traces;
mod watchdog;
#[allow(dead_code, reason = "the engine uses the rest")]
mod wire;
mod zygote;

use core::arch::global_asm;

global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {entry}",
    "ud2",
    entry = sym entry,
);

/// # Safety
/// Called once by `_start` with the initial stack pointer, where the kernel put argc and argv.
unsafe extern "C" fn entry(stack: *const usize) -> ! {
    // SAFETY: the kernel's ABI: argc, then argc pointers to NUL-terminated strings.
    let role = unsafe { if *stack < 2 { 0 } else { *(*stack.add(2) as *const u8) } };
    sys::reset_signals();
    sys::drop_standard_descriptors();
    match role {
        b'l' => launcher::main(),
        b'w' => watchdog::main(),
        _ => sys::exit(125),
    }
}
