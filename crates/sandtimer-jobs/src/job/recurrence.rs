//! When a recurring job is due: a cron expression in a time zone, or a fixed interval.
//!
//! Cron expressions are those of crontab(5): five fields, or a nickname such as `@daily`. At a
//! change of daylight-saving time they follow Vixie cron: a fixed time that the change skips is due
//! when the change is done, a time that the change repeats is due once, and expressions for every
//! hour or minute follow elapsed time.

use std::time::Duration;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, Direction};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use super::error::{SpecError, missing};
use super::table::{SpecTable, refused};

/// Shorter intervals are work for a loop, not for a queue.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
const NICKNAMES: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const EXPRESSION: &str = "five fields (minute, hour, day of month, month, day of week) such as `30 3 * * mon-fri`, or one of \
    @hourly, @daily, @weekly, @monthly, @yearly";

/// The moments at which a recurring job is due.
#[derive(Debug, Clone)]
pub enum Recurrence {
    /// At the moments of a cron expression.
    Cron {
        /// The five fields of the expression.
        expression: Box<Cron>,
        /// The time zone in which they count; by default UTC.
        time_zone: TimeZone,
    },
    /// At a fixed interval, from 1 s to ten years, in whole milliseconds.
    Every(Duration),
}

/// The moment of a schedule for which a job was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledMoment {
    /// The name of the schedule.
    pub schedule: String,
    /// Milliseconds since 1970.
    pub moment_ms: u64,
}

impl Recurrence {
    /// Returns the first moment after `now_ms` at which a schedule that is stored now is due;
    /// `None` if there is none. Moments are in milliseconds since 1970.
    pub fn first(&self, now_ms: u64) -> Option<u64> {
        self.next(now_ms, now_ms)
    }

    /// Returns the first moment after `after_ms`; `known_ms` is any moment at which the job is due.
    pub fn next(&self, known_ms: u64, after_ms: u64) -> Option<u64> {
        match self {
            Recurrence::Cron { expression, time_zone } => {
                occurrence(expression, time_zone, after_ms, false, Direction::Forward)
            }
            Recurrence::Every(interval) => {
                let interval = interval.as_millis() as u64;
                let passed = after_ms.saturating_sub(known_ms) / interval;
                Some(known_ms.saturating_add((passed + 1).saturating_mul(interval)))
            }
        }
    }

    /// Returns the last moment at or before `until_ms`, which must not be before `known_ms`, a
    /// moment at which the job is due.
    pub fn last(&self, known_ms: u64, until_ms: u64) -> u64 {
        match self {
            Recurrence::Cron { expression, time_zone } => {
                occurrence(expression, time_zone, until_ms, true, Direction::Backward)
                    .map_or(known_ms, |last| last.max(known_ms))
            }
            Recurrence::Every(interval) => {
                let interval = interval.as_millis() as u64;
                known_ms + until_ms.saturating_sub(known_ms) / interval * interval
            }
        }
    }

    /// Reads `cron` with `time_zone`, or `every_ms`. A time zone alone is refused.
    pub(super) fn read(table: &mut SpecTable) -> Result<Self, SpecError> {
        let (cron_path, zone_path, every_path) =
            (table.at("cron"), table.at("time_zone"), table.at("every_ms"));
        let (cron, zone) = (table.string("cron")?, table.string("time_zone")?);
        match (cron, table.time("every_ms")?) {
            (Some(_), Some(_)) => Err(SpecError {
                path: every_path,
                problem: "cannot be combined with `cron`; use one of them".to_owned(),
            }),
            (Some(text), None) => {
                let time_zone = zone.map_or(Ok(TimeZone::UTC), |name| time_zone(&zone_path, &name))?;
                let expression = expression(&cron_path, &text)?;
                Ok(Recurrence::Cron { expression: Box::new(expression), time_zone })
            }
            (None, Some(_)) if zone.is_some() => Err(SpecError {
                path: zone_path,
                problem: "has no effect on `every_ms`, which is elapsed time; leave it out, or use `cron`"
                    .to_owned(),
            }),
            (None, Some(interval)) if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) => {
                Err(refused(&every_path, &(interval.as_millis() as u64).into(), "1s to ten years"))
            }
            // Whole milliseconds, as moments are.
            (None, Some(interval)) => {
                Ok(Recurrence::Every(Duration::from_millis(interval.as_millis() as u64)))
            }
            (None, None) => Err(missing(&cron_path, "`cron` or `every_ms`")),
        }
    }
}

fn time_zone(path: &str, name: &str) -> Result<TimeZone, SpecError> {
    let unknown =
        "the name of a time zone of the IANA database, such as `Europe/Berlin`, `America/New_York` or `UTC`";
    TimeZone::get(name).map_err(|_| refused(path, &name.into(), unknown))
}

fn expression(path: &str, text: &str) -> Result<Cron, SpecError> {
    // The parser reads an unknown nickname, and seconds, where a crontab has neither.
    if text.contains('@') && !NICKNAMES.contains(&text.trim().to_ascii_lowercase().as_str()) {
        return Err(refused(path, &text.into(), EXPRESSION));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| {
        let rejection = refused(path, &text.into(), EXPRESSION);
        let fields = text.split_whitespace().count();
        let reason = if fields == 5 { error.to_string() } else { format!("it has {fields} fields") };
        SpecError { problem: format!("{} ({reason})", rejection.problem), ..rejection }
    })
}

