//! What a budget is made from, and what it answers with.

use std::time::Duration;

use sandtimer::limits::Limits;
use sandtimer::model::Layer;
use sandtimer::time::Moment;

use super::scaled;

/// What happens to a task's processes when its time is up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTaskTimeout {
    /// The agent gets a message, and the task's processes continue.
    #[default]
    Notify,
    /// The engine also ends what runs in the task, at [`TaskOf::ends_after`].
    End,
}

/// The behaviour of a budget, besides its limits.
#[derive(Debug, Clone)]
pub struct BudgetOptions {
    /// Time kept for the wrap-up turn, within the wall: by default a twentieth of it, 60 s without
    /// one. Zero: no such turn.
    pub wrap_up: Option<Duration>,
    /// A task's time is up at its longest duration times this.
    pub max_duration_factor: f64,
    pub on_task_timeout: OnTaskTimeout,
    /// Work continues once the task is done whose time was up, also when the wrap-up turn was taken
    /// or has ended.
    pub resumes_after_task: bool,
    /// The wrap-up turn of a wall limit ends with its time alone, however much is begun in it: for
    /// agents of which only the calls are known, several of them to a turn.
    pub wrap_up_is_timed: bool,
    /// Time between runs is silence, too. Without it the stall limit is that of what runs, and an
    /// agent whose person is away has stopped nowhere.
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
    #[error("max_duration_factor {0} is not a factor: use a number above 0, such as 1.5")]
    Factor(f64),
    #[error(
        "wrap_up {wrap_up:?} leaves nothing of the wall-clock limit of {wall:?}: use less than that, or 0 for none"
    )]
    WrapUp { wrap_up: Duration, wall: Duration },
}

/// What ended the agent's normal work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The wall, less what is kept for the wrap-up turn.
    Wall,
    Turns,
    Stall,
    Failures,
    /// A task took longer than it may.
    Task {
        name: String,
        limit: Duration,
        estimated: Option<Duration>,
    },
}

/// What a turn that was begun is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    Work,
    /// The last one: for putting things in order.
    WrapUp,
    /// None: the budget has ended.
    Refused,
}

/// What bounds the runs that an agent begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunBound {
    /// Whose limit it is: the loop's, a task's, or the wrap-up turn's.
    pub layer: Layer,
    /// When the clock of that limit began.
    pub start: Moment,
    /// When everything must be over.
    pub end: Option<Moment>,
    /// When it was asked for.
    pub now: Moment,
    /// The longest silence of each run.
    pub stall: Option<Duration>,
}

impl RunBound {
    /// As limits of a scope whose clock begins at its opening, with `speed` seconds of the budget
    /// in a second of that clock.
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
    pub name: &'a str,
    /// How long it typically takes.
    pub estimated: Option<Duration>,
    /// The longest it should take; None is unlimited.
    pub max: Option<Duration>,
    /// When what runs in it is ended, where that was chosen: an estimate's suggested limit.
    /// [`END_FACTOR`] times its time unless it is given.
    pub ends_after: Option<Duration>,
}

/// One run of twenty is longer than its worst case: a run that is ended there is usually healthy.
/// At this many times it, hardly any is.
pub const END_FACTOR: f64 = crate::estimate::LIMIT_FACTOR;
