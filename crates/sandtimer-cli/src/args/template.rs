//! `sandtimer template`, and the commands of `sandtimer sandbox` that make templates and sandboxes of a sandbox: what can be typed.

use clap::{Args, Subcommand};

use super::ServerFlags;

#[derive(Debug, Args)]
pub(crate) struct TemplateArguments {
    #[command(subcommand)]
    pub(crate) action: TemplateAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateAction {
    /// List what sandboxes can be made from
    List(TemplateList),
    /// Delete a template; sandboxes that were made from it keep its files
    Delete(TemplateDelete),
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
