//! Refuses limits in force that no command can be started under.

use super::key::Key;
use super::nest::EffectiveLimits;
use super::parse::{Format, LimitError, Problem, rejection};

/// Refuses the first limit in force that no command can be started under, whichever way it was set.
pub(crate) fn check_least(effective: &EffectiveLimits) -> Result<(), LimitError> {
    Key::ALL.into_iter().try_for_each(|key| check_at_least(effective, key, key.least()))
}

/// Refuses a limit in force below `least`, whichever way it was set.
pub(crate) fn check_at_least(effective: &EffectiveLimits, key: Key, least: u64) -> Result<(), LimitError> {
    let Some(effect) = effective.get(key).filter(|effect| effect.value < least) else { return Ok(()) };
    let (problem, value) = (Problem::TooSmall, effect.value.to_string());
    let remedy = Format { least, ..Format::wire(key) }.remedy(problem);
    Err(rejection(key.wire(), &value, effect.source.description(), problem, remedy))
}
