//! What is prose in a file of Python or TypeScript: its docstrings, comments and messages, without the code in them.

use std::ops::Range;

use super::{markdown, rust_messages};

/// A language, by the ends of its files' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    TypeScript,
}

impl Language {
    pub(super) fn of(file: &str) -> Option<Language> {
        match file.rsplit_once('.')?.1 {
            "py" | "pyi" => Some(Language::Python),
            "ts" => Some(Language::TypeScript),
            _ => None,
        }
    }
}

/// Returns `source` with everything that is not prose made blank. Each byte keeps its place.
pub(super) fn prose_only(language: Language, source: &str) -> String {
    let texts = match language {
        Language::Python => python(source),
        Language::TypeScript => typescript(source),
    };
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

/// The comments, the strings in three quotes that begin a statement, and the messages in single quotes.
fn python(source: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = match first {
            '#' => {
                let length = rest.find('\n').unwrap_or(rest.len());
                found.push(Text::comment(at + 1..at + length));
                length
            }
            '"' | '\'' => {
                let quotes = if is_triple(rest) { &rest[..3] } else { &rest[..1] };
                let length = quoted(rest, quotes);
                if quotes.len() == 1 {
                    found.extend(Text::message(source, at..at + length));
                } else if begins_statement(&source[..at]) {
                    found.push(Text::comment(at + 3..(at + length).saturating_sub(3).max(at + 3)));
                }
                length
            }
            _ => first.len_utf8(),
        };
        at += length;
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

/// The comments, and the messages in strings and templates. Regular expressions are not told from divisions.
fn typescript(source: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = match first {
            '/' if rest.starts_with("//") => {
                let length = rest.find('\n').unwrap_or(rest.len());
                found.push(Text::comment(at + 2..at + length));
                length
            }
            '/' if rest.starts_with("/*") => {
                let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
                found.push(Text::comment(at + 2..(at + length).saturating_sub(2).max(at + 2)));
                length
            }
            '"' | '\'' | '`' => {
                let length = quoted(rest, &rest[..1]);
                found.extend(Text::message(source, at..at + length));
                length
            }
            _ => first.len_utf8(),
        };
        at += length;
    }
    found
}

/// Comments on lines that follow each other are one text, so that code spans and words across lines are found.
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

/// Makes the marks at the beginnings of the lines of a comment blank: two words of a text may be on both sides of one.
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

    fn words(language: Language, source: &str) -> Vec<String> {
        let prose = prose_only(language, source);
        assert_eq!(prose.len(), source.len(), "{prose}");
        assert_eq!(prose.matches('\n').count(), source.matches('\n').count(), "{prose}");
        prose.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn docstrings_and_comments_of_python_are_prose() {
        let source = "\"\"\"A é `b`.\n\n>>> c\nd\n\ne\n\"\"\"\nf = \"g # h\"  # i\n# j\n# k `l\n# m` n\nx: int\n'''o'''\np = '''q'''\nr'''s'''\n";
        assert_eq!(
            words(Language::Python, source),
            ["A", "é", ".", "e", "g", "#", "h", "i", "j", "k", "n", "o", "s"]
        );
    }

    #[test]
    fn messages_are_prose() {
        let source = "a = f(\"one `two` {three!r}\", 'four', 'five\\nsix \"seven\"') # eight\n";
        assert_eq!(words(Language::Python, source), ["one", "five", "six", "\"seven\"", "eight"]);
        let source = "const a = `one ${two} three`; // four\nb('five', \"six seven\");\n";
        assert_eq!(words(Language::TypeScript, source), ["one", "$", "three", "four", "six", "seven"]);
    }

    #[test]
    fn unfinished_python_is_read_to_its_end() {
        for source in ["'b é", "\"\"\"a", "'b", "\"\"\"", "#", "a = \"\"\"\\", "'\n\"\"\"a\"\"\""] {
            prose_only(Language::Python, source);
        }
    }

    #[test]
    fn comments_of_typescript_are_prose() {
        let source = "/** A\n * ```ts\n * b\n * ```\n * c `d` */\nconst e = \"// f\"; // g\n// h\nconst i = `/* j */`;\n/* k */\n";
        assert_eq!(words(Language::TypeScript, source), ["A", "c", "f", "g", "h", "*", "j", "*", "k"]);
    }

    #[test]
    fn languages_are_known_by_names_of_files() {
        assert_eq!(Language::of("python/sandtimer/sandbox/_job.py"), Some(Language::Python));
        assert_eq!(Language::of("typescript/src/run.ts"), Some(Language::TypeScript));
        assert_eq!(Language::of("docs/a.md"), None);
    }
}
