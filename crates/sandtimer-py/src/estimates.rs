//! Estimates from the durations that the servers of this user have kept.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use sandtimer_agents::estimate::{Conditions, EstimateAnswer, EstimateRequest, Estimator};
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{
    DurationStore, KnownDurations, default_state_directory, named_state_directory, own_name,
};

use crate::errors::exception;

/// What is asked, as Python passes it.
#[derive(Debug, FromPyObject)]
pub(crate) struct Question {
    #[pyo3(item)]
    task_type: Option<String>,
    #[pyo3(item)]
    command: Option<Vec<String>>,
    #[pyo3(item)]
    data_size_mb: Option<f64>,
    #[pyo3(item)]
    complexity: Option<String>,
    #[pyo3(item)]
    context: Option<String>,
    /// In seconds.
    #[pyo3(item)]
    budget: Option<f64>,
    #[pyo3(item)]
    state_dir: Option<PathBuf>,
}

/// JSON of the answer, and the remarks on the histories.
#[pyfunction]
pub(crate) fn estimate(py: Python<'_>, question: Question) -> PyResult<(String, Vec<String>)> {
    let answered = py.detach(|| answer(question));
    let (answer, remarks) = answered.map_err(|message| exception(py, "EstimateRefusedError", &message))?;
    Ok((answer.object().to_string(), remarks))
}

fn answer(question: Question) -> Result<(EstimateAnswer, Vec<String>), String> {
    let Question { task_type, command, data_size_mb, complexity, context, budget, state_dir } = question;
    let wrong = |seconds: f64| format!("budget={seconds:?}: use a number of seconds from 0 on, or None");
    let budget =
        budget.map(|seconds| Duration::try_from_secs_f64(seconds).map_err(|_| wrong(seconds))).transpose()?;
    let asked = EstimateRequest { task_type, command, data_size_mb, complexity, context, budget };
    // What is asked wrongly is refused before anything is read.
    asked.question("", Conditions::default()).map_err(|error| error.to_string())?;
    let known = match state_dir.or_else(named_state_directory).or_else(default_state_directory) {
        Some(directory) => DurationStore::known(&directory, calendar_milliseconds()),
        None => Ok(KnownDurations { estimator: Estimator::new(), remarks: Vec::new() }),
    };
    let known = known.map_err(|error| error.to_string())?;
    let answer = known.estimator.answer(asked, &own_name(), Conditions::here());
    Ok((answer.map_err(|error| error.to_string())?, known.remarks))
}
