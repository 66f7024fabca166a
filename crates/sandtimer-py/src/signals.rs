//! Asks the interpreter for signals while the caller's thread waits.

use std::time::Duration;

use pyo3::prelude::*;

/// How long a wait continues before signals are handled.
pub(crate) const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Asks the interpreter whether a signal's handler raised; keeps what it raised.
pub(crate) fn poll_signals(raised: &mut Option<PyErr>) -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            *raised = Some(error);
            true
        }
    })
}
