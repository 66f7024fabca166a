//! What is mapped, line by line: here, and in the zygote that both processes come from.

use super::*;

/// The longest /proc/self/maps.
pub const MAPS: usize = 1 << 20;
/// A line's protection, as mmap(2) has it.
pub const READ: u64 = 1;
pub const WRITE: u64 = 2;
pub const EXECUTE: u64 = 4;

/// The address and length of the copy of the zygote's /proc/self/maps.
static COMMON: [Place; 2] = [const { Place(core::cell::UnsafeCell::new(0)) }; 2];

/// Notes, in the zygote, what is mapped there: all of its children have it, at the same addresses.
pub fn note_common() {
    let address = call!(nr::MMAP, 0, MAPS, READ | WRITE, PRIVATE | ANONYMOUS | NO_RESERVE, -1isize, 0);
    if (-4095..0).contains(&address) {
        return;
    }
    // SAFETY: just mapped.
    let maps = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, MAPS) };
    if let Ok(length) = read_maps(maps) {
        // SAFETY: one thread.
        unsafe { (*COMMON[0].0.get(), *COMMON[1].0.get()) = (address as usize, length) };
    }
}

/// The zygote's lines; none where they are not known.
pub(super) fn common() -> &'static [u8] {
    // SAFETY: one thread; what was noted is never unmapped in a process that asks: it is common as
    // well.
    unsafe {
        match *COMMON[0].0.get() {
            0 => &[],
            address => core::slice::from_raw_parts(address as *const u8, *COMMON[1].0.get()),
        }
    }
}

pub fn read_maps(maps: &mut [u8]) -> Result<usize, isize> {
    let file = checked(sys::open_at(sys::AT_FDCWD, c"/proc/self/maps".as_ptr().cast(), sys::O_RDONLY, 0))? as Fd;
    let mut length = 0;
    let result = loop {
        match sys::read(file, &mut maps[length..]) {
            0 if length < maps.len() => break Ok(length),
            0 => break Err(TOO_MUCH),
            sys::EINTR => {}
            read if read < 0 => break Err(read),
            read => length += read as usize,
        }
    };
    sys::close(file);
    result
}

/// A line of /proc/self/maps.
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    pub protection: u64,
    pub shared: bool,
    pub offset: u64,
    pub inode: u64,
    pub path: &'a [u8],
    /// The zygote had it, too.
    pub(super) is_common: bool,
}

pub(super) fn start_of(line: &[u8]) -> u64 {
    let digits = line.iter().position(|byte| *byte == b'-').unwrap_or(0);
    hexadecimal(&line[..digits])
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut range = fields.next()?.splitn(2, |byte| *byte == b'-');
        let (start, end) = (hexadecimal(range.next()?), hexadecimal(range.next()?));
        let flags = fields.next()?;
        let offset = hexadecimal(fields.next()?);
        let _device = fields.next()?;
        let inode = fields.next()?.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0')));
        let path = fields.next().unwrap_or(b"");
        let blank = path.iter().position(|byte| *byte != b' ').unwrap_or(path.len());
        let bit = |at: usize, letter: u8, bit: u64| if flags.get(at) == Some(&letter) { bit } else { 0 };
        let protection = bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE);
        let shared = flags.get(3) == Some(&b's');
        Some(Line { start, end, protection, shared, offset, inode, path: &path[blank..], is_common: false })
    }
}

fn hexadecimal(text: &[u8]) -> u64 {
    text.iter().fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => 0,
        };
        value << 4 | u64::from(digit)
    })
}
