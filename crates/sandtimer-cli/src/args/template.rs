//! `sandtimer template`, and the commands of `sandtimer sandbox` that make templates and sandboxes
//! of a sandbox: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::ServerFlags;

#[derive(Debug, Args)]
pub(crate) struct TemplateArguments {
    #[command(subcommand)]
    pub(crate) action: TemplateAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateAction {
    /// Make a template of a tar archive or a directory that has a root tree, and print its name
    #[command(after_long_help = IMPORT_NOTES)]
    Import(TemplateImport),
    /// List what sandboxes can be made from
    List(TemplateList),
    /// Delete a template; sandboxes that were made from it keep its files
    Delete(TemplateDelete),
}

const IMPORT_NOTES: &str = "\
Example: `sandtimer template import debian debian.tar.zst`, then `sandtimer sandbox create --template debian`. The archive may be \
compressed with gzip or zstd. All files belong to the sandbox's user; devices, FIFOs, set-id bits and extended attributes are left out.";

#[derive(Debug, Args)]
pub(crate) struct TemplateImport {
    /// What the template is called
    pub(crate) name: String,
    /// A tar archive, also compressed, or a directory; `-` is an archive on stdin
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TemplateList {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TemplateDelete {
    /// The template, by its name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

pub(crate) const SNAPSHOT_NOTES: &str = "\
Example: `sandtimer sandbox snapshot c731329c7bb9 --name ready`, then `sandtimer sandbox create --template ready`. Nothing may run \
in the sandbox. No file is copied.";

#[derive(Debug, Args)]
pub(crate) struct SandboxSnapshot {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// What the template is called [default: its id]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

pub(crate) const FORK_NOTES: &str = "\
Example: `sandtimer sandbox fork c731329c7bb9 --count 8` prints eight ids, one a line. Nothing may run in the sandbox. No file is \
copied, and all are made or none.";

#[derive(Debug, Args)]
pub(crate) struct SandboxFork {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// How many sandboxes are made, at most 100
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

pub(crate) const DIFF_NOTES: &str = "\
One line for each change: `A` for what was added, `C` for what has changed, `D` for what was deleted with all that was in it.";

#[derive(Debug, Args)]
pub(crate) struct SandboxDiff {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// How many changes are listed, at most 100000
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

pub(crate) const EXPORT_NOTES: &str = "\
Example: `sandtimer sandbox export c731329c7bb9 >files.tar`. What is shown of the host is not in the archive, and no device, FIFO or \
socket.";

#[derive(Debug, Args)]
pub(crate) struct SandboxExport {
    /// The sandbox, by its id
    pub(crate) id: String,
    /// Only what was added or changed against its template
    #[arg(long)]
    pub(crate) changes: bool,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}
