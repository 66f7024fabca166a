//! Retries and breakers of `sandtimer_agents::resilience` and the guard of loops, for Python, which
//! passes the time.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sandtimer::time::Moment;
use sandtimer_agents::loop_guard::TurnGuard;
use sandtimer_agents::resilience::{
    self, AttemptFailure, AttemptResult, Backoff, BreakerSettings, Budgets, CallEnd, CallStep, Hold,
    OpenBreaker, Rate, Retry, Ticket, Way, Why,
};

/// Breakers by key, and what retries of these keys may cost.
#[pyclass]
pub(crate) struct Breakers {
    breakers: resilience::Breakers,
    budgets: Budgets,
    /// By the number that Python has of it.
    tickets: HashMap<u64, Ticket>,
    issued: u64,
}

/// Seconds until a probe is admitted, failures in a row, and the line for a model.
type RejectedAttempt = (Option<f64>, u32, String);

fn refused(key: &str, open: &OpenBreaker) -> RejectedAttempt {
    (open.retry_after.map(|time| time.as_secs_f64()), open.consecutive_failures, open.feedback(key))
}

fn judged(
    kind: &str,
    said: &str,
    retryable: bool,
    is_timeout: bool,
    retry_after: Option<f64>,
) -> PyResult<AttemptResult> {
    Ok(match kind {
        "success" => AttemptResult::Success,
        "ignored" => AttemptResult::Ignored,
        "failure" => AttemptResult::Failure(AttemptFailure {
            message: said.to_owned(),
            retryable,
            is_timeout,
            retry_after: retry_after.map(seconds).transpose()?,
        }),
        _ => return Err(PyValueError::new_err(format!("{kind:?} is not an ending"))),
    })
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|error| PyValueError::new_err(format!("{value} s: {error}")))
}

#[pymethods]
impl Breakers {
    /// `consecutive`: failures in a row; `rate`: share, window, least; times in seconds.
    #[new]
    fn new(
        consecutive: Option<u32>,
        rate: Option<(f64, usize, usize)>,
        open: (f64, f64),
        successes: u32,
        probe: f64,
        seed: u64,
    ) -> PyResult<Self> {
        let settings = BreakerSettings {
            consecutive,
            rate: rate.map(|(share, window, least)| Rate { share, window, least }),
            open: seconds(open.0)?,
            max_open: seconds(open.1)?,
            successes,
            probe: seconds(probe)?,
        };
        let breakers = resilience::Breakers::new(settings, seed);
        Ok(Breakers { breakers, budgets: Budgets::default(), tickets: HashMap::new(), issued: 0 })
    }

    /// A ticket's number, or how the breaker refuses.
    fn admit(
        &mut self,
        key: &str,
        limit: Option<f64>,
        now: u64,
    ) -> PyResult<(Option<u64>, Option<RejectedAttempt>)> {
        let limit = limit.map(seconds).transpose()?;
        Ok(match self.breakers.admit(key, limit, Moment::from_nanos(now)) {
            Ok(ticket) => {
                self.issued += 1;
                self.tickets.insert(self.issued, ticket);
                (Some(self.issued), None)
            }
            Err(open) => (None, Some(refused(key, &open))),
        })
    }

    fn settle(&mut self, ticket: u64, kind: &str, said: &str, now: u64) -> PyResult<()> {
        if let Some(ticket) = self.tickets.remove(&ticket) {
            self.breakers.settle(ticket, &judged(kind, said, true, false, None)?, Moment::from_nanos(now));
        }
        Ok(())
    }

    fn hold(&mut self, key: &str, held: Option<&str>, now: u64) -> PyResult<()> {
        let held = match held {
            None => None,
            Some("open") => Some(Hold::Open),
            Some("closed") => Some(Hold::Closed),
            Some(other) => {
                return Err(PyValueError::new_err(format!("{other:?} is not a state that can be forced")));
            }
        };
        self.breakers.hold(key, held, Moment::from_nanos(now));
        Ok(())
    }

