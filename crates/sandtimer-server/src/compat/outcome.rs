//! How a run ended, as that interface reports it.

use std::sync::Arc;

use sandtimer::model::{Ending, Outcome};
use sandtimer::supervise::signal_number;

use super::failure::ContainerFailure;
use crate::runs::{LiveRun, LoadedOutcome, RunPhase};

/// The Outcome of a run that is waited for to its end.
pub(super) async fn ended(run: &Arc<LiveRun>) -> Result<LoadedOutcome, ContainerFailure> {
    run.wait_ended(None).await;
    run.outcome().await?.ok_or_else(|| ContainerFailure::internal("the run has no outcome"))
}

/// Why something other than the command itself ended it, as text for people.
pub(super) fn note(outcome: &Outcome) -> Option<String> {
    let sentence = || outcome.verdict.as_ref().map(|verdict| verdict.sentence.clone());
    match outcome.ending {
        Ending::Exited | Ending::Signaled | Ending::Returned | Ending::Raised | Ending::NoResult => None,
        Ending::Timeout | Ending::Stalled => {
            let limit = outcome.verdict.as_ref().and_then(|verdict| verdict.limit_ms).unwrap_or_default();
            Some(format!("Command timeout after {limit}ms. {}", sentence().unwrap_or_default()))
        }
        other => Some(sentence().unwrap_or_else(|| format!("the command did not end by itself ({other:?})"))),
    }
}

/// What follows the stderr of a command without a session. For a timeout its last line is that of
/// the package's own server.
pub(super) fn note_without_session(outcome: &Outcome) -> Option<String> {
    timed_out(outcome).or_else(|| note(outcome).map(|note| note + "\n"))
}

/// What follows the stderr of a command or process that its timeout ended.
pub(super) fn timed_out(outcome: &Outcome) -> Option<String> {
    if !matches!(outcome.ending, Ending::Timeout | Ending::Stalled) {
        return None;
    }
    let verdict = outcome.verdict.as_ref();
    let limit = verdict.and_then(|verdict| verdict.limit_ms).unwrap_or_default();
    let sentence = verdict.map(|verdict| format!("{}\n", verdict.sentence)).unwrap_or_default();
    Some(format!("{sentence}Command timed out after {limit}ms\n"))
}

/// A text and a note after it, on a line of its own.
pub(super) fn on_new_line(text: &str, note: &str) -> String {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{newline}{note}")
}

/// The exit code, or a shell's value in its place.
pub(super) fn code(outcome: &Outcome) -> i32 {
    match (outcome.exit_code, outcome.ending) {
        (Some(code), _) => code,
        (None, Ending::Signaled) => {
            128 + outcome.signal.as_deref().and_then(signal_number).unwrap_or_default()
        }
        (None, Ending::OutOfMemory) => 137,
        (None, Ending::Cancelled) => 143,
        (None, Ending::InfraError) => 125,
        (None, _) => 124,
    }
}

/// The run's status, as that interface names it.
pub(super) fn status(run: &LiveRun) -> &'static str {
    let RunPhase::Ended(record) = run.phase() else { return "running" };
    let facts = record.facts();
    match (facts.ending, code(facts)) {
        (Ending::Exited, 0) => "completed",
        (Ending::InfraError, _) => "error",
        (Ending::Cancelled | Ending::OutOfMemory, _) | (Ending::Signaled, 137 | 143) => "killed",
        // It exited with any other code, a limit ended it (code 124), or it failed by another
        // signal.
        _ => "failed",
    }
}

/// The exit code of one that has ended.
pub(super) fn exit_code(run: &LiveRun) -> Option<i32> {
    match run.phase() {
        RunPhase::Queued(_) | RunPhase::Running(_) => None,
        RunPhase::Ended(record) => Some(code(record.facts())),
    }
}
