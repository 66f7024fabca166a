//! Which module of the engine may use which: only those to its left.
//!
//! Read from the source text, not from the compiler. So a path is only understood where it begins
//! at the root of the crate, by `crate::` or by as many `super::` as lead there, and a name there
//! must be a module's: a re-export would hide where a thing comes from.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// The order of the modules, from left to right. Those of one group may use each other.
const MODULE_GROUPS: &[&[&str]] = &[
    &["model", "error", "script", "vocabulary"],
    &["limits"],
    &["time", "scope"],
    &["isolate"],
    &["supervise"],
    &["zygote"],
    &["context", "session"],
    &["progress"],
    &["engine"],
];

/// Every use that is against the order, as `file:line: …`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let source = root.join("crates/sandtimer/src");
    let mut wrong = Vec::new();
    for path in source_files(&source)? {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        let content = fs::read_to_string(&path).map_err(failed)?;
        let module = module_path(path.strip_prefix(&source).unwrap_or(&path));
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let found = check_file(&module, &content).into_iter();
        wrong.extend(found.map(|(line, message)| format!("{shown}:{line}: {message}")));
    }
    wrong.sort();
    Ok(wrong)
}

/// The files of Rust below a directory.
pub(crate) fn source_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        if path.is_dir() {
            for entry in fs::read_dir(&path).map_err(failed)? {
                open.push(entry.map_err(failed)?.path());
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// `supervise/output.rs` is the module `supervise::output`; lib.rs is the crate itself.
pub(crate) fn module_path(file: &Path) -> Vec<String> {
    let stem: PathBuf = file.with_extension("");
    let names = stem.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !matches!(name.as_str(), "lib" | "main" | "mod")).collect()
}

fn group_index(module: &str) -> Option<usize> {
    MODULE_GROUPS.iter().position(|group| group.contains(&module))
}

fn check_file(module: &[String], content: &str) -> Vec<(usize, String)> {
    let Some(own) = module.first() else { return Vec::new() };
    let Some(own_index) = group_index(own) else {
        return vec![(
            1,
            format!("module `{own}` has no place in the order: add it to ORDER in {}", file!()),
        )];
    };
    let code = code_only(content);
    let mut wrong = Vec::new();
    for (offset, name) in root_names(&code, module) {
        let line = code[..offset].matches('\n').count() + 1;
        match group_index(&name) {
            Some(other) if other <= own_index => {}
            Some(_) => {
                let left: Vec<&str> = MODULE_GROUPS[..=own_index].concat();
                wrong.push((line, format!("`{own}` uses `{name}`; it may use only {}", left.join(", "))));
            }
            None => {
                wrong.push((line, format!("`crate::{name}` is not a module: name the module it comes from")))
            }
        }
    }
    wrong
}

/// The names taken from the root of the crate, with their offsets.
fn root_names(code: &str, module: &[String]) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (offset, _) in code.match_indices("crate") {
        if let Some(rest) = path_after(code, offset, "crate") {
            found.extend(names_at(code, rest));
        }
    }
    // In an inline module the same path leads to the file's own module, so only names of modules
    // count here.
    let upwards = vec!["super"; module.len()].join("::");
    for (offset, _) in code.match_indices(&upwards) {
        let continues_above = code[..offset].ends_with("super::");
        if let (false, Some(rest)) = (continues_above, path_after(code, offset, &upwards)) {
            found.extend(names_at(code, rest).into_iter().filter(|(_, name)| group_index(name).is_some()));
        }
    }
    found
}

