//! The state machine of a budget: what it may use, what it has used, and what that leads to.

use std::time::Duration;

use sandtimer::limits::{Effect, EffectiveLimits};
use sandtimer::model::{Layer, LimitKind, Source};
use sandtimer::time::Moment;

use super::kinds::{BudgetOptions, Cause, OnTaskTimeout, OptionsError, RunBound, TaskOf, TurnKind};
use super::repetition::Repetition;
use super::tasks::{Task, TaskError, TaskStatus, Tasks};

/// Share of the wall that is kept for the wrap-up turn, as a divisor.
const WRAP_UP_SHARE: u32 = 20;
/// Time of the wrap-up turn where there is no wall.
const WRAP_UP_ALONE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BudgetPhase {
    Going,
    /// A limit was passed; no check has reported it yet.
    Hit(Cause),
    WrapUp {
        cause: Cause,
        granted: Moment,
        until: Moment,
        /// Its turn, once that was begun.
        turn: Option<u64>,
    },
    Over(Cause),
}

/// The budget of one agent's run: what it may use, and what it has used.
///
/// [`AgentBudget`](crate::AgentBudget) adds the scopes in which the agent's runs end at these
/// limits.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::limits::{Ceilings, Limits, ScopeLocation, nest, precedence};
/// use sandtimer::model::{Layer, Source};
/// use sandtimer::time::Moment;
/// use sandtimer_agents::budget::{Budget, BudgetOptions, BudgetState, TurnKind};
///
/// let limits = precedence(&[(Source::Call, &Limits::new().wall(Duration::from_secs(100)))]);
/// let location = ScopeLocation { layer: Layer::Loop, scope: "agent".to_owned() };
/// let limits = nest(&location, &limits, &[], &Ceilings::none());
///
/// let start = Moment::from_nanos(0);
/// let at = |seconds| start.after(Duration::from_secs(seconds));
/// let mut budget = Budget::new(limits, BudgetOptions::default(), start)?;
/// assert_eq!(budget.start_turn(at(1)), TurnKind::Work);
/// // A twentieth of the 100 s is kept for the last turn.
/// assert_eq!(budget.check(at(94)).state, BudgetState::Going);
/// assert_eq!(budget.check(at(95)).state, BudgetState::WrapUp);
/// assert_eq!(budget.start_turn(at(96)), TurnKind::WrapUp);
/// assert_eq!(budget.start_turn(at(97)), TurnKind::Refused);
/// # Ok::<(), sandtimer_agents::budget::OptionsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    pub(super) limits: EffectiveLimits,
    pub(super) options: BudgetOptions,
    pub(super) started: Moment,
    /// The latest moment that a caller has passed; it does not go back.
    pub(super) now: Moment,
    pub(super) turns: u64,
    pub(super) failures: u64,
    pub(super) last_activity: Moment,
    pub(super) tasks: Tasks,
    pub(super) repetition: Repetition,
    pub(super) phase: BudgetPhase,
}

impl Budget {
    /// Makes a budget whose clock begins now. Of the limits it uses wall, turns, stall and
    /// failures.
    ///
    /// # Errors
    /// If the options contradict the limits, or `max_duration_factor` is not a factor.
    pub fn new(limits: EffectiveLimits, options: BudgetOptions, now: Moment) -> Result<Self, OptionsError> {
        if !(options.max_duration_factor.is_finite() && options.max_duration_factor > 0.0) {
            return Err(OptionsError::Factor(options.max_duration_factor));
        }
        let wall = limits.get(LimitKind::Wall).map(|effect| Duration::from_nanos(effect.value));
        if let (Some(wrap_up), Some(wall)) = (options.wrap_up, wall)
            && wrap_up >= wall
        {
            return Err(OptionsError::WrapUp { wrap_up, wall });
        }
        Ok(Budget {
            limits,
            options,
            started: now,
            now,
            turns: 0,
            failures: 0,
            last_activity: now,
            tasks: Tasks::default(),
            repetition: Repetition::default(),
            phase: BudgetPhase::Going,
        })
    }

    /// Begins a turn, and returns what it is for. That is activity; a silence that was too long
    /// before it counts all the same.
    pub fn start_turn(&mut self, now: Moment) -> TurnKind {
        self.advance(now);
        let next = self.turns.saturating_add(1);
        let turn = match &mut self.phase {
            BudgetPhase::Going | BudgetPhase::Hit(_) => TurnKind::Work,
            BudgetPhase::WrapUp { turn: turn @ None, .. } => {
                *turn = Some(next);
                TurnKind::WrapUp
            }
            BudgetPhase::WrapUp { cause: Cause::Wall, .. } if self.options.wrap_up_is_timed => {
                TurnKind::WrapUp
            }
            BudgetPhase::WrapUp { cause, .. } => {
                self.phase = BudgetPhase::Over(cause.clone());
                TurnKind::Refused
            }
            BudgetPhase::Over(_) => TurnKind::Refused,
        };
        if turn != TurnKind::Refused {
            self.turns = next;
            self.last_activity = self.now;
        }
        turn
    }

