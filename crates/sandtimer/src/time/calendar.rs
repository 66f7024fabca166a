//! Moments of the calendar, as text.

use jiff::Timestamp;

/// A moment in UTC as RFC 3339 has it, with milliseconds, from milliseconds since 1970.
pub fn instant(milliseconds: u64) -> String {
    let moment = i64::try_from(milliseconds).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // Beyond the year 9999 there is no such text.
    moment.map_or_else(
        || milliseconds.to_string(),
        |moment| moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_763_824_680_007, "2025-11-22T15:18:00.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(instant(milliseconds), text);
        }
    }
}
