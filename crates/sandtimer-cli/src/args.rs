//! What can be typed: flags, subcommands and their help. Texts that may be anything are `OsString`; limits are read in
//! `config`, where every place a limit comes from is read by the same rules.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) mod jobs;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use sandtimer::model::{KillClass, Tier};

/// Run code under hard limits, end all of it, and say why.
#[derive(Debug, Parser)]
#[command(name = "sandtimer", version, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Arguments {
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
    /// Serve runs over HTTP
    #[command(after_long_help = SERVE_NOTES)]
    Serve(ServeArguments),
    /// Give an agent tools over stdin and stdout, by the Model Context Protocol
    #[command(after_long_help = MCP_NOTES)]
    Mcp(McpArguments),
    /// Submit durable work, execute it, and see what became of it
    Jobs(jobs::JobsArguments),
    /// List what goes on in a server: runs, contexts, sessions
    Ps(PsArguments),
    /// Print what a run of a server has written
    #[command(after_long_help = LOGS_NOTES)]
    Logs(LogsArguments),
    /// End a run of a server, or a context or session
    Kill(KillArguments),
    /// Move the wall limit of a run of a server later
    Extend(ExtendArguments),
    /// Stop the processes of a run of a server, and the run's own clocks
    Pause(OneRun),
    /// Let a paused run of a server go on
    Resume(OneRun),
    /// Say how long a task or a command is likely to take
    #[command(after_long_help = ESTIMATE_NOTES)]
    Estimate(EstimateArguments),
    /// Report, from inside a run, how far it is
    #[command(after_long_help = PROGRESS_NOTES)]
    Progress(ProgressArguments),
    /// Show what this machine can enforce, and what is missing
    Doctor(DoctorArguments),
    /// Measure how late limits are and what a sandbox costs, on this machine
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
processes limit did; 137 out of memory; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP; 125 when Sandtimer \
failed or was used wrongly; 126 when the command cannot be executed, 127 when it is not found.

Streams: stdout and stderr go where yours point, by one pipe where both are one file. If stdin and an output are the \
same terminal, the command has a terminal of its own for them; not if stdout is a pipe. What it does not read of its stdin is \
left for the next command; of a named FIFO, a socket or a terminal up to 4 KiB are read ahead.

Ctrl-C interrupts the command; a second one ends the run, and a third does not wait for its grace. On a terminal of its own \
the key is the command's, and three within a second end the run, unless the command edits its input itself, as editors, \
shells and interpreters do at their prompts. Ctrl-Z stops sandtimer and the run as a job of your shell, to be continued by fg \
or bg; a shell in the run that has a job in the foreground keeps it for that. Limits stay in force while a run is stopped.";

const PROGRESS_NOTES: &str = "\
Writes one line, such as {\"done\":8,\"total\":15,\"unit\":\"epoch\"}, to the descriptor that SANDTIMER_PROGRESS_FD names. \
Runs have one where that was asked for (--progress-channel, `progress_channel` of POST /v1/runs). Without one nobody listens, and nothing is done: \
a script may be run anywhere.";

const LANGUAGE_NOTES: &str = "\
Arguments for the program that begin with a dash go behind `--`. The file has to be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

const TYPESCRIPT_NOTES: &str = "\
Types are taken out and not checked; enums, namespaces and parameter properties become JavaScript. What cannot be read ends with \
exit code 1 and the line and column of the error. A file may import JavaScript, and no other TypeScript.

Arguments for the program that begin with a dash go behind `--`. The file has to be below the current directory or a \
--workspace. Exit codes are those of `sandtimer run`.";

const SERVE_NOTES: &str = "\
Without a token file the server answers only its own user, on this machine. A token file has lines of a name and a token, \
with quotas behind them (`runs=10 contexts=4 sessions=4`) where there may be only so many at once (jobs wait instead, and are not counted), and must be readable by that user alone; what is made with a token belongs to its name.