    /// Records that the agent did something: output, progress or an answer was received.
    pub fn note_activity(&mut self, now: Moment) {
        self.advance(now);
        self.last_activity = self.now;
    }

    /// Records activity that was seen at `at` and is reported only now. What counts is when it was:
    /// a silence that it broke in time was none.
    pub fn note_activity_at(&mut self, at: Moment, now: Moment) {
        self.advance(at);
        self.last_activity = self.last_activity.max(at);
        self.advance(now);
    }

    /// Records that a run of the agent's was active from `since` until it `ended`, or still is if
    /// it did not end. During that time the agent was not silent, for the run is under the same
    /// stall limit itself. Several runs are recorded in the order of their starts; the next call
    /// counts the silence after the last one.
    pub fn note_run(&mut self, since: Moment, ended: Option<Moment>, now: Moment) {
        self.advance(since.min(now));
        self.last_activity = self.last_activity.max(ended.map_or(now, |ended| ended.min(now)));
    }

    /// Counts a failure of the agent's.
    pub fn note_failure(&mut self, now: Moment) {
        self.note_activity(now);
        self.failures = self.failures.saturating_add(1);
        self.advance(now);
    }

    /// Records an action of the agent's and what it observed. The next check reports repetitions.
    pub fn note_action(&mut self, action: &str, observation: &str, failed: bool, now: Moment) {
        self.note_activity(now);
        self.repetition.note(action, observation, failed);
    }

    /// Begins a task. Unless it is `alongside` them, the tasks that were active before count as
    /// completed.
    ///
    /// # Errors
    /// If no task can have its name or its durations, a task of this name is active, or 64 tasks
    /// are.
    pub fn start_task(&mut self, task: TaskOf<'_>, alongside: bool, now: Moment) -> Result<(), TaskError> {
        self.note_activity(now);
        let started = self.now;
        self.tasks.start(Task::new(task, self.options.max_duration_factor, started)?, alongside)?;
        self.forget_task_hit();
        Ok(())
    }

    /// Completes the task of this name, or the one begun last. Returns its name and how long it
    /// took; `None` if there is none.
    pub fn complete_task(&mut self, name: Option<&str>, now: Moment) -> Option<(String, Duration)> {
        self.note_activity(now);
        let completed = self.tasks.complete(name, self.now);
        self.forget_task_hit();
        completed
    }

    /// As [`complete_task`](Self::complete_task), for a task whose process was killed: it does not
    /// count as completed.
    pub fn stop_task(&mut self, name: Option<&str>, now: Moment) -> Option<(String, Duration)> {
        self.note_activity(now);
        let stopped = self.tasks.stop(name, self.now);
        self.forget_task_hit();
        stopped
    }

    /// Returns the state of the task of this name, or of the one begun last; `None` if there is
    /// none.
    pub fn task_status(&mut self, name: Option<&str>, now: Moment) -> Option<TaskStatus> {
        self.advance(now);
        self.tasks.find(name).map(|task| task.status(self.now))
    }

    /// Returns what bounds a run that is begun now, in this task or in none. A run of the wrap-up
    /// turn has the time that is kept for it; earlier runs end in time for that turn.
    pub fn run_bound(&mut self, task: Option<&str>, now: Moment) -> RunBound {
        self.advance(now);
        let (layer, start, end) = match &self.phase {
            BudgetPhase::Going | BudgetPhase::Hit(_) => {
                let work = self.work_end();
                match self.ending_task(task) {
                    Some((start, end)) if work.is_none_or(|work| end < work) => {
                        (Layer::Task, start, Some(end))
                    }
                    _ => (Layer::Loop, self.started, work),
                }
            }
            BudgetPhase::WrapUp { granted, until, .. } => (Layer::Turn, *granted, Some(*until)),
            BudgetPhase::Over(_) => (Layer::Turn, self.now, Some(self.now)),
        };
        let stall = self.stall_limit(task);
        let now = self.now;
        RunBound { layer, start, end, now, stall }
    }

    /// Returns the next moment at which a check reports something new if nothing happens until
    /// then: a limit, a warning, or the end of the wrap-up turn.
    pub fn next_event(&self) -> Option<Moment> {
        let ends = match &self.phase {
            BudgetPhase::Going => {
                let mut ends: Vec<Moment> = self.work_end().into_iter().chain(self.stall_end()).collect();
                ends.extend(self.tasks.active().flat_map(|task| [task.due(), task.end()]).flatten());
                ends
            }
            BudgetPhase::WrapUp { until, .. } => vec![*until],
            BudgetPhase::Hit(_) | BudgetPhase::Over(_) => Vec::new(),
        };
        ends.into_iter().filter(|end| *end > self.now).min()
    }

