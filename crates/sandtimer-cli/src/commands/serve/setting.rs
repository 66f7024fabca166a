//! Settings of a server that come from flags and variables; workers read some of them as well.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use sandtimer::limits::{Format, Setting, Unit, Zero, parse_string};
use sandtimer_jobs::executor::{MAX_JOB_FILE_BYTES, usable_memory};
use serde_json::{Value, json};

use crate::commands::CommandFailure;

/// A setting and where it came from.
#[derive(Debug)]
pub(in crate::commands) struct ServerSetting {
    pub(super) value: Option<OsString>,
    /// The flag's name, without dashes.
    flag: &'static str,
    origin: &'static str,
}

impl ServerSetting {
    /// The flag, else the variable whose name follows from its, else nothing.
    pub(super) fn read(flag: &'static str, typed: Option<&OsString>) -> Self {
        Self::named(flag, &format!("SANDTIMER_{}", flag.replace('-', "_").to_uppercase()), typed)
    }

    /// The same with a variable of another name.
    pub(in crate::commands) fn named(flag: &'static str, variable: &str, typed: Option<&OsString>) -> Self {
        if let Some(value) = typed {
            return ServerSetting { value: Some(value.clone()), flag, origin: "the command line" };
        }
        match std::env::var_os(variable).filter(|value| !value.is_empty()) {
            Some(value) => ServerSetting { value: Some(value), flag, origin: "the environment" },
            None => ServerSetting { value: None, flag, origin: "built in" },
        }
    }

    /// A switch, else the variable whose name follows from its.
    pub(in crate::commands) fn switch(flag: &'static str, is_on: bool) -> Self {
        Self::read(flag, is_on.then(|| OsString::from("1")).as_ref())
    }

    pub(super) fn text(&self) -> Result<Option<&str>, CommandFailure> {
        let Some(value) = &self.value else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| self.refused(value, "is not text"))
    }

    pub(super) fn refused(&self, value: &OsStr, problem: &str) -> CommandFailure {
        CommandFailure::usage(format!(
            "--{}: `{}` {problem} (from {})",
            self.flag,
            value.display(),
            self.origin
        ))
    }

    pub(super) fn limit(&self, unit: Unit, default: Option<u64>) -> Result<Option<u64>, CommandFailure> {
        self.amount(unit, Zero::Unlimited, default)
    }

    pub(super) fn amount(
        &self,
        unit: Unit,
        zero: Zero,
        default: Option<u64>,
    ) -> Result<Option<u64>, CommandFailure> {
        let Some(text) = self.text()? else { return Ok(default) };
        let format = Format { unit, zero, least: 0, whole: false };
        Ok(match parse_string(&format!("--{}", self.flag), format, text, self.origin)? {
            Setting::At(value) => Some(value),
            Setting::Unlimited => None,
            Setting::Inherit => default,
        })
    }

    pub(super) fn shown(&self, value: impl Into<Value>) -> Value {
        let source = match self.origin {
            "the command line" => "call",
            "the environment" => "env",
            _ => "builtin",
        };
        json!({"value": value.into(), "source": source, "origin": self.origin})
    }
}

/// How long jobs may continue once their worker is to end, if that is given: 0 is not at all.
pub(in crate::commands) fn drain_time(given: &ServerSetting) -> Result<Option<Duration>, CommandFailure> {
    Ok(given.amount(Unit::Seconds, Zero::Nothing, None)?.map(Duration::from_nanos))
}

/// The number of bytes that are kept of the files that a job leaves.
pub(in crate::commands) fn file_bytes(given: &ServerSetting) -> Result<u64, CommandFailure> {
    // Where there is no limit the disk has one.
    Ok(given.limit(Unit::Bytes, Some(MAX_JOB_FILE_BYTES))?.unwrap_or(u64::MAX))
}

/// Bytes for the runs of jobs that say how much memory they may have.
pub(in crate::commands) fn memory(given: &ServerSetting) -> Result<Option<u64>, CommandFailure> {
    given.limit(Unit::Bytes, Some(usable_memory()))
}

/// Whether webhooks may be sent to addresses that are not public.
pub(in crate::commands) fn private_webhooks(given: &ServerSetting) -> Result<bool, CommandFailure> {
    match given.text()? {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(given.refused(other.as_ref(), "is neither 1 nor 0")),
    }
}

/// Where records are kept by default.
pub(super) fn default_state_directory() -> Result<PathBuf, CommandFailure> {
    let home = sandtimer_records::default_state_directory();
    home.ok_or_else(|| CommandFailure::usage("there is no home to keep records in; give --state-dir"))
}

/// The state directory that SANDTIMER_STATE_DIR names, else the default one.
pub(in crate::commands) fn state_directory() -> Result<PathBuf, CommandFailure> {
    sandtimer_records::named_state_directory().map_or_else(default_state_directory, Ok)
}
