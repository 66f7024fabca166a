//! An agent's run under a budget: a scope of the loop's, and scopes inside it that its runs are begun in.
//!
//! The budget decides and tells; runs begun in its scopes are ended by the engine at its limits, also while the agent
//! waits for one of them and cannot ask. The hard fact: a run that goes on is under the budget's stall limit itself, and
//! the engine sees more of it than an agent does. So as long as one goes on, the agent is not silent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::error::Error;
use super::{Engine, Inner, Run, ScopeHandle};
use crate::limits::{Limits, precedence};
use crate::model::{Layer, Source};
use crate::scope::{CarriedDeadline, Opening, ScopeId};
use crate::supervise::waiting::RunNotifier;
use crate::task::budget::{Budget, BudgetOptions};
use crate::time::Moment;

/// A budget to be opened.
#[derive(Debug, Clone, Default)]
pub struct BudgetSpec {
    /// Its part of the path of scopes, such as `connection-7`.
    pub name: String,
    /// The scope that the agent itself runs in.
    pub parent: Option<ScopeId>,
    /// The limits that were asked for: wall, turns, stall, failures.
    pub limits: Limits,
    /// Limits from further out, by source.
    pub defaults: Vec<(Source, Limits)>,
    pub options: BudgetOptions,
}

/// The budget of one agent's run, with its scopes.
#[derive(Debug)]
pub struct AgentBudget {
    inner: Arc<Inner>,
    parent: Option<ScopeId>,
    scope: ScopeHandle,
    budget: Mutex<Budget>,
    runs: Mutex<Vec<WatchedRun>>,
}

/// A run of the agent's that was not seen to end.
#[derive(Debug)]
struct WatchedRun {
    since: u64,
    waiting: Arc<RunNotifier>,
}

impl Engine {
    /// Opens a budget, whose clock begins now.
    ///
    /// # Errors
    /// When the outer scope is gone or its time is over; for options that contradict the limits.
    pub fn open_budget(&self, spec: BudgetSpec) -> Result<AgentBudget, Error> {
        let mut layers: Vec<(Source, &Limits)> = vec![(Source::Call, &spec.limits)];
        layers.extend(spec.defaults.iter().map(|(source, limits)| (*source, limits)));
        let own = precedence(&layers);
        let opening = Opening { parent: spec.parent, layer: Layer::Loop, name: spec.name, own, warn: None };
        let scope = ScopeHandle::open(&self.inner, opening, None)?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let effective = scopes.effective(scope.id(), now)?;
        drop(scopes);
        let budget = Mutex::new(Budget::new(effective, spec.options, now)?);
        Ok(AgentBudget {
            inner: self.inner.clone(),
            parent: spec.parent,
            scope,
            budget,
            runs: Mutex::default(),
        })
    }
}

impl AgentBudget {
    /// The budget itself, brought up to now, and the moment that is. Held for as long as no other call may come between.
    pub fn lock(&self) -> (MutexGuard<'_, Budget>, Moment) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.note_finished_runs(&mut budget, now);
        (budget, now)
    }

    /// A scope for a run that the agent begins now, in this task or in none; see [`Spec::parent`](super::Spec::parent). It
    /// is for one run: what bounds the next one is to be asked again.
    ///
    /// # Errors
    /// When the scope that the agent runs in is gone.
    pub fn run_scope(&self, task: Option<&str>) -> Result<ScopeHandle, Error> {
        let (mut budget, now) = self.lock();
        let bound = budget.run_bound(task, now);
        drop(budget);
        let mut limits = Limits::new();
        if let Some(end) = bound.end {
            limits = limits.wall(end.since(bound.start));
        }
        let (name, parent) = match bound.layer {
            Layer::Task => (format!("task-{}", task.unwrap_or_default()), Some(self.scope.id())),
            // What is kept for it may lie behind the wall of an agent that asked too late.
            Layer::Turn => ("wrap-up".to_owned(), self.parent),
            _ => ("work".to_owned(), Some(self.scope.id())),
        };
        let opening = Opening {
            parent,
            layer: bound.layer,
            name,
            own: precedence(&[(Source::Call, &limits)]),
            warn: None,
        };
        ScopeHandle::open(&self.inner, opening, Some(CarriedDeadline { start: bound.start, own_end: bound.end }))
    }

    /// Counts a run as one of the agent's: as long as it goes on, the agent is not silent.
    pub fn watch(&self, run: &Run) {
        let watched = WatchedRun { since: monotonic_nanoseconds(), waiting: run.running.waiting.clone() };
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
    }

    /// Takes what became of the agent's runs into account.
    fn note_finished_runs(&self, budget: &mut Budget, now: Moment) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|run| {
            let over = run.waiting.wait_for(Duration::ZERO, true, false);
            let ended = over.then(|| {
                let lasted = Duration::from_millis(run.waiting.wait_outcome(false).usage.wall_ms);
                Moment::from_nanos(run.since).after(lasted).min(now)
            });
            budget.note_run(Moment::from_nanos(run.since), ended, now);
            !over
        });
    }
}
