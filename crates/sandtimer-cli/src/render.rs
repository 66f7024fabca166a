//! The only module that prints. Stdout carries what was requested; all messages of Sandtimer go to
//! stderr, one line each, beginning `sandtimer: `.
//!
//! No write here may wait for ever: a reader that has stopped reading must not keep a verdict from
//! becoming an exit code.

use std::io::IsTerminal;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stderr, stdout};

use sandtimer::model::{Outcome, Verdict};
use sandtimer::vocabulary;

use crate::args::CliArguments;

/// How long a line for stderr waits for room.
const STDERR_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Set once a line was not read in time: the next ones do not wait.
static STDERR_IS_STALLED: AtomicBool = AtomicBool::new(false);
/// What fits into a pipe that is ready for writing, whatever else is in it; pipe(7).
const ATOMIC_WRITE_BYTES: usize = 4096;

/// The first failure to write to stdout, apart from a reader that is gone.
static STDOUT_FAILURE: std::sync::OnceLock<rustix::io::Errno> = std::sync::OnceLock::new();

/// Why something is missing on stdout, if it is.
pub(crate) fn stdout_failure() -> Option<rustix::io::Errno> {
    STDOUT_FAILURE.get().copied()
}

/// Prints to stdout. A reader that is gone is not an error.
pub(crate) fn print(text: &str) {
    write(To::Stdout, text.as_bytes());
}

/// Where what was asked for goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Stdout,
    Stderr,
}

/// Writes bytes as they are. Returns false if the reader has gone.
pub(crate) fn write(to: To, bytes: &[u8]) -> bool {
    let is_stdout = to == To::Stdout;
    let to = if is_stdout { stdout() } else { stderr() };
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                // A failure to wait shows again at the next write.
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(error) => {
                // A reader that is gone misses nothing; a disk that is full does.
                if is_stdout && error != rustix::io::Errno::PIPE {
                    let _ = STDOUT_FAILURE.set(error);
                }
                return false;
            }
        }
    }
    true
}

/// One line on stderr about a failure.
pub(crate) fn report_error(message: &str) {
    write_message(false, message, Colour::Red);
}

/// One line on stderr about something worth knowing.
pub(crate) fn note(message: &str) {
    write_message(false, message, Colour::None);
}

/// The line on stderr with the reason why a run was ended. `ceiling` is the file that bounded it;
/// `mid_line` if a terminal's cursor is after other text.
pub(crate) fn verdict(verdict: &Verdict, ceiling: Option<&Path>, mid_line: bool) {
    let mut text = verdict.sentence.clone();
    if let Some(path) = ceiling {
        text.push_str(&format!(" The ceiling is set in {}.", path.display()));
    }
    if verdict.kind.is_some() {
        // A cancel's sentence has it already.
        text.push_str(&format!(" Ended after {:.2} s.", verdict.elapsed_ms as f64 / 1000.0));
    }
    write_message(mid_line, &text, Colour::Yellow);
}

/// One line on stderr while the run is active. `raw`: the terminal shows its output as it is, and
/// has no lines of its own.
pub(crate) fn warning(message: &str, raw: bool) {
    let (before, after) = if raw { ("\r\n", "\r\n") } else { ("", "\n") };
    write_line(before, after, message, Colour::Yellow);
}

/// Which walls are missing, one line each.
pub(crate) fn isolation(outcome: &Outcome) {
    let isolation = &outcome.isolation;
    note(&format!(
        "isolation {:?}, kill class {:?}, deadlines by {}",
        isolation.tier,
        isolation.kill,
        isolation.deadline_layers.join(", ")
    ));
    for degraded in &isolation.degraded {
        note(&format!("without {}: {}", degraded.layer, degraded.reason));
    }
}

/// An Outcome as one line of JSON, or over many lines for a person at a terminal.
pub(crate) fn outcome_json(outcome: &Outcome) -> String {
    let json = match std::io::stdout().is_terminal() {
        true => serde_json::to_string_pretty(outcome),
        false => serde_json::to_string(outcome),
    };
    // Plain data with text keys always serialises.
    json.map(|text| text + "\n").unwrap_or_default()
}

/// Help and version on stdout with exit code 0; anything else as one line on stderr with 125.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            print(&if stdout_colours() { text.ansi().to_string() } else { text.to_string() });
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            report_error("no subcommand given; `--help` lists them");
            ExitCode::from(125)
        }
        ErrorKind::InvalidSubcommand => {
            report_error(&format!("{}; `--help` lists them", one_line(&error.render().to_string())));
            ExitCode::from(125)
        }
        _ => {
            report_error(&describe_rejection(error));
            ExitCode::from(125)
        }
    }
}

/// What clap refuses, in one line. A flag by the name that other tools have for it is named by
/// ours.
fn describe_rejection(error: &clap::Error) -> String {
    let given = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) => given,
        _ => return one_line(&error.render().to_string()),
    };
    match meant_flag(error, given) {
        Some(flag) => format!("unexpected argument '{given}' found; it is called '--{flag}' here"),
        None => one_line(&error.render().to_string()),
    }
}

