//! Parses the command line of one run without describing all other subcommands, which takes a tenth
//! of the processor time of a short one.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use super::{CliArguments, Command, RunArguments};

/// `sandtimer run …`.
#[derive(Debug, Parser)]
#[command(name = "sandtimer", disable_help_subcommand = true)]
struct RunLine {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(RunArguments),
}

impl CliArguments {
    /// Parses the command line of this process.
    ///
    /// # Errors
    /// It is not valid, or asks for help or the version.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        Self::of(std::env::args_os().collect())
    }

    /// As [`Parser::try_parse_from`], which reports all errors: it also knows similar names of
    /// other subcommands.
    fn of(line: Vec<OsString>) -> Result<Self, clap::Error> {
        if line.get(1).is_some_and(|name| name == "run")
            && let Ok(RunLine { command: RunCommand::Run(run) }) = RunLine::try_parse_from(&line)
        {
            return Ok(CliArguments { command: Some(Command::Run(run)) });
        }
        Self::try_parse_from(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_line_is_parsed_as_by_the_whole_parser() {
        let lines = [
            "run -- true",
            "run true --help",
            "run --wall 2s --memory=1G --env A=b --workspace /tmp --require T3 --json -- sh -c x",
            "run --wall 2s --wall 3s -- true",
            "run --wal 2s -- true",
            "run --help",
            "run -V",
            "run --on-output-limit stop -- true",
            "run",
            "runs",
            "--version run",
            "python -c 1",
            "",
        ];
        for line in lines {
            let line: Vec<OsString> =
                std::iter::once("sandtimer").chain(line.split_whitespace()).map(OsString::from).collect();
            let text = |parsed: Result<CliArguments, clap::Error>| match parsed {
                Ok(arguments) => format!("{arguments:?}"),
                Err(error) => format!("{:?} {error}", error.kind()),
            };
            assert_eq!(
                text(CliArguments::of(line.clone())),
                text(CliArguments::try_parse_from(&line)),
                "{line:?}"
            );
        }
    }
}
