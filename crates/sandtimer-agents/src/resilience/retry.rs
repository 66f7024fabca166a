//! How often something is tried, after which pauses, and out of which budget.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;

/// The first pause of a backoff at random, unless another is named; the sources of the numbers are
/// in [`Retry`].
const BASE: Duration = Duration::from_millis(100);
/// Its longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(20);
/// Keys whose budgets are remembered; beyond, full ones are forgotten, which loses nothing.
const KEYS: usize = 1_024;

/// Pauses between attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backoff {
    /// After attempt n, at random up to `base · 2ⁿ⁻¹`, at most up to `most`: full jitter, see
    /// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    FullJitter {
        /// The longest pause after the first attempt.
        base: Duration,
        /// The longest pause of all.
        most: Duration,
    },
    /// After attempt n the n-th of these, or the last. The pause after the last attempt, if the
    /// list has it, comes before a fallback.
    Fixed(Vec<Duration>),
}

/// How often something is tried, and with which pauses.
///
/// ```
/// use std::time::Duration;
/// use sandtimer_agents::resilience::Retry;
///
/// let retry = Retry::fixed(3, [100, 200].map(Duration::from_millis));
/// // Three attempts of at most a second each, and two pauses.
/// assert_eq!(retry.longest(Duration::from_secs(1)), Duration::from_millis(3300));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The number of attempts, the first one included; at least 1.
    pub attempts: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// How long an attempt takes at best: no attempt starts with less time than this before the
    /// deadline. Zero if that is not known.
    pub useful: Duration,
}

impl Default for Retry {
    /// One attempt: only the caller knows whether code may run twice.
    fn default() -> Self {
        Retry::jittered(1)
    }
}

impl Retry {
    /// Makes this many attempts, with random pauses of up to 100 ms, 200 ms, … 20 s.
    pub fn jittered(attempts: u32) -> Self {
        let backoff = Backoff::FullJitter { base: BASE, most: MAX_BACKOFF };
        Retry { attempts, backoff, useful: Duration::ZERO }
    }

    /// Makes this many attempts, with these pauses.
    pub fn fixed(attempts: u32, pauses: impl Into<Vec<Duration>>) -> Self {
        Retry { attempts, backoff: Backoff::Fixed(pauses.into()), useful: Duration::ZERO }
    }

    /// Returns how long it takes at most, if each attempt takes at most `attempt`.
    pub fn longest(&self, attempt: Duration) -> Duration {
        let pauses = (1..self.attempts).map(|number| self.backoff.longest(number));
        pauses.fold(attempt.saturating_mul(self.attempts), Duration::saturating_add)
    }
}

impl Backoff {
    /// Returns the pause after a failed attempt, which is counted from 1.
    pub fn after(&self, attempt: u32, random: &mut Rng) -> Duration {
        let longest = self.longest(attempt);
        match self {
            Backoff::FullJitter { .. } => longest.mul_f64(random.f64()),
            Backoff::Fixed(_) => longest,
        }
    }

    /// The longest pause after a failed attempt, counted from 1.
    fn longest(&self, attempt: u32) -> Duration {
        match self {
            Backoff::FullJitter { base, most } => {
                base.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(*most)
            }
            Backoff::Fixed(pauses) => {
                let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                pauses.get(index).or(pauses.last()).copied().unwrap_or_default()
            }
        }
    }

    /// The pause between the last attempt and the next way: one that was named, none that is made
    /// up.
    pub(super) fn before_fallback(&self, attempt: u32) -> Duration {
        match self {
            Backoff::FullJitter { .. } => Duration::ZERO,
            Backoff::Fixed(pauses) => {
                let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                pauses.get(index).copied().unwrap_or_default()
            }
        }
    }
}

/// The retry budget of one key: it bounds retries, so that many callers do not double the load of a
/// service that already fails. A token bucket with the figures of the AWS SDKs' standard retry
/// mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryBudget {
    left: u32,
}

impl RetryBudget {
    const FULL: u32 = 500;
    const RETRY: u32 = 5;
    const AFTER_TIMEOUT: u32 = 10;

    fn take(&mut self, after_timeout: bool) -> bool {
        let cost = if after_timeout { Self::AFTER_TIMEOUT } else { Self::RETRY };
        let enough = self.left >= cost;
        if enough {
            self.left -= cost;
        }
        enough
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget { left: Self::FULL }
    }
}

/// Retry budgets by key.
#[derive(Debug, Default)]
pub struct Budgets(HashMap<String, RetryBudget>);

impl Budgets {
    /// Whether another attempt may be made, which is then paid for.
    pub(super) fn take(&mut self, key: &str, after_timeout: bool) -> bool {
        if self.0.len() >= KEYS && !self.0.contains_key(key) {
            self.0.retain(|_, budget| budget.left < RetryBudget::FULL);
        }
        self.0.entry(key.to_owned()).or_default().take(after_timeout)
    }

    /// The first attempt succeeded, which gives a little back.
    pub(super) fn give(&mut self, key: &str) {
        if let Some(budget) = self.0.get_mut(key) {
            budget.left = (budget.left + 1).min(RetryBudget::FULL);
        }
    }
}
