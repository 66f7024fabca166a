//! Names and shapes in Rust that no list of words covers: type names with too many definitions,
//! long names of tests, tuples as parameters, and wide comments.

use std::collections::BTreeMap;

use regex::Regex;

use crate::module_arrows::code_only;

/// A name is defined for at most this many types, tests and other programs included.
const MAX_DEFINITIONS: usize = 2;
/// `Error` may be defined once in each crate.
const ONCE_PER_CRATE: &str = "Error";
const MAX_TEST_NAME_LEN: usize = 60;
const MAX_COMMENT_COLUMNS: usize = 100;

/// What is found in the files that have been added.
pub(super) struct Names {
    definitions: BTreeMap<String, Vec<String>>,
    hits: Vec<String>,
    type_definition: Regex,
    test: Regex,
    function: Regex,
}

impl Names {
    pub(super) fn new() -> Self {
        let regex = |pattern: &str| Regex::new(pattern).expect("the pattern is valid");
        Self {
            definitions: BTreeMap::new(),
            hits: Vec::new(),
            type_definition: regex(
                r"(?m)^[ ]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union)\s+([A-Z]\w*)",
            ),
            test: regex(r"#\[(?:\w+::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async\s+)?fn\s+(\w+)"),
            function: regex(r"\bfn\s+\w+"),
        }
    }

    /// Adds a file of Rust by its path and content.
    pub(super) fn add(&mut self, file: &str, content: &str) {
        let code = code_only(content);
        let line_of = |offset: usize| code[..offset].matches('\n').count() + 1;
        for found in self.type_definition.captures_iter(&code) {
            let name = &found[1];
            let place = format!("{file}:{}", line_of(found.get(1).map_or(0, |name| name.start())));
            if name != ONCE_PER_CRATE {
                self.definitions.entry(name.to_owned()).or_default().push(place);
            }
        }
        for found in self.test.captures_iter(&code).filter(|found| found[1].len() > MAX_TEST_NAME_LEN) {
            let line = line_of(found.get(1).map_or(0, |name| name.start()));
            self.hits
                .push(format!("{file}:{line}: test name over {MAX_TEST_NAME_LEN} characters: {}", &found[1]));
        }
        let parameters = self.function.find_iter(&code).flat_map(|found| parameters(&code, found.end()));
        for (offset, _) in parameters.filter(|(_, parameter)| is_tuple(parameter)) {
            let line = line_of(offset);
            self.hits.push(format!("{file}:{line}: a tuple as a parameter: write a struct"));
        }
        for (index, line) in content.lines().enumerate().filter(|(_, line)| is_wide_comment(line)) {
            let columns = line.chars().count();
            self.hits.push(format!(
                "{file}:{}: comment of {columns} columns: wrap it at {MAX_COMMENT_COLUMNS}",
                index + 1
            ));
        }
    }

    /// Returns all hits as `file:line: …`.
    pub(super) fn into_hits(mut self) -> Vec<String> {
        for (name, places) in self.definitions {
            if places.len() > MAX_DEFINITIONS {
                self.hits.push(format!("{} definitions of `{name}`: {}", places.len(), places.join(", ")));
            }
        }
        self.hits
    }
}

/// Returns the parameters of a function, each with its offset in `code`; `start` is the end of the
/// function's name.
fn parameters(code: &str, start: usize) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut depth, mut begin, mut previous) = (0, None, ' ');
    for (index, character) in code[start..].char_indices() {
        let offset = start + index;
        match character {
            '(' if depth == 0 => begin = Some(offset + 1),
            ',' if depth == 1 => {
                found.extend(begin.map(|begin| (begin, &code[begin..offset])));
                begin = begin.map(|_| offset + 1);
            }
            ')' if depth == 1 => {
                found.extend(begin.map(|begin| (begin, &code[begin..offset])));
                break;
            }
            _ => {}
        }
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if previous == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        previous = character;
    }
    let trimmed =
        |(offset, parameter): (usize, &'_ str)| offset + parameter.len() - parameter.trim_start().len();
    found.into_iter().map(|found| (trimmed(found), found.1.trim())).collect()
}

