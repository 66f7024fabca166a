//! Breakers by key. Those that several programs share are read, changed and written back in one
//! step: if another program has written in between, they are read again, so that no failure goes
//! uncounted and no late result changes a state that it does not belong to.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use sandtimer::time::Moment;
use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, BreakerSettings, BreakerState, Hold, OpenBreaker, Permit};
use super::judge::AttemptResult;

/// Keys that are remembered, unless more are held by a person.
const MAX_KEYS: usize = 1_024;
/// How long an unused key is remembered, beyond the time for which its breaker is open.
const KEY_RETENTION: Duration = Duration::from_secs(3_600);

/// How often a change is tried while other programs are always quicker; after that only this
/// program has it.
const TRIES: u32 = 100;

/// The breakers of one job or of one other group of callers, by key. The least recently used of
/// more than 1,024 keys is dropped.
#[derive(Debug)]
pub struct Breakers {
    settings: BreakerSettings,
    entries: HashMap<String, BreakerEntry>,
    random: Rng,
    /// The shared store, and this caller's name in it.
    shared: Option<(Arc<dyn SharedBreakers>, String)>,
}

/// A store of breakers that several programs share.
pub trait SharedBreakers: Debug + Send + Sync {
    /// Returns the version of a key's snapshot and the snapshot, with its times as of now; version
    /// 0 if there is none. `None` if the store cannot be read: then the last known state is used.
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)>;

    /// Stores a snapshot in place of this version. Returns `Some(false)` if the stored version is
    /// another one, and then changes nothing; `None` if the store cannot be written.
    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool>;
}

#[derive(Debug)]
struct BreakerEntry {
    breaker: Breaker,
    used: Moment,
}

/// Permission to try what a key stands for, from [`Breakers::admit`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a probe that is never settled counts as one that hangs"]
pub struct Ticket {
    key: String,
    permit: Permit,
}

/// The state of one key's breaker. Times are spans, so that it holds on another machine and after a
/// restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BreakerSnapshot {
    /// The key, such as `name:action`.
    pub key: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// The state that a person has chosen, if one did.
    pub held: Option<Hold>,
    /// If it is open, milliseconds until it admits a probe; `None` if a person holds it open.
    pub retry_after_ms: Option<u64>,
    /// Failures since the last success.
    pub failures_in_a_row: u32,
    /// How often it has opened since it was last closed; each time doubles the next pause.
    pub times_opened: u32,
    /// If it is half open, the number of successful probes so far.
    pub successes: u32,
    /// If it is half open, milliseconds until the probe that is under way counts as failed; below 0
    /// after that.
    #[serde(default)]
    pub probe_ends_ms: Option<i64>,
    /// The caller whose probe that is, if the breakers are shared.
    #[serde(default)]
    pub probe_of: Option<String>,
    /// The number of its changes of state: the result of an attempt that was admitted before a
    /// change does not count after it.
    #[serde(default)]
    pub generation: u64,
    /// Whether each of the latest results was a failure, the latest last.
    pub window: Vec<bool>,
    /// The messages of the latest failures, at most 3, the latest last.
    pub said: Vec<String>,
}

impl Breakers {
    /// Makes breakers that are all closed. `seed` is the seed of the random part of their pauses.
    pub fn new(settings: BreakerSettings, seed: u64) -> Self {
        Breakers { settings, entries: HashMap::new(), random: Rng::with_seed(seed), shared: None }
    }

    /// Shares the breakers with all callers of this store. `who` names this caller, which tries one
    /// thing of a key at a time: if it asks while its own probe is under way, that probe counts as
    /// lost, and it gets the next one.
    #[must_use]
    pub fn shared(self, shared: Arc<dyn SharedBreakers>, who: &str) -> Self {
        Breakers { shared: Some((shared, who.to_owned())), ..self }
    }

    /// How long a probe may take for which the caller names no limit.
    pub(super) fn probe(&self) -> Duration {
        self.settings.probe
    }

    /// Asks for permission to try `key`, in a call that takes at most `limit`. The ticket goes back
    /// to [`Breakers::settle`] when the call has ended.
    ///
    /// # Errors
    /// If the breaker of the key is open, or half open with a probe under way.
    pub fn admit(&mut self, key: &str, limit: Option<Duration>, now: Moment) -> Result<Ticket, OpenBreaker> {
        let who = self.shared.as_ref().map(|(_, who)| who.clone());
        let admitted = self.change(key, now, |breaker, settings, random| {
            breaker.admit(settings, limit, who.as_deref(), now, random)
        });
        admitted.map(|permit| Ticket { key: key.to_owned(), permit })
    }

