//! Breakers by key.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, BreakerSettings, Hold, OpenBreaker, Permit, State};
use super::judge::Judged;
use crate::time::Moment;

/// Keys that are remembered, unless more are held by a person.
const MOST: usize = 1_024;
/// How long a key is remembered that nobody uses. Longer than a breaker is ever open.
const UNUSED: Duration = Duration::from_secs(3_600);

/// The breakers of one job, or of whatever else shares them.
#[derive(Debug)]
pub struct Breakers {
    settings: BreakerSettings,
    entries: HashMap<String, Entry>,
    random: Rng,
}

#[derive(Debug)]
struct Entry {
    breaker: Breaker,
    used: Moment,
}

/// Leave to try what a key stands for.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a probe that is never settled counts as one that hangs"]
pub struct Ticket {
    key: String,
    permit: Permit,
}

/// What is known of one key. Times are spans, so that it holds on another machine and after a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakerSnapshot {
    pub key: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    pub held: Option<Hold>,
    /// Milliseconds until an open one admits a probe.
    pub retry_after_ms: Option<u64>,
    pub failures_in_a_row: u32,
    pub times_opened: u32,
    /// Half open, successes so far.
    pub successes: u32,
    /// Whether each of the latest results was a failure, the latest last.
    pub window: Vec<bool>,
    /// What the latest failures said, the latest last.
    pub said: Vec<String>,
}

impl Breakers {
    /// Breakers that are all closed. `seed` is what their random part comes from.
    pub fn new(settings: BreakerSettings, seed: u64) -> Self {
        Breakers { settings, entries: HashMap::new(), random: Rng::with_seed(seed) }
    }

    /// Leave to try what `key` stands for, which takes at most `limit`.
    pub fn admit(&mut self, key: &str, limit: Option<Duration>, now: Moment) -> Result<Ticket, OpenBreaker> {
        let breaker = &mut entry(&mut self.entries, key, now).breaker;
        let admitted = breaker.admit(&self.settings, limit, now, &mut self.random);
        admitted.map(|permit| Ticket { key: key.to_owned(), permit })
    }

    /// What became of it.
    pub fn settle(&mut self, ticket: Ticket, judged: &Judged, now: Moment) {
        // One that was forgotten meanwhile has nothing to hear.
        if let Some(entry) = self.entries.get_mut(&ticket.key) {
            entry.used = now;
            entry.breaker.settle(&self.settings, ticket.permit, judged, now, &mut self.random);
        }
    }

    /// Chooses a key's state until it is released with `None`, which closes it and forgets its failures.
    pub fn hold(&mut self, key: &str, held: Option<Hold>, now: Moment) {
        entry(&mut self.entries, key, now).breaker.hold(held);
    }

    /// All keys, in their order.
    pub fn snapshot(&mut self, now: Moment) -> Vec<BreakerSnapshot> {
        let (settings, random) = (&self.settings, &mut self.random);
        let mut all: Vec<_> = self
            .entries
            .iter_mut()
            .map(|(key, entry)| {
                entry.breaker.look(settings, now, random);
                snapshot(key, &entry.breaker, now)
            })
            .collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// Takes up what a snapshot says. A probe that was under way is forgotten: the next caller is one.
    pub fn restore(&mut self, snapshots: Vec<BreakerSnapshot>, now: Moment) {
        for from in snapshots {
            let state = match (from.state.as_str(), from.retry_after_ms) {
                ("open", left) => {
                    State::Open { until: now.after(Duration::from_millis(left.unwrap_or_default())) }
                }
                ("half_open", _) => State::HalfOpen { probe_ends: None, successes: from.successes },
                _ => State::Closed,
            };
            let mut breaker = Breaker::new();
            breaker.hold(from.held);
            breaker.state = state;
            breaker.failures_in_a_row = from.failures_in_a_row;
            breaker.times_opened = from.times_opened;
            breaker.window = from.window.into();
            breaker.said = from.said.into();
            *entry(&mut self.entries, &from.key, now) = Entry { breaker, used: now };
        }
    }
}

/// The entry of a key, made where there is none.
fn entry<'a>(entries: &'a mut HashMap<String, Entry>, key: &str, now: Moment) -> &'a mut Entry {
    if entries.get(key).is_some_and(|entry| entry.is_stale(now)) {
        entries.remove(key);
    }
    if !entries.contains_key(key) {
        make_room(entries, now);
    }
    let entry = entries.entry(key.to_owned()).or_insert_with(|| Entry { breaker: Breaker::new(), used: now });
    entry.used = now;
    entry
}

fn make_room(entries: &mut HashMap<String, Entry>, now: Moment) {
    if entries.len() < MOST {
        return;
    }
    entries.retain(|_, entry| !entry.is_stale(now));
    let free = entries.iter().filter(|(_, entry)| entry.breaker.held.is_none());
    if entries.len() >= MOST
        && let Some(oldest) = free.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
    {
        entries.remove(&oldest);
    }
}

impl Entry {
    fn is_stale(&self, now: Moment) -> bool {
        self.breaker.held.is_none() && now.since(self.used) > UNUSED
    }
}

fn snapshot(key: &str, breaker: &Breaker, now: Moment) -> BreakerSnapshot {
    let (state, retry_after, successes) = match breaker.state {
        _ if breaker.held == Some(Hold::Open) => ("open", None, 0),
        State::Closed => ("closed", None, 0),
        State::Open { until } => ("open", Some(until.since(now)), 0),
        State::HalfOpen { successes, .. } => ("half_open", None, successes),
    };
    BreakerSnapshot {
        key: key.to_owned(),
        state: state.to_owned(),
        held: breaker.held,
        retry_after_ms: retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        failures_in_a_row: breaker.failures_in_a_row,
        times_opened: breaker.times_opened,
        successes,
        window: breaker.window.iter().copied().collect(),
        said: breaker.said.iter().cloned().collect(),
    }
}

/// What a model is told that asked for `key`: the line to act on, then when and why.
impl OpenBreaker {
    pub fn feedback(&self, key: &str) -> String {
        format!("[SYSTEM: {key} circuit breaker open - try different approach]\n{key} {self}")
    }
}

impl fmt::Display for OpenBreaker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(time) => write!(formatter, "is not tried again for {:.1} s", time.as_secs_f64())?,
            None => write!(formatter, "is held open by a person")?,
        }
        if self.failures_in_a_row > 0 {
            write!(formatter, ", after {} failures in a row", self.failures_in_a_row)?;
        }
        match self.said.last() {
            Some(said) => write!(formatter, "; the last: {said}"),
            None => Ok(()),
        }
    }
}
