//! Budgets of agents' runs, as Python objects. Time is the caller's, in seconds; nothing here
//! waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sandtimer::limits::{Ceilings, Key, Limits, ScopeLocation, Setting, nest, precedence};
use sandtimer::model::{Layer, LimitKind, Source};
use sandtimer::time::Moment;
use sandtimer_agents::budget::{self, BudgetOptions, Check, OnTaskTimeout, TaskError, TaskOf, TurnKind};

use crate::calls::{Engine, Scope};
use crate::errors;
use crate::limits::setting;

/// Parameters that are limits, and whose limit each is.
const NAMES: [(&str, Key); 4] = [
    ("max_runtime_seconds", Key::Kind(LimitKind::Wall)),
    ("max_turns", Key::Kind(LimitKind::Turns)),
    ("stall_timeout_seconds", Key::Kind(LimitKind::Stall)),
    ("max_failures", Key::Kind(LimitKind::Failures)),
];

fn limits(parameters: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut limits = Limits::new();
    for (name, key) in NAMES {
        if let Some(value) = parameters.get_item(name)? {
            limits.set(key, setting(name, key, &value)?);
        }
    }
    Ok(limits)
}

/// A duration in seconds; None where it is unlimited.
fn duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    Ok(match setting(name, Key::Kind(LimitKind::Wall), value)? {
        Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
        Setting::Inherit | Setting::Unlimited => None,
    })
}

fn moment(now: f64) -> Moment {
    Moment::from_nanos((now * 1e9) as u64)
}

