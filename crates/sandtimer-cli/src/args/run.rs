//! Runs on this machine: their limits, their isolation and their output.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use sandtimer::model::{KillClass, Tier};

pub(super) const RUN_NOTES: &str = "\
Exit codes: the command's own; 128 + n when signal n ended it; 124 when a wall, cpu, stall, output, disk or \
processes limit ended it; 137 out of memory; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP; 125 when Sandtimer \
failed or was used wrongly; 126 when the command cannot be executed; 127 when it is not found.

Streams: the command's stdout and stderr go to the same files as those of sandtimer, by one pipe if both are one file. If \
stdin and an output are the same terminal, the command gets a terminal of its own for them, but not if stdout is a pipe. \
Input that the command does not read is left for the next command; of a named FIFO, a socket or a terminal, up to 4 KiB are \
read ahead.

Ctrl-C interrupts the command; a second Ctrl-C ends the run, and a third does not wait for its grace. If the command has a \
terminal of its own, the key goes to the command, and three within a second end the run, unless the command edits its input \
itself, as editors, shells and interpreters do at their prompts. Ctrl-Z stops sandtimer and the run as a job of your shell; \
fg or bg continues them. A shell inside the run that has a job in the foreground receives the key itself. Limits stay in \
force while a run is stopped.";

pub(super) const LANGUAGE_NOTES: &str = "\
Arguments of the program that begin with a dash go after `--`. The file must be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

pub(super) const TYPESCRIPT_NOTES: &str = "\
Types are removed and not checked; enums, namespaces and parameter properties become JavaScript. A syntax error ends with \
exit code 1 and the line and column of the error. A file may import JavaScript, but no other TypeScript.

Arguments of the program that begin with a dash go after `--`. The file must be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LanguageArguments {
    /// Run this code instead of a file
    #[arg(short = 'c', value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<OsString>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The file, unless -c is given, and the program's arguments
    #[arg(value_name = "FILE ARGUMENTS", value_hint = ValueHint::FilePath)]
    pub(crate) arguments: Vec<OsString>,
}

/// The limits of a run, as typed.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitFlags {
    /// Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no
    /// limit
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// Processor time of all its processes together
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) cpu: Option<OsString>,
    /// Longest time without output and without CPU use, or as set by --stall-by
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) stall: Option<OsString>,
    /// Time between SIGTERM and the kill
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) grace: Option<OsString>,
    /// Memory of all its processes together, such as 512M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<OsString>,
    /// Processes and threads alive at once
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) processes: Option<OsString>,
    /// Bytes of stdout and of stderr that are passed through; the rest is dropped and reported
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) output: Option<OsString>,
    /// Bytes in its private directories and, polled, in its workspaces
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) disk: Option<OsString>,
    /// Open files of each of its processes
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) open_files: Option<OsString>,
}

/// Everything about a run but its command.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    /// What happens at the output limit
    #[arg(long, value_name = "ACTION", default_value = "drop", help_heading = "Limits")]
    pub(crate) on_output_limit: OnOutputLimit,
    /// Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which
    /// is sent to its processes that handle it; with --progress-channel also by a line on the
    /// descriptor that SANDTIMER_NOTICE_FD names
    #[arg(long, value_name = "DURATION[:SIGNAL]", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) warn: Option<OsString>,
    /// What resets the stall limit; `progress` needs --progress-channel or --json, because output
    /// is not read otherwise
    #[arg(long, value_name = "WHAT", default_value = "output", help_heading = "Limits")]
    pub(crate) stall_by: StallBy,
    /// Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see
    /// `sandtimer progress`
    #[arg(long)]
    pub(crate) progress_channel: bool,
    /// Give the run the host's network
    #[arg(long)]
    pub(crate) network: bool,
    /// Show this directory, writable and at its own path; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Vec<PathBuf>,
    /// Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default
    /// they are hidden
    #[arg(long)]
    pub(crate) show_credentials: bool,
    /// Start in this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cwd: Option<PathBuf>,
    /// Read the settings of this file in place of your own sandtimer.toml
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Set a variable, or pass on one of yours; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated
    #[arg(long, value_name = "T3|K2", value_parser = parse_require)]
    pub(crate) require: Vec<Require>,
    /// Capture the output and print one Outcome as JSON instead
    #[arg(long)]
    pub(crate) json: bool,
    /// Report on stderr the limits and their origins, what was hidden, and which isolation layers
    /// are missing
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// How --json represents output that is not UTF-8
    #[arg(long, value_name = "ACTION", default_value = "strict")]
    pub(crate) errors: EncodingErrors,
    /// Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1
    #[arg(long, value_name = "LAYER", hide = true, action = ArgAction::Append)]
    pub(crate) without: Vec<OmittedLayer>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EncodingErrors {
    /// The stream is base64
    #[default]
    Strict,
    /// Each sequence of bytes that is not UTF-8 becomes U+FFFD
    Replace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOutputLimit {
    /// Drop the rest; the run continues
    #[default]
    Drop,
    /// End the run
    End,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StallBy {
    /// Output, or CPU use
    #[default]
    Output,
    /// Only progress, which the run reports or which its output shows
    Progress,
}

/// The weakest isolation that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Require {
    Tier(Tier),
    Kill(KillClass),
}

/// A layer that `--without` can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OmittedLayer {
    Seccomp,
    Landlock,
    Mount,
    Pid,
    Ipc,
    Net,
    Uid,
    Cgroup,
    Rlimits,
}

/// Reads `T0`–`T3` or `K0`–`K3`.
pub(super) fn parse_require(text: &str) -> Result<Require, String> {
    Ok(match text.to_ascii_uppercase().as_str() {
        "T0" => Require::Tier(Tier::T0),
        "T1" => Require::Tier(Tier::T1),
        "T2" => Require::Tier(Tier::T2),
        "T3" => Require::Tier(Tier::T3),
        "K0" => Require::Kill(KillClass::K0),
        "K1" => Require::Kill(KillClass::K1),
        "K2" => Require::Kill(KillClass::K2),
        "K3" => Require::Kill(KillClass::K3),
        _ => return Err("expected a tier (T0 to T3) or a kill class (K0 to K3)".to_owned()),
    })
}
