//! The store's clock: CLOCK_BOOTTIME plus an offset from the calendar that is chosen once per boot.
//! All programs that open the database in one boot have the same clock, and setting the calendar
//! moves nothing. It never goes back.
//!
//! The calendar may have been wrong when the offset was chosen. So moments on the calendar
//! (`not_before_ms`, schedules) follow the calendar: `skew` is by how much it is ahead, and jobs
//! that wait for a moment are moved when it has changed.

use sandtimer_os::clock::{boot_milliseconds, calendar_milliseconds};

use crate::job::StoreError;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::values::{broken, execute};

/// Smaller differences are the clocks' own, which are adjusted together.
const MAX_SKEW_MS: i64 = 1_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum StoreClock {
    Running {
        offset_ms: i64,
        /// By how much CLOCK_BOOTTIME is ahead in this process's time namespace.
        namespace_ms: i64,
    },
    /// For tests that set the time.
    #[cfg(test)]
    Stopped { now: i64, calendar: i64 },
}

impl StoreClock {
    /// The clock of this database in this boot.
    pub fn of(connection: &mut Connection) -> Result<Self, StoreError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let namespace_ms = boot_offset_ms(&offsets);
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
        let known = tx
            .query_row("SELECT offset_ms FROM clock WHERE boot = ?1", [boot], |row| row.get::<_, i64>(0))
            .optional()
            .map_err(broken)?;
        if let Some(offset_ms) = known {
            return Ok(StoreClock::Running { offset_ms, namespace_ms });
        }
        let latest = "SELECT max(max(submitted_ms), max(coalesce(leased_ms, 0)), max(coalesce(ended_ms, 0))) FROM jobs";
        let latest: Option<i64> = tx.query_row(latest, [], |row| row.get(0)).map_err(broken)?;
        let now = (calendar_milliseconds() as i64).max(latest.unwrap_or(0));
        let offset_ms = now - (boot_milliseconds() as i64 - namespace_ms);
        let insert = "INSERT OR REPLACE INTO clock (one, boot, offset_ms) VALUES (1, ?1, ?2)";
        tx.execute(insert, params![boot, offset_ms]).map_err(broken)?;
        tx.commit().map_err(broken)?;
        Ok(StoreClock::Running { offset_ms, namespace_ms })
    }

    /// The calendar's time, which schedules follow.
    pub fn calendar(self) -> i64 {
        match self {
            StoreClock::Running { .. } => calendar_milliseconds() as i64,
            #[cfg(test)]
            StoreClock::Stopped { calendar, .. } => calendar,
        }
    }

    /// By how much the calendar is ahead of this clock, if that is more than clocks differ by
    /// themselves.
    pub fn skew(self) -> i64 {
        let skew = self.calendar() - self.now();
        if skew.abs() > MAX_SKEW_MS { skew } else { 0 }
    }

    pub fn now(self) -> i64 {
        match self {
            StoreClock::Running { offset_ms, namespace_ms } => {
                offset_ms + boot_milliseconds() as i64 - namespace_ms
            }
            #[cfg(test)]
            StoreClock::Stopped { now, .. } => now,
        }
    }
}

/// The offset of CLOCK_BOOTTIME in a time namespace, as /proc/PID/timens_offsets has it
/// (time_namespaces(7)).
fn boot_offset_ms(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.into_iter().flat_map(str::split_whitespace).map(str::parse::<i64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(nanoseconds))) => seconds * 1_000 + nanoseconds / 1_000_000,
        _ => 0,
    }
}

/// Whether jobs that wait for a moment on the calendar wait by this skew.
pub(super) fn is_followed(tx: &Transaction<'_>, skew: i64) -> Result<bool, StoreError> {
    let select = "SELECT abs(skew_ms - ?1) <= ?2 FROM clock";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    select.query_row((skew, MAX_SKEW_MS), |row| row.get(0)).map_err(broken)
}

/// The calendar was set: has jobs that wait for a moment on it wait by the new skew.
pub(super) fn follow(tx: &Transaction<'_>, skew: i64) -> Result<(), StoreError> {
    execute(tx, "UPDATE clock SET skew_ms = ?1", [skew])?;
    let update = "UPDATE jobs SET due_ms = start_ms - ?1 WHERE state = 0 AND start_ms IS NOT NULL";
    execute(tx, update, [skew]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_a_time_namespace_is_read() {
        let offsets = "monotonic           5         0\nboottime      -172800 500000000\n";
        assert_eq!(boot_offset_ms(offsets), -172_799_500);
        assert_eq!(boot_offset_ms("monotonic 0 0\nboottime 0 0\n"), 0);
        assert_eq!(boot_offset_ms(""), 0);
    }
}