    /// All keys, as JSON.
    fn snapshot(&mut self, now: u64) -> PyResult<String> {
        serde_json::to_string(&self.breakers.snapshot(Moment::from_nanos(now)))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn restore(&mut self, json: &str, now: u64) -> PyResult<()> {
        let snapshots = serde_json::from_str(json)
            .map_err(|error| PyValueError::new_err(format!("this is not a snapshot of breakers: {error}")))?;
        self.breakers.restore(snapshots, Moment::from_nanos(now));
        Ok(())
    }
}

/// One call from its first attempt to its end.
#[pyclass]
pub(crate) struct Attempts(resilience::GuardedCall);

/// What is to be done: `attempt` of a way, `wait` in seconds, or `done`, `ignored`, `failed` and
/// why.
type Next = (&'static str, usize, f64, String);

#[pymethods]
impl Attempts {
    /// `fallbacks`: ways besides the first, which has `key`. `pauses`: fixed ones in seconds, or at
    /// random for `None`.
    #[new]
    fn new(
        key: Option<String>,
        attempts: u32,
        pauses: Option<Vec<f64>>,
        fallbacks: usize,
        deadline: Option<u64>,
        seed: u64,
    ) -> PyResult<Self> {
        let retry = match pauses {
            None => Retry::jittered(attempts),
            Some(pauses) => Retry {
                backoff: Backoff::Fixed(pauses.into_iter().map(seconds).collect::<PyResult<_>>()?),
                ..Retry::jittered(attempts)
            },
        };
        let mut ways = vec![Way { key, ..Way::new(retry) }];
        ways.extend((0..fallbacks).map(|_| Way::new(Retry::default())));
        Ok(Attempts(resilience::GuardedCall::new(ways, deadline.map(Moment::from_nanos)).seed(seed)))
    }

    fn next(&mut self, breakers: &mut Breakers, now: u64) -> Next {
        let now = Moment::from_nanos(now);
        match self.0.next(&mut breakers.breakers, now) {
            CallStep::Attempt { way, .. } => ("attempt", way, 0.0, String::new()),
            CallStep::Wait { until } => ("wait", 0, until.since(now).as_secs_f64(), String::new()),
            CallStep::Over(CallEnd::Succeeded { way }) => ("done", way, 0.0, String::new()),
            CallStep::Over(CallEnd::Ignored) => ("ignored", 0, 0.0, String::new()),
            CallStep::Over(CallEnd::Failed(Why::BreakerOpen { feedback })) => ("open", 0, 0.0, feedback),
            CallStep::Over(CallEnd::Failed(why)) => ("failed", 0, 0.0, why.to_string()),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are one failure's, and Python has no use for a class of it"
    )]
    fn ended(
        &mut self,
        breakers: &mut Breakers,
        kind: &str,
        said: &str,
        retryable: bool,
        is_timeout: bool,
        retry_after: Option<f64>,
        now: u64,
    ) -> PyResult<()> {
        let judged = judged(kind, said, retryable, is_timeout, retry_after)?;
        self.0.ended(judged, &mut breakers.breakers, &mut breakers.budgets, Moment::from_nanos(now));
        Ok(())
    }

    /// Abandons the call: its breakers wait for no further result of it.
    fn abandon(&mut self, breakers: &mut Breakers, now: u64) {
        self.0.abandon(&mut breakers.breakers, Moment::from_nanos(now));
    }

    /// Where its time went, as JSON.
    fn spent(&self) -> PyResult<String> {
        serde_json::to_string(self.0.spent()).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// Counts the turns of a loop.
#[pyclass]
pub(crate) struct LoopGuard(TurnGuard);

#[pymethods]
impl LoopGuard {
    #[new]
    fn new(iterations: Option<u32>, failures: Option<u32>, repeats: Option<u32>) -> Self {
        LoopGuard(TurnGuard::of(iterations, failures, repeats))
    }

    /// Nothing where another turn begins, or else how many of what there may be.
    fn begin(&mut self) -> Option<(u32, &'static str)> {
        self.0.begin().err().map(|stop| (stop.limit, stop.what))
    }

    /// What the turn did; `input` as the text that it is compared by.
    fn ended(&mut self, action: &str, input: &str, ok: bool) {
        self.0.ended(action, &input.into(), ok);
    }

    #[getter]
    fn turns(&self) -> u32 {
        self.0.turns
    }

    #[getter]
    fn failed(&self) -> u32 {
        self.0.failed
    }
}
