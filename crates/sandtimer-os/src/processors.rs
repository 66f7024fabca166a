//! The processors that a process may run on; sched_setaffinity(2).

use std::io;

const MASK_LENGTH: usize = 16;

/// A set of processors; there is room for 1,024, and a kernel that has more returns an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors([u64; MASK_LENGTH]);

impl Processors {
    /// Those of a process.
    ///
    /// # Errors
    /// As sched_getaffinity(2).
    pub fn of(process: i32) -> io::Result<Self> {
        let mut mask = [0u64; MASK_LENGTH];
        // SAFETY: the pointer is to as many bytes as are named.
        let result =
            unsafe { libc::sched_getaffinity(process, size_of_val(&mask), mask.as_mut_ptr().cast()) };
        if result == 0 { Ok(Processors(mask)) } else { Err(io::Error::last_os_error()) }
    }

    /// One alone, if there is room for it.
    #[must_use]
    pub fn one(number: usize) -> Option<Self> {
        let mut mask = [0u64; MASK_LENGTH];
        *mask.get_mut(number / 64)? = 1 << (number % 64);
        Some(Processors(mask))
    }

    /// All of these but one.
    #[must_use]
    pub fn without(mut self, number: usize) -> Self {
        if let Some(bits) = self.0.get_mut(number / 64) {
            *bits &= !(1 << (number % 64));
        }
        self
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Their numbers, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        (0..MASK_LENGTH * 64).filter(|number| self.has(*number))
    }

    /// Has a process run on these alone.
    ///
    /// # Errors
    /// As sched_setaffinity(2).
    pub fn bind(&self, process: i32) -> io::Result<()> {
        // SAFETY: the pointer is to as many bytes as are named.
        let result =
            unsafe { libc::sched_setaffinity(process, size_of_val(&self.0), self.0.as_ptr().cast()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn mask_bits(&self) -> &[u64; MASK_LENGTH] {
        &self.0
    }
}

/// The processor that the calling thread runs on; sched_getcpu(3).
#[must_use]
pub fn current() -> Option<usize> {
    // SAFETY: no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}
