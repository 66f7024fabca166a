//! `cargo xtask`: the chores of this repository, and the one place that defines how it is checked.
//!
//! It must not know how Sandtimer works; it starts the tools that do. The hard fact is that `test`
//! has to work on a machine that has nothing but a Rust toolchain and Python: all set-up is here,
//! and what cannot be set up is reported.

#![forbid(unsafe_code)]
// Nothing here runs a user's code or keeps a deadline: it starts cargo and prints for a person.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod compat;
mod conformance;
mod crate_arrows;
mod dist;
mod docs;
mod flaky;
mod generate;
mod lint;
mod module_arrows;
mod module_cycles;
mod prove;
mod setup;
mod step;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  deps                check that crates and modules use only what they may, without cycles
  fmt                 format the Rust code
  lint                check words by xtask/words.toml; then clippy, with warnings as errors
  lint --commits RANGE
                      check the subjects of commits, such as those of main..HEAD
  docs                build the documentation site into target/site
  docs --rust         the same with the documentation of the Rust library, which takes minutes
  test                everything a change must pass, set-up included
  python              the part of test that checks the Python package
  typescript          the part of test that checks the TypeScript client
  npm                 install the npm packages that the server's /api and its page are tested with
  generate [--check]  write the generated files of spec/ and the tables of docs/conformance in the pages, or compare
                      them with what would be written
  dist                build and check the packages of a release, in target/dist
  dist --rehearse     install them in roots of Debian 12 and 13 without a compiler, from registries on loopback
  dist --test         run the suites against the packaged command and wheel
  prove [NAME...]     the full-size proofs, or those named; writes docs/results/ and docs/conformance/";

/// What a chore ends with: nothing, or one line saying what is wrong and what would work.
type Result<T = ()> = std::result::Result<T, String>;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["deps"] => deps(),
        ["fmt"] => step::cargo(&["fmt", "--all"]),
        ["lint"] => lint::words().and_then(|()| step::cargo(test::CLIPPY)),
        ["lint", "--commits", range] => lint::commits(range),
        ["docs"] => docs::build(),
        ["docs", "--rust"] => docs::build_with_rust(),
        ["test"] => test::run(),
        ["python"] => test::python(),
        ["typescript"] => test::typescript(),
        ["npm"] => compat::packages(),
        ["generate"] => generate::write(),
        ["generate", "--check"] => generate::check(),
        ["dist"] => dist::build(),
        ["dist", "--rehearse"] => dist::rehearse(),
        ["dist", "--test"] => dist::test(),
        ["prove", names @ ..] => prove::run(names),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Checks every arrow and reports all that are wrong, not only the first.
fn deps() -> Result {
    let mut wrong = crate_arrows::check(&root())?;
    wrong.extend(module_arrows::check(&root())?);
    wrong.extend(module_cycles::check(&root())?);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Lines of `text` that call a command which `usage` does not list.
    fn unknown_commands(text: &str, usage: &str) -> Vec<String> {
        let known: Vec<&str> = usage.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let is_known = |call: &str| {
            let mut arguments = call.split_whitespace();
            let command = arguments.next().unwrap_or_default();
            let option = arguments.next().filter(|argument| argument.starts_with("--"));
            known.iter().any(|line| {
                let line = line.replace(['[', ']'], "");
                let is_command = line.split_whitespace().next() == Some(command);
                is_command && option.is_none_or(|option| line.split_whitespace().nth(1) == Some(option))
            })
        };
        let calls = text.lines().filter_map(|line| Some((line, line.split_once("cargo xtask ")?.1)));
        calls.filter(|(_, call)| !is_known(call)).map(|(line, _)| line.trim().to_owned()).collect()
    }

    #[test]
    fn workflows_call_existing_commands() {
        let mut calls = 0;
        let directory = root().join(".github/workflows");
        for entry in fs::read_dir(directory).expect("readable") {
            let text = fs::read_to_string(entry.expect("readable").path()).expect("readable");
            calls += text.matches("cargo xtask ").count();
            assert_eq!(unknown_commands(&text, USAGE), Vec::<String>::new());
        }
        assert!(calls >= 10, "{calls}");
    }

    #[test]
    fn unknown_command_of_a_workflow_is_reported() {
        let workflow = "- run: cargo xtask dist --publish\n- run: cargo xtask dist --test\n- run: sudo cargo xtask tests\n";
        let unknown = ["- run: cargo xtask dist --publish", "- run: sudo cargo xtask tests"];
        assert_eq!(unknown_commands(workflow, USAGE), unknown);
    }
}
