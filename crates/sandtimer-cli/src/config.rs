//! Where limits come from: flags, variables, files. Each place is read once and by the same rules; the engine's
//! `precedence` and `nest` decide between them.
//!
//! A `sandtimer.toml` in the current directory may belong to whoever wrote the code that is to be run. It can make limits
//! smaller and nothing else.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sandtimer::limits::{
    Ceilings, Effective, Format, Key, Limits, Own, Place, Setting, Unit, nest, parse_text, precedence,
};
use sandtimer::model::{Layer, LimitKind, Source};
use toml::{Table, Value};

use crate::args::LimitFlags;
use crate::commands::Failure;

mod file;
mod local;

/// The commented file of all settings, with their built-in values.
pub(crate) const DEFAULT_FILE: &str = include_str!("../default.toml");
/// The machine's own file.
const MACHINE_FILE: &str = "/etc/sandtimer/sandtimer.toml";
const LOCAL_FILE: &str = "sandtimer.toml";
/// What the engine keeps of captured output unless somebody says otherwise.
const CAPTURED_OUTPUT: u64 = 10 << 20;

/// One limit's names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    /// In files; as a flag with `--` and dashes.
    pub(crate) file: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) key: Key,
}

const fn name(file: &'static str, variable: &'static str, kind: LimitKind) -> Name {
    Name { file, variable, key: Key::Kind(kind) }
}

/// Every limit that can be set here, in the order in which they are listed to people.
pub(crate) const NAMES: [Name; 9] = [
    name("wall", "SANDTIMER_WALL", LimitKind::Wall),
    Name { file: "grace", variable: "SANDTIMER_GRACE", key: Key::Grace },
    name("cpu", "SANDTIMER_CPU", LimitKind::Cpu),
    name("stall", "SANDTIMER_STALL", LimitKind::Stall),
    name("memory", "SANDTIMER_MEMORY", LimitKind::Memory),
    name("processes", "SANDTIMER_PROCESSES", LimitKind::Processes),
    name("output", "SANDTIMER_OUTPUT", LimitKind::Output),
    name("disk", "SANDTIMER_DISK", LimitKind::Disk),
    name("open_files", "SANDTIMER_OPEN_FILES", LimitKind::OpenFiles),
];

/// Names shared with other programs, counted in milliseconds and bytes; those of [`NAMES`] win over them.
pub(crate) const SHARED_NAMES: [Name; 2] = [
    name("command_timeout_ms", "COMMAND_TIMEOUT_MS", LimitKind::Wall),
    name("max_output_size_bytes", "MAX_OUTPUT_SIZE_BYTES", LimitKind::Output),
];

/// What one place says.
#[derive(Debug)]
struct Layered {
    source: Source,
    origin: Origin,
    limits: Limits,
}

/// A place, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Environment,
    File(PathBuf),
}

/// Everything that applies to a run started here, beside its flags.
#[derive(Debug, Default)]
pub(crate) struct Config {
    layers: Vec<Layered>,
    /// Ceilings by the file that sets them; the machine's first.
    ceilings: Vec<(PathBuf, Limits)>,
}

impl Config {
    /// Reads the variables and the files, and checks the file of the current directory against what `call` and they give.
    /// `captures`: the output limit built into the engine applies.
    ///
    /// # Errors
    /// The first value or key that is refused, by its name, value and place.
    pub(crate) fn load(call: &Limits, captures: bool) -> Result<Self, Failure> {
        let mut config = Config::default();
        let variables = environment(&|name| std::env::var_os(name))?;
        config.layers.push(Layered { source: Source::Env, origin: Origin::Environment, limits: variables });
        let mut seen = Vec::new();
        let mut add = |found: Option<file::Found>| -> Result<(), Failure> {
            if let Some(found) = found {
                seen.push(found.identity);
                config.add_file(found)?;
            }
            Ok(())
        };
        add(user_file()?)?;
        add(file::read(Path::new(MACHINE_FILE), file::Missing::IsFine)?)?;
        config.ceilings.reverse();
        if let Some(found) = file::read(Path::new(LOCAL_FILE), file::Missing::IsFine)?
            && !seen.contains(&found.identity)
        {
            let bounds = local::bounds(&found)?;
            local::check(&found.path, &bounds, &config.effective(call, captures))?;
            config.ceilings.push((found.path, bounds));
        }
        Ok(config)
    }

    fn add_file(&mut self, found: file::Found) -> Result<(), Failure> {
        let parsed = file::parse(&found)?;
        self.layers.push(Layered {
            source: Source::Config,
            origin: Origin::File(found.path.clone()),
            limits: parsed.limits,
        });
        self.ceilings.push((found.path, parsed.maxima));
        Ok(())
    }

