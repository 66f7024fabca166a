//! Budgets of agents' runs, through the engine's public API, with real processes.
#![allow(clippy::disallowed_methods)] // tests look at the clock to bound what they wait for

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::{Engine, Spec};
use sandtimer::model::{Ending, Layer, LimitKind, Outcome, Source};
use sandtimer_agents::budget::{BudgetOptions, BudgetState, OnTaskTimeout, TaskOf, TurnKind};
use sandtimer_agents::{AgentBudget, BudgetError, BudgetSpec};

/// Fails a test that hangs, with a message instead of the runner's timeout.
fn bounded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(value) => value,
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(worker.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
    }
}

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

fn open(engine: &Engine, limits: Limits, options: BudgetOptions) -> AgentBudget {
    let spec = BudgetSpec { name: "agent".to_owned(), limits, options, ..BudgetSpec::default() };
    AgentBudget::open(engine, spec).unwrap()
}

/// Runs a command in the foreground: the agent does not check the budget until it ends.
fn foreground(engine: &Engine, budget: &AgentBudget, task: Option<&str>, script: &str) -> Arc<Outcome> {
    let scope = budget.run_scope(task).unwrap();
    let mut spec = Spec::command(["/bin/sh", "-c", script]);
    spec.parent = Some(scope.id());
    let run = engine.start(spec).unwrap();
    budget.watch(&run);
    run.settled_blocking()
}

fn state(budget: &AgentBudget) -> BudgetState {
    let (mut budget, now) = budget.lock();
    budget.check(now).state
}

#[test]
fn a_command_that_blocks_is_ended_in_time_for_the_wrap_up_turn() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let options = BudgetOptions { wrap_up: Some(seconds(20.0)), ..BudgetOptions::default() };
        let budget = open(&engine, Limits::new().wall(seconds(21.0)), options);
        let outcome = foreground(&engine, &budget, None, "sleep 1000");
        assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
        assert_eq!(outcome.tree.survivors, Some(0));
        let verdict = outcome.verdict.clone().unwrap();
        assert_eq!((verdict.kind, verdict.layer), (Some(LimitKind::Wall), Layer::Loop), "{verdict:?}");
        assert_eq!(verdict.source, Source::Ancestor);
        assert!(verdict.scope.starts_with("agent/"), "{verdict:?}");
        assert!(verdict.elapsed_ms < 15_000, "{verdict:?}");

        assert_eq!(state(&budget), BudgetState::WrapUp);
        let (mut locked, now) = budget.lock();
        assert_eq!(locked.start_turn(now), TurnKind::WrapUp);
        drop(locked);
        let outcome = foreground(&engine, &budget, None, "echo submitted");
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "submitted\n"), "{outcome:?}");
        let (mut locked, now) = budget.lock();
        assert_eq!(locked.start_turn(now), TurnKind::Refused);
        drop(locked);
        assert_eq!(state(&budget), BudgetState::Over);
        let outcome = foreground(&engine, &budget, None, "sleep 1000");
        assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    });
}

#[test]
fn a_wrap_up_command_is_ended_when_its_time_is_over() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let options = BudgetOptions { wrap_up: Some(seconds(0.5)), ..BudgetOptions::default() };
        let budget = open(&engine, Limits::new().turns(1), options);
        let (mut locked, now) = budget.lock();
        locked.start_turn(now);
        assert_eq!(locked.check(now).state, BudgetState::WrapUp);
        assert_eq!(locked.start_turn(now), TurnKind::WrapUp);
        drop(locked);
        let outcome = foreground(&engine, &budget, None, "sleep 1000");
        let verdict = outcome.verdict.clone().unwrap();
        assert_eq!((outcome.ending, verdict.layer), (Ending::Timeout, Layer::Turn), "{verdict:?}");
    });
}

#[test]
fn overdue_task_is_reported_or_ended_as_chosen() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        for (on_task_timeout, script) in
            [(OnTaskTimeout::Notify, "sleep 1; echo done"), (OnTaskTimeout::End, "sleep 1000")]
        {
            let options = BudgetOptions { on_task_timeout, ..BudgetOptions::default() };
            let budget = open(&engine, Limits::new(), options);
            let (mut locked, now) = budget.lock();
            let (estimated, max) = (Some(seconds(0.1)), Some(seconds(0.5)));
            let task = TaskOf { name: "train", estimated, max, ends_after: None };
            locked.start_task(task, false, now).unwrap();
            drop(locked);
            let outcome = foreground(&engine, &budget, Some("train"), script);
            if on_task_timeout == OnTaskTimeout::Notify {
                assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "done\n"));
            } else {
                let verdict = outcome.verdict.clone().unwrap();
                assert_eq!((outcome.ending, verdict.layer), (Ending::Timeout, Layer::Task), "{verdict:?}");
                assert!(verdict.scope.ends_with("task-train"), "{verdict:?}");
                let limit = verdict.limit_ms.unwrap_or_default();
                assert!(
                    (1990..=2000).contains(&limit),
                    "the suggested limit, not the longest duration: {limit}"
                );
            }
            let (mut locked, now) = budget.lock();
            let check = locked.check(now);
            assert_eq!(check.state, BudgetState::WrapUp);
            assert!(check.reason.unwrap().contains("Task timeout: 'train'"));
        }
    });
}

#[test]
fn stall_follows_the_run_while_one_is_running() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let budget = open(&engine, Limits::new().stall(seconds(1.0)), BudgetOptions::default());
        // Quiet, but busy for longer than the limit.
        let busy = "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done";
        let outcome = foreground(&engine, &budget, None, busy);
        assert_eq!(outcome.ending, Ending::Exited, "{outcome:?}");
        assert_eq!(state(&budget), BudgetState::Going);
        let outcome = foreground(&engine, &budget, None, "sleep 1000");
        assert_eq!(outcome.ending, Ending::Stalled, "{outcome:?}");
        assert_eq!(outcome.verdict.clone().unwrap().layer, Layer::Loop);
    });
}

#[test]
fn what_an_agent_runs_in_bounds_its_budget() {
    bounded(|| {
        let engine = Engine::new().unwrap();
        let outer = engine.open_scope(None, Layer::Job, "job", &Limits::new().wall(seconds(100.0))).unwrap();
        let spec = BudgetSpec {
            name: "agent".to_owned(),
            parent: Some(outer.id()),
            defaults: vec![(Source::Builtin, Limits::new().wall(seconds(7200.0)).turns(100))],
            ..BudgetSpec::default()
        };
        let budget = AgentBudget::open(&engine, spec).unwrap();
        let (mut budget, now) = budget.lock();
        let check = budget.check(now);
        let reported: Vec<_> = check.limits.iter().map(|limit| (limit.kind, limit.source)).collect();
        assert_eq!(reported[0], (LimitKind::Wall, Some(Source::Ancestor)));
        assert_eq!(reported[1], (LimitKind::Turns, Some(Source::Builtin)));
        assert_eq!(check.limits[0].scope.as_deref(), Some("job"));
        assert!(check.limits[0].binding);
        assert!(check.remaining_ms.unwrap() <= 100_000, "{check:?}");
    });
}

#[test]
fn options_that_contradict_the_limits_are_refused() {
    let engine = Engine::new().unwrap();
    let options = BudgetOptions { wrap_up: Some(seconds(2.0)), ..BudgetOptions::default() };
    let spec = BudgetSpec { limits: Limits::new().wall(seconds(1.0)), options, ..BudgetSpec::default() };
    let refused = AgentBudget::open(&engine, spec).unwrap_err();
    assert!(matches!(refused, BudgetError::BudgetOptions(_)), "{refused}");
}
