//! What can be typed: flags, subcommands and their help. Texts that may be anything are `OsString`;
//! limits are read in `config`, where every place a limit comes from is read by the same rules.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) mod jobs;
mod run_line;
pub(crate) mod sandbox;
pub(crate) mod template;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use sandtimer::model::{KillClass, Tier};

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

const RUN_NOTES: &str = "\
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

const LANGUAGE_NOTES: &str = "\
Arguments of the program that begin with a dash go after `--`. The file must be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

const TYPESCRIPT_NOTES: &str = "\
Types are removed and not checked; enums, namespaces and parameter properties become JavaScript. A syntax error ends with \
exit code 1 and the line and column of the error. A file may import JavaScript, but no other TypeScript.

Arguments of the program that begin with a dash go after `--`. The file must be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

const SERVE_NOTES: &str = "\
Without a token file the server answers only its own user, on this machine. A token file has one line for each client: a name, \
a token and, optionally, quotas of what may exist at once (`runs=10 contexts=4 sessions=4`; jobs are queued instead and do not \
count). Only its owner may be able to read the file. What is created with a token belongs to the token's name.

SIGTERM, SIGHUP or Ctrl-C ends the server: it takes no new requests and jobs, gives open requests 5 s, cancels and records all \
runs, and gives jobs back to the queue, where the next server continues them. Each flag has a variable: SANDTIMER_LISTEN, \
SANDTIMER_STATE_DIR, SANDTIMER_TOKEN_FILE, SANDTIMER_KEEP_RUNS, SANDTIMER_KEEP_FOR, SANDTIMER_STORE, SANDTIMER_JOB_SLOTS, \
SANDTIMER_JOB_FILES, SANDTIMER_JOB_MEMORY, SANDTIMER_TEMPLATE (several are separated by colons), SANDTIMER_PRIVATE_WEBHOOKS (1). The limits that apply to requests come from the same \
variables and files as those of `sandtimer run`; the timeouts below also from the variables of the same name in capitals \
(COMMAND_TIMEOUT_MS, …). A limit in a request, or in the session or context that it uses, takes precedence over them, also if \
it is `unlimited`.";

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// The form of the result: `cell` or `program`
    #[arg(value_name = "WANTED")]
    pub(crate) wanted: String,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The address to listen on [default: 127.0.0.1:7880], or unix:PATH; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<OsString>,
    /// The directory of records [default: /var/lib/sandtimer for root, else
    /// ~/.local/state/sandtimer]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<OsString>,
    /// The clients that may use the server: lines of a name and a token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<OsString>,
    /// How many ended runs are kept, at times up to a sixteenth more [default: 1000]; 0 or
    /// `unlimited` keeps all
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) keep_runs: Option<OsString>,
    /// How long ended runs are kept [default: 7d]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) keep_for: Option<OsString>,
    /// A job store that is shared with other workers, instead of the state directory:
    /// nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory. SANDTIMER_NATS_CREDENTIALS and
    /// SANDTIMER_NATS_CA name files of credentials and certificates
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) store: Option<OsString>,
    /// How many jobs the server executes at a time [default: the number of processors]; 0 leaves
    /// them to `sandtimer jobs work`
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) job_slots: Option<OsString>,
    /// How many bytes of the files of a job are kept [default: 64M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) job_files: Option<OsString>,
    /// Memory for jobs that have a memory limit: as many run at a time as fit [default: 80 % of the
    /// machine's memory, or of the limit of the cgroup]; `unlimited` uses all slots
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) job_memory: Option<OsString>,
    /// A root tree, such as one that debootstrap has made, from which clients may make sandboxes by
    /// this name; may be repeated
    #[arg(long, value_name = "NAME=DIR")]
    pub(crate) template: Vec<OsString>,
    /// Allow webhooks to loopback, private and link-local addresses
    #[arg(long)]
    pub(crate) private_webhooks: bool,
    /// How long jobs may continue after SIGTERM, while requests are still answered, before they are
    /// given back and the server ends [default: the 5s of open requests]; 0 and a second SIGTERM
    /// give them back at once
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) drain: Option<OsString>,
    /// Start the server of this user in the background unless it is running, print the path of its
    /// socket, and exit; the server is that of `sandtimer mcp`, and ends 60 s after its last use
    #[arg(long, exclusive = true)]
    pub(crate) on_demand: bool,
    /// End when no client is connected and nothing runs; for the server that `sandtimer mcp` starts
    #[arg(long, hide = true)]
    pub(crate) end_when_unused: bool,
    /// The level of the log on stderr: off, error, warn, info (runs), debug (requests) or trace
    /// [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<OsString>,
    /// The format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<OsString>,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

