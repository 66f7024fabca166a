//! The one place that writes to memory it is given by address.
//!
//! A large result is copied once: from the job's memory, or its channel, straight into a buffer that the caller's interpreter owns. The
//! stable ABI before 3.11 has no buffer protocol, so Python names the buffer by address; it is the package's own, made for
//! this and alive for as long as the copy takes.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use sandtimer::engine::Call;
use sandtimer::zygote::Part;

/// Reads a part of a call's answer to `address`, where `part.length` bytes must be writable and nobody else's.
pub(crate) fn read_to(
    call: &Call,
    part: Part,
    address: usize,
    give_up: &mut dyn FnMut() -> bool,
) -> std::io::Result<()> {
    let length = usize::try_from(part.length).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    // SAFETY: the package passes the address of a fresh anonymous mapping of this length, which it keeps and does not
    // touch until this returns.
    let buffer = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) };
    call.read(part, buffer, give_up)
}

/// A descriptor that the caller keeps open for the length of a call.
pub(crate) fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: the package passes the number of a file object that it holds.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
