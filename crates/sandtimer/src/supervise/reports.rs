//! The engine's end of a run's progress channel: lines that the job writes, as many and as long as
//! it likes.
//!
//! The engine owns the pipe; the job only writes to it, and waits if it writes faster than the
//! engine reads. A line is kept up to a maximum length, and the engine waits for no line.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a line; longer ones are no reports.
const MAX_LINE_BYTES: usize = 4096;
/// Reads in a row, so that no run starves another.
const ROUNDS: usize = 4;
/// Lines of one read that are parsed: the last ones.
const MAX_LINES: usize = 16;

#[derive(Debug)]
pub(super) struct Reports {
    channel: OwnedFd,
    line: Vec<u8>,
    is_too_long: bool,
}

impl Reports {
    pub fn new(channel: OwnedFd) -> Self {
        Reports { channel, line: Vec::new(), is_too_long: false }
    }

    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Reads what is there. False once nothing can come any more.
    pub fn read_lines(&mut self, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
        for _ in 0..ROUNDS {
            match rustix::io::read(&self.channel, &mut *buffer) {
                Ok(0) => return false,
                Ok(length) => self.take(&buffer[..length], &mut each),
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn take(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) {
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
        for (index, piece) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let (content, is_whole) = match piece.split_last() {
                Some((b'\n', content)) => (content, true),
                _ => (piece, false),
            };
            self.is_too_long |= self.line.len() + content.len() > MAX_LINE_BYTES;
            if !self.is_too_long {
                self.line.extend_from_slice(content);
            }
            if is_whole {
                if !self.is_too_long && index + MAX_LINES >= ends {
                    each(&self.line);
                }
                self.line.clear();
                self.is_too_long = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, usize) {
        let (read, _) = rustix::pipe::pipe().expect("a pipe");
        let mut reports = Reports::new(read);
        let mut lines = Vec::new();
        for piece in pieces {
            reports.take(piece, &mut |line| lines.push(line.to_vec()));
        }
        (lines, reports.line.capacity())
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let (lines, _) = lines_of(&[b"{\"done\"", b": 1}\n{\"done\": 2}\n{", b"}"]);
        assert_eq!(lines, [b"{\"done\": 1}".to_vec(), b"{\"done\": 2}".to_vec()]);
    }

    #[test]
    fn long_lines_and_floods_cost_little() {
        let long = vec![b'x'; 3000];
        let (lines, kept) = lines_of(&[&long, &long, &long, b"\nshort\n"]);
        assert_eq!(lines, [b"short".to_vec()]);
        assert!(kept <= 2 * MAX_LINE_BYTES, "{kept}");
        let flood: Vec<u8> = (0..1000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
        let (lines, _) = lines_of(&[&flood]);
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines.last().map(Vec::as_slice), Some(&b"999"[..]));
    }
}
