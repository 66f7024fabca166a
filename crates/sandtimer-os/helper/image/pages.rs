//! What of a range of memory goes into the image, and how it comes back.

use super::maps::Line;
use super::*;

/// The file of the last line.
pub(super) struct Known {
    /// Where its path lies in the texts, and how long it is.
    pub(super) path: (usize, usize),
    pub(super) identity: Option<Identity>,
    pub(super) base: u64,
    pub(super) has_base: bool,
}

/// Notes what becomes of one range.
pub(super) fn add(table: &mut Table, line: &Line<'_>, pages: &mut Pages<'_>, known: &mut Known) -> Result<(), isize> {
    if line.path == b"[vsyscall]" {
        return Ok(());
    }
    let own = line.path == b"/memfd:sandtimer-zygote (deleted)";
    // Libraries of the zygote, as far as they are not writable; some of their code is no longer
    // mapped from a file (`layout.rs`).
    const LARGE: u64 = 2 << 20;
    let is_library = line.inode != 0 || line.protection & EXECUTE != 0 && (line.start | line.end) % LARGE == 0;
    let same = line.is_common && is_library && !line.shared && line.protection & WRITE == 0;
    let kept = own || same || line.path.starts_with(b"[vdso") || line.path.starts_with(b"[vvar") || line.path == b"[stack]";
    let is_base = known.base != 0 && line.inode == known.base && line.path.starts_with(b"/memfd:sandtimer-image");
    known.has_base |= is_base;
    let named = line.inode != 0 && !kept && !is_base;
    // Writable memory is stored in the image, so that the taking process does not have to find its
    // file.
    let identity = if named && line.protection & WRITE == 0 { known.of(table, line.path)? } else { None };
    if line.shared && identity.is_none() {
        return Err(SHARES_MEMORY);
    }
    let kind = match (kept, identity) {
        (true, _) => kind::KEPT,
        _ if is_base => kind::BASE,
        (_, Some(_)) => kind::FILE,
        _ => kind::MEMORY,
    };
    if table.segment_count == SEGMENTS {
        return Err(TOO_MUCH);
    }
    table.segments[table.segment_count] = Segment {
        start: line.start,
        end: line.end,
        kind,
        protection: line.protection,
        sharing: if line.shared { SHARED } else { PRIVATE } as u64,
        offset: line.offset,
        file: identity.unwrap_or(Identity { device: 0, inode: 0, size: 0, modified: [0; 2] }),
        path: known.path.0 as u64,
    };
    table.segment_count += 1;
    let is_same = kept && (line.protection & WRITE == 0 || !own && line.path != b"[stack]");
    if line.shared || is_same {
        return Ok(());
    }
    // Of a file that the other process cannot see, or sees in another version, all pages count.
    let all = named && identity.is_none();
    pages.note(table, line, all, if line.path == b"[stack]" { Put::Copied } else { Put::ByLength })
}

impl Known {
    /// A file that is the same for every job: it is shown read-only. Its path is the last one in
    /// the texts then.
    fn of(&mut self, table: &mut Table, path: &[u8]) -> Result<Option<Identity>, isize> {
        let (start, length) = self.path;
        if length == path.len() && &table.texts[start..start + length] == path {
            return Ok(self.identity);
        }
        let start = table.text_length;
        if start + path.len() + 1 > TEXTS {
            return Err(TOO_MUCH);
        }
        table.texts[start..start + path.len()].copy_from_slice(path);
        table.texts[start + path.len()] = 0;
        table.text_length = start + path.len() + 1;
        self.path = (start, path.len());
        let file = sys::open_at(sys::AT_FDCWD, table.texts[start..].as_ptr(), sys::O_RDONLY, 0);
        self.identity = None;
        if file >= 0 {
            let mut system = [0u64; 15];
            const FLAGS: usize = 10;
            let known = call!(nr::FSTATFS, file, system.as_mut_ptr()) >= 0 && system[FLAGS] & 1 != 0;
            self.identity = if known { identity(file as Fd) } else { None };
            sys::close(file as Fd);
        }
        Ok(self.identity)
    }
}

/// How the contents of a run come to where they belong.
#[derive(Clone, Copy)]
enum Put {
    Copied,
    Mapped,
    ByLength,
}

/// Which pages are a process's own.
pub(super) struct Pages<'a> {
    pub(super) file: Fd,
    pub(super) entries: &'a mut [u64; ENTRIES],
    pub(super) mapped_from: u64,
    /// Where the next run goes in the image.
    pub(super) end: u64,
}

impl Pages<'_> {
    /// Notes the runs of own pages in a range, or that all of it is one.
    fn note(&mut self, table: &mut Table, line: &Line<'_>, all: bool, put: Put) -> Result<(), isize> {
        if line.protection & READ == 0 && line.end - line.start > 1 << 30 {
            // Reserved, and unused while it is not readable.
            return Ok(());
        }
        if all {
            return self.run(table, line, line.start, line.end, Put::Mapped);
        }
        let (mut run, mut at) = (None, line.start);
        while at < line.end {
            let count = (((line.end - at) as usize) / PAGE).min(ENTRIES);
            let offset = at / PAGE as u64 * 8;
            let read = call!(nr::PREAD, self.file, self.entries.as_mut_ptr(), count * 8, offset);
            if read != (count * 8) as isize {
                return Err(if read < 0 { read } else { UNREADABLE });
            }
            for index in 0..count {
                const HELD: u64 = 0b11 << 62;
                const FILES: u64 = 1 << 61;
                let page = at + (index * PAGE) as u64;
                if self.entries[index] & HELD == 0 || self.entries[index] & FILES != 0 {
                    continue;
                }
                run = match run {
                    Some((start, end)) if page - end <= (GAP * PAGE) as u64 => Some((start, page + PAGE as u64)),
                    Some((start, end)) => {
                        self.run(table, line, start, end, put)?;
                        Some((page, page + PAGE as u64))
                    }
                    None => Some((page, page + PAGE as u64)),
                };
            }
            at += (count * PAGE) as u64;
        }
        run.map_or(Ok(()), |(start, end)| self.run(table, line, start, end, put))
    }

    fn run(&mut self, table: &mut Table, line: &Line<'_>, start: u64, end: u64, put: Put) -> Result<(), isize> {
        if line.protection & READ == 0 {
            return Err(UNREADABLE);
        }
        if table.run_count == RUNS {
            return Err(TOO_MUCH);
        }
        let length = end - start;
        let mapped = match put {
            Put::Copied => false,
            Put::Mapped => true,
            Put::ByLength => line.protection & WRITE == 0 || length >= self.mapped_from,
        };
        table.runs[table.run_count] = ImageRange { start, length, at: self.end, protection: line.protection, mapped };
        table.run_count += 1;
        self.end += length;
        Ok(())
    }
}
