//! What an agent's run may use: wall time, turns, silence, failures, and the longest time of each
//! named task.
//!
//! A state machine without clock, lock or thread: callers pass the time. It decides and reports;
//! the engine ends processes, at the bounds that [`Budget::run_bound`] returns. The hard fact: an
//! agent asks once per turn, and whatever it did before asking must not hide a limit. So a limit is
//! passed when its moment passes, not when a caller checks: every call first brings the budget up
//! to its time, and activity that comes too late changes nothing.
//!
//! ```text
//! Going ─▶ Hit ─▶ WrapUp ─▶ Over
//!            by check()       └ its one turn was taken (unless only its time counts), or its time has run out
//! ```

mod check;
mod estimate_text;
mod kinds;
mod limit_use;
mod machine;
mod repetition;
mod scale;
mod tasks;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use sandtimer::time::Moment;

pub use check::{BudgetState, Check, WrapUp};
pub use estimate_text::{ParsedEstimate, parse_estimate};
pub use kinds::{BudgetOptions, Cause, END_FACTOR, OnTaskTimeout, OptionsError, RunBound, TaskOf, TurnKind};
pub use limit_use::{LimitUse, Quantity};
pub use machine::Budget;
use machine::BudgetPhase;
pub use repetition::RepetitionKind;
pub use tasks::{TaskError, TaskStatus};

impl Budget {
    /// Returns the state of all limits. The first call after a limit was passed grants the wrap-up
    /// turn.
    pub fn check(&mut self, now: Moment) -> Check {
        self.advance(now);
        if let BudgetPhase::Hit(cause) = &self.phase {
            let (cause, reserve) = (cause.clone(), self.reserve());
            self.phase = match reserve {
                Duration::ZERO => BudgetPhase::Over(cause),
                _ => {
                    let until = self.wrap_up_end(reserve);
                    BudgetPhase::WrapUp { cause, granted: self.now, until, turn: None }
                }
            };
        }
        Check::of(self)
    }

    /// As [`check`](Self::check), for callers that only display the state: it grants nothing.
    pub fn inspect(&self, now: Moment) -> Check {
        let mut copy = self.clone();
        copy.advance(now);
        Check::of(&copy)
    }

    /// Returns a summary of the tasks and the runtime, as lines of text for the end of the run.
    pub fn summary(&self, now: Moment) -> String {
        let mut copy = self.clone();
        copy.advance(now);
        words::summary(&copy)
    }
}
