//! How a stage of a program ended, in the terms that judges share, and what it used.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::model::{Encoding, Ending, LimitKind, Outcome};
use sandtimer::supervise::signal_number;
use serde::{Deserialize, Serialize};

/// SIGKILL, by which the engine ends what passes a limit.
const SIGKILL_NUMBER: i32 = 9;

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StageEnd {
    Exited(i32),
    /// A signal that no limit sent, by its number.
    Signaled(i32),
    TimeLimit,
    MemoryLimit,
    OutputLimit,
    /// The processes or the disk of the run were used up, and it was ended.
    OtherLimit,
    /// It was cancelled, or could not be run to its end.
    Failed,
}

/// The end of a stage, its output and its usage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StageReport {
    pub end: StageEnd,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Why a limit, or anything but the program, ended it.
    pub sentence: Option<String>,
    /// Whether a limit, or the server, had part in its end, even if it exited by itself.
    pub is_limited: bool,
    /// Whether a time limit counted processor time.
    pub is_cpu_limit: bool,
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    /// Only the first and the last bytes of its output were kept.
    pub is_truncated: bool,
}

impl StageReport {
    /// That of a run.
    pub fn of(outcome: &Outcome) -> Self {
        let usage = &outcome.usage;
        StageReport {
            end: end_of(outcome),
            stdout: bytes(&outcome.stdout, outcome.stdout_encoding),
            stderr: bytes(&outcome.stderr, outcome.stderr_encoding),
            sentence: outcome.verdict.as_ref().map(|verdict| verdict.sentence.clone()),
            is_limited: !matches!(
                outcome.ending,
                Ending::Exited | Ending::Signaled | Ending::Returned | Ending::Raised
            ),
            is_cpu_limit: outcome
                .verdict
                .as_ref()
                .is_some_and(|verdict| verdict.kind == Some(LimitKind::Cpu)),
            wall_ms: usage.wall_ms,
            cpu_ms: usage.user_ms + usage.system_ms,
            memory_bytes: usage.memory_peak_bytes,
            is_truncated: outcome.stdout_truncated || outcome.stderr_truncated,
        }
    }

    /// That of code that could not be read, as a compiler reports it.
    pub fn unreadable(message: &str) -> Self {
        StageReport {
            end: StageEnd::Exited(1),
            stdout: Vec::new(),
            stderr: format!("{message}\n").into_bytes(),
            sentence: None,
            is_limited: false,
            is_cpu_limit: false,
            wall_ms: 0,
            cpu_ms: 0,
            memory_bytes: 0,
            is_truncated: false,
        }
    }

    pub fn is_success(&self) -> bool {
        self.end == StageEnd::Exited(0)
    }

    /// Whether the files that it made are results: it exited with 0, or a limit ended it.
    pub fn has_files(&self) -> bool {
        let is_at_limit = self.is_limited && self.end != StageEnd::Failed;
        self.is_success() || is_at_limit
    }

    /// Whether the same program would end in the same way again.
    pub fn is_repeatable(&self) -> bool {
        self.exit_code().is_some() && !self.is_limited
    }

    /// The exit code; `None` if it ended otherwise.
    pub fn exit_code(&self) -> Option<i32> {
        match self.end {
            StageEnd::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// The signal that ended it, the one of a limit included.
    pub fn signal(&self) -> Option<i32> {
        match self.end {
            StageEnd::Exited(_) => None,
            StageEnd::Signaled(signal) => Some(signal),
            _ => Some(SIGKILL_NUMBER),
        }
    }

    pub fn stdout_lossy(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_lossy(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

fn bytes(text: &str, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Base64 => BASE64_STANDARD.decode(text).unwrap_or_default(),
        _ => text.as_bytes().to_vec(),
    }
}

fn end_of(outcome: &Outcome) -> StageEnd {
    let signal = || outcome.signal.as_deref().and_then(signal_number);
    match outcome.ending {
        Ending::Timeout | Ending::Stalled => StageEnd::TimeLimit,
        Ending::OutOfMemory => StageEnd::MemoryLimit,
        Ending::OutputLimit => StageEnd::OutputLimit,
        Ending::ProcessLimit | Ending::DiskLimit | Ending::Budget => match outcome.exit_code {
            Some(code) => StageEnd::Exited(code),
            None => StageEnd::OtherLimit,
        },
        Ending::Cancelled | Ending::InfraError => StageEnd::Failed,
        _ => match (outcome.exit_code, signal()) {
            (Some(code), _) => StageEnd::Exited(code),
            (None, Some(signal)) => StageEnd::Signaled(signal),
            (None, None) => StageEnd::Failed,
        },
    }
}
