//! Settings of a server's contexts that do not limit cells: how long an interpreter may take to
//! start and to be pre-warmed, what it runs before it is given out, and how many are warm.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use sandtimer::limits::{Format, Setting, Unit, parse_string};
use sandtimer::model::Source;

use super::values::as_utf8;
use crate::args::PolicyFlags;
use crate::commands::CommandFailure;

/// Languages that have warm interpreters. TypeScript's are those of JavaScript.
pub(crate) const POOLED: [&str; 2] = ["python", "javascript"];
/// Languages whose interpreters can be pre-warmed by a script. There are no warm shells: each runs
/// the script when it is started.
pub(crate) const PREWARMED: [&str; 3] = ["python", "javascript", "bash"];
/// The largest number of warm interpreters of one language for each of a server's users.
const MAX_WARM_INTERPRETERS: u64 = 64;

/// A limit of Sandtimer's own steps. It cannot be switched off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepTimeout {
    pub(crate) file: &'static str,
    pub(crate) variable: &'static str,
    builtin: Duration,
}

pub(crate) const STARTS: [StepTimeout; 2] = [
    StepTimeout {
        file: "interpreter_spawn_timeout_ms",
        variable: "INTERPRETER_SPAWN_TIMEOUT_MS",
        builtin: Duration::from_secs(60),
    },
    StepTimeout {
        file: "interpreter_prewarm_timeout_ms",
        variable: "INTERPRETER_PREWARM_TIMEOUT_MS",
        builtin: Duration::from_secs(30),
    },
];

/// A value, and the place that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcedValue<T> {
    pub(crate) value: T,
    pub(crate) source: Source,
    pub(crate) origin: String,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettingOrigin<'a> {
    pub(super) source: Source,
    /// As messages name it, after "from".
    pub(super) location: &'a str,
    /// As the effective settings name it.
    pub(super) origin: &'a str,
}

impl<'a> SettingOrigin<'a> {
    /// The line of a configuration file.
    pub(super) fn line(location: &'a str) -> Self {
        SettingOrigin { source: Source::Config, location, origin: location }
    }

    fn sourced<T>(self, value: T) -> SourcedValue<T> {
        SourcedValue { value, source: self.source, origin: self.origin.to_owned() }
    }
}

/// What is set of them; the first place that says something counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContextSettings {
    /// In the order of [`STARTS`].
    starts: [Option<SourcedValue<Duration>>; 2],
    prewarm: BTreeMap<&'static str, SourcedValue<PathBuf>>,
    pool: BTreeMap<&'static str, SourcedValue<u64>>,
}

