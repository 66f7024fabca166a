//! The store's clock: CLOCK_BOOTTIME plus an offset from the calendar that is chosen once per boot. All who open the
//! database in one boot have the same clock, and setting the calendar moves nothing. It never goes back.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sandtimer::job::StoreError;
use sandtimer_os::clock::{boot_milliseconds, calendar_milliseconds};

use super::broken;

#[derive(Debug, Clone, Copy)]
pub(super) enum StoreClock {
    Running {
        offset_ms: i64,
    },
    /// For schedules that say what time it is.
    #[cfg(test)]
    Stopped {
        now: i64,
    },
}

impl StoreClock {
    /// The clock of this database in this boot.
    pub fn of(connection: &mut Connection) -> Result<Self, StoreError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
        let known = tx
            .query_row("SELECT offset_ms FROM clock WHERE boot = ?1", [boot], |row| row.get::<_, i64>(0))
            .optional()
            .map_err(broken)?;
        if let Some(offset_ms) = known {
            return Ok(StoreClock::Running { offset_ms });
        }
        let latest = "SELECT max(max(submitted_ms), max(coalesce(leased_ms, 0)), max(coalesce(ended_ms, 0))) FROM jobs";
        let latest: Option<i64> = tx.query_row(latest, [], |row| row.get(0)).map_err(broken)?;
        let now = (calendar_milliseconds() as i64).max(latest.unwrap_or(0));
        let offset_ms = now - boot_milliseconds() as i64;
        tx.execute("INSERT OR REPLACE INTO clock VALUES (1, ?1, ?2)", params![boot, offset_ms])
            .map_err(broken)?;
        tx.commit().map_err(broken)?;
        Ok(StoreClock::Running { offset_ms })
    }

    /// The calendar's time, which schedules follow.
    pub fn calendar(self) -> i64 {
        match self {
            StoreClock::Running { .. } => calendar_milliseconds() as i64,
            #[cfg(test)]
            StoreClock::Stopped { now } => now,
        }
    }

    pub fn now(self) -> i64 {
        match self {
            StoreClock::Running { offset_ms } => offset_ms + boot_milliseconds() as i64,
            #[cfg(test)]
            StoreClock::Stopped { now } => now,
        }
    }
}
