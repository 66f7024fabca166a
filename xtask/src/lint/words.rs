//! `xtask/words.toml`, and the search for its words.

use std::fmt;
use std::ops::Range;

use regex::{Match, Regex};
use serde::Deserialize;

/// Where a word is banned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WordScope {
    Prose,
    Identifiers,
}

impl fmt::Display for WordScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if *self == WordScope::Prose { "prose" } else { "identifiers" })
    }
}

/// The content of `words.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordList {
    pub(super) files: Files,
    word: Vec<BannedWord>,
    /// Identifiers that are allowed as they are.
    allowed: Vec<AllowedName>,
    /// Files that are not checked yet.
    pending: Vec<PendingPaths>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Files {
    pub(super) prose: Vec<String>,
    pub(super) identifiers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BannedWord {
    pattern: String,
    scope: WordScope,
    replacement: String,
    /// Texts in which the word is allowed.
    unless: Option<String>,
    /// Beginnings of the paths in which the word is allowed.
    #[serde(default)]
    except: Vec<String>,
    #[serde(skip)]
    regexes: Option<Regexes>,
}

#[derive(Debug)]
struct Regexes {
    banned: Regex,
    unless: Option<Regex>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedName {
    name: String,
    reason: String,
    /// Beginnings of the paths in which it is allowed; all files if it has none.
    #[serde(default)]
    paths: Vec<String>,
}

impl AllowedName {
    fn holds_in(&self, file: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|path| file.starts_with(path.as_str()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingPaths {
    paths: Vec<String>,
    reason: String,
}

/// A banned word in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hit<'a> {
    pub(super) offset: usize,
    pub(super) word: String,
    pub(super) replacement: &'a str,
}

impl WordList {
    /// Reads `words.toml`.
    ///
    /// # Errors
    /// Invalid TOML, an invalid pattern, and an entry without a replacement or a reason.
    pub(super) fn read(text: &str) -> Result<WordList, String> {
        let mut list: WordList = toml::from_str(text).map_err(|error| error.to_string())?;
        for word in &mut list.word {
            if word.replacement.trim().is_empty() {
                return Err(format!("`{}` has no replacement", word.pattern));
            }
            word.regexes = Some(word.compile().map_err(|error| format!("`{}`: {error}", word.pattern))?);
        }
        if let Some(allowed) = list.allowed.iter().find(|allowed| allowed.reason.trim().is_empty()) {
            return Err(format!("`{}` is allowed without a reason", allowed.name));
        }
        if let Some(pending) = list.pending.iter().find(|pending| pending.reason.trim().is_empty()) {
            return Err(format!("{:?} are pending without a reason", pending.paths));
        }
        Ok(list)
    }

    /// Searches text whose code has been made blank.
    pub(super) fn in_prose(&self, file: &str, text: &str) -> Vec<Hit<'_>> {
        let mut hits = Vec::new();
        for (word, regexes) in self.words(WordScope::Prose, file) {
            let allowed: Vec<Range<usize>> = match &regexes.unless {
                Some(unless) => unless.find_iter(text).map(|found| found.range()).collect(),
                None => Vec::new(),
            };
            let is_allowed = |found: &Match<'_>| {
                allowed.iter().any(|range| range.start <= found.start() && found.end() <= range.end)
            };
            let found = regexes.banned.find_iter(text).filter(|found| !is_allowed(found));
            hits.extend(found.map(|found| Hit {
                offset: found.start(),
                word: found.as_str().split_whitespace().collect::<Vec<_>>().join(" "),
                replacement: &word.replacement,
            }));
        }
        hits
    }

    /// Searches the identifiers of code whose comments and literals have been made blank.
    pub(super) fn in_identifiers(&self, file: &str, code: &str) -> Vec<Hit<'_>> {
        let words: Vec<_> = self.words(WordScope::Identifiers, file).collect();
        let mut hits = Vec::new();
        for range in identifiers(code) {
            let name = &code[range.clone()];
            if self.allowed.iter().any(|allowed| allowed.name == name && allowed.holds_in(file)) {
                continue;
            }
            let separated = separated(name);
            let found = words.iter().filter(|(_, regexes)| regexes.banned.is_match(&separated));
            let found = found.map(|(word, _)| Hit {
                offset: range.start,
                word: name.to_owned(),
                replacement: &word.replacement,
            });
            hits.extend(found);
        }
        hits
    }

    fn words<'a, 'b>(
        &'a self,
        scope: WordScope,
        file: &'b str,
    ) -> impl Iterator<Item = (&'a BannedWord, &'a Regexes)> + use<'a, 'b> {
        let of_scope = self.word.iter().filter(move |word| word.scope == scope);
        let applied = of_scope.filter(|word| !word.except.iter().any(|start| file.starts_with(start)));
        applied.filter_map(|word| word.regexes.as_ref().map(|regexes| (word, regexes)))
    }
}

impl BannedWord {
    /// A pattern matches whole words, with their case only if it has capitals itself.
    fn compile(&self) -> Result<Regexes, regex::Error> {
        let compile = |pattern: &str| {
            let case = if pattern.chars().any(char::is_uppercase) { "" } else { "(?i)" };
            let (pattern, edges) = match self.scope {
                WordScope::Prose => (pattern.replace(' ', r"\s+"), (r"\b", r"\b")),
                WordScope::Identifiers => (pattern.to_owned(), ("(?:^|_)", "(?:_|$)")),
            };
            Regex::new(&format!("{case}{}(?:{pattern}){}", edges.0, edges.1))
        };
        let unless = self.unless.as_deref().map(compile).transpose()?;
        Ok(Regexes { banned: compile(&self.pattern)?, unless })
    }
}

/// The identifiers of `code`.
fn identifiers(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = None;
    for (index, character) in code.char_indices().chain([(code.len(), ' ')]) {
        let is_part = character.is_alphanumeric() || character == '_';
        match start {
            None if is_part => start = Some(index),
            Some(first) if !is_part => {
                found.push(first..index);
                start = None;
            }
            _ => {}
        }
    }
    found.retain(|range| !code[range.clone()].starts_with(|first: char| first.is_ascii_digit()));
    found
}

/// `JobGoesOn` as `Job_Goes_On`. Other names stay as they are.
fn separated(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut was_lowercase = false;
    for character in name.chars() {
        if character.is_uppercase() && was_lowercase {
            words.push('_');
        }
        was_lowercase = character.is_lowercase() || character.is_ascii_digit();
        words.push(character);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str = "allowed = []\npending = []\nfiles = { prose = [], identifiers = [] }\n";

    fn list(entries: &str) -> Result<WordList, String> {
        WordList::read(&format!("{FILES}{entries}"))
    }

    fn entry(pattern: &str, scope: &str, rest: &str) -> String {
        format!("[[word]]\npattern = '{pattern}'\nscope = '{scope}'\nreplacement = 'x'\n{rest}\n")
    }

    #[test]
    fn prose_matches_whole_words_across_lines() {
        let list = list(&entry("goes on|bell", "prose", "")).expect("valid");
        let found: Vec<_> = list.in_prose("a.md", "It Goes\n  on. Labelled bells.").into_iter().collect();
        assert_eq!(found, [Hit { offset: 3, word: "Goes on".to_owned(), replacement: "x" }]);
    }

    #[test]
    fn identifiers_are_split_into_words() {
        let list = list(&entry("goes_on|row", "identifiers", "")).expect("valid");
        let words = |code| -> Vec<String> {
            list.in_identifiers("a.rs", code).into_iter().map(|hit| hit.word).collect()
        };
        assert_eq!(
            words("JobGoesOn job_goes_on ROW_COUNT row"),
            ["JobGoesOn", "job_goes_on", "ROW_COUNT", "row"]
        );
        assert_eq!(words("Browser rows goes on 1row grow"), Vec::<String>::new());
    }

    #[test]
    fn capitals_in_a_pattern_are_matched_as_they_are() {
        let list = list(&entry("MOST", "identifiers", "")).expect("valid");
        assert_eq!(list.in_identifiers("a.rs", "at_most MOST_RUNS Most").len(), 1);
    }

    #[test]
    fn word_is_allowed_below_an_excepted_path() {
        let list = list(&entry("row", "identifiers", "except = ['store/']")).expect("valid");
        assert_eq!(list.in_identifiers("store/a.rs", "row").len(), 0);
        assert_eq!(list.in_identifiers("engine/a.rs", "row").len(), 1);
    }

    #[test]
    fn word_is_allowed_inside_an_excepted_text() {
        let list = list(&entry("is no", "prose", "unless = 'there is no'")).expect("valid");
        let found = list.in_prose("a.md", "There is\nno run. This is no run.");
        assert_eq!(found.iter().map(|hit| hit.offset).collect::<Vec<_>>(), [22]);
    }

    #[test]
    fn malformed_lists_are_refused() {
        for (text, part) in [
            ("[[word]]\npattern = 'a'\nscope = 'prose'\nreplacement = ' '\n".to_owned(), "no replacement"),
            (entry("a", "comments", ""), "comments"),
            (entry("(", "prose", ""), "`(`"),
            (entry("a", "prose", "reason = 'x'"), "reason"),
        ] {
            let error = list(&text).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
    }
}
