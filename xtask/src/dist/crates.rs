//! The crates as they would be published: each archive is made, from committed files, and has all
//! that its code includes.

use crate::{Result, step};

/// The members of the workspace that are not for crates.io.
const PRIVATE: [&str; 3] = ["sandtimer-py", "sandtimer-tests", "xtask"];

/// Makes the archives of all crates in `target/package`, without building them: the source
/// distribution is built from the same files.
pub(super) fn package() -> Result {
    let exclude = PRIVATE.iter().flat_map(|name| ["--exclude", name]);
    let arguments: Vec<&str> = ["package", "--workspace", "--locked", "--no-verify", "--allow-dirty"]
        .into_iter()
        .chain(exclude)
        .collect();
    reject_warnings(&step::report(step::command("cargo", &arguments))?)
}

/// Fails if cargo had something to object to.
fn reject_warnings(report: &str) -> Result {
    println!("{}", report.trim_end());
    match report.lines().find(|line| line.trim_start().starts_with("warning")) {
        Some(line) => Err(format!("`cargo package` is not clean: {line}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_of_cargo_is_an_error() {
        assert_eq!(reject_warnings("   Packaging sandtimer v0.1.0\n    Packaged 3 files\n"), Ok(()));
        let error = reject_warnings("warning: manifest has no description\n").unwrap_err();
        assert!(error.contains("no description"), "{error}");
    }
}
