//! One call from its first attempt to its end.
//!
//! ```text
//! Ready ──▶ Running ──▶ Ready, after a pause      the attempt failed, and another may be made
//!   │          ├──────▶ Ready, with the next way  it failed, and none may; a fallback is left
//!   │          └──────▶ Over                      it succeeded; it says nothing; nothing is left
//!   └─ the way's breaker is open, or too little time is left ──▶ the next way, or Over
//! ```
//! A way with a key asks its breaker once, before its first attempt. One call is one result for
//! that breaker, after its attempts and its fallbacks; a fallback with a key of its own is one
//! result for its own.

use std::time::Duration;

use fastrand::Rng;
use sandtimer::time::Moment;
use serde::{Deserialize, Serialize};

use super::breakers::{Breakers, Ticket};
use super::judge::AttemptResult;
use super::retry::{Budgets, Retry};

/// A way to do it: the one that is wanted, or a fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// `name:action`, for its breaker and its budget; without one it has neither.
    pub key: Option<String>,
    pub retry: Retry,
    /// How long this way may take in all, its retries included; `None` if that is not known. A
    /// breaker that is half open cancels its probe when this way and the ways after it must have
    /// ended.
    pub limit: Option<Duration>,
}

impl Way {
    pub fn new(retry: Retry) -> Self {
        Way { key: None, retry, limit: None }
    }

    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStep {
    /// Try this way, the first or a fallback, and pass the result to [`GuardedCall::ended`].
    /// `number` counts from 1.
    Attempt {
        way: usize,
        number: u32,
    },
    /// Nothing before then.
    Wait {
        until: Moment,
    },
    Over(CallEnd),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// By this way; any but the first is a degraded result.
    Succeeded {
        way: usize,
    },
    /// An attempt was cancelled, or ended by what is around it.
    Ignored,
    Failed(Why),
}

impl CallEnd {
    pub fn is_done(&self) -> bool {
        matches!(self, CallEnd::Succeeded { .. })
    }
}

/// Why a call failed: what prevented another attempt.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Why {
    #[error("all attempts failed; the last: {message}")]
    Attempts { message: String },
    /// Nothing was tried.
    #[error("{feedback}")]
    BreakerOpen {
        /// The line for a model, and why, of each way that was refused.
        feedback: String,
    },
    #[error("another attempt would not end before the deadline; the last failure: {message}")]
    WouldExceedDeadline { message: String },
    #[error("too many retries of this kind failed lately; the last failure: {message}")]
    RetryBudget { message: String },
}

/// A piece of a call's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "spent_on", rename_all = "snake_case")]
pub enum SpentOn {
    Attempt { way: usize, number: u32, ms: u64, ok: bool },
    Backoff { ms: u64 },
    BreakerOpen { way: usize },
}

#[derive(Debug)]
enum CallState {
    /// Not before this moment, if there is one.
    Ready {
        not_before: Option<Moment>,
    },
    Running {
        since: Moment,
    },
    Over(CallEnd),
}

/// One call.
#[derive(Debug)]
pub struct GuardedCall {
    ways: Vec<Way>,
    deadline: Option<Moment>,
    state: CallState,
    way: usize,
    /// Attempts of the present way that have begun.
    attempts: u32,
    tickets: Vec<Option<Ticket>>,
    /// The latest failure, or what refused, for the end.
    why: Option<Why>,
    /// The line for a model, and why, of each way whose breaker was open.
    refused: Vec<String>,
    spent: Vec<SpentOn>,
    random: Rng,
}

impl GuardedCall {
    /// A call that is done in the first of these ways, or else in a later one, before `deadline`.
    pub fn new(ways: Vec<Way>, deadline: Option<Moment>) -> Self {
        let tickets = ways.iter().map(|_| None).collect();
        GuardedCall {
            ways,
            deadline,
            state: CallState::Ready { not_before: None },
            way: 0,
            attempts: 0,
            tickets,
            why: None,
            refused: Vec::new(),
            spent: Vec::new(),
            random: Rng::with_seed(0),
        }
    }