/// Whether a parameter is a pattern of several values. The argument of a pattern, as in
/// `Path((id, port)): Path<(String, u16)>`, is not a parameter.
fn is_tuple(parameter: &str) -> bool {
    let mut depth = 0;
    let end = parameter.char_indices().find(|(_, character)| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    parameter.starts_with('(')
        && end.is_some_and(|(end, _)| parameter[end + 1..].trim_start().starts_with(':'))
}

/// Whether `line` is prose in a comment of its own that is too wide: diagrams, tables and code
/// cannot be wrapped.
fn is_wide_comment(line: &str) -> bool {
    let Some(text) = line.trim_start().strip_prefix("//") else { return false };
    let text = text.trim_start_matches(['/', '!']);
    let is_drawn = text.contains(['─', '▶', '│', '└', '┌']) || text.trim_start().starts_with('|');
    let is_aligned = text.trim().contains("  ");
    let is_code = text.contains(';') && text.contains(['(', '{']) || text.trim_start().starts_with('"');
    line.chars().count() > MAX_COMMENT_COLUMNS && !is_drawn && !is_aligned && !is_code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(files: &[(&str, &str)]) -> Vec<String> {
        let mut names = Names::new();
        for (file, content) in files {
            names.add(file, content);
        }
        names.into_hits()
    }

    #[test]
    fn third_definition_is_reported() {
        let place = "pub(crate) struct Place;\n";
        assert_eq!(hits(&[("a.rs", place), ("b.rs", place)]), Vec::<String>::new());
        let found = hits(&[("a.rs", place), ("b.rs", place), ("c.rs", "enum Place {}\n// struct Place;\n")]);
        assert_eq!(found, ["3 definitions of `Place`: a.rs:1, b.rs:1, c.rs:1"]);
        let error = "pub enum Error {}\n";
        assert_eq!(hits(&[("a.rs", error), ("b.rs", error), ("c.rs", error)]), Vec::<String>::new());
    }

    #[test]
    fn long_test_name_is_reported() {
        let named = |length: usize| format!("#[test]\nfn {}() {{}}\n", "x".repeat(length));
        assert_eq!(hits(&[("a.rs", &named(60))]), Vec::<String>::new());
        assert_eq!(hits(&[("a.rs", &named(61))]).len(), 1);
        let other = named(61).replace("#[test]\n", "");
        assert_eq!(hits(&[("a.rs", &other)]), Vec::<String>::new());
    }

    #[test]
    fn tuple_parameter_is_reported() {
        let tuple = "fn read(run: &Run, (cursor, next): (u64, u64)) {}\n";
        assert_eq!(hits(&[("a.rs", tuple)]), ["a.rs:1: a tuple as a parameter: write a struct"]);
        let generic =
            "fn bind<T: Fn(u8) -> u8>(\n    (a, b): (T, [u8; 2]),\n    (Of(c), d): (Of<u8>, u8),\n) {}\n";
        let found = hits(&[("a.rs", generic)]);
        assert_eq!(found.iter().map(|hit| &hit[..6]).collect::<Vec<_>>(), ["a.rs:2", "a.rs:3"]);
        let others = "fn read(pair: Pair) { let (a, b): (u8, u8) = pair.split(|(a, b)| a); }\n\
            fn of(x: (u8, u8), Path((id, port)): Path<(String, u16)>) {}\n";
        assert_eq!(hits(&[("a.rs", others)]), Vec::<String>::new());
    }

    #[test]
    fn wide_comment_is_reported() {
        let prose = format!("    /// {}\n", "word ".repeat(20));
        assert_eq!(hits(&[("a.rs", &prose)]), ["a.rs:1: comment of 108 columns: wrap it at 100"]);
        let drawn = format!("//! a ─▶ b{}\n", " word".repeat(20));
        assert_eq!(hits(&[("a.rs", &drawn)]), Vec::<String>::new());
    }
}
