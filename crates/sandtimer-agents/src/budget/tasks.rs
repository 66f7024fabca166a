//! The tasks of a budget: those that are active, and what became of the others.

use std::collections::VecDeque;
use std::time::Duration;

use sandtimer::time::Moment;

use super::kinds::{Cause, END_FACTOR, TaskOf};
use super::scale::scaled;

/// Tasks at once.
const MAX_ACTIVE: usize = 64;
/// Completed tasks whose names are kept; the others are counted.
const MAX_RETAINED: usize = 256;
/// Characters of a name.
const MAX_NAME_CHARACTERS: usize = 200;

/// Why a task cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The name is empty, too long, or has control characters.
    #[error("task_name `{0}` is not a name: use 1 to {MAX_NAME_CHARACTERS} printable characters")]
    Name(String),
    /// The longest duration is less than the typical one.
    #[error("max_duration {max:?} is less than estimated_duration {estimated:?}: the longest comes last")]
    DurationsReversed {
        /// The typical duration that was given.
        estimated: Duration,
        /// The longest duration that was given.
        max: Duration,
    },
    /// A task of this name is active.
    #[error("task `{0}` is already open; complete it first, or use another name")]
    Active(String),
    /// As many tasks are active as a budget can have.
    #[error("{MAX_ACTIVE} tasks are already open; complete one first")]
    Full,
}

/// The state of an active task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStatus {
    /// The name with which it was started.
    pub name: String,
    /// The time since it was started.
    pub elapsed: Duration,
    /// Its typical duration, if it was given.
    pub estimated: Option<Duration>,
    /// Its longest duration, before the budget's factor; `None` is unlimited.
    pub max: Option<Duration>,
    /// The elapsed time in percent of the typical duration, at most 100; `None` without one.
    pub progress_percent: Option<f64>,
    /// Whether it takes longer than its typical duration.
    pub is_overdue: bool,
}

/// A task that is active.
#[derive(Debug, Clone)]
pub(super) struct Task {
    name: String,
    pub(super) estimated: Option<Duration>,
    pub(super) max: Option<Duration>,
    /// The longest duration times the budget's factor.
    pub(super) limit: Option<Duration>,
    ends_after: Option<Duration>,
    started: Moment,
}

impl Task {
    pub(super) fn new(task: TaskOf<'_>, factor: f64, started: Moment) -> Result<Self, TaskError> {
        let TaskOf { name, estimated, max, ends_after } = task;
        let limit = max.map(|max| scaled(max, factor));
        let length = name.chars().count();
        if name.trim().is_empty() || length > MAX_NAME_CHARACTERS || name.chars().any(char::is_control) {
            let shown = name.chars().take(MAX_NAME_CHARACTERS).flat_map(char::escape_default).collect();
            return Err(TaskError::Name(shown));
        }
        match (estimated, max) {
            (Some(estimated), Some(max)) if max < estimated => {
                Err(TaskError::DurationsReversed { estimated, max })
            }
            _ => Ok(Task {
                name: name.to_owned(),
                estimated,
                max,
                limit,
                ends_after: ends_after.or_else(|| limit.map(|limit| scaled(limit, END_FACTOR))),
                started,
            }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn started(&self) -> Moment {
        self.started
    }

    pub(super) fn elapsed(&self, now: Moment) -> Duration {
        now.since(self.started)
    }

    /// How long it may be quiet: it is ended at its limit, whatever its activity until then.
    pub(super) fn quiet(&self) -> Option<Duration> {
        self.limit.or(self.estimated)
    }

    /// When its estimate is reached.
    pub(super) fn due(&self) -> Option<Moment> {
        self.estimated.map(|estimated| self.started.after(estimated))
    }

    /// When its time is up.
    pub(super) fn end(&self) -> Option<Moment> {
        self.limit.map(|limit| self.started.after(limit))
    }

    /// When what runs in it is ended, where that was chosen: never before its time is up.
    pub(super) fn runs_end(&self) -> Option<Moment> {
        self.ends_after.map(|after| self.started.after(after.max(self.limit.unwrap_or_default())))
    }

    /// Why the work ends when its time is up.
    pub(super) fn overrun(&self) -> Cause {
        let limit = self.limit.unwrap_or_default();
        Cause::Task { name: self.name.clone(), limit, estimated: self.estimated }
    }

    pub(super) fn status(&self, now: Moment) -> TaskStatus {
        let elapsed = self.elapsed(now);
        let share =
            |estimated: Duration| (100.0 * elapsed.as_secs_f64() / estimated.as_secs_f64()).min(100.0);
        TaskStatus {
            name: self.name.clone(),
            elapsed,
            estimated: self.estimated,
            max: self.max,
            progress_percent: self.estimated.filter(|estimated| !estimated.is_zero()).map(share),
            is_overdue: self.estimated.is_some_and(|estimated| elapsed > estimated),
        }
    }
}

/// A task that is done.
#[derive(Debug, Clone)]
pub(super) struct CompletedTask {
    pub(super) name: String,
    pub(super) took: Duration,
    pub(super) estimated: Option<Duration>,
    pub(super) max: Option<Duration>,
}

/// All tasks of a budget.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    /// In the order of their beginning.
    active: Vec<Task>,
    /// The last ones.
    pub(super) completed: VecDeque<CompletedTask>,
    pub(super) completed_count: u64,
    /// Names of the last ones that were killed.
    pub(super) stopped: VecDeque<String>,
    pub(super) stopped_count: u64,
}

impl Tasks {
    pub(super) fn active(&self) -> impl Iterator<Item = &Task> {
        self.active.iter()
    }

    /// The one of this name, or the one begun last.
    pub(super) fn find(&self, name: Option<&str>) -> Option<&Task> {
        match name {
            Some(name) => self.active.iter().find(|task| task.name == name),
            None => self.active.last(),
        }
    }

    pub(super) fn start(&mut self, task: Task, alongside: bool) -> Result<(), TaskError> {
        if !alongside {
            while self.complete(None, task.started).is_some() {}
        }
        if self.find(Some(&task.name)).is_some() {
            return Err(TaskError::Active(task.name));
        }
        if self.active.len() == MAX_ACTIVE {
            return Err(TaskError::Full);
        }
        self.active.push(task);
        Ok(())
    }

    pub(super) fn complete(&mut self, name: Option<&str>, now: Moment) -> Option<(String, Duration)> {
        let task = self.take(name)?;
        let took = task.elapsed(now);
        let (estimated, max) = (task.estimated, task.max);
        if self.completed.len() == MAX_RETAINED {
            self.completed.pop_front();
        }
        self.completed.push_back(CompletedTask { name: task.name.clone(), took, estimated, max });
        self.completed_count += 1;
        Some((task.name, took))
    }

    /// Takes out a task that was killed: it ends, and is not completed.
    pub(super) fn stop(&mut self, name: Option<&str>, now: Moment) -> Option<(String, Duration)> {
        let task = self.take(name)?;
        let took = task.elapsed(now);
        if self.stopped.len() == MAX_RETAINED {
            self.stopped.pop_front();
        }
        self.stopped.push_back(task.name.clone());
        self.stopped_count += 1;
        Some((task.name, took))
    }

    fn take(&mut self, name: Option<&str>) -> Option<Task> {
        let index = match name {
            Some(name) => self.active.iter().position(|task| task.name == name)?,
            None => self.active.len().checked_sub(1)?,
        };
        Some(self.active.remove(index))
    }
}
