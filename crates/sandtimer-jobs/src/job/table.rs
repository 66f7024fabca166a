//! Takes the fields of a spec one by one. What is refused is named by its path, its value and what
//! is allowed; what is left in the end is refused with the nearest known name.

use std::time::Duration;

use sandtimer::limits::{Format, Key, LimitError, Limits, Setting, Unit, Zero, name_wall, parse_string};
use sandtimer::model::LimitKind;
use sandtimer::vocabulary;
use serde_json::{Map, Value};

use super::error::SpecError;

/// The longest part of a refused value that a message repeats.
const MAX_SHOWN_CHARACTERS: usize = 80;
/// What errors about limits name as where they are from.
const ORIGIN: &str = "the job's spec";

/// One object of a spec.
#[derive(Debug)]
pub(super) struct SpecTable {
    path: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    /// What durations are multiplied by.
    pub scale: f64,
}

impl SpecTable {
    pub fn of(value: Value, path: &str, scale: f64) -> Result<Self, SpecError> {
        match value {
            Value::Object(left) => Ok(SpecTable { path: path.to_owned(), left, known: Vec::new(), scale }),
            other => Err(refused(path, &other, "a table of named fields")),
        }
    }

    /// The path to one of its fields.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub fn has(&self, key: &str) -> bool {
        self.left.contains_key(key)
    }

    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.left.remove(key)
    }

    pub fn string(&mut self, key: &'static str) -> Result<Option<String>, SpecError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() && !text.contains('\0') => Ok(Some(text)),
            Some(other) => Err(refused(&self.at(key), &other, "a string that is not empty")),
        }
    }

    /// A short text of printable characters, such as a name or a key.
    pub fn name(&mut self, key: &'static str) -> Result<Option<String>, SpecError> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        if text.chars().count() > 200 || text.chars().any(char::is_control) {
            return Err(refused(&self.at(key), &text.into(), "at most 200 printable characters"));
        }
        Ok(Some(text))
    }

    pub fn strings(&mut self, key: &'static str) -> Result<Option<Vec<String>>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let texts = match &value {
            Value::Array(list) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        let whole = texts.filter(|texts: &Vec<String>| texts.iter().all(|text| !text.contains('\0')));
        whole.map(Some).ok_or_else(|| refused(&self.at(key), &value, "a list of texts"))
    }

    pub fn flag(&mut self, key: &'static str) -> Result<bool, SpecError> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(refused(&self.at(key), &other, "true or false")),
        }
    }

    pub fn count(&mut self, key: &'static str, least: i64, most: i64) -> Result<Option<i64>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let count = value.as_i64().filter(|count| (least..=most).contains(count));
        let allowed = || format!("a whole number from {least} to {most}");
        count.map(Some).ok_or_else(|| refused(&self.at(key), &value, &allowed()))
    }

    pub fn small(&mut self, key: &'static str, least: u32) -> Result<Option<u32>, SpecError> {
        let count = self.count(key, least.into(), 1_000_000)?;
        Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Milliseconds since 1970.
    pub fn moment(&mut self, key: &'static str) -> Result<Option<u64>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let moment = value.as_u64().filter(|moment| *moment < 1 << 52);
        moment.map(Some).ok_or_else(|| refused(&self.at(key), &value, "whole milliseconds since 1970"))
    }

    /// A duration: `None` if it is not set, `Some(None)` if it is explicitly without limit.
    pub fn limit(&mut self, key: &'static str) -> Result<Option<Option<Duration>>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        self.one_time(&self.at(key), &value, Zero::Unlimited).map(Some)
    }

    /// The wall limit, by any of its names.
    pub fn wall(&mut self) -> Result<Option<Option<Duration>>, SpecError> {
        self.name_wall()?;
        self.limit(Key::Kind(LimitKind::Wall).wire())
    }

    /// A duration that is never unlimited.
    pub fn time(&mut self, key: &'static str) -> Result<Option<Duration>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        self.one_time(&self.at(key), &value, Zero::Refused)
    }

    /// A duration that may be nothing.
    pub fn span(&mut self, key: &'static str) -> Result<Option<Duration>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        self.one_time(&self.at(key), &value, Zero::Nothing).map(|time| Some(time.unwrap_or_default()))
    }

    /// One duration, or several.
    pub fn times(&mut self, key: &'static str) -> Result<Option<Vec<Duration>>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Value::Array(list) = &value else {
            return Err(refused(&self.at(key), &value, "a list of durations such as [100, 200, 400]"));
        };
        let one = |(index, value): (usize, &Value)| {
            let path = format!("{}[{index}]", self.at(key));
            self.one_time(&path, value, Zero::Nothing).map(Option::unwrap_or_default)
        };
        list.iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
    }

    fn one_time(&self, path: &str, value: &Value, zero: Zero) -> Result<Option<Duration>, SpecError> {
        let format = Format { unit: Unit::Milliseconds, zero, least: 0, whole: false };
        Ok(match setting(path, format, value)? {
            Setting::At(nanoseconds) => Some(self.scaled(nanoseconds)),
            Setting::Unlimited | Setting::Inherit => None,
        })
    }

    fn scaled(&self, nanoseconds: u64) -> Duration {
        if self.scale == 1.0 {
            return Duration::from_nanos(nanoseconds);
        }
        Duration::from_nanos((nanoseconds as f64 * self.scale) as u64).min(sandtimer::limits::FAR_FUTURE)
    }

    /// Gives a wall limit by another name its own.
    fn name_wall(&mut self) -> Result<(), SpecError> {
        name_wall(&mut self.left, ORIGIN).map_err(|error| refused_limit(&self.at(error.key()), &error))
    }

    /// The limits in a table of their own, by their names on wires.
    pub fn limits(&mut self, key: &'static str) -> Result<Limits, SpecError> {
        let mut limits = Limits::new().with_origin(self.at(key));
        let Some(mut table) = self.table(key)? else { return Ok(Limits::new()) };
        table.name_wall()?;
        for key in Key::ALL {
            let Some(value) = table.take(key.wire()) else { continue };
            let path = table.at(key.wire());
            let set = match setting(&path, Format::wire(key), &value)? {
                Setting::At(value) if key.unit() == Unit::Milliseconds => {
                    Setting::At(u64::try_from(table.scaled(value).as_nanos()).unwrap_or(u64::MAX))
                }
                set => set,
            };
            limits.set(key, set);
        }
        table.done()?;
        Ok(limits)
    }

    pub fn table(&mut self, key: &'static str) -> Result<Option<SpecTable>, SpecError> {
        let path = self.at(key);
        self.take(key).map(|value| SpecTable::of(value, &path, self.scale)).transpose()
    }

    /// A list of tables; empty where there is none.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<SpecTable>, SpecError> {
        let path = self.at(key);
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                let one = |(index, value)| SpecTable::of(value, &format!("{path}[{index}]"), self.scale);
                list.into_iter().enumerate().map(one).collect()
            }
            Some(other) => Err(refused(&path, &other, "a list of tables")),
        }
    }

    /// All fields, for a table whose names are the writer's to choose.
    pub fn open(self) -> Result<Vec<(String, SpecTable)>, SpecError> {
        let path = self.path.clone();
        let scale = self.scale;
        let one = |(name, value): (String, Value)| {
            SpecTable::of(value, &format!("{path}.{name}"), scale).map(|table| (name, table))
        };
        self.left.into_iter().map(one).collect()
    }

    /// As [`SpecTable::open`], of texts.
    pub fn open_strings(self) -> Result<Vec<(String, String)>, SpecError> {
        let path = self.path.clone();
        let one = |(name, value): (String, Value)| match value {
            Value::String(text) if !text.contains('\0') && !name.contains(['=', '\0']) => Ok((name, text)),
            other => Err(refused(&format!("{path}.{name}"), &other, "a string")),
        };
        self.left.into_iter().map(one).collect()
    }

    /// The error for a field that is another tool's name for one of these, which are missing, or
    /// one of them misspelled.
    pub fn misnamed(&self, names: &[&'static str]) -> Option<SpecError> {
        let names = names.iter().copied();
        self.left.keys().find_map(|key| {
            let (_, hint) = vocabulary::meant_or_misspelled(key, names.clone())?;
            Some(SpecError { path: self.at(key), problem: format!("unknown field{hint}") })
        })
    }

    /// Fails if a key was not taken.
    pub fn done(self) -> Result<(), SpecError> {
        let Some(key) = self.left.keys().next() else { return Ok(()) };
        let known = || self.known.iter().copied();
        let elsewhere = vocabulary::elsewhere(key).filter(|_| self.path.is_empty());
        let hint = match (vocabulary::meant(key, known()), elsewhere, nearest(key, known())) {
            (Some(name), ..) => format!(", which is `{name}` here"),
            (None, Some(advice), _) => format!("; {advice}"),
            (None, None, Some(name)) => format!("; the nearest known one is `{name}`"),
            (None, None, None) => String::new(),
        };
        Err(SpecError { path: self.at(key), problem: format!("unknown field{hint}") })
    }
}

