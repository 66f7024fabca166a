//! The types that every front end shares: the Outcome of a run and its parts.
//!
//! Plain data, serialised in the same way on every wire. Nothing here decides, waits or makes
//! system calls.

mod interpreted;
pub mod json;
mod output;
mod python;
mod remark;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

pub use interpreted::{
    FileCommand, InterpretedCommand, MAX_ARGUMENT_BYTES, ProgramSource, argument_name, too_long,
    variable_name,
};
pub(crate) use interpreted::{NODE_FILE, NODE_FILE_SOURCE, PROGRAM_FILE, PROGRAM_FILES};
pub use python::{PythonFrame, PythonThread};
pub use remark::{Remark, RemarkKind};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The command exited by itself; see [`Outcome::exit_code`].
    Exited,
    /// The command was ended by a signal that Sandtimer did not send; see [`Outcome::signal`].
    Signaled,
    /// A call returned a value.
    Returned,
    /// A call raised an exception.
    Raised,
    /// A call's process ended without giving a result.
    NoResult,
    /// A wall or CPU limit ended the run.
    Timeout,
    /// The stall limit ended the run: no output and no CPU use for that long.
    Stalled,
    /// The memory limit ended the run; or the kernel did where memory ran out around it, as the
    /// verdict's layer says then.
    OutOfMemory,
    /// The output limit ended the run (only with `on_output_limit: end`).
    OutputLimit,
    /// The process limit made the command fail.
    ProcessLimit,
    /// The disk limit ended the run.
    DiskLimit,
    /// A budget of an agent's scope (turns, failures) ended the run.
    Budget,
    /// The caller ended the run.
    Cancelled,
    /// Sandtimer itself could not go on after the run had begun.
    InfraError,
}

/// Which kind of limit.
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
    Tenant,
    Job,
    Sandbox,
    Session,
    Loop,
    Turn,
    Task,
    Call,
    Attempt,
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

/// What proves that nothing of a run is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Proof {
    #[serde(rename = "cgroup empty")]
    CgroupEmpty,
    #[serde(rename = "pid namespace gone")]
    PidNamespaceRemoved,
    #[serde(rename = "subreaper sweep")]
    SubreaperSweep,
    /// The tree was killed; its death was not confirmed within the bound. Settled later.
    #[serde(rename = "pending")]
    Pending,
    /// Something of the tree cannot be killed now (uninterruptible sleep). Its slot is quarantined.
    #[serde(rename = "unkillable")]
    Unkillable,
}

/// What remains of the state a run worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemainingState {
    Kept,
    RolledBack,
    Reset,
    Lost,
    /// The run had no state: a plain command.
    None,
}

/// How the run's process came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Path {
    /// A sandbox that was ready and waiting.
    Parked,
    /// A zygote forked on demand.
    Cold,
    /// A new sandbox, then exec.
    Exec,
    Fork,
    Spawn,
}

/// Where an [`Outcome`] has its exit code, value or exception from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reporter {
    /// The kernel: how the command's process ended. Also where a limit ended it, or Sandtimer.
    #[default]
    Kernel,
    /// The process that executed the code, of calls, contexts and sessions: what runs in that
    /// process can report anything, and nothing else can.
    Interpreter,
}

/// How a stream of an [`Outcome`] is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// A signal sent while ending a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSignal {
    /// Its name, such as `SIGTERM`.
    pub signal: String,
    /// Milliseconds since the run began.
    pub at_ms: u64,
}

/// Word that a run itself was given of a limit that was near.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The limit.
    pub kind: LimitKind,
    /// When, in milliseconds since the run began.
    pub at_ms: u64,
    /// What was left until the limit, in milliseconds.
    pub left_ms: u64,
    /// The signal that was chosen for it.
    pub signal: Option<String>,
    /// How many processes were sent it: those that handle it.
    pub processes: u64,
}

/// How far the run said it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub done: f64,
    pub total: Option<f64>,
    pub eta_ms: Option<u64>,
    /// How likely it is done before its wall limit ends it, from 0 to 1. `None` without such a
    /// limit, where nothing says when it will be done, and once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_finish_before_deadline: Option<f64>,
}

