//! What becomes of the bytes a run writes to its stdout or stderr: kept up to a limit, head and
//! tail, and counted.
//!
//! Pure storage. It never reads a pipe, never waits and never fails its caller: an I/O thread hands
//! it slices, and a full disk costs bytes (counted, with the reason kept), not the run.
//!
//! The hard fact is that the last bytes before an ending are worth most, and it is not known before
//! which bytes those are. So the second half of the limit is a ring, and memory, file and shrunken
//! file share one layout: byte `p` of the stream lies at `p` until the limit is reached, and only
//! then wraps.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

mod encode;
#[cfg(test)]
mod tests;

pub use encode::{CollectedOutput, base64, encode};

/// Bytes of one stream held in memory before it moves to a file.
const MEMORY_BYTES: usize = 64 * 1024;

/// An open directory in which spools make their unlinked files.
#[derive(Debug)]
pub struct SpoolDirectory {
    directory: OwnedFd,
}

impl SpoolDirectory {
    /// Opens `path`, which must be an existing directory that only Sandtimer can write to, and
    /// makes a first file there.
    ///
    /// # Errors
    /// The errors of open(2) for the path or the file. A full disk, or a full table of descriptors,
    /// is not an error: a later run may find room.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = Self { directory: rustix::fs::open(path, flags, Mode::empty())? };
        match opened.create() {
            Err(error)
                if !matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE)
                ) =>
            {
                Err(error)
            }
            _ => Ok(opened),
        }
    }

    /// A new empty file that has no name.
    fn create(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(File::from(file)),
            // How file systems without O_TMPFILE answer; the kernel before it saw an open of a
            // directory for writing.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => self.create_and_unlink(),
            Err(error) => Err(error.into()),
        }
    }

    fn create_and_unlink(&self) -> io::Result<File> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        // Another engine, or one killed between the two calls, may hold a name; it never holds
        // many.
        for _ in 0..64 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".spool-{}-{number}", std::process::id());
            match rustix::fs::openat(&self.directory, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())?;
                    return Ok(File::from(file));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a spool file after 64 attempts"))
    }
}

/// Where a spool's file comes from; the seam at which tests fill a disk.
trait SpoolFileSource: Send + Sync {
    fn file(&self) -> io::Result<Box<dyn FileExt + Send + Sync>>;
}

impl SpoolFileSource for SpoolDirectory {
    fn file(&self) -> io::Result<Box<dyn FileExt + Send + Sync>> {
        Ok(Box::new(self.create()?))
    }
}

/// Where byte `p` of the stream lies: at `p` in the head, then in a ring after it.
#[derive(Debug, Clone, Copy)]
struct SpoolLayout {
    head: u64,
    tail: u64,
}

impl SpoolLayout {
    fn new(limit: Option<u64>) -> Self {
        match limit {
            Some(limit) => Self { head: limit / 2, tail: limit - limit / 2 },
            // A head without end: no byte ever reaches the ring.
            None => Self { head: u64::MAX, tail: 0 },
        }
    }

    fn limit(self) -> u64 {
        self.head + self.tail
    }

    fn offset(self, position: u64) -> u64 {
        if position < self.head { position } else { self.head + (position - self.head) % self.tail }
    }

    /// How many bytes from `position` on lie side by side.
    fn side_by_side(self, position: u64) -> u64 {
        let end = if position < self.head { self.head } else { self.limit() };
        end - self.offset(position)
    }
}

enum Store {
    Memory(Vec<u8>),
    File(Box<dyn FileExt + Send + Sync>),
}

impl Store {
    /// Writes some of `bytes`, at least one, and returns how many. Memory never grows past
    /// `ceiling`.
    fn write_at(&mut self, bytes: &[u8], offset: u64, ceiling: usize) -> io::Result<usize> {
        match self {
            Self::Memory(memory) => {
                // In memory every offset is below the ceiling, so it fits.
                let start = offset as usize;
                let end = start + bytes.len();
                if end > memory.capacity() {
                    let wanted = end.next_power_of_two().max(256).min(ceiling);
                    memory.reserve_exact(wanted - memory.len());
                }
                memory.resize(end.max(memory.len()), 0);
                memory[start..end].copy_from_slice(bytes);
                Ok(bytes.len())
            }
            Self::File(file) => loop {
                match file.write_at(bytes, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            },
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                let start = offset as usize;
                buffer.copy_from_slice(&memory[start..start + buffer.len()]);
                Ok(())
            }
            Self::File(file) => file.read_exact_at(buffer, offset),
        }
    }
}

