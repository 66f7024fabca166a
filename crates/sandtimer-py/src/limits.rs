//! Limits as Python writes them: seconds, sizes, counts; None and 0 for unlimited.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use sandtimer::engine::Require;
use sandtimer::limits::{Format, Key, Limits, Setting, Unit, parse_string};
use sandtimer::model::{KillClass, LimitKind, Tier};

use crate::errors::exception;

/// Parameters that are limits, and whose limit each is.
const NAMES: [(&str, Key); 8] = [
    ("timeout", Key::Kind(LimitKind::Wall)),
    ("cpu", Key::Kind(LimitKind::Cpu)),
    ("stall", Key::Kind(LimitKind::Stall)),
    ("grace", Key::Grace),
    ("memory", Key::Kind(LimitKind::Memory)),
    ("processes", Key::Kind(LimitKind::Processes)),
    ("output", Key::Kind(LimitKind::Output)),
    ("result_bytes", Key::Kind(LimitKind::Result)),
];

/// Reads the limits out of a dictionary of parameters; a missing one is inherited.
fn read(parameters: &Bound<'_, PyDict>) -> PyResult<Limits> {
    let mut limits = Limits::new();
    for (name, key) in NAMES {
        if let Some(value) = parameters.get_item(name)? {
            limits.set(key, setting(name, key, &value)?);
        }
    }
    Ok(limits)
}

/// A wall limit alone, given under `name`.
pub(crate) fn wall(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Limits> {
    let mut limits = Limits::new();
    let key = Key::Kind(LimitKind::Wall);
    limits.set(key, setting(name, key, value)?);
    Ok(limits)
}

/// The least isolation, from a parameter such as `require="T3"` or `require="K2"`.
fn requirement(parameters: &Bound<'_, PyDict>) -> PyResult<Require> {
    let mut require = Require::default();
    let Some(value) = parameters.get_item("require")?.filter(|value| !value.is_none()) else {
        return Ok(require);
    };
    let text: String = value.extract()?;
    let json = serde_json::Value::String(text);
    if let Ok(tier) = serde_json::from_value::<Tier>(json.clone()) {
        require.tier = Some(tier);
    } else if let Ok(kill) = serde_json::from_value::<KillClass>(json) {
        require.kill = Some(kill);
    } else {
        let remedy = "use a tier such as \"T3\", a kill class such as \"K2\", or None";
        let message = format!(
            "require={} is neither a tier (T0 to T3) nor a kill class (K0 to K3): {remedy}",
            value.repr()?
        );
        return Err(exception(value.py(), "InvalidLimitError", &message));
    }
    Ok(require)
}

/// The setting of a limit by a parameter.
pub(crate) fn setting(name: &str, key: Key, value: &Bound<'_, PyAny>) -> PyResult<Setting> {
    let py = value.py();
    let refuse = |message: String| Err(exception(py, "InvalidLimitError", &message));
    let format = Format::flag(key);
    if value.is_none() {
        return Ok(Setting::Unlimited);
    }
    let is_size = format.unit == Unit::Bytes;
    let text = if value.is_instance_of::<PyBool>() {
        None
    } else if value.is_instance_of::<PyInt>() {
        Some(value.str()?.to_string())
    } else if value.is_instance_of::<PyFloat>() {
        let number: f64 = value.extract()?;
        // Display, unlike repr(), never writes an exponent.
        Some(number.to_string())
    } else if is_size && value.is_instance_of::<PyString>() {
        Some(value.extract()?)
    } else if let Ok(whole) = value.call_method0("__index__") {
        // As numpy has them.
        Some(whole.str()?.to_string())
    } else {
        None
    };
    let Some(text) = text else {
        let kind = value.get_type().name()?;
        return refuse(format!("{name}={} is a {kind}: {}", value.repr()?, remedy(key, format)));
    };
    parse_string(name, format, &text, "the call")
        .or_else(|error| refuse(error.with_remedy(remedy(key, format)).to_string()))
}

/// What would work, as Python writes it.
fn remedy(key: Key, format: Format) -> String {
    let wanted = match format.unit {
        Unit::Bytes => "a whole number of bytes or a size such as \"512MB\"",
        Unit::Count => "a whole number from 1 on",
        _ => "a number of seconds from 0 on",
    };
    // Every least size is a whole number of these.
    let least = match (format.unit, format.least >> 20) {
        (Unit::Bytes, megabytes @ 1..) => format!(", from \"{megabytes}MB\" on"),
        _ => String::new(),
    };
    let none = if key == Key::Grace { "None for none" } else { "None for no limit" };
    format!("use {wanted}{least}, or {none}")
}

/// The notice before a limit: how many seconds before, and which signal. Checked by the package.
fn notice(parameters: &Bound<'_, PyDict>) -> PyResult<Option<(Duration, i32)>> {
    let given = |name| Ok::<_, PyErr>(parameters.get_item(name)?.filter(|value| !value.is_none()));
    let (Some(before), Some(signal)) = (given("warn_before")?, given("warn_signal")?) else {
        return Ok(None);
    };
    let before = Duration::try_from_secs_f64(before.extract()?).unwrap_or(Duration::MAX);
    Ok(Some((before, signal.extract()?)))
}

/// The limits of calls, the notice before them, and their least isolation. Read once for many
/// calls.
#[pyclass(frozen, name = "Limits", module = "sandtimer._sandtimer")]
pub(crate) struct CallLimits {
    pub limits: Limits,
    pub require: Require,
    pub notice: Option<(Duration, i32)>,
}

#[pymethods]
impl CallLimits {
    /// From a dictionary of parameters. Refuses what is no limit, naming it.
    #[new]
    fn new(parameters: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(CallLimits {
            require: requirement(parameters)?,
            limits: read(parameters)?,
            notice: notice(parameters)?,
        })
    }
}
