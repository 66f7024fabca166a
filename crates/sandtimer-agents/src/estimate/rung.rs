//! The rungs from runs of the very thing that was asked about to a table.

use serde::{Deserialize, Serialize};

/// Rungs that have runs.
pub(super) const RUNGS: usize = 5;

/// What the runs that an estimate rests on have in common with what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rung {
    /// The same command or task, with the same size and context, on the same machine under such a
    /// load.
    Exact,
    /// The same, under another load.
    AnyLoad,
    /// The same command but for numbers and paths, under any load.
    Template,
    /// The same type and complexity with about the same size on the same machine.
    Class,
    /// The same type and complexity.
    Type,
    /// There are no such runs of a command without a type: the range is that of most commands.
    Unknown,
    /// There are no such runs: the figures are from a table.
    Prior,
}

impl Rung {
    pub(super) const WITH_RUNS: [Rung; RUNGS] =
        [Rung::Exact, Rung::AnyLoad, Rung::Template, Rung::Class, Rung::Type];

    /// Returns the name on wires, such as `any_load`.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Exact => "exact",
            Rung::AnyLoad => "any_load",
            Rung::Template => "template",
            Rung::Class => "class",
            Rung::Type => "type",
            Rung::Unknown => "unknown",
            Rung::Prior => "prior",
        }
    }
}
