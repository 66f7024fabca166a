//! Whether an ending counts as a failure of what was run.

use std::time::Duration;

use sandtimer::model::{Ending, Outcome, Source};

/// How something ended, for retries and breakers.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptResult {
    Success,
    Failure(AttemptFailure),
    /// No evidence about the code: the run was cancelled, a limit around it ended it, or Sandtimer
    /// itself failed.
    Ignored,
}

/// A failure of what was run.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptFailure {
    /// One line for a person or a model.
    pub message: String,
    /// Whether it may be tried again.
    pub retryable: bool,
    /// Whether its own limit ended it, which a retry budget charges more for.
    pub is_timeout: bool,
    /// How long it asks to be left alone, as with HTTP's Retry-After.
    pub retry_after: Option<Duration>,
}

impl AttemptFailure {
    /// A failure that may be tried again at once.
    pub fn new(message: impl Into<String>) -> Self {
        AttemptFailure { message: message.into(), retryable: true, is_timeout: false, retry_after: None }
    }
}

/// Judges the code by the Outcome of its run. Exit codes in `expected` are not failures.
///
/// A limit of a scope further out, an operator's ceiling, a cancel, a spent budget and a failure of
/// Sandtimer's are [`AttemptResult::Ignored`]: the code is not to blame, or it is not known whether
/// it is.
pub fn judge(outcome: &Outcome, expected: &[i32]) -> AttemptResult {
    if outcome.ok || outcome.exit_code.is_some_and(|code| expected.contains(&code)) {
        return AttemptResult::Success;
    }
    let from_outside = outcome
        .verdict
        .as_ref()
        .is_some_and(|verdict| matches!(verdict.source, Source::Ancestor | Source::Ceiling));
    match outcome.ending {
        Ending::Cancelled | Ending::InfraError | Ending::Budget => AttemptResult::Ignored,
        _ if from_outside => AttemptResult::Ignored,
        ending => AttemptResult::Failure(AttemptFailure {
            message: failure_message(outcome),
            retryable: true,
            is_timeout: matches!(ending, Ending::Timeout | Ending::Stalled),
            retry_after: None,
        }),
    }
}

fn failure_message(outcome: &Outcome) -> String {
    if let Some(verdict) = &outcome.verdict {
        return verdict.sentence.clone();
    }
    if let Some(message) = outcome.error.as_ref().and_then(|error| error["message"].as_str()) {
        return message.to_owned();
    }
    match (outcome.exit_code, &outcome.signal) {
        (Some(code), _) => {
            let last = outcome.stderr.lines().rev().find(|line| !line.trim().is_empty());
            last.map_or_else(|| format!("exit code {code}"), |line| format!("exit code {code}: {line}"))
        }
        (None, Some(signal)) => format!("ended by {signal}"),
        (None, None) => "it gave no result".to_owned(),
    }
}