fn json(check: &Check) -> PyResult<String> {
    serde_json::to_string(check).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The budget of an agent's run.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Budget {
    budget: Mutex<budget::Budget>,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, budget::Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Budget {
    /// From the limits that the caller gave, those that are built in, and the options `wrap_up`
    /// (None: the default), `max_duration_factor` and `end_tasks`.
    #[new]
    fn new(
        given: &Bound<'_, PyDict>,
        builtin: &Bound<'_, PyDict>,
        options: (Option<Bound<'_, PyAny>>, f64, bool),
        now: f64,
    ) -> PyResult<Self> {
        let (wrap_up, max_duration_factor, end_tasks) = options;
        let py = given.py();
        let location = ScopeLocation { layer: Layer::Loop, scope: "agent".to_owned() };
        let (given, builtin) = (limits(given)?, limits(builtin)?);
        let own = precedence(&[(Source::Call, &given), (Source::Builtin, &builtin)]);
        // Here 0 is no time at all: there is no unlimited wrap-up turn.
        let wrap_up = wrap_up.map(|value| duration("wrap_up", &value)).transpose()?;
        let options = BudgetOptions {
            wrap_up: wrap_up.map(Option::unwrap_or_default),
            max_duration_factor,
            on_task_timeout: if end_tasks { OnTaskTimeout::End } else { OnTaskTimeout::Notify },
            ..BudgetOptions::default()
        };
        let effective = nest(&location, &own, &[], &Ceilings::none());
        let budget = budget::Budget::new(effective, options, moment(now))
            .map_err(|error| errors::exception(py, "InvalidLimitError", &error.to_string()))?;
        Ok(Budget { budget: Mutex::new(budget) })
    }

    /// Begins a turn: "work", "wrap_up", or "refused".
    fn start_turn(&self, now: f64) -> &'static str {
        match self.lock().start_turn(moment(now)) {
            TurnKind::Work => "work",
            TurnKind::WrapUp => "wrap_up",
            TurnKind::Refused => "refused",
        }
    }

    fn note_activity(&self, now: f64) {
        self.lock().note_activity(moment(now));
    }

    fn note_run(&self, since: f64, ended: f64) {
        self.lock().note_run(moment(since), Some(moment(ended)), moment(ended));
    }

    fn note_failure(&self, now: f64) {
        self.lock().note_failure(moment(now));
    }

    fn note_action(&self, action: &str, observation: &str, failed: bool, now: f64) {
        self.lock().note_action(action, observation, failed, moment(now));
    }

    fn start_task(
        &self,
        name: &str,
        estimated_duration: &Bound<'_, PyAny>,
        max_duration: &Bound<'_, PyAny>,
        suggested_limit: &Bound<'_, PyAny>,
        how: (bool, f64),
    ) -> PyResult<()> {
        let (alongside, now) = how;
        let estimated = duration("estimated_duration", estimated_duration)?;
        let max = duration("max_duration", max_duration)?;
        let ends_after = duration("suggested_limit", suggested_limit)?;
        let task = TaskOf { name, estimated, max, ends_after };
        let started = self.lock().start_task(task, alongside, moment(now));
        started.map_err(|error| match error {
            TaskError::DurationsReversed { .. } => {
                errors::exception(max_duration.py(), "InvalidLimitError", &error.to_string())
            }
            _ => PyValueError::new_err(error.to_string()),
        })
    }

    /// The name of the task that is done, and its seconds.
    fn complete_task(&self, name: Option<&str>, now: f64) -> Option<(String, f64)> {
        let completed = self.lock().complete_task(name, moment(now));
        completed.map(|(name, took)| (name, took.as_secs_f64()))
    }

    /// The name of the task that was killed, and its seconds.
    fn stop_task(&self, name: Option<&str>, now: f64) -> Option<(String, f64)> {
        let stopped = self.lock().stop_task(name, moment(now));
        stopped.map(|(name, took)| (name, took.as_secs_f64()))
    }

    /// Name, elapsed seconds, estimated and longest duration, progress in percent, whether it is
    /// overdue.
    #[allow(clippy::type_complexity)]
    fn task_status(
        &self,
        name: Option<&str>,
        now: f64,
    ) -> Option<(String, f64, Option<f64>, Option<f64>, Option<f64>, bool)> {
        let status = self.lock().task_status(name, moment(now))?;
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        Some((
            status.name,
            status.elapsed.as_secs_f64(),
            seconds(status.estimated),
            seconds(status.max),
            status.progress_percent,
            status.is_overdue,
        ))
    }

    /// Returns its state, as JSON; grants the wrap-up turn when a limit was passed.
    fn check(&self, now: f64) -> PyResult<String> {
        json(&self.lock().check(moment(now)))
    }

    /// The same for display: it grants nothing.
    fn look(&self, now: f64) -> PyResult<String> {
        json(&self.lock().inspect(moment(now)))
    }

    fn summary(&self, now: f64) -> String {
        self.lock().summary(moment(now))
    }

    /// Seconds from now until a check returns something new if nothing happens until then.
    fn next_event(&self, now: f64) -> Option<f64> {
        let budget = self.lock();
        budget.next_event().map(|event| event.since(moment(now)).as_secs_f64())
    }

    /// Seconds of wall and of silence that a run may have which is begun now, in this task or in
    /// none. In one second of its clock pass `speed` seconds of the budget's.
    fn run_limits(&self, of: (Option<String>, f64, f64)) -> (Option<f64>, Option<f64>) {
        let (task, now, speed) = of;
        let limits = self.lock().run_bound(task.as_deref(), moment(now)).limits(speed);
        let seconds = |kind| match limits.get(kind) {
            // On the way to a run 0 would mean unlimited.
            Setting::At(nanoseconds) => Some((nanoseconds as f64 / 1e9).max(1e-3)),
            Setting::Inherit | Setting::Unlimited => None,
        };
        (seconds(LimitKind::Wall), seconds(LimitKind::Stall))
    }

    /// A scope for a run that is begun now, in this task or in none. In one second of the engine's
    /// clock pass `speed` seconds of the budget's.
    fn run_scope(&self, py: Python<'_>, engine: &Engine, of: (Option<String>, f64, f64)) -> PyResult<Scope> {
        let (task, now, speed) = of;
        let bound = self.lock().run_bound(task.as_deref(), moment(now));
        let name = match bound.layer {
            Layer::Task => format!("agent/task-{}", task.unwrap_or_default()),
            Layer::Turn => "agent/wrap-up".to_owned(),
            _ => "agent".to_owned(),
        };
        let opened = engine.engine.open_scope(None, bound.layer, name, &bound.limits(speed));
        Ok(Scope { scope: opened.map_err(|error| errors::from_engine(py, &error))?, _outer: None })
    }
}

/// The name, the typical and the longest seconds, and those of the suggested limit where there is
/// one, out of an estimate's text.
#[pyfunction]
pub(crate) fn parse_estimate(text: &str) -> Option<(String, f64, f64, Option<f64>)> {
    let read = budget::parse_estimate(text)?;
    let limit = read.suggested_limit.map(|limit| limit.as_secs_f64());
    Some((read.task_name, read.typical.as_secs_f64(), read.max.as_secs_f64(), limit))
}

/// `45s`, `12m 0s`, `1h 30m`.
#[pyfunction]
pub(crate) fn duration_text(seconds: f64) -> String {
    sandtimer_agents::estimate::format_duration(seconds)
}
