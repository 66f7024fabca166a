//! How a program ended, as one of Judge0's statuses.

use crate::programs::{StageEnd, StageReport};

/// The statuses from 1 on.
pub(super) const STATUSES: [&str; 14] = [
    "In Queue",
    "Processing",
    "Accepted",
    "Wrong Answer",
    "Time Limit Exceeded",
    "Compilation Error",
    "Runtime Error (SIGSEGV)",
    "Runtime Error (SIGXFSZ)",
    "Runtime Error (SIGFPE)",
    "Runtime Error (SIGABRT)",
    "Runtime Error (NZEC)",
    "Runtime Error (Other)",
    "Internal Error",
    "Exec Format Error",
];

pub(super) const IN_QUEUE: u64 = 1;
pub(super) const PROCESSING: u64 = 2;
pub(super) const ACCEPTED: u64 = 3;
const WRONG_ANSWER: u64 = 4;
const TIME_LIMIT: u64 = 5;
pub(super) const COMPILATION_ERROR: u64 = 6;
const FILE_SIZE: u64 = 8;
const NOT_ZERO: u64 = 11;
const OTHER: u64 = 12;
pub(super) const INTERNAL_ERROR: u64 = 13;

/// What the kernel sends for a file that is too large.
const SIGXFSZ: i32 = 25;

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SubmissionVerdict {
    pub status: u64,
    pub message: Option<String>,
    pub exit_code: i32,
    pub exit_signal: Option<i32>,
}

/// The verdict of a run with a limit of processor time, in milliseconds, compared with the expected
/// output.
pub(super) fn of(
    report: &StageReport,
    cpu_limit_ms: Option<u64>,
    expected: Option<&[u8]>,
) -> SubmissionVerdict {
    let because = |description: String| match &report.sentence {
        Some(sentence) => Some(format!("{description}: {sentence}")),
        None => Some(description),
    };
    let (exit_code, exit_signal) = (report.exit_code().unwrap_or(0), report.signal());
    let verdict = |status, message| SubmissionVerdict { status, message, exit_code, exit_signal };
    let is_late = cpu_limit_ms.is_some_and(|limit| report.cpu_ms > limit);
    match report.end {
        StageEnd::TimeLimit if report.is_cpu_limit => {
            verdict(TIME_LIMIT, because("Time limit exceeded".to_owned()))
        }
        StageEnd::TimeLimit => verdict(TIME_LIMIT, because("Time limit exceeded (wall clock)".to_owned())),
        StageEnd::Failed => verdict(INTERNAL_ERROR, because("Internal error".to_owned())),
        // Within the extra time, which is none of its limit.
        StageEnd::Exited(_) | StageEnd::Signaled(_) if is_late => {
            verdict(TIME_LIMIT, Some("Time limit exceeded".to_owned()))
        }
        StageEnd::OutputLimit => SubmissionVerdict {
            exit_signal: Some(SIGXFSZ),
            ..verdict(FILE_SIZE, because(format!("Caught fatal signal {SIGXFSZ}")))
        },
        StageEnd::MemoryLimit | StageEnd::OtherLimit => {
            verdict(OTHER, because("Caught fatal signal 9".to_owned()))
        }
        StageEnd::Signaled(signal) => {
            let status = match signal {
                11 => 7,
                SIGXFSZ => FILE_SIZE,
                8 => 9,
                6 => 10,
                _ => OTHER,
            };
            verdict(status, because(format!("Caught fatal signal {signal}")))
        }
        StageEnd::Exited(0) if expected.is_none_or(|expected| is_same(expected, &report.stdout)) => {
            verdict(ACCEPTED, None)
        }
        StageEnd::Exited(0) => verdict(WRONG_ANSWER, None),
        StageEnd::Exited(code) => verdict(NOT_ZERO, because(format!("Exited with error status {code}"))),
    }
}

/// Whether two outputs differ only in white space at the ends of lines and at their end.
fn is_same(expected: &[u8], found: &[u8]) -> bool {
    fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
        text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end)
    }
    let (mut expected, mut found) = (lines(expected), lines(found));
    loop {
        match (expected.next(), found.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one == other => {}
            (Some(_), Some(_)) => return false,
            (Some(line), None) => return line.is_empty() && expected.all(<[u8]>::is_empty),
            (None, Some(line)) => return line.is_empty() && found.all(<[u8]>::is_empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(end: StageEnd) -> StageReport {
        StageReport { end, stdout: b"1 \n2\n\n".to_vec(), cpu_ms: 30, ..StageReport::unreadable("") }
    }

    #[test]
    fn ends_have_their_statuses() {
        let status = |end| of(&report(end), None, None).status;
        for (end, expected) in [
            (StageEnd::Exited(0), 3),
            (StageEnd::TimeLimit, 5),
            (StageEnd::Signaled(11), 7),
            (StageEnd::OutputLimit, 8),
            (StageEnd::Signaled(8), 9),
            (StageEnd::Signaled(6), 10),
            (StageEnd::Exited(2), 11),
            (StageEnd::Signaled(15), 12),
            (StageEnd::MemoryLimit, 12),
            (StageEnd::Failed, 13),
        ] {
            assert_eq!(status(end.clone()), expected, "{end:?}");
        }
        // The limit without the extra time.
        assert_eq!(of(&report(StageEnd::Exited(0)), Some(29), None).status, 5);
        assert_eq!(of(&report(StageEnd::Exited(0)), Some(30), None).status, 3);
    }

    #[test]
    fn white_space_at_ends_is_no_difference() {
        let status = |expected: &[u8]| of(&report(StageEnd::Exited(0)), None, Some(expected)).status;
        assert_eq!((status(b"1\n2"), status(b"1\n2 \n"), status(b"1\n\n2"), status(b" 1\n2")), (3, 3, 4, 4));
        assert_eq!((status(b"1\n2\n\n\n \n"), status(b"1"), status(b"1\n2\n\n3"), status(b"")), (3, 4, 4, 4));
    }
}
