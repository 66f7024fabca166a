//! The one place that writes to memory it is given by address.
//!
//! A large result is copied once: from the job's memory, or its channel, straight into a buffer
//! that the caller's interpreter owns. The stable ABI before 3.11 has no buffer protocol, so Python
//! names the buffer by address; it is the package's own, made for this and alive for as long as the
//! copy takes.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sandtimer::engine::CallHandle;
use sandtimer::zygote::AnswerPart;

/// Makes bytes without writing to them, so that they take memory only as they are read: a job may
/// name a length that it has not got. The caller writes them before it gives them to anything else.
pub(crate) fn bytes_to_be_written(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyBytes>> {
    let length = ffi::Py_ssize_t::try_from(length)?;
    // SAFETY: without a source the interpreter only allocates; the result is a new object of this
    // type, or null with an exception set.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// Where the contents of bytes are.
pub(crate) fn address_of(bytes: &Bound<'_, PyBytes>) -> usize {
    bytes.as_bytes().as_ptr() as usize
}

/// Reads a part of a call's answer to `address`, where `part.length` bytes must be writable and not
/// shared.
pub(crate) fn read_to(
    call: &CallHandle,
    part: AnswerPart,
    address: usize,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> std::io::Result<()> {
    let length = usize::try_from(part.length).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    // SAFETY: this is the address of a fresh anonymous mapping of the package's, or of fresh bytes,
    // of this length, which are kept and not touched until this returns.
    let buffer = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) };
    call.read(part, buffer, is_interrupted)
}

/// A descriptor that the caller keeps open for the length of a call.
pub(crate) fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: the package passes the number of a file object that it holds.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
