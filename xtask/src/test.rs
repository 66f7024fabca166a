//! `cargo xtask test`: everything a change must pass, what fails soonest first.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::flaky::FlakyTests;
use crate::{Result, compat, deps, docs, generate, lint, root, setup, step};

/// What `cargo xtask lint` runs after its check of words.
pub(crate) const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];

pub(crate) fn run() -> Result {
    let start = Instant::now();
    let mut flaky = FlakyTests::default();
    step::timed("words", lint::words)?;
    step::timed("system packages", setup::system_packages)?;
    step::timed("tools", setup::tools)?;
    step::timed("formatting", || step::cargo(&["fmt", "--all", "--check"]))?;
    step::timed("arrows between crates and modules", deps)?;
    // The one waits for registries, mostly, and the other for the processors.
    thread::scope(|scope| {
        let preparing = scope.spawn(prepare);
        compile().and(preparing.join().expect("a step fails by its result"))
    })?;
    step::timed("tests", || tests(&mut flaky))?;
    step::timed("documentation tests", || step::run(with_python(&["test", "--workspace", "--doc"])))?;
    python_with(&mut flaky)?;
    typescript_with(&mut flaky)?;
    step::timed("generated files", generate::check)?;
    flaky.report()?;
    println!("== all steps: ok, {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn compile() -> Result {
    step::timed("clippy", || step::cargo(CLIPPY))?;
    step::timed("build", build)
}

/// What needs nothing that is compiled.
fn prepare() -> Result {
    step::timed("python environment", setup::python_environment)?;
    step::timed("npm packages", compat::packages)?;
    documentation_site()
}

/// Builds the site, with every warning as an error, and tests that its faults are found.
fn documentation_site() -> Result {
    if let Err(reason) = docs::supported() {
        println!("== documentation site: SKIPPED: {reason}");
        return Ok(());
    }
    step::timed("documentation site", docs::build)?;
    step::timed("tests of the documentation site", docs::test)
}

fn tests(flaky: &mut FlakyTests) -> Result {
    if step::succeeds(&["cargo", "nextest", "--version"]) {
        return flaky.nextest(with_python(&["nextest", "run", "--workspace"]));
    }
    println!("cargo-nextest is not installed: no hard stop per test; `cargo install --locked cargo-nextest`");
    step::run(with_python(&["test", "--workspace", "--lib", "--bins", "--tests"]))
}

/// Cargo with the binary that was built and the prepared Python and npm packages named to the
/// tests.
pub(crate) fn with_python(arguments: &[&str]) -> Command {
    let mut command = step::command("cargo", arguments);
    let (name, modules) = compat::variable();
    command.env("SANDTIMER_BIN", setup::binary());
    command.env("SANDTIMER_TEST_PYTHON", setup::python(&root())).env(name, modules);
    command
}

/// What `cargo xtask python` runs: types and tests of the package as it is installed.
pub(crate) fn python() -> Result {
    let mut flaky = FlakyTests::default();
    python_with(&mut flaky)?;
    flaky.report()
}

fn python_with(flaky: &mut FlakyTests) -> Result {
    step::timed("python environment", setup::python_environment)?;
    step::timed("npm packages", compat::packages)?;
    step::timed("command line and Python module", build)?;
    step::timed("python package", setup::python_package)?;
    step::timed("python types", python_types)?;
    step::timed("python tests", || flaky.pytest(|| python_tests(&setup::binary())))
}

fn python_types() -> Result {
    let check = ["-m", "mypy", "--config-file", "python/pyproject.toml", "--cache-dir", "target/mypy"];
    step::run(setup::in_environment(&[&check[..], &["python/sandtimer"]].concat()))
}

/// The tests of the installed Python package, with `binary` as the command.
pub(crate) fn python_tests(binary: &Path) -> Command {
    let mut command = setup::in_environment(&["-m", "pytest", "python/tests"]);
    let (name, modules) = compat::variable();
    command.env("SANDTIMER_BIN", binary).env(name, modules);
    command
}

/// The whole workspace always: a part of it has other features, and would be built once more.
pub(crate) fn build() -> Result {
    step::cargo(&["build", "--workspace"])
}

/// What `cargo xtask typescript` runs: generated types, types and tests of the client, its examples
/// among them.
pub(crate) fn typescript() -> Result {
    let mut flaky = FlakyTests::default();
    typescript_with(&mut flaky)?;
    flaky.report()
}

fn typescript_with(flaky: &mut FlakyTests) -> Result {
    if let Err(reason) = setup::node() {
        println!("== typescript: SKIPPED: {reason}");
        return Ok(());
    }
    step::timed("typescript packages", setup::typescript_packages)?;
    step::timed("command line", build)?;
    step::timed("typescript generated types", || {
        step::run(setup::npm(&["run", "--silent", "generate:check"]))
    })?;
    step::timed("typescript tests", || flaky.node(&setup::binary()))
}
