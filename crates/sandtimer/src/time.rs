//! Moments, pauses, and the atomic cell that holds a deadline.
//!
//! Nothing here reads a clock or waits; the caller passes the time. An extension and the firing of
//! a deadline can meet in the same nanosecond, on two threads, and exactly one of them may win:
//! both are a compare-and-set of the same word of a [`DeadlineCell`].

mod calendar;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use calendar::instant;

pub use crate::limits::FAR_FUTURE;
use crate::limits::{bound_wall, fitting_grace, nanoseconds};

/// A point on CLOCK_MONOTONIC, in nanoseconds. Comparable within one boot of one machine only.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::Moment;
///
/// let start = Moment::from_nanos(1_000);
/// let end = start.after(Duration::from_nanos(500));
/// assert_eq!(end.as_nanos(), 1_500);
/// assert_eq!(end.since(start), Duration::from_nanos(500));
/// assert_eq!(start.since(end), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The latest moment, 292 years after the clock's zero. Arithmetic saturates here.
    pub const MAX: Moment = Moment(NEVER - 1);

    /// The moment at which the clock reads this many nanoseconds.
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        if nanoseconds > Self::MAX.0 { Self::MAX } else { Self(nanoseconds) }
    }

    /// Nanoseconds on the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This much later, at most [`FAR_FUTURE`] later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_nanos(self.0.saturating_add(nanoseconds(duration)))
    }

    /// This much earlier, not before the clock's zero.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(duration)))
    }

    /// Time from `earlier` to this moment; zero when `earlier` is the later one.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where the time comes from: the system's clock, or a test.
pub trait Clock: Send + Sync {
    /// The moment it is.
    fn now(&self) -> Moment;
}

/// A clock that moves only when the test moves it.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct FakeClock(AtomicU64);

