//! Writes the programs that init carries out: records of numbers and strings, see
//! [`crate::wire::op`].

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// A program under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepProgram {
    bytes: Vec<u8>,
    steps: u64,
}

impl StepProgram {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a step and returns its number. Strings must not hold a NUL where the step takes a
    /// path.
    pub fn push(&mut self, op: u16, required: bool, numbers: &[u64], strings: &[&OsStr]) -> u64 {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&op.to_ne_bytes());
        self.bytes.extend_from_slice(&u16::from(required).to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&length(numbers.len()).to_ne_bytes());
        self.bytes.extend_from_slice(&length(strings.len()).to_ne_bytes());
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        for string in strings {
            self.bytes.extend_from_slice(&length(string.len()).to_ne_bytes());
            self.bytes.extend_from_slice(string.as_bytes());
            self.bytes.push(0);
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let total = length(self.bytes.len() - start);
        self.bytes[start + 4..start + 8].copy_from_slice(&total.to_ne_bytes());
        self.steps += 1;
        self.steps - 1
    }

    /// How many steps it has.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes of the program.
    pub fn length(&self) -> u32 {
        length(self.bytes.len())
    }

    /// The program in a sealed memfd, for the launcher or a parked sandbox.
    pub fn seal(&self) -> io::Result<OwnedFd> {
        sealed_memfd("sandtimer-program", &self.bytes, false)
    }
}

fn length(value: usize) -> u32 {
    u32::try_from(value).expect("programs are far below 4 GiB")
}

/// How often sealing is tried. It also fails with EBUSY, which fcntl(2) does not mention, if the
/// kernel itself still uses one of the pages after a wait of 150 ms (memfd_wait_for_pins in
/// mm/memfd.c).
const SEALING: usize = 20;

/// Returns a memfd with these bytes that no process can change, grow or shrink.
pub(crate) fn sealed_memfd(name: &str, bytes: &[u8], executable: bool) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // MFD_EXEC is refused by kernels before 6.3, which make every memfd executable.
    let exec = if executable { MemfdFlags::from_bits_retain(0x10) } else { MemfdFlags::empty() };
    let fd = memfd_create(name, flags | exec).or_else(|_| memfd_create(name, flags))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest)?;
        rest = &rest[written..];
    }
    seal(&fd)?;
    Ok(fd)
}

/// Seals a memfd, so that no process can change, grow or shrink it. That usually takes
/// microseconds, and at most three seconds.
///
/// # Errors
/// As F_ADD_SEALS in fcntl(2): EBUSY if a writable mapping of it exists.
pub fn seal(file: &OwnedFd) -> io::Result<()> {
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    for _ in 1..SEALING {
        match fcntl_add_seals(file, all) {
            Err(Errno::BUSY) => {}
            done => return Ok(done?),
        }
    }
    Ok(fcntl_add_seals(file, all)?)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // one waits to see that nothing happens
mod tests {
    use std::time::{Duration, Instant};

    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use rustix::pipe::{SpliceFlags, pipe, splice};

    use super::*;

    fn page() -> OwnedFd {
        let file = memfd_create("a page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        rustix::io::write(&file, &[7; 4096]).expect("a page");
        file
    }

    #[test]
    fn a_file_is_sealed_when_its_pages_are_not_in_use_any_more() {
        let file = page();
        let (read, write) = pipe().expect("a pipe");
        let flags = SpliceFlags::empty();
        assert_eq!(
            splice(&file, Some(&mut 0), &write, None, 4096, flags).expect("its page, not a copy"),
            4096
        );
        let began = Instant::now();
        // For longer than the kernel waits by itself.
        let user = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            drop((read, write));
        });
        seal(&file).expect("it is free in time");
        assert!(began.elapsed() >= Duration::from_millis(500), "it was sealed with a page in use");
        user.join().expect("no panic");
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
    }

    #[test]
    fn writable_mapping_prevents_sealing() {
        let file = page();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, to which there is no other reference.
        let at = unsafe { mmap(std::ptr::null_mut(), 4096, writable, MapFlags::SHARED, &file, 0) };
        let at = at.expect("a mapping");
        assert_eq!(
            seal(&file).expect_err("it can be written to").raw_os_error(),
            Some(Errno::BUSY.raw_os_error())
        );
        // SAFETY: mapped above, and not used again.
        unsafe { munmap(at, 4096) }.expect("a mapping");
        seal(&file).expect("no process can write to it any more");
    }
}
