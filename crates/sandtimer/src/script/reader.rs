//! How code is read: on a stack of its own, within bounds.
//!
//! ```text
//! here   at most 128 KiB, nothing that is ambiguous over and over, for 5 s, 8 at a time
//! apart  at most 1 MiB, in a process that does nothing else (`serve`), in a sandbox whose limits end it
//! ```
//! Hostile TypeScript can take time without end to read: what may be types or not is parsed both
//! ways, and nesting doubles the work with each level. The parser also computes members of an enum
//! that are sums of strings. A thread that does so cannot be ended, so a server has such code read
//! apart; here the caller gets its reply in time, and the number of active readers is bounded.
//! JavaScript is read here: that takes time as it is long (a nesting of 4,000 some 40 ms, whichever
//! it is).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;

use super::syntax_error::SyntaxError;

/// The longest code that is read here, in bytes. It may be as deeply nested as it is long, and
/// reading goes as deep.
pub const MAX_CODE_BYTES: usize = 128 << 10;
/// The same apart, where code that is nested too deeply ends only its reader.
pub const MAX_CODE_BYTES_APART: usize = 1 << 20;
/// Stack of a thread that reads code: 8 KiB for each byte that may be read here. Only the used part
/// of it takes memory.
const STACK: usize = MAX_CODE_BYTES << 13;
/// How long reading may take here.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How many threads read here at once; a reader counts until it has finished, even if its caller no
/// longer waits.
const MAX_READERS: usize = 8;
/// Of `<` in one statement, and of parentheses in one another that each follow a `>`. Every one may
/// begin types, and is read both ways.
const MAX_ANGLES: usize = 64;
const MAX_GENERIC_CALLS: usize = 8;

static READERS: AtomicUsize = AtomicUsize::new(0);
/// This process reads for another one, which ends it.
pub(super) static IS_APART: AtomicBool = AtomicBool::new(false);

/// A reader's permit, released when the reader has finished.
struct ReaderPermit;

impl ReaderPermit {
    fn new() -> Option<Self> {
        let reader = ReaderPermit;
        (READERS.fetch_add(1, Ordering::Relaxed) < MAX_READERS).then_some(reader)
    }
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// That code cannot be read, for a reason that has no place in it.
pub(crate) fn unreadable(message: impl Into<String>) -> SyntaxError {
    SyntaxError { line: 1, column: 1, message: message.into() }
}

/// Refuses code that is longer than is read.
pub(crate) fn check_length(source: &str, most: usize) -> Result<(), SyntaxError> {
    match source.len() {
        length if length > most => Err(unreadable(format!(
            "the code has {length} bytes, and at most {most} are read at once; move some of it into a file or another cell"
        ))),
        _ => Ok(()),
    }
}

/// Reads code on a stack that it cannot use up, and returns after `READ_LIMIT` at the latest,
/// unless it reads apart. Code on which swc panics is reported as unreadable.
pub(super) fn deep<T: Send + 'static>(
    source: &str,
    is_typescript: bool,
    read: impl FnOnce(&str) -> Result<T, SyntaxError> + Send + 'static,
) -> Result<T, SyntaxError> {
    let is_apart = IS_APART.load(Ordering::Relaxed);
    check_length(source, if is_apart { MAX_CODE_BYTES_APART } else { MAX_CODE_BYTES })?;
    if is_typescript && !is_apart && is_ambiguous(source) {
        return Err(unreadable("the code has more `<` or `>(` in one another than are read"));
    }
    let permit = ReaderPermit::new().ok_or_else(|| unreadable("too much code is being read; try again"))?;
    let (sender, receiver) = sync_channel(1);
    let source = source.to_owned();
    let id = Arc::new(OnceLock::new());
    let own_id = id.clone();
    let reader = move || {
        let _permit = permit;
        own_id.get_or_init(gettid);
        // The caller may no longer wait.
        let _ = sender.send(read(&source));
    };
    let thread = std::thread::Builder::new().name("st-reader".to_owned()).stack_size(STACK);
    thread.spawn(reader).map_err(|error| unreadable(format!("the code could not be read: {error}")))?;
    let limit = if is_apart { Duration::MAX } else { READ_LIMIT };
    receiver.recv_timeout(limit).unwrap_or_else(|error| match error {
        RecvTimeoutError::Disconnected => Err(unreadable("the code could not be read")),
        RecvTimeoutError::Timeout => {
            id.get().map(step_back);
            Err(unreadable(format!("reading the code took longer than {limit:?}; write it more simply")))
        }
    })
}

/// Lowers the priority of a thread that cannot be ended, so that it uses only idle processor time.
fn step_back(id: &Pid) {
    // It may have come to its end just now.
    let _ = setpriority_process(Some(*id), 19);
}

/// Whether code is so ambiguous (types or not) that reading it takes time without end.
fn is_ambiguous(source: &str) -> bool {
    let (mut angles, mut open, mut before) = (0, Vec::new(), [b' '; 2]);
    let mut generic = 0;
    for byte in source.bytes() {
        match byte {
            b'<' => angles += 1,
            b';' | b'{' | b'}' => angles = 0,
            b'(' => {
                let follows = before[1] == b'>' && before[0] != b'=';
                generic += usize::from(follows);
                open.push(follows);
            }
            b')' => generic -= usize::from(open.pop() == Some(true)),
            _ => {}
        }
        if angles > MAX_ANGLES || generic > MAX_GENERIC_CALLS {
            return true;
        }
        if !byte.is_ascii_whitespace() {
            before = [before[1], byte];
        }
    }
    false
}