SIGTERM, SIGHUP or Ctrl-C ends it: no new requests and jobs, 5 s for open ones, then all runs are cancelled and recorded, and \
jobs are given back, to go on with the next server. Each flag has a variable: SANDTIMER_LISTEN, SANDTIMER_STATE_DIR, \
SANDTIMER_TOKEN_FILE, SANDTIMER_KEEP_RUNS, SANDTIMER_KEEP_FOR, SANDTIMER_STORE, SANDTIMER_JOB_SLOTS, SANDTIMER_JOB_FILES, SANDTIMER_JOB_MEMORY, \
SANDTIMER_PRIVATE_WEBHOOKS (1). The \
limits that apply to requests come from the same variables and files as those of `sandtimer run`; the timeouts below also \
from the variables of the same name in capitals (COMMAND_TIMEOUT_MS, …). What a request, or the session or context that it \
uses, says itself wins over them, also where it says that there is no limit.";

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// What it is to become: `cell` or `program`
    #[arg(value_name = "WANTED")]
    pub(crate) wanted: String,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Where to listen [default: 127.0.0.1:7880]: an address, of which port 0 takes a free one, or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<OsString>,
    /// Where records are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<OsString>,
    /// Who may ask: lines of a name and a token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<OsString>,
    /// How many runs that are over are kept, up to a sixteenth more at times [default: 1000]; 0 or `unlimited` is all
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) keep_runs: Option<OsString>,
    /// How long they are kept [default: 7d]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) keep_for: Option<OsString>,
    /// Where jobs are, instead of in the state directory, shared with others that work on them: nats://[USER:PASSWORD@]HOST[:PORT],
    /// tls://…, or a directory. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) store: Option<OsString>,
    /// Jobs that it executes at a time [default: the number of processors]; 0 leaves them to `sandtimer jobs work`
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) job_slots: Option<OsString>,
    /// Of the files that a job leaves, so many bytes are kept [default: 64M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) job_files: Option<OsString>,
    /// Memory for jobs that say how much they may have: so many are executed at a time as fit [default: 80 % of the machine's, or
    /// of the limit of the cgroup]; `unlimited` is as many as there are slots
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) job_memory: Option<OsString>,
    /// Let ends of jobs be told to loopback, private and link-local addresses
    #[arg(long)]
    pub(crate) private_webhooks: bool,
    /// How long jobs may continue after SIGTERM, while requests are still answered, before they are given back and the server ends
    /// [default: the 5s of open requests]; 0 and a second SIGTERM give them back at once
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) drain: Option<OsString>,
    /// End when nobody is connected and nothing runs; for the server that `sandtimer mcp` starts
    #[arg(long, hide = true)]
    pub(crate) end_when_unused: bool,
    /// What of itself it says on stderr: off, error, warn, info (runs), debug (requests) or trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<OsString>,
    /// How it is said: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<OsString>,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

/// How long what a server executes may take unless a request, a session or a context says otherwise, and how its
/// interpreters come to be.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Defaults and interpreters")]
pub(crate) struct PolicyFlags {
    /// How long an interpreter or a shell may take to start [default: 60000]; cannot be switched off
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_spawn_timeout_ms: Option<OsString>,
    /// How long a pre-warm script may take [default: 30000]; cannot be switched off
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_prewarm_timeout_ms: Option<OsString>,
    /// Wall limit of code in contexts [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) interpreter_execution_timeout_ms: Option<OsString>,
    /// Wall limit of JavaScript and TypeScript in contexts, beside the one of all code [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) vm_execution_timeout_ms: Option<OsString>,
    /// Wall limit of runs, and of commands in sessions [default: 0, unlimited]
    #[arg(long, value_name = "MILLISECONDS", allow_hyphen_values = true)]
    pub(crate) command_timeout_ms: Option<OsString>,
    /// Bytes kept of stdout, and of stderr [default: 10485760]; 0 is unlimited
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) max_output_size_bytes: Option<OsString>,
    /// A script that interpreters of a language (python, javascript, bash) run before they are given out; may be repeated
    #[arg(long, value_name = "LANGUAGE=FILE")]
    pub(crate) prewarm: Vec<OsString>,
    /// How many interpreters of a language stand ready for each user of the server [default: python=2, javascript=1]; may be repeated
    #[arg(long, value_name = "LANGUAGE=COUNT")]
    pub(crate) pool: Vec<OsString>,
}

const MCP_NOTES: &str = "\
Carries the client's messages to a server of this user, on a socket that only this user can use, and starts one where there \
is none; all clients of the user share it. Runs in the background go on when the client goes away, under their limits, and \
the next client reads them. A call that is waited for ends with its client. The server ends 60 s after the last client has \
gone, once nothing runs and no interpreter is kept (one that nobody uses ends after an hour); or by SIGTERM. Limits of \
commands come from the variables and files that the first client's `sandtimer mcp` saw, as for `serve`.

--wall, --turns and --stall bound all that this connection starts together; what they end says so. With --workspace all \
that it starts works in that directory, whose files stay their owner's; without it in one of the server's that all clients \
share. `/`, homes and what holds keys are refused.";

/// `sandtimer mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Longest time for all that this connection starts, from now on
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// How many calls that start something this connection may make
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) turns: Option<OsString>,
    /// Longest time that something it started may neither write nor compute
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) stall: Option<OsString>,
    /// Show this directory, writable, at its own path to all that this connection starts; /workspace
    /// is a link to it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Give all that this connection starts the host's network, loopback included
    #[arg(long)]
    pub(crate) network: bool,
    /// Which names of tools are listed: `ours`, those that agents were `trained` on, or `both`; all of them can be called [default:
    /// SANDTIMER_MCP_TOOLS, else `both`]
    #[arg(long, value_name = "NAMES")]
    pub(crate) tools: Option<String>,
    /// Where the server keeps records, and its socket [default: `mcp` in the directory of `serve`, which SANDTIMER_STATE_DIR sets too;
    /// without that the socket is in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
}

