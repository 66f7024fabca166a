//! All settings of one command: read from their places, in order of precedence.

use std::path::{Path, PathBuf};

use sandtimer::limits::{
    Ceilings, EffectiveLimits, Key, Limits, ScopeLocation, ScopeOwnLimits, Setting, nest, precedence,
};
use sandtimer::model::{Layer, LimitKind, Source};

use super::contexts::ContextSettings;
use super::given::{environment, policy_flags};
use super::layers::LayeredLimits;
use super::names::{NAMES, Name, Uses};
use super::values::written;
use super::{file, local};
use crate::args::PolicyFlags;
use crate::commands::CommandFailure;
use crate::render;

/// The machine's own file.
const MACHINE_FILE: &str = "/etc/sandtimer/sandtimer.toml";
const LOCAL_FILE: &str = "sandtimer.toml";
/// What the engine keeps of captured output if no scope limits it.
pub(super) const CAPTURED_OUTPUT: u64 = 10 << 20;

/// All settings that apply to what this program starts, besides the flags of a run.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The first layer that sets a limit wins.
    pub(super) layers: Vec<LayeredLimits>,
    /// Ceilings by the file that sets them; the machine's first.
    pub(super) ceilings: Vec<(PathBuf, Limits)>,
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
    pub(super) fn add_local(
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

    pub(super) fn add_file(&mut self, found: file::ConfigFile) -> Result<(), CommandFailure> {
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

    pub(super) fn own(&self, uses: Uses, call: &Limits, captures: bool) -> ScopeOwnLimits {
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
    pub(super) fn origin(&self, source: Source, known_origin: Option<&str>, key: Key) -> String {
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
