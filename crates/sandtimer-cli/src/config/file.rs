//! Reads and parses one `sandtimer.toml`.
//!
//! The file may have been put there to do harm: only a regular file of a sane size is read, and
//! nothing waits for it.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use sandtimer::limits::{Format, Limits, Setting, parse_string};
use sandtimer::model::Source;
use toml::de::DeTable;
use toml::{Table, Value};

use super::contexts::{ContextSettings, POOLED, PREWARMED, STARTS, SettingOrigin, language};
use super::layers::LayeredLimits;
use super::names::{Uses, format, names};
use crate::commands::CommandFailure;

/// More than any file of settings has.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// What is a flag and never a setting: they grant something, and a file must not.
const GRANTS: [&str; 8] = ["network", "workspace", "workspaces", "cwd", "env", "require", "json", "verbose"];

/// What it means that a file is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    IsFine,
    /// Fine, also if the directory may not be entered.
    OrClosed,
    /// This variable names it.
    Named(&'static str),
}

/// Device and inode of a file.
pub(super) type Identity = (u64, u64);

/// A file that is there.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    pub(super) text: String,
}

impl ConfigFile {
    /// Where the first of these keys is set, at the top or in [limits]: the file, and the line if
    /// it has one of them.
    pub(super) fn locate_keys(&self, keys: &[&str]) -> String {
        let path = self.path.display().to_string();
        let lines = KeyLines::of(&self.text);
        let locations =
            keys.iter().flat_map(|key| ["limits", ""].map(|section| lines.location(&path, section, key)));
        locations.into_iter().find(|location| *location != path).unwrap_or(path)
    }
}

/// What a file sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedFile {
    /// In order of precedence.
    pub(super) layers: Vec<LayeredLimits>,
    pub(super) maxima: Limits,
    pub(super) contexts: ContextSettings,
}

impl ParsedFile {
    /// The limits for runs.
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::new();
        for (name, _) in names() {
            let of_runs = |layer: &&LayeredLimits| matches!(layer.uses, Uses::Everything | Uses::Commands);
            let chosen = self.layers.iter().filter(of_runs).map(|layer| layer.limits.get(name.key));
            let first = chosen.into_iter().find(|setting| *setting != Setting::Inherit);
            limits.set(name.key, first.unwrap_or_default());
        }
        limits
    }
}

pub(super) fn read(path: &Path, missing: Missing) -> Result<Option<ConfigFile>, CommandFailure> {
    let refused = |problem: String| {
        let named = if let Missing::Named(variable) = missing {
            format!(" (named by {variable})")
        } else {
            String::new()
        };
        CommandFailure::usage(format!("{}{named}: {problem}", path.display()))
    };
    // Without O_NONBLOCK the open of a FIFO would block until another process writes to it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR) if !matches!(missing, Missing::Named(_)) => return Ok(None),
        Err(Errno::ACCESS) if missing == Missing::OrClosed => return Ok(None),
        Err(errno) => return Err(refused(format!("the configuration file cannot be read: {errno}"))),
    };
    let status = fstat(&opened).map_err(|errno| refused(errno.to_string()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(refused("a configuration file must be a regular file".to_owned()));
    }
    let mut text = String::new();
    let mut limited = std::fs::File::from(opened).take(MAX_FILE_BYTES + 1);
    limited.read_to_string(&mut text).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => refused("a configuration file must be UTF-8 text".to_owned()),
        _ => refused(format!("the configuration file cannot be read: {error}")),
    })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(format!("a configuration file has at most {MAX_FILE_BYTES} bytes")));
    }
    // The widths of these fields differ between architectures.
    #[allow(clippy::useless_conversion)]
    let identity = (u64::from(status.st_dev), u64::from(status.st_ino));
    Ok(Some(ConfigFile { path: path.to_owned(), identity, text }))
}

/// The lines of keys, by table and name; the top has no name.
struct KeyLines(HashMap<(String, String), usize>);

impl KeyLines {
    fn of(text: &str) -> Self {
        let mut lines = HashMap::new();
        // What is no TOML was refused before.
        if let Ok(top) = DeTable::parse(text) {
            let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
            for (key, value) in top.get_ref() {
                lines.insert((String::new(), key.get_ref().to_string()), line(key.span().start));
                for (inner, _) in value.get_ref().as_table().into_iter().flatten() {
                    let location = (key.get_ref().to_string(), inner.get_ref().to_string());
                    lines.insert(location, line(inner.span().start));
                }
            }
        }
        KeyLines(lines)
    }

    /// Such as `/etc/sandtimer/sandtimer.toml:12`.
    fn location(&self, path: &str, section: &str, key: &str) -> String {
        match self.0.get(&(section.to_owned(), key.to_owned())) {
            Some(line) => format!("{path}:{line}"),
            None => path.to_owned(),
        }
    }
}