const LOGS_NOTES: &str = "\
Without --follow it prints what there is by now, standard output first. With it, output comes as it is written, until the \
run is over; a connection that breaks is made again where it was, for up to a minute. The run's standard output goes to \
standard output, its standard error to standard error.";

const ESTIMATE_NOTES: &str = "\
An estimate rests on the runs of this user's servers, `sandtimer serve` and that of `sandtimer mcp`, that have the most in \
common with what is asked: the same \
command, one that differs in numbers and paths, the same type of task with about as much data. Best and worst case are what one \
run of twenty is below, and above. Without such runs the figures are those of a table, and say so.";

#[derive(Debug, Args)]
pub(crate) struct EstimateArguments {
    /// The type of task; --list shows them
    #[arg(value_name = "TYPE", required_unless_present_any = ["command", "list"])]
    pub(crate) task_type: Option<String>,
    /// The command, as a line for a shell
    #[arg(long, value_name = "LINE", allow_hyphen_values = true)]
    pub(crate) command: Option<String>,
    /// Megabytes of data that it works on
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) data_size_mb: Option<f64>,
    /// simple, moderate or complex [default: moderate]
    #[arg(long, value_name = "WORD")]
    pub(crate) complexity: Option<String>,
    /// Words that tell it from others of its type; they are compared, not understood
    #[arg(long, value_name = "TEXT")]
    pub(crate) context: Option<String>,
    /// How much time there is for it, such as 2h: says whether it fits
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) budget: Option<String>,
    /// List the types of task, with how long each takes as far as no runs are known
    #[arg(long, conflicts_with_all = ["task_type", "command"])]
    pub(crate) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the servers keep their records [default: as for `sandtimer serve`]; SANDTIMER_STATE_DIR sets it too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Which server is asked, and how the answer is printed.
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
    /// Of this run: what it is doing, and its processes
    pub(crate) id: Option<String>,
    /// Runs that are over as well
    #[arg(long, short, conflicts_with = "id")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ProgressArguments {
    /// What is done, of how much: 8/15, or 8
    #[arg(value_name = "DONE/TOTAL")]
    pub(crate) done: String,
    /// What is counted, such as epoch
    #[arg(long)]
    pub(crate) unit: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The run, by its id
    pub(crate) id: String,
    /// Go on until the run is over
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// The run, context or session, by its id
    pub(crate) id: String,
    /// Why, for the run's verdict
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// The run, by its id
    pub(crate) id: String,
    /// How much later, such as 30s; a bare number is seconds
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
    /// Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none
    #[arg(long, visible_alias = "timeout", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wall: Option<OsString>,
    /// Processor time of all its processes together
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) cpu: Option<OsString>,
    /// Longest time without output and without CPU use, or as --stall-by says
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
    /// Bytes let through of stdout and of stderr; the rest is dropped, and said so
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
    /// Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it;
    /// with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names
    #[arg(long, value_name = "DURATION[:SIGNAL]", allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) warn: Option<OsString>,
    /// What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise
    #[arg(long, value_name = "WHAT", default_value = "output", help_heading = "Limits")]
    pub(crate) stall_by: StallBy,
    /// Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`
    #[arg(long)]
    pub(crate) progress_channel: bool,
    /// Give it the host's network
    #[arg(long)]
    pub(crate) network: bool,
    /// Show a directory writable at its own path; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Vec<PathBuf>,
    /// Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered
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
    /// Say on stderr which limits applied and who set them, what was not shown, and which walls are missing
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// What becomes of output that is not UTF-8 with --json
    #[arg(long, value_name = "ACTION", default_value = "strict")]
    pub(crate) errors: TextErrors,
    /// Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1
    #[arg(long, value_name = "LAYER", hide = true, action = ArgAction::Append)]
    pub(crate) without: Vec<Layer>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextErrors {
    /// The stream is base64
    #[default]
    Strict,
    /// Each sequence of bytes that is not UTF-8 becomes U+FFFD
    Replace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOutputLimit {
    /// Drop the rest and go on
    #[default]
    Drop,
    /// End the run
    End,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StallBy {
    /// Output, or use of the processor
    #[default]
    Output,
    /// Only that it gets further, as it reports or as its output says
    Progress,
}

/// The least that must be in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Require {
    Tier(Tier),
    Kill(KillClass),
}

/// A layer that `--without` can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layer {
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
    /// Exit with 125 unless this tier (T0–T3) or kill class (K0–K3) can be had; may be repeated
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
    /// How late the wall limit's verdict is, over code that does not want to end
    Lateness {
        /// How many runs
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        runs: u32,
        /// Beside 8 busy loops for each processor, in sandboxes
        #[arg(long)]
        load: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What a sandboxed run costs beside a bare process
    Spawn {
        /// How many rounds; each starts every contender once
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What many waiting runs cost the engine
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
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
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
        _ => return Err("use a tier, T0 to T3, or a kill class, K0 to K3".to_owned()),
    })
}