    pub(super) fn limit(&self, kind: LimitKind) -> Option<&Effect> {
        self.limits.get(kind)
    }

    /// Time kept for the wrap-up turn.
    pub(super) fn reserve(&self) -> Duration {
        let wall = self.limit(LimitKind::Wall).map(|effect| Duration::from_nanos(effect.value));
        self.options.wrap_up.unwrap_or_else(|| wall.map_or(WRAP_UP_ALONE, |wall| wall / WRAP_UP_SHARE))
    }

    pub(super) fn wall_end(&self) -> Option<Moment> {
        self.limit(LimitKind::Wall).map(|effect| self.started.after(Duration::from_nanos(effect.value)))
    }

    /// When normal work ends: the wall, less what is kept.
    pub(super) fn work_end(&self) -> Option<Moment> {
        self.wall_end().map(|end| end.before(self.reserve()))
    }

    /// The time without activity.
    pub(super) fn idle_time(&self) -> Duration {
        if self.options.counts_idle_time { self.now.since(self.last_activity) } else { Duration::ZERO }
    }

    /// The longest silence of the runs in this task, or of all runs. A built-in limit is widened to
    /// the time that the active tasks may take, since work of that length may be quiet for long; a
    /// chosen limit is not.
    pub(super) fn stall_limit(&self, task: Option<&str>) -> Option<Duration> {
        let effect = self.limit(LimitKind::Stall)?;
        let own = Duration::from_nanos(effect.value);
        if effect.source != Source::Builtin {
            return Some(own);
        }
        let tasks = self.tasks.active().filter(|active| task.is_none_or(|name| active.name() == name));
        Some(tasks.filter_map(Task::quiet).fold(own, Duration::max))
    }

    fn stall_end(&self) -> Option<Moment> {
        self.stall_limit(None)
            .filter(|_| self.options.counts_idle_time)
            .map(|limit| self.last_activity.after(limit))
    }

    /// The beginning and the end of a task whose runs the engine ends.
    fn ending_task(&self, task: Option<&str>) -> Option<(Moment, Moment)> {
        let ends = self.options.on_task_timeout == OnTaskTimeout::End;
        let task = task.filter(|_| ends).and_then(|name| self.tasks.find(Some(name)))?;
        Some((task.started(), task.runs_end()?))
    }

    /// When a wrap-up turn granted now has ended. An agent that asked in time has it within the
    /// wall; an agent that asked too late has half of it all the same, for it was promised.
    pub(super) fn wrap_up_end(&self, reserve: Duration) -> Moment {
        let end = self.now.after(reserve);
        self.wall_end().map_or(end, |wall| end.min(wall.max(self.now.after(reserve / 2))))
    }

    /// Brings it up to this moment.
    pub(super) fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        match &self.phase {
            BudgetPhase::Going => {
                if let Some(cause) = self.passed() {
                    self.phase = BudgetPhase::Hit(cause);
                }
            }
            BudgetPhase::WrapUp { cause, until, .. } if *until <= self.now => {
                self.phase = BudgetPhase::Over(cause.clone());
            }
            _ => {}
        }
    }

    /// The limit that was passed, of several the first; of equals the outermost, but a task's
    /// before the silence in it.
    fn passed(&self) -> Option<Cause> {
        let used_up = |kind, used| self.limit(kind).is_some_and(|effect| used >= effect.value);
        if used_up(LimitKind::Turns, self.turns) {
            return Some(Cause::Turns);
        }
        if used_up(LimitKind::Failures, self.failures) {
            return Some(Cause::Failures);
        }
        let mut ends = vec![(self.work_end(), Cause::Wall)];
        ends.extend(self.tasks.active().map(|task| (task.end(), task.overrun())));
        ends.push((self.stall_end(), Cause::Stall));
        let passed = ends.into_iter().filter_map(|(end, cause)| Some((end?, cause)));
        passed.filter(|(end, _)| *end <= self.now).min_by_key(|(end, _)| *end).map(|(_, cause)| cause)
    }

    /// A task that is done before a check reported its overrun is no reason to stop; nor is one
    /// later, if that was chosen.
    fn forget_task_hit(&mut self) {
        let cause = match &self.phase {
            BudgetPhase::Hit(cause) => Some(cause),
            BudgetPhase::WrapUp { cause, .. } | BudgetPhase::Over(cause)
                if self.options.resumes_after_task =>
            {
                Some(cause)
            }
            _ => None,
        };
        if let Some(Cause::Task { name, .. }) = cause
            && self.tasks.find(Some(name)).is_none()
        {
            self.phase = BudgetPhase::Going;
            self.advance(self.now);
        }
    }
}
