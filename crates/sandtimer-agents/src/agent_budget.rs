//! An agent's run under a budget: a scope for the loop, and scopes inside it in which its runs
//! begin.
//!
//! The budget decides and reports; runs begun in its scopes are ended by the engine at its limits,
//! also while the agent waits for one of them and cannot ask. The hard fact: a run that is active
//! is under the budget's stall limit itself, and the engine sees more of it than an agent does. So
//! as long as one continues, the agent is not silent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use sandtimer::engine::{Engine, Error, OutcomeFuture, Run, ScopeHandle};
use sandtimer::limits::{Limits, precedence};
use sandtimer::model::{Layer, Source};
use sandtimer::scope::{CarriedDeadline, Opening, ScopeId};
use sandtimer::time::Moment;

use crate::budget::{Budget, BudgetOptions, OptionsError};

/// Describes a budget to be opened with [`AgentBudget::open`].
#[derive(Debug, Clone, Default)]
pub struct BudgetSpec {
    /// Its part of the path of scopes, such as `connection-7`.
    pub name: String,
    /// The scope that the agent itself runs in.
    pub parent: Option<ScopeId>,
    /// The limits that were requested: wall-clock, turns, stall, failures.
    pub limits: Limits,
    /// Limits from further out, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// How the wrap-up turn, overdue tasks and idle time are handled.
    pub options: BudgetOptions,
}

/// The reason why a budget could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The options contradict the limits.
    #[error(transparent)]
    BudgetOptions(#[from] OptionsError),
    /// The outer scope has ended or has no time left.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// The budget of one agent's run, with its scopes.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::{Engine, Limits, Spec};
/// use sandtimer_agents::budget::{BudgetState, TurnKind};
/// use sandtimer_agents::{AgentBudget, BudgetSpec};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new()?;
/// let limits = Limits::new().wall(Duration::from_secs(600)).turns(20);
/// let spec = BudgetSpec { name: "agent-1".to_owned(), limits, ..BudgetSpec::default() };
/// let budget = AgentBudget::open(&engine, spec)?;
///
/// let (mut locked, now) = budget.lock();
/// assert_eq!(locked.start_turn(now), TurnKind::Work);
/// drop(locked);
///
/// let scope = budget.run_scope(None)?;
/// let mut command = Spec::command(["echo", "done"]);
/// command.parent = Some(scope.id());
/// let run = engine.start(command)?;
/// budget.watch(&run);
/// assert_eq!(run.wait_blocking().stdout, "done\n");
///
/// let (mut locked, now) = budget.lock();
/// assert_eq!(locked.check(now).state, BudgetState::Going);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AgentBudget {
    engine: Engine,
    parent: Option<ScopeId>,
    scope: ScopeHandle,
    budget: Mutex<Budget>,
    runs: Mutex<Vec<WatchedRun>>,
}

/// A run of the agent that has not ended yet.
#[derive(Debug)]
struct WatchedRun {
    since: u64,
    wait: OutcomeFuture,
}

impl AgentBudget {
    /// Opens a budget, whose clock begins now.
    ///
    /// # Errors
    /// If the outer scope has ended or its time has passed, or the options contradict the limits.
    pub fn open(engine: &Engine, spec: BudgetSpec) -> Result<AgentBudget, BudgetError> {
        let mut layers: Vec<(Source, &Limits)> = vec![(Source::Call, &spec.limits)];
        layers.extend(spec.defaults.iter().map(|(source, limits)| (*source, limits)));
        let own = precedence(&layers);
        let opening = Opening { parent: spec.parent, layer: Layer::Loop, name: spec.name, own, warn: None };
        let scope = ScopeHandle::open(engine, opening, None)?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let budget = Mutex::new(Budget::new(scope.effective()?, spec.options, now)?);
        Ok(AgentBudget { engine: engine.clone(), parent: spec.parent, scope, budget, runs: Mutex::default() })
    }

    /// Locks the budget, brings it up to date, and returns it with the present moment. Other calls
    /// wait until the guard is dropped.
    pub fn lock(&self) -> (MutexGuard<'_, Budget>, Moment) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.note_finished_runs(&mut budget, now);
        (budget, now)
    }

    /// Opens a scope for a run that the agent begins now, in this task or in none; see
    /// [`Spec::parent`](sandtimer::Spec::parent). It is for one run: the next one has other bounds.
    ///
    /// # Errors
    /// If the scope that the agent runs in has ended.
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
            // The time kept for it may end after the wall of an agent that asked too late.
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
        ScopeHandle::open(
            &self.engine,
            opening,
            Some(CarriedDeadline { start: bound.start, own_end: bound.end }),
        )
    }

    /// Counts a run as one of the agent's: as long as it is active, the agent is not silent.
    pub fn watch(&self, run: &Run) {
        let watched = WatchedRun { since: monotonic_nanoseconds(), wait: run.wait() };
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
    }

    /// Notes the ends of the agent's runs.
    fn note_finished_runs(&self, budget: &mut Budget, now: Moment) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|run| {
            let ended = run.wait.outcome().map(|outcome| {
                let lasted = Duration::from_millis(outcome.usage.wall_ms);
                Moment::from_nanos(run.since).after(lasted).min(now)
            });
            budget.note_run(Moment::from_nanos(run.since), ended, now);
            ended.is_none()
        });
    }
}
