//! What is prose in a file of Python or TypeScript: its docstrings, comments and messages, without
//! the code in them.

use std::ops::Range;

use super::{markdown, rust_messages};

/// A language, by the ends of its files' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommentLanguage {
    Python,
    TypeScript,
}

impl CommentLanguage {
    pub(super) fn of(file: &str) -> Option<CommentLanguage> {
        match file.rsplit_once('.')?.1 {
            "py" | "pyi" => Some(CommentLanguage::Python),
            "ts" => Some(CommentLanguage::TypeScript),
            _ => None,
        }
    }
}

/// Returns `source` with everything that is not prose made blank. Each byte keeps its place.
pub(super) fn prose_only(language: CommentLanguage, source: &str) -> String {
    let texts = prose(language, source);
    let mut prose = String::with_capacity(source.len());
    let mut end = 0;
    for Text { range, is_message } in joined(source, texts) {
        prose.push_str(&markdown::blank(&source[end..range.start]));
        end = range.end;
        let piece = &source[range];
        if is_message {
            prose.push_str(&rust_messages::without_code(piece));
        } else {
            prose.push_str(&without_examples(&markdown::prose_only(&without_marks(piece))));
        }
    }
    prose.push_str(&markdown::blank(&source[end..]));
    prose
}

/// Returns `source` with its comments and strings made blank. Each byte keeps its place.
pub(super) fn code_only(language: CommentLanguage, source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut end = 0;
    for (range, _) in pieces(language, source) {
        code.push_str(&source[end..range.start]);
        code.push_str(&markdown::blank(&source[range.clone()]));
        end = range.end;
    }
    code.push_str(&source[end..]);
    code
}

/// What a part of a file is that is not code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A comment, with the lengths of its marks.
    Comment(usize, usize),
    String,
    /// A string in three quotes.
    LongString,
}

/// The comments and strings of a file, in their order. In TypeScript regular expressions are not
/// distinguished from divisions.
fn pieces(language: CommentLanguage, source: &str) -> Vec<(Range<usize>, Piece)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let piece = match language {
            CommentLanguage::Python => python_piece(&source[at..]),
            CommentLanguage::TypeScript => typescript_piece(&source[at..]),
        };
        let length = match piece {
            Some((length, piece)) => {
                found.push((at..at + length, piece));
                length
            }
            None => first.len_utf8(),
        };
        at += length;
    }
    found
}

/// The comment or string at the start of `rest`, if there is one, with its length.
fn python_piece(rest: &str) -> Option<(usize, Piece)> {
    match rest.chars().next()? {
        '#' => Some((rest.find('\n').unwrap_or(rest.len()), Piece::Comment(1, 0))),
        '"' | '\'' if is_triple(rest) => Some((quoted(rest, &rest[..3]), Piece::LongString)),
        '"' | '\'' => Some((quoted(rest, &rest[..1]), Piece::String)),
        _ => None,
    }
}

/// The same of TypeScript.
fn typescript_piece(rest: &str) -> Option<(usize, Piece)> {
    match rest.chars().next()? {
        '/' if rest.starts_with("//") => Some((rest.find('\n').unwrap_or(rest.len()), Piece::Comment(2, 0))),
        '/' if rest.starts_with("/*") => {
            Some((rest.find("*/").map_or(rest.len(), |end| end + 2), Piece::Comment(2, 2)))
        }
        '"' | '\'' | '`' => Some((quoted(rest, &rest[..1]), Piece::String)),
        _ => None,
    }
}

/// A part of a file that has prose.
struct Text {
    range: Range<usize>,
    /// Whether it is a string of one line, rather than a comment or a docstring.
    is_message: bool,
}

impl Text {
    fn comment(range: Range<usize>) -> Text {
        Text { range, is_message: false }
    }

    /// The content of a string that has more than one word: shorter strings are names.
    fn message(source: &str, range: Range<usize>) -> Option<Text> {
        let string = &source[range.clone()];
        let is_closed = string.len() > 1 && string.ends_with(&string[..1]);
        let content = range.start + 1..range.end - usize::from(is_closed);
        source[content.clone()].contains(' ').then_some(Text { range: content, is_message: true })
    }
}

/// The comments, the strings in three quotes that begin a statement, and the messages in single
/// quotes.
fn prose(language: CommentLanguage, source: &str) -> Vec<Text> {
    let mut found = Vec::new();
    for (range, piece) in pieces(language, source) {
        let (start, end) = (range.start, range.end);
        let inside =
            |before: usize, after: usize| start + before..end.saturating_sub(after).max(start + before);
        match piece {
            Piece::Comment(before, after) => found.push(Text::comment(inside(before, after))),
            Piece::String => found.extend(Text::message(source, range)),
            Piece::LongString if begins_statement(&source[..start]) => {
                found.push(Text::comment(inside(3, 3)))
            }
            Piece::LongString => {}
        }
    }
    found
}

fn is_triple(rest: &str) -> bool {
    rest.starts_with("\"\"\"") || rest.starts_with("'''")
}