fn occurrence(
    expression: &Cron,
    time_zone: &TimeZone,
    moment_ms: u64,
    is_inclusive: bool,
    direction: Direction,
) -> Option<u64> {
    let from = Timestamp::from_millisecond(i64::try_from(moment_ms).ok()?).ok()?;
    let from: Zoned = from.to_zoned(time_zone.clone());
    let found = match direction {
        Direction::Forward => expression.find_next_occurrence(&from, is_inclusive),
        Direction::Backward => expression.find_previous_occurrence(&from, is_inclusive),
    };
    u64::try_from(found.ok()?.timestamp().as_millisecond()).ok()
}

/// A moment as RFC 3339 has it, in a time zone if there is one.
pub fn rfc3339(moment_ms: u64, time_zone: Option<&str>) -> String {
    let moment = i64::try_from(moment_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let zone = time_zone.and_then(|name| TimeZone::get(name).ok());
    match (moment, zone) {
        (None, _) => moment_ms.to_string(),
        (Some(moment), None) => moment.to_string(),
        (Some(moment), Some(zone)) => moment.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(source: Value) -> Result<Recurrence, SpecError> {
        let mut table = SpecTable::of(source, "", 1.0)?;
        let recurrence = Recurrence::read(&mut table)?;
        table.done().map(|()| recurrence)
    }

    fn milliseconds(moment: &str) -> u64 {
        moment.parse::<Timestamp>().expect("RFC 3339").as_millisecond().try_into().expect("after 1970")
    }

    /// The moments of an expression after a moment, forwards and, from the last of them, backwards.
    fn check(cron: &str, zone: &str, from: &str, expected: &[&str]) {
        let recurrence = read(json!({"cron": cron, "time_zone": zone})).expect("valid");
        let mut moments = Vec::new();
        let mut after = milliseconds(from);
        for _ in expected {
            after = recurrence.next(after, after).expect("a moment");
            moments.push(after);
        }
        let shown: Vec<String> = moments.iter().map(|moment| rfc3339(*moment, None)).collect();
        assert_eq!(shown, expected, "{cron} in {zone}");
        for pair in moments.windows(2) {
            assert_eq!(recurrence.last(0, pair[1] - 1), pair[0], "{cron} in {zone}");
            assert_eq!(recurrence.last(0, pair[0]), pair[0], "{cron} in {zone}");
        }
    }

    #[test]
    fn fixed_time_in_a_gap_is_due_when_the_change_is_done() {
        // 02:30 does not exist on the 29th in Berlin, on the 8th in New York.
        let berlin = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", &berlin);
        let york = ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"];
        check("30 2 * * *", "America/New_York", "2026-03-07T00:00:00Z", &york);
        // Half an hour is skipped: from 02:00 to 02:30.
        let howe = ["2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"];
        check("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z", &howe);
    }

    #[test]
    fn fixed_time_that_is_repeated_is_due_once() {
        let berlin = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
        check("30 2 * * *", "Europe/Berlin", "2026-10-23T12:00:00Z", &berlin);
        let york = ["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"];
        check("30 1 * * *", "America/New_York", "2026-10-30T12:00:00Z", &york);
        let howe = ["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"];
        check("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T12:00:00Z", &howe);
    }

    #[test]
    fn intervals_of_a_cron_follow_elapsed_time() {
        let autumn =
            ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"];
        check("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", &autumn);
        let spring = ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"];
        check("0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", &spring);
    }

    #[test]
    fn day_of_month_or_day_of_week_as_in_crontab() {
        let expected = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z"];
        check("0 0 1 * mon", "UTC", "2026-10-30T00:00:00Z", &expected);
        check("@weekly", "UTC", "2026-10-30T00:00:00Z", &["2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z"]);
    }

    #[test]
    fn intervals_do_not_drift() {
        let every = read(json!({"every_ms": "90s"})).expect("valid");
        assert_eq!(every.first(1_000), Some(91_000));
        assert_eq!(every.next(91_000, 91_000), Some(181_000));
        assert_eq!(every.next(91_000, 300_000), Some(361_000));
        assert_eq!(every.last(91_000, 300_000), 271_000);
    }

    #[test]
    fn impossible_day_has_no_moment() {
        let never = read(json!({"cron": "0 0 30 2 *"})).expect("well formed");
        assert_eq!(never.first(milliseconds("2026-01-01T00:00:00Z")), None);
        let leap = read(json!({"cron": "0 0 29 2 *"})).expect("valid");
        assert_eq!(
            leap.first(milliseconds("2026-03-01T00:00:00Z")),
            Some(milliseconds("2028-02-29T00:00:00Z"))
        );
    }

    #[test]
    fn malformed_values_are_refused() {
        for (source, path, part) in [
            (json!({}), "cron", "is missing; use `cron` or `every_ms`"),
            (json!({"cron": "every day"}), "cron", "five fields"),
            (json!({"cron": "61 * * * *"}), "cron", "five fields"),
            (json!({"cron": "* * * * * *"}), "cron", "five fields"),
            (json!({"cron": "@often"}), "cron", "@hourly"),
            (json!({"cron": 5}), "cron", "5 is not allowed"),
            (json!({"cron": "@daily", "time_zone": "Mars/Olympus"}), "time_zone", "Europe/Berlin"),
            (json!({"cron": "@daily", "time_zone": "../../etc/passwd"}), "time_zone", "IANA"),
            (json!({"cron": "@daily", "every_ms": 1_000}), "every_ms", "cannot be combined with `cron`"),
            (json!({"every_ms": 1_000, "time_zone": "UTC"}), "time_zone", "leave it out"),
            (json!({"every_ms": 10}), "every_ms", "use 1s to ten years"),
            (json!({"every_ms": 0}), "every_ms", "0"),
            (json!({"every_ms": "soon"}), "every_ms", "soon"),
        ] {
            let error = read(source.clone()).expect_err("refused");
            assert_eq!(error.path, path, "{source}: {error}");
            assert!(error.problem.contains(part), "{source}: {error}");
        }
    }
}
