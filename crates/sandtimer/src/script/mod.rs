//! JavaScript and TypeScript as text: what is done to code before an interpreter gets it.
//!
//! ```text
//! TypeScript ─▶ what is more than types, as JavaScript (`lower`) ─▶ types blanked out (swc) ─▶ JavaScript
//! a cell     ─▶ its imports as expressions (`cells`) ─▶ evaluated as at a prompt
//! ```
//! Nothing is moved to another line, so that errors name lines of the code that was given. Code is read here and not executed;
//! what it means is the interpreter's business.

mod cells;
mod lower;
mod programs;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;
use swc_common::errors::{DiagnosticBuilder, Emitter, Handler};
use swc_common::{BytePos, FileName, GLOBALS, Globals, SourceFile, SourceMap, Span, sync::Lrc};
use swc_ecma_ast::{EsVersion, Module};
use swc_ecma_parser::{EsSyntax, Syntax, TsSyntax, parse_file_as_module};
use swc_ts_fast_strip::{Mode, Options, TransformConfig, operate};

pub(crate) use cells::cell;
pub use programs::{command, file_command};

/// Why code cannot be read, and where: line and column from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// JavaScript that does what this TypeScript does, line by line.
///
/// # Errors
/// Where and why it is no TypeScript.
pub fn javascript(source: &str) -> Result<String, SyntaxError> {
    deep(source, |source| GLOBALS.set(&Globals::new(), || strip(lower::lower(source)?)))
}

/// The types of the whole language, and nothing of what is more than types.
fn strip(source: String) -> Result<String, SyntaxError> {
    swc(&source, Mode::StripOnly)
}

/// One of swc's ways to make JavaScript of TypeScript.
fn swc(source: &str, mode: Mode) -> Result<String, SyntaxError> {
    let map: Lrc<SourceMap> = Lrc::default();
    let first = Arc::new(Mutex::new(None));
    let handler =
        Handler::with_emitter(true, false, Box::new(First { map: map.clone(), error: first.clone() }));
    let mut transform = TransformConfig::default();
    // What nothing in the code uses may be used by the next cell.
    transform.typescript.verbatim_module_syntax = true;
    transform.typescript.no_empty_export = true;
    let options = Options {
        module: Some(true),
        parser: TsSyntax { decorators: true, ..TsSyntax::default() },
        mode,
        transform: Some(transform),
        ..Options::default()
    };
    let made =
        swc_common::errors::HANDLER.set(&handler, || operate(&map, &handler, source.to_owned(), options));
    let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (made, first) {
        (Ok(made), _) => Ok(made.code),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(SyntaxError { line: 1, column: 1, message: error.message }),
    }
}

/// Keeps the first thing that swc complains of.
struct First {
    map: Lrc<SourceMap>,
    error: Arc<Mutex<Option<SyntaxError>>>,
}

