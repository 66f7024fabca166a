//! Policy on top of Sandtimer's engine: the budget of an agent's run, how long work is likely to
//! take, when a loop has run long enough, and retries, fallbacks and circuit breakers.
//!
//! All of it is plain arithmetic on what callers pass in; only `here` reads the state of the
//! machine. Nothing in this crate is trusted to end a process: [`AgentBudget`] opens scopes, and
//! the engine ends what runs in them.
#![forbid(unsafe_code)]

mod agent_budget;
pub mod budget;
pub mod estimate;
mod here;
pub mod loop_guard;
pub mod resilience;

pub use agent_budget::{AgentBudget, BudgetError, BudgetSpec};