impl ContextSettings {
    /// The settings from flags, and then from variables.
    pub(super) fn given(
        flags: &PolicyFlags,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, CommandFailure> {
        let mut contexts = ContextSettings::default();
        let typed = [&flags.interpreter_spawn_timeout_ms, &flags.interpreter_prewarm_timeout_ms];
        for (index, (start, typed)) in STARTS.iter().zip(typed).enumerate() {
            let flag = format!("--{}", start.file.replace('_', "-"));
            let (name, value, location) = match (typed, variable(start.variable)) {
                (Some(value), _) => (flag.as_str(), value.clone(), "the command line"),
                (None, Some(value)) => (start.variable, value, "the environment"),
                (None, None) => continue,
            };
            let text = as_utf8(name, &value, location)?;
            let from = SettingOrigin { source: Source::Env, location, origin: name };
            contexts.set_start(index, name, text, from)?;
        }
        for given in &flags.prewarm {
            let (language, script) = pair("--prewarm", given, "a file", &PREWARMED)?;
            let set =
                SourcedValue { value: script.into(), source: Source::Env, origin: "--prewarm".to_owned() };
            contexts.prewarm.insert(language, set);
        }
        for given in &flags.pool {
            let (language, count) = pair("--pool", given, "a number", &POOLED)?;
            let from = SettingOrigin { source: Source::Env, location: "the command line", origin: "--pool" };
            contexts.set_pool(language, "--pool", &count, from)?;
        }
        Ok(contexts)
    }

    /// Sets one of [`STARTS`] from its text. `key` is its name there.
    pub(super) fn set_start(
        &mut self,
        index: usize,
        key: &str,
        text: &str,
        from: SettingOrigin<'_>,
    ) -> Result<(), CommandFailure> {
        let format = Format { whole: true, ..Format::required(Unit::Milliseconds) };
        if let Setting::At(limit) = parse_string(key, format, text, from.location)? {
            let value = Duration::from_nanos(limit);
            self.starts[index] = Some(from.sourced(value));
        }
        Ok(())
    }

    pub(super) fn set_pool(
        &mut self,
        language: &'static str,
        key: &str,
        text: &str,
        from: SettingOrigin<'_>,
    ) -> Result<(), CommandFailure> {
        let count = text.trim().parse().ok().filter(|count| *count <= MAX_WARM_INTERPRETERS);
        let value = count.ok_or_else(|| {
            CommandFailure::usage(format!(
                "{key}: `{}` is not a number of interpreters (from {}); use 0 to {MAX_WARM_INTERPRETERS}",
                text.escape_debug(),
                from.location
            ))
        })?;
        self.pool.insert(language, from.sourced(value));
        Ok(())
    }

    pub(super) fn set_prewarm(&mut self, language: &'static str, script: PathBuf, origin: &str) {
        self.prewarm.insert(
            language,
            SourcedValue { value: script, source: Source::Config, origin: origin.to_owned() },
        );
    }

    /// Adds the settings of another place that are unset here.
    pub(super) fn add(&mut self, other: ContextSettings) {
        for (own, other) in self.starts.iter_mut().zip(other.starts) {
            *own = own.take().or(other);
        }
        for (language, set) in other.prewarm {
            self.prewarm.entry(language).or_insert(set);
        }
        for (language, set) in other.pool {
            self.pool.entry(language).or_insert(set);
        }
    }

    /// The effective ones, in the order of [`STARTS`].
    pub(crate) fn starts(&self) -> [SourcedValue<Duration>; 2] {
        std::array::from_fn(|index| {
            self.starts[index].clone().unwrap_or_else(|| built_in(STARTS[index].builtin))
        })
    }

    /// How many interpreters of a language are warm.
    pub(crate) fn pool(&self, language: &str) -> SourcedValue<u64> {
        let usual = sandtimer_server::Interpreters::default();
        let ready = if language == "python" { usual.python.ready } else { usual.javascript.ready };
        self.pool.get(language).cloned().unwrap_or_else(|| built_in(ready as u64))
    }

    /// The script that makes interpreters of a language ready.
    pub(crate) fn prewarm(&self, language: &str) -> Option<&SourcedValue<PathBuf>> {
        self.prewarm.get(language)
    }
}

fn built_in<T>(value: T) -> SourcedValue<T> {
    SourcedValue { value, source: Source::Builtin, origin: "built in".to_owned() }
}

/// One of these languages, by its name.
pub(super) fn language(
    key: &str,
    name: &str,
    location: &str,
    languages: &[&'static str],
) -> Result<&'static str, CommandFailure> {
    languages.iter().copied().find(|known| *known == name).ok_or_else(|| {
        let known = languages.join(", ");
        CommandFailure::usage(format!(
            "{key}: `{}` is not one of the languages of this setting (from {location}); use one of {known}",
            name.escape_debug()
        ))
    })
}

/// `LANGUAGE=VALUE`.
fn pair(
    flag: &str,
    given: &OsString,
    wanted: &str,
    languages: &[&'static str],
) -> Result<(&'static str, String), CommandFailure> {
    let text = as_utf8(flag, given, "the command line")?;
    let (name, value) = text.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(|| {
        CommandFailure::usage(format!(
            "{flag}: `{}` is not LANGUAGE={wanted} (from the command line)",
            text.escape_debug()
        ))
    })?;
    Ok((language(flag, name, "the command line", languages)?, value.to_owned()))
}
