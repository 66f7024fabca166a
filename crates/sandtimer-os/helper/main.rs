//! The programs that live on the far side of the engine: launcher, sandbox init and watchdog.
//!
//! One static executable without libc, heap or threads, run from a sealed memfd. It knows no policy: the engine
//! compiles a plan into steps and this program carries them out. It may not fail in a way that leaves a process:
//! each of the three ends when the socket to the engine closes.
#![no_std]
#![no_main]

mod census;
mod init;
mod launcher;
mod steps;
mod sys;
mod watchdog;
#[allow(dead_code)] // the engine uses the rest
mod wire;

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
    let role = unsafe {
        if *stack < 2 { 0 } else { *(*stack.add(2) as *const u8) }
    };
    sys::reset_signals();
    sys::drop_standard_descriptors();
    match role {
        b'l' => launcher::main(),
        b'w' => watchdog::main(),
        _ => sys::exit(125),
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(121)
}

/// # Safety
/// The compiler's contract for memcpy.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller promises `count` valid bytes on both sides; the instruction touches only those.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// The compiler's contract for memset.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller promises `count` writable bytes.
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") value as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// The compiler's contract for memcmp.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    let mut index = 0;
    while index < count {
        // SAFETY: index < count, and the caller promises `count` readable bytes on both sides.
        let (a, b) = unsafe { (core::ptr::read_volatile(left.add(index)), core::ptr::read_volatile(right.add(index))) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
        index += 1;
    }
    0
}

/// The prebuilt core library names it although nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
