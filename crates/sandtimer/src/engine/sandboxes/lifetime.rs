//! What bounds the life of a sandbox, and its clocks.
//!
//! ```text
//! used ⇄ unused ── for as long as `idle` ──▶ ended, as by deletion; its id answers with the limit
//!   └────────── `wall` has passed ───────────┘
//! ```
//! While it is paused no process in it runs, and neither limit ends it: at resume `wall` ends later
//! by the length of the pause, and `idle` begins again.
//!
//! The wall-clock limit is that of the sandbox's scope, so that the enforcer ends the runs inside
//! on time. Both clocks are those of the record, so that the end of the engine neither moves nor
//! stops them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::process::Signal;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use sandtimer_os::control::InitControl;
use sandtimer_os::process;
use sandtimer_os::wire::order;
use serde::{Deserialize, Serialize};

use crate::isolate::cgroup::Slot;
use crate::limits::{Limits, Setting};
use crate::model::LimitKind;
use crate::scope::CarriedDeadline;
use crate::time::Moment;

/// A limit of a sandbox as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SandboxLimit {
    /// How long it may be unused.
    Idle,
    /// How long it may exist, pauses not counted.
    Wall,
}

impl SandboxLimit {
    /// Its name in messages.
    pub fn text(self) -> &'static str {
        match self {
            SandboxLimit::Idle => "idle limit",
            SandboxLimit::Wall => "wall-clock limit",
        }
    }
}

/// The limits of a sandbox as a whole, and what is left of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxLife {
    /// The time without use after which the sandbox is deleted; `None` without such a limit.
    pub idle: Option<Duration>,
    /// What is left of `idle` now; `None` without such a limit.
    pub idle_left: Option<Duration>,
    /// How long it may exist, with its extensions and without its pauses; `None` without such a
    /// limit.
    pub wall: Option<Duration>,
    /// What is left of `wall` now; `None` without such a limit.
    pub wall_left: Option<Duration>,
    /// Whether the processes are frozen and the clocks are stopped.
    pub is_paused: bool,
}

/// The part of a record that determines how long a sandbox lives.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RecordedLife {
    pub idle_ms: Option<u64>,
    /// With its extensions.
    pub wall_ms: Option<u64>,
    /// Milliseconds since the epoch; moved by the length of a pause when that ends.
    pub wall_end_ms: Option<u64>,
    /// Milliseconds since the epoch; there while it is paused.
    pub paused_at_ms: Option<u64>,
}

impl RecordedLife {
    /// Of a sandbox that begins now.
    pub fn new(limits: &Limits, now_ms: u64) -> Self {
        let milliseconds = |kind| match limits.get(kind) {
            Setting::At(nanoseconds) => Some(nanoseconds.div_ceil(1_000_000)),
            _ => None,
        };
        let life = RecordedLife {
            idle_ms: milliseconds(LimitKind::Idle),
            wall_ms: milliseconds(LimitKind::Wall),
            ..RecordedLife::default()
        };
        life.renewed(now_ms)
    }

    /// The same limits, of a sandbox that begins now.
    pub fn renewed(&self, now_ms: u64) -> Self {
        let wall_end_ms = self.wall_ms.map(|wall| now_ms.saturating_add(wall));
        RecordedLife { wall_end_ms, paused_at_ms: None, ..self.clone() }
    }

    /// What its scope has for its own.
    pub fn scope_limits(&self) -> Limits {
        self.wall_ms.map_or_else(Limits::new, |wall| Limits::new().wall(Duration::from_millis(wall)))
    }

    /// The clock of its scope, as it was recorded.
    pub fn carried(&self, now: Moment, now_ms: u64) -> CarriedDeadline {
        let left = self.wall_end_ms.zip(self.wall_ms).map(|(end, wall)| {
            // A clock that was set back extends nothing. A paused sandbox has at least a
            // millisecond left: a scope whose deadline has passed cannot be paused.
            let least = u64::from(self.paused_at_ms.is_some());
            end.saturating_sub(self.paused_at_ms.unwrap_or(now_ms)).min(wall).max(least)
        });
        let own_end = left.map(|left| now.after(Duration::from_millis(left)));
        let start = own_end.zip(self.wall_ms).map(|(end, wall)| end.before(Duration::from_millis(wall)));
        CarriedDeadline { start: start.map_or(now, |start| start.min(now)), own_end }
    }

    pub fn resumed(&self, now_ms: u64) -> Self {
        let pause = self.paused_at_ms.map_or(0, |at| now_ms.saturating_sub(at));
        let wall_end_ms = self.wall_end_ms.map(|end| end.saturating_add(pause));
        RecordedLife { wall_end_ms, paused_at_ms: None, ..self.clone() }
    }

