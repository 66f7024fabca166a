//! Tests that fail and pass when they are run once more: each runner's list of them, and how many a
//! run may have.
//!
//! A flaky test is a fault of the product until proven otherwise, so every one is named at the end;
//! a few do not cost the result of the whole run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, root, setup, step};

/// A run with more flaky tests than this fails.
const MAX_FLAKY: usize = 3;

/// Tests of Rust that run at once, for each processor: most of their time they wait for a limit or
/// a process.
const RUST_AT_ONCE: usize = 3;
/// The same for Python, where each test starts interpreters.
const PYTHON_AT_ONCE: usize = 2;

fn at_once(for_each_processor: usize) -> String {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    (for_each_processor * processors).to_string()
}

/// A test that failed and then passed: its name and what it said when it failed.
#[derive(Debug, PartialEq, Eq)]
struct FlakyTest {
    name: String,
    reason: String,
}

/// The flaky tests of one run of all suites.
#[derive(Default)]
pub(crate) struct FlakyTests(Vec<FlakyTest>);

/// A reason that is longer is cut at its front: an assertion and its values come last.
const MAX_REASON_CHARACTERS: usize = 1000;

impl FlakyTests {
    /// Prints the flaky tests; fails if there were more than [`MAX_FLAKY`].
    pub(crate) fn report(&self) -> Result {
        if self.0.is_empty() {
            return Ok(());
        }
        println!("== flaky tests (failed once, passed when repeated): {}", self.0.len());
        for test in &self.0 {
            println!("  {}", test.name);
            test.reason.lines().for_each(|line| println!("    | {line}"));
        }
        if self.0.len() > MAX_FLAKY {
            return Err(format!("{} tests were flaky; at most {MAX_FLAKY} may be", self.0.len()));
        }
        Ok(())
    }

    /// Runs nextest's `command`, which lists its own retries in a JUnit file.
    pub(crate) fn nextest(&mut self, mut command: Command) -> Result {
        command.args(["--retries", "1", "--test-threads", &at_once(RUST_AT_ONCE)]);
        // nextest's own directory, wherever cargo builds.
        let report = root().join("target/nextest/default/junit.xml");
        remove(&report)?;
        step::run(command)?;
        self.add("nextest", test_cases(&report, &["flakyFailure", "flakyError"])?);
        Ok(())
    }

    /// Runs pytest's `command` in several processes; if it ends with failed tests, runs these again
    /// in one.
    pub(crate) fn pytest(&mut self, command: impl Fn() -> Command) -> Result {
        let cache = setup::target().join("pytest");
        let failed = cache.join("v/cache/lastfailed");
        let report = cache.join("junit.xml");
        // What an earlier run left there would be run again.
        remove(&failed)?;
        remove(&report)?;
        let run = |arguments: &[&str]| {
            let mut command = command();
            command.arg("-o").arg(format!("cache_dir={}", cache.display())).args(arguments);
            step::run(command)
        };
        let report_option = format!("--junitxml={}", report.display());
        let Err(message) = run(&["-n", &at_once(PYTHON_AT_ONCE), "--dist", "loadfile", &report_option])
        else {
            return Ok(());
        };
        // What ended before its first test has failed as a whole.
        if !failed.exists() {
            return Err(message);
        }
        let tests = test_cases(&report, &["failure", "error"])?;
        step::timed("failed python tests once more", || {
            run(&["--last-failed", "--last-failed-no-failures", "none"])
        })?;
        self.add("pytest", tests);
        Ok(())
    }

