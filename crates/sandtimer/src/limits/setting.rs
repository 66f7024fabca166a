//! What one place sets for one limit, and the longest duration.

use std::time::Duration;

/// The longest duration: 30 years. Longer ones saturate here.
///
/// Some kernels and libraries refuse, or wrap, time-outs of centuries; none refuses this one.
pub const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A duration in nanoseconds, at most [`FAR_FUTURE`].
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.min(FAR_FUTURE).as_nanos()).expect("30 years of nanoseconds fit in 60 bits")
}

/// What one place sets for one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Nothing: the next place in order decides.
    #[default]
    Inherit,
    /// Explicitly no limit. Beats every later place; never beats an ancestor or a ceiling.
    Unlimited,
    /// This limit: nanoseconds, bytes or a count, by the kind of limit. Zero is a limit of zero;
    /// only on wires does 0 mean unlimited, and the parsers turn it into [`Setting::Unlimited`].
    At(u64),
}