    /// What pauses at random come from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Rng::with_seed(seed);
        self
    }

    /// Where its time went so far.
    pub fn spent(&self) -> &[SpentOn] {
        &self.spent
    }

    /// The feedback for a model on the breakers that refused, even if a fallback succeeded: the
    /// line to act on, and why, of each way.
    pub fn feedback(&self) -> Option<String> {
        (!self.refused.is_empty()).then(|| self.refused.join("\n"))
    }

    /// Returns the next step. It stays the same until [`GuardedCall::ended`] is called, or time
    /// passes.
    pub fn next(&mut self, breakers: &mut Breakers, now: Moment) -> CallStep {
        loop {
            match &self.state {
                CallState::Over(end) => return CallStep::Over(end.clone()),
                CallState::Running { .. } => {
                    return CallStep::Attempt { way: self.way, number: self.attempts };
                }
                CallState::Ready { not_before: Some(until) } if *until > now => {
                    return CallStep::Wait { until: *until };
                }
                CallState::Ready { .. } => self.begin(breakers, now),
            }
        }
    }

    /// Begins an attempt, or leaves the way that does not allow one.
    fn begin(&mut self, breakers: &mut Breakers, now: Moment) {
        let Some(way) = self.ways.get(self.way) else { return self.fail(breakers, now) };
        if !self.fits(way.retry.useful, now) {
            let message = self.last_message();
            return self.leave(Why::WouldExceedDeadline { message }, Duration::ZERO, now);
        }
        if self.attempts == 0
            && let Some(key) = &way.key
        {
            let limit = self.limit(breakers.probe(), now);
            match breakers.admit(key, Some(limit), now) {
                Ok(ticket) => self.tickets[self.way] = Some(ticket),
                Err(open) => {
                    let feedback = open.feedback(key);
                    self.refused.push(feedback.clone());
                    self.spent.push(SpentOn::BreakerOpen { way: self.way });
                    return self.leave(Why::BreakerOpen { feedback }, Duration::ZERO, now);
                }
            }
        }
        self.attempts += 1;
        self.state = CallState::Running { since: now };
    }

    /// How an attempt ended.
    ///
    /// # Panics
    ///
    /// If none was asked for by [`GuardedCall::next`].
    pub fn ended(
        &mut self,
        judged: AttemptResult,
        breakers: &mut Breakers,
        budgets: &mut Budgets,
        now: Moment,
    ) {
        let CallState::Running { since } = self.state else { panic!("no attempt was under way") };
        let (way, number, ms) = (self.way, self.attempts, milliseconds(now.since(since)));
        self.spent.push(SpentOn::Attempt { way, number, ms, ok: judged == AttemptResult::Success });
        match &judged {
            AttemptResult::Success => {
                if number == 1
                    && let Some(key) = &self.ways[way].key
                {
                    budgets.give(key);
                }
                self.over(CallEnd::Succeeded { way }, &judged, breakers, now);
            }
            AttemptResult::Ignored => self.over(CallEnd::Ignored, &judged, breakers, now),
            AttemptResult::Failure(failure) => {
                let message = failure.message.clone();
                let retry = &self.ways[way].retry;
                let pause = retry.backoff.after(number, &mut self.random);
                let pause = pause.max(failure.retry_after.unwrap_or_default());
                let fits = self.fits(pause.saturating_add(retry.useful), now);
                let is_last = !failure.retryable || number >= retry.attempts;
                let key = self.ways[way].key.as_deref();
                if is_last {
                    let pause = self.ways[way].retry.backoff.before_fallback(number);
                    self.settle_fallback(&judged, breakers, now);
                    self.leave(Why::Attempts { message }, pause, now);
                } else if !fits {
                    self.settle_fallback(&judged, breakers, now);
                    self.leave(Why::WouldExceedDeadline { message }, Duration::ZERO, now);
                } else if key.is_some_and(|key| !budgets.take(key, failure.is_timeout)) {
                    self.settle_fallback(&judged, breakers, now);
                    self.leave(Why::RetryBudget { message }, Duration::ZERO, now);
                } else {
                    self.why = Some(Why::Attempts { message });
                    self.pause(pause, now);
                }
            }
        }
    }

    /// Abandons the call: no breaker waits for its result any more.
    pub fn abandon(&mut self, breakers: &mut Breakers, now: Moment) {
        self.over(CallEnd::Ignored, &AttemptResult::Ignored, breakers, now);
    }

    /// On to the next way, if there is one, after a pause.
    fn leave(&mut self, why: Why, pause: Duration, now: Moment) {
        // A rejection by a breaker explains less than the failure before it.
        let keeps = matches!((&self.why, &why), (Some(Why::Attempts { .. }), Why::BreakerOpen { .. }));
        self.why = match (self.why.take(), why) {
            (Some(Why::BreakerOpen { feedback: first }), Why::BreakerOpen { feedback: then }) => {
                Some(Why::BreakerOpen { feedback: format!("{first}\n{then}") })
            }
            (earlier, _) if keeps => earlier,
            (_, why) => Some(why),
        };
        self.way += 1;
        self.attempts = 0;
        // If the next way could not begin after the pause, there is no pause.
        let is_of_use =
            self.ways.get(self.way).is_some_and(|way| self.fits(pause.saturating_add(way.retry.useful), now));
        self.pause(if is_of_use { pause } else { Duration::ZERO }, now);
    }

    fn pause(&mut self, pause: Duration, now: Moment) {
        if pause > Duration::ZERO {
            self.spent.push(SpentOn::Backoff { ms: milliseconds(pause) });
        }
        self.state = CallState::Ready { not_before: Some(now.after(pause)) };
    }

    /// No way is left.
    fn fail(&mut self, breakers: &mut Breakers, now: Moment) {
        let why = self.why.take().unwrap_or(Why::Attempts { message: "there was nothing to try".to_owned() });
        let judged = AttemptResult::Failure(super::AttemptFailure::new(why.to_string()));
        self.over(CallEnd::Failed(why), &judged, breakers, now);
    }

    /// Ends the call: every breaker that still waits for a result gets it.
    fn over(&mut self, end: CallEnd, judged: &AttemptResult, breakers: &mut Breakers, now: Moment) {
        for ticket in self.tickets.iter_mut().filter_map(Option::take) {
            breakers.settle(ticket, judged, now);
        }
        self.state = CallState::Over(end);
    }

    /// A fallback that failed is one result for its own key, whatever comes after it.
    fn settle_fallback(&mut self, judged: &AttemptResult, breakers: &mut Breakers, now: Moment) {
        if self.way > 0
            && let Some(ticket) = self.tickets[self.way].take()
        {
            breakers.settle(ticket, judged, now);
        }
    }

    /// Whether this much time is left.
    fn fits(&self, time: Duration, now: Moment) -> bool {
        self.deadline.is_none_or(|deadline| now < deadline && deadline.since(now) >= time)
    }

    /// How long it can take until a breaker gets the result of the present way: until this way and
    /// those after it have ended.
    fn limit(&self, otherwise: Duration, now: Moment) -> Duration {
        let add = |sum: Duration, way: &Way| way.limit.map(|limit| sum.saturating_add(limit));
        let known = self.ways[self.way..].iter().try_fold(Duration::ZERO, add);
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(now));
        known.unwrap_or(otherwise).min(left)
    }

    fn last_message(&self) -> String {
        match &self.why {
            None => "none, nothing was tried".to_owned(),
            Some(
                Why::Attempts { message }
                | Why::WouldExceedDeadline { message }
                | Why::RetryBudget { message },
            ) => message.clone(),
            Some(Why::BreakerOpen { feedback }) => feedback.clone(),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
