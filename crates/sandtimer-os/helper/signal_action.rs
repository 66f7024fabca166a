//! `struct sigaction` of the C library, for the libraries that are loaded into a program which has
//! one.

use core::ffi::c_int;

/// musl's and glibc's are the same on x86-64.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SignalAction {
    pub handler: usize,
    pub mask: [u64; 16],
    pub flags: c_int,
    pub restorer: usize,
}

/// What a program starts with.
pub const DEFAULT_ACTION: SignalAction = SignalAction { handler: 0, mask: [0; 16], flags: 0, restorer: 0 };
