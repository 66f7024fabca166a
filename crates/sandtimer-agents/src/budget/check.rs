//! The result of a check: every limit with its use, which of them binds, and what the agent should
//! do.

use std::time::Duration;

use sandtimer::limits::{Effect, nanoseconds};
use sandtimer::model::{Layer, LimitKind, Source};
use serde::ser::{Serialize, Serializer};

use super::{Budget, BudgetPhase, Cause, RepetitionKind, words};

/// The state of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BudgetState {
    Going,
    /// A limit was passed; the next check reports that and grants the wrap-up turn.
    Hit,
    /// One more turn, and the time kept for it.
    WrapUp,
    Over,
}

/// An amount in the unit of its limit: milliseconds on wires, or pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    Time(Duration),
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
    pub kind: LimitKind,
    pub layer: Layer,
    /// The task whose limit it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `ms` or `count`.
    pub unit: &'static str,
    pub used: Quantity,
    /// None: unlimited.
    pub limit: Option<Quantity>,
    pub remaining: Option<Quantity>,
    pub source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The scope whose limit it is, where that is one further out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// It is used up: for the wall, down to what is kept for the wrap-up turn.
    pub hit: bool,
    /// The limit that ended the work, or will end it at the present pace.
    pub binding: bool,
    /// Typical duration of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<Quantity>,
}

/// The wrap-up turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct WrapUp {
    /// Its number, once it was begun.
    pub turn: Option<u64>,
    /// Milliseconds until it has ended.
    pub left_ms: u64,
}

/// The answer to [`Budget::check`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Check {
    pub state: BudgetState,
    /// A limit was passed.
    pub timed_out: bool,
    /// Which limit, as text.
    pub reason: Option<String>,
    /// The message for the agent.
    pub message: Option<String>,
    pub wrap_up: Option<WrapUp>,
    pub elapsed_ms: u64,
    /// Milliseconds of the wall that are left; None without a wall.
    pub remaining_ms: Option<u64>,
    pub turn: u64,
    pub tasks_completed: u64,
    pub limits: Vec<LimitUse>,
    /// Warnings that are not a reason to stop yet.
    pub warnings: Vec<String>,
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
            Some(super::scaled(elapsed, left as f64 / budget.turns as f64))
        }
        _ => None,
    };
    let in_time = limits.iter().enumerate().filter_map(|(index, limit)| Some((left(limit)?, index))).min();
    in_time.map(|(_, index)| index).or_else(|| limits.iter().position(|limit| limit.limit.is_some()))
}
