//! What a budget is made from, and what it answers with.

use std::time::Duration;

use sandtimer::limits::Limits;
use sandtimer::model::Layer;
use sandtimer::time::Moment;

use super::scale::scaled;

/// What happens to a task's processes when its time is up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTaskTimeout {
    /// The agent gets a message, and the task's processes continue.
    #[default]
    Notify,
    /// The engine also ends what runs in the task, at [`TaskOf::ends_after`].
    End,
}

/// How a budget behaves besides its limits.
#[derive(Debug, Clone)]
pub struct BudgetOptions {
    /// The time that is kept for the wrap-up turn, within the wall-clock limit: by default a
    /// twentieth of that, or 60 s if there is none. With zero there is no such turn.
    pub wrap_up: Option<Duration>,
    /// A task's time is up at its longest duration times this; by default 1.
    pub max_duration_factor: f64,
    /// What happens to the processes of a task that takes longer than it may; by default nothing.
    pub on_task_timeout: OnTaskTimeout,
    /// Work continues once the task whose time was up is done, even if the wrap-up turn was taken
    /// or has ended; by default it does not.
    pub resumes_after_task: bool,
    /// The wrap-up turn of a wall-clock limit ends with its time alone, however much is begun in
    /// it: for agents of which only the calls are known, several of them to a turn. False by
    /// default.
    pub wrap_up_is_timed: bool,
    /// Time between runs counts as silence, too; by default it does. Without it the stall limit
    /// applies to runs only, so that an agent which waits for a person is not stalled.
    pub counts_idle_time: bool,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        BudgetOptions {
            wrap_up: None,
            max_duration_factor: 1.0,
            on_task_timeout: OnTaskTimeout::default(),
            resumes_after_task: false,
            wrap_up_is_timed: false,
            counts_idle_time: true,
        }
    }
}

/// Options that no budget can follow.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// `max_duration_factor` is 0, negative or not finite.
    #[error("max_duration_factor {0} is not a factor: use a number above 0, such as 1.5")]
    Factor(f64),
    /// The wrap-up turn would take as long as the wall-clock limit, or longer.
    #[error(
        "wrap_up {wrap_up:?} leaves nothing of the wall-clock limit of {wall:?}: use less than that, or 0 for none"
    )]
    WrapUp {
        /// The time that is kept for the wrap-up turn.
        wrap_up: Duration,
        /// The wall-clock limit of the budget.
        wall: Duration,
    },
}

/// The limit that ended the agent's normal work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The wall-clock time, less what is kept for the wrap-up turn.
    Wall,
    /// The number of turns.
    Turns,
    /// The time without activity.
    Stall,
    /// The number of failures.
    Failures,
    /// A task took longer than it may.
    Task {
        /// The name of the task.
        name: String,
        /// Its longest duration, times the budget's factor.
        limit: Duration,
        /// Its typical duration, if it was given.
        estimated: Option<Duration>,
    },
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    /// Normal work, within the limits.
    Work,
    /// The last turn, in which the agent puts its work in order.
    WrapUp,
    /// Nothing: the budget has ended, and the turn was not counted.
    Refused,
}

/// What bounds the runs that an agent begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunBound {
    /// Whose limit it is: the loop's, a task's, or the wrap-up turn's.
    pub layer: Layer,
    /// When the clock of that limit began.
    pub start: Moment,
    /// When everything must have ended; `None` if there is no limit.
    pub end: Option<Moment>,
    /// The moment for which this was computed.
    pub now: Moment,
    /// The stall limit of each run, if there is one.
    pub stall: Option<Duration>,
}

impl RunBound {
    /// Returns this as limits of a scope whose clock begins at its opening, with `speed` seconds of
    /// the budget in a second of that clock.
    pub fn limits(&self, speed: f64) -> Limits {
        let mut limits = Limits::new();
        if let Some(end) = self.end {
            limits = limits.wall(scaled(end.since(self.now), 1.0 / speed));
        }
        if let Some(stall) = self.stall {
            limits = limits.stall(scaled(stall, 1.0 / speed));
        }
        limits
    }
}

/// A task to be begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskOf<'a> {
    /// 1 to 200 printable characters, unique among the active tasks.
    pub name: &'a str,
    /// How long it typically takes.
    pub estimated: Option<Duration>,
    /// The longest it should take; `None` is unlimited.
    pub max: Option<Duration>,
    /// The time after which its runs are ended, with [`OnTaskTimeout::End`], such as the suggested
    /// limit of an estimate. By default [`END_FACTOR`] times its longest duration.
    pub ends_after: Option<Duration>,
}

/// The factor of a task's longest duration at which its runs are ended. One run of twenty is longer
/// than its worst case, and healthy as a rule; next to none is longer than this many times it.
pub const END_FACTOR: f64 = crate::estimate::LIMIT_FACTOR;
