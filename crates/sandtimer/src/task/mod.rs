//! A tracked piece of an agent's work: what it may use, how long it should take, how far it is.

pub mod budget;
pub mod progress;
