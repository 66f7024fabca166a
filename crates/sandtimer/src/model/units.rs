//! Times and counts in words.

use std::time::Duration;

/// `350 ms`, `2 s`, `1 m 30 s`, `2 h 5 m`.
///
/// ```
/// use sandtimer::model::time;
///
/// assert_eq!(time(350), "350 ms");
/// assert_eq!(time(90_000), "1 m 30 s");
/// ```
pub fn time(milliseconds: u64) -> String {
    let duration = Duration::from_millis(milliseconds);
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 if duration.subsec_millis() == 0 => format!("{seconds} s"),
        1..60 => format!("{:.2} s", duration.as_secs_f64()),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `1 attempt`, `3 attempts`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
