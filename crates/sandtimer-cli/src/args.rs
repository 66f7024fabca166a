//! What can be typed: flags, subcommands and their help. Texts that may be anything are `OsString`;
//! limits are read in `config`, where every place a limit comes from is read by the same rules.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) mod jobs;
mod remote;
mod run;
mod run_line;
pub(crate) mod sandbox;
mod serve;
pub(crate) mod template;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use remote::LOGS_NOTES;
pub(crate) use remote::{ExtendArguments, KillArguments, LogsArguments, OneRun, PsArguments, ServerFlags};
pub(crate) use run::{
    EncodingErrors, LanguageArguments, LimitFlags, OmittedLayer, OnOutputLimit, Require, RunArguments,
    Settings, StallBy,
};
use run::{LANGUAGE_NOTES, RUN_NOTES, TYPESCRIPT_NOTES, parse_require};
use serve::{MCP_NOTES, SERVE_NOTES};
pub(crate) use serve::{McpArguments, PolicyFlags, ServeArguments};

/// Runs untrusted code under hard limits, kills everything that it started, and reports which limit
/// fired and why.
#[derive(Debug, Parser)]
#[command(name = "sandtimer", version, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct CliArguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a sandbox, under limits
    #[command(after_long_help = RUN_NOTES)]
    Run(RunArguments),
    /// Run a Python file, or code given with -c, in a sandbox
    #[command(after_long_help = LANGUAGE_NOTES)]
    Python(LanguageArguments),
    /// Run a bash script, or code given with -c, in a sandbox
    #[command(after_long_help = LANGUAGE_NOTES)]
    Bash(LanguageArguments),
    /// Run a JavaScript file, or code given with -c, in a sandbox, with Node.js
    #[command(after_long_help = LANGUAGE_NOTES)]
    Node(LanguageArguments),
    /// Run a TypeScript file, or code given with -c, in a sandbox, with Node.js
    #[command(after_long_help = TYPESCRIPT_NOTES)]
    Ts(LanguageArguments),
    /// Run a command in what bubblewrap's options ask for, under limits; also when started as
    /// `bwrap`
    #[command(disable_help_flag = true, after_long_help = BWRAP_NOTES)]
    Bwrap(BwrapArguments),
    /// Serve runs over HTTP
    #[command(after_long_help = SERVE_NOTES)]
    Serve(ServeArguments),
    /// Give an agent tools over stdin and stdout, by the Model Context Protocol
    #[command(after_long_help = MCP_NOTES)]
    Mcp(McpArguments),
    /// Submit durable jobs, execute them, and read their results
    Jobs(jobs::JobsArguments),
    /// Install a Jupyter kernel that runs in a sandbox
    Jupyter(JupyterArguments),
    /// List the runs, contexts and sessions of a server
    Ps(PsArguments),
    /// Print the output of a run of a server
    #[command(after_long_help = LOGS_NOTES)]
    Logs(LogsArguments),
    /// End a run of a server, or a context or session
    Kill(KillArguments),
    /// Extend the wall-clock limit of a run of a server
    Extend(ExtendArguments),
    /// Pause a run of a server: its processes and its clocks stop
    Pause(OneRun),
    /// Resume a paused run of a server
    Resume(OneRun),
    /// Make, use and delete sandboxes of a server: file systems that outlive the runs in them
    Sandbox(sandbox::SandboxArguments),
    /// List and delete templates, which sandboxes are made from
    Template(template::TemplateArguments),
    /// Estimate how long a task or a command takes
    #[command(after_long_help = ESTIMATE_NOTES)]
    Estimate(EstimateArguments),
    /// Report the progress of a run from inside it
    #[command(after_long_help = PROGRESS_NOTES)]
    Progress(ProgressArguments),
    /// Show what this machine can enforce, and what is missing
    Doctor(DoctorArguments),
    /// Measure on this machine how late limits fire and what a sandbox costs
    Bench(BenchArguments),
    /// Show the settings that apply here
    Config(ConfigArguments),
    /// Print completions for a shell
    Completions(CompletionsArguments),
    /// Read TypeScript from stdin, for an engine
    #[command(hide = true)]
    ReadTypescript(ReadArguments),
    /// Write the manual page, completions and references
    #[command(hide = true)]
    Generate(GenerateArguments),
}

const BWRAP_NOTES: &str = "\
The options are bubblewrap's: `sandtimer bwrap --help` lists them. The exit code is the command's, 128 + n when signal n ended it, 1 \
when it could not be started, 124 when a limit ended it and 137 out of memory.";