impl Progress {
    /// The same in words: `8 of 15, done in about 2 m 5 s, before its limit with a chance of 80 %`.
    pub fn description(&self) -> String {
        let count = |count: f64| ((count * 100.0).round() / 100.0).to_string();
        let mut text = count(self.done);
        if let Some(total) = self.total {
            text += &format!(" of {}", count(total));
        }
        if let Some(left) = self.eta_ms {
            text += &format!(", done in about {}", time(left));
        }
        if let Some(chance) = self.p_finish_before_deadline {
            text += &format!(", before its limit with a chance of {:.0} %", 100.0 * chance);
        }
        text
    }
}

/// What the run was waiting for when its limit fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitingFor {
    Stdin,
    Sleep,
    Network,
    Child,
    Cpu,
    Io,
    Stopped,
    /// A lock of its own threads, of a file, or of another process. Records have no word for it.
    #[serde(skip)]
    Lock,
    /// The other end of a pipe: `io` in records.
    #[serde(skip)]
    Pipe,
}

impl WaitingFor {
    /// As records tell it: in one of their words, or not at all. What they leave out is in the
    /// sentence and the wait channel.
    pub fn as_recorded(self) -> Option<Self> {
        match self {
            WaitingFor::Lock => None,
            WaitingFor::Pipe => Some(WaitingFor::Io),
            other => Some(other),
        }
    }
}

/// In the words of records.
pub(crate) fn serialize_waiting<S: Serializer>(what: &Option<WaitingFor>, to: S) -> Result<S::Ok, S::Error> {
    what.and_then(WaitingFor::as_recorded).serialize(to)
}

/// A process that a command waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingChild {
    /// What it calls itself, at most 15 bytes.
    pub name: String,
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
}

/// Where a run's time went, beside running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentTime {
    /// Milliseconds between submission and the start of the sandbox.
    pub queued_ms: u64,
    /// Milliseconds to build the sandbox.
    pub spawn_ms: u64,
    /// Earlier attempts at the same call.
    pub attempts: Vec<serde_json::Value>,
    /// Milliseconds the run was paused.
    pub paused_ms: u64,
}

/// Why Sandtimer ended a run. Present whenever a limit or a cancel did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit that fired; `None` for a cancel.
    pub kind: Option<LimitKind>,
    pub layer: Layer,
    /// The path of the scope in the tree, such as `job/7f3/turn-12/run-3`; `engine` or `machine`
    /// where memory ran out around the run.
    pub scope: String,
    /// The limit in milliseconds as it was when it fired, for kinds measured in time.
    pub limit_ms: Option<u64>,
    /// By how much the run was extended, where it was; the limit has it in it as far as nothing
    /// further out bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_ms: Option<u64>,
    /// The limit in its own unit (bytes, processes), for the other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    pub source: Source,
    /// The variable, flag or line of a file that set the limit, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    pub elapsed_ms: u64,
    /// How long after `wall + grace` the verdict was published, in milliseconds.
    pub late_ms: f64,
    pub enforced_by: Enforcer,
    pub signals: Vec<SentSignal>,
    pub last_output_age_ms: Option<u64>,
    pub progress: Option<Progress>,
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
    /// The innermost process that its command waited for, and what that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<WaitingChild>,
    /// The kernel's function in which that process waited, or the command; see proc_pid_wchan(5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_channel: Option<String>,
    /// For how many milliseconds at least its processor time has not moved; absent where it was not
    /// looked at twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cpu_age_ms: Option<u64>,
    /// The same of what it has read and written, files and pipes alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_io_age_ms: Option<u64>,
    /// The Python stacks of the first of its processes that is an interpreter, where they were
    /// seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<PythonThread>,
    pub spent: SpentTime,
    /// One or two sentences for a person or a model.
    pub sentence: String,
}

