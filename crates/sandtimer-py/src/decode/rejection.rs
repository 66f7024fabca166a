//! Why a result is not rebuilt. Text that comes from the job is shortened and escaped before it is
//! shown.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

pub(super) type Result<T> = std::result::Result<T, DecodeRejection>;

#[derive(Debug)]
pub(super) enum DecodeRejection {
    Because(String),
    Raised(PyErr),
}

impl From<PyErr> for DecodeRejection {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// A rejection for this reason.
pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(DecodeRejection::Because(reason.into()))
}

/// A refusal of something that a change of the call would let through.
pub(super) fn refuse_class<T>(module: &str, name: &str) -> Result<T> {
    refuse(format!(
        "the result refers to {}.{}, which trust=\"data\" does not rebuild: name the class in results=[...], or use \
         trust=\"pickle\" if you vouch for the code",
        shown(module),
        shown(name)
    ))
}

/// Escapes and shortens any text for a message.
pub(super) fn shown(text: &str) -> String {
    const MAX_SHOWN_CHARACTERS: usize = 120;
    let start: String = text.chars().take(MAX_SHOWN_CHARACTERS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN_CHARACTERS).is_some() { format!("{start}...") } else { start }
}

impl DecodeRejection {
    /// The exception the caller gets. What is not an error (an interrupt) stays what it is.
    pub(super) fn into_exception(self, py: Python<'_>) -> PyErr {
        let class = match refused_class(py) {
            Ok(class) => class,
            Err(error) => return error,
        };
        match self {
            Self::Because(reason) => exception(class, reason),
            Self::Raised(error) if error.is_instance(py, class) => error,
            Self::Raised(error) if !error.is_instance_of::<PyException>(py) => error,
            Self::Raised(error) => {
                let refused =
                    exception(class, format!("the result cannot be rebuilt: {}", shown(&error.to_string())));
                refused.set_cause(py, Some(error));
                refused
            }
        }
    }
}

fn exception(class: &Bound<'_, PyAny>, reason: String) -> PyErr {
    class.call1((reason,)).map_or_else(|error| error, PyErr::from_value)
}

pub(super) fn refused_class<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(py, "sandtimer.errors", "ResultRefusedError")
}
