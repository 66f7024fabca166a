//! What the compiler and the core library take for granted.

use crate::sys;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(121)
}

/// # Safety
/// The compiler's contract for memcpy.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller promises `count` valid bytes on both sides; the instruction touches only
    // those.
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
        let (a, b) = unsafe {
            (core::ptr::read_volatile(left.add(index)), core::ptr::read_volatile(right.add(index)))
        };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
        index += 1;
    }
    0
}

/// # Safety
/// The compiler's contract for bcmp, which it calls where only equality counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, count) }
}

/// The prebuilt core library names it although nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
