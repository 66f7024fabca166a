//! One call: asks [`GuardedCall`] what is next, and does it.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::engine::{Run, ScopeHandle, Spec};
use sandtimer::limits::{Key, Setting};
use sandtimer::model::{Ending, InterpretedCommand, Layer, LimitKind, Outcome, Source};
use sandtimer_agents::resilience::{
    AttemptFailure, AttemptResult, CallEnd, CallStep, GuardedCall, SpentOn, Way, Why, judge,
};
use serde_json::Value;

use super::clock::now;
use super::execution::{JobCall, JobExecution, StopCause};
use super::following::LoggedStreams;
use super::level::Level;
use crate::job::sentences::JobActivity;
use crate::job::{Action, CallRecord, JobLanguage, JobPhase, JobProgram, JobVerdict, JobWork, WaySpec};

/// The name of the driver's calls.
pub(super) const DRIVER: &str = "driver";
/// How long the start of a sandbox and the proof that all of it is dead may take, in a breaker's
/// eyes.
const JAIL_OVERHEAD: Duration = Duration::from_secs(5);

/// What a call came to.
pub(super) struct JobCallCompletion {
    pub record: CallRecord,
    /// Of its last attempt.
    pub outcome: Option<Arc<Outcome>>,
    /// The line for a model, where breakers refused.
    pub feedback: Option<String>,
    /// The limit that ended it, where one did.
    pub verdict: Option<JobVerdict>,
}

impl JobCallCompletion {
    /// What a handler returned.
    pub fn value(&self) -> Option<&Value> {
        self.outcome.as_ref().filter(|_| self.record.ok)?.value.as_ref()
    }
}