    /// For [`sandtimer::Spec::defaults`].
    pub(crate) fn defaults(&self) -> Vec<(Source, Limits)> {
        self.layers.iter().map(|layer| (layer.source, layer.limits.clone())).collect()
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

    fn own(&self, call: &Limits, captures: bool) -> Own {
        let mut builtin = Limits::new();
        if captures {
            builtin = builtin.output(CAPTURED_OUTPUT);
        }
        let mut layers = vec![(Source::Call, call)];
        layers.extend(self.layers.iter().map(|layer| (layer.source, &layer.limits)));
        layers.push((Source::Builtin, &builtin));
        precedence(&layers)
    }

    fn effective(&self, call: &Limits, captures: bool) -> Effective {
        let machine = Ceilings::for_machine(sandtimer_os::probe::total_memory_bytes());
        let here = Place { layer: Layer::Run, scope: "run".to_owned() };
        nest(&here, &self.own(call, captures), &[], &machine.with_operator(&self.maxima()))
    }

    /// Every limit as it applies to a run started here without flags, with the place that set it.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let call = Limits::new();
        let (own, effective) = (self.own(&call, true), self.effective(&call, true));
        let show = |name: &Name| {
            let limit = effective.get(name.key).map(|effect| effect.value);
            let chosen = own.get(name.key).map_or(Source::Builtin, |chosen| chosen.source);
            let source = effective.get(name.key).map_or(chosen, |effect| effect.source);
            Shown { name: *name, limit, source, origin: self.origin(source, name.key) }
        };
        NAMES.iter().map(show).collect()
    }

    /// The limits of a run, each with the place that set it. `captured`: its output is, under a limit of its own.
    pub(crate) fn applied(&self, effective: &Effective, captured: bool) -> Vec<String> {
        let limit = |name: &Name| {
            let effect = effective.get(name.key)?;
            let idle = name.key == Key::Grace && effect.value == 0;
            let unused =
                name.key == LimitKind::Output.into() && effect.source == Source::Builtin && !captured;
            let origin = self.origin(effect.source, name.key);
            (!idle && !unused)
                .then(|| format!("{} {} ({origin})", name.file, written(name.key, Some(effect.value))))
        };
        NAMES.iter().filter_map(limit).collect()
    }

    /// The files that were read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.ceilings.iter().map(|(path, _)| path.as_path())
    }

    fn origin(&self, source: Source, key: Key) -> String {
        match source {
            Source::Ceiling => match self.ceiling_file(key) {
                Some(path) => path.display().to_string(),
                None => "a ceiling of this machine".to_owned(),
            },
            Source::Env => environment_origin(key),
            Source::Config => self.file_origin(key),
            Source::Call => "the call".to_owned(),
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

    fn file_origin(&self, key: Key) -> String {
        let sets = |layer: &&Layered| layer.limits.get(key) != Setting::Inherit;
        let files = self.layers.iter().filter(sets).find_map(|layer| match &layer.origin {
            Origin::File(path) => Some(path.display().to_string()),
            Origin::Environment => None,
        });
        files.unwrap_or_default()
    }
}

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) name: Name,
    /// In nanoseconds, bytes or pieces; `None` for unlimited.
    pub(crate) limit: Option<u64>,
    pub(crate) source: Source,
    pub(crate) origin: String,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Eq for Name {}

/// The limits given as flags.
///
/// # Errors
/// The first that is not a limit.
pub(crate) fn from_flags(flags: &LimitFlags) -> Result<Limits, Failure> {
    let LimitFlags { wall, cpu, stall, grace, memory, processes, output, disk, open_files } = flags;
    let given = [wall, grace, cpu, stall, memory, processes, output, disk, open_files];
    let mut limits = Limits::new();
    for (name, given) in NAMES.iter().zip(given) {
        if let Some(value) = given {
            let flag = format!("--{}", name.file.replace('_', "-"));
            let text = as_text(&flag, value, "the command line")?;
            limits.set(name.key, parse_text(&flag, Format::flag(name.key), text, "the command line")?);
        }
    }
    Ok(limits)
}

fn as_text<'a>(key: &str, value: &'a OsStr, origin: &str) -> Result<&'a str, Failure> {
    value.to_str().ok_or_else(|| {
        Failure::usage(format!("{key}: `{}` is not text (from {origin}); use a number", value.display()))
    })
}

fn environment(look_up: &dyn Fn(&str) -> Option<OsString>) -> Result<Limits, Failure> {
    let mut limits = Limits::new();
    for (name, shared) in
        SHARED_NAMES.iter().map(|name| (name, true)).chain(NAMES.iter().map(|name| (name, false)))
    {
        if let Some(value) = look_up(name.variable) {
            let text = as_text(name.variable, &value, "the environment")?;
            let setting = parse_text(name.variable, format(name.key, shared), text, "the environment")?;
            limits.set(name.key, setting);
        }
    }
    Ok(limits)
}

/// Which variable sets this limit.
fn environment_origin(key: Key) -> String {
    let mut names = NAMES.iter().chain(&SHARED_NAMES).filter(|name| name.key == key);
    let set = names.find(|name| std::env::var_os(name.variable).is_some());
    set.map_or_else(String::new, |name| name.variable.to_owned())
}

fn format(key: Key, shared: bool) -> Format {
    if shared { Format::wire(key) } else { Format::flag(key) }
}

fn user_file() -> Result<Option<file::Found>, Failure> {
    if let Some(named) = std::env::var_os("SANDTIMER_CONFIG") {
        if named.is_empty() {
            return Ok(None);
        }
        return file::read(Path::new(&named), file::Missing::Named("SANDTIMER_CONFIG"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    match base {
        // A home that cannot be entered is somebody else's, as with sudo: there is no file of this user's in it.
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