/// Arguments that only bubblewrap's own parser reads.
#[derive(Debug, Args)]
pub(crate) struct BwrapArguments {
    /// Bubblewrap's options, then the command
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const PROGRESS_NOTES: &str = "\
Writes one line, such as {\"done\":8,\"total\":15,\"unit\":\"epoch\"}, to the descriptor that SANDTIMER_PROGRESS_FD names. \
Runs have one if it was requested (--progress-channel, `progress_channel` of POST /v1/runs). Without one the command does \
nothing and succeeds: a script may run anywhere.";

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// The form of the result: `cell` or `program`
    #[arg(value_name = "WANTED")]
    pub(crate) wanted: String,
}

const ESTIMATE_NOTES: &str = "\
An estimate uses the most similar runs of this user's servers, `sandtimer serve` and that of `sandtimer mcp`: the same \
command, one that differs in numbers and paths, or the same type of task with about as much data. One run of twenty is shorter \
than the best case, and one of twenty is longer than the worst case. Without such runs the figures come from a table, and the \
answer names it as their basis.";

#[derive(Debug, Args)]
pub(crate) struct EstimateArguments {
    /// The type of task; --list shows them
    #[arg(value_name = "TYPE", required_unless_present_any = ["command", "list"])]
    pub(crate) task_type: Option<String>,
    /// The command, as a line for a shell
    #[arg(long, value_name = "LINE", allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
    /// Megabytes of data that the task works on
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) data_size_mb: Option<f64>,
    /// simple, moderate or complex [default: moderate]
    #[arg(long, value_name = "WORD")]
    pub(crate) complexity: Option<String>,
    /// Keywords that distinguish the task from others of its type; they are compared, not
    /// interpreted
    #[arg(long, value_name = "TEXT")]
    pub(crate) context: Option<String>,
    /// The time that is available, such as 2h: the answer states whether the task fits
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) budget: Option<String>,
    /// List the types of task, with the duration that is assumed while no runs are known
    #[arg(long, conflicts_with_all = ["task_type", "command"])]
    pub(crate) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory of the servers' records [default: as for `sandtimer serve`];
    /// SANDTIMER_STATE_DIR sets it too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct JupyterArguments {
    #[command(subcommand)]
    pub(crate) action: JupyterAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JupyterAction {
    /// Write a kernelspec of sealed Python kernels, by the python3 in PATH
    Install(JupyterInstall),
}

#[derive(Debug, Args)]
pub(crate) struct JupyterInstall {
    /// Install for this user [default: for all users]
    #[arg(long, group = "where")]
    pub(crate) user: bool,
    /// Install into the environment of python3
    #[arg(long, group = "where")]
    pub(crate) sys_prefix: bool,
    /// Install into the environment in this directory
    #[arg(long, group = "where", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) prefix: Option<OsString>,
    /// The kernelspec's name [default: sandtimer]
    #[arg(long)]
    pub(crate) name: Option<OsString>,
    /// Memory of a kernel, such as 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<OsString>,
    /// Wall-clock limit of a kernel, such as 12h
    #[arg(long, visible_alias = "timeout", value_name = "DURATION")]
    pub(crate) wall: Option<OsString>,
    /// Wall-clock limit of a cell, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub(crate) cell_timeout: Option<OsString>,
    /// Give kernels the host's network
    #[arg(long)]
    pub(crate) network: bool,
    /// A directory that kernels may write to; `.` is the notebook's; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ProgressArguments {
    /// How much is done, and of how much: 8/15, or 8
    #[arg(value_name = "DONE/TOTAL")]
    pub(crate) done: String,
    /// The unit that is counted, such as epoch
    #[arg(long)]
    pub(crate) unit: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Check which `bwrap` comes first in PATH, and print how coding agents are pointed at this one
    #[arg(long, conflicts_with = "require")]
    pub(crate) bwrap: bool,
    /// Exit with 125 unless this tier (T0–T3) or kill class (K0–K3) is available; may be repeated
    #[arg(long, value_name = "T3|K2", value_parser = parse_require)]
    pub(crate) require: Vec<Require>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) bench: Bench,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure how late the verdict of a wall-clock limit is, for code that resists its end
    Lateness {
        /// How many runs
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        runs: u32,
        /// Under load: 8 busy loops for each processor, in sandboxes
        #[arg(long)]
        load: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what a sandboxed run costs, compared with a plain process
    Spawn {
        /// How many rounds; each starts every variant once
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what many waiting runs cost the engine
    Many {
        /// How many runs at a time
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4095))]
        runs: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Show every setting that applies here and where it comes from
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: CompletionShell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// The directory to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