/// A stream's spool, shared with readers by cursor.
pub(crate) type SharedSpool = Arc<Mutex<Spool>>;

/// One output stream of one run.
///
/// Its file has no name, so it ends with the engine: what must outlive the engine is copied out by
/// cursor.
pub struct Spool {
    layout: SpoolLayout,
    /// Bytes ever written to the stream, kept or not.
    total: u64,
    /// The first byte still in the ring; the end of the head while nothing has been dropped.
    tail_start: u64,
    /// The end of what is stored. Below `total` only once storing has failed for good.
    stored_end: u64,
    last_write_ns: Option<u64>,
    store: Store,
    memory_bytes: usize,
    file_source: Arc<dyn SpoolFileSource>,
    spill_error: Option<io::Error>,
    /// Even overwriting failed: everything from here on is dropped.
    closed: bool,
}

/// A contiguous part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes from the cursor on; empty at the end of what was written.
    pub bytes: Vec<u8>,
    /// The cursor from which to continue.
    pub next_cursor: u64,
    /// Bytes between the cursor asked for and the first of `bytes` that are gone.
    pub dropped_before: u64,
}

impl Spool {
    /// A stream of which `limit` bytes are kept (`None`: all), in memory at first and past 64 KiB
    /// in `directory`.
    ///
    /// Allocates nothing until the first byte arrives.
    pub fn new(limit: Option<u64>, directory: Arc<SpoolDirectory>) -> Self {
        Self::with_memory(limit, MEMORY_BYTES, directory)
    }

    fn with_memory(limit: Option<u64>, memory_bytes: usize, file_source: Arc<dyn SpoolFileSource>) -> Self {
        let layout = SpoolLayout::new(limit);
        Self {
            layout,
            total: 0,
            tail_start: layout.head,
            stored_end: 0,
            last_write_ns: None,
            store: Store::Memory(Vec::new()),
            memory_bytes,
            file_source,
            spill_error: None,
            closed: false,
        }
    }

    /// Takes the next bytes of the stream, which arrived at `now_ns` of the caller's clock.
    ///
    /// Costs no more than the bytes that can be kept, however long the slice. Bytes that cannot be
    /// stored are counted as dropped; see [`Spool::spill_error`].
    pub fn write(&mut self, bytes: &[u8], now_ns: u64) {
        if bytes.is_empty() {
            return;
        }
        self.last_write_ns = Some(now_ns);
        let start = self.total;
        self.total += bytes.len() as u64;
        let memory = self.memory_bytes as u64;
        if self.total > memory && self.layout.limit() > memory {
            self.spill();
        }
        self.put(bytes, start);
    }

    /// Moves from memory to a file. Where that fails, memory becomes all there is.
    fn spill(&mut self) {
        let Store::Memory(memory) = &self.store else { return };
        let filled = self.file_source.file().and_then(|file| file.write_all_at(memory, 0).map(|()| file));
        match filled {
            Ok(file) => self.store = Store::File(file),
            Err(error) => self.shrink(self.memory_bytes as u64, error),
        }
    }

    /// Continues with a smaller limit, which must be at least the stored length, and no stored byte
    /// may be missing: then every byte already lies where the smaller layout expects it.
    fn shrink(&mut self, limit: u64, error: io::Error) {
        self.spill_error.get_or_insert(error);
        self.layout = SpoolLayout::new(Some(limit));
        self.tail_start = self.layout.head;
    }

    fn put(&mut self, bytes: &[u8], start: u64) {
        let end = start + bytes.len() as u64;
        let mut position = start;
        while position < end && !self.closed {
            let first_kept = end.saturating_sub(self.layout.tail);
            if position >= self.layout.head && position < first_kept {
                // The end of this same slice would overwrite these.
                position = first_kept;
                self.tail_start = first_kept;
                self.stored_end = first_kept;
                continue;
            }
            let length = self.layout.side_by_side(position).min(end - position);
            let from = (position - start) as usize;
            let piece = &bytes[from..from + length as usize];
            let ceiling = self.layout.limit().min(self.memory_bytes as u64) as usize;
            match self.store.write_at(piece, self.layout.offset(position), ceiling) {
                Ok(written) => {
                    position += written as u64;
                    self.stored_end = position;
                    self.tail_start = self.tail_start.max(position.saturating_sub(self.layout.tail));
                }
                Err(error) => self.storing_failed(error, position),
            }
        }
    }

