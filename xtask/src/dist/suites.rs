//! `cargo xtask dist --test`: the suites that test from outside, against the packages of a release.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Release, archive, clear};
use crate::flaky::FlakyTests;
use crate::{Result, compat, root, setup, step, test};

/// Runs the black-box suites, the tests of the Python package and those of the TypeScript client
/// with the released command and wheel.
pub(crate) fn run() -> Result {
    let release = Release::new();
    release.require()?;
    let binary = unpack(&release)?;
    let mut flaky = FlakyTests::default();
    step::timed("system packages", setup::system_packages)?;
    step::timed("python environment", setup::python_environment)?;
    step::timed("npm packages", compat::packages)?;
    step::timed("wheel", || setup::install_wheel(&release.wheel()))?;
    step::timed("command of the wheel", || same_command(&binary))?;
    step::timed("black-box suites", || flaky.nextest(black_box(&binary)))?;
    step::timed("python tests", || flaky.pytest(|| test::python_tests(&binary)))?;
    step::timed("typescript packages", setup::typescript_packages)?;
    step::timed("typescript tests", || flaky.node(&binary))?;
    flaky.report()
}

/// Unpacks the archive and returns its command.
fn unpack(release: &Release) -> Result<PathBuf> {
    let directory = root().join("target/dist-installed");
    clear(&directory)?;
    let mut command = step::command("tar", &["--extract", "--gzip"]);
    command.arg("--file").arg(release.archive()).arg("--directory").arg(&directory);
    step::run(command)?;
    Ok(directory.join(archive::NAME).join("bin/sandtimer"))
}

/// Fails unless pip has installed the archive's command.
fn same_command(binary: &Path) -> Result {
    let installed = setup::python(&root()).with_file_name("sandtimer");
    step::run(step::command("cmp", &[&binary.to_string_lossy(), &installed.to_string_lossy()]))
}

fn black_box(binary: &Path) -> Command {
    let mut command = test::with_python(&["nextest", "run", "--package", "sandtimer-tests"]);
    command.env("SANDTIMER_BIN", binary);
    command
}
