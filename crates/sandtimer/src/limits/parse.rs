//! Reads one limit from a flag, an environment variable, a configuration file or JSON.
//!
//! Whatever is not clearly a limit is refused here, where its name and origin are still known: a
//! NaN or a `-1` that travels on becomes a timer that fires at once. Arithmetic is exact; a
//! positive value never rounds to 0.

use std::fmt;

use serde_json::{Map, Number, Value};

use super::key::{Key, Unit};
use super::setting::{FAR_FUTURE, Setting, nanoseconds};
use crate::model::LimitKind;

/// The longest part of a refused value that a message repeats.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// What 0, `null`, `none` and `unlimited` mean for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zero {
    /// Explicitly no limit.
    Unlimited,
    /// Nothing of it: a grace of 0 is no grace. `unlimited` is refused.
    Nothing,
    /// Refused: steps of Sandtimer's own always have a limit.
    Refused,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// How a number without a unit is counted.
    pub unit: Unit,
    /// What 0 means.
    pub zero: Zero,
    /// Anything between nothing and this is refused.
    pub least: u64,
    /// Only a whole number will do, in the unit that the key's name says: no fraction, and no unit
    /// of its own.
    pub whole: bool,
}

impl Format {
    /// As in JSON and configuration files: a bare number of a time is milliseconds.
    pub fn wire(key: impl Into<Key>) -> Self {
        let key = key.into();
        let zero = if key == Key::Grace { Zero::Nothing } else { Zero::Unlimited };
        Self { unit: key.unit(), zero, least: key.least(), whole: false }
    }

    /// As on the command line: a bare number of a time is seconds.
    pub fn flag(key: impl Into<Key>) -> Self {
        let mut format = Self::wire(key);
        if format.unit == Unit::Milliseconds {
            format.unit = Unit::Seconds;
        }
        format
    }

    /// For a limit that cannot be switched off, such as the time to start an interpreter.
    pub fn required(unit: Unit) -> Self {
        Self { unit, zero: Zero::Refused, least: 0, whole: false }
    }

    fn is_time(self) -> bool {
        matches!(self.unit, Unit::Seconds | Unit::Milliseconds)
    }

    /// How much a bare number counts: nanoseconds, bytes or pieces.
    fn scale(self) -> u64 {
        match self.unit {
            Unit::Seconds => 1_000_000_000,
            Unit::Milliseconds => 1_000_000,
            Unit::Bytes | Unit::Count => 1,
        }
    }

    fn suffix(self, suffix: &str) -> Option<u64> {
        match self.unit {
            Unit::Seconds | Unit::Milliseconds => time_suffix(suffix),
            Unit::Bytes => size_suffix(suffix),
            Unit::Count => None,
        }
    }

    pub(super) fn remedy(self, problem: Problem) -> String {
        let example = match self.unit {
            _ if problem == Problem::TooSmall => {
                return format!("use {} or more, or `unlimited`", shown(self.least));
            }
            Unit::Seconds => "a positive duration such as `2s`",
            Unit::Milliseconds if self.whole => "a whole number of milliseconds such as `2000`",
            Unit::Bytes if self.whole => "a whole number of bytes such as `10485760`",
            Unit::Milliseconds => "milliseconds such as `2000`, or a duration such as `2s`",
            Unit::Bytes => "a whole number of bytes, or a size such as `512M`",
            Unit::Count => "a whole number such as `64`",
        };
        let or = match self.zero {
            Zero::Unlimited => ", or `unlimited`",
            Zero::Nothing => ", or `0` for none",
            Zero::Refused => "; this limit cannot be switched off",
        };
        format!("use {example}{or}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    NotADuration,
    NotASize,
    NotACount,
    Fraction,
    TooLarge,
    TooSmall,
    NoLimit,
    UnknownKey,
    NoUnit,
    Twice,
}

impl Problem {
    fn not_a(unit: Unit) -> Self {
        match unit {
            Unit::Seconds | Unit::Milliseconds => Problem::NotADuration,
            Unit::Bytes => Problem::NotASize,
            Unit::Count => Problem::NotACount,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Problem::NotADuration => "is not a duration",
            Problem::NotASize => "is not a size",
            Problem::NotACount => "is not a count",
            Problem::Fraction => "is not a whole number",
            Problem::TooLarge => "is too large",
            Problem::TooSmall => "is less than any command needs",
            Problem::NoLimit => "would leave it without a limit",
            Problem::UnknownKey => "is set, but there is no limit of that name",
            Problem::NoUnit => "has no unit",
            Problem::Twice => "is given under another name of the same limit as well",
        })
    }
}

/// A value that cannot be a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: `{value}` {problem} (from {origin}); {remedy}")]
pub struct LimitError {
    key: String,
    value: String,
    origin: String,
    problem: Problem,
    remedy: String,
}

impl LimitError {
    /// The flag, variable or key as the user wrote it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The refused value, shortened, control characters escaped.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The same where limits are written in another way than as text, with what would work there:
    /// "use …".
    #[must_use]
    pub fn with_remedy(self, remedy: String) -> Self {
        Self { remedy, ..self }
    }

