//! The documentation site: MkDocs builds it from `docs/` and `mkdocs.yml` into `target/site`.
//!
//! Every warning is an error: a broken link or anchor, and a page without a place in the
//! navigation.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use crate::{Result, setup, step};

/// Set while the site has the documentation of the Rust library: its guide then links to it
/// (docs/hooks.py).
const WITH_RUST: &str = "SANDTIMER_SITE_WITH_RUST";

/// The minor version of Python 3 that the pinned packages of the site need.
const MIN_PYTHON_MINOR: u32 = 11;

/// Builds the site.
pub(crate) fn build() -> Result {
    pages(false)?;
    println!("target/site/index.html");
    Ok(())
}

/// Builds the site, and the documentation of the Rust library below `rust/`.
pub(crate) fn build_with_rust() -> Result {
    pages(true)?;
    let built = setup::target().join("doc");
    // Documentation of other crates, from other calls of cargo.
    match fs::remove_dir_all(&built) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", built.display()));
        }
        _ => {}
    }
    let mut command = step::command("cargo", &["doc", "--no-deps", "--package", "sandtimer"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    step::run(command)?;
    step::run(step::command("cp", &["-R", &built.to_string_lossy(), "target/site/rust"]))?;
    println!("target/site/index.html, target/site/rust/sandtimer/index.html");
    Ok(())
}

fn pages(with_rust: bool) -> Result {
    supported()?;
    setup::SITE.prepare()?;
    // Not with `--quiet`: the warnings that it hides are not counted either.
    let mut command = mkdocs(&["-m", "mkdocs", "build", "--strict"]);
    command.env_remove(WITH_RUST);
    if with_rust {
        command.env(WITH_RUST, "1");
    }
    step::run(command)
}

/// Tests that a fault in a page fails the build.
pub(crate) fn test() -> Result {
    setup::SITE.prepare()?;
    step::run(mkdocs(&["-m", "unittest", "--failfast", "docs/test_site.py"]))
}

/// Fails, with the reason, if this machine's Python cannot build the site.
pub(crate) fn supported() -> Result {
    let version =
        step::output(step::command("python3", &["-c", "import platform; print(platform.python_version())"]))?;
    supports_site(&version)
}

fn mkdocs(arguments: &[&str]) -> Command {
    let mut command = setup::SITE.command(arguments);
    // The theme prints news of its project otherwise.
    command.env("NO_MKDOCS_2_WARNING", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn supports_site(version: &str) -> Result {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (parts.next(), parts.next()) >= (Some(3), Some(MIN_PYTHON_MINOR)) {
        return Ok(());
    }
    Err(format!("the documentation site needs Python 3.{MIN_PYTHON_MINOR} or later; `python3` is {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_python_is_rejected_with_its_version() {
        for version in ["3.11.0", "3.14.2", "3.15.0rc1", "4.0.1"] {
            assert_eq!(supports_site(version), Ok(()));
        }
        for version in ["3.9.18", "3.10.4", "2.7.18"] {
            let error = supports_site(version).unwrap_err();
            assert!(error.contains("3.11 or later") && error.contains(version), "{error}");
        }
    }
}
