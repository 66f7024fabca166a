//! Policy for agents on top of Sandtimer's engine: the budget of an agent's run, and how long work is likely to take.
//!
//! Budgets and estimates are plain arithmetic on what callers pass in; only `here` reads the state of the machine. Nothing in this
//! crate is trusted to end a process: [`AgentBudget`] opens scopes, and the engine ends what runs in them.
#![forbid(unsafe_code)]

mod agent_budget;
pub mod budget;
pub mod estimate;
mod here;

pub use agent_budget::{AgentBudget, BudgetError, BudgetSpec};
