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

/// A way to do something: the preferred one, or a fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The key of its breaker and its retry budget, such as `name:action`; without one it has
    /// neither.
    pub key: Option<String>,
    /// How often this way is tried, and with which pauses.
    pub retry: Retry,
    /// How long this way may take in all, its retries included; `None` if that is not known. A
    /// breaker that is half open gives up its probe when this and the later ways may have ended.
    pub limit: Option<Duration>,
}

impl Way {
    /// Makes a way without a key and without a limit.
    pub fn new(retry: Retry) -> Self {
        Way { key: None, retry, limit: None }
    }

    /// Sets the key, conventionally `name:action`.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// What the caller is to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStep {
    /// Try a way, and report the result to [`GuardedCall::ended`].
    Attempt {
        /// Its index in the list of ways; 0 is the preferred one.
        way: usize,
        /// The number of the attempt, counted from 1 for each way.
        number: u32,
    },
    /// Do nothing before a moment.
    Wait {
        /// That moment.
        until: Moment,
    },
    /// The call has ended.
    Over(CallEnd),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// An attempt succeeded; with any way but the first the result is a degraded one.
    Succeeded {
        /// The index of its way.
        way: usize,
    },
    /// An attempt was cancelled, or an outer limit ended it.
    Ignored,
    /// No way succeeded.
    Failed(Why),
}

impl CallEnd {
    /// Whether an attempt succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self, CallEnd::Succeeded { .. })
    }
}

/// Why a call failed: what ruled out another attempt.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Why {
    /// All attempts of all ways failed.
    #[error("all attempts failed; the last: {message}")]
    Attempts {
        /// The last failure.
        message: String,
    },
    /// Nothing was tried.
    #[error("{feedback}")]
    BreakerOpen {
        /// For each way that was refused, the line for a model and the reason.
        feedback: String,
    },
    /// An attempt failed, and too little time is left for another one.
    #[error("another attempt would not end before the deadline; the last failure: {message}")]
    WouldExceedDeadline {
        /// The last failure.
        message: String,
    },
    /// An attempt failed, and the retry budget of the key is used up.
    #[error("too many retries of this kind failed lately; the last failure: {message}")]
    RetryBudget {
        /// The last failure.
        message: String,
    },
}

/// A piece of a call's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "spent_on", rename_all = "snake_case")]
pub enum SpentOn {
    /// An attempt.
    Attempt {
        /// The index of its way.
        way: usize,
        /// The number of the attempt, counted from 1 for each way.
        number: u32,
        /// How long it took, in milliseconds.
        ms: u64,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A pause before the next attempt.
    Backoff {
        /// Its length in milliseconds.
        ms: u64,
    },
    /// A way was skipped because its breaker was open; this took no time.
    BreakerOpen {
        /// The index of the way.
        way: usize,
    },
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

/// One call with its retries, fallbacks and breakers; the [module](super) has an example.
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
    /// Makes a call that tries these ways in their order until one succeeds, before `deadline`.
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

    /// Sets the seed of the pauses that are random; by default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Rng::with_seed(seed);
        self
    }

    /// Returns where its time went so far.
    pub fn spent(&self) -> &[SpentOn] {
        &self.spent
    }

    /// Returns the message for a model about the breakers that refused, also if a fallback
    /// succeeded: for each such way a line to act on, and the reason. `None` if no breaker refused.
    pub fn feedback(&self) -> Option<String> {
        (!self.refused.is_empty()).then(|| self.refused.join("\n"))
    }

    /// Returns what to do now: the same step until [`GuardedCall::ended`] is called, or time
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

    /// Records how an attempt ended.
    ///
    /// # Panics
    ///
    /// If [`GuardedCall::next`] has not returned an attempt.
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

    /// Ends the call without a result: no breaker waits for it any more.
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

    /// How long it can take until a breaker gets the result of the present way: until this and the
    /// later ones have ended.
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
