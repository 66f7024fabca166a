//! Reads and parses one `sandtimer.toml`.
//!
//! The file may have been put there to do harm: only a regular file of a sane size is read, and nothing waits for it.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use super::{Failure, Limits, NAMES, Name, SHARED_NAMES, Setting, Table, Value, format, parse_text};

/// More than any file of settings has.
const MOST_BYTES: u64 = 1 << 20;
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

/// A file that is there.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    pub(super) text: String,
}

/// What a file sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) limits: Limits,
    pub(super) maxima: Limits,
}

pub(super) fn read(path: &Path, missing: Missing) -> Result<Option<Found>, Failure> {
    let refused = |problem: String| {
        let named = if let Missing::Named(variable) = missing {
            format!(" (named by {variable})")
        } else {
            String::new()
        };
        Failure::usage(format!("{}{named}: {problem}", path.display()))
    };
    // Without O_NONBLOCK a FIFO would keep us here until somebody writes to it.
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
    let mut limited = std::fs::File::from(opened).take(MOST_BYTES + 1);
    limited.read_to_string(&mut text).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => refused("a configuration file must be UTF-8 text".to_owned()),
        _ => refused(format!("the configuration file cannot be read: {error}")),
    })?;
    if text.len() as u64 > MOST_BYTES {
        return Err(refused(format!("a configuration file has at most {MOST_BYTES} bytes")));
    }
    // The widths of these fields differ between architectures.
    #[allow(clippy::useless_conversion)]
    let identity = (u64::from(status.st_dev), u64::from(status.st_ino));
    Ok(Some(Found { path: path.to_owned(), identity, text }))
}

/// Reads the limits and the ceilings.
pub(super) fn parse(found: &Found) -> Result<Parsed, Failure> {
    let origin = found.path.display().to_string();
    let mut top: Table = found.text.parse().map_err(|error| syntax(&origin, &found.text, &error))?;
    let mut parsed =
        Parsed { maxima: table(&mut top, "max", &origin)?, limits: table(&mut top, "limits", &origin)? };
    let at_the_top = limits(&top, "", &origin)?;
    for name in NAMES {
        match (parsed.limits.get(name.key), at_the_top.get(name.key)) {
            (_, Setting::Inherit) => {}
            (Setting::Inherit, setting) => parsed.limits.set(name.key, setting),
            _ => {
                let message =
                    format!("{origin}: `{0}` is set at the top and in [limits]; keep one of them", name.file);
                return Err(Failure::usage(message));
            }
        }
    }
    Ok(parsed)
}

fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> Failure {
    let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
    let line = before.matches('\n').count() + 1;
    Failure::usage(format!("{origin}:{line}: not TOML: {}", error.message()))
}

fn table(top: &mut Table, name: &str, origin: &str) -> Result<Limits, Failure> {
    match top.remove(name) {
        None => Ok(Limits::new()),
        Some(Value::Table(table)) => limits(&table, name, origin),
        Some(other) => {
            let other = as_text(&other);
            Err(Failure::usage(format!(
                "{origin}: `{name}` is `{other}` and has to be a table; write [{name}]"
            )))
        }
    }
}

fn limits(table: &Table, section: &str, origin: &str) -> Result<Limits, Failure> {
    for key in table.keys() {
        if !names().any(|(name, _)| name.file == key) {
            return Err(unknown(key, section, origin));
        }
    }
    let mut limits = Limits::new();
    for (name, shared) in names() {
        if let Some(value) = table.get(name.file) {
            let text = as_text(value);
            let key =
                if section.is_empty() { name.file.to_owned() } else { format!("{section}.{}", name.file) };
            limits.set(name.key, parse_text(&key, format(name.key, shared), &text, origin)?);
        }
    }
    Ok(limits)
}

/// A value as the parser of limits reads it; what can be no limit only has to be recognised in a message.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "[…]".to_owned(),
        Value::Table(_) => "{…}".to_owned(),
    }
}

/// The names in files, the weaker ones first.
fn names() -> impl Iterator<Item = (Name, bool)> {
    SHARED_NAMES.into_iter().map(|name| (name, true)).chain(NAMES.into_iter().map(|name| (name, false)))
}

fn unknown(key: &str, section: &str, origin: &str) -> Failure {
    if GRANTS.contains(&key) {
        let flag = key.trim_end_matches('s');
        return Failure::usage(format!(
            "{origin}: `{key}` cannot be set in a file; give --{flag} with the call"
        ));
    }
    let place = if section.is_empty() { String::new() } else { format!(" in [{section}]") };
    let sections = if section.is_empty() { ["limits", "max"].as_slice() } else { &[] };
    let known = names().map(|(name, _)| name.file).chain(sections.iter().copied());
    let nearest = known.min_by_key(|known| distance(known, key)).unwrap_or("wall");
    Failure::usage(format!("{origin}: unknown key `{key}`{place}; the nearest known one is `{nearest}`"))
}

/// How many characters have to change.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
