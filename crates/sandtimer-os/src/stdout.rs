//! Standard output of a zygote's child before it is in the pipe: memory that both share; see
//! `helper/stdout.rs`.
//!
//! What is read here was written by a job: an implausible state word is treated as empty, and the
//! memory can neither grow nor shrink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::wire::stdout::{BUSY, CAPACITY, HEADER, LENGTH, PRIVATE, SIZE, TAKEN};

/// The memory of one child.
#[derive(Debug)]
pub struct UnwrittenOutput(OwnedFd);

/// The engine's mapping of it for a moment.
struct Mapping(*mut std::ffi::c_void);

impl Mapping {
    fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file whose size is sealed.
        Ok(Mapping(unsafe { mmap(std::ptr::null_mut(), SIZE, access, MapFlags::SHARED, file, 0) }?))
    }

    fn state_cell(&self) -> &AtomicU64 {
        // SAFETY: the first word of a mapping that lives as long as this; all processes that share
        // it use it as an atomic.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }

    /// Returns a copy of a part of it. A job may change the part during the copy, and garbles only
    /// its own output.
    fn copy(&self, start: usize, end: usize) -> Vec<u8> {
        let mut bytes = vec![0; end - start];
        // SAFETY: within the mapping: `waiting` has checked both ends.
        unsafe {
            let from = self.0.cast::<u8>().add(HEADER + start);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and not used again.
        let _ = unsafe { munmap(self.0, SIZE) };
    }
}

impl UnwrittenOutput {
    /// An empty one.
    ///
    /// # Errors
    /// The system refuses a file in memory.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("sandtimer-stdout", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(UnwrittenOutput(file))
    }

    /// Takes what waits while the process lives, if that is not writing it to the pipe now and
    /// `is_read` says that the pipe is empty: what is there comes first.
    ///
    /// # Errors
    /// The memory cannot be mapped now.
    pub fn take(&self, is_read: impl FnOnce() -> bool) -> io::Result<Vec<u8>> {
        let mapping = Mapping::of(self.0.as_fd())?;
        let state = mapping.state_cell().load(Ordering::Acquire);
        let (start, end) = waiting(state);
        if start == end || state & BUSY != 0 {
            return Ok(Vec::new());
        }
        let bytes = mapping.copy(start, end);
        let taken = (state & !TAKEN) | ((end as u64) * (LENGTH + 1));
        let is_taken = is_read()
            && mapping
                .state_cell()
                .compare_exchange(state, taken, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        Ok(if is_taken { bytes } else { Vec::new() })
    }

    /// Takes what was left when the process died. Another process may use the memory afterwards.
    ///
    /// # Errors
    /// The memory cannot be mapped now.
    pub fn rest(&self) -> io::Result<Vec<u8>> {
        let mut header = [0u8; 8];
        rustix::io::pread(&self.0, &mut header, 0)?;
        let state = u64::from_ne_bytes(header);
        let (start, end) = waiting(state);
        if start == end {
            if state & (BUSY | LENGTH | PRIVATE) != 0 {
                rustix::io::pwrite(&self.0, &[0; 8], 0)?;
            }
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; end - start];
        let read = rustix::io::pread(&self.0, &mut bytes, (HEADER + start) as u64)?;
        bytes.truncate(read);
        rustix::io::pwrite(&self.0, &[0; 8], 0)?;
        Ok(bytes)
    }
}

impl AsFd for UnwrittenOutput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// From where to where something waits for the engine.
fn waiting(state: u64) -> (usize, usize) {
    let (length, taken) = ((state & LENGTH) as usize, ((state & TAKEN) / (LENGTH + 1)) as usize);
    if state & PRIVATE != 0 || taken >= length || length > CAPACITY { (0, 0) } else { (taken, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(output: &UnwrittenOutput, state: u64, bytes: &[u8]) {
        rustix::io::pwrite(&output.0, bytes, HEADER as u64).expect("room");
        rustix::io::pwrite(&output.0, &state.to_ne_bytes(), 0).expect("room");
    }

    #[test]
    fn what_waits_is_taken_once_and_in_its_turn() {
        let output = UnwrittenOutput::new().expect("memory");
        write(&output, 5, b"hello");
        assert_eq!(output.take(|| false).expect("mapped"), b"", "before what is in the pipe");
        assert_eq!(output.take(|| true).expect("mapped"), b"hello");
        assert_eq!(output.take(|| true).expect("mapped"), b"");
        assert_eq!(output.rest().expect("read"), b"");
        write(&output, 5, b"again");
        assert_eq!(output.rest().expect("read"), b"again");
        assert_eq!(output.rest().expect("read"), b"");
    }

    #[test]
    fn invalid_state_yields_nothing() {
        let output = UnwrittenOutput::new().expect("memory");
        for state in [LENGTH, LENGTH | TAKEN, TAKEN, 5 | PRIVATE, (CAPACITY + 1) as u64] {
            write(&output, state, b"hello");
            assert_eq!(output.take(|| true).expect("mapped"), b"", "{state:x}");
            assert_eq!(output.rest().expect("read"), b"", "{state:x}");
        }
        write(&output, 5 | BUSY, b"hello");
        assert_eq!(output.take(|| true).expect("mapped"), b"", "its process is writing it");
        assert_eq!(output.rest().expect("read"), b"hello");
        // What the process was about to write elsewhere died with it, and the next one begins with
        // empty memory.
        for state in [BUSY, 5 | PRIVATE, 5 | (5 * (LENGTH + 1))] {
            write(&output, state, b"hello");
            assert_eq!(output.rest().expect("read"), b"", "{state:x}");
            let mut header = [1; 8];
            rustix::io::pread(&output.0, &mut header, 0).expect("read");
            assert_eq!(header, [0; 8], "{state:x}");
        }
    }
}
