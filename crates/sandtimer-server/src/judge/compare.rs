//! The rule by which two outputs are the same: the same words on the same lines. Blank lines, and
//! how words are spaced, do not count. The Python package has the same rule
//! (`_checkers.same_lines`).

/// Whether two texts have the same words on the same lines. Stops at the first difference.
pub(super) fn has_same_lines(expected: &str, found: &str) -> bool {
    let (mut expected, mut found) = (lines(expected), lines(found));
    loop {
        match (expected.next(), found.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if split_line(one).eq(split_line(other)) => {}
            _ => return false,
        }
    }
}

/// The lines that have words.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').filter(|line| split_line(line).next().is_some())
}

fn split_line(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|part| !part.is_empty())
}

/// The separators U+001C to U+001F are spaces for Python.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_blank_lines_do_not_count() {
        for (expected, found) in [
            ("", " \n\t\r\n"),
            ("1 2\n3", "  1\t2 \n\n\n3\r\n\n"),
            ("a\u{a0}b", "a b"),
            ("a\u{1f}b", "a b"),
            ("x", "x"),
        ] {
            assert!(has_same_lines(expected, found), "{expected:?} {found:?}");
        }
        for (expected, found) in
            [("1 2", "1\n2"), ("1", ""), ("", "1"), ("1\n2", "1"), ("1", "1\n2"), ("12", "1 2"), ("1", "1.0")]
        {
            assert!(!has_same_lines(expected, found), "{expected:?} {found:?}");
        }
    }
}
