//! Where limits come from: flags, variables, files. Each place is read once and by the same rules;
//! the engine's `precedence` and `nest` decide between them.
//!
//! A `sandtimer.toml` in the current directory may belong to the author of the code that is to be
//! run. It can make limits smaller and nothing else, and it is not read where the command itself
//! can write it: an earlier run may have left it there. It ends no command either: a file that is
//! not valid, or that would loosen a limit, is ignored with a notice.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandtimer::limits::{
    Ceilings, EffectiveLimits, Format, Key, Limits, ScopeLocation, ScopeOwnLimits, Setting, Unit, nest,
    parse_string, precedence,
};
use sandtimer::model::{Layer, LimitKind, Source};
use sandtimer::supervise::signal_number;
use toml::{Table, Value};

use crate::args::{LimitFlags, PolicyFlags};
use crate::commands::CommandFailure;
use crate::render;

mod contexts;
mod effective_settings;
mod file;
mod local;

pub(crate) use contexts::{ContextSettings, POOLED, PREWARMED, STARTS};
pub(crate) use effective_settings::{SettingValue, ShownSetting};

/// The commented file of all settings, with their built-in values.
pub(crate) const DEFAULT_FILE: &str = include_str!("../default.toml");
/// The machine's own file.
const MACHINE_FILE: &str = "/etc/sandtimer/sandtimer.toml";
const LOCAL_FILE: &str = "sandtimer.toml";
/// What the engine keeps of captured output if no scope limits it.
const CAPTURED_OUTPUT: u64 = 10 << 20;

/// What a setting holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    Everything,
    /// Runs, and commands in sessions.
    Commands,
    /// Code in contexts, in every language.
    Code,
    /// Code in JavaScript and TypeScript contexts, in addition to the limits for all code: the
    /// smaller one counts.
    JavaScript,
}

/// One limit's names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    /// In files; as a flag with `--` and dashes.
    pub(crate) file: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) key: Key,
    pub(crate) uses: Uses,
}

const fn name(file: &'static str, variable: &'static str, kind: LimitKind) -> Name {
    Name { file, variable, key: Key::Kind(kind), uses: Uses::Everything }
}

const fn shared(file: &'static str, variable: &'static str, kind: LimitKind, uses: Uses) -> Name {
    Name { file, variable, key: Key::Kind(kind), uses }
}

impl Name {
    /// As a flag of whatever can be given it.
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.file.replace('_', "-"))
    }
}

/// Every limit that can be set here, in the order in which they are listed to people.
pub(crate) const NAMES: [Name; 9] = [
    name("wall", "SANDTIMER_WALL", LimitKind::Wall),
    Name { file: "grace", variable: "SANDTIMER_GRACE", key: Key::Grace, uses: Uses::Everything },
    name("cpu", "SANDTIMER_CPU", LimitKind::Cpu),
    name("stall", "SANDTIMER_STALL", LimitKind::Stall),
    name("memory", "SANDTIMER_MEMORY", LimitKind::Memory),
    name("processes", "SANDTIMER_PROCESSES", LimitKind::Processes),
    name("output", "SANDTIMER_OUTPUT", LimitKind::Output),
    name("disk", "SANDTIMER_DISK", LimitKind::Disk),
    name("open_files", "SANDTIMER_OPEN_FILES", LimitKind::OpenFiles),
];

/// Names shared with other programs, counted in whole milliseconds and bytes; those of [`NAMES`]
/// win over them.
pub(crate) const SHARED_NAMES: [Name; 4] = [
    shared("command_timeout_ms", "COMMAND_TIMEOUT_MS", LimitKind::Wall, Uses::Commands),
    shared(
        "interpreter_execution_timeout_ms",
        "INTERPRETER_EXECUTION_TIMEOUT_MS",
        LimitKind::Wall,
        Uses::Code,
    ),
    shared("vm_execution_timeout_ms", "VM_EXECUTION_TIMEOUT_MS", LimitKind::Wall, Uses::JavaScript),
    shared("max_output_size_bytes", "MAX_OUTPUT_SIZE_BYTES", LimitKind::Output, Uses::Everything),
];

/// One limit that one place sets; the limits know the place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LayeredLimits {
    source: Source,
    uses: Uses,
    limits: Limits,
}

impl LayeredLimits {
    fn one(name: &Name, setting: Setting, source: Source, origin: &str) -> Self {
        let mut limits = Limits::new().with_origin(origin);
        limits.set(name.key, setting);
        LayeredLimits { source, uses: name.uses, limits }
    }
}

/// All settings that apply to what this program starts, besides the flags of a run.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The first layer that sets a limit wins.
    layers: Vec<LayeredLimits>,
    /// Ceilings by the file that sets them; the machine's first.
    ceilings: Vec<(PathBuf, Limits)>,
    pub(crate) contexts: ContextSettings,
}

/// Where the settings of one command come from, besides the environment and the machine's file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origins<'a> {
    /// Read in place of the user's own file.
    pub(crate) file: Option<&'a Path>,
    /// Directories that the command can write.
    pub(crate) writable: &'a [PathBuf],
}

