//! A copy of one output stream of a run that is active, for when its server dies.
//!
//! ```text
//! head, ring, from, dirty, total: 8 bytes each │ the first `head` bytes │ a ring of the newest `ring` bytes
//! ```
//! It needs no more of the disk than the run's output limit, as the engine's own spool. The hard
//! fact: the writer may be killed between any two writes. So `dirty`, up to where the ring may have
//! been overwritten, is written before the bytes, and `total` after them; what lies
//! between the two promises is intact.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sandtimer::supervise::output::Chunk;

use crate::record::create;

const HEADER: usize = 40;

/// The copy of one stream while it is written, from
/// [`RunStore::journal`](crate::RunStore::journal).
#[derive(Debug)]
pub struct Journal {
    file: File,
    state: Header,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    head: u64,
    tail_size: u64,
    /// Where the newest part without a hole begins.
    from: u64,
    dirty: u64,
    total: u64,
}

impl Header {
    fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let numbers = [self.head, self.tail_size, self.from, self.dirty, self.total];
        for (destination, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            destination.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: [u8; HEADER]) -> Self {
        let number = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(number)
        };
        Header { head: number(0), tail_size: number(1), from: number(2), dirty: number(3), total: number(4) }
    }

    /// Where in the file a position of the stream is, and how many bytes from there on lie side by
    /// side.
    fn locate(self, position: u64) -> (u64, u64) {
        if position < self.head {
            return (HEADER as u64 + position, self.head - position);
        }
        let inside = (position - self.head) % self.tail_size.max(1);
        (HEADER as u64 + self.head + inside, self.tail_size - inside)
    }

    /// Where the intact part of the ring begins.
    fn tail(self) -> u64 {
        self.from.max(self.dirty.saturating_sub(self.tail_size)).max(self.head).min(self.total.max(self.head))
    }
}

impl Journal {
    /// A new one for a stream of which `limit` bytes are kept; `None` is all.
    pub(crate) fn create(path: &Path, limit: Option<u64>) -> io::Result<Self> {
        let (head, tail_size) =
            limit.map_or((u64::MAX - (1 << 20), 0), |limit| (limit / 2, limit - limit / 2));
        let state = Header { head, tail_size, from: 0, dirty: 0, total: 0 };
        let file = create(path)?;
        file.write_all_at(&state.bytes(), 0)?;
        Ok(Journal { file, state })
    }

    /// The position in the stream, in bytes, up to which it was copied.
    pub fn total(&self) -> u64 {
        self.state.total
    }

    /// Writes the next part of the stream, as [`sandtimer::Run::output`] returned it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, chunk: &Chunk) -> io::Result<()> {
        let start = chunk.next_cursor - chunk.bytes.len() as u64;
        let mut next = self.state;
        if start > next.total {
            next.from = start;
        }
        next.dirty = chunk.next_cursor;
        self.file.write_all_at(&next.bytes(), 0)?;
        let mut position = start;
        let mut rest = &chunk.bytes[..];
        while !rest.is_empty() {
            let (at, room) = next.locate(position);
            if room == 0 {
                break;
            }
            let count = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            self.file.write_all_at(&rest[..count], at)?;
            rest = &rest[count..];
            position += count as u64;
        }
        next.total = chunk.next_cursor;
        self.file.write_all_at(&next.bytes(), 0)?;
        self.state = next;
        Ok(())
    }
}

/// A copy whose server has died.
#[derive(Debug)]
pub(crate) struct LeftoverJournal {
    file: File,
    state: Header,
}

impl LeftoverJournal {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(LeftoverJournal { file, state: Header::read(bytes) })
    }

    /// Reads from a position, as [`sandtimer::Run::output`] does.
    pub fn read(&self, cursor: u64, most: usize) -> io::Result<Chunk> {
        let state = self.state;
        let cursor = cursor.min(state.total);
        // A hole is always after the head: the engine keeps the head to the end.
        let start = if cursor < state.head { cursor } else { cursor.max(state.tail()) };
        let (at, room) = state.locate(start);
        let count = (state.total - start).min(room).min(most as u64);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Chunk { bytes, next_cursor: start + count, dropped_before: start - cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a stream whose byte `p` is `p`, in pieces; a piece that is false is skipped.
    fn written(limit: Option<u64>, pieces: &[(u64, bool)]) -> (tempfile::TempDir, LeftoverJournal) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x");
        let mut journal = Journal::create(&path, limit).expect("made");
        let mut position = 0_u64;
        for (length, is_appended) in pieces {
            let bytes: Vec<u8> = (position..position + length).map(|byte| byte as u8).collect();
            position += length;
            if *is_appended {
                journal.append(&Chunk { bytes, next_cursor: position, dropped_before: 0 }).expect("written");
            }
        }
        let left = LeftoverJournal::open(&path).expect("readable");
        (directory, left)
    }

    fn all(left: &LeftoverJournal) -> Vec<u64> {
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let chunk = left.read(cursor, 3).expect("readable");
            if chunk.bytes.is_empty() {
                return found;
            }
            let start = chunk.next_cursor - chunk.bytes.len() as u64;
            assert_eq!(start, cursor + chunk.dropped_before);
            for (index, byte) in chunk.bytes.iter().enumerate() {
                let position = start + index as u64;
                assert_eq!(*byte, position as u8);
                found.push(position);
            }
            cursor = chunk.next_cursor;
        }
    }

    #[test]
    fn head_and_tail_are_kept_however_the_stream_comes() {
        let positions =
            |ranges: &[std::ops::Range<u64>]| ranges.iter().cloned().flatten().collect::<Vec<u64>>();
        for (limit, pieces, expected) in [
            (Some(8), vec![(3, true)], [0..3, 0..0]),
            (Some(8), vec![(3, true), (4, true)], [0..7, 0..0]),
            (Some(8), vec![(3, true), (4, true), (6, true)], [0..4, 9..13]),
            (Some(7), vec![(100, true)], [0..3, 96..100]),
            (Some(8), vec![(7, true), (20, false), (2, true)], [0..4, 27..29]),
            (Some(8), vec![(7, true), (20, false), (2, true), (1, true)], [0..4, 27..30]),
            (Some(1), vec![(3, true)], [2..3, 0..0]),
            (None, vec![(300, true), (300, true)], [0..600, 0..0]),
        ] {
            let (_directory, left) = written(limit, &pieces);
            assert_eq!(all(&left), positions(&expected), "{limit:?} {pieces:?}");
        }
    }

    #[test]
    fn what_a_killed_writer_may_have_overwritten_is_not_read() {
        let (directory, _) = written(Some(8), &[(10, true)]);
        let path = directory.path().join("x");
        let file = File::options().read(true).write(true).open(&path).expect("there");
        let mut left = LeftoverJournal::open(&path).expect("readable");
        assert_eq!(all(&left), [0, 1, 2, 3, 6, 7, 8, 9]);
        // Killed after it had noted that it would write up to 12, and had written 10.
        left.state.dirty = 12;
        file.write_all_at(&left.state.bytes(), 0).expect("written");
        let (at, _) = left.state.locate(10);
        file.write_all_at(&[99], at).expect("written");
        assert_eq!(all(&LeftoverJournal::open(&path).expect("readable")), [0, 1, 2, 3, 8, 9]);
    }
}
