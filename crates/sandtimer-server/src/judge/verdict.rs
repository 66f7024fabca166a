//! What an Outcome and the expected output amount to.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::model::{Encoding, Ending, Outcome, RemarkKind};
use serde::Serialize;

use super::compare::has_same_lines;
use super::request::Expected;

/// The verdict on one case, named as in the Python package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Accepted,
    WrongAnswer,
    /// It exited with 0, and what it printed is not compared here.
    NotCompared,
    Timeout,
    OutOfMemory,
    RuntimeError,
    OutputLimit,
    ProcessLimit,
    DiskLimit,
    CompileError,
    NotRun,
    InfraError,
}

impl Verdict {
    /// Whether `stop_early` stops here.
    pub fn stops_early(self) -> bool {
        !matches!(self, Verdict::Accepted | Verdict::NotCompared)
    }
}

/// Their names.
pub(crate) const VERDICTS: [&str; 12] = [
    "accepted",
    "wrong_answer",
    "not_compared",
    "timeout",
    "out_of_memory",
    "runtime_error",
    "output_limit",
    "process_limit",
    "disk_limit",
    "compile_error",
    "not_run",
    "infra_error",
];

/// The verdict on a run that has ended.
pub(super) fn of(outcome: &Outcome, expected: &Expected) -> Verdict {
    if !outcome.ok {
        return of_failure(outcome.ending);
    }
    let Expected::Text(expected) = expected else { return Verdict::NotCompared };
    if outcome.stdout_truncated {
        // What it printed in between is not known: by its own limit, or because the disk did not take it.
        let is_lost = outcome.remarks.iter().any(|remark| remark.kind == RemarkKind::OutputNotStored);
        return if is_lost { Verdict::InfraError } else { Verdict::OutputLimit };
    }
    let is_same = match outcome.stdout_encoding {
        Encoding::Base64 => {
            let bytes = BASE64_STANDARD.decode(&outcome.stdout).unwrap_or_default();
            has_same_lines(expected, &String::from_utf8_lossy(&bytes))
        }
        _ => has_same_lines(expected, &outcome.stdout),
    };
    if is_same { Verdict::Accepted } else { Verdict::WrongAnswer }
}

fn of_failure(ending: Ending) -> Verdict {
    match ending {
        Ending::Timeout | Ending::Stalled => Verdict::Timeout,
        Ending::OutOfMemory => Verdict::OutOfMemory,
        Ending::OutputLimit => Verdict::OutputLimit,
        Ending::ProcessLimit => Verdict::ProcessLimit,
        Ending::DiskLimit => Verdict::DiskLimit,
        Ending::Cancelled | Ending::Budget => Verdict::NotRun,
        Ending::InfraError => Verdict::InfraError,
        _ => Verdict::RuntimeError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_on_the_wire() {
        let all = [
            Verdict::Accepted,
            Verdict::WrongAnswer,
            Verdict::NotCompared,
            Verdict::Timeout,
            Verdict::OutOfMemory,
            Verdict::RuntimeError,
            Verdict::OutputLimit,
            Verdict::ProcessLimit,
            Verdict::DiskLimit,
            Verdict::CompileError,
            Verdict::NotRun,
            Verdict::InfraError,
        ];
        for (verdict, name) in all.iter().zip(VERDICTS) {
            assert_eq!(serde_json::json!(verdict), name);
        }
    }

    #[test]
    fn limits_and_failures_have_their_verdicts() {
        for (ending, verdict) in [
            (Ending::Timeout, Verdict::Timeout),
            (Ending::Stalled, Verdict::Timeout),
            (Ending::OutOfMemory, Verdict::OutOfMemory),
            (Ending::Exited, Verdict::RuntimeError),
            (Ending::Signaled, Verdict::RuntimeError),
            (Ending::ProcessLimit, Verdict::ProcessLimit),
            (Ending::Cancelled, Verdict::NotRun),
            (Ending::InfraError, Verdict::InfraError),
        ] {
            assert_eq!(of_failure(ending), verdict, "{ending:?}");
        }
    }
}
