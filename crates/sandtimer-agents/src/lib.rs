//! Policy on top of Sandtimer's engine: the budget of an agent's run, how long work is likely to
//! take, when a loop has run long enough, and retries, fallbacks and circuit breakers.
//!
//! All of it is plain arithmetic on what callers pass in; only `here` reads the state of the
//! machine. Nothing in this crate is trusted to end a process: [`AgentBudget`] opens scopes, and
//! the engine ends what runs in them.
//!
//! # The main types
//!
//! - [`AgentBudget`] is the budget of one agent's run, with the scopes that its runs belong to;
//!   [`Budget`](budget::Budget) is its state machine alone.
//! - [`Estimator`](estimate::Estimator) learns from finished runs and estimates durations.
//! - [`GuardedCall`](resilience::GuardedCall) does one call with retries, fallbacks and
//!   [`Breakers`](resilience::Breakers).
//! - [`TurnGuard`](loop_guard::TurnGuard) counts the turns of a loop.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agent_budget;
pub mod budget;
pub mod estimate;
mod here;
pub mod loop_guard;
pub mod resilience;

pub use agent_budget::{AgentBudget, BudgetError, BudgetSpec};