/// Whether a string after `before` begins a line; its prefix does not count.
fn begins_statement(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.trim_start().trim_start_matches(['r', 'R']).is_empty()
}

/// The length of the string at the start of `rest`.
fn quoted(rest: &str, quotes: &str) -> usize {
    let mut escaped = false;
    for (index, character) in rest.char_indices().skip(quotes.len()) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // The line ends, and the string was none.
            '\n' if quotes.len() == 1 => return index,
            _ if rest[index..].starts_with(quotes) => return index + quotes.len(),
            _ => {}
        }
    }
    rest.len()
}

/// Comments on lines that follow each other are one text, so that code spans and words across lines
/// are found.
fn joined(source: &str, texts: Vec<Text>) -> Vec<Text> {
    let mut joined: Vec<Text> = Vec::new();
    for text in texts {
        match joined.last_mut() {
            Some(last) if is_gap(&source[last.range.end..text.range.start]) => {
                last.range.end = text.range.end
            }
            _ => joined.push(text),
        }
    }
    joined
}

/// Whether nothing but the mark of the next comment, on the next line, is between two comments.
fn is_gap(between: &str) -> bool {
    between.matches('\n').count() == 1 && matches!(between.trim(), "#" | "//")
}

/// Makes the examples of docstrings blank: from a prompt to the next empty line.
fn without_examples(text: &str) -> String {
    let mut is_example = false;
    let mut prose = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim();
        is_example = content.starts_with(">>>") || (is_example && !content.is_empty());
        prose.push_str(&if is_example { markdown::blank(line) } else { line.to_owned() });
    }
    prose
}

/// Makes the marks at the beginnings of the lines of a comment blank: two words of a text may be on
/// both sides of one.
fn without_marks(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches([' ', '\t']);
        let rest = content.trim_start_matches(['#', '/', '*']);
        marked.push_str(&line[..line.len() - content.len()]);
        marked.push_str(&" ".repeat(content.len() - rest.len()));
        marked.push_str(rest);
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(language: CommentLanguage, source: &str) -> Vec<String> {
        let prose = prose_only(language, source);
        assert_eq!(prose.len(), source.len(), "{prose}");
        assert_eq!(prose.matches('\n').count(), source.matches('\n').count(), "{prose}");
        prose.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn docstrings_and_comments_of_python_are_prose() {
        let source = "\"\"\"A é `b`.\n\n>>> c\nd\n\ne\n\"\"\"\nf = \"g # h\"  # i\n# j\n# k `l\n# m` n\nx: int\n'''o'''\np = '''q'''\nr'''s'''\n";
        assert_eq!(
            words(CommentLanguage::Python, source),
            ["A", "é", ".", "e", "g", "#", "h", "i", "j", "k", "n", "o", "s"]
        );
    }

    #[test]
    fn messages_are_prose() {
        let source = "a = f(\"one `two` {three!r}\", 'four', 'five\\nsix \"seven\"') # eight\n";
        assert_eq!(words(CommentLanguage::Python, source), ["one", "five", "six", "\"seven\"", "eight"]);
        let source = "const a = `one ${two} three`; // four\nb('five', \"six seven\");\n";
        assert_eq!(words(CommentLanguage::TypeScript, source), ["one", "$", "three", "four", "six", "seven"]);
    }

    #[test]
    fn code_has_neither_comments_nor_strings() {
        let source = "a = \"b\"  # c\nd = f'é {e}' + '''f\ng''' + h\n";
        let code = code_only(CommentLanguage::Python, source);
        assert_eq!(code.len(), source.len(), "{code}");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "=", "d", "=", "f", "+", "+", "h"]);
        let code = code_only(CommentLanguage::TypeScript, "const a = `b`; // c\n/* d\ne */ f('g');\n");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["const", "a", "=", ";", "f(", ");"]);
    }

    #[test]
    fn unfinished_python_is_read_to_its_end() {
        for source in ["'b é", "\"\"\"a", "'b", "\"\"\"", "#", "a = \"\"\"\\", "'\n\"\"\"a\"\"\""] {
            prose_only(CommentLanguage::Python, source);
        }
    }

    #[test]
    fn comments_of_typescript_are_prose() {
        let source = "/** A\n * ```ts\n * b\n * ```\n * c `d` */\nconst e = \"// f\"; // g\n// h\nconst i = `/* j */`;\n/* k */\n";
        assert_eq!(words(CommentLanguage::TypeScript, source), ["A", "c", "f", "g", "h", "*", "j", "*", "k"]);
    }

    #[test]
    fn languages_are_known_by_names_of_files() {
        assert_eq!(CommentLanguage::of("python/sandtimer/sandbox/_job.py"), Some(CommentLanguage::Python));
        assert_eq!(CommentLanguage::of("typescript/src/run.ts"), Some(CommentLanguage::TypeScript));
        assert_eq!(CommentLanguage::of("docs/a.md"), None);
    }
}
