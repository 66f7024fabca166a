//! JavaScript and TypeScript source: what is done to code before an interpreter reads it.
//!
//! ```text
//! TypeScript ─▶ constructs that are more than types become JavaScript (`lower`) ─▶ types become blank (swc) ─▶ JavaScript
//! a cell     ─▶ its imports become expressions (`cells`) ─▶ evaluated as at a prompt
//! ```
//! Nothing moves to another line, so that errors name lines of the original code. Code is parsed
//! here and not executed. `reading` decides which process parses it, and bounds that.

mod cells;
mod lower;
mod programs;
mod reader;

use std::sync::{Arc, Mutex, PoisonError};

use swc_common::errors::{DiagnosticBuilder, Emitter, Handler};
use swc_common::{BytePos, FileName, GLOBALS, Globals, SourceFile, SourceMap, Span, sync::Lrc};
use swc_ecma_ast::{EsVersion, Module};
use swc_ecma_parser::{EsSyntax, Syntax, TsSyntax, parse_file_as_module};
use swc_ts_fast_strip::{Mode, Options, TransformConfig, operate};

pub(crate) use cells::cell;
pub use programs::JavaScriptProgram;
use reader::deep;
pub use reader::{MAX_CODE_BYTES, MAX_CODE_BYTES_APART, ReadTarget, serve};
pub(crate) use reader::{check_length, unreadable};

/// Why code cannot be read, and where: line and column from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What the parser expected or found.
    pub message: String,
}

impl SyntaxError {
    /// As a reader process replies it: an `e`, the place, and on the next line the error.
    pub(crate) fn text(&self) -> String {
        format!("e{}:{}\n{}", self.line, self.column, self.message)
    }

    /// Parses the reply of a reader process.
    fn from_reply(text: &str) -> Self {
        let (position, message) = text.split_once('\n').unwrap_or_default();
        let (line, column) =
            position.strip_prefix('e').and_then(|position| position.split_once(':')).unwrap_or_default();
        let number = |text: &str| text.parse().unwrap_or(1);
        SyntaxError { line: number(line), column: number(column), message: message.to_owned() }
    }
}

/// JavaScript that does what this TypeScript does, line by line.
///
/// # Errors
/// Where and why it is no TypeScript.
pub fn javascript(source: &str) -> Result<String, SyntaxError> {
    deep(source, true, |source| GLOBALS.set(&Globals::new(), || strip(lower::lower(source)?)))
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
        Handler::with_emitter(true, false, Box::new(FirstError { map: map.clone(), error: first.clone() }));
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

/// Keeps the first error that swc reports.
struct FirstError {
    map: Lrc<SourceMap>,
    error: Arc<Mutex<Option<SyntaxError>>>,
}

impl Emitter for FirstError {
    fn emit(&mut self, diagnostic: &mut DiagnosticBuilder<'_>) {
        let at = diagnostic.span.primary_span().map_or(BytePos(1), |span| span.lo());
        let error = error_at(&self.map, at, diagnostic.message());
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

fn error_at(map: &SourceMap, at: BytePos, message: String) -> SyntaxError {
    let location = map.lookup_char_pos(at);
    SyntaxError { line: location.line, column: location.col.0 + 1, message }
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

    /// The range of a span, in bytes.
    fn byte_range(&self, span: Span) -> std::ops::Range<usize> {
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
    /// Replaces the range by `text`, followed by as many line ends as are lost.
    fn replace(&mut self, source: &str, range: std::ops::Range<usize>, text: &str) {
        let lines = |text: &str| text.matches('\n').count();
        let lost = lines(&source[range.clone()]).saturating_sub(lines(text));
        self.0.push((range, format!("{text}{}", "\n".repeat(lost))));
    }

    /// Blanks out the range.
    fn blank(&mut self, source: &str, range: std::ops::Range<usize>) {
        let blank =
            source[range.clone()].chars().map(|one| if one == '\n' || one == '\r' { one } else { ' ' });
        self.0.push((range, blank.collect()));
    }

    fn apply(mut self, source: &str) -> String {
        self.0.sort_by_key(|(range, _)| range.start);
        let (mut text, mut end) = (String::with_capacity(source.len()), 0);
        for (range, by) in &self.0 {
            // What lies within something that was replaced is gone with it.
            if range.start >= end {
                text.push_str(&source[end..range.start]);
                text.push_str(by);
                end = range.end;
            }
        }
        text.push_str(&source[end..]);
        text
    }
}

#[cfg(test)]
mod tests;
