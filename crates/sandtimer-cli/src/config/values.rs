//! Values of settings as text.

use std::ffi::OsStr;

use sandtimer::limits::{Key, Unit};

use crate::commands::CommandFailure;

pub(super) fn as_utf8<'a>(key: &str, value: &'a OsStr, origin: &str) -> Result<&'a str, CommandFailure> {
    value.to_str().ok_or_else(|| {
        CommandFailure::usage(format!(
            "{key}: `{}` is not text (from {origin}); use a number",
            value.display()
        ))
    })
}

/// A limit as one would write it: `2s`, `512M`, `64`, `unlimited`.
pub(crate) fn written(key: Key, limit: Option<u64>) -> String {
    let Some(value) = limit else { return "unlimited".to_owned() };
    let units: &[(u64, &str)] = match key.unit() {
        Unit::Milliseconds | Unit::Seconds => &[
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ],
        Unit::Bytes => &[(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")],
        Unit::Count => &[],
    };
    match units.iter().find(|(size, _)| value > 0 && value.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", value / size),
        None => value.to_string(),
    }
}
