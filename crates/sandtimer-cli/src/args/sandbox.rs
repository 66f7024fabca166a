//! `sandtimer sandbox`: what can be typed.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::ServerFlags;
use super::template::{
    DIFF_NOTES, EXPORT_NOTES, FORK_NOTES, SNAPSHOT_NOTES, SandboxDiff, SandboxExport, SandboxFork,
    SandboxSnapshot,
};

#[derive(Debug, Args)]
pub(crate) struct SandboxArguments {
    #[command(subcommand)]
    pub(crate) action: SandboxAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxAction {
    /// Make a sandbox, and print its id
    #[command(after_long_help = CREATE_NOTES)]
    Create(SandboxCreate),
    /// List your sandboxes, the oldest first
    List(SandboxList),
    /// Run a command in a sandbox, and wait for its end
    #[command(after_long_help = EXEC_NOTES)]
    Exec(SandboxExec),
    /// Copy a file or a directory into a sandbox, or out of one
    #[command(after_long_help = COPY_NOTES)]
    Copy(SandboxCopy),
    /// Make a template of the files of a sandbox, and print its name
    #[command(after_long_help = SNAPSHOT_NOTES)]
    Snapshot(SandboxSnapshot),
    /// Make sandboxes with the files of another one, and print their ids
    #[command(after_long_help = FORK_NOTES)]
    Fork(SandboxFork),
    /// List what has changed in a sandbox against its template
    #[command(after_long_help = DIFF_NOTES)]
    Diff(SandboxDiff),
    /// Write the files of a sandbox to stdout, as a tar archive
    #[command(after_long_help = EXPORT_NOTES)]
    Export(SandboxExport),
    /// Print a link to a port of a sandbox, which needs no token until it expires
    Expose(SandboxExpose),
    /// Stop all that runs in a sandbox, and the clocks of its limits
    #[command(after_long_help = PAUSE_NOTES)]
    Pause(OneSandbox),
    /// Resume a paused sandbox
    Resume(OneSandbox),
    /// Extend the wall-clock limit of a sandbox
    Extend(SandboxExtend),
    /// End all runs in a sandbox, and delete it with all of its files
    Delete(OneSandbox),
}

const CREATE_NOTES: &str = "\
HOST of --allow is a host (`pypi.org`), the sub-domains of one (`*.example.com`), an address or a network (`10.1.0.0/16`), with a \
port after a colon or for the ports 80 and 443. Programs reach it by the proxy that the variables `http_proxy` and `https_proxy` \
name.";

const EXEC_NOTES: &str = "\
Exit codes are those of `sandtimer run`: the command's own; 128 + n when signal n ended it; 124 when a limit ended it; 137 out \
of memory; 125 when Sandtimer failed; 126 and 127 when the command cannot be executed or is not found. Its output is printed \
when it has ended. The run is cancelled if this command ends before.";

const COPY_NOTES: &str = "\
Examples:
  sandtimer sandbox copy data.csv c731329c7bb9:/home/user/data.csv
  sandtimer sandbox copy src c731329c7bb9:/workspace/src
  sandtimer sandbox copy c731329c7bb9:/workspace/out .

A file is copied into TARGET if that is a directory, or ends with `/`. A directory becomes TARGET, with what is there already; it is \
copied into TARGET, under its own name, if that ends with `/`. Links are copied as links. Files inside belong to the sandbox's \
user. A path without a leading `/` is below /workspace. A local path with a colon is written as `./a:b`.";

#[derive(Debug, Args)]
pub(crate) struct SandboxCopy {
    /// What is copied: a local path, or ID:PATH
    pub(crate) source: OsString,
    /// Where it goes: ID:PATH, or a local path
    pub(crate) target: OsString,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

const PAUSE_NOTES: &str = "\
Until it is resumed, nothing can be started in the sandbox, and its files can only be read. The processes stay in memory, and do not \
outlive the server. A paused sandbox stays until it is resumed or deleted.";

#[derive(Debug, Args)]
pub(crate) struct SandboxExtend {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// The time to add, such as 30m; a bare number is seconds
    #[arg(value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) by: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxCreate {
    /// What it is made from: `host`, or another template of `sandtimer template list` [default:
    /// host]
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// What all that runs in it can reach outside [default: none]
    #[arg(long, value_name = "none|host", value_parser = ["none", "host"])]
    pub(crate) network: Option<String>,
    /// A host that what runs in it can reach; repeat it for more
    #[arg(long, value_name = "HOST", conflicts_with = "network")]
    pub(crate) allow: Vec<String>,
    /// Delete it once nothing has used it for this long, such as 1h; runs, contexts, sessions and
    /// work with its files are use
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) idle: Option<OsString>,
    /// Delete it after this long, such as 1d, pauses not counted; what runs in it then ends
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// Memory of all that runs in it together, such as 2G; each run has its own limit as well
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<OsString>,
    /// Processes and threads of all that runs in it together, at once
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) processes: Option<OsString>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxList {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxExec {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// Wall-clock limit of the command, such as 30s [default: the server's]
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// The directory to start in [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxExpose {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// The port, from 1 to 65535
    pub(crate) port: u64,
    /// How long the link is valid, such as 30m [default: 1h]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) lifetime: Option<OsString>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct OneSandbox {
    /// The sandbox, by its id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}