/// The refusal of a value.
pub(super) fn refused(path: &str, value: &Value, allowed: &str) -> SpecError {
    let text = value.to_string();
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARACTERS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    SpecError { path: path.to_owned(), problem: format!("{shown} is not allowed; use {allowed}") }
}

fn setting(path: &str, format: Format, value: &Value) -> Result<Setting, SpecError> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    parse_string(path, format, &text, ORIGIN).map_err(|error| refused_limit(path, &error))
}

/// As [`limits::name_wall`](sandtimer::limits::name_wall), of the top of a spec.
pub(super) fn name_wall_of(spec: &mut Value) -> Result<(), SpecError> {
    let Value::Object(fields) = spec else { return Ok(()) };
    name_wall(fields, ORIGIN).map_err(|error| refused_limit(error.key(), &error))
}

/// The refusal of a limit in the field at `path`.
fn refused_limit(path: &str, error: &LimitError) -> SpecError {
    let message = error.to_string();
    // It begins with the field's name, which the path has already.
    let problem = message.strip_prefix(&format!("{}: ", error.key())).unwrap_or(&message).to_owned();
    SpecError { path: path.to_owned(), problem }
}

/// The known name that begins with this one, else the one with the fewest characters to change.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let begins: String = name.chars().take(64).collect();
    known.min_by_key(|known| (!known.starts_with(name), strsim::levenshtein(known, &begins)))
}
