//! One limit of a budget and what is used of it.

use std::time::Duration;

use sandtimer::model::{Layer, LimitKind, Source};
use serde::ser::{Serialize, Serializer};

/// An amount in the unit of its limit: milliseconds on wires, or pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Of a wall-clock or stall limit.
    Time(Duration),
    /// A number of turns or failures.
    Count(u64),
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(match self {
            Quantity::Time(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            Quantity::Count(count) => *count,
        })
    }
}

/// One limit and what is used of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LimitUse {
    /// What is limited: wall, turns, stall or failures.
    pub kind: LimitKind,
    /// The level of the scope whose limit it is; of tasks [`Layer::Task`].
    pub layer: Layer,
    /// The task whose limit it is; `None` if it is the budget's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `ms` or `count`.
    pub unit: &'static str,
    /// How much was used: time since the start, turns begun, time without activity, or failures.
    pub used: Quantity,
    /// `None` is unlimited.
    pub limit: Option<Quantity>,
    /// What is left of it, at least 0; `None` if it is unlimited.
    pub remaining: Option<Quantity>,
    /// Where its value came from; `None` if it is unlimited.
    pub source: Option<Source>,
    /// The flag, variable or line of a file that set it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The path of the scope whose limit it is, if that is an outer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether it is used up: of a wall-clock limit, down to the time that is kept for the wrap-up
    /// turn.
    pub hit: bool,
    /// Whether it is the limit that ended the work, or that will at the present rate of use.
    pub binding: bool,
    /// The typical duration of the task, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<Quantity>,
}
