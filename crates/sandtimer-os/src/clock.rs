//! The only place that reads a clock.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds: what deadlines are measured with. It stops while the machine is
/// suspended.
pub fn monotonic_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Milliseconds since 1970 on the calendar's clock, which may be set: for what people read, never
/// for a deadline.
pub fn calendar_milliseconds() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// What the calendar's clock, which may be set, would have shown at a time of
/// [`monotonic_nanoseconds`], in nanoseconds since 1970: to compare with times of files.
pub fn calendar_nanoseconds_of(monotonic: u64) -> u64 {
    calendar_nanoseconds().saturating_sub(monotonic_nanoseconds().saturating_sub(monotonic))
}

/// Nanoseconds since 1970 on the calendar's clock.
pub fn calendar_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What files that are changed now are stamped with at the earliest: the calendar's clock at its
/// last tick, in nanoseconds since 1970.
pub fn file_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Processor time of the calling thread, in nanoseconds.
pub fn thread_cpu_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// CLOCK_BOOTTIME in milliseconds: as the monotonic clock, and it continues while the machine is
/// suspended.
pub fn boot_milliseconds() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}
