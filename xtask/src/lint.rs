//! `cargo xtask lint`: the words of the project's texts and names, and the subjects of commits.
//!
//! `xtask/words.toml` has the banned words, their replacements, and the files that are checked.
//! Documents are checked without their code; files of Python and TypeScript by their docstrings,
//! comments and messages; files of Rust by their strings, which are messages, help texts and
//! descriptions, and some by their identifiers.

mod comments;
mod commits;
mod markdown;
mod names;
mod rust_messages;
mod words;

use std::fs;
use std::path::Path;

use comments::CommentLanguage;
pub(crate) use commits::check as commits;
use words::{WordList, WordScope};

use crate::module_arrows::code_only;
use crate::{Result, root};

/// Fails if a checked file has a banned word, and lists all of them.
pub(crate) fn words() -> Result {
    let hits = check(&root())?;
    if hits.is_empty() { Ok(()) } else { Err(hits.join("\n")) }
}

/// Returns each hit as `file:line: "word" (scope): write …`.
fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join("xtask/words.toml");
    let list = WordList::read(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut hits = Vec::new();
    for (scope, patterns) in
        [(WordScope::Prose, &list.files.prose), (WordScope::Identifiers, &list.files.identifiers)]
    {
        for pattern in patterns {
            let files = files_of(root, pattern)?;
            if files.is_empty() {
                return Err(format!("{}: `{pattern}` names no file", path.display()));
            }
            for file in files.into_iter().filter(|file| !is_test(file)) {
                let content = read(&root.join(&file))?;
                hits.extend(check_file(&list, scope, &file, &content));
            }
        }
    }
    let mut names = names::Names::new();
    for pattern in RUST {
        for file in files_of(root, pattern)? {
            names.add(&file, &read(&root.join(&file))?);
        }
    }
    hits.extend(names.into_hits());
    Ok(hits)
}

/// All files of Rust.
const RUST: [&str; 3] = ["crates/**/*.rs", "tests/**/*.rs", "xtask/**/*.rs"];

