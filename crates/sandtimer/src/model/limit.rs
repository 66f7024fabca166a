//! Which limit it was, who set it at which layer, and what enforced it.

use serde::{Deserialize, Serialize};

/// The kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitKind {
    /// Elapsed time, nanoseconds inside, `wall_ms` on wires.
    Wall,
    /// Processor time of the whole process tree, `cpu_ms` on wires.
    Cpu,
    /// Time without output and without CPU use, `stall_ms` on wires.
    Stall,
    /// Time an unused context or session is kept, `idle_ms` on wires.
    Idle,
    /// Turns of an agent's loop.
    Turns,
    /// Failures of an agent's loop.
    Failures,
    /// Bytes of memory, `memory_bytes` on wires.
    Memory,
    /// Processes and threads alive at once.
    Processes,
    /// Bytes kept of each output stream, `output_bytes` on wires.
    Output,
    /// Bytes on the run's private disk and in its workspaces, `disk_bytes` on wires.
    Disk,
    /// Open files per process.
    OpenFiles,
    /// Bytes of a call's result, `result_bytes` on wires.
    Result,
}

/// Where an effective limit came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// Given with the call.
    Call,
    /// Set on the session or context.
    Session,
    /// Given to the process that runs the engine: an environment variable, or a flag of a server.
    Env,
    /// A configuration file.
    Config,
    /// Sandtimer's own default.
    Builtin,
    /// An operator's ceiling (`max_*`) or the machine's.
    Ceiling,
    /// A scope further out in the tree.
    Ancestor,
}

impl Source {
    /// For messages: "from …".
    pub(crate) fn description(self) -> &'static str {
        match self {
            Source::Call => "the call",
            Source::Session => "the session",
            Source::Env => "the environment",
            Source::Config => "a configuration file",
            Source::Builtin => "what is built in",
            Source::Ceiling => "a ceiling",
            Source::Ancestor => "an outer scope",
        }
    }
}

/// The level of a scope in the tree tenant → job → sandbox → session or context → loop → turn →
/// task → call → attempt → run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// A user or team that shares a server with others; the outermost level.
    Tenant,
    /// A job: durable work, all of its attempts and restarts included.
    Job,
    /// A sandbox, with everything that happens in it.
    Sandbox,
    /// A session or a context, with all of its cells.
    Session,
    /// An agent's loop.
    Loop,
    /// One turn of an agent's loop.
    Turn,
    /// A task: work that is compared with its estimate.
    Task,
    /// A call, with its retries.
    Call,
    /// One attempt of something that is retried.
    Attempt,
    /// One execution: the innermost level.
    Run,
    /// No scope of the caller's: Sandtimer's own steps (starting, preparing, collecting), and the
    /// memory of all runs together.
    Infrastructure,
}

/// Which enforcer ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Enforcer {
    /// The engine's own real-time thread.
    Enforcer,
    /// The sandbox's first process.
    Init,
    /// The separate watchdog process.
    Watchdog,
    /// The kernel: RLIMIT_CPU, the memory controller, the pids controller.
    Kernel,
}