/// Default timeouts of what a server executes, and how its interpreters are started.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Defaults and interpreters")]
pub(crate) struct PolicyFlags {
    /// How long an interpreter or a shell may take to start [default: 60000]; cannot be disabled
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_spawn_timeout_ms: Option<OsString>,
    /// How long a pre-warm script may take [default: 30000]; cannot be disabled
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_prewarm_timeout_ms: Option<OsString>,
    /// Wall-clock limit of code in contexts [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_execution_timeout_ms: Option<OsString>,
    /// Wall-clock limit of JavaScript and TypeScript in contexts, in addition to that of all code
    /// [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) vm_execution_timeout_ms: Option<OsString>,
    /// Wall-clock limit of runs, and of commands in sessions [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) command_timeout_ms: Option<OsString>,
    /// Bytes kept of stdout, and of stderr [default: 10485760]; 0 is unlimited
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) max_output_size_bytes: Option<OsString>,
    /// A script that interpreters of a language (python, javascript, bash) execute when they start;
    /// may be repeated
    #[arg(long, value_name = "LANGUAGE=FILE")]
    pub(crate) prewarm: Vec<OsString>,
    /// How many pre-warmed interpreters of a language each user of the server has [default:
    /// python=2, javascript=1]; may be repeated
    #[arg(long, value_name = "LANGUAGE=COUNT")]
    pub(crate) pool: Vec<OsString>,
}

const MCP_NOTES: &str = "\
Connects the client to a server of this user, by a socket that only this user can open, and starts the server if there is none; \
all clients of the user share it. Runs in the background continue under their limits when the client disconnects, and the next \
client can read them; a call that the client waits for ends with it. The server ends 60 s after the last client has \
disconnected, once nothing runs and no interpreter is kept (an unused interpreter ends after an hour); or by SIGTERM. Limits of \
commands come from the variables and files of the first client's `sandtimer mcp`, as for `serve`.

--wall, --turns and --stall bound everything that this connection starts; verdicts name them. With --workspace everything that \
it starts works in that directory, and files there keep their owner; without it, in a directory of the server that all clients \
share. `/`, home directories and directories of keys are refused.";

/// `sandtimer mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Wall-clock limit of everything that this connection starts, from now on
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// How many calls that start code this connection may make
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) turns: Option<OsString>,
    /// Longest time that code which it started may neither write output nor use the processor
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) stall: Option<OsString>,
    /// A directory that is shown, writable and at its own path, to everything that this connection
    /// starts; /workspace is a link to it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Make a sandbox of this template, such as `host`, in which everything that this connection
    /// starts works; it is deleted when the connection ends
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "workspace")]
    pub(crate) sandbox: Option<String>,
    /// Give everything that this connection starts the host's network, including loopback
    #[arg(long)]
    pub(crate) network: bool,
    /// Which tool names are listed: `ours`, those that agents were `trained` on, or `both`; all of
    /// them can be called [default: SANDTIMER_MCP_TOOLS, else `both`]
    #[arg(long, value_name = "NAMES")]
    pub(crate) tools: Option<String>,
    /// The directory of the server's records and socket [default: `mcp` in the directory of
    /// `serve`, which SANDTIMER_STATE_DIR sets too; without that the socket is in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
}

const LOGS_NOTES: &str = "\
Without --follow it prints the output so far, standard output first. With --follow it prints output as it is written, until \
the run has ended; a broken connection is restored at the same position, for up to a minute. The run's standard output goes to \
standard output, its standard error to standard error.";

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
pub(crate) struct ProgressArguments {
    /// How much is done, and of how much: 8/15, or 8
    #[arg(value_name = "DONE/TOTAL")]
    pub(crate) done: String,
    /// The unit that is counted, such as epoch
    #[arg(long)]
    pub(crate) unit: Option<String>,
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

/// Reads `T0`–`T3` or `K0`–`K3`.
fn parse_require(text: &str) -> Result<Require, String> {
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
