//! Errors of the engine as exceptions of the package.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyString;
use sandtimer::Error;
use sandtimer::isolate::files::FilesError;

/// An exception of `sandtimer.errors` by its name.
pub(crate) fn exception(py: Python<'_>, name: &str, message: &str) -> PyErr {
    exception_of(py, name, (message,))
}

/// As [`exception`], of these arguments.
pub(crate) fn exception_of<'py>(py: Python<'py>, name: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = py
        .import("sandtimer.errors")
        .and_then(|errors| errors.getattr(PyString::new(py, name)))
        .and_then(|class| class.call1(arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// What stopped the engine before a run existed.
pub(crate) fn from_engine(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::Files(FilesError::NoGpu { .. }) => "SandboxUnavailableError",
        Error::Limit(_) => "InvalidLimitError",
        Error::Interpreter(_) | Error::SpawnLimit(_) | Error::Files(_) => "ProfileRefusedError",
        Error::Refused(_) => "IsolationRefusedError",
        Error::NoBranch(_) => "BranchRefusedError",
        // The scope it was to run in has ended.
        Error::Scope(_) => "DeadlineExceeded",
        _ => "SandboxUnavailableError",
    };
    exception(py, name, &error.to_string())
}
