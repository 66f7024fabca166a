//! What runs have left in a network namespace: nothing, or another run does not get it.
//!
//! A socket that is closed leaves nothing by itself. Its packets leave counters, connections in
//! TIME_WAIT, cached routes and metrics; a failed connection leaves a counter, and a flow label
//! outlives its socket. Every packet passes `lo`, and what fails before it reaches a device is
//! counted too, so the five files below are those of a namespace that was never used exactly if it
//! never was, apart from sockets that are closed again without any other trace. Each is compared
//! with zero and not with an earlier state: nothing is remembered that could be wrong.

use crate::sys::{self, Fd};

/// Longer than any clean file; a longer file is not clean.
const MAX_LENGTH: usize = 16 << 10;

/// What a file of an unused namespace looks like.
#[derive(Clone, Copy)]
enum Unused {
    /// Its first line counts no socket. The rest is of the whole machine.
    NoSocket,
    /// All its numbers are 0, apart from settings: the given count at the start of a line with this
    /// name.
    AllZero(&'static [(&'static [u8], usize)]),
    /// It is a heading alone.
    Heading,
}

const FILES: [(&core::ffi::CStr, Unused); 5] = [
    (c"/proc/self/net/sockstat", Unused::NoSocket),
    (c"/proc/self/net/dev", Unused::AllZero(&[])),
    (c"/proc/self/net/ip6_flowlabel", Unused::Heading),
    // Forwarding and DefaultTTL; RtoAlgorithm, RtoMin, RtoMax and MaxConn.
    (c"/proc/self/net/snmp", Unused::AllZero(&[(b"Ip:", 2), (b"Tcp:", 4)])),
    (c"/proc/self/net/snmp6", Unused::AllZero(&[])),
];

/// The files of the namespace that this process is in, once they are open; -1 for one that a kernel
/// without IPv6 does not have.
pub struct NetworkFiles([Fd; FILES.len()]);

impl NetworkFiles {
    /// Fails with an errno.
    pub fn open() -> Result<Self, isize> {
        let mut files = NetworkFiles([-1; FILES.len()]);
        for (file, (path, _)) in files.0.iter_mut().zip(FILES) {
            match sys::open_at(sys::AT_FDCWD, path.as_ptr().cast(), sys::O_RDONLY, 0) {
                sys::ENOENT if path.to_bytes().ends_with(b"6") || path.to_bytes().ends_with(b"l") => {}
                error if error < 0 => {
                    files.close();
                    return Err(error);
                }
                fd => *file = fd as Fd,
            }
        }
        Ok(files)
    }

    /// Whether nothing was left in the namespace. Its processes must be dead.
    pub fn are_unused(&self) -> bool {
        let mut buffer = [0u8; MAX_LENGTH];
        self.0.iter().zip(FILES).all(|(file, (_, unused))| *file < 0 || is_unused(*file, unused, &mut buffer))
    }

    pub fn close(self) {
        for file in self.0.into_iter().filter(|file| *file >= 0) {
            sys::close(file);
        }
    }
}

fn is_unused(file: Fd, unused: Unused, buffer: &mut [u8; MAX_LENGTH]) -> bool {
    let mut length = 0;
    while length < MAX_LENGTH {
        match sys::read_at(file, &mut buffer[length..], length) {
            sys::EINTR => {}
            error if error < 0 => return false,
            0 => break,
            count => length += count as usize,
        }
    }
    let text = &buffer[..length];
    match unused {
        _ if length == 0 || length == MAX_LENGTH => false,
        Unused::NoSocket => text.starts_with(b"sockets: used 0\n"),
        Unused::Heading => text.iter().filter(|byte| **byte == b'\n').count() == 1,
        Unused::AllZero(settings) => text.split(|byte| *byte == b'\n').all(|line| is_zero(line, settings)),
    }
}

/// Whether all numbers of a line are 0, but for settings. Names begin with a letter.
fn is_zero(line: &[u8], settings: &[(&[u8], usize)]) -> bool {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or(b"");
    let skipped = settings.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    let is_number = |word: &&[u8]| word[0].is_ascii_digit() || word[0] == b'-';
    words.filter(is_number).skip(skipped).all(|word| word == b"0")
}
