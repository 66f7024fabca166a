//! `sandtimer serve` and `sandtimer mcp`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(super) const SERVE_NOTES: &str = "\
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

pub(super) const MCP_NOTES: &str = "\
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