/// Word of a limit that has not ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// The wall limit is near.
    Wall {
        /// Milliseconds until the ending starts.
        left_ms: u64,
    },
    /// The limit of processor time is near.
    Cpu {
        /// Milliseconds of processor time until then.
        left_ms: u64,
    },
    /// No output for longer than the stall limit; the run goes on because it uses the processor.
    Stall {
        /// Milliseconds without output.
        quiet_ms: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Wall { left_ms } => {
                write!(formatter, "the wall-clock limit ends it in {}", time(*left_ms))
            }
            Warning::Cpu { left_ms } => {
                write!(formatter, "the cpu limit ends it after {} more of processor time", time(*left_ms))
            }
            Warning::Stall { quiet_ms } => write!(
                formatter,
                "busy but quiet for {}: longer than its stall limit, but it continues because it uses the processor",
                time(*quiet_ms)
            ),
        }
    }
}

/// `350 ms`, `2 s`, `1 m 30 s`, `2 h 5 m`.
pub fn time(milliseconds: u64) -> String {
    let duration = Duration::from_millis(milliseconds);
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 if duration.subsec_millis() == 0 => format!("{seconds} s"),
        1..60 => format!("{:.2} s", duration.as_secs_f64()),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 attempt`, `3 attempts`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What became of the run's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// How many processes were alive when the tree was killed.
    pub killed: u64,
    /// 0 once proven; `None` while the proof is pending.
    pub survivors: Option<u64>,
    pub proof: Proof,
    /// Milliseconds from the kill to the proof.
    pub dead_after_ms: Option<u64>,
}

/// What the run used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_ms: u64,
    pub user_ms: u64,
    pub system_ms: u64,
    pub memory_peak_bytes: u64,
    pub processes_peak: u64,
    /// Time in which the run had threads ready and none of them had a processor, from the group's
    /// pressure (PSI); `None` where the kernel does not count it.
    pub run_queue_ms: Option<u64>,
    /// Milliseconds between submission and the start of the jail, or of the cell.
    #[serde(default)]
    pub queued_ms: u64,
    /// Milliseconds to build the jail, until the command started.
    #[serde(default)]
    pub spawn_ms: u64,
}

/// How long a run waited before its command started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartDelays {
    /// Milliseconds between submission and the start of the jail, or of the cell.
    pub queued_ms: u64,
    /// Milliseconds to build the jail; `None` until the command started.
    pub spawn_ms: Option<u64>,
}

/// A wall that was wanted and is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degradation {
    pub layer: String,
    pub reason: String,
}

/// The isolation that was in force, as applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub tier: Tier,
    pub kill: KillClass,
    pub deadline_layers: Vec<String>,
    pub degraded: Vec<Degradation>,
}

/// Strength of the walls; see `docs/architecture.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// rlimits and a process group only.
    T0,
    /// Landlock and seccomp, no namespaces.
    T1,
    /// T3 without cgroup limits.
    T2,
    /// Namespaces, cgroup limits, Landlock, seccomp, not root.
    T3,
}

/// How surely the whole tree can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KillClass {
    /// Process group: escapable.
    K0,
    /// Everything of the run's uid, or a subreaper sweep.
    K1,
    /// The pid namespace.
    K2,
    /// cgroup.kill.
    K3,
}

/// The result of a run. A timeout, a non-zero exit and an out-of-memory are data here, never an
/// `Err`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub run_id: String,
    pub ending: Ending,
    /// Returned, or exited 0.
    pub ok: bool,
    pub exit_code: Option<i32>,
    /// Name of the signal that ended the command, such as `SIGSEGV`.
    pub signal: Option<String>,
    pub stdout: String,
    pub stderr: String,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// `base64` where at least one of both streams is.
    pub encoding: Encoding,
    #[serde(default)]
    pub stdout_encoding: Encoding,
    #[serde(default)]
    pub stderr_encoding: Encoding,
    pub value: Option<serde_json::Value>,
    pub error: Option<serde_json::Value>,
    pub results: Vec<serde_json::Value>,
    pub execution_count: Option<u64>,
    pub verdict: Option<Verdict>,
    pub tree: TreeReport,
    pub state: RemainingState,
    pub usage: Usage,
    pub isolation: Isolation,
    pub path: Path,
    #[serde(default)]
    pub reported_by: Reporter,
    /// What the run itself was told of limits that were near.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// What its owner may not expect of it, with what to do about it.
    #[serde(default)]
    pub remarks: Vec<Remark>,
}