impl Config {
    /// Reads the variables and the files, and the file of the current directory as far as it
    /// tightens what `call` and they give; prints why that is ignored, if it is. `captures`: the
    /// output limit built into the engine applies.
    ///
    /// # Errors
    /// The first value or key that is refused, by its name, value and place.
    pub(crate) fn load(call: &Limits, captures: bool) -> Result<Self, CommandFailure> {
        Self::load_with(&PolicyFlags::default(), call, captures, Origins::default())
    }

    /// The same for a run.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn load_for_run(
        call: &Limits,
        captures: bool,
        origins: Origins<'_>,
    ) -> Result<Self, CommandFailure> {
        Self::load_with(&PolicyFlags::default(), call, captures, origins)
    }

    /// The same for a server, whose flags win over variables and files.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn load_for_server(flags: &PolicyFlags) -> Result<Self, CommandFailure> {
        Self::load_with(flags, &Limits::new(), true, Origins::default())
    }

    fn load_with(
        flags: &PolicyFlags,
        call: &Limits,
        captures: bool,
        origins: Origins<'_>,
    ) -> Result<Self, CommandFailure> {
        let mut config = Config { layers: policy_flags(flags)?, ..Config::default() };
        // One of ours that is empty counts as not set. Those of the timeout policy are refused, as
        // it has it.
        let variables = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty() || !name.starts_with("SANDTIMER_"))
        };
        config.layers.extend(environment(&variables)?);
        config.contexts = ContextSettings::given(flags, &variables)?;
        let mut read_files = Vec::new();
        let mut add = |found: Option<file::ConfigFile>| -> Result<(), CommandFailure> {
            if let Some(found) = found {
                read_files.push(found.identity);
                config.add_file(found)?;
            }
            Ok(())
        };
        add(user_file(origins.file)?)?;
        add(file::read(Path::new(MACHINE_FILE), file::Missing::IsFine)?)?;
        config.ceilings.reverse();
        let without = |config: &Config| config.effective(Uses::Commands, call, captures);
        if let Some(ignored) = config.add_local(&read_files, origins.writable, without) {
            render::note(&ignored);
        }
        Ok(config)
    }

    /// Adds the file of the current directory, unless it is one of those in `seen`, or returns why
    /// it is ignored; `without` is what applies without it.
    fn add_local(
        &mut self,
        read_files: &[file::Identity],
        writable: &[PathBuf],
        without: impl FnOnce(&Self) -> EffectiveLimits,
    ) -> Option<String> {
        let local = Path::new(LOCAL_FILE);
        if let Some(directory) = local::writable_through(local, writable) {
            return (!local::is_one_of(local, read_files)).then(|| local::notice(local, &directory));
        }
        match local::read(local, read_files, || without(self)) {
            Ok(bounds) => {
                self.ceilings.extend(bounds.map(|bounds| (local.to_owned(), bounds)));
                None
            }
            Err(failure) => Some(local::notice_of_failure(local, &failure)),
        }
    }

    fn add_file(&mut self, found: file::ConfigFile) -> Result<(), CommandFailure> {
        let parsed = file::parse(&found)?;
        self.layers.extend(parsed.layers);
        self.contexts.add(parsed.contexts);
        self.ceilings.push((found.path, parsed.maxima));
        Ok(())
    }

    /// For [`sandtimer::Spec::defaults`].
    pub(crate) fn defaults(&self, uses: Uses) -> Vec<(Source, Limits)> {
        let of =
            |uses: Uses| move |layer: &&LayeredLimits| layer.uses == Uses::Everything || layer.uses == uses;
        let as_default = |layer: &LayeredLimits| (layer.source, layer.limits.clone());
        if uses != Uses::JavaScript {
            return self.layers.iter().filter(of(uses)).map(as_default).collect();
        }
        let sets_wall = |layer: &&LayeredLimits| layer.limits.get(LimitKind::Wall) != Setting::Inherit;
        let code = self.layers.iter().filter(of(Uses::Code)).find(sets_wall);
        let own = self.layers.iter().find(|layer| layer.uses == Uses::JavaScript);
        let smaller =
            [code, own].into_iter().flatten().min_by_key(|layer| match layer.limits.get(LimitKind::Wall) {
                Setting::At(limit) => limit,
                _ => u64::MAX,
            });
        let others = self.layers.iter().filter(of(Uses::Code)).filter(|layer| !sets_wall(layer));
        smaller.into_iter().chain(others).map(as_default).collect()
    }

    /// For [`sandtimer::Options::maxima`]: of every limit the smallest ceiling that a file sets.
    pub(crate) fn maxima(&self) -> Limits {
        let mut maxima = Limits::new();
        for (_, ceilings) in &self.ceilings {
            for name in NAMES {
                let merged = match (maxima.get(name.key), ceilings.get(name.key)) {
                    (Setting::At(one), Setting::At(other)) => Setting::At(one.min(other)),
                    (Setting::Inherit, set) | (Setting::Unlimited, set @ Setting::At(_)) => set,
                    (set, _) => set,
                };
                maxima.set(name.key, merged);
            }
        }
        maxima
    }

    /// Whether a file or a variable sets this limit for commands, as a limit of its own or as a
    /// ceiling.
    pub(crate) fn is_chosen(&self, key: impl Into<Key>) -> bool {
        let key = key.into();
        let is_set = |limits: &Limits| matches!(limits.get(key), Setting::At(_));
        self.defaults(Uses::Commands).iter().any(|(_, limits)| is_set(limits)) || is_set(&self.maxima())
    }

    fn own(&self, uses: Uses, call: &Limits, captures: bool) -> ScopeOwnLimits {
        let mut builtin = Limits::new();
        if captures {
            builtin = builtin.output(CAPTURED_OUTPUT);
        }
        let defaults = self.defaults(uses);
        let mut layers = vec![(Source::Call, call)];
        layers.extend(defaults.iter().map(|(source, limits)| (*source, limits)));
        layers.push((Source::Builtin, &builtin));
        precedence(&layers)
    }

    pub(crate) fn effective(&self, uses: Uses, call: &Limits, captures: bool) -> EffectiveLimits {
        let machine = Ceilings::for_machine(sandtimer::engine::machine_memory());
        let here = ScopeLocation { layer: Layer::Run, scope: "run".to_owned() };
        nest(&here, &self.own(uses, call, captures), &[], &machine.with_operator(&self.maxima()))
    }

    /// The limits of a run, each with the place that set it. `captured`: its output is, under a
    /// limit of its own.
    pub(crate) fn applied(&self, effective: &EffectiveLimits, captured: bool) -> Vec<String> {
        let limit = |name: &Name| {
            let effect = effective.get(name.key)?;
            let idle = name.key == Key::Grace && effect.value == 0;
            let unused =
                name.key == LimitKind::Output.into() && effect.source == Source::Builtin && !captured;
            let origin = self.origin(effect.source, effect.origin.as_deref(), name.key);
            (!idle && !unused)
                .then(|| format!("{} {} ({origin})", name.file, written(name.key, Some(effect.value))))
        };
        NAMES.iter().filter_map(limit).collect()
    }

    /// The files that were read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.ceilings.iter().map(|(path, _)| path.as_path())
    }

    /// The place that set a limit; `known_origin` is what the limit itself has of it.
    fn origin(&self, source: Source, known_origin: Option<&str>, key: Key) -> String {
        match (source, known_origin) {
            (Source::Ceiling, _) => match self.ceiling_file(key) {
                Some(path) => path.display().to_string(),
                None => "a ceiling of this machine".to_owned(),
            },
            (_, Some(known_origin)) => known_origin.to_owned(),
            (Source::Call, None) => "the call".to_owned(),
            _ => "built in".to_owned(),
        }
    }

    /// The file that sets the ceiling of this limit, if one does.
    pub(crate) fn ceiling_file(&self, key: impl Into<Key>) -> Option<&Path> {
        let key = key.into();
        let smallest = self.maxima().get(key);
        let set = smallest != Setting::Inherit;
        let file = self.ceilings.iter().find(|(_, ceilings)| set && ceilings.get(key) == smallest);
        file.map(|(path, _)| path.as_path())
    }
}

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

