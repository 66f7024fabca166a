//! One leased job, from its spec to its result.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer::time::Moment;
use sandtimer_agents::resilience::{BreakerSnapshot, Breakers, SharedBreakers};

use super::clock::now;
use super::context::{Admission, WorkerContext};
use super::control::{Halt, JobControl};
use super::directories::ScratchDirectory;
use super::execution::{JobExecution, StopCause};
use super::handlers::Handlers;
use super::level::Level;
use crate::job::{
    BreakerChoice, BreakerScope, Finish, JobAssignment, JobLease, JobResult, JobSpec, JobStatus, JobStore,
    JobWork, SpecError, UnreadableSpec, breaker_key,
};

/// How long a job that a worker returned because it cannot read the spec waits before it may be
/// leased again.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(10);

/// What a worker executes jobs with.
#[derive(Debug)]
pub(super) struct JobContext<'a> {
    /// The name of the worker.
    pub worker: &'a str,
    pub context: &'a WorkerContext,
    /// Where jobs have their directories, or why there is no such place.
    pub scratch: &'a Result<ScratchDirectory, String>,
    /// The functions that jobs may name.
    pub handlers: &'a Handlers,
    /// Decides whether each job is admitted.
    pub admission: Option<&'a dyn Admission>,
}

/// Executes a leased job. Returns what the store records of it.
///
/// It was leased after `asked`.
pub(super) fn execute(
    job_context: &JobContext<'_>,
    leased: &JobAssignment,
    asked: Moment,
    control: &JobControl,
) -> Finish {
    let held = leased.held.clone();
    let refused = |why: String| {
        let result = JobResult::bare(JobStatus::Failed, Some(why));
        Finish { held: held.clone(), result, again: false, pause_ms: 0 }
    };
    let spec = match JobSpec::read_stored(leased.spec.clone()) {
        Ok(spec) => spec,
        // Its submission was accepted by a version that reads it.
        Err(error) if leased.spec.is_object() => return return_unreadable(held, &error, job_context.worker),
        Err(error) => return refused(error.to_string()),
    };
    let within =
        match job_context.admission.map_or(Ok(None), |admission| admission.admit(&leased.owner, &spec)) {
            Ok(within) => within,
            Err(why) => return refused(why),
        };
    let mut execution = JobExecution {
        context: job_context.context,
        scratch: job_context.scratch,
        within,
        handlers: job_context.handlers,
        control,
        held: &leased.held,
        owner: &leased.owner,
        spec: &spec,
        after: &leased.after,
        breakers: Arc::new(Mutex::new(breakers(job_context.context, leased, &spec.breaker))),
        budgets: Arc::default(),
        result: JobResult::bare(JobStatus::Ok, None),
        outcome: None,
        directory: None,
        unlogged: Arc::default(),
    };
    execution.result.spent.earlier_ms = leased.earlier_ms;
    execution.result.spent.queued_ms = leased.queued_ms;
    let ended = execution.work(leased, asked);
    let again = execution.settle(ended);
    execution.collect();
    execution.result.log_bytes_dropped = execution.end_log();
    Finish { held, result: execution.result, again, pause_ms: 0 }
}

/// Leaves a job to workers of other versions. The delivery does not count.
fn return_unreadable(held: JobLease, error: &SpecError, worker: &str) -> Finish {
    let version = env!("CARGO_PKG_VERSION");
    let reason = format!(
        "a worker of version {version} cannot read the spec and returned the job: {error}; start a worker of the version that \
         submitted it"
    );
    let unreadable = UnreadableSpec {
        worker: worker.to_owned(),
        version: version.to_owned(),
        field: error.path.clone(),
        problem: error.problem.clone(),
    };
    let result =
        JobResult { unreadable: Some(unreadable), ..JobResult::bare(JobStatus::Drained, Some(reason)) };
    let pause_ms = UNREADABLE_PAUSE.as_millis() as u64;
    Finish { held, result, again: true, pause_ms }
}

