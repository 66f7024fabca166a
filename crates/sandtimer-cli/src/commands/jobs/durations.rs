//! Durations that are typed as flags.

use std::time::Duration;

use sandtimer::limits::{Format, Setting, Unit, parse_string};

use crate::commands::CommandFailure;

/// A duration of at least `least`, typed as a flag.
pub(super) fn duration(flag: &str, typed: &str, least: Duration) -> Result<Duration, CommandFailure> {
    let set = parse_string(flag, Format::required(Unit::Seconds), typed, "the command line")?;
    match set {
        Setting::At(nanoseconds) if Duration::from_nanos(nanoseconds) >= least => {
            Ok(Duration::from_nanos(nanoseconds))
        }
        _ => Err(CommandFailure::usage(format!(
            "{flag}: `{typed}` is too short (from the command line); use {least:?} or more"
        ))),
    }
}
