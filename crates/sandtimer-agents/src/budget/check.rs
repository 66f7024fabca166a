//! The result of a check: every limit with what is used of it, which of them binds, and what is to
//! be done.

use std::time::Duration;

use sandtimer::limits::{Effect, nanoseconds};
use sandtimer::model::{Layer, LimitKind, Source};

use super::kinds::Cause;
use super::limit_use::{LimitUse, Quantity};
use super::machine::{Budget, BudgetPhase};
use super::repetition::RepetitionKind;
use super::scale::scaled;
use super::words;

/// The state of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BudgetState {
    /// No limit was passed.
    Going,
    /// A limit was passed; the next check reports that and grants the wrap-up turn.
    Hit,
    /// One more turn is left, and the time that is kept for it.
    WrapUp,
    /// The wrap-up turn was taken, or its time has passed: no further turn begins.
    Over,
}

/// The wrap-up turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct WrapUp {
    /// The number of the turn, once it has begun.
    pub turn: Option<u64>,
    /// Milliseconds until it has ended.
    pub left_ms: u64,
}

/// The answer to [`Budget::check`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Check {
    /// Whether work continues, and if not, what is left.
    pub state: BudgetState,
    /// Whether a limit was passed.
    pub timed_out: bool,
    /// Which limit was passed, in words.
    pub reason: Option<String>,
    /// The message for the agent: what was passed, and what to do now.
    pub message: Option<String>,
    /// The wrap-up turn, while [`state`](Self::state) is [`BudgetState::WrapUp`].
    pub wrap_up: Option<WrapUp>,
    /// Milliseconds since the budget was opened.
    pub elapsed_ms: u64,
    /// Milliseconds until the wall-clock limit; `None` if it is unlimited.
    pub remaining_ms: Option<u64>,
    /// The number of turns that have begun.
    pub turn: u64,
    /// The number of tasks that were completed.
    pub tasks_completed: u64,
    /// All limits, those of the budget first: wall-clock, turns, stall and failures, then one for
    /// each active task.
    pub limits: Vec<LimitUse>,
    /// Overdue tasks and repetitions, in words, which are no reason to stop yet.
    pub warnings: Vec<String>,
    /// How the agent's last actions repeat each other, if they do.
    pub repeated: Option<RepetitionKind>,
    /// All of it as lines of text.
    pub text: String,
}

impl Check {
    pub(super) fn of(budget: &Budget) -> Self {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (state, cause) = match &budget.phase {
            BudgetPhase::Going => (BudgetState::Going, None),
            BudgetPhase::Hit(cause) => (BudgetState::Hit, Some(cause)),
            BudgetPhase::WrapUp { cause, .. } => (BudgetState::WrapUp, Some(cause)),
            BudgetPhase::Over(cause) => (BudgetState::Over, Some(cause)),
        };
        let wrap_up = match &budget.phase {
            BudgetPhase::WrapUp { until, turn, .. } => {
                Some(WrapUp { turn: *turn, left_ms: milliseconds(until.since(budget.now)) })
            }
            _ => None,
        };
        let limits = limits(budget, cause);
        let mut warnings = words::overruns(budget);
        let repeated = budget.repetition.found();
        warnings.extend(repeated.map(|repeated| format!("⚠️ {}", repeated.sentence())));
        let text = words::check(budget, &limits, &warnings);
        Check {
            state,
            timed_out: cause.is_some(),
            reason: cause.map(|cause| words::reason(budget, cause)),
            message: cause.map(|cause| words::message(budget, cause)),
            wrap_up,
            elapsed_ms: milliseconds(budget.now.since(budget.started)),
            remaining_ms: budget.wall_end().map(|end| milliseconds(end.since(budget.now))),
            turn: budget.turns,
            tasks_completed: budget.tasks.completed_count,
            limits,
            warnings,
            repeated,
            text,
        }
    }
}