    /// A file that cannot grow can mostly still be overwritten, so the ring continues within what
    /// it has.
    fn storing_failed(&mut self, error: io::Error, position: u64) {
        let growing = position < self.layout.limit() && self.tail_start == self.layout.head;
        if growing {
            self.shrink(position, error);
        } else {
            self.spill_error.get_or_insert(error);
            self.closed = true;
        }
    }

    /// Bytes ever written to the stream.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// When the last byte arrived, on the clock of [`Spool::write`]'s caller.
    pub fn last_write_ns(&self) -> Option<u64> {
        self.last_write_ns
    }

    /// Bytes of the stream that are gone.
    pub fn dropped(&self) -> u64 {
        let [head, tail] = self.kept();
        self.total - (head.end - head.start) - (tail.end - tail.start)
    }

    /// Whether anything of the stream is gone.
    pub fn truncated(&self) -> bool {
        self.dropped() > 0
    }

    /// Why the stream could not be kept up to its limit, if so.
    pub fn spill_error(&self) -> Option<&io::Error> {
        self.spill_error.as_ref()
    }

    /// The parts of the stream that are kept, as positions in it. Where nothing lies between, the
    /// first is all.
    pub fn kept(&self) -> [Range<u64>; 2] {
        if self.tail_start == self.layout.head {
            return [0..self.stored_end, self.stored_end..self.stored_end];
        }
        [0..self.layout.head, self.tail_start..self.stored_end]
    }

    /// Reads at most `max` bytes from position `cursor` of the stream, during the run or after.
    ///
    /// A cursor into a dropped part continues at the next kept byte, and the chunk has the number
    /// of skipped bytes. A cursor past the end is taken for the end.
    ///
    /// # Errors
    /// The spool's file cannot be read.
    pub fn read(&self, cursor: u64, max: usize) -> io::Result<Chunk> {
        let cursor = cursor.min(self.total);
        let part = self
            .kept()
            .into_iter()
            .find(|part| part.start.max(cursor) < part.end)
            .unwrap_or(self.total..self.total);
        let start = part.start.max(cursor);
        let end = part.end.min(start.saturating_add(max as u64));
        let mut bytes = Vec::new();
        self.append(start..end, &mut bytes)?;
        Ok(Chunk { bytes, next_cursor: end, dropped_before: start - cursor })
    }

    /// Everything kept, or its first and last bytes where that is more than `max`.
    ///
    /// # Errors
    /// The spool's file cannot be read.
    pub fn collect(&self, max: usize) -> io::Result<CollectedOutput> {
        let max = max as u64;
        let [head, tail] = self.kept();
        let (front, back, end) = if tail.is_empty() {
            let front = if head.end <= max { head.end } else { max / 2 };
            (front, (max - front).min(head.end - front), head.end)
        } else {
            let back = (tail.end - tail.start).min(max - head.end.min(max / 2));
            (head.end.min(max - back), back, tail.end)
        };
        let mut bytes = Vec::new();
        self.append(0..front, &mut bytes)?;
        self.append(end - back..end, &mut bytes)?;
        Ok(CollectedOutput { bytes, head_len: front as usize, dropped: self.total - front - back })
    }

    /// Appends the bytes of `range`, all of which must be kept.
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut filled = bytes.len();
        bytes.resize(filled + (range.end - range.start) as usize, 0);
        let mut position = range.start;
        while position < range.end {
            let length = self.layout.side_by_side(position).min(range.end - position);
            let next = filled + length as usize;
            self.store.read_at(&mut bytes[filled..next], self.layout.offset(position))?;
            filled = next;
            position += length;
        }
        Ok(())
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Spool")
            .field("total", &self.total)
            .field("kept", &self.kept())
            .field("in_memory", &matches!(self.store, Store::Memory(_)))
            .field("spill_error", &self.spill_error)
            .finish_non_exhaustive()
    }
}
