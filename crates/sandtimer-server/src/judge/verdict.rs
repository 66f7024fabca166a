//! What an Outcome and the expected output amount to.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::model::{Encoding, Ending, Outcome, RemarkKind};
use serde::Serialize;

use super::compare::has_same_lines;
use super::request::ExpectedOutput;

/// The verdict on one case, named as in the Python package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CaseVerdict {
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

impl CaseVerdict {
    /// Whether `stop_early` stops here.
    pub fn stops_early(self) -> bool {
        !matches!(self, CaseVerdict::Accepted | CaseVerdict::NotCompared)
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
pub(super) fn of(outcome: &Outcome, expected: &ExpectedOutput) -> CaseVerdict {
    if !outcome.ok {
        return of_failure(outcome.ending);
    }
    let ExpectedOutput::Output(expected) = expected else { return CaseVerdict::NotCompared };
    if outcome.stdout_truncated {
        // What it printed in between is not known: by its own limit, or because the disk did not
        // take it.
        let is_lost = outcome.remarks.iter().any(|remark| remark.kind == RemarkKind::OutputNotStored);
        return if is_lost { CaseVerdict::InfraError } else { CaseVerdict::OutputLimit };
    }
    let is_same = match outcome.stdout_encoding {
        Encoding::Base64 => {
            let bytes = BASE64_STANDARD.decode(&outcome.stdout).unwrap_or_default();
            has_same_lines(expected, &String::from_utf8_lossy(&bytes))
        }
        _ => has_same_lines(expected, &outcome.stdout),
    };
    if is_same { CaseVerdict::Accepted } else { CaseVerdict::WrongAnswer }
}

fn of_failure(ending: Ending) -> CaseVerdict {
    match ending {
        Ending::Timeout | Ending::Stalled => CaseVerdict::Timeout,
        Ending::OutOfMemory => CaseVerdict::OutOfMemory,
        Ending::OutputLimit => CaseVerdict::OutputLimit,
        Ending::ProcessLimit => CaseVerdict::ProcessLimit,
        Ending::DiskLimit => CaseVerdict::DiskLimit,
        Ending::Cancelled | Ending::Budget => CaseVerdict::NotRun,
        Ending::InfraError => CaseVerdict::InfraError,
        _ => CaseVerdict::RuntimeError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_on_the_wire() {
        let all = [
            CaseVerdict::Accepted,
            CaseVerdict::WrongAnswer,
            CaseVerdict::NotCompared,
            CaseVerdict::Timeout,
            CaseVerdict::OutOfMemory,
            CaseVerdict::RuntimeError,
            CaseVerdict::OutputLimit,
            CaseVerdict::ProcessLimit,
            CaseVerdict::DiskLimit,
            CaseVerdict::CompileError,
            CaseVerdict::NotRun,
            CaseVerdict::InfraError,
        ];
        for (verdict, name) in all.iter().zip(VERDICTS) {
            assert_eq!(serde_json::json!(verdict), name);
        }
    }

    #[test]
    fn limits_and_failures_have_their_verdicts() {
        for (ending, verdict) in [
            (Ending::Timeout, CaseVerdict::Timeout),
            (Ending::Stalled, CaseVerdict::Timeout),
            (Ending::OutOfMemory, CaseVerdict::OutOfMemory),
            (Ending::Exited, CaseVerdict::RuntimeError),
            (Ending::Signaled, CaseVerdict::RuntimeError),
            (Ending::ProcessLimit, CaseVerdict::ProcessLimit),
            (Ending::Cancelled, CaseVerdict::NotRun),
            (Ending::InfraError, CaseVerdict::InfraError),
        ] {
            assert_eq!(of_failure(ending), verdict, "{ending:?}");
        }
    }
}
