//! Decides when a loop has run for long enough. A plain counter, which the loop calls in every
//! turn.

use serde_json::Value;

use sandtimer::model::{Layer, LimitKind};

/// Counts the turns of one loop.
#[derive(Debug, Clone)]
pub struct TurnGuard {
    iterations: Option<u32>,
    failures: Option<u32>,
    repeats: Option<u32>,
    pub turns: u32,
    /// Turns that failed, in all.
    pub failed: u32,
    last: Option<(String, Value)>,
    /// How often the last action was taken in a row with the same input.
    consecutive: u32,
}

/// What a loop may have a limited number of.
pub const REASONS: [&str; 3] = ["turns", "failed turns", "turns in a row with the same action and input"];

/// Why a loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopStop {
    pub kind: LimitKind,
    pub limit: u32,
    /// What was counted.
    pub what: &'static str,
}

impl LoopStop {
    /// The level that set it.
    pub const LAYER: Layer = Layer::Loop;
}

impl TurnGuard {
    /// A guard that permits a loop this many turns, this many failures in all, and this many equal
    /// turns in a row.
    pub fn of(iterations: Option<u32>, failures: Option<u32>, repeats: Option<u32>) -> Self {
        TurnGuard { iterations, failures, repeats, turns: 0, failed: 0, last: None, consecutive: 0 }
    }

    /// Whether another turn may begin, which is then counted.
    ///
    /// # Errors
    /// What there was too much of.
    pub fn begin(&mut self) -> Result<u32, LoopStop> {
        let over = |limit: Option<u32>, count: u32, kind, what| match limit {
            Some(limit) if count >= limit => Err(LoopStop { kind, limit, what }),
            _ => Ok(()),
        };
        let [turns, failed, repeated] = REASONS;
        over(self.iterations, self.turns, LimitKind::Turns, turns)?;
        over(self.failures, self.failed, LimitKind::Failures, failed)?;
        over(self.repeats, self.consecutive, LimitKind::Turns, repeated)?;
        self.turns += 1;
        Ok(self.turns)
    }

    /// What the turn did.
    pub fn ended(&mut self, action: &str, input: &Value, ok: bool) {
        self.failed += u32::from(!ok);
        let same = self.last.as_ref().is_some_and(|(last, with)| last == action && with == input);
        self.consecutive = if same { self.consecutive + 1 } else { 1 };
        self.last = Some((action.to_owned(), input.clone()));
    }
}
