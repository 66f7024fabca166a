//! Handling of failures: retries, fallbacks and circuit breakers.
//!
//! ```text
//! judge     whether an Outcome is a failure, and whether it counts
//! retry     how often, after which pause, from which budget
//! breaker   one key: closed ─▶ open ─▶ half open ─▶ closed
//! breakers  breakers by key; the least recently used is dropped
//! call      one call: attempts, pauses, then fallbacks; it consults the breakers before each and reports to them after
//! ```
//! Plain structures without clock, lock or thread: the caller passes the time, executes the step
//! that [`GuardedCall::next`] returns, and passes its result to [`GuardedCall::ended`]. Nothing
//! here can block, so a deadline around a call holds whatever happens in it. The caller enforces
//! the deadline; [`GuardedCall`] only starts no attempt that could not end before it.
//!
//! ```
//! use std::time::Duration;
//! use sandtimer_agents::resilience::{Breakers, BreakerSettings, Budgets, GuardedCall, AttemptFailure, AttemptResult, Retry, CallStep, Way};
//! use sandtimer::time::Moment;
//!
//! let (mut breakers, mut budgets) = (Breakers::new(BreakerSettings::default(), 1), Budgets::default());
//! let mut now = Moment::from_nanos(0);
//! let ways = vec![Way::new(Retry::fixed(3, [100, 200, 400].map(Duration::from_millis))).key("calculator:calculate")];
//! let mut call = GuardedCall::new(ways, None);
//! let mut attempts = 0;
//! let end = loop {
//!     match call.next(&mut breakers, now) {
//!         CallStep::Attempt { .. } => {
//!             attempts += 1;
//!             call.ended(AttemptResult::Failure(AttemptFailure::new("no such operator")), &mut breakers, &mut budgets, now);
//!         }
//!         CallStep::Wait { until } => now = until,
//!         CallStep::Over(end) => break end,
//!     }
//! };
//! assert_eq!(attempts, 3);
//! assert!(!end.is_done());
//! assert_eq!(breakers.snapshot(now)[0].failures_in_a_row, 1);
//! ```

mod breaker;
mod breakers;
mod call;
#[cfg(test)]
mod differential;
mod judge;
mod retry;
#[cfg(test)]
mod tests;

pub use breaker::{BreakerSettings, Hold, OpenBreaker, Permit, Rate};
pub use breakers::{BreakerSnapshot, Breakers, SharedBreakers, Ticket};
pub use call::{CallEnd, CallStep, GuardedCall, SpentOn, Way, Why};
pub use judge::{AttemptFailure, AttemptResult, judge};
pub use retry::{Backoff, Budgets, Retry, RetryBudget};
