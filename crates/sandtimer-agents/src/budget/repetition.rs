//! Whether an agent goes round in circles: the thresholds are those of OpenHands' stuck detector.
//!
//! Only the last few steps are kept, and of them only hashes, so that no observation is too long to
//! be compared.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde::Serialize;

/// The same action with the same result, this many times in a row.
const SAME: usize = 4;
/// The same action with an error each time.
const SAME_WITH_ERROR: usize = 3;
/// Two pairs in turn, counted in steps.
const ALTERNATING: usize = 6;

/// How an agent repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RepetitionKind {
    /// The same action with the same result, four times in a row.
    SameAction,
    /// The same action failed three times in a row.
    SameError,
    /// Two actions with their results in turn, six steps long.
    Alternating,
}

impl RepetitionKind {
    /// For an agent.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            RepetitionKind::SameAction => {
                "The same action gave the same result 4 times in a row: do something else."
            }
            RepetitionKind::SameError => "The same action failed 3 times in a row: do something else.",
            RepetitionKind::Alternating => {
                "The same two actions gave the same results in turn, 6 times: do something else."
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct ActionStep {
    action: u64,
    observation: u64,
    failed: bool,
}

impl ActionStep {
    fn is_like(&self, other: &ActionStep) -> bool {
        (self.action, self.observation) == (other.action, other.observation)
    }
}

/// The last steps of an agent.
#[derive(Debug, Clone, Default)]
pub(super) struct Repetition {
    /// The newest first.
    steps: VecDeque<ActionStep>,
}

fn hashed(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Repetition {
    pub(super) fn note(&mut self, action: &str, observation: &str, failed: bool) {
        self.steps.truncate(ALTERNATING - 1);
        self.steps.push_front(ActionStep {
            action: hashed(action),
            observation: hashed(observation),
            failed,
        });
    }

    /// How the last steps repeat themselves.
    pub(super) fn found(&self) -> Option<RepetitionKind> {
        let last = self.steps.front()?;
        let all = |count: usize, holds: &dyn Fn(&ActionStep) -> bool| {
            self.steps.len() >= count && self.steps.iter().take(count).all(holds)
        };
        if all(SAME, &|step| step.is_like(last)) {
            return Some(RepetitionKind::SameAction);
        }
        if all(SAME_WITH_ERROR, &|step| step.failed && step.action == last.action) {
            return Some(RepetitionKind::SameError);
        }
        let in_turn = self.steps.len() >= ALTERNATING
            && self.steps.iter().zip(self.steps.iter().skip(2)).all(|(one, before)| one.is_like(before));
        in_turn.then_some(RepetitionKind::Alternating)
    }
}
