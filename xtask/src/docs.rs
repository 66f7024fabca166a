//! The documentation site: MkDocs builds it from `docs/` and `mkdocs.yml` into `target/site`.
//!
//! Every warning is an error there: a broken link or anchor, and a page without a place in the navigation.

use crate::{Result, setup, step};

/// The minor version of Python 3 that the pinned packages of the site need.
const MIN_PYTHON_MINOR: u32 = 11;

/// Builds the site.
pub(crate) fn build() -> Result {
    supported()?;
    setup::SITE.prepare()?;
    // Not with `--quiet`: the warnings that it hides are not counted either.
    mkdocs(&["-m", "mkdocs", "build", "--strict"])?;
    println!("target/site/index.html");
    Ok(())
}

/// Tests that a fault in a page fails the build.
pub(crate) fn test() -> Result {
    setup::SITE.prepare()?;
    mkdocs(&["-m", "unittest", "--failfast", "docs/test_site.py"])
}

/// Fails, with the reason, if this machine's Python cannot build the site.
pub(crate) fn supported() -> Result {
    let version =
        step::output(step::command("python3", &["-c", "import platform; print(platform.python_version())"]))?;
    supports_site(&version)
}

fn mkdocs(arguments: &[&str]) -> Result {
    let mut command = setup::SITE.command(arguments);
    // The theme prints news of its project otherwise.
    command.env("NO_MKDOCS_2_WARNING", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    step::run(command)
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