#[cfg(test)]
impl FakeClock {
    pub(crate) fn advance(&self, duration: Duration) {
        self.0.fetch_add(nanoseconds(duration), Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for FakeClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// Set in a cell's word once its run's ending has begun. No moment reaches this bit.
const FIRED: u64 = 1 << 63;
/// A cell's word without a deadline.
const NEVER: u64 = FIRED - 1;

/// The deadline has fired; it cannot be moved any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the deadline has already fired")]
pub struct TooLate;

/// What [`DeadlineCell::fire`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fire {
    /// This call fired the deadline, which was at that moment. No other call ever gets this.
    Fired(Moment),
    /// The deadline is still ahead, at that moment.
    NotYet(Moment),
    /// There is no deadline.
    Never,
    /// The ending has already begun.
    AlreadyFired,
}

/// A scope's wall end and what bounds its hard end, shared without a lock between the threads that
/// move the deadline and those that enforce it.
///
/// Any number of threads may fire and read; threads that set must take turns (the lock around a
/// [`ScopeTree`](crate::scope::ScopeTree) handles it).
///
/// ```
/// use std::time::Duration;
/// use sandtimer::time::{DeadlineCell, Fire, Moment};
///
/// let (wall, late) = (Moment::from_nanos(100), Moment::from_nanos(101));
/// let cell = DeadlineCell::new(Duration::ZERO);
/// assert!(cell.set(Some(wall)).is_ok());
/// assert_eq!(cell.fire(late), Fire::Fired(wall));
/// // An extension that comes after that fails.
/// assert!(cell.set(Some(Moment::from_nanos(200))).is_err());
/// ```
#[derive(Debug)]
pub struct DeadlineCell {
    /// `FIRED` or not, and the wall end or `NEVER`. The only word in which firing and extending
    /// meet.
    wall: AtomicU64,
    /// When the innermost ancestor's tree is dead, or `NEVER`. True by itself at every moment,
    /// whatever the wall is, so it needs no common transaction with it.
    bound: AtomicU64,
    /// Time between wall end and kill, in nanoseconds.
    grace: AtomicU64,
    /// Threads that set it count from the beginning of the clock by now.
    has_begun: AtomicBool,
}

impl DeadlineCell {
    /// A cell without a deadline. `grace` is the time between wall end and kill.
    pub fn new(grace: Duration) -> Self {
        Self {
            wall: AtomicU64::new(NEVER),
            bound: AtomicU64::new(NEVER),
            grace: AtomicU64::new(nanoseconds(grace)),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Moves the wall end, or takes it away.
    ///
    /// # Errors
    /// [`TooLate`] when the old one has fired; then nothing is changed.
    pub fn set(&self, wall_end: Option<Moment>) -> Result<(), TooLate> {
        let new = encode(wall_end);
        let mut bits = self.wall.load(Ordering::Acquire);
        while bits & FIRED == 0 {
            match self.wall.compare_exchange_weak(bits, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(actual) => bits = actual,
            }
        }
        Err(TooLate)
    }

    /// Sets the wall end of a clock that begins at `start`: what `own_end` makes of the previous
    /// one, or earlier if the bound leaves no room for the grace after it. A grace that does not
    /// fit any more is cut to half of what the bound leaves.
    ///
    /// Concurrent with [`set`](Self::set): `own_end` is asked about what that has set, and it stays
    /// where it counts from `start` already.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn begin(
        &self,
        start: Moment,
        own_end: impl Fn(Option<Moment>) -> Option<Moment>,
    ) -> Result<(), TooLate> {
        let mut bits = self.wall.load(Ordering::Acquire);
        while bits & FIRED == 0 {
            if self.has_begun.load(Ordering::Acquire) {
                return Ok(());
            }
            let bound = decode(self.bound.load(Ordering::Acquire)).map(Moment::as_nanos);
            let own_end = own_end(decode(bits)).map(Moment::as_nanos);
            let from_start = |end: u64| end.saturating_sub(start.as_nanos());
            let grace =
                fitting_grace(own_end.map(from_start), nanoseconds(self.grace()), bound.map(from_start));
            self.set_grace(Duration::from_nanos(grace));
            let walled = bound_wall(own_end, grace, start.as_nanos(), &[bound]);
            let new = encode(walled.map(|walled| Moment::from_nanos(walled.wall)));
            match self.wall.compare_exchange_weak(bits, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(actual) => bits = actual,
            }
        }
        Err(TooLate)
    }

    /// What is set from now on counts from the beginning of the clock: [`begin`](Self::begin)
    /// leaves it alone.
    pub fn note_begun(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    /// Sets by when everything must be dead whatever the own wall and grace are; also after the
    /// wall has fired.
    pub fn set_bound(&self, bound: Option<Moment>) {
        self.bound.store(encode(bound), Ordering::Release);
    }

    /// Sets the time between wall end and kill.
    pub fn set_grace(&self, grace: Duration) {
        self.grace.store(nanoseconds(grace), Ordering::Release);
    }

    /// Fires the deadline if it is due: exactly one call does, and no [`set`](Self::set) succeeds
    /// after it.
    pub fn fire(&self, now: Moment) -> Fire {
        let mut bits = self.wall.load(Ordering::Acquire);
        loop {
            let Some(wall_end) = decode(bits) else {
                return if bits & FIRED == 0 { Fire::Never } else { Fire::AlreadyFired };
            };
            if bits & FIRED != 0 {
                return Fire::AlreadyFired;
            }
            if wall_end > now {
                return Fire::NotYet(wall_end);
            }
            match self.wall.compare_exchange_weak(bits, bits | FIRED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Fire::Fired(wall_end),
                Err(actual) => bits = actual,
            }
        }
    }

    /// Begins the ending for another reason than the deadline (exit, cancel, another limit): the
    /// deadline can be neither fired nor moved after this. Returns whether this call was the first.
    pub fn seal(&self) -> bool {
        self.wall.fetch_or(FIRED, Ordering::AcqRel) & FIRED == 0
    }

    /// Whether the ending has begun.
    pub fn is_fired(&self) -> bool {
        self.wall.load(Ordering::Acquire) & FIRED != 0
    }

    /// The time between wall end and kill.
    pub fn grace(&self) -> Duration {
        Duration::from_nanos(self.grace.load(Ordering::Acquire))
    }

    /// When the deadline fires, or fired; `None` without a deadline.
    pub fn wall_end(&self) -> Option<Moment> {
        decode(self.wall.load(Ordering::Acquire))
    }

    /// When everything must be dead: wall end plus grace, and not after the bound. An enforcer
    /// reads it again when it wakes for it, for the bound may have moved.
    pub fn hard_end(&self) -> Option<Moment> {
        let own = self.wall_end().map(|wall_end| wall_end.after(self.grace()));
        let bound = decode(self.bound.load(Ordering::Acquire));
        [own, bound].into_iter().flatten().min()
    }
}

fn encode(moment: Option<Moment>) -> u64 {
    moment.map_or(NEVER, Moment::as_nanos)
}

fn decode(bits: u64) -> Option<Moment> {
    let moment = bits & !FIRED;
    (moment != NEVER).then_some(Moment(moment))
}

/// A pause that does not fit: the watch was already paused, or was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopwatchError {
    /// A pause of a stopwatch that is already paused.
    #[error("already paused")]
    AlreadyPaused,
    /// A resumption of a stopwatch that is running.
    #[error("not paused")]
    NotPaused,
}

/// How long something has run, and how long it was paused.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::time::{Moment, Stopwatch};
///
/// let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
/// let mut watch = Stopwatch::started(at(10));
/// watch.pause(at(12))?;
/// assert_eq!(watch.resume(at(15))?, Duration::from_secs(3));
/// assert_eq!(watch.paused(at(20)), Duration::from_secs(3));
/// # Ok::<(), sandtimer::time::StopwatchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopwatch {
    /// The time counts.
    Running {
        /// When it was started.
        start: Moment,
        /// The sum of the pauses so far.
        paused: Duration,
    },
    /// The time is stopped.
    Paused {
        /// When it was started.
        start: Moment,
        /// The sum of the earlier pauses.
        paused: Duration,
        /// When the present pause began.
        since: Moment,
    },
}

impl Stopwatch {
    /// A running watch.
    pub fn started(start: Moment) -> Self {
        Stopwatch::Running { start, paused: Duration::ZERO }
    }

    /// When it was started.
    pub fn start(&self) -> Moment {
        match self {
            Stopwatch::Running { start, .. } | Stopwatch::Paused { start, .. } => *start,
        }
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        matches!(self, Stopwatch::Paused { .. })
    }

    /// Stops counting.
    ///
    /// # Errors
    /// [`StopwatchError::AlreadyPaused`].
    pub fn pause(&mut self, now: Moment) -> Result<(), StopwatchError> {
        match *self {
            Stopwatch::Running { start, paused } => {
                *self = Stopwatch::Paused { start, paused, since: now };
                Ok(())
            }
            Stopwatch::Paused { .. } => Err(StopwatchError::AlreadyPaused),
        }
    }

    /// Counts on. Returns how long the pause was.
    ///
    /// # Errors
    /// [`StopwatchError::NotPaused`].
    pub fn resume(&mut self, now: Moment) -> Result<Duration, StopwatchError> {
        match *self {
            Stopwatch::Paused { start, paused, since } => {
                let pause = now.since(since);
                *self = Stopwatch::Running { start, paused: paused.saturating_add(pause) };
                Ok(pause)
            }
            Stopwatch::Running { .. } => Err(StopwatchError::NotPaused),
        }
    }

    /// The sum of all pauses, the present one included.
    pub fn paused(&self, now: Moment) -> Duration {
        match *self {
            Stopwatch::Running { paused, .. } => paused,
            Stopwatch::Paused { paused, since, .. } => paused.saturating_add(now.since(since)),
        }
    }

    /// Time since the start, pauses left out.
    pub fn elapsed(&self, now: Moment) -> Duration {
        now.since(self.start()).saturating_sub(self.paused(now))
    }
}
