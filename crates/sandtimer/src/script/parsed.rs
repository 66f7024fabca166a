//! Code that was parsed, and edits of its text.

use swc_common::{BytePos, FileName, SourceFile, SourceMap, Span, sync::Lrc};
use swc_ecma_ast::{EsVersion, Module};
use swc_ecma_parser::{EsSyntax, Syntax, TsSyntax, parse_file_as_module};

use super::syntax_error::SyntaxError;

/// Code that was read.
pub(super) struct Parsed {
    file: Lrc<SourceFile>,
    pub(super) module: Module,
}

impl Parsed {
    pub(super) fn read(source: &str, syntax: Syntax) -> Result<Self, SyntaxError> {
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
    pub(super) fn byte_range(&self, span: Span) -> std::ops::Range<usize> {
        let at = |position: BytePos| (position.0 - self.file.start_pos.0) as usize;
        at(span.lo)..at(span.hi)
    }
}

pub(super) fn error_at(map: &SourceMap, at: BytePos, message: String) -> SyntaxError {
    let location = map.lookup_char_pos(at);
    SyntaxError { line: location.line, column: location.col.0 + 1, message }
}

pub(super) fn typescript() -> Syntax {
    Syntax::Typescript(TsSyntax { decorators: true, ..TsSyntax::default() })
}

pub(super) fn ecmascript() -> Syntax {
    Syntax::Es(EsSyntax { import_attributes: true, ..EsSyntax::default() })
}

/// Another text in place of some of a source's.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(std::ops::Range<usize>, String)>);

impl Edits {
    /// Replaces the range by `text`, followed by as many line ends as are lost.
    pub(super) fn replace(&mut self, source: &str, range: std::ops::Range<usize>, text: &str) {
        let lines = |text: &str| text.matches('\n').count();
        let lost = lines(&source[range.clone()]).saturating_sub(lines(text));
        self.0.push((range, format!("{text}{}", "\n".repeat(lost))));
    }

    /// Blanks out the range.
    pub(super) fn blank(&mut self, source: &str, range: std::ops::Range<usize>) {
        let blank =
            source[range.clone()].chars().map(|one| if one == '\n' || one == '\r' { one } else { ' ' });
        self.0.push((range, blank.collect()));
    }

    pub(super) fn apply(mut self, source: &str) -> String {
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
