//! `sandtimer estimate`: how long something is likely to take, from the durations that this user's
//! servers have kept.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sandtimer::limits::{Format, Setting, Unit, Zero, parse_string};
use sandtimer_agents::estimate::{Conditions, EstimateRequest, Estimator, TaskType, format_duration};
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{DurationStore, own_name};
use serde_json::{Value, json};

use super::CommandFailure;
use super::serve::state_directory;
use crate::args::EstimateArguments;
use crate::render;

pub(crate) fn main(given: EstimateArguments) -> Result<ExitCode, CommandFailure> {
    if given.list {
        render::print(&list(given.json)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (as_json, state) = (given.json, given.state_dir.clone());
    let asked = asked(given)?;
    // What is asked wrongly is refused before anything is read.
    asked.question("", Conditions::default()).map_err(refused)?;
    let answer = estimator(state)?.answer(asked, &own_name(), Conditions::here()).map_err(refused)?;
    render::print(&if as_json { format!("{:#}\n", answer.object()) } else { answer.text() });
    Ok(ExitCode::SUCCESS)
}

fn refused(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::usage(error.to_string())
}

fn asked(given: EstimateArguments) -> Result<EstimateRequest, CommandFailure> {
    Ok(EstimateRequest {
        task_type: given.task_type,
        command: given.command.map(|line| vec!["sh".to_owned(), "-c".to_owned(), line]),
        data_size_mb: given.data_size_mb,
        complexity: given.complexity,
        context: given.context,
        budget: given.budget.as_deref().map(budget).transpose()?.flatten(),
    })
}

fn budget(text: &str) -> Result<Option<Duration>, CommandFailure> {
    let format = Format { unit: Unit::Seconds, zero: Zero::Unlimited, least: 0, whole: false };
    Ok(match parse_string("--budget", format, text, "the command line")? {
        Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
        Setting::Unlimited | Setting::Inherit => None,
    })
}

/// What this user's runs foretell.
fn estimator(state: Option<PathBuf>) -> Result<Estimator, CommandFailure> {
    let directory = state.map_or_else(state_directory, Ok)?;
    let known = DurationStore::known(&directory, calendar_milliseconds()).map_err(refused)?;
    known.remarks.iter().for_each(|remark| render::note(remark));
    Ok(known.estimator)
}

/// All types of task, with their figures.
fn list(as_json: bool) -> Result<String, CommandFailure> {
    let unknowing = Estimator::new();
    let mut entries = Vec::new();
    for task in TaskType::all() {
        let asked = EstimateRequest { task_type: Some(task.name().to_owned()), ..EstimateRequest::default() };
        entries.push((task, unknowing.answer(asked, "", Conditions::default()).map_err(refused)?.estimate));
    }
    if as_json {
        let object = |(task, estimate): &(TaskType, sandtimer_agents::estimate::Estimate)| -> Value {
            json!({
                "task_type": task.name(),
                "group": task.group(),
                "data_size_mb": task.usual_size_mb(),
                "best_ms": (estimate.best_seconds * 1000.0) as u64,
                "typical_ms": (estimate.typical_seconds * 1000.0) as u64,
                "worst_ms": (estimate.worst_seconds * 1000.0) as u64,
            })
        };
        return Ok(format!("{:#}\n", Value::from_iter(entries.iter().map(object))));
    }
    let mut text = "TYPE                     BEST     TYPICAL  WORST    AT MB\n".to_owned();
    for (task, estimate) in &entries {
        text.push_str(&format!(
            "{:<24} {:<8} {:<8} {:<8} {}\n",
            task.name(),
            format_duration(estimate.best_seconds),
            format_duration(estimate.typical_seconds),
            format_duration(estimate.worst_seconds),
            task.usual_size_mb(),
        ));
    }
    Ok(text)
}
