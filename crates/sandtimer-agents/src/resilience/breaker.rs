//! The breaker of one key.
//!
//! ```text
//! Closed ──too many failures──▶ Open ──its time has passed──▶ HalfOpen ──enough successes──▶ Closed
//!                                ▲                           │
//!                                └──── a failure, or a probe that did not end in time
//! held open, held closed: by a person, until released
//! ```
//! Every permit carries the generation it was given in; each change of state begins another. So an
//! attempt that was admitted before a change does not affect the state after it, however late it
//! ends. A half-open breaker admits one probe at a time, and not for ever: a probe that hangs is a
//! failure.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use sandtimer::time::Moment;
use serde::{Deserialize, Serialize};

use super::judge::AttemptResult;

/// Failures of which the messages are kept.
const MAX_MESSAGES: usize = 3;
/// The most characters that are kept of a failure's message.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// When a breaker opens, and how it closes again.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerSettings {
    /// It opens after this many failures in a row; `None` if these do not count.
    pub consecutive: Option<u32>,
    /// It opens at this share of failures; `None` if that does not count.
    pub rate: Option<Rate>,
    /// How long it is open the first time; twice as long each further time, and less by up to a
    /// half, at random, so that many callers do not come back at once.
    pub open: Duration,
    /// The longest time for which it is open.
    pub max_open: Duration,
    /// The number of successful probes in a row that close it.
    pub successes: u32,
    /// How long a probe may take for which the caller names no limit.
    pub probe: Duration,
}

/// The share of failures among the latest results at which a breaker opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The share, more than 0 and at most 1.
    pub share: f64,
    /// The number of the latest results that count.
    pub window: usize,
    /// The number of results below which the breaker stays closed.
    pub least: usize,
}

impl Default for BreakerSettings {
    /// 5 failures in a row, or half of the last 20 once there are 5; open for 30 s, at most 10
    /// minutes.
    fn default() -> Self {
        BreakerSettings {
            consecutive: Some(5),
            rate: Some(Rate { share: 0.5, window: 20, least: 5 }),
            open: Duration::from_secs(30),
            max_open: Duration::from_secs(600),
            successes: 2,
            probe: Duration::from_secs(60),
        }
    }
}

/// A state that a person has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Admits nothing.
    Open,
    /// Admits everything.
    Closed,
}

/// Permission to try, to be settled when the attempt has ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a probe that is never settled counts as one that hangs"]
pub struct Permit {
    generation: u64,
}

/// The reason of a refusal: the breaker is open, or half open with a probe under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBreaker {
    /// The time until it admits a probe; `None` if only a person closes it.
    pub retry_after: Option<Duration>,
    /// Failures since the last success.
    pub consecutive_failures: u32,
    /// The messages of the latest failures, at most 3, the latest last.
    pub messages: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerState {
    Closed,
    Open { until: Moment },
    HalfOpen { probe_ends: Option<Moment>, successes: u32 },
}

#[derive(Debug)]
pub(super) struct Breaker {
    pub state: BreakerState,
    pub held: Option<Hold>,
    /// When half open, the caller that has the active probe, if known.
    pub probe_of: Option<String>,
    pub generation: u64,
    /// Since it was last closed.
    pub times_opened: u32,
    pub consecutive_failures: u32,
    /// Whether each of the latest results was a failure.
    pub window: VecDeque<bool>,
    pub messages: VecDeque<String>,
}

