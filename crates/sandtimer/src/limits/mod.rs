//! Limits: the three states of one limit, a set of them, how they are parsed, and how they are
//! resolved.
//!
//! Pure data and pure functions: nothing here reads a clock or the system, and the engine enforces
//! what is decided here. Two rules are never mixed: [`precedence`] picks a scope's own limit among
//! the sources that set it, and [`nest()`] bounds that limit by the scopes around it.

mod key;
mod least;
mod nest;
mod parse;
mod set;
mod setting;
#[cfg(test)]
mod tests;

pub use key::{Key, Unit};
pub(crate) use least::{check_at_least, check_least};
pub use nest::{
    Ceilings, ChosenLimit, Effect, EffectiveLimits, ScopeBound, ScopeLocation, ScopeOwnLimits, nest,
    precedence,
};
pub(crate) use nest::{bound_wall, fitting_grace};
pub use parse::{Format, LimitError, Zero, from_json, from_json_as, name_wall, parse_string};
pub use set::Limits;
pub use setting::{FAR_FUTURE, Setting, nanoseconds};
