//! The few facts of an ELF file that show which other files it needs.
//!
//! 64-bit little-endian only. The file may be untrusted: every offset is checked, every read is
//! bounded, and anything odd reads as "not ELF".

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const PROGRAM_HEADER_BYTES: usize = 56;
const DYNAMIC_ENTRIES: usize = 4096;
const STRING_BYTES: usize = 4096;

/// What a dynamic ELF file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The program interpreter, such as `/lib64/ld-linux-x86-64.so.2`.
    pub(crate) interpreter: Option<OsString>,
    /// The file names of the libraries it needs.
    pub(crate) needed: Vec<OsString>,
    /// The RPATH and RUNPATH lists, verbatim.
    pub(crate) search: Vec<OsString>,
}

/// Reads `file`; `None` when it is no 64-bit little-endian ELF file.
pub(crate) fn read(file: &File) -> Option<Elf> {
    let header = bytes(file, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let start = number(&header, 32, 8)?;
    let size = number(&header, 54, 2)?;
    let count = number(&header, 56, 2)?.min(1024);
    if usize::try_from(size) != Ok(PROGRAM_HEADER_BYTES) {
        return None;
    }
    let (mut elf, mut loads, mut dynamic) = (Elf::default(), Vec::new(), None);
    let programs = bytes(file, start, usize::try_from(count).ok()? * PROGRAM_HEADER_BYTES)?;
    for program in programs.chunks_exact(PROGRAM_HEADER_BYTES) {
        let (offset, address, length) =
            (number(program, 8, 8)?, number(program, 16, 8)?, number(program, 32, 8)?);
        match number(program, 0, 4)? {
            PT_LOAD => loads.push((offset, address, length)),
            PT_DYNAMIC => dynamic = Some((offset, length)),
            PT_INTERP => elf.interpreter = string(file, offset),
            _ => {}
        }
    }
    let Some((offset, length)) = dynamic else { return Some(elf) };
    let entries = usize::try_from(length / 16).ok()?.min(DYNAMIC_ENTRIES);
    let table = bytes(file, offset, entries * 16)?;
    let entry = |index: usize| Some((number(&table, index * 16, 8)?, number(&table, index * 16 + 8, 8)?));
    let entries: Vec<(u64, u64)> = (0..entries).map_while(entry).take_while(|(tag, _)| *tag != 0).collect();
    let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
    let strings = loads.iter().find_map(|(offset, address, length)| {
        let inside = strings.checked_sub(*address).filter(|inside| inside < length)?;
        offset.checked_add(inside)
    })?;
    for (tag, value) in entries {
        let text = || string(file, strings.checked_add(value)?);
        match tag {
            DT_NEEDED => elf.needed.extend(text()),
            DT_RPATH | DT_RUNPATH => elf.search.extend(text()),
            _ => {}
        }
    }
    Some(elf)
}

fn bytes(file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; length];
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

fn string(file: &File, offset: u64) -> Option<OsString> {
    let mut buffer = vec![0; STRING_BYTES];
    let length = file.read_at(&mut buffer, offset).ok()?;
    let end = buffer[..length].iter().position(|byte| *byte == 0)?;
    buffer.truncate(end);
    Some(OsString::from_vec(buffer))
}

fn number(buffer: &[u8], at: usize, length: usize) -> Option<u64> {
    let slice = buffer.get(at..at + length)?;
    Some(slice.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
