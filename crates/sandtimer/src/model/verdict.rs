//! Why a run ended at a limit: the verdict and its parts, and what is said before a limit.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::limit::{Enforcer, Layer, LimitKind, Source};
use super::python::PythonThread;
use super::units::time;

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