impl Emitter for First {
    fn emit(&mut self, said: &mut DiagnosticBuilder<'_>) {
        let at = said.span.primary_span().map_or(BytePos(1), |span| span.lo());
        let error = error_at(&self.map, at, said.message());
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

fn error_at(map: &SourceMap, at: BytePos, message: String) -> SyntaxError {
    let place = map.lookup_char_pos(at);
    SyntaxError { line: place.line, column: place.col.0 + 1, message }
}

/// Code that was read.
struct Parsed {
    file: Lrc<SourceFile>,
    module: Module,
}

impl Parsed {
    fn read(source: &str, syntax: Syntax) -> Result<Self, SyntaxError> {
        let map: Lrc<SourceMap> = Lrc::default();
        let file = map.new_source_file(FileName::Anon.into(), source.to_owned());
        let mut others = Vec::new();
        let read = parse_file_as_module(&file, syntax, EsVersion::latest(), None, &mut others);
        let error = |error: swc_ecma_parser::error::Error| {
            use swc_common::Spanned;
            error_at(&map, error.span().lo(), error.kind().msg().into_owned())
        };
        let module = read.map_err(error)?;
        others.into_iter().next().map_or(Ok(()), |first| Err(error(first)))?;
        Ok(Parsed { file, module })
    }

    /// Where something stands, in bytes.
    fn place(&self, span: Span) -> std::ops::Range<usize> {
        let at = |position: BytePos| (position.0 - self.file.start_pos.0) as usize;
        at(span.lo)..at(span.hi)
    }
}

fn typescript() -> Syntax {
    Syntax::Typescript(TsSyntax { decorators: true, ..TsSyntax::default() })
}

fn ecmascript() -> Syntax {
    Syntax::Es(EsSyntax { import_attributes: true, ..EsSyntax::default() })
}

/// Another text in place of some of a source's.
#[derive(Debug, Default)]
struct Edits(Vec<(std::ops::Range<usize>, String)>);

impl Edits {
    /// Puts `text` in the place of what stands there, and as many line ends behind it as are lost.
    fn replace(&mut self, source: &str, place: std::ops::Range<usize>, text: &str) {
        let lines = |text: &str| text.matches('\n').count();
        let lost = lines(&source[place.clone()]).saturating_sub(lines(text));
        self.0.push((place, format!("{text}{}", "\n".repeat(lost))));
    }

    /// Blanks out what stands there.
    fn blank(&mut self, source: &str, place: std::ops::Range<usize>) {
        let blank =
            source[place.clone()].chars().map(|one| if one == '\n' || one == '\r' { one } else { ' ' });
        self.0.push((place, blank.collect()));
    }

    fn apply(mut self, source: &str) -> String {
        self.0.sort_by_key(|(place, _)| place.start);
        let (mut text, mut end) = (String::with_capacity(source.len()), 0);
        for (place, by) in &self.0 {
            // What lies within something that was replaced is gone with it.
            if place.start >= end {
                text.push_str(&source[end..place.start]);
                text.push_str(by);
                end = place.end;
            }
        }
        text.push_str(&source[end..]);
        text
    }
}

/// The longest code that is read at once, in bytes. It may be as deeply nested as it is long, and reading goes as deep.
pub const MOST_READ: usize = 128 << 10;
/// Stack for one who reads code: 8 KiB for each byte. Only what is used of it is memory.
const STACK: usize = MOST_READ << 13;
/// How long reading may take. There is code that nobody writes, and that takes longer than anybody waits.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How many read at once; one that nobody waits for any more is one of them until it is done.
const MOST_READERS: usize = 8;
/// Of `<` in one statement, and of parentheses in one another that each follow a `>`. Every one may begin types, and is read
/// both ways.
const MOST_ANGLES: usize = 64;
const MOST_GENERIC_CALLS: usize = 8;

static READERS: AtomicUsize = AtomicUsize::new(0);

/// A reader's place, given up when it is done.
struct Reader;

impl Reader {
    fn new() -> Option<Self> {
        let reader = Reader;
        (READERS.fetch_add(1, Ordering::Relaxed) < MOST_READERS).then_some(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads code on a stack that it cannot use up, and not for longer than somebody waits. Code that swc fails at is code that
/// cannot be read.
fn deep<T: Send + 'static>(
    source: &str,
    read: impl FnOnce(&str) -> Result<T, SyntaxError> + Send + 'static,
) -> Result<T, SyntaxError> {
    let unreadable = |message: String| SyntaxError { line: 1, column: 1, message };
    if source.len() > MOST_READ {
        let length = source.len();
        return Err(unreadable(format!(
            "the code has {length} bytes, and at most {MOST_READ} are read at once; move some of it into a file or another cell"
        )));
    }
    if is_ambiguous(source) {
        return Err(unreadable("the code has more `<` or `>(` in one another than are read".to_owned()));
    }
    let place =
        Reader::new().ok_or_else(|| unreadable("too much code is being read; try again".to_owned()))?;
    let (tell, told) = sync_channel(1);
    let source = source.to_owned();
    let id = Arc::new(OnceLock::new());
    let own_id = id.clone();
    let reader = move || {
        let _place = place;
        own_id.get_or_init(gettid);
        // Nobody may wait any more.
        let _ = tell.send(read(&source));
    };
    let thread = std::thread::Builder::new().name("st-reader".to_owned()).stack_size(STACK);
    thread.spawn(reader).map_err(|error| unreadable(format!("the code could not be read: {error}")))?;
    told.recv_timeout(READ_LIMIT).unwrap_or_else(|error| match error {
        RecvTimeoutError::Disconnected => Err(unreadable("the code could not be read".to_owned())),
        RecvTimeoutError::Timeout => {
            id.get().map(step_back);
            Err(unreadable(format!("reading the code took longer than {READ_LIMIT:?}; write it more simply")))
        }
    })
}

/// Has a thread that cannot be ended take only what nobody else wants of the processors.
fn step_back(id: &Pid) {
    // It may have come to its end just now.
    let _ = setpriority_process(Some(*id), 19);
}

/// Whether code has so much of what may be types or not that reading it takes time without end.
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
        if angles > MOST_ANGLES || generic > MOST_GENERIC_CALLS {
            return true;
        }
        if !byte.is_ascii_whitespace() {
            before = [before[1], byte];
        }
    }
    false
}

#[cfg(test)]
mod tests;
