//! The limits that flags and variables set.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use sandtimer::limits::{Format, Limits, Setting, parse_string};
use sandtimer::model::{LimitKind, Source};
use sandtimer::supervise::signal_number;

use super::layers::LayeredLimits;
use super::names::{NAMES, SHARED_NAMES, format, names};
use super::values::as_utf8;
use crate::args::{LimitFlags, PolicyFlags};
use crate::commands::CommandFailure;

/// The limits given as flags.
///
/// # Errors
/// The first that is not a limit.
pub(crate) fn from_flags(flags: &LimitFlags) -> Result<Limits, CommandFailure> {
    let LimitFlags { wall, cpu, stall, grace, memory, processes, output, disk, open_files } = flags;
    let given = [wall, grace, cpu, stall, memory, processes, output, disk, open_files];
    let mut limits = Limits::new();
    for (name, given) in NAMES.iter().zip(given) {
        if let Some(value) = given {
            let flag = name.flag();
            let text = as_utf8(&flag, value, "the command line")?;
            limits.set(name.key, parse_string(&flag, Format::flag(name.key), text, "the command line")?);
        }
    }
    Ok(limits)
}

/// `--warn 30s:USR1`: how long before a limit, and by which signal.
pub(crate) fn notice(given: &OsStr) -> Result<(Duration, Option<i32>), CommandFailure> {
    let origin = "the command line";
    let text = as_utf8("--warn", given, origin)?;
    let (time, signal) = text.rsplit_once(':').map_or((text, None), |(time, signal)| (time, Some(signal)));
    let Setting::At(nanoseconds) = parse_string("--warn", Format::flag(LimitKind::Wall), time, origin)?
    else {
        return Err(CommandFailure::usage(format!(
            "--warn: `{text}` is not a duration; use one such as 30s"
        )));
    };
    let number = |name: &str| {
        signal_number(&name.to_ascii_uppercase()).ok_or_else(|| {
            CommandFailure::usage(format!(
                "--warn: `{name}` is not a signal (from {origin}); use a name such as USR1"
            ))
        })
    };
    Ok((Duration::from_nanos(nanoseconds), signal.map(number).transpose()?))
}

/// The limits from variables, in order of precedence.
pub(super) fn environment(
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<LayeredLimits>, CommandFailure> {
    let mut layers = Vec::new();
    for (name, shared) in names() {
        if let Some(value) = variable(name.variable) {
            let text = as_utf8(name.variable, &value, "the environment")?;
            let setting = parse_string(name.variable, format(name.key, shared), text, "the environment")?;
            layers.push(LayeredLimits::one(&name, setting, Source::Env, name.variable));
        }
    }
    Ok(layers)
}

/// The limits from a server's flags.
pub(super) fn policy_flags(flags: &PolicyFlags) -> Result<Vec<LayeredLimits>, CommandFailure> {
    let PolicyFlags { command_timeout_ms, interpreter_execution_timeout_ms, vm_execution_timeout_ms, .. } =
        flags;
    let given = [
        command_timeout_ms,
        interpreter_execution_timeout_ms,
        vm_execution_timeout_ms,
        &flags.max_output_size_bytes,
    ];
    let mut layers = Vec::new();
    for (name, given) in SHARED_NAMES.iter().zip(given) {
        if let Some(value) = given {
            let flag = name.flag();
            let text = as_utf8(&flag, value, "the command line")?;
            let setting = parse_string(&flag, format(name.key, true), text, "the command line")?;
            layers.push(LayeredLimits::one(name, setting, Source::Env, &flag));
        }
    }
    Ok(layers)
}
