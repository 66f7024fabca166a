//! Finds an interpreter in a process: which version it is, and where its runtime lies.
//!
//! A mapped file called python3.N or libpython3.N is inspected in memory: the table of dynamic
//! symbols of an ELF file has `_PyRuntime`. In a zygote's child the beginning of the file may be
//! anonymous memory (`layout.rs` of the helper), so its address is derived from any mapped part of
//! the file. No file of the job is opened.

use super::memory::Memory;

const SYMBOL: &[u8] = b"_PyRuntime";
/// Places where a file may begin: each mapping whose addresses differ otherwise than its offsets
/// names another.
const MAX_CANDIDATES: usize = 8;
/// Entries of tables that are inspected.
const MAX_TABLE_ENTRIES: u64 = 512;

/// Where an interpreter's runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PythonImage {
    /// The N of Python 3.N.
    pub minor: u32,
    pub runtime: u64,
}

impl PythonImage {
    /// The interpreter among these mappings, as proc_pid_maps(5) has them.
    pub fn find(maps: &str, memory: &mut Memory) -> Option<Self> {
        let mut candidates: Vec<_> = maps.lines().filter_map(candidate).collect();
        candidates.dedup();
        let mut candidates = candidates.into_iter().take(MAX_CANDIDATES);
        candidates.find_map(|(base, minor)| Some(PythonImage { minor, runtime: symbol(base, memory)? }))
    }
}

/// Where a file that may be an interpreter would begin by one of its mappings, and its minor
/// version.
fn candidate(line: &str) -> Option<(u64, u32)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, offset) = (fields.next()?, fields.nth(1)?);
    let name = line.rsplit('/').next().filter(|_| line.contains('/'))?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let version = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python3.")?;
    let digits = version.split(|letter: char| !letter.is_ascii_digit()).next()?;
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    let base = start.checked_sub(u64::from_str_radix(offset, 16).ok()?)?;
    Some((base, digits.parse().ok()?))
}

/// The facts in the dynamic section about the table of symbols.
#[derive(Default)]
struct Tables {
    hash: u64,
    symbols: u64,
    names: u64,
}

/// The address of the runtime in the ELF file that is mapped here.
fn symbol(base: u64, memory: &mut Memory) -> Option<u64> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    let header = memory.bytes(base, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let segments = base.checked_add(read_u64(&header, 32)?)?;
    let count = u64::from(u16::from_le_bytes(header[56..58].try_into().ok()?)).min(64);
    let (mut bias, mut dynamic) = (None, None);
    for index in 0..count {
        let segment = memory.bytes(segments.checked_add(index * 56)?, 56)?;
        let address = read_u64(&segment, 16)?;
        match u32::from_le_bytes(segment[..4].try_into().ok()?) {
            LOAD if bias.is_none() => bias = Some(base.wrapping_sub(address & !0xfff)),
            DYNAMIC => dynamic = Some(address),
            _ => {}
        }
    }
    let bias = bias?;
    let tables = tables(bias.wrapping_add(dynamic?), memory, |address| {
        // The loader may have added it already.
        if address < bias { address.wrapping_add(bias) } else { address }
    })?;
    Some(bias.wrapping_add(tables.find(memory)?))
}

fn tables(mut at: u64, memory: &mut Memory, placed: impl Fn(u64) -> u64) -> Option<Tables> {
    const NAMES: u64 = 5;
    const SYMBOLS: u64 = 6;
    const HASH: u64 = 0x6fff_fef5;
    let mut tables = Tables::default();
    for _ in 0..MAX_TABLE_ENTRIES {
        let entry = memory.bytes(at, 16)?;
        let (tag, value) = (read_u64(&entry, 0)?, read_u64(&entry, 8)?);
        match tag {
            0 => break,
            NAMES => tables.names = placed(value),
            SYMBOLS => tables.symbols = placed(value),
            HASH => tables.hash = placed(value),
            _ => {}
        }
        at = at.checked_add(16)?;
    }
    Some(tables)
}

impl Tables {
    /// The value of the symbol, by the GNU hash table.
    fn find(&self, memory: &mut Memory) -> Option<u64> {
        let hash =
            SYMBOL.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        let buckets = u64::from(memory.half(self.hash)?);
        let first = u64::from(memory.half(self.hash.checked_add(4)?)?);
        let filter = u64::from(memory.half(self.hash.checked_add(8)?)?);
        let table = self.hash.checked_add(16 + filter * 8)?;
        let bucket = u64::from(hash).checked_rem(buckets)?;
        let begin = u64::from(memory.half(table.checked_add(bucket * 4)?)?);
        for index in begin..begin + MAX_TABLE_ENTRIES {
            let link = table.checked_add(buckets * 4 + index.checked_sub(first)? * 4)?;
            let found = memory.half(link)?;
            if found | 1 == hash | 1
                && let Some(value) = self.named(index, memory)
            {
                return Some(value);
            }
            if found & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// The value of this symbol, if it has the name.
    fn named(&self, index: u64, memory: &mut Memory) -> Option<u64> {
        let symbol = memory.bytes(self.symbols.checked_add(index.checked_mul(24)?)?, 24)?;
        let name = u64::from(u32::from_le_bytes(symbol[..4].try_into().ok()?));
        let name = memory.bytes(self.names.checked_add(name)?, SYMBOL.len() + 1)?;
        let is_it = name.strip_suffix(b"\0") == Some(SYMBOL);
        read_u64(&symbol, 8).filter(|_| is_it)
    }
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::candidate;

    #[test]
    fn interpreters_are_recognized_by_file_name() {
        let line = |file: &str| format!("7f00-8f00 r--p 00000000 08:01 1234       {file}");
        for (file, minor) in [
            ("/usr/bin/python3.11", Some(11)),
            ("/usr/lib/libpython3.9.so.1.0", Some(9)),
            ("/opt/a b/python3.13 (deleted)", Some(13)),
            ("/usr/bin/python3", None),
            ("/usr/bin/pypy3.10", None),
            ("[heap]", None),
        ] {
            assert_eq!(candidate(&line(file)), minor.map(|minor| (0x7f00, minor)), "{file}");
        }
        let later = "7f00-8f00 r--p 00001000 08:01 1 /python3.9";
        assert_eq!(candidate(later), Some((0x6f00, 9)));
        for nothing in
            ["", "7f00", "x-y r--p 00000000 08:01 1 /python3.9", "7f00-8f00 r--p 0000f000 08:01 1 /python3.9"]
        {
            assert_eq!(candidate(nothing), None, "{nothing}");
        }
    }
}
