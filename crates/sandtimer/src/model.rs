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

/// A signal sent while ending a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentSignal {
    /// Its name, such as `SIGTERM`.
    pub signal: String,
    /// Milliseconds since the run began.
    pub at_ms: u64,
}

/// A warning that a run itself was sent before a limit.
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
    /// How many processes it was sent to: those that handle it.
    pub processes: u64,
}

/// How far a run was, as it reported or printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units that are done.
    pub done: f64,
    /// Units in all; `None` if the run has not named a total.
    pub total: Option<f64>,
    /// Milliseconds until it is likely to be done; `None` if the pace is not known.
    pub eta_ms: Option<u64>,
    /// How likely it is done before its wall limit ends it, from 0 to 1. `None` without such a
    /// limit, without an estimate of its end, and once it has ended.
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
    /// Input from its standard input.
    Stdin,
    /// Time: the run sleeps.
    Sleep,
    /// Data or a connection of a network socket.
    Network,
    /// The end of a child process.
    Child,
    /// Nothing: the run computes, or waits for a processor.
    Cpu,
    /// Reading or writing of a file or, in records, of a pipe.
    Io,
    /// A continue signal: the run was stopped by a signal or a debugger.
    Stopped,
    /// A lock of its own threads, of a file, or of another process. Records have no value for it.
    #[serde(skip)]
    Lock,
    /// The other end of a pipe: `io` in records.
    #[serde(skip)]
    Pipe,
}

impl WaitingFor {
    /// Returns the value that records use, if they have one. What they leave out is in the sentence
    /// and the wait channel.
    pub fn as_recorded(self) -> Option<Self> {
        match self {
            WaitingFor::Lock => None,
            WaitingFor::Pipe => Some(WaitingFor::Io),
            other => Some(other),
        }
    }
}

/// Serialises the value that records use.
pub(crate) fn serialize_waiting<S: Serializer>(what: &Option<WaitingFor>, to: S) -> Result<S::Ok, S::Error> {
    what.and_then(WaitingFor::as_recorded).serialize(to)
}

/// A process that a command waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingChild {
    /// What it calls itself, at most 15 bytes.
    pub name: String,
    /// What it waits for itself; `None` if that is not visible.
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
}

/// Where a run's time went, besides running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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

/// Why Sandtimer ended a run; present if a limit or a cancellation did.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::{Engine, Layer, LimitKind, Limits, Source, Spec};
///
/// let limits = Limits::new().wall(Duration::from_millis(200));
/// let outcome = Engine::new()?.run_blocking(Spec::command(["sleep", "3600"]).limits(limits))?;
/// let verdict = outcome.verdict.as_ref().unwrap();
/// assert_eq!((verdict.kind, verdict.layer), (Some(LimitKind::Wall), Layer::Run));
/// assert_eq!((verdict.limit_ms, verdict.source), (Some(200), Source::Call));
/// assert!(verdict.elapsed_ms >= 200);
/// assert!(verdict.sentence.starts_with("Stopped by the run's wall limit of 200 ms"));
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The limit that fired; `None` for a cancel.
    pub kind: Option<LimitKind>,
    /// The level of the scope whose limit was reached.
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
    /// The place that set the limit.
    pub source: Source,
    /// The variable, flag or line of a file that set the limit, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Milliseconds from the start of the run to the beginning of its end.
    pub elapsed_ms: u64,
    /// How long after `wall + grace` the verdict was published, in milliseconds.
    pub late_ms: f64,
    /// The enforcer that ended the run.
    pub enforced_by: Enforcer,
    /// Each signal that was sent to end the run, in order.
    pub signals: Vec<SentSignal>,
    /// Milliseconds between its last output and the beginning of its end; `None` without output.
    pub last_output_age_ms: Option<u64>,
    /// How far the run was; `None` if it is not known.
    pub progress: Option<Progress>,
    /// What it waited for; `None` if that was not visible, and for a lock.
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
    /// The innermost process that its command waited for, and what that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<WaitingChild>,
    /// The kernel's function in which that process waited, or the command; see proc_pid_wchan(5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_channel: Option<String>,
    /// For how many milliseconds at least its processor time has not moved; absent if it was not
    /// sampled twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cpu_age_ms: Option<u64>,
    /// The same of what it has read and written, files and pipes alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_io_age_ms: Option<u64>,
    /// The Python stacks of the first of its processes that is an interpreter, if they were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<PythonThread>,
    /// Where the time went before and besides the execution.
    pub spent: SpentTime,
    /// One or two sentences for a person or a model.
    pub sentence: String,
}

/// A warning of a limit that has not ended the run.
///
/// ```
/// use sandtimer::Warning;
///
/// let warning = Warning::Wall { left_ms: 30_000 };
/// assert_eq!(warning.to_string(), "the wall-clock limit ends it in 30 s");
/// ```
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
    /// No output for longer than the stall limit; the run continues because it uses the processor.
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
///
/// ```
/// use sandtimer::model::time;
///
/// assert_eq!(time(350), "350 ms");
/// assert_eq!(time(90_000), "1 m 30 s");
/// ```
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

/// An isolation layer that was wanted and is not active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degradation {
    /// The isolation layer, such as `landlock` or `network`.
    pub layer: String,
    /// Why it was not applied.
    pub reason: String,
}

/// The isolation layers that were active, as they were applied.
///
/// ```
/// use sandtimer::{Engine, KillClass, Spec, Tier};
///
/// let outcome = Engine::new()?.run_blocking(Spec::command(["true"]))?;
/// let isolation = &outcome.isolation;
/// assert!(isolation.tier == Tier::T3 || !isolation.degraded.is_empty()); // each loss has a reason
/// assert!(isolation.deadline_layers.iter().any(|layer| layer == "enforcer"));
/// assert!(KillClass::K2 < KillClass::K3);
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// How strong the isolation was.
    pub tier: Tier,
    /// How surely the whole tree could be killed.
    pub kill: KillClass,
    /// What was ready to end the run at its limits, in the order of use.
    pub deadline_layers: Vec<String>,
    /// Layers that were wanted and could not be applied.
    pub degraded: Vec<Degradation>,
}

/// How strong the isolation of a run is.
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