impl JobExecution<'_> {
    fn work(&mut self, leased: &JobAssignment, asked: Moment) -> Result<(), StopCause> {
        // A store's clock may have stopped, while this program's copy of it continues; no more time
        // can have passed than since the request.
        let most = u64::try_from(now().since(asked).as_millis()).unwrap_or(u64::MAX);
        let store_now = self.context.store.now_ms().min(leased.leased_ms.saturating_add(most));
        let age = Duration::from_millis(store_now.saturating_sub(leased.submitted_ms));
        let left =
            leased.deadline_ms.map(|deadline| Duration::from_millis(deadline.saturating_sub(store_now)));
        let observer = self.context.observer.clone();
        let job = Level::job(&self.context.engine, self.within, observer, &leased.held.id, age, left)?;
        self.work_in(&job).inspect_err(|_| job.fails())
    }

    fn work_in(&mut self, job: &Level) -> Result<(), StopCause> {
        self.prepare()?;
        match &self.spec.work {
            JobWork::Action(action) => {
                let called = self.call(job, &self.spec.name, None, action, &[])?;
                self.take(called)
            }
            JobWork::Steps(steps) if self.spec.parallel > 1 => self.parallel_steps(job, steps),
            JobWork::Steps(steps) => self.steps(job, steps),
            JobWork::Loop(spec) => self.turns(job, spec),
        }
    }

    /// Writes down how it ended. Whether it may be handed out again.
    fn settle(&mut self, ended: Result<(), StopCause>) -> bool {
        let breakers = self.breakers().snapshot(now());
        let result = &mut self.result;
        result.breakers = breakers;
        result.outcome = self.outcome.as_deref().cloned();
        let mut again = false;
        (result.status, result.error) = match ended {
            Ok(()) => (JobStatus::Ok, None),
            Err(StopCause::Limit(mut verdict)) => {
                verdict.sentence.push_str(&result.spent.sentence());
                let status = if verdict.limit_ms.is_some() { JobStatus::Timeout } else { JobStatus::Budget };
                let sentence = verdict.sentence.clone();
                result.verdict = Some(*verdict);
                (status, Some(sentence))
            }
            Err(StopCause::Halted(Halt::Cancel(reason))) => {
                (JobStatus::Cancelled, Some(format!("Cancelled: {reason}.")))
            }
            Err(StopCause::Halted(Halt::Lost)) => {
                // A worker that has leased the job by now keeps it; if none has, the job is queued
                // again.
                again = true;
                (JobStatus::Lost, Some("its worker lost the lease".to_owned()))
            }
            Err(StopCause::Halted(Halt::GiveBack)) => {
                again = true;
                (JobStatus::Drained, Some("its worker was asked to end, and gave it back".to_owned()))
            }
            Err(StopCause::Infrastructure(problem)) => {
                again = true;
                (JobStatus::InfraError, Some(problem))
            }
            Err(StopCause::Failed { message, mut verdict }) => {
                if let Some(verdict) = &mut verdict {
                    verdict.sentence.push_str(&result.spent.sentence());
                }
                let is_of_time = verdict.as_ref().is_some_and(|verdict| verdict.limit_ms.is_some());
                result.verdict = verdict;
                (if is_of_time { JobStatus::Timeout } else { JobStatus::Failed }, Some(message))
            }
        };
        result.ok = result.status == JobStatus::Ok;
        again
    }
}

/// The breakers that all jobs of one owner share.
#[derive(Debug)]
struct OwnersBreakers {
    store: Arc<dyn JobStore>,
    owner: String,
}

impl SharedBreakers for OwnersBreakers {
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)> {
        let (version, kept) = self.store.load_breaker(&breaker_key(&self.owner, key)).ok()?;
        Some((version, kept.map(|kept| BreakerSnapshot { key: key.to_owned(), ..kept })))
    }

    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool> {
        let key = breaker_key(&self.owner, &snapshot.key);
        self.store.swap_breaker(version, &BreakerSnapshot { key, ..snapshot.clone() }).ok()
    }
}

/// A job's own breakers, or those of its owner.
fn breakers(context: &WorkerContext, leased: &JobAssignment, choice: &BreakerChoice) -> Breakers {
    let breakers = Breakers::new(choice.settings.clone(), now().as_nanos());
    match choice.scope {
        BreakerScope::Job => breakers,
        BreakerScope::Store => {
            let (store, owner) = (Arc::clone(&context.store), leased.owner.clone());
            breakers.shared(Arc::new(OwnersBreakers { store, owner }), &leased.held.id)
        }
    }
}
