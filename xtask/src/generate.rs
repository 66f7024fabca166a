//! The generated files of `spec/`, written by the command line itself, and the tables of the pages:
//! committed, and compared in every test run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, conformance, root, setup, step, test};

/// Writes the tables of the pages, the generated files into `spec/`, the types that the TypeScript
/// client has from there, and its reference.
pub(crate) fn write() -> Result {
    conformance::write()?;
    let directory = root().join("spec");
    fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    generate_into(&directory)?;
    if let Err(reason) = setup::node() {
        println!("typescript/src/openapi.ts and spec/typescript.md are not written: {reason}");
        return Ok(());
    }
    setup::typescript_packages()?;
    step::run(setup::npm(&["run", "--silent", "generate"]))?;
    step::run(setup::npm(&["run", "--silent", "reference"]))
}

/// Fails if a committed generated file is not what would be generated now.
pub(crate) fn check() -> Result {
    conformance::check()?;
    let directory = root().join("target/xtask/generated");
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .map_err(|error| format!("cannot clear {}: {error}", directory.display()))?;
    }
    fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    generate_into(&directory)?;
    let generated = files(&directory)?;
    if generated.is_empty() {
        return Err("`sandtimer generate` wrote no file".to_owned());
    }
    let wrong = differences(&files(&root().join("spec"))?, &generated);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nrun `cargo xtask generate` and commit the result", wrong.join("\n")))
}

fn generate_into(directory: &Path) -> Result {
    test::build()?;
    let mut command = step::command(&setup::binary().to_string_lossy(), &["generate", "--dir"]);
    command.arg(directory);
    step::run(command)
        .map_err(|error| format!("{error}; `sandtimer generate --dir DIR` has to write the generated files"))
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Every file below `directory`, by its path from there. Empty if the directory does not exist.
fn files(directory: &Path) -> Result<Files> {
    let mut found = Files::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        if !next.exists() {
            continue;
        }
        let failed = |error| format!("cannot read {}: {error}", next.display());
        for entry in fs::read_dir(&next).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let content = fs::read(&path).map_err(failed)?;
                found.insert(path.strip_prefix(directory).unwrap_or(&path).to_owned(), content);
            }
        }
    }
    Ok(found)
}

/// One line for each file that differs, is missing, or is left over in a directory that is
/// generated.
fn differences(committed: &Files, generated: &Files) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, content) in generated {
        let path_shown = path.display();
        match committed.get(path) {
            None => wrong.push(format!("spec/{path_shown}: missing")),
            Some(found) if found != content => {
                let (found, content) = (String::from_utf8_lossy(found), String::from_utf8_lossy(content));
                let same = found
                    .lines()
                    .zip(content.lines())
                    .take_while(|(found, content)| found == content)
                    .count();
                let line = |text: &str| text.lines().nth(same).unwrap_or("end of file").to_owned();
                let (found, content) = (line(&found), line(&content));
                let number = same + 1;
                wrong.push(format!("spec/{path_shown}:{number}: committed `{found}`, generated `{content}`"));
            }
            Some(_) => {}
        }
    }
    // The other files at the top of spec/ are written by hand.
    let generated_directory = |path: &Path| {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        parent.is_some_and(|parent| generated.keys().any(|other| other.parent() == Some(parent)))
    };
    for path in committed.keys().filter(|path| generated_directory(path) && !generated.contains_key(*path)) {
        wrong.push(format!("spec/{}: no longer generated", path.display()));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, content)| (PathBuf::from(path), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn differing_missing_and_left_over_files_are_each_named() {
        let generated = tree(&[("man/sandtimer.1", "a\nb\n"), ("config.md", "x\n"), ("new.md", "n\n")]);
        let committed = tree(&[
            ("man/sandtimer.1", "a\nc\n"),
            ("man/old.1", "o\n"),
            ("config.md", "x\n"),
            ("README.md", "by hand\n"),
            ("conformance/case.json", "by hand\n"),
        ]);
        assert_eq!(
            differences(&committed, &generated),
            [
                "spec/man/sandtimer.1:2: committed `c`, generated `b`",
                "spec/new.md: missing",
                "spec/man/old.1: no longer generated",
            ]
        );
        assert!(differences(&generated, &generated).is_empty());
    }

    #[test]
    fn a_file_that_only_ends_sooner_differs() {
        let wrong = differences(&tree(&[("a", "x\n")]), &tree(&[("a", "x\ny\n")]));
        assert_eq!(wrong, ["spec/a:2: committed `end of file`, generated `y`"]);
    }
}