/// Reads what it sets.
pub(super) fn parse(found: &ConfigFile) -> Result<ParsedFile, CommandFailure> {
    let origin = found.path.display().to_string();
    let mut top: Table = found.text.parse().map_err(|error| syntax(&origin, &found.text, &error))?;
    let lines = KeyLines::of(&found.text);
    let file = File { origin: &origin, lines: &lines };
    let mut parsed =
        ParsedFile { maxima: file.maxima(table(&mut top, "max", &origin)?)?, ..ParsedFile::default() };
    let in_table = table(&mut top, "limits", &origin)?;
    for name in ["prewarm", "pool"] {
        file.languages(name, &table(&mut top, name, &origin)?, &mut parsed.contexts)?;
    }
    let both = |key: &str| in_table.contains_key(key) && top.contains_key(key);
    let known = names().map(|(name, _)| name.file).chain(STARTS.map(|start| start.file));
    if let Some(key) = known.into_iter().find(|key| both(key)) {
        return Err(CommandFailure::usage(format!(
            "{}: `{key}` is set at the top and in [limits]; keep one of them",
            file.location("", key)
        )));
    }
    let sections = [("limits", &in_table), ("", &top)];
    for (section, table) in sections {
        file.check(section, table)?;
    }
    // By name first, then by table: own names win over shared ones in any table.
    for (name, shared) in names() {
        for (section, table) in sections {
            if let Some(value) = table.get(name.file) {
                let setting = file.setting(section, name.file, value, format(name.key, shared))?;
                let location = lines.location(&origin, section, name.file);
                parsed.layers.push(LayeredLimits::one(&name, setting, Source::Config, &location));
            }
        }
    }
    for (index, start) in STARTS.iter().enumerate() {
        for (section, table) in sections {
            if let Some(value) = table.get(start.file) {
                let location = lines.location(&origin, section, start.file);
                let from = SettingOrigin::line(&location);
                parsed.contexts.set_start(index, start.file, &to_value_string(value), from)?;
            }
        }
    }
    Ok(parsed)
}

fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> CommandFailure {
    let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
    let line = before.matches('\n').count() + 1;
    CommandFailure::usage(format!("{origin}:{line}: not TOML: {}", error.message()))
}

fn table(top: &mut Table, name: &str, origin: &str) -> Result<Table, CommandFailure> {
    match top.remove(name) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table),
        Some(other) => {
            let other = to_value_string(&other);
            Err(CommandFailure::usage(format!(
                "{origin}: `{name}` is `{other}` and has to be a table; write [{name}]"
            )))
        }
    }
}

/// A file that is being read.
struct File<'a> {
    origin: &'a str,
    lines: &'a KeyLines,
}

impl File<'_> {
    /// Refuses what is no setting.
    fn check(&self, section: &str, table: &Table) -> Result<(), CommandFailure> {
        let known = |key: &str| {
            names().any(|(name, _)| name.file == key) || STARTS.iter().any(|start| start.file == key)
        };
        match table.keys().find(|key| !known(key)) {
            Some(key) => Err(unknown(key, section, &self.location(section, key))),
            None => Ok(()),
        }
    }

    fn setting(
        &self,
        section: &str,
        key: &str,
        value: &Value,
        format: Format,
    ) -> Result<Setting, CommandFailure> {
        let location = self.location(section, key);
        let key = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        Ok(parse_string(&key, format, &to_value_string(value), &location)?)
    }

    fn location(&self, section: &str, key: &str) -> String {
        self.lines.location(self.origin, section, key)
    }

    fn maxima(&self, table: Table) -> Result<Limits, CommandFailure> {
        let mut maxima = Limits::new();
        // Ceilings are everything's: a name that holds only for code has none.
        let known = || names().filter(|(name, _)| matches!(name.uses, Uses::Everything | Uses::Commands));
        if let Some(key) = table.keys().find(|key| !known().any(|(name, _)| name.file == *key)) {
            return Err(unknown(key, "max", &self.location("max", key)));
        }
        let mut known: Vec<_> = known().collect();
        // The shared ones are weaker.
        known.reverse();
        for (name, shared) in known {
            if let Some(value) = table.get(name.file) {
                maxima.set(name.key, self.setting("max", name.file, value, format(name.key, shared))?);
            }
        }
        Ok(maxima)
    }

    /// `[prewarm]` and `[pool]`: a value for each language.
    fn languages(
        &self,
        section: &str,
        table: &Table,
        contexts: &mut ContextSettings,
    ) -> Result<(), CommandFailure> {
        for (name, value) in table {
            let key = format!("{section}.{}", name.escape_debug());
            let languages: &[_] = if section == "pool" { &POOLED } else { &PREWARMED };
            let location = self.location(section, name);
            let language = language(&key, name, &location, languages)?;
            if section == "pool" {
                let from = SettingOrigin::line(&location);
                contexts.set_pool(language, &key, &to_value_string(value), from)?;
                continue;
            }
            let script = value.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
            let script = script.ok_or_else(|| {
                let shown = to_value_string(value).escape_debug().to_string();
                CommandFailure::usage(format!(
                    "{key}: `{shown}` is not an absolute path (from {location}); name a script"
                ))
            })?;
            contexts.set_prewarm(language, script, &location);
        }
        Ok(())
    }
}

/// A value as the parser of limits reads it; what can be no limit only has to be recognised in a
/// message.
fn to_value_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        // As it was written when it is huge: not hundreds of digits.
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "[…]".to_owned(),
        Value::Table(_) => "{…}".to_owned(),
    }
}

fn unknown(key: &str, section: &str, origin: &str) -> CommandFailure {
    if GRANTS.contains(&key) {
        let flag = key.trim_end_matches('s');
        return CommandFailure::usage(format!(
            "{origin}: `{key}` cannot be set in a file; give --{flag} with the call"
        ));
    }
    let begins: String = key.chars().take(64).collect();
    let cut = if begins.len() < key.len() { "…" } else { "" };
    let location = if section.is_empty() { String::new() } else { format!(" in [{section}]") };
    let sections = if section.is_empty() { ["limits", "max", "prewarm", "pool"].as_slice() } else { &[] };
    let starts = STARTS.iter().map(|start| start.file);
    let known = names().map(|(name, _)| name.file).chain(starts).chain(sections.iter().copied());
    let nearest = known.min_by_key(|known| strsim::levenshtein(known, &begins)).unwrap_or("wall");
    CommandFailure::usage(format!(
        "{origin}: unknown key `{begins}{cut}`{location}; the nearest known one is `{nearest}`"
    ))
}
