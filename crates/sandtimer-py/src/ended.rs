//! The end of a run, as a Python object.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sandtimer::engine;

use crate::signals::SIGNAL_POLL_INTERVAL;

/// The end of a run, for callers that keep nothing else of it.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Ended {
    #[pyo3(get)]
    id: String,
    ended: engine::CallCompletion,
}

impl Ended {
    pub(crate) fn new(id: String, ended: engine::CallCompletion) -> Self {
        Ended { id, ended }
    }
}

#[pymethods]
impl Ended {
    /// Waits for the Outcome, as JSON; with its final proof where `settled`.
    fn outcome(&self, py: Python<'_>, settled: bool) -> PyResult<String> {
        while !py.detach(|| self.ended.is_there_within(SIGNAL_POLL_INTERVAL, settled)) {
            py.check_signals()?;
        }
        let outcome = if settled { self.ended.settled() } else { self.ended.wait() };
        py.detach(|| serde_json::to_string(&*outcome)).map_err(|error| PyOSError::new_err(error.to_string()))
    }
}