/// The files that a path, or a pattern such as `docs/**/*.md`, names below `root`.
fn files_of(root: &Path, pattern: &str) -> Result<Vec<String>> {
    let Some((directory, extension)) = pattern.split_once("/**/*.") else {
        return Ok(vec![pattern.to_owned()]);
    };
    let mut files = Vec::new();
    let mut open = vec![root.join(directory)];
    while let Some(path) = open.pop() {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        if path.is_dir() {
            for entry in fs::read_dir(&path).map_err(failed)? {
                open.push(entry.map_err(failed)?.path());
            }
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file below `src` has only tests, whose strings no user reads.
fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/") || file.contains("/conformance")
}

/// Whether clap prints the doc comments of a file.
fn is_help(file: &str) -> bool {
    file.starts_with("crates/sandtimer-cli/src/args")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn check_file(list: &WordList, scope: WordScope, file: &str, content: &str) -> Vec<String> {
    let (text, mut hits);
    match scope {
        WordScope::Prose => {
            text = match CommentLanguage::of(file) {
                Some(language) => comments::prose_only(language, content),
                None if file.ends_with(".rs") => rust_messages::prose_only(content, is_help(file)),
                None => markdown::prose_only(content),
            };
            hits = list.in_prose(file, &text);
        }
        WordScope::Identifiers => {
            text = match CommentLanguage::of(file) {
                Some(language) => comments::code_only(language, content),
                None => code_only(content),
            };
            hits = list.in_identifiers(file, &text);
        }
    }
    hits.sort_by_key(|hit| hit.offset);
    let shown = hits.into_iter().map(|hit| {
        let line = text[..hit.offset].matches('\n').count() + 1;
        format!("{file}:{line}: \"{}\" ({scope}): write {}", hit.word, hit.replacement)
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(scope: WordScope, file: &str, content: &str) -> Vec<String> {
        let list = WordList::read(include_str!("../words.toml")).expect("valid");
        check_file(&list, scope, file, content)
    }

    #[test]
    fn repository_has_no_hits() {
        let hits = check(&root()).expect("readable");
        assert!(hits.is_empty(), "{}", hits.join("\n"));
    }

    #[test]
    fn planted_word_of_prose_is_reported() {
        let page = "# Title\n\nA run that nobody waits for\ngoes\non, and `nobody` is code.\n";
        let found = hits(WordScope::Prose, "docs/planted.md", page);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/planted.md:3: \"nobody\" (prose): write "), "{found:?}");
        assert!(found[1].starts_with("docs/planted.md:4: \"goes on\" (prose): write "), "{found:?}");
    }

    #[test]
    fn planted_word_of_a_comment_is_reported() {
        for (file, content) in [
            (
                "python/planted.py",
                "a = \"nobody\"\n\"\"\"A run\nthat `nobody` and nobody awaits.\n\n>>> nobody\n\"\"\"\n",
            ),
            (
                "typescript/planted.ts",
                "const a = \"nobody\";\n/**\n * A run that `nobody` and nobody awaits.\n */\n",
            ),
        ] {
            let found = hits(WordScope::Prose, file, content);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{file}:3: \"nobody\" (prose): write ")), "{found:?}");
        }
    }

    #[test]
    fn planted_word_of_a_message_is_reported() {
        for (file, code) in [
            ("python/planted.py", "b = 1\nraise ValueError(f\"{b} that `nobody` and nobody awaits\")\n"),
            ("typescript/planted.ts", "b();\nthrow new Error(`${b} that nobody awaits`);\n"),
        ] {
            let found = hits(WordScope::Prose, file, code);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{file}:2: \"nobody\" (prose): write ")), "{found:?}");
        }
        let code = "// Nobody.\nlet a = (\"nobody\", \"a run that `nobody` and nobody awaits\");\n/// Nobody awaits it\n";
        let found = hits(WordScope::Prose, "crates/planted.rs", code);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/planted.rs:2: \"nobody\" (prose): write "), "{found:?}");
        assert_eq!(hits(WordScope::Prose, "crates/sandtimer-cli/src/args/planted.rs", code).len(), 2);
    }

    #[test]
    fn planted_identifier_is_reported() {
        let code = "/// “Nobody”, row, told: …\nfn told_owner(rows: u8) -> &'static str {\n    \"bell\"\n}\nstruct TellOwner;\nconst MOST_RUNS: u8 = 1;\n";
        let found = hits(WordScope::Identifiers, "crates/sandtimer/src/planted.rs", code);
        let lines = ["2: \"rows\"", "2: \"told_owner\"", "5: \"TellOwner\"", "6: \"MOST_RUNS\""];
        assert_eq!(found.len(), lines.len(), "{found:?}");
        for line in lines {
            let start = format!("crates/sandtimer/src/planted.rs:{line} (identifiers): write ");
            assert!(found.iter().any(|hit| hit.starts_with(&start)), "{start}: {found:?}");
        }
    }

    #[test]
    fn planted_identifier_of_python_is_reported() {
        let code = "\"\"\"A row that is told.\"\"\"\n\n\ndef told_owner(rows):  # told\n    return f(\"bell\", most=rows)\n";
        let found = hits(WordScope::Identifiers, "python/sandtimer/planted.py", code);
        let lines = ["4: \"told_owner\"", "4: \"rows\"", "5: \"rows\""];
        assert_eq!(found.len(), lines.len(), "{found:?}");
        for (hit, line) in found.iter().zip(lines) {
            let start = format!("python/sandtimer/planted.py:{line} (identifiers): write ");
            assert!(hit.starts_with(&start), "{found:?}");
        }
    }

    #[test]
    fn name_is_allowed_in_its_files_only() {
        for (file, count) in [("python/sandtimer/sandbox/_fork.py", 0), ("python/sandtimer/planted.py", 1)] {
            assert_eq!(hits(WordScope::Identifiers, file, "native.shelve(1)\n").len(), count, "{file}");
        }
    }

    #[test]
    fn ambiguous_words_are_allowed_in_prose() {
        let page = "A look at the order of the rows: each word has its place, and the rest is silence.\n";
        assert_eq!(hits(WordScope::Prose, "docs/planted.md", page), Vec::<String>::new());
    }
}
