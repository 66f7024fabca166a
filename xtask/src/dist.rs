//! `cargo xtask dist`: the files of a release, in `target/dist`, and how they are checked and
//! rehearsed.
//!
//! A wheel has the Python module and the command `sandtimer`, so that one `pip install` brings
//! both. Everything native is linked against the oldest glibc that Rust supports. Nothing here
//! uploads anything to a public registry.

mod archive;
mod crates;
mod npm;
mod readme;
mod rehearsal;
mod roots;
mod suites;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use rehearsal::run as rehearse;
pub(crate) use suites::run as test;

use crate::setup::{self, PythonEnvironment};
use crate::{Result, root, step};

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The tools that build, check and serve packages.
const TOOLS: PythonEnvironment =
    PythonEnvironment::new("target/dist-python", "packaging/dist/requirements.txt");

/// The files of a release.
struct Release {
    directory: PathBuf,
}

impl Release {
    fn new() -> Self {
        Self { directory: root().join("target/dist") }
    }

    /// Its Python tags: every CPython from 3.9 on, and every Linux with glibc 2.17 or later.
    fn wheel(&self) -> PathBuf {
        let tags = "cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64";
        self.directory.join(format!("sandtimer-{VERSION}-{tags}.whl"))
    }

    fn source(&self) -> PathBuf {
        self.directory.join(format!("sandtimer-{VERSION}.tar.gz"))
    }

    fn archive(&self) -> PathBuf {
        self.directory.join(format!("{}.tar.gz", archive::NAME))
    }

    fn npm(&self) -> PathBuf {
        self.directory.join(format!("sandtimer-{VERSION}.tgz"))
    }

    /// The sums of the others, as `sha256sum --check` reads them.
    fn sums(&self) -> PathBuf {
        self.directory.join("SHA256SUMS")
    }

    fn packages(&self) -> [PathBuf; 4] {
        [self.wheel(), self.source(), self.archive(), self.npm()]
    }

    /// Fails if a file is missing, with the command that makes it.
    fn require(&self) -> Result {
        let missing = self.packages().into_iter().chain([self.sums()]).find(|path| !path.is_file());
        let Some(path) = missing else { return Ok(()) };
        Err(format!("{} does not exist: run `cargo xtask dist` first", path.display()))
    }
}

/// Builds and checks all files of a release.
pub(crate) fn build() -> Result {
    let release = Release::new();
    step::timed("tools", setup::tools)?;
    step::timed("packaging tools", || TOOLS.prepare())?;
    clear(&release.directory)?;
    step::timed("crates", crates::package)?;
    step::timed("npm package", || npm::pack(&release))?;
    step::timed("command", wheel::build_command)?;
    step::timed("archive", || archive::build(&release))?;
    step::timed("source distribution and wheel", || wheel::build(&release))?;
    step::timed("checks", || wheel::check(&release))?;
    sum(&release)?;
    for path in release.packages() {
        println!("{:>10} bytes  {}", size(&path)?, path.display());
    }
    Ok(())
}

/// Writes the sums of the packages.
fn sum(release: &Release) -> Result {
    let mut command = step::command("sha256sum", &[]);
    command.current_dir(&release.directory);
    command.args(release.packages().iter().filter_map(|path| path.file_name()));
    write(&release.sums(), &(step::output(command)? + "\n"))
}

/// The time of the last commit in seconds since the epoch.
fn commit_time() -> Result<String> {
    step::output(step::command("git", &["log", "-1", "--format=%ct"]))
}

/// Makes `directory`, empty.
pub(crate) fn clear(directory: &Path) -> Result {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .map_err(|error| format!("cannot clear {}: {error}", directory.display()))?;
    }
    make(directory)
}

fn make(directory: &Path) -> Result {
    fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result {
    if let Some(directory) = to.parent() {
        make(directory)?;
    }
    let copied = fs::copy(from, to);
    copied.map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))?;
    Ok(())
}

fn size(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_package_is_reported_with_remedy() {
        let release = Release { directory: "/nonexistent".into() };
        let error = release.require().unwrap_err();
        assert!(error.contains("/nonexistent/sandtimer-") && error.contains("cargo xtask dist"), "{error}");
    }

    #[test]
    fn versions_of_all_packages_are_equal() {
        let package = fs::read_to_string(root().join("typescript/package.json")).expect("readable");
        assert!(package.contains(&format!("\"version\": \"{VERSION}\"")), "typescript/package.json");
        let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("readable");
        let members = workspace.matches("{ path = \"crates/").count();
        let versioned = workspace.lines().filter(|line| {
            line.contains("{ path = \"crates/") && line.contains(&format!("version = \"{VERSION}\""))
        });
        assert_eq!(versioned.count(), members, "Cargo.toml");
    }
}