fn as_utf8<'a>(key: &str, value: &'a OsStr, origin: &str) -> Result<&'a str, CommandFailure> {
    value.to_str().ok_or_else(|| {
        CommandFailure::usage(format!(
            "{key}: `{}` is not text (from {origin}); use a number",
            value.display()
        ))
    })
}

/// The limits from variables, in order of precedence.
fn environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Vec<LayeredLimits>, CommandFailure> {
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
fn policy_flags(flags: &PolicyFlags) -> Result<Vec<LayeredLimits>, CommandFailure> {
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

/// All names of limits, and whether they are shared; in order of precedence.
fn names() -> impl Iterator<Item = (Name, bool)> {
    NAMES.into_iter().map(|name| (name, false)).chain(SHARED_NAMES.into_iter().map(|name| (name, true)))
}

fn format(key: Key, shared: bool) -> Format {
    if shared { Format { whole: true, ..Format::wire(key) } } else { Format::flag(key) }
}

fn user_file(given: Option<&Path>) -> Result<Option<file::ConfigFile>, CommandFailure> {
    if let Some(given) = given {
        return file::read(given, file::Missing::Named("--config"));
    }
    if let Some(named) = std::env::var_os("SANDTIMER_CONFIG") {
        if named.is_empty() {
            return Ok(None);
        }
        return file::read(Path::new(&named), file::Missing::Named("SANDTIMER_CONFIG"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    match base {
        // A home that cannot be entered belongs to another user, as with sudo: it holds no file of
        // this user.
        Some(base) => file::read(&base.join("sandtimer/sandtimer.toml"), file::Missing::OrClosed),
        None => Ok(None),
    }
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

#[cfg(test)]
mod tests;
