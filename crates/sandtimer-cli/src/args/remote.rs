//! Runs of a server.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(super) const LOGS_NOTES: &str = "\
Without --follow it prints the output so far, standard output first. With --follow it prints output as it is written, until \
the run has ended; a broken connection is restored at the same position, for up to a minute. The run's standard output goes to \
standard output, its standard error to standard error.";

/// The server that answers, and the format of the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// The server's address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A file that holds the token; SANDTIMER_TOKEN is the token itself
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PsArguments {
    /// Show what this run is doing, and its processes
    pub(crate) id: Option<String>,
    /// Also list ended runs
    #[arg(long, short, conflicts_with = "id")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The run, by its id
    pub(crate) id: String,
    /// Continue until the run has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// The run, context or session, by its id
    pub(crate) id: String,
    /// The reason, for the run's verdict
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// The run, by its id
    pub(crate) id: String,
    /// The time to add, such as 30s; a bare number is seconds
    #[arg(value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) by: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run, by its id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}