    /// Runs the tests of the TypeScript client against `binary`; if some fail, runs these again.
    pub(crate) fn node(&mut self, binary: &Path) -> Result {
        let report = setup::target().join("node-tests.xml");
        let run = |pattern: Option<String>| {
            let mut command = setup::npm(&["test"]);
            let options = format!(
                "--test-reporter=spec --test-reporter-destination=stdout \
                 --test-reporter=junit --test-reporter-destination={} {}",
                report.display(),
                pattern.map(|pattern| format!("--test-name-pattern={pattern}")).unwrap_or_default()
            );
            command.env("SANDTIMER_BIN", binary).env("TEST_OPTIONS", options);
            step::run(command)
        };
        remove(&report)?;
        let Err(message) = run(None) else { return Ok(()) };
        let tests = test_cases(&report, &["failure", "error"])?;
        if tests.is_empty() {
            return Err(message);
        }
        let patterns: Vec<String> = tests.iter().map(|test| shell_safe_pattern(&test.name)).collect();
        step::timed("failed typescript tests once more", || {
            run(Some(format!("^({})$", patterns.join("|"))))
        })?;
        self.add("node", tests);
        Ok(())
    }

    fn add(&mut self, runner: &str, tests: Vec<FlakyTest>) {
        let named = |test: FlakyTest| FlakyTest { name: format!("{runner}: {}", test.name), ..test };
        self.0.extend(tests.into_iter().map(named));
    }
}

/// A regular expression for `name` without a character that a shell or node's double escaping in
/// JUnit files changes.
fn shell_safe_pattern(name: &str) -> String {
    name.replace("&quot;", "\"")
        .replace("&amp;", "&")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '.' })
        .collect()
}

/// The test cases in a JUnit file that have a child with one of these names.
fn test_cases(report: &Path, children: &[&str]) -> Result<Vec<FlakyTest>> {
    let error = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", report.display());
    let text = fs::read_to_string(report).map_err(|cause| error(&cause))?;
    let document = roxmltree::Document::parse(&text).map_err(|cause| error(&cause))?;
    let test = |case: roxmltree::Node| {
        let failure = case.children().find(|child| children.contains(&child.tag_name().name()))?;
        let class = case.attribute("classname").filter(|class| *class != "test");
        let name = case.attribute("name").unwrap_or_default();
        let name = class.map_or_else(|| name.to_owned(), |class| format!("{class} {name}"));
        Some(FlakyTest { name, reason: reason(failure) })
    };
    Ok(document.descendants().filter(|node| node.has_tag_name("testcase")).filter_map(test).collect())
}

/// What a failure says: its message, without the output of the test.
fn reason(failure: roxmltree::Node) -> String {
    let message = failure.attribute("message").or_else(|| failure.text()).unwrap_or_default().trim();
    let excess = message.chars().count().saturating_sub(MAX_REASON_CHARACTERS);
    message.chars().skip(excess).collect()
}

fn remove(path: &Path) -> Result {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_four_flaky_tests_fails() {
        let test = |index| FlakyTest { name: format!("test {index}"), reason: String::new() };
        let tests = |count: usize| FlakyTests((0..count).map(test).collect());
        assert_eq!(tests(MAX_FLAKY).report(), Ok(()));
        assert_eq!(tests(MAX_FLAKY + 1).report(), Err("4 tests were flaky; at most 3 may be".to_owned()));
    }

    #[test]
    fn test_cases_finds_only_cases_with_the_child() {
        let directory = std::env::temp_dir().join(format!("xtask-junit-{}", std::process::id()));
        let text = r#"<testsuites><testsuite name="suite">
            <testcase name="passes" classname="suite"/>
            <testcase name="flaky" classname="suite"><flakyFailure type="test failure" message="left: 1"/></testcase>
            <testcase name="fails" classname="test"><failure type="test failure"/></testcase>
        </testsuite></testsuites>"#;
        fs::write(&directory, text).unwrap();
        let flaky = test_cases(&directory, &["flakyFailure"]);
        let failed = test_cases(&directory, &["failure"]);
        fs::remove_file(&directory).unwrap();
        let test = |name: &str, reason: &str| FlakyTest { name: name.to_owned(), reason: reason.to_owned() };
        assert_eq!(flaky, Ok(vec![test("suite flaky", "left: 1")]));
        assert_eq!(failed, Ok(vec![test("fails", "")]));
    }

    #[test]
    fn pattern_keeps_letters_and_digits_only() {
        assert_eq!(shell_safe_pattern("a &quot;b&quot; (1)"), "a..b...1.");
    }
}
