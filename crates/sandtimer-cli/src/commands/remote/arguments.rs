//! Arguments of requests: the names and ids in their paths, and the time that extends a limit.

use sandtimer::limits::{Format, Setting, parse_string};
use sandtimer::model::LimitKind;

use super::client::printable;
use crate::commands::CommandFailure;

/// The time that is added to a wall-clock limit, in nanoseconds.
pub(super) fn added(by: &str) -> Result<u64, CommandFailure> {
    let usage =
        "BY: a limit is extended by a time such as `30s`; one without a limit has to be started as such";
    match parse_string("BY", Format::flag(LimitKind::Wall), by, "the command line")? {
        Setting::At(by) => Ok(by),
        _ => Err(CommandFailure::usage(usage)),
    }
}

/// A sandbox's id as it is put into a path.
pub(super) fn checked_sandbox_id(id: &str) -> Result<&str, CommandFailure> {
    let is_id = !id.is_empty() && id.len() <= 100 && id.chars().all(|letter| letter.is_ascii_alphanumeric());
    if is_id {
        return Ok(id);
    }
    let shown = printable(&id.chars().take(100).collect::<String>());
    Err(CommandFailure::usage(format!(
        "`{shown}` is not the id of a sandbox; `sandtimer sandbox list` lists them"
    )))
}

/// A template's name as it is put into a path.
pub(super) fn checked_template_name(name: &str) -> Result<&str, CommandFailure> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(is_letter) {
        return Ok(name);
    }
    let shown = printable(&name.chars().take(64).collect::<String>());
    Err(CommandFailure::usage(format!(
        "`{shown}` is not the name of a template; `sandtimer template list` lists them"
    )))
}
