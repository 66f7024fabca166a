//! What a shell that exits leaves to the next one: its environment and directory, as commands for
//! the shell that takes its place.
//!
//! A trap for EXIT would be the session's to see, and to replace. So this library replaces the C
//! library's `exit`, and reads what bash has exported from bash's own table of it.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use crate::sys::{self, Fd, call};
use crate::wire::shell;
use crate::{IN_COMMAND, STAGE, is_own, of_bash, of_libc};

const GETCWD: usize = 79;
/// The longest path of a directory.
const PATH: usize = 4096;

/// Bash's own table of exported variables, brought up to date; `None` where bash does not export
/// its name.
fn environment() -> Option<*const *const c_char> {
    let make = of_bash(c"maybe_make_export_env");
    let table = of_bash(c"export_env").cast::<*const *const c_char>();
    // SAFETY: null or a function of bash with this type.
    let make = unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn()>>(make) }?;
    if table.is_null() {
        return None;
    }
    make();
    // SAFETY: a variable of bash.
    let table = unsafe { *table };
    (!table.is_null()).then_some(table)
}

/// Begins a session. Returns 0 if what a shell leaves at its exit can be saved, else an error.
/// Signals that end the shell are then handled by bash, which exits in order, as it would with a
/// trap.
pub fn begin() -> isize {
    let found = of_bash(c"initialize_terminating_signals");
    // SAFETY: null or a function of bash with this type.
    let found = unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn()>>(found) };
    match (found, environment()) {
        (Some(handle_signals), Some(_)) => {
            handle_signals();
            0
        }
        _ => sys::ESRCH,
    }
}

/// Writes it, if a command is being executed.
pub fn leave_state() {
    if STAGE.load(Relaxed) != IN_COMMAND {
        return;
    }
    let Some(table) = environment() else { return };
    let mut text = BufferedWriter { file: shell::FIRST + 4, bytes: [0; 4096], length: 0, total: 0 };
    let mut path = [0u8; PATH];
    let length = call!(GETCWD, path.as_mut_ptr(), PATH);
    // By the links that the shell has followed, if it exports that.
    let followed = entries(table).find_map(|entry| entry.strip_prefix(b"PWD="));
    // The kernel's length includes the NUL.
    if let Some(directory) = followed.or_else(|| path.get(..usize::try_from(length).ok()?.checked_sub(1)?)) {
        text.directory(directory);
    }
    // After the directory, which changes OLDPWD.
    entries(table).for_each(|entry| text.variable(entry));
    text.flush();
}

/// The entries of bash's table: a list of strings that ends with null, and does not change during
/// the iteration.
fn entries(table: *const *const c_char) -> impl Iterator<Item = &'static [u8]> {
    let mut at = table;
    core::iter::from_fn(move || {
        // SAFETY: within the list, whose end was not passed.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        at = at.wrapping_add(1);
        let mut length = 0;
        // SAFETY: a string that ends with NUL.
        while unsafe { *entry.add(length) } != 0 {
            length += 1;
        }
        // SAFETY: as above.
        Some(unsafe { core::slice::from_raw_parts(entry.cast(), length) })
    })
}

/// Commands that are being written.
struct BufferedWriter {
    file: Fd,
    bytes: [u8; 4096],
    length: usize,
    /// What was added so far.
    total: usize,
}

impl BufferedWriter {
    fn flush(&mut self) {
        sys::write(self.file, &self.bytes[..self.length]);
        self.length = 0;
    }

    fn add(&mut self, text: &[u8]) {
        self.total += text.len();
        for byte in text {
            if self.length == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.length] = *byte;
            self.length += 1;
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        self.add(b"'");
        for part in text.split_inclusive(|byte| *byte == b'\'') {
            match part.strip_suffix(b"'") {
                Some(before) => {
                    self.add(before);
                    self.add(b"'\\''");
                }
                None => self.add(part),
            }
        }
        self.add(b"'");
    }

    fn directory(&mut self, path: &[u8]) {
        self.add(b"\\builtin cd -- ");
        self.quoted(path);
        self.add(b"\n");
    }

    /// An exported variable. Functions are exported under other names, and `_` is every command's
    /// own.
    fn variable(&mut self, entry: &[u8]) {
        let Some(at) = entry.iter().position(|byte| *byte == b'=') else { return };
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        let is_name = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if name.is_empty() || name == b"_" || name[0].is_ascii_digit() || !is_name {
            return;
        }
        // Each quote takes three bytes more; the rest of the command is shorter than 32 bytes.
        let quotes = value.iter().filter(|byte| **byte == b'\'').count();
        if self.total + entry.len() + 3 * quotes + 32 > shell::MOST_STATE {
            return;
        }
        self.add(b"\\builtin export ");
        self.add(name);
        self.add(b"=");
        self.quoted(value);
        self.add(b"\n");
    }
}

/// exit(3)
#[unsafe(no_mangle)]
pub extern "C" fn exit(code: c_int) -> ! {
    if is_own() {
        leave_state();
    }
    // SAFETY: null or exit(3), which has this type.
    let exit = unsafe {
        core::mem::transmute::<*mut c_void, Option<extern "C" fn(c_int) -> !>>(of_libc(c"exit"))
    };
    match exit {
        Some(exit) => exit(code),
        None => sys::exit(code),
    }
}