    pub fn extended(&self, by_ms: u64) -> Self {
        let later = |time: Option<u64>| time.map(|time| time.saturating_add(by_ms));
        RecordedLife { wall_ms: later(self.wall_ms), wall_end_ms: later(self.wall_end_ms), ..self.clone() }
    }
}

/// The clocks of a sandbox, for readers that do not wait for its record.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// Nanoseconds; under the ceilings.
    pub idle: Option<u64>,
    pub has_wall: bool,
    /// When it has been unused for long enough, if it is not used until then. Monotonic
    /// nanoseconds.
    pub idle_end: AtomicU64,
    pub is_paused: AtomicBool,
}

impl Lifetime {
    pub fn new(recorded: &RecordedLife, ceiling: Option<u64>, used_at_ms: u64) -> Self {
        let own = recorded.idle_ms.map(|idle| idle.saturating_mul(1_000_000));
        let idle = own.into_iter().chain(ceiling).min();
        let unused = calendar_milliseconds().saturating_sub(used_at_ms).saturating_mul(1_000_000);
        let left = idle.map_or(u64::MAX, |idle| idle.saturating_sub(unused));
        Lifetime {
            idle,
            has_wall: recorded.wall_ms.is_some(),
            idle_end: AtomicU64::new(monotonic_nanoseconds().saturating_add(left)),
            is_paused: AtomicBool::new(recorded.paused_at_ms.is_some()),
        }
    }

    /// Begins the idle clock again.
    pub fn restart_idle(&self) {
        let idle = self.idle.unwrap_or(u64::MAX);
        self.idle_end.store(monotonic_nanoseconds().saturating_add(idle), Ordering::Relaxed);
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }
}

/// What a live context or session of a sandbox runs in.
#[derive(Debug)]
pub(super) struct Freezable {
    slot: Weak<Slot>,
    control: Weak<InitControl>,
}

impl Freezable {
    pub fn new(slot: &Arc<Slot>, control: &Arc<InitControl>) -> Self {
        Freezable { slot: Arc::downgrade(slot), control: Arc::downgrade(control) }
    }

    /// Whether it has not ended.
    pub fn is_there(&self) -> bool {
        self.slot.strong_count() > 0
    }

    /// Stops or continues its processes. False if it has ended.
    pub fn freeze(&self, is_frozen: bool) -> bool {
        let (Some(slot), Some(control)) = (self.slot.upgrade(), self.control.upgrade()) else { return false };
        freeze(&slot, &control, is_frozen);
        true
    }
}

fn freeze(slot: &Slot, control: &InitControl, is_frozen: bool) {
    if !slot.freeze(is_frozen) {
        // Without a freezer: what init can reach is stopped by a signal.
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let _ = process::send_command(control, order::SIGNAL_ALL, signal.as_raw(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(wall_ms: u64, wall_end_ms: u64, paused_at_ms: Option<u64>) -> RecordedLife {
        let (wall_ms, wall_end_ms) = (Some(wall_ms), Some(wall_end_ms));
        RecordedLife { idle_ms: None, wall_ms, wall_end_ms, paused_at_ms }
    }

    #[test]
    fn restart_neither_extends_nor_resets_the_wall() {
        let now = Moment::from_nanos(1_000_000_000_000);
        let milliseconds = |count| Duration::from_millis(count);
        let recorded = life(10_000, 50_000, None);
        for (now_ms, left) in [(20_000, 10_000), (40_000, 10_000), (47_000, 3_000), (50_000, 0), (90_000, 0)]
        {
            let carried = recorded.carried(now, now_ms);
            assert_eq!(carried.own_end, Some(now.after(milliseconds(left))), "{now_ms}");
            assert_eq!(carried.start, now.after(milliseconds(left)).before(milliseconds(10_000)));
        }
    }

    #[test]
    fn pause_moves_the_end_by_its_length() {
        let now = Moment::from_nanos(1_000_000_000_000);
        let paused = life(10_000, 50_000, Some(47_000));
        assert_eq!(paused.carried(now, 99_000).own_end, Some(now.after(Duration::from_secs(3))));
        // A clock that was set ahead before the pause: there is something left to hold.
        let over = life(10_000, 50_000, Some(70_000));
        assert_eq!(over.carried(now, 99_000).own_end, Some(now.after(Duration::from_millis(1))));
        assert_eq!(paused.resumed(60_000), life(10_000, 63_000, None));
        assert_eq!(paused.extended(500), life(10_500, 50_500, Some(47_000)));
        assert_eq!(paused.renewed(1_000), life(10_000, 11_000, None));
    }
}
