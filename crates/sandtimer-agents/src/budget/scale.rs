//! Multiplies durations by factors.

use std::time::Duration;

use sandtimer::limits::nanoseconds;

/// A duration times a factor, at most thirty years.
pub(super) fn scaled(duration: Duration, factor: f64) -> Duration {
    let nanos = nanoseconds(duration) as f64 * factor;
    Duration::from_nanos(nanos.min(nanoseconds(sandtimer::limits::FAR_FUTURE) as f64) as u64)
}
