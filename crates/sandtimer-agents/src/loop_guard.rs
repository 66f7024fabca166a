//! Decides when a loop has run long enough: a plain counter to which the loop reports every turn.

use serde_json::Value;

use sandtimer::model::{Layer, LimitKind};

/// Counts the turns of one loop, and refuses a turn once a limit is reached.
///
/// ```
/// use sandtimer_agents::loop_guard::TurnGuard;
/// use serde_json::json;
///
/// // At most 10 turns, any number of failures, and the same action at most twice in a row.
/// let mut guard = TurnGuard::of(Some(10), None, Some(2));
/// for _ in 0..2 {
///     guard.begin().expect("there are turns left");
///     guard.ended("search", &json!({"query": "weather"}), true);
/// }
/// let stop = guard.begin().expect_err("the action was repeated");
/// assert_eq!((stop.limit, stop.what), (2, "turns in a row with the same action and input"));
/// ```
#[derive(Debug, Clone)]
pub struct TurnGuard {
    iterations: Option<u32>,
    failures: Option<u32>,
    repeats: Option<u32>,
    /// Turns that have begun.
    pub turns: u32,
    /// Turns that failed, in all.
    pub failed: u32,
    last: Option<(String, Value)>,
    /// How often the last action was taken in a row with the same input.
    consecutive: u32,
}

/// What a loop can have a limited number of: the values of [`LoopStop::what`].
pub const REASONS: [&str; 3] = ["turns", "failed turns", "turns in a row with the same action and input"];

/// Why a loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopStop {
    /// [`LimitKind::Failures`] if too many turns failed, else [`LimitKind::Turns`].
    pub kind: LimitKind,
    /// The number that was reached.
    pub limit: u32,
    /// What was limited to that number, as a plural noun; one of [`REASONS`].
    pub what: &'static str,
}

impl LoopStop {
    /// The level of these limits.
    pub const LAYER: Layer = Layer::Loop;
}

impl TurnGuard {
    /// Makes a guard that allows this many turns, this many failed turns in all, and this many
    /// turns
    /// in a row with the same action and input. `None` is unlimited.
    pub fn of(iterations: Option<u32>, failures: Option<u32>, repeats: Option<u32>) -> Self {
        TurnGuard { iterations, failures, repeats, turns: 0, failed: 0, last: None, consecutive: 0 }
    }

    /// Begins another turn and returns its number, counted from 1.
    ///
    /// # Errors
    /// If a limit is reached, which one. Then no turn is counted.
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

    /// Records what the turn did: an action with its input, and whether it succeeded.
    pub fn ended(&mut self, action: &str, input: &Value, ok: bool) {
        self.failed += u32::from(!ok);
        let same = self.last.as_ref().is_some_and(|(last, with)| last == action && with == input);
        self.consecutive = if same { self.consecutive + 1 } else { 1 };
        self.last = Some((action.to_owned(), input.clone()));
    }
}