    /// Records the result of what a ticket permitted.
    pub fn settle(&mut self, ticket: Ticket, judged: &AttemptResult, now: Moment) {
        let Ticket { key, permit } = ticket;
        // A key that was forgotten since then gets no result; a key that was only unused for long
        // does.
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = now;
        }
        if self.shared.is_some() || self.entries.contains_key(&key) {
            self.change(&key, now, |breaker, settings, random| {
                breaker.settle(settings, &permit, judged, now, random);
            });
        }
    }

    /// Holds a key in a state until it is released with `None`, which closes it and forgets its
    /// failures.
    pub fn hold(&mut self, key: &str, held: Option<Hold>, now: Moment) {
        self.change(key, now, |breaker, _, _| breaker.hold(held));
    }

    /// Changes the breaker of a key, where it is kept as well.
    fn change<T>(
        &mut self,
        key: &str,
        now: Moment,
        change: impl Fn(&mut Breaker, &BreakerSettings, &mut Rng) -> T,
    ) -> T {
        for tries in 1.. {
            let version = self.fetch(key, now);
            let breaker = &mut entry(&mut self.entries, key, now).breaker;
            let before = snapshot(key, breaker, now);
            let changed = change(breaker, &self.settings, &mut self.random);
            let after = snapshot(key, breaker, now);
            let (Some((shared, _)), Some(version)) = (&self.shared, version) else { return changed };
            if after == before || tries == TRIES || shared.swap(version, &after) != Some(false) {
                return changed;
            }
        }
        unreachable!("the last try returns")
    }

    /// Takes up the shared state of a key. Returns its version, if the store can be read.
    fn fetch(&mut self, key: &str, now: Moment) -> Option<u64> {
        let (version, kept) = self.shared.as_ref()?.0.load(key)?;
        match kept {
            Some(snapshot) => self.take_up(snapshot, now),
            None => drop(self.entries.remove(key)),
        }
        Some(version)
    }

    /// Returns the state of all keys, sorted by key.
    pub fn snapshot(&mut self, now: Moment) -> Vec<BreakerSnapshot> {
        let (settings, random) = (&self.settings, &mut self.random);
        let mut all: Vec<_> = self
            .entries
            .iter_mut()
            .map(|(key, entry)| {
                entry.breaker.refresh(settings, now, random);
                snapshot(key, &entry.breaker, now)
            })
            .collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// Restores states from snapshots. A probe that was under way is forgotten: the next caller is
    /// the probe.
    pub fn restore(&mut self, snapshots: Vec<BreakerSnapshot>, now: Moment) {
        for snapshot in snapshots {
            self.take_up(BreakerSnapshot { probe_ends_ms: None, probe_of: None, ..snapshot }, now);
        }
    }

    fn take_up(&mut self, from: BreakerSnapshot, now: Moment) {
        let after = |left: u64| now.after(Duration::from_millis(left));
        let state = match from.state.as_str() {
            "open" => BreakerState::Open { until: after(from.retry_after_ms.unwrap_or_default()) },
            "half_open" => {
                let end = |left: i64| match left {
                    0.. => after(left.unsigned_abs()),
                    _ => now.before(Duration::from_millis(left.unsigned_abs())),
                };
                BreakerState::HalfOpen { probe_ends: from.probe_ends_ms.map(end), successes: from.successes }
            }
            _ => BreakerState::Closed,
        };
        let breaker = Breaker {
            state,
            held: from.held,
            probe_of: from.probe_of,
            generation: from.generation,
            times_opened: from.times_opened,
            consecutive_failures: from.failures_in_a_row,
            window: from.window.into(),
            messages: from.said.into(),
        };
        *entry(&mut self.entries, &from.key, now) = BreakerEntry { breaker, used: now };
    }
}

/// The entry of a key, made where there is none.
fn entry<'a>(entries: &'a mut HashMap<String, BreakerEntry>, key: &str, now: Moment) -> &'a mut BreakerEntry {
    if entries.get(key).is_some_and(|entry| entry.is_stale(now)) {
        entries.remove(key);
    }
    if !entries.contains_key(key) {
        make_room(entries, now);
    }
    let entry =
        entries.entry(key.to_owned()).or_insert_with(|| BreakerEntry { breaker: Breaker::new(), used: now });
    entry.used = now;
    entry
}

fn make_room(entries: &mut HashMap<String, BreakerEntry>, now: Moment) {
    if entries.len() < MAX_KEYS {
        return;
    }
    entries.retain(|_, entry| !entry.is_stale(now));
    let free = entries.iter().filter(|(_, entry)| entry.breaker.held.is_none());
    if entries.len() >= MAX_KEYS
        && let Some(oldest) = free.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
    {
        entries.remove(&oldest);
    }
}

impl BreakerEntry {
    fn is_stale(&self, now: Moment) -> bool {
        let lasts = match self.breaker.state {
            BreakerState::Closed => false,
            BreakerState::Open { until } => until > now,
            BreakerState::HalfOpen { probe_ends, .. } => probe_ends.is_some_and(|end| end > now),
        };
        self.breaker.held.is_none() && !lasts && now.since(self.used) > KEY_RETENTION
    }
}

fn snapshot(key: &str, breaker: &Breaker, now: Moment) -> BreakerSnapshot {
    let milliseconds = |end: Moment| u64::try_from(end.since(now).as_millis()).unwrap_or(u64::MAX);
    let (state, retry_after, probe_ends, successes) = match breaker.state {
        _ if breaker.held == Some(Hold::Open) => ("open", None, None, 0),
        BreakerState::Closed => ("closed", None, None, 0),
        BreakerState::Open { until } => ("open", Some(until), None, 0),
        BreakerState::HalfOpen { probe_ends, successes } => ("half_open", None, probe_ends, successes),
    };
    BreakerSnapshot {
        key: key.to_owned(),
        state: state.to_owned(),
        held: breaker.held,
        retry_after_ms: retry_after.map(milliseconds),
        failures_in_a_row: breaker.consecutive_failures,
        times_opened: breaker.times_opened,
        successes,
        probe_ends_ms: probe_ends.map(|end| match end > now {
            true => i64::try_from(milliseconds(end)).unwrap_or(i64::MAX),
            false => i64::try_from(now.since(end).as_millis()).map_or(i64::MIN, |past| -past),
        }),
        probe_of: breaker.probe_of.clone(),
        generation: breaker.generation,
        window: breaker.window.iter().copied().collect(),
        said: breaker.messages.iter().cloned().collect(),
    }
}

impl OpenBreaker {
    /// Returns the message for a model that asked for `key`: a line to act on, then when the key is
    /// tried again, and why it is not tried now.
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
        if self.consecutive_failures > 0 {
            write!(formatter, ", after {} failures in a row", self.consecutive_failures)?;
        }
        match self.messages.last() {
            Some(message) => write!(formatter, "; the last: {message}"),
            None => Ok(()),
        }
    }
}