impl JobExecution<'_> {
    /// Executes one call from its first attempt to its end; `turn` is the turn that it is made in.
    pub(super) fn call(
        &mut self,
        around: &Level,
        name: &str,
        turn: Option<u32>,
        action: &Action,
        stdin: &[u8],
    ) -> Result<JobCallCompletion, StopCause> {
        self.check(around, JobPhase::Running, JobActivity::BeforeCall(name))?;
        let level = around.open(&self.context.engine, Layer::Call, name, action.wall)?;
        let ways = action.ways.iter().map(|way| self.way(way)).collect();
        let call = JobCall { name, level: &level };
        let mut guarded = GuardedCall::new(ways, level.end()).seed(now().as_nanos());
        let mut last = None;
        let ended = self.attempts(call, action, stdin, &mut guarded, &mut last);
        if ended.is_err() {
            level.fails();
            guarded.abandon(&mut self.breakers(), now());
        }
        self.count(guarded.spent(), turn.is_some() && name == DRIVER);
        let end = match ended {
            Ok(end) => end,
            Err(stopped) => {
                // What was tried before it was stopped is a part of where the time went.
                let message = Some("it was stopped".to_owned());
                let spent = guarded.spent().to_vec();
                self.note(CallRecord {
                    name: name.to_owned(),
                    turn,
                    ok: false,
                    degraded: false,
                    said: message,
                    spent,
                });
                return Err(stopped);
            }
        };
        let (ok, degraded, message) = match &end {
            CallEnd::Succeeded { way } => (true, *way > 0, None),
            CallEnd::Ignored => (false, false, last.as_deref().map(limit_message)),
            CallEnd::Failed(why @ Why::WouldExceedDeadline { .. }) => {
                let limit_note = level.first().map_or_else(String::new, |bound| format!(" ({bound})"));
                (false, false, Some(format!("{why}{limit_note}")))
            }
            CallEnd::Failed(why) => (false, false, Some(why.to_string())),
        };
        if !ok {
            level.fails();
        }
        let feedback = guarded.feedback();
        let spent = guarded.spent().to_vec();
        let record = CallRecord { name: name.to_owned(), turn, ok, degraded, said: message, spent };
        // A fallback that did it does not hide that what was wanted is not tried any more.
        if let Some(message) = record.said.as_ref().or(feedback.as_ref()) {
            let turn = turn.map_or_else(String::new, |turn| format!("turn {turn}: "));
            self.remark(&format!("{turn}{name}: {message}"));
        }
        let verdict = last.as_deref().filter(|_| !record.ok).and_then(|last| verdict(call, last));
        Ok(JobCallCompletion { record, outcome: last, feedback, verdict })
    }

    fn attempts(
        &mut self,
        call: JobCall<'_>,
        action: &Action,
        stdin: &[u8],
        guarded: &mut GuardedCall,
        last: &mut Option<Arc<Outcome>>,
    ) -> Result<CallEnd, StopCause> {
        let JobCall { name, level } = call;
        loop {
            let next = guarded.next(&mut self.breakers(), now());
            match next {
                CallStep::Over(end) => return Ok(end),
                CallStep::Wait { until } => {
                    let until = level.end().map_or(until, |end| end.min(until));
                    self.control.wait(until);
                    self.check(level, JobPhase::Backoff, JobActivity::BetweenAttempts(name))?;
                }
                CallStep::Attempt { way, number } => {
                    let way = &action.ways[way];
                    let attempted = self.attempt(call, way, number, stdin);
                    let judged = match &attempted {
                        Ok(outcome) => judged(outcome, way),
                        Err(_) => AttemptResult::Ignored,
                    };
                    guarded.ended(judged, &mut self.breakers(), &mut self.budgets(), now());
                    let outcome = attempted?;
                    *last = Some(Arc::clone(&outcome));
                    self.check_outcome(level, &outcome, name)?;
                }
            }
        }
    }

    /// A way, with the longest that it may take where its runs have a wall.
    fn way(&self, spec: &WaySpec) -> Way {
        let limits = spec.limits.over(&self.spec.limits);
        let grace = match limits.get(Key::Grace) {
            Setting::At(grace) => Duration::from_nanos(grace),
            Setting::Unlimited | Setting::Inherit => Duration::ZERO,
        };
        let limit = match limits.get(LimitKind::Wall) {
            Setting::At(wall) => {
                let attempt = Duration::from_nanos(wall).saturating_add(grace).saturating_add(JAIL_OVERHEAD);
                Some(spec.retry.longest(attempt))
            }
            Setting::Unlimited | Setting::Inherit => None,
        };
        Way { key: spec.key.clone(), retry: spec.retry.clone(), limit }
    }

    /// One attempt: a run.
    fn attempt(
        &mut self,
        call: JobCall<'_>,
        way: &WaySpec,
        number: u32,
        stdin: &[u8],
    ) -> Result<Arc<Outcome>, StopCause> {
        let JobCall { name, level } = call;
        self.check(level, JobPhase::Running, JobActivity::BeforeAttempt(name))?;
        let attempt = level.open(&self.context.engine, Layer::Attempt, &format!("attempt-{number}"), None)?;
        let (scope, notifier) = attempt.into_parts();
        let attempted = self.attempt_in(call, scope, way, stdin);
        if !attempted.as_ref().is_ok_and(|outcome| outcome.ok) {
            notifier.fails();
        }
        if let Ok(outcome) = &attempted {
            self.outcome = Some(Arc::clone(outcome));
        }
        attempted
    }

    fn attempt_in(
        &self,
        call: JobCall<'_>,
        scope: ScopeHandle,
        way: &WaySpec,
        stdin: &[u8],
    ) -> Result<Arc<Outcome>, StopCause> {
        // The stdout of a loop's driver is for the loop.
        let is_driver = call.name == DRIVER && matches!(self.spec.work, JobWork::Loop(_));
        let logged = if is_driver { LoggedStreams::Stderr } else { LoggedStreams::Both };
        let limits = way.limits.over(&self.spec.limits).with_origin("the job's spec");
        if let JobProgram::Handler { name, input } = &way.program {
            // The driver's input takes precedence over the spec's.
            let parsed = serde_json::from_slice(stdin).ok().filter(|parsed: &Value| !parsed.is_null());
            let input = parsed.unwrap_or_else(|| input.clone());
            return self.handle(JobCall { name, ..call }, scope, input, limits, logged);
        }
        let InterpretedCommand { command, program } = self.command(call.level, &way.program)?;
        let mut spec = Spec { program, ..Spec::command(command).limits(limits).stdin_bytes(stdin) };
        spec.defaults.clone_from(&self.context.defaults);
        spec.parent = Some(scope.id());
        spec.environment =
            self.spec.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        spec.environment.push(("SANDTIMER_TIME_SCALE".into(), self.spec.time_scale.to_string().into()));
        spec.environment.push(("SANDTIMER_JOB".into(), self.held.id.as_str().into()));
        if let Some(scheduled) = &self.spec.scheduled {
            let moment = scheduled.moment_ms.to_string();
            spec.environment.push(("SANDTIMER_SCHEDULED_MS".into(), moment.into()));
        }
        spec.working_directory.clone_from(&self.spec.working_directory);
        spec.read_only.extend(self.spec.working_directory.clone());
        // The job must not see the worker's own directory.
        spec.private_workspace = true;
        spec.workspaces.clone_from(&self.spec.workspaces);
        spec.workspace = self.directory.as_ref().map(|directory| directory.path().to_owned());
        spec.network = self.spec.network;
        let run = Arc::new(self.start(spec, &way.program)?);
        self.control.began(&run);
        let outcome = self.follow(&run, logged);
        self.control.ended(&run);
        Ok(outcome)
    }

    /// Starts a run; a Python program in a warm interpreter, if there is one.
    fn start(&self, mut spec: Spec, program: &JobProgram) -> Result<Run, StopCause> {
        if let JobProgram::Code { language: JobLanguage::Python, code } = program
            && let Some(run) = self.context.interpreters.start(self.owner, &mut spec, code)?
        {
            return Ok(run);
        }
        Ok(self.context.engine.start(spec)?)
    }

    /// What is executed, TypeScript read before the level's end.
    #[cfg_attr(not(feature = "javascript"), expect(unused_variables, reason = "nothing is read"))]
    fn command(&self, level: &Level, program: &JobProgram) -> Result<InterpretedCommand, StopCause> {
        match (program.command().map_err(StopCause::failed)?, program) {
            (Some(command), _) => Ok(command),
            #[cfg(feature = "javascript")]
            (None, JobProgram::Code { code, .. }) => {
                let within = level.end().map(|end| end.since(now()));
                Ok(self.context.engine.typescript(code, within, Some(level.id()))?.interpreted())
            }
            (None, _) => Err(StopCause::failed("there is nothing to execute".to_owned())),
        }
    }

    /// Stops where a run's Outcome is the end of more than its attempt.
    fn check_outcome(&self, level: &Level, outcome: &Outcome, name: &str) -> Result<(), StopCause> {
        if let Some(halt) = self.control.halted() {
            return Err(StopCause::Halted(halt));
        }
        if outcome.ending == Ending::InfraError {
            return Err(StopCause::Infrastructure(limit_message(outcome)));
        }
        let verdict = outcome.verdict.as_ref().filter(|verdict| verdict.source == Source::Ancestor);
        let bound = verdict.and_then(|verdict| level.bound(verdict.layer));
        match bound.filter(|bound| bound.layer <= Layer::Loop) {
            Some(bound) => {
                let verdict = bound.verdict(JobPhase::Running, JobActivity::InAttempt(name));
                Err(StopCause::Limit(Box::new(verdict)))
            }
            None => Ok(()),
        }
    }

    /// Handles the result of a call on which the job depends.
    pub(super) fn take(&mut self, called: JobCallCompletion) -> Result<(), StopCause> {
        let failed = (!called.record.ok).then(|| {
            let message = called.record.said.clone().unwrap_or_default();
            StopCause::Failed {
                message: format!("{}: {message}", called.record.name),
                verdict: called.verdict.clone(),
            }
        });
        if let Some(value) = called.value() {
            self.result.value = Some(value.clone());
        }
        self.note(called.record);
        failed.map_or(Ok(()), Err)
    }

    /// Adds to where the time went.
    fn count(&mut self, spent: &[SpentOn], is_driver: bool) {
        let total = &mut self.result.spent;
        for piece in spent {
            match piece {
                SpentOn::Attempt { ms, .. } if is_driver => total.driver_ms += ms,
                SpentOn::Attempt { ms, .. } => {
                    (total.attempts_ms, total.attempts) = (total.attempts_ms + ms, total.attempts + 1)
                }
                SpentOn::Backoff { ms } => total.backoff_ms += ms,
                SpentOn::BreakerOpen { .. } => total.refused += 1,
            }
        }
    }
}

