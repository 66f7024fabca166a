//! What is prose in a Markdown file: all but code, comments, tags and addresses.

use regex::Regex;

/// Returns `page` with everything that is not prose made blank. Each line keeps its place.
pub(super) fn prose_only(page: &str) -> String {
    let page = without_code_blocks(page);
    let page = without_code_spans(&page);
    // Comments, preformatted text, other tags, targets of links, and addresses.
    let rest = r"(?s)<!--.*?-->|<(pre|code|script|style)\b.*?</(pre|code|script|style)>|</?[a-zA-Z][^<>]*>|\]\([^()\s]*\)|(?m:^ *\[[^\]\n]+\]: *\S+)|https?://\S+";
    let rest = Regex::new(rest).expect("a valid pattern");
    rest.replace_all(&page, |found: &regex::Captures<'_>| blank(&found[0])).into_owned()
}

pub(super) fn blank(text: &str) -> String {
    // A blank for each byte, so that offsets stay what they are.
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Makes fenced blocks blank, also those inside lists and tabs.
fn without_code_blocks(page: &str) -> String {
    let mut prose = String::with_capacity(page.len());
    let mut fence: Option<&str> = None;
    for line in page.split_inclusive('\n') {
        let content = line.trim();
        let is_code = match fence {
            Some(open) => {
                if content.starts_with(open) && content.chars().all(|mark| open.starts_with(mark)) {
                    fence = None;
                }
                true
            }
            None => {
                fence = fence_of(content);
                fence.is_some()
            }
        };
        prose.push_str(&if is_code { blank(line) } else { line.to_owned() });
    }
    prose
}

/// The marks that open a fenced block.
fn fence_of(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.chars().take_while(|next| *next == mark).count();
    // Three marks that the same line closes are a code span.
    (length >= 3 && !line[length..].contains('`')).then(|| &line[..length])
}

/// Makes code spans blank. A span ends with as many marks as it begins with, within its paragraph.
fn without_code_spans(page: &str) -> String {
    let mut prose = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(start) = rest.find('`') {
        let (before, span) = rest.split_at(start);
        prose.push_str(before);
        let length = marks(span);
        let paragraph = span.find("\n\n").unwrap_or(span.len());
        let end = closing(&span[..paragraph], length).unwrap_or(length);
        prose.push_str(&blank(&span[..end]));
        rest = &span[end..];
    }
    prose.push_str(rest);
    prose
}

fn marks(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'`').count()
}

/// Where the span at the start of `text` ends, if it does.
fn closing(text: &str, length: usize) -> Option<usize> {
    let mut at = length;
    while let Some(next) = text.get(at..)?.find('`') {
        at += next;
        let found = marks(&text[at..]);
        at += found;
        if found == length {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(page: &str) -> Vec<String> {
        let prose = prose_only(page);
        assert_eq!(prose.len(), page.len(), "{prose}");
        prose.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn code_is_not_prose() {
        assert_eq!(words("a\n```console\n$ b\n```\nc"), ["a", "c"]);
        assert_eq!(words("a\n\n    ~~~~ text\n    ~~~\n    b\n    ~~~~\nc"), ["a", "c"]);
        assert_eq!(words("a `b` c ``d ` e`` f `g\nh` i"), ["a", "c", "f", "i"]);
        assert_eq!(words("a <code>b</code> <pre>\nc\n</pre> d"), ["a", "d"]);
    }

    #[test]
    fn mark_without_a_pair_hides_nothing() {
        assert_eq!(words("a ` b\n\nc ` d"), ["a", "b", "c", "d"]);
    }

    #[test]
    fn comments_tags_and_targets_are_not_prose() {
        assert_eq!(words("<!-- a\nb --> c <img alt=\"d\"> e"), ["c", "e"]);
        assert_eq!(words("[a](b.md#c) https://d.example/e\n[f]: g\nh"), ["[a", "h"]);
    }

    #[test]
    fn text_with_other_letters_keeps_its_offsets() {
        let page = "é `ü…` nobody";
        assert_eq!(prose_only(page).find("nobody"), page.find("nobody"));
    }
}