/// Where the path continues if `prefix::` is at `offset` as a whole word. A `$` before it is a
/// macro's `$crate`.
fn path_after(code: &str, offset: usize, prefix: &str) -> Option<usize> {
    let whole = !code[..offset].ends_with(|before: char| is_name(before) || before == ':');
    let rest = code[offset + prefix.len()..].trim_start().strip_prefix("::")?.trim_start();
    whole.then_some(code.len() - rest.len())
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn name_at(code: &str, offset: usize) -> Option<(usize, String)> {
    let name: String = code[offset..].chars().take_while(|character| is_name(*character)).collect();
    (!name.is_empty()).then_some((offset, name))
}

/// The name at `offset`, or the first name of each path in the braces there.
fn names_at(code: &str, offset: usize) -> Vec<(usize, String)> {
    if !code[offset..].starts_with('{') {
        return name_at(code, offset).into_iter().collect();
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut at_start = false;
    for (index, character) in code[offset..].char_indices() {
        match character {
            '{' => {
                depth += 1;
                at_start = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => at_start = depth == 1,
            _ if character.is_whitespace() => {}
            _ => {
                if at_start {
                    names.extend(name_at(code, offset + index));
                }
                at_start = false;
            }
        }
    }
    names
}

/// `source` with comments and literals made blank; every line keeps its number.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let blank = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' if !code.ends_with(is_name) => raw_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        let (taken, after) = rest.split_at(if blank > 0 { blank } else { first.len_utf8() });
        if blank > 0 {
            code.extend(taken.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(taken);
        }
        rest = after;
    }
    code
}

/// The length of the nested comment at the start of `rest`.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string literal at the start of `rest`.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (index, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of the raw string at the start of `rest`, or 0: `r` also begins names, and `r#` raw
/// ones.
fn raw_string(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|character| *character == '#').count();
    let content = 1 + hashes + 1;
    if rest.as_bytes().get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    rest[content..].find(&end).map_or(rest.len(), |index| content + index + end.len())
}

/// The length of the character literal at the start of `rest`, or 0: a quote also begins a
/// lifetime.
fn character(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            characters.find(|(_, next)| *next == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => characters.next().filter(|(_, next)| *next == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(file: &str, content: &str) -> Vec<usize> {
        check_file(&module_path(Path::new(file)), content).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn modules_use_only_those_to_their_left() {
        assert!(
            wrong("supervise/output.rs", "use crate::model::Encoding;\nuse crate::supervise::ending;")
                .is_empty()
        );
        assert!(wrong("model.rs", "use crate::error::Error;").is_empty());
        assert_eq!(wrong("limits.rs", "\n\nuse crate::engine::Engine;"), [3]);
        assert_eq!(wrong("limits/parse.rs", "fn f() { crate::engine::x() }"), [1]);
        assert!(wrong("lib.rs", "pub use crate::engine::Engine;").is_empty());
    }

    #[test]
    fn groups_of_imports_are_read_name_by_name() {
        let content = "use crate::{\n    model::{self, task},\n    engine::{Engine},\n    limits,\n};";
        assert_eq!(wrong("isolate.rs", content), [3]);
    }

    #[test]
    fn the_root_is_also_reached_by_super() {
        assert_eq!(wrong("limits.rs", "use super::engine::Engine;"), [1]);
        assert_eq!(wrong("isolate/plan.rs", "use super::super::engine;\nuse super::engine;"), [1]);
        assert!(wrong("isolate/plan/tests.rs", "use super::super::engine;").is_empty());
        assert!(wrong("limits.rs", "mod tests { use super::*; use super::parse; }").is_empty());
    }

    #[test]
    fn unknown_modules_and_names_are_rejected() {
        assert_eq!(wrong("limits.rs", "use crate::Outcome;"), [1]);
        assert_eq!(wrong("surprise.rs", ""), [1]);
    }

    #[test]
    fn comments_strings_and_longer_names_are_not_uses() {
        let content = r####"
            //! See [`crate::engine`].
            /* crate::engine /* nested */ crate::engine */
            const A: &str = "crate::engine \" crate::engine";
            const B: &str = r#"crate::engine " crate::engine"#;
            const C: char = '"'; const D: char = '\''; const E: char = '\u{22}';
            fn f<'a>(x: &'a str) { other_crate::engine(); other::crate_::engine(); }
            pub(crate) fn g() {}
        "####;
        assert!(wrong("limits.rs", content).is_empty());
        // And what follows all of them is still found.
        assert_eq!(wrong("limits.rs", &format!("{content}\nuse crate::engine;")), [10]);
    }
}