/// The limit that ended the last run of a call: a limit of the job itself is named as such.
fn verdict(call: JobCall<'_>, outcome: &Outcome) -> Option<JobVerdict> {
    let JobCall { name, level } = call;
    let verdict = outcome.verdict.as_ref()?;
    let bound = level.bound(verdict.layer).filter(|_| verdict.source == Source::Ancestor);
    let activity = JobActivity::InAttempt(name);
    bound
        .map_or_else(|| JobVerdict::of_run(outcome), |bound| Some(bound.verdict(JobPhase::Running, activity)))
}

/// As [`judge`], of an attempt in a call: the call's own limit is one of what is tried in it, and
/// no attempt mends it.
fn judged(outcome: &Outcome, way: &WaySpec) -> AttemptResult {
    match &outcome.verdict {
        Some(verdict) if verdict.source == Source::Ancestor && verdict.layer == Layer::Call => {
            let said = verdict.sentence.clone();
            AttemptResult::Failure(AttemptFailure {
                retryable: false,
                is_timeout: true,
                ..AttemptFailure::new(said)
            })
        }
        _ => match judge(outcome, &way.expected) {
            AttemptResult::Failure(failure) if way.not_retried.names(outcome) => {
                AttemptResult::Failure(AttemptFailure { retryable: false, ..failure })
            }
            judged => judged,
        },
    }
}

/// One line on why an Outcome is no success.
fn limit_message(outcome: &Outcome) -> String {
    let sentence = outcome.verdict.as_ref().map(|verdict| verdict.sentence.clone());
    let message = || outcome.error.as_ref().and_then(|error| error["message"].as_str()).map(str::to_owned);
    sentence.or_else(message).unwrap_or_else(|| "it could not continue".to_owned())
}