impl Breaker {
    pub fn new() -> Self {
        Breaker {
            state: BreakerState::Closed,
            held: None,
            probe_of: None,
            generation: 0,
            times_opened: 0,
            consecutive_failures: 0,
            window: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// Permits an attempt that takes at most `limit`, or returns when to ask again. A caller that
    /// has the probe and asks again gets a new one in place of the one before.
    pub fn admit(
        &mut self,
        settings: &BreakerSettings,
        limit: Option<Duration>,
        who: Option<&str>,
        now: Moment,
        random: &mut Rng,
    ) -> Result<Permit, OpenBreaker> {
        match self.held {
            Some(Hold::Closed) => return Ok(self.permit()),
            Some(Hold::Open) => return Err(self.rejection(None)),
            None => self.refresh(settings, now, random),
        }
        match self.state {
            BreakerState::Closed => Ok(self.permit()),
            BreakerState::Open { until } => Err(self.rejection(Some(until.since(now)))),
            BreakerState::HalfOpen { probe_ends: Some(end), .. }
                if who.is_none() || self.probe_of.as_deref() != who =>
            {
                Err(self.rejection(Some(end.since(now))))
            }
            BreakerState::HalfOpen { successes, .. } => {
                let end = now.after(limit.unwrap_or(settings.probe));
                self.enter(BreakerState::HalfOpen { probe_ends: Some(end), successes });
                self.probe_of = who.map(str::to_owned);
                Ok(self.permit())
            }
        }
    }

    /// Settles an admitted attempt. A result from before the last change of state changes nothing.
    pub fn settle(
        &mut self,
        settings: &BreakerSettings,
        permit: &Permit,
        judged: &AttemptResult,
        now: Moment,
        random: &mut Rng,
    ) {
        if self.held.is_some() {
            return;
        }
        self.refresh(settings, now, random);
        if permit.generation != self.generation {
            return;
        }
        match judged {
            AttemptResult::Success => self.succeeded(settings),
            AttemptResult::Failure(failure) => self.failed(settings, &failure.message, now, random),
            AttemptResult::Ignored => {
                if let BreakerState::HalfOpen { successes, .. } = self.state {
                    self.enter(BreakerState::HalfOpen { probe_ends: None, successes });
                }
            }
        }
    }

    /// The state at this moment: what time alone changes.
    pub fn refresh(&mut self, settings: &BreakerSettings, now: Moment, random: &mut Rng) {
        match self.state {
            BreakerState::Open { until } if until <= now => {
                self.enter(BreakerState::HalfOpen { probe_ends: None, successes: 0 });
            }
            BreakerState::HalfOpen { probe_ends: Some(end), .. } if end <= now => {
                self.remember("the probe did not end in time");
                self.open(settings, end, random);
                // That may be over as well.
                self.refresh(settings, now, random);
            }
            _ => {}
        }
    }

    /// Chooses a state, or releases it into a closed one.
    pub fn hold(&mut self, held: Option<Hold>) {
        let generation = self.generation + 1;
        *self = Breaker { held, generation, ..Breaker::new() };
    }

    fn succeeded(&mut self, settings: &BreakerSettings) {
        self.consecutive_failures = 0;
        match self.state {
            BreakerState::HalfOpen { successes, .. } if successes + 1 < settings.successes => {
                self.enter(BreakerState::HalfOpen { probe_ends: None, successes: successes + 1 });
            }
            BreakerState::HalfOpen { .. } => {
                self.times_opened = 0;
                self.window.clear();
                self.enter(BreakerState::Closed);
            }
            BreakerState::Closed => self.note(settings, false),
            BreakerState::Open { .. } => {}
        }
    }

    fn failed(&mut self, settings: &BreakerSettings, message: &str, now: Moment, random: &mut Rng) {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.remember(message);
        match self.state {
            BreakerState::HalfOpen { .. } => self.open(settings, now, random),
            BreakerState::Closed => {
                self.note(settings, true);
                if self.is_too_much(settings) {
                    self.open(settings, now, random);
                }
            }
            BreakerState::Open { .. } => {}
        }
    }

    fn is_too_much(&self, settings: &BreakerSettings) -> bool {
        let by_count = settings.consecutive.is_some_and(|most| self.consecutive_failures >= most);
        let by_rate = settings.rate.is_some_and(|rate| {
            let sampled = self.window.len().min(rate.window);
            let failures = self.window.iter().rev().take(sampled).filter(|failed| **failed).count();
            // A product such as 0.56 × 25 may come out above the whole number that it is.
            sampled >= rate.least && failures as f64 + 1e-9 >= rate.share * sampled as f64
        });
        by_count || by_rate
    }

    fn open(&mut self, settings: &BreakerSettings, now: Moment, random: &mut Rng) {
        let doubled = settings.open.saturating_mul(1 << self.times_opened.min(20)).min(settings.max_open);
        let time = doubled.mul_f64(0.5 + random.f64() / 2.0);
        self.times_opened = self.times_opened.saturating_add(1);
        self.enter(BreakerState::Open { until: now.after(time) });
    }

    fn note(&mut self, settings: &BreakerSettings, failed: bool) {
        // Programs that share it may have a longer window.
        let window = settings.rate.map_or(0, |rate| rate.window).max(self.window.len());
        self.window.push_back(failed);
        while self.window.len() > window {
            self.window.pop_front();
        }
    }

    fn remember(&mut self, message: &str) {
        self.messages.push_back(message.chars().take(MAX_MESSAGE_CHARACTERS).collect());
        while self.messages.len() > MAX_MESSAGES {
            self.messages.pop_front();
        }
    }

    fn enter(&mut self, state: BreakerState) {
        self.generation += 1;
        self.probe_of = None;
        self.state = state;
    }

    fn permit(&self) -> Permit {
        Permit { generation: self.generation }
    }

    fn rejection(&self, retry_after: Option<Duration>) -> OpenBreaker {
        let messages = self.messages.iter().cloned().collect();
        OpenBreaker { retry_after, consecutive_failures: self.consecutive_failures, messages }
    }
}