/// Every limit, the budget's own before those of its tasks.
fn limits(budget: &Budget, cause: Option<&Cause>) -> Vec<LimitUse> {
    let elapsed = budget.now.since(budget.started);
    let mut limits = vec![
        own(budget, LimitKind::Wall, Quantity::Time(elapsed)),
        own(budget, LimitKind::Turns, Quantity::Count(budget.turns)),
        own(budget, LimitKind::Stall, Quantity::Time(budget.idle_time())),
        own(budget, LimitKind::Failures, Quantity::Count(budget.failures)),
    ];
    limits[0].hit = budget.work_end().is_some_and(|end| end <= budget.now);
    limits.extend(budget.tasks.active().map(|task| {
        let elapsed = task.elapsed(budget.now);
        LimitUse {
            kind: LimitKind::Wall,
            layer: Layer::Task,
            task: Some(task.name().to_owned()),
            unit: "ms",
            used: Quantity::Time(elapsed),
            limit: task.limit.map(Quantity::Time),
            remaining: task.limit.map(|limit| Quantity::Time(limit.saturating_sub(elapsed))),
            source: task.limit.map(|_| Source::Call),
            origin: None,
            scope: None,
            hit: task.limit.is_some_and(|limit| elapsed >= limit),
            binding: false,
            estimated: task.estimated.map(Quantity::Time),
        }
    }));
    let binding = cause.map_or_else(|| binding(budget, &limits), |cause| of_cause(&limits, cause));
    if let Some(index) = binding {
        limits[index].binding = true;
    }
    limits
}

/// One of the budget's own limits.
fn own(budget: &Budget, kind: LimitKind, used: Quantity) -> LimitUse {
    let effect = budget.limit(kind);
    let value = match kind {
        LimitKind::Stall => budget.stall_limit(None).map(nanoseconds),
        _ => effect.map(|effect| effect.value),
    };
    let (limit, remaining, unit) = match used {
        Quantity::Time(time) => {
            let limit = value.map(Duration::from_nanos);
            let left = limit.map(|limit| Quantity::Time(limit.saturating_sub(time)));
            (limit.map(Quantity::Time), left, "ms")
        }
        Quantity::Count(count) => {
            let left = value.map(|limit| Quantity::Count(limit.saturating_sub(count)));
            (value.map(Quantity::Count), left, "count")
        }
    };
    let outside = |effect: &&Effect| effect.source == Source::Ancestor;
    LimitUse {
        kind,
        layer: effect.map_or(Layer::Loop, |effect| effect.layer),
        task: None,
        unit,
        used,
        limit,
        remaining,
        source: effect.map(|effect| effect.source),
        origin: effect.and_then(|effect| effect.origin.as_deref().map(str::to_owned)),
        scope: effect.filter(outside).map(|effect| effect.scope.clone()),
        hit: matches!(remaining, Some(Quantity::Time(Duration::ZERO) | Quantity::Count(0))),
        binding: false,
        estimated: None,
    }
}

/// Returns the index of the limit that the cause belongs to; `None` if its task has been completed.
fn of_cause(limits: &[LimitUse], cause: &Cause) -> Option<usize> {
    let (kind, task) = match cause {
        Cause::Wall => (LimitKind::Wall, None),
        Cause::Turns => (LimitKind::Turns, None),
        Cause::Stall => (LimitKind::Stall, None),
        Cause::Failures => (LimitKind::Failures, None),
        Cause::Task { name, .. } => (LimitKind::Wall, Some(name)),
    };
    limits.iter().position(|limit| limit.kind == kind && limit.task.as_ref() == task)
}

/// The limit that will end the work at the present pace: the first in time, turns counted by how
/// long they have taken so far. Silence and failures only where nothing else is limited: what the
/// agent does next moves them.
fn binding(budget: &Budget, limits: &[LimitUse]) -> Option<usize> {
    let elapsed = budget.now.since(budget.started);
    let left = |limit: &LimitUse| match (limit.kind, limit.remaining?) {
        (LimitKind::Wall, Quantity::Time(left)) if limit.task.is_none() => {
            Some(left.saturating_sub(budget.reserve()))
        }
        (LimitKind::Wall, Quantity::Time(left)) => Some(left),
        (LimitKind::Turns, Quantity::Count(left)) if budget.turns > 0 => {
            Some(scaled(elapsed, left as f64 / budget.turns as f64))
        }
        _ => None,
    };
    let in_time = limits.iter().enumerate().filter_map(|(index, limit)| Some((left(limit)?, index))).min();
    in_time.map(|(_, index)| index).or_else(|| limits.iter().position(|limit| limit.limit.is_some()))
}
