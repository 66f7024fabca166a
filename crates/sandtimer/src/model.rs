//! The types that every front end shares: the Outcome of a run and its parts.
//!
//! Plain data, serialised in the same way on every wire. Nothing here decides, waits or makes
//! system calls.

mod interpreted;
mod isolation;
pub mod json;
mod limit;
mod output;
mod python;
mod remark;
mod units;
mod verdict;

use serde::{Deserialize, Serialize};

pub use interpreted::{
    FileCommand, InterpretedCommand, MAX_ARGUMENT_BYTES, ProgramSource, argument_name, too_long,
    variable_name,
};
pub(crate) use interpreted::{NODE_FILE, NODE_FILE_SOURCE, PROGRAM_FILE, PROGRAM_FILES};
pub use isolation::{Degradation, Isolation, KillClass, Tier};
pub use limit::{Enforcer, Layer, LimitKind, Source};
pub use python::{PythonFrame, PythonThread};
pub use remark::{Remark, RemarkKind};
pub use units::{counted, time};
pub(crate) use verdict::serialize_waiting;
pub use verdict::{Notice, Progress, SentSignal, SpentTime, Verdict, WaitingChild, WaitingFor, Warning};

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
    /// The memory limit ended the run; or the kernel did because memory ran out around it, which
    /// the verdict's layer then shows.
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
    /// Sandtimer itself could not continue after the run had begun.
    InfraError,
}

/// What proves that nothing of a run is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Proof {
    /// The run's control group has no process any more.
    #[serde(rename = "cgroup empty")]
    CgroupEmpty,
    /// The pid namespace of the run has ended, and with it every process in it.
    #[serde(rename = "pid namespace gone")]
    PidNamespaceRemoved,
    /// Every descendant of the run was reaped, and a sweep found no other.
    #[serde(rename = "subreaper sweep")]
    SubreaperSweep,
    /// The tree was killed; its death was not confirmed within the bound. Settled later.
    #[serde(rename = "pending")]
    Pending,
    /// Something of the tree cannot be killed now (uninterruptible sleep). Its slot is quarantined.
    #[serde(rename = "unkillable")]
    Unkillable,
}

/// What remains of the state of the context that a run was executed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemainingState {
    /// The state is what the run left.
    Kept,
    /// The state is that of the checkpoint from before the run.
    RolledBack,
    /// A new interpreter without the earlier state has replaced the old one.
    Reset,
    /// The interpreter could not be killed in time, and its state cannot be used again.
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
    /// A copy of the caller's own process (`start="fork"` in Python).
    Fork,
    /// A new interpreter for this call alone (`start="spawn"` in Python).
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
    /// Plain text.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// The bytes are not UTF-8 and are written in base64.
    #[serde(rename = "base64")]
    Base64,
}

/// How many processes the run had, how many survived, and how that was verified.
///
/// ```
/// use sandtimer::{Engine, Proof, Spec};
///
/// let engine = Engine::new()?;
/// let run = engine.start(Spec::command(["sh", "-c", "sleep 3600 & exit 0"]))?;
/// let outcome = run.settled_blocking();
/// assert_eq!(outcome.tree.survivors, Some(0));
/// assert_ne!(outcome.tree.proof, Proof::Pending);
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// How many processes were alive when the tree was killed.
    pub killed: u64,
    /// 0 once proven; `None` while the proof is pending.
    pub survivors: Option<u64>,
    /// How the death of the tree was verified.
    pub proof: Proof,
    /// Milliseconds from the kill to the proof.
    pub dead_after_ms: Option<u64>,
}

/// The time, memory and processes that a run used.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::{Engine, Limits, Spec};
///
/// let limits = Limits::new().wall(Duration::from_millis(200));
/// let outcome = Engine::new()?.run_blocking(Spec::command(["sleep", "3600"]).limits(limits))?;
/// assert!(outcome.usage.wall_ms >= 200);
/// assert!(outcome.usage.memory_peak_bytes > 0);
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Milliseconds from the start of the command to its end; 0 if it did not start.
    pub wall_ms: u64,
    /// Milliseconds of processor time in user mode, of the whole tree.
    pub user_ms: u64,
    /// Milliseconds of processor time in the kernel, of the whole tree.
    pub system_ms: u64,
    /// The peak of memory in bytes: of the control group or, without one, of sampled processes.
    pub memory_peak_bytes: u64,
    /// The peak of processes and threads alive at once; sampled without a control group.
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

/// The result of a run. A timeout, a non-zero exit and an out-of-memory are data here, never an
/// `Err`.
///
/// ```
/// use sandtimer::{Ending, Engine, Spec};
///
/// let spec = Spec::command(["sh", "-c", "echo out; echo err >&2"]);
/// let outcome = Engine::new()?.run_blocking(spec)?;
/// assert_eq!((outcome.ending, outcome.ok), (Ending::Exited, true));
/// assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
/// assert!(outcome.verdict.is_none()); // no limit was reached
/// assert_eq!(serde_json::to_value(&*outcome).unwrap()["ending"], "exited");
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The id of the run, unique on the machine.
    pub run_id: String,
    /// How the run ended.
    pub ending: Ending,
    /// Returned, or exited 0.
    pub ok: bool,
    /// The exit code of the command; `None` unless it exited by itself.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended the command, such as `SIGSEGV`.
    pub signal: Option<String>,
    /// What was kept of stdout; encoded as `stdout_encoding` shows.
    pub stdout: String,
    /// What was kept of stderr; encoded as `stderr_encoding` shows.
    pub stderr: String,
    /// Whether the output limit dropped a part of stdout.
    pub stdout_truncated: bool,
    /// Whether the output limit dropped a part of stderr.
    pub stderr_truncated: bool,
    /// `base64` where at least one of both streams is.
    pub encoding: Encoding,
    /// How `stdout` is written.
    #[serde(default)]
    pub stdout_encoding: Encoding,
    /// How `stderr` is written.
    #[serde(default)]
    pub stderr_encoding: Encoding,
    /// The value of a call, if its front end writes values as JSON; else `None`.
    pub value: Option<serde_json::Value>,
    /// The exception of a call or cell, or why the command could not be run; else `None`.
    pub error: Option<serde_json::Value>,
    /// What a cell displayed, by MIME type; empty for a command.
    pub results: Vec<serde_json::Value>,
    /// The number of the cell in its context, from 1; `None` for other runs.
    pub execution_count: Option<u64>,
    /// Why Sandtimer ended the run; `None` if the run ended by itself.
    pub verdict: Option<Verdict>,
    /// The end of the processes, with its proof.
    pub tree: TreeReport,
    /// What remains of the context that a cell was executed in.
    pub state: RemainingState,
    /// Time, memory and processes that were used.
    pub usage: Usage,
    /// The isolation that was active.
    pub isolation: Isolation,
    /// How the process of the run was started.
    pub path: Path,
    /// Where exit code, value and exception come from.
    #[serde(default)]
    pub reported_by: Reporter,
    /// The notices that the run itself was given of limits that were near.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// What its owner may not expect of it, with what to do about it.
    #[serde(default)]
    pub remarks: Vec<Remark>,
}