/// The flag of the command that the error is about which another tool's name means.
fn meant_flag(error: &clap::Error, given: &str) -> Option<String> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    let arguments = CliArguments::command();
    let mut command = &arguments;
    for token in usage.split_whitespace().skip_while(|token| *token != "sandtimer").skip(1) {
        let Some(found) = command.find_subcommand(token) else { break };
        command = found;
    }
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flags: Vec<&str> = shown.filter_map(clap::Arg::get_long).collect();
    vocabulary::meant(given, flags.iter().copied()).map(str::to_owned)
}

/// Clap's error without its usage: what is wrong, then the tips.
fn one_line(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            continue;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        match (parts.last_mut(), line.strip_prefix("tip: ")) {
            (_, Some(tip)) => parts.push(tip.to_owned()),
            (Some(last), None) if last.ends_with(':') => {
                last.push(' ');
                last.push_str(line);
            }
            (_, None) => parts.push(line.to_owned()),
        }
    }
    parts.join("; ")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    None,
    Red,
    Yellow,
}

/// Whether what is printed on stdout may carry colours.
pub(crate) fn stdout_colours() -> bool {
    std::io::stdout().is_terminal() && wants_colour()
}

fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb")
}

fn write_message(mid_line: bool, message: &str, colour: Colour) {
    write_line(if mid_line { "\n" } else { "" }, "\n", message, colour);
}

fn write_line(before: &str, after: &str, message: &str, colour: Colour) {
    let colour = if std::io::stderr().is_terminal() && wants_colour() { colour } else { Colour::None };
    let name = match colour {
        Colour::None => "sandtimer:",
        Colour::Red => "\u{1b}[1;31msandtimer:\u{1b}[0m",
        Colour::Yellow => "\u{1b}[1;33msandtimer:\u{1b}[0m",
    };
    write_patiently(stderr(), format!("{before}{name} {}{after}", single_line(message)).as_bytes());
}

/// The longest line; a longer one quotes foreign text at length.
const MAX_LINE_CHARACTERS: usize = 2000;

/// Removes control characters and bounds the length: names and values in the message are untrusted,
/// and it may be shown on a terminal.
fn single_line(message: &str) -> String {
    let mut line = String::new();
    for character in message.trim().chars() {
        if line.len() >= MAX_LINE_CHARACTERS {
            line.push('…');
            break;
        }
        match character {
            '\n' => line.push(' '),
            _ if character.is_control() => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
    line
}

fn write_patiently(to: BorrowedFd<'_>, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let patience =
            if STDERR_IS_STALLED.load(Ordering::Relaxed) { Timespec::default() } else { STDERR_TIMEOUT };
        match poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&patience)) {
            Ok(0) => return STDERR_IS_STALLED.store(true, Ordering::Relaxed),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        match rustix::io::write(to, &rest[..rest.len().min(ATOMIC_WRITE_BYTES)]) {
            Ok(count) => rest = &rest[count..],
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // There is no other place to report that stderr is closed.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn refused(arguments: &[&str]) -> String {
        describe_rejection(&CliArguments::try_parse_from(arguments).expect_err("refused"))
    }

    #[test]
    fn flags_of_other_tools_are_named_by_ours() {
        for (given, ours) in [
            ("--time-limit", "'--wall'"),
            ("--memory-limit", "'--memory'"),
            ("--workdir", "'--cwd'"),
            ("--volume", "'--workspace'"),
        ] {
            let message = refused(&["sandtimer", "run", given, "5", "--", "true"]);
            assert!(message.contains(&format!("it is called {ours} here")), "{message}");
        }
        let message = refused(&["sandtimer", "run", "--rocket", "--", "true"]);
        assert!(message.contains("'--rocket'") && !message.contains("is called"), "{message}");
    }

    #[test]
    fn clap_rejection_is_one_line() {
        let unknown = refused(&["sandtimer", "run", "--no-such-flag", "--", "true"]);
        assert!(unknown.contains("'--no-such-flag'") && !unknown.contains('\n'), "{unknown}");
        let near = refused(&["sandtimer", "run", "--wal", "2s", "--", "true"]);
        assert!(near.contains("--wal") && near.contains("'--wall'"), "{near}");
        let value = refused(&["sandtimer", "run", "--require", "T9", "--", "true"]);
        assert!(value.contains("T9") && value.contains("--require"), "{value}");
        let missing = refused(&["sandtimer", "completions"]);
        assert!(missing.contains("<SHELL>"), "{missing}");
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(single_line("a\u{1b}[2Jb\nc\td\n"), "a\\u{1b}[2Jb c\\td");
        assert_eq!(single_line(&"x".repeat(1 << 20)).chars().count(), MAX_LINE_CHARACTERS + 1);
    }
}
