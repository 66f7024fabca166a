//! What is prose in a Rust file: its string literals, and the doc comments that clap prints as
//! help.

/// Strings without a blank are names, and those of tests are not read by users.
const TESTS: &str = "#[cfg(test)]\nmod ";

/// Returns `code` with everything blank but the prose of its strings; with `help`, doc comments as
/// well.
pub(super) fn prose_only(code: &str, help: bool) -> String {
    let end = code.find(TESTS).unwrap_or(code.len());
    let mut prose = String::with_capacity(code.len());
    let mut rest = &code[..end];
    while let Some(character) = rest.chars().next() {
        let (length, is_prose) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), help && rest.starts_with("///"))
        } else if let Some(length) = string_length(rest) {
            (length, rest[..length].trim_matches('"').contains(' '))
        } else {
            (character_literal_length(rest).unwrap_or(character.len_utf8()), false)
        };
        let (part, after) = rest.split_at(length);
        prose.push_str(&if is_prose { without_code(part) } else { blank(part) });
        rest = after;
    }
    prose.push_str(&blank(&code[end..]));
    prose
}

/// The length of the string literal at the beginning of `code`, with its quotes.
fn string_length(code: &str) -> Option<usize> {
    let prefix = code.len() - code.trim_start_matches(['b', 'r', '#']).len();
    let hashes = code[..prefix].matches('#').count();
    if code.as_bytes().get(prefix) != Some(&b'"') || (hashes > 0 && !code[..prefix].contains('r')) {
        return None;
    }
    if code[..prefix].contains('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix + 1;
        return Some(code[start..].find(&end).map_or(code.len(), |found| start + found + end.len()));
    }
    let mut is_escaped = false;
    for (index, character) in code.char_indices().skip_while(|(index, _)| *index <= prefix) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(index + 1),
            _ => {}
        }
    }
    Some(code.len())
}

/// The length of the character literal at the beginning of `code`; a lifetime is none.
fn character_literal_length(code: &str) -> Option<usize> {
    let rest = code.strip_prefix('\'')?;
    let mut characters = rest.char_indices();
    let first = characters.next()?.1;
    let close = if first == '\\' { rest[2..].find('\'')? + 2 } else { characters.next()?.0 };
    (rest.as_bytes().get(close) == Some(&b'\'')).then_some(close + 2)
}

/// Makes code spans, placeholders, escapes and the marks of continued lines blank.
pub(super) fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut span: Option<char> = None;
    let mut is_escaped = false;
    for character in text.chars() {
        let is_code = match span {
            Some(end) => {
                if character == end {
                    span = None;
                }
                true
            }
            None => {
                span = match character {
                    '`' => Some('`'),
                    '{' => Some('}'),
                    _ => None,
                };
                span.is_some() || is_escaped || matches!(character, '\\' | '/')
            }
        };
        is_escaped = character == '\\' && !is_escaped;
        if is_code && character != '\n' {
            prose.push_str(&" ".repeat(character.len_utf8()));
        } else {
            prose.push(character);
        }
    }
    prose
}

fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(code: &str, help: bool) -> Vec<String> {
        let prose = prose_only(code, help);
        assert_eq!(prose.len(), code.len());
        prose.replace('"', " ").split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn strings_with_blanks_are_prose() {
        let code = "// a comment\nfn f<'a>(x: &'a str) -> char { g(\"two words\", \"name\", r#\"raw \"text\"\"#, '\"'); 'x' }";
        assert_eq!(words(code, false), ["two", "words", "r#", "raw", "text", "#"]);
    }

    #[test]
    fn code_in_strings_is_blank() {
        let code = "f(\"the run `is over`\\nat {moment}, \\\n    and ends\")";
        assert_eq!(words(code, false), ["the", "run", "at", ",", "and", "ends"]);
    }

    #[test]
    fn doc_comments_are_prose_of_help_only() {
        let code = "/// How long\nstruct A;\n#[cfg(test)]\nmod tests { const A: &str = \"not read\"; }\n";
        assert_eq!(words(code, true), ["How", "long"]);
        assert_eq!(words(code, false), Vec::<String>::new());
    }
}
