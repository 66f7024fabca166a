//! The steps of a job, one after another or in parallel.
//!
//! In parallel, each step whose needs have succeeded is executed on a thread of its own, at most a
//! given number at a time. After a failure no further step begins, and those that are executed run
//! to completion.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::calls::JobCallCompletion;
use super::execution::{JobExecution, StopCause};
use super::level::Level;
use crate::job::{JobResult, JobStatus, StepRecord, StepSpec};

/// What a step's thread hands back.
struct EndedStep<'a> {
    index: usize,
    branch: JobExecution<'a>,
    called: Result<JobCallCompletion, StopCause>,
}

impl<'a> JobExecution<'a> {
    /// Executes the steps of a job in their order.
    pub(super) fn steps(&mut self, job: &Level, steps: &[StepSpec]) -> Result<(), StopCause> {
        self.list_steps(steps);
        for (index, step) in steps.iter().enumerate() {
            let called = self.call(job, &step.name, None, &step.action, &[])?;
            let record = &mut self.result.steps[index];
            (record.ok, record.degraded) = (Some(called.record.ok), called.record.degraded);
            self.take(called)?;
        }
        Ok(())
    }

    /// Executes the steps of a job, at most `parallel` at a time.
    pub(super) fn parallel_steps(&mut self, job: &Level, steps: &[StepSpec]) -> Result<(), StopCause> {
        self.list_steps(steps);
        let mut waiting: Vec<usize> = (0..steps.len()).collect();
        let mut running = 0;
        let mut stopped = None;
        let (sender, ended) = channel();
        thread::scope(|scope| {
            loop {
                while stopped.is_none() && running < self.spec.parallel as usize {
                    let Some(next) = waiting.iter().position(|index| self.has_needs(&steps[*index])) else {
                        break;
                    };
                    let index = waiting.remove(next);
                    let (branch, sender, step) = (self.branch(), sender.clone(), &steps[index]);
                    let begun = thread::Builder::new()
                        .spawn_scoped(scope, move || branch.execute_step(job, index, step, &sender));
                    match begun {
                        Ok(_) => running += 1,
                        Err(error) => {
                            let problem =
                                format!("no thread can be started for the step `{}`: {error}", step.name);
                            stopped = Some(StopCause::Infrastructure(problem));
                        }
                    }
                }
                if running == 0 {
                    return;
                }
                // Each thread sends once, after a panic as well.
                let Ok(EndedStep { index, branch, called }) = ended.recv() else { return };
                running -= 1;
                if let Err(problem) = self.join(index, branch, called, stopped.is_none()) {
                    stopped.get_or_insert(problem);
                }
            }
        });
        stopped.map_or(Ok(()), Err)
    }

    fn list_steps(&mut self, steps: &[StepSpec]) {
        let unbegun = |step: &StepSpec| StepRecord { name: step.name.clone(), ok: None, degraded: false };
        self.result.steps = steps.iter().map(unbegun).collect();
    }

    fn has_needs(&self, step: &StepSpec) -> bool {
        let has_succeeded = |need: &String| {
            self.result.steps.iter().any(|record| record.name == *need && record.ok == Some(true))
        };
        step.needs.iter().all(has_succeeded)
    }

    /// The same job for one of its steps, with a result of its own.
    fn branch(&self) -> JobExecution<'a> {
        JobExecution {
            context: self.context,
            scratch: self.scratch,
            within: self.within,
            handlers: self.handlers,
            control: self.control,
            held: self.held,
            owner: self.owner,
            spec: self.spec,
            after: self.after,
            breakers: Arc::clone(&self.breakers),
            budgets: Arc::clone(&self.budgets),
            result: JobResult::bare(JobStatus::Ok, None),
            outcome: None,
            directory: self.directory.clone(),
            unlogged: Arc::clone(&self.unlogged),
        }
    }

    fn execute_step(mut self, job: &Level, index: usize, step: &StepSpec, ended: &Sender<EndedStep<'a>>) {
        let call = || self.call(job, &step.name, None, &step.action, &[]);
        let called = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            let problem = "the worker failed while it executed a step (its stderr has the reason)";
            Err(StopCause::Infrastructure(problem.to_owned()))
        });
        // The receiver waits for every step.
        let _ = ended.send(EndedStep { index, branch: self, called });
    }

    /// Merges a step's result into the job's.
    fn join(
        &mut self,
        index: usize,
        branch: JobExecution<'a>,
        called: Result<JobCallCompletion, StopCause>,
        is_good_so_far: bool,
    ) -> Result<(), StopCause> {
        let JobResult { spent, calls, calls_dropped, degraded, .. } = branch.result;
        self.result.spent.add(spent);
        self.result.calls_dropped += calls_dropped;
        self.result.degraded |= degraded;
        calls.into_iter().for_each(|call| self.note(call));
        // The result shows the run that failed first, or else the last one.
        if is_good_so_far && branch.outcome.is_some() {
            self.outcome = branch.outcome;
        }
        let called = called?;
        let record = &mut self.result.steps[index];
        (record.ok, record.degraded) = (Some(called.record.ok), called.record.degraded);
        self.take(called)
    }
}