    /// Where it came from, such as `the command line`.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// Reads a limit written as text: `500ms`, `1h30m`, `1.5s`, `512M`, `10MB`, `64`, `unlimited`.
///
/// K, M, G and KB, MB, GB are powers of 1024. Durations above 30 years become 30 years. `origin`
/// completes the words "from …" in the message.
///
/// # Errors
/// Names the key, the value, the origin and what would work.
///
/// ```
/// use sandtimer::limits::{Format, Setting, parse_string};
/// use sandtimer::model::LimitKind;
///
/// let wall = Format::flag(LimitKind::Wall);
/// assert_eq!(parse_string("wall", wall, "1h30m", "--wall")?, Setting::At(5_400_000_000_000));
/// assert_eq!(parse_string("wall", wall, "unlimited", "--wall")?, Setting::Unlimited);
/// let error = parse_string("wall", wall, "soon", "--wall").unwrap_err();
/// assert_eq!((error.value(), error.origin()), ("soon", "--wall"));
/// # Ok::<(), sandtimer::limits::LimitError>(())
/// ```
pub fn parse_string(key: &str, format: Format, text: &str, origin: &str) -> Result<Setting, LimitError> {
    setting_of_string(format, text)
        .map_err(|problem| rejection(key, text, origin, problem, format.remedy(problem)))
}

/// Reads a limit from the JSON value of a wire key (`wall_ms`, `memory_bytes`, …): a number in the
/// key's unit, a text as in [`parse_string`], or `null`.
///
/// # Errors
/// Names the key, the value, the origin and what would work; also for a key that is no limit's.
///
/// ```
/// use sandtimer::limits::{Setting, from_json};
///
/// let read = |value| from_json("wall_ms", &value, "the request");
/// assert_eq!(read(serde_json::json!(1500))?, Setting::At(1_500_000_000));
/// assert_eq!(read(serde_json::json!(null))?, Setting::Unlimited);
/// assert!(read(serde_json::json!(-1)).is_err());
/// # Ok::<(), sandtimer::limits::LimitError>(())
/// ```
pub fn from_json(key: &str, value: &Value, origin: &str) -> Result<Setting, LimitError> {
    match Key::from_wire(key) {
        Some(known) => from_json_as(key, known, value, origin),
        None => {
            let keys = Key::ALL.map(Key::wire).join(", ");
            let remedy = format!("use one of {keys}");
            Err(rejection(key, &written(value), origin, Problem::UnknownKey, remedy))
        }
    }
}

/// As [`from_json`], for a limit that the caller knows by another name.
///
/// # Errors
/// Names that name, the value, the origin and what would work.
pub fn from_json_as(name: &str, key: Key, value: &Value, origin: &str) -> Result<Setting, LimitError> {
    let format = Format::wire(key);
    let setting = match value {
        Value::Null => nothing(format, "null"),
        Value::Number(number) => setting_of_number(format, number),
        Value::String(text) => setting_of_string(format, text),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(Problem::not_a(format.unit)),
    };
    setting.map_err(|problem| rejection(name, &written(value), origin, problem, format.remedy(problem)))
}

/// Other names of `wall_ms` in JSON, as tools for the same work have them.
const WALL_NAMES: [&str; 2] = ["timeout_ms", "timeout"];

/// Gives a wall limit that is called `timeout_ms` or `timeout` among the fields of an object its
/// name, `wall_ms`.
///
/// # Errors
/// A limit by two names; a value that cannot be one; a `timeout` without a unit, which is seconds
/// to some and milliseconds to others.
pub fn name_wall(fields: &mut Map<String, Value>, origin: &str) -> Result<(), LimitError> {
    let wall = Key::Kind(LimitKind::Wall);
    for name in WALL_NAMES {
        let Some(value) = fields.remove(name) else { continue };
        let refuse = |problem, remedy: String| rejection(name, &written(&value), origin, problem, remedy);
        if fields.contains_key(wall.wire()) {
            return Err(refuse(
                Problem::Twice,
                format!("give one of {}, {}", wall.wire(), WALL_NAMES.join(", ")),
            ));
        }
        let given = written(&value);
        let number = given.trim();
        if name == "timeout" && number.parse::<f64>().is_ok_and(|number| number != 0.0) {
            return Err(refuse(
                Problem::NoUnit,
                format!("use `{number}s` or `{number}ms` as a string, or `wall_ms`"),
            ));
        }
        from_json_as(name, wall, &value, origin)?;
        fields.insert(wall.wire().to_owned(), value);
    }
    Ok(())
}

/// A value as it was given; of a text, what is between the quotes.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A number as one would write it.
fn shown(value: u64) -> String {
    if value.is_multiple_of(1 << 20) { format!("`{}M`", value >> 20) } else { format!("`{value}`") }
}

pub(super) fn rejection(
    key: &str,
    value: &str,
    origin: &str,
    problem: Problem,
    remedy: String,
) -> LimitError {
    let mut shown = String::new();
    for (index, character) in value.chars().enumerate() {
        if index == MAX_SHOWN_CHARACTERS {
            shown.push('…');
            break;
        }
        // The message may be shown on a terminal, and the value may come from another user.
        if character.is_control() { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    LimitError { key: key.into(), value: shown, origin: origin.into(), problem, remedy }
}

/// What "no value" in any spelling means.
fn nothing(format: Format, spelling: &str) -> Result<Setting, Problem> {
    match format.zero {
        Zero::Unlimited => Ok(Setting::Unlimited),
        Zero::Nothing if spelling != "unlimited" => Ok(Setting::At(0)),
        Zero::Nothing | Zero::Refused => Err(Problem::NoLimit),
    }
}

fn setting_of_string(format: Format, text: &str) -> Result<Setting, Problem> {
    let text = text.trim();
    for spelling in ["unlimited", "none", "null"] {
        if text.eq_ignore_ascii_case(spelling) {
            return nothing(format, spelling);
        }
    }
    let amount = if let Some((number, "")) = take_number(text) {
        if format.whole && text.contains('.') {
            return Err(Problem::Fraction);
        }
        number.scaled(format.scale())
    } else {
        let sum = sum_of_parts(format, text).ok_or(Problem::not_a(format.unit))?;
        if format.whole {
            return Err(Problem::Fraction);
        }
        sum
    };
    finish(format, amount)
}

fn setting_of_number(format: Format, number: &Number) -> Result<Setting, Problem> {
    if let Some(whole) = number.as_u64() {
        let value = u128::from(whole) * u128::from(format.scale());
        return finish(format, Amount { value, fraction: false });
    }
    let float = number.as_f64().filter(|float| *float >= 0.0).ok_or(Problem::not_a(format.unit))?;
    let product = float * format.scale() as f64;
    // A tenth of a second has no exact float: a duration is rounded to the nearest nanosecond, and
    // the conversion saturates. A size or a count must be whole as written.
    let value = if format.is_time() { product.round() as u128 } else { product.trunc() as u128 };
    let fraction = if format.is_time() { value == 0 && float > 0.0 } else { product.fract() != 0.0 };
    finish(format, Amount { value, fraction })
}

/// A non-negative number in nanoseconds, bytes or pieces, and whether a part of one was left over.
#[derive(Debug, Clone, Copy)]
struct Amount {
    value: u128,
    fraction: bool,
}

fn finish(format: Format, amount: Amount) -> Result<Setting, Problem> {
    if amount.value == 0 && !amount.fraction {
        return nothing(format, "0");
    }
    if format.is_time() {
        let limit = u64::try_from(amount.value).unwrap_or(u64::MAX);
        return Ok(Setting::At(limit.clamp(1, nanoseconds(FAR_FUTURE))));
    }
    if amount.fraction {
        return Err(Problem::Fraction);
    }
    match u64::try_from(amount.value) {
        Ok(value) if value < format.least => Err(Problem::TooSmall),
        Ok(value) => Ok(Setting::At(value)),
        Err(_) => Err(Problem::TooLarge),
    }
}

/// Adds up `1h30m`, or reads the one part of `512M`.
fn sum_of_parts(format: Format, text: &str) -> Option<Amount> {
    let mut sum = Amount { value: 0, fraction: false };
    let mut rest = text;
    let mut previous_scale = u64::MAX;
    while !rest.is_empty() {
        let (number, after_number) = take_number(rest)?;
        let after_number = after_number.trim_start();
        let suffix_len = after_number
            .find(|character: char| {
                character.is_ascii_digit() || character == '.' || character.is_whitespace()
            })
            .unwrap_or(after_number.len());
        let (suffix, after_suffix) = after_number.split_at(suffix_len);
        let scale = format.suffix(suffix)?;
        // `30m1h` and `1s1s` are more likely slips than sums.
        if scale >= previous_scale || (!format.is_time() && previous_scale != u64::MAX) {
            return None;
        }
        previous_scale = scale;
        let part = number.scaled(scale);
        sum.value = sum.value.saturating_add(part.value);
        sum.fraction |= part.fraction;
        rest = after_suffix.trim_start();
    }
    (previous_scale != u64::MAX).then_some(sum)
}

/// A decimal number as it is written.
#[derive(Debug, Clone, Copy)]
struct DecimalNumber<'a> {
    /// The digits before the point.
    whole: &'a str,
    /// The digits after the point, or `0`.
    fraction: &'a str,
}

/// Splits a number from the text that follows it; `None` if the text does not begin with one.
fn take_number(text: &str) -> Option<(DecimalNumber<'_>, &str)> {
    let (whole, rest) = take_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after_point) => take_digits(after_point),
        None => ("0", rest),
    };
    (!whole.is_empty() && !fraction.is_empty()).then_some((DecimalNumber { whole, fraction }, rest))
}

fn take_digits(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

impl DecimalNumber<'_> {
    /// Returns the number times `scale`, saturating.
    fn scaled(self, scale: u64) -> Amount {
        /// Digits after the point that can matter: no scale is above 10^14, and 10^18 times that
        /// fits.
        const DIGITS: usize = 18;
        let scale = u128::from(scale);
        let whole = self.whole.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(scale);
        let fraction = self.fraction.trim_end_matches('0');
        let kept = &fraction[..fraction.len().min(DIGITS)];
        let power = 10_u128.pow(u32::try_from(kept.len()).expect("at most 18 digits"));
        let product = kept.parse::<u128>().unwrap_or(0) * scale;
        Amount {
            value: whole.saturating_add(product / power),
            fraction: product % power != 0 || fraction.len() > DIGITS,
        }
    }
}

fn time_suffix(suffix: &str) -> Option<u64> {
    Some(match suffix {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}

fn size_suffix(suffix: &str) -> Option<u64> {
    Some(match suffix.to_ascii_uppercase().as_str() {
        "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        _ => return None,
    })
}
